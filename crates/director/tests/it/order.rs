//! Parts of an object in any order: what is given back is the same, and the tape is under way for less.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use capstan_director::{BackupRequest, Event, Level, Place, RestoreReport, index_path};
use capstan_format::Volser;
use capstan_mover::OrderedBy;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;
use capstan_tape::model::{TapePosition as OnTape, built_in};
use capstan_tape::{
    BlockLimits, CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveCare, DriveDescription, DriveError,
    DriveIdentity, DriveKey, Element, Flush, Library, Medium, Position, ReadOutcome, VirtualLibrary, WriteOutcome,
};

use crate::place::{Bench, small, tree};
use std::os::unix::ffi::OsStrExt;

/// What the drive says of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opinion {
    /// It has no model that is known, and no opinion.
    Unknown,
    /// It is an LTO-9, and has no opinion.
    None,
    /// It is an LTO-9, and wants the last first.
    Backwards,
    /// Its answer is none: something is named twice.
    Nonsense,
    /// It fails when it is asked.
    Fails,
}

/// What the tape did.
#[derive(Debug, Default, Clone)]
struct Way {
    seconds: f64,
    located: Vec<u64>,
    asked: usize,
}

/// A library whose cartridges, some MiB in files, are seen as full tapes of 18 TB: each block is a long way along the
/// tape.
struct Magnified(VirtualLibrary, Opinion, Arc<Mutex<Way>>);

impl Changer for Magnified {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.0.inventory()
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.0.load(volser, drive)
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.0.unload(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.0.carry_out_request(request)
    }
}

impl Library for Magnified {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        self.0.drives()
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        self.0.describe_drives()
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        let (inner, end_lbn, at) = (self.0.take_drive(drive)?, 1, 0);
        Ok(Box::new(MagnifiedDrive { inner, opinion: self.1, way: Arc::clone(&self.2), end_lbn, at }))
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        self.0.create_cartridge(spec)
    }
}

struct MagnifiedDrive {
    inner: Box<dyn Drive>,
    opinion: Opinion,
    way: Arc<Mutex<Way>>,
    end_lbn: u64,
    at: u64,
}

impl MagnifiedDrive {
    fn seen(&self, medium: Medium) -> Medium {
        let (capacity_bytes, remaining_bytes) = (18_000_000_000_000, 0);
        Medium { generation: Some("LTO-9".to_owned()), capacity_bytes, remaining_bytes, ..medium }
    }

    /// The tape goes there, by the geometry of LTO-9 and in no time.
    fn goes_to(&mut self, lbn: u64) {
        let geometry = built_in("LTO-9").unwrap().geometry;
        let place = |lbn: u64| -> OnTape { geometry.place(lbn as f64 / self.end_lbn as f64) };
        let mut way = self.way.lock().unwrap();
        way.seconds += geometry.locate_s(place(self.at), place(lbn));
        way.located.push(lbn);
        self.at = lbn;
    }
}

impl Drive for MagnifiedDrive {
    fn identity(&self) -> DriveIdentity {
        let model = if self.opinion == Opinion::Unknown { "virtual" } else { "LTO-9" };
        DriveIdentity { model: model.to_owned(), ..self.inner.identity() }
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        let medium = self.inner.load()?;
        self.inner.space_to_end_of_data()?;
        self.end_lbn = self.inner.position()?.lbn;
        self.inner.locate(0)?;
        Ok(self.seen(medium))
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.inner.unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        let medium = self.inner.medium()?;
        Ok(self.seen(medium))
    }

