//! What an operator may write over, and what not.

use std::fs;

use capstan_catalog::{Promise, VolumeState};
use capstan_director::{DirectorError, Level, Loss};
use capstan_format::Volser;
use capstan_tape::{Tab, VirtualLibrary};

use crate::expiry::with_a_scratch_volume;
use crate::main_path::with_an_older_catalog;
use crate::place::{Bench, small};

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

fn with_twins() -> Bench {
    let bench = Bench::new(small());
    bench.fill("a", 5, 150_000);
    let mut request = bench.request(Level::Full);
    request.copies = 2;
    bench.backup(&request).unwrap();
    bench
}

/// A twin whose key was destroyed, or that had been found cut short, counted as the copy that was left, so the one that
/// could still be read was erased without a word.
#[test]
fn a_copy_that_cannot_be_read_stands_in_for_nothing() {
    let of_volume = |set: &str| format!("UPDATE volumes SET {set} WHERE volser = 'VOLUME'");
    let without_key = "INSERT INTO facts (name, value) VALUES ('volumes_without_key', 'VOLUME')".to_owned();
    for unreadable in [of_volume("key_destroyed_ns = 1"), of_volume("state = 4"), without_key] {
        let bench = with_twins();
        let object = bench.objects()[0].id;
        let copies = bench.site().catalog().copies(object).unwrap();
        let (first, second) = (&copies[0].volumes[0], &copies[1].volumes[0]);
        bench.sql(&unreadable.replace("VOLUME", first.as_str()));
        let site = bench.site();
        let erased = site.erase(second, Loss::Refuse, Promise::Keep);
        assert!(matches!(erased, Err(DirectorError::VolumeHoldsData { objects: 1, .. })), "{erased:?}");
        let labelled = site.label(second, Some("default"), None, Loss::Refuse, Promise::Keep);
        assert!(matches!(labelled, Err(DirectorError::VolumeHoldsData { objects: 1, .. })), "{labelled:?}");
        assert!(site.erase(first, Loss::Refuse, Promise::Keep).unwrap().last.is_empty());
    }
}

/// What the catalog did not know, since an older one had been put back, was written over without a word.
#[test]
fn what_an_older_catalog_does_not_know_is_not_given_up() {
    for pool in [None, Some("default")] {
        let (bench, first) = with_an_older_catalog(pool);
        let site = bench.site();
        let labelled = site.label(&volser("A00001"), Some("default"), None, Loss::Refuse, Promise::Keep);
        assert!(matches!(labelled, Err(DirectorError::HoldsUnknown { .. })), "{labelled:?}");
        let erased = site.erase(&volser("A00001"), Loss::Refuse, Promise::Keep);
        assert!(matches!(erased, Err(DirectorError::HoldsUnknown { .. })), "{erased:?}");
        drop(site);
        bench.rebuild();
        bench.assert_restores(&first, "out");
        // Once it is known and nobody wants it, and once more, it is given up.
        for _ in 0..2 {
            bench.site().erase(&volser("A00001"), Loss::Accept, Promise::Keep).unwrap();
        }
        bench.site().erase(&volser("A00001"), Loss::Refuse, Promise::Keep).unwrap();
        bench.site().label(&volser("A00001"), Some("default"), None, Loss::Refuse, Promise::Keep).unwrap();
    }
}

/// A second cartridge of the same barcode was made for a volume that had been taken out, and only then did the catalog
/// refuse.
#[test]
fn a_volume_that_was_taken_out_keeps_its_barcode() {
    let bench = with_twins();
    fs::rename(bench.cartridge("A00001"), bench.path("away")).unwrap();
    for loss in [Loss::Refuse, Loss::Accept] {
        let labelled = bench.site().label(&volser("A00001"), Some("default"), None, loss, Promise::Keep);
        assert!(matches!(labelled, Err(DirectorError::Changer(_))), "{labelled:?}");
        assert!(!bench.cartridge("A00001").exists());
    }
    fs::rename(bench.path("away"), bench.cartridge("A00001")).unwrap();
    bench.assert_restores(&bench.objects()[0], "out");
}

fn slide(bench: &Bench, name: &str, tab: Tab) {
    VirtualLibrary::open(bench.path("state/library"), 4).unwrap().slide_tab(&volser(name), tab).unwrap();
}

/// The catalog forgot what was on the volume, and then the drive refused to write.
#[test]
fn what_is_on_a_write_protected_volume_is_not_forgotten() {
    let bench = with_twins();
    let before = bench.dump();
    slide(&bench, "A00001", Tab::Protected);
    let erased = bench.site().erase(&volser("A00001"), Loss::Accept, Promise::Keep);
    assert!(matches!(erased, Err(DirectorError::Volume { .. })), "{erased:?}");
    let labelled = bench.site().label(&volser("A00001"), None, None, Loss::Accept, Promise::Keep);
    assert!(matches!(labelled, Err(DirectorError::Volume { .. })), "{labelled:?}");
    assert_eq!(bench.dump(), before);
}

