//! What another job does between two looks of this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_catalog::{Promise, Resource};
use capstan_director::{BackupWatch, Level, Loss};
use capstan_format::Volser;
use capstan_tape::{
    CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, Library, VirtualLibrary,
};

use crate::place::{Bench, small};

/// A library in which somebody else acts right behind one of the looks into it.
struct Meanwhile {
    library: VirtualLibrary,
    looks: Arc<AtomicUsize>,
    behind: usize,
    act: Box<dyn Fn() + Send>,
}

impl Changer for Meanwhile {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        let elements = self.library.inventory();
        if self.looks.fetch_add(1, Ordering::SeqCst) == self.behind {
            (self.act)();
        }
        elements
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.library.load(volser, drive)
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.library.unload(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.library.carry_out_request(request)
    }
}

impl Library for Meanwhile {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        self.library.drives()
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        self.library.describe_drives()
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        self.library.take_drive(drive)
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        self.library.create_cartridge(spec)
    }
}

/// Backs up with a library of so many volumes in which somebody else labels one behind each look in turn.
fn label_behind_each_look(volumes_max: u32) {
    let (mut behind, mut looks_at_all) = (0, usize::MAX);
    while behind < looks_at_all {
        let mut config = small();
        config.library.volumes_max = volumes_max;
        let bench = Arc::new(Bench::new(config));
        bench.fill("a", 3, 1_000);
        let site = bench.site();
        let library = VirtualLibrary::open(site.library_dir(), 2).unwrap();
        let looks = Arc::new(AtomicUsize::new(0));
        let (other, made_before) = (Arc::clone(&bench), Arc::new(AtomicUsize::new(0)));
        let before = Arc::clone(&made_before);
        let act = move || {
            // A name that is reserved has its room already: who labels by hand may go beyond the limit.
            let reserved = other.site().catalog().reservations().unwrap();
            let reserved = reserved.iter().filter(|held| matches!(held.resource, Resource::Volume(_))).count();
            before.store(reserved, Ordering::SeqCst);
            let volser = Volser::new("B00001").unwrap();
            other.site().label(&volser, Some("default"), Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
        };
        let site = site.with_library(Meanwhile { library, looks: Arc::clone(&looks), behind, act: Box::new(act) });
        let report = site.backup(&bench.request(Level::Full), &BackupWatch::default());
        let report = report.unwrap_or_else(|error| panic!("behind look {behind}: {error}"));
        assert!(report.failed_copies.is_empty(), "behind look {behind}: {:?}", report.failed_copies);
        looks_at_all = looks.load(Ordering::SeqCst);
        assert!(looks_at_all > 2, "a backup looks into its library");
        let made = site.catalog().volumes().unwrap().len() - 1;
        if volumes_max == 1 {
            assert_eq!(made, made_before.load(Ordering::SeqCst), "behind look {behind}: one beside the other's");
        }
        drop(site);
        bench.assert_restores(&bench.objects()[0], "out");
        behind += 1;
    }
}

/// Two copies begin on an empty library. If one had labelled its volume between two looks of the other, the other took
/// the cartridges of the catalog for gone, and failed.
#[test]
fn a_volume_that_another_job_labels_meanwhile_is_not_taken_for_a_lost_library() {
    label_behind_each_look(1_000);
}

/// A backup made a volume more than the settings allow, if another job had made the last one since it looked.
#[test]
fn no_volume_is_made_beyond_the_limit_if_another_job_makes_the_last_one() {
    label_behind_each_look(1);
}

/// Both copies of a backup want the last volume, at the same moment: one gets it, the other says that there is none.
#[test]
fn of_two_that_want_the_last_volume_one_gets_it() {
    for _ in 0..10 {
        let mut config = small();
        config.library.volumes_max = 1;
        let bench = Bench::new(config);
        bench.fill("a", 3, 1_000);
        let mut request = bench.request(Level::Full);
        request.copies = 2;
        let report = bench.backup(&request).unwrap();
        assert_eq!(bench.site().catalog().volumes().unwrap().len(), 1);
        assert!(report.failed_copies.len() == 1 && report.failed_copies[0].1.contains("no volume to write to"));
        bench.assert_restores(&bench.objects()[0], "out");
    }
}