    fn block_limits(&self) -> BlockLimits {
        self.inner.block_limits()
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.inner.position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.goes_to(lbn);
        self.inner.locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.inner.space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.inner.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        self.at += 1;
        self.inner.read_block(buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        self.inner.write_block(block)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        self.inner.write_filemarks(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.inner.erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.inner.set_key(key)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        self.inner.care()
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.way.lock().unwrap().asked += 1;
        assert!(stretches.iter().all(|(first, last)| first <= last) && stretches.is_sorted(), "{stretches:?}");
        match self.opinion {
            Opinion::Unknown | Opinion::None => Ok(None),
            Opinion::Backwards => Ok(Some((0..stretches.len()).rev().collect())),
            Opinion::Nonsense => Ok(Some(vec![0; stretches.len()])),
            Opinion::Fails => Err(DriveError::NoMedium { drive: self.inner.identity().name }),
        }
    }
}

/// Path to mode, time and content.
type Tree = BTreeMap<PathBuf, (u32, i64, usize, u32)>;

struct Parts {
    bench: Bench,
    ordered: Arc<Mutex<Vec<OrderedBy>>>,
}

const DIRECTORIES: u32 = 6;
const FILES: u32 = 12;

impl Parts {
    /// 72 files of 320 KiB in directories of their own modes and times, and second names of some, far from the first.
    fn new(connections: u16) -> Self {
        let bench = Bench::new(small());
        for directory in 0..DIRECTORIES {
            bench.fill(&format!("{directory}/file"), FILES, 320 << 10);
        }
        for directory in 0..DIRECTORIES {
            let (from, to) =
                (format!("{directory}/file-3"), format!("{}/other-{directory}", DIRECTORIES - 1 - directory));
            fs::hard_link(bench.source().join(from), bench.source().join(to)).unwrap();
        }
        for directory in 0..DIRECTORIES {
            let path = bench.source().join(directory.to_string());
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o711 + directory)).unwrap();
            let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000 + u64::from(directory));
            fs::File::open(&path).unwrap().set_modified(then).unwrap();
        }
        bench.backup(&BackupRequest { connections, ..bench.request(Level::Full) }).unwrap();
        let ordered = Arc::<Mutex<Vec<OrderedBy>>>::default();
        let seen = Arc::clone(&ordered);
        bench.set_hook(Some(Box::new(move |event| {
            if let Event::Ordered { order } = event {
                seen.lock().unwrap().push(order.by.clone());
            }
        })));
        Self { bench, ordered }
    }

    /// Restores these below the source, or everything.
    fn restore(&self, paths: &[String], opinion: Opinion, to: &str) -> (RestoreReport, Way) {
        let way = Arc::<Mutex<Way>>::default();
        let library = VirtualLibrary::open(self.bench.path("state/library"), 2).unwrap();
        let site = self.bench.site().with_library(Magnified(library, opinion, Arc::clone(&way)));
        let whole = |path: &String| index_path(self.bench.source().join(path).as_os_str().as_bytes());
        let object = self.bench.objects().remove(0).id;
        let plan = site.plan_restore(&[Place { object, paths: paths.iter().map(whole).collect() }]).unwrap();
        let (target, options) = (self.bench.path(to), ExtractOptions::default());
        let report = site.restore(&plan, &target, &options, &RestoreWatch::default()).unwrap();
        assert!(report.is_whole() && report.extract.as_ref().unwrap().problems.is_empty(), "{report:?}");
        let way = way.lock().unwrap().clone();
        (report, way)
    }

    /// What was given back, and which names are of one file.
    fn given(&self, to: &str) -> (Tree, Vec<Vec<PathBuf>>) {
        let root = self.bench.path(to).join(self.bench.source().strip_prefix("/").unwrap());
        let found = tree(&root);
        let mut names: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
        for path in found.keys() {
            let metadata = fs::symlink_metadata(root.join(path)).unwrap();
            if metadata.nlink() > 1 && metadata.is_file() {
                names.entry(metadata.ino()).or_default().push(path.clone());
            }
        }
        let mut names: Vec<_> = names.into_values().collect();
        names.sort();
        (found, names)
    }
}

/// Some files, two names of one file, far from each other, and a directory with all that is in it.
fn some(mut seed: u64) -> Vec<String> {
    let mut draw = |below: u32| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 20) as u32 % below
    };
    let mut paths: Vec<String> = (0..10).map(|_| format!("{}/file-{}", draw(DIRECTORIES), draw(FILES))).collect();
    let linked = draw(DIRECTORIES);
    paths.push(format!("{}/other-{linked}", DIRECTORIES - 1 - linked));
    paths.push(format!("{linked}/file-3"));
    if draw(2) == 0 {
        paths.push(draw(DIRECTORIES).to_string());
    }
    paths.sort();
    paths.dedup();
    paths
}