/// A volume whose tab had been slid was suspect from the next backup on, and no tab brought it back.
#[test]
fn a_write_protected_volume_is_passed_over_and_taken_again() {
    let bench = with_twins();
    let latest = || bench.site().catalog().copies(bench.objects()[0].id).unwrap()[0].volumes.clone();
    let first = latest().remove(0);
    slide(&bench, first.as_str(), Tab::Protected);
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert_eq!(bench.site().catalog().volume(&first).unwrap().unwrap().state, VolumeState::Filling);
    assert!(!latest().contains(&first));
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("write-protected")));
    slide(&bench, first.as_str(), Tab::Writable);
    slide(&bench, latest()[0].as_str(), Tab::Protected);
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert_eq!(latest(), [first]);
    // One that is still to be labelled is passed over as well.
    bench.site().label(&volser("B00001"), None, None, Loss::Refuse, Promise::Keep).unwrap();
    for name in ["B00001", latest()[0].as_str()] {
        slide(&bench, name, Tab::Protected);
    }
    bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(!latest().contains(&volser("B00001")));
}

/// The library got a cartridge of another site with the barcode of one that was scratch, or empty. Its label was taken
/// for what a labelling leaves that is killed, and it was written over.
#[test]
fn a_cartridge_of_another_site_with_a_known_barcode_is_not_written_over() {
    let other = Bench::new(small());
    other.fill("a", 5, 150_000);
    other.backup(&other.request(Level::Full)).unwrap();
    let kept = other.objects().remove(0);
    let stranger = fs::read(other.cartridge("A00001")).unwrap();
    let empty = |pool| {
        let bench = Bench::new(small());
        bench.site().label(&volser("A00001"), pool, None, Loss::Refuse, Promise::Keep).unwrap();
        bench
    };
    let scratch = |recycled: u32| {
        let (bench, _) = with_a_scratch_volume();
        bench.sql(&format!("UPDATE volumes SET recycled = {recycled} WHERE volser = 'A00001'"));
        bench
    };
    let benches = [empty(None), empty(Some("default")), scratch(0), scratch(1)];
    for (number, bench) in benches.into_iter().enumerate() {
        fs::write(bench.cartridge("A00001"), &stranger).unwrap();
        let label = |loss| bench.site().label(&volser("A00001"), Some("default"), None, loss, Promise::Keep);
        let labelled = label(Loss::Refuse);
        assert!(matches!(labelled, Err(DirectorError::HoldsUnknown { .. })), "{number}: {labelled:?}");
        let erased = bench.site().erase(&volser("A00001"), Loss::Refuse, Promise::Keep);
        assert!(matches!(erased, Err(DirectorError::HoldsUnknown { .. })), "{number}: {erased:?}");
        bench.fill("b", 3, 1000);
        bench.backup(&bench.request(Level::Full)).unwrap();
        let state = || bench.site().catalog().volume(&volser("A00001")).unwrap().unwrap().state;
        assert_eq!(state(), VolumeState::Suspect, "{number}");
        let notices = bench.notices.lock().unwrap().clone();
        assert!(notices.iter().any(|notice| notice.contains("`capstan label A00001 --force`")), "{notices:?}");
        // It is what the other site needs of it.
        fs::copy(bench.cartridge("A00001"), other.cartridge("A00001")).unwrap();
        other.assert_restores(&kept, &format!("out-{number}"));
        label(Loss::Accept).unwrap();
        assert_eq!(state(), VolumeState::Filling, "{number}");
    }
}

#[test]
fn a_volume_whose_labelling_was_killed_is_labelled_again() {
    for pool in [None, Some("default")] {
        let (bench, _) = with_a_scratch_volume();
        let before = fs::read(bench.cartridge("A00001")).unwrap();
        for _ in 0..2 {
            bench.site().label(&volser("A00001"), pool, None, Loss::Refuse, Promise::Keep).unwrap();
            // As it is left by one that is killed when the catalog knows of the new life and the medium does not.
            fs::write(bench.cartridge("A00001"), &before).unwrap();
        }
        let object = bench.backup(&bench.request(Level::Full)).unwrap().sources[0].object;
        assert_eq!(bench.site().catalog().copies(object).unwrap()[0].volumes, [volser("A00001")]);
        bench.assert_restores(&bench.objects()[0], "out");
    }
}