#[test]
fn files_come_back_the_same_in_whatever_order_they_are_read() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("CAPSTAN_SEED").map_or(now, |text| text.parse().unwrap());
    println!("CAPSTAN_SEED={seed} replays this");
    let parts = Parts::new(2);
    for round in 0..4 {
        let paths = some((seed + round) | 1);
        let (by_position, plain) = parts.restore(&paths, Opinion::Unknown, &format!("{round}-position"));
        let wanted = parts.given(&format!("{round}-position"));
        assert!(!wanted.1.is_empty(), "seed {seed}: no file has two names");
        // What is given back is what was there.
        let source = tree(&parts.bench.source());
        let differing = wanted.0.iter().filter(|(path, is)| source.get(*path) != Some(is));
        let differing: Vec<_> = differing.map(|(path, is)| (path, is, source.get(path))).collect();
        assert!(differing.is_empty(), "seed {seed}: {paths:?}: given back and there: {differing:?}");
        for opinion in [Opinion::None, Opinion::Backwards, Opinion::Nonsense, Opinion::Fails] {
            let to = format!("{round}-{opinion:?}");
            let (report, way) = parts.restore(&paths, opinion, &to);
            assert_eq!(parts.given(&to), wanted, "seed {seed}, {opinion:?}: {paths:?}");
            assert_eq!((report.blocks, report.members), (by_position.blocks, by_position.members), "seed {seed}");
            // How streams lie on the volume is another each time: all that is wanted may be one stretch.
            assert!(way.asked >= 1 || report.orders.is_empty(), "seed {seed}: the drive was not asked");
            // Each stretch is gone to once, whatever the order: blocks are never gone back for.
            let mut located = way.located.clone();
            let mut plainly = plain.located.clone();
            located.sort_unstable();
            plainly.sort_unstable();
            assert_eq!(located, plainly, "seed {seed}, {opinion:?}");
        }
    }
}

#[test]
fn the_tape_is_under_way_as_the_model_says_and_as_the_drive_says() {
    let parts = Parts::new(1);
    let paths: Vec<String> =
        (0..DIRECTORIES).flat_map(|directory| [2, 8].map(|file| format!("{directory}/file-{file}"))).collect();
    let ordered_by = || std::mem::take(&mut *parts.ordered.lock().unwrap());
    let (report, plain) = parts.restore(&paths, Opinion::Unknown, "position");
    assert_eq!(ordered_by(), [OrderedBy::Position]);
    assert_eq!(report.orders[0].positioning, None);
    assert!(report.orders[0].stretches >= 3, "{:?}", report.orders);

    let (report, way) = parts.restore(&paths, Opinion::None, "model");
    assert_eq!(ordered_by(), [OrderedBy::Model("LTO-9".to_owned())]);
    let told = report.orders[0].positioning.unwrap();
    println!("{} s and {} s, told {told:?}", way.seconds, plain.seconds);
    // By how much depends on how the files came to lie, which is another way each time.
    assert!(told.taken_s <= told.front_to_back_s, "{told:?}");
    // The label is read before, which the estimate does not have; going back at the end it has, and the meter has not.
    let saved = (told.front_to_back_s - told.taken_s, plain.seconds - way.seconds);
    assert!((saved.0 - saved.1).abs() < 90.0, "told {} s, saved {} s", saved.0, saved.1);

    let (report, way) = parts.restore(&paths, Opinion::Backwards, "drive");
    assert_eq!((ordered_by(), report.orders[0].by.clone()), (vec![OrderedBy::Drive], OrderedBy::Drive));
    // Behind the label, the last stretch came first and the first last; what is near in one stretch comes by position.
    let located: Vec<u64> = way.located.iter().copied().filter(|lbn| *lbn > 3).collect();
    let (first, last, end) = (located[0], located[located.len() - 1], *located.iter().max().unwrap());
    assert!(first > end / 3 * 2 && last < end / 3, "{located:?}");

    let (_, way) = parts.restore(&paths, Opinion::Fails, "fails");
    assert_eq!((ordered_by(), way.asked), (vec![OrderedBy::Model("LTO-9".to_owned())], 1));
    let notices = parts.bench.notices.lock().unwrap();
    assert!(notices.iter().any(|notice| notice.contains("was asked in which order to read")), "{notices:?}");
}

#[test]
fn an_object_that_is_wanted_whole_is_read_as_it_was_written_and_no_drive_is_asked() {
    let parts = Parts::new(2);
    let (report, way) = parts.restore(&[], Opinion::Backwards, "whole");
    assert!(report.orders.is_empty() && way.asked == 0, "{:?}", report.orders);
    assert!(way.located.is_sorted(), "{:?}", way.located);
    assert_eq!(parts.given("whole").0, tree(&parts.bench.source()));
}
