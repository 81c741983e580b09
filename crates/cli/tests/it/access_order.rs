//! A restore of some files in the order that the drive recommends, over SCSI commands and without a kernel or a wire
//! between.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_catalog::{ObjectFilter, Promise};
use capstan_director::{BackupRequest, BackupWatch, Loss, Place, RestoreReport, Site, index_path};
use capstan_format::Volser;
use capstan_mover::OrderedBy;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;
use capstan_tape::hardware::{DriveCompression, ScsiDrive};
use capstan_tape::scsi::{DataPhase, Reply, Transport, TransportError};
use capstan_tape::{CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element};
use capstan_vtl::{LocalLibrary, LocalTransport, ServedLibrary};

use crate::local::{Ground, now_ns};

const VOLSER: &str = "A00001L9";
const FILES: usize = 80;

/// What becomes of the drive's answers on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    AsTheyAre,
    /// The order comes backwards: a cartridge as short as a test's lies on one wrap, where every order that is any good
    /// is front to back.
    Backwards,
    /// The drive takes lists of two.
    ShortLists,
}

/// What the drive was told to do.
#[derive(Debug, Default, Clone)]
struct Log {
    /// Segments in each list that it was to order.
    lists: Vec<usize>,
    located: Vec<u64>,
}

/// A way to the drive that is watched.
struct Watched(LocalTransport, Answers, Arc<Mutex<Log>>);

const SEGMENT_LEN: usize = 32;

impl Transport for Watched {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        match (&data, cdb[0], cdb[1] & 0x1f) {
            (DataPhase::Out(list), 0xa4, 0x1d) => self.2.lock().unwrap().lists.push((list.len() - 8) / SEGMENT_LEN),
            (_, 0x92, _) => {
                self.2.lock().unwrap().located.push(u64::from_be_bytes(cdb[4..12].try_into().unwrap()));
            }
            _ => {}
        }
        let buffer = match data {
            DataPhase::In(buffer) if (cdb[0], cdb[1] & 0x1f) == (0xa3, 0x1d) => buffer,
            other => return self.0.execute(cdb, other, timeout),
        };
        let reply = self.0.execute(cdb, DataPhase::In(&mut *buffer), timeout)?;
        let tells_limits = cdb[1] & 0x80 != 0;
        match self.1 {
            Answers::ShortLists if tells_limits => buffer[..2].copy_from_slice(&2u16.to_be_bytes()),
            Answers::Backwards if !tells_limits => {
                let (segments, _) = buffer[8..reply.moved].as_chunks_mut::<SEGMENT_LEN>();
                segments.reverse();
            }
            _ => {}
        }
        Ok(reply)
    }

    fn data_max(&self) -> usize {
        self.0.data_max()
    }
}

/// The library of this process, with watched drives.
struct WatchedLibrary {
    units: Arc<ServedLibrary>,
    robot: LocalLibrary,
    answers: Answers,
    log: Arc<Mutex<Log>>,
}

impl Changer for WatchedLibrary {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.robot.inventory()
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.robot.load(volser, drive)
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.robot.unload(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.robot.carry_out_request(request)
    }
}

impl capstan_tape::Library for WatchedLibrary {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        self.robot.drives()
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        self.robot.describe_drives()
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        let way = LocalTransport::new(Arc::clone(&self.units) as _, "mover", u64::from(drive) + 1);
        let way = Watched(way, self.answers, Arc::clone(&self.log));
        Ok(Box::new(ScsiDrive::open(way, format!("drive-{drive}"), DriveCompression::Off)?))
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        self.robot.create_cartridge(spec)
    }
}

struct Bench(Ground);

impl Bench {
    /// 80 files of 256 KiB on one volume, encrypted by the drive.
    fn new() -> Self {
        let layout = format!(
            "[[drive]]\nmodel = \"LTO-9\"\nencryption = \"host\"\n[[cartridge]]\nbarcode = \"{VOLSER}\"\ncapacity_mib = 64\n"
        );
        let bench = Self(Ground::new(&layout, |_| {}));
        for number in 0..FILES {
            let content: Vec<u8> = (0..256 << 10).map(|at: usize| (at / 7 * (number + 1)) as u8).collect();
            fs::write(bench.0.source().join(format!("file-{number}")), content).unwrap();
        }
        let (site, _) = bench.site(Answers::AsTheyAre);
        site.label(&Volser::new(VOLSER).unwrap(), None, None, Loss::Refuse, Promise::Keep).unwrap();
        let request = BackupRequest::of(vec![bench.0.source()]);
        site.backup(&request, &BackupWatch::default()).unwrap();
        bench
    }

    fn site(&self, answers: Answers) -> (Site, Arc<Mutex<Log>>) {
        let log = Arc::<Mutex<Log>>::default();
        let robot = self.0.robot();
        let library = WatchedLibrary { units: Arc::clone(&self.0.library), robot, answers, log: Arc::clone(&log) };
        let state = self.0.path("state");
        let site = Site::open(&state, Some(&self.0.unlock), now_ns, Arc::new(|_| {})).unwrap();
        (site.with_library(library), log)
    }

    /// Restores files of these numbers, everything without any, and compares them.
    fn restore(&self, numbers: &[usize], answers: Answers) -> (RestoreReport, Log) {
        let (site, log) = self.site(answers);
        let object = site.catalog().objects(&ObjectFilter::default()).unwrap().remove(0).id;
        let path = |number: &usize| index_path(self.0.source().join(format!("file-{number}")).as_os_str().as_bytes());
        let place = Place { object, paths: numbers.iter().map(path).collect() };
        let plan = site.plan_restore(&[place]).unwrap();
        let target = tempfile::tempdir().unwrap();
        let options = ExtractOptions::default();
        let report = site.restore(&plan, target.path(), &options, &RestoreWatch::default()).unwrap();
        assert!(report.is_whole(), "{report:?}");
        let given = tree(&target.path().join(self.0.source().strip_prefix("/").unwrap()));
        let mut wanted = tree(&self.0.source());
        let names: Vec<PathBuf> = numbers.iter().map(|number| format!("file-{number}").into()).collect();
        wanted.retain(|path, _| names.is_empty() || names.contains(path));
        assert!(given == wanted, "{:?} came back", given.keys());
        let log = log.lock().unwrap().clone();
        (report, log)
    }
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
}

#[test]
fn files_are_read_in_the_order_that_the_drive_recommends() {
    let bench = Bench::new();
    let numbers = [0, 15, 30, 45, 60, 75];

    let (report, log) = bench.restore(&numbers, Answers::AsTheyAre);
    let [order] = &report.orders[..] else { panic!("{:?}", report.orders) };
    assert_eq!((&order.by, order.volser.as_str()), (&OrderedBy::Drive, VOLSER));
    assert_eq!(log.lists, [order.stretches], "the drive is asked once, for all of them");
    assert!(order.stretches >= 3 && order.positioning.is_some(), "{order:?}");
    // A few metres of one wrap: front to back is best, and the model agrees with the drive.
    let of_files = |log: &Log| log.located.iter().copied().filter(|lbn| *lbn > 3).collect::<Vec<_>>();
    assert!(of_files(&log).is_sorted(), "{log:?}");
    let blocks = report.blocks;

    let (report, log) = bench.restore(&numbers, Answers::Backwards);
    assert_eq!(report.orders[0].by, OrderedBy::Drive);
    assert_eq!(report.blocks, blocks);
    let located = of_files(&log);
    assert!(located.first() > located.last(), "{located:?}");

    let (report, log) = bench.restore(&numbers, Answers::ShortLists);
    assert_eq!(report.orders[0].by, OrderedBy::Model("LTO-9".to_owned()));
    assert!(log.lists.is_empty(), "a list that it does not take is not sent");
}

#[test]
fn no_order_is_asked_for_what_is_wanted_whole() {
    let bench = Bench::new();
    let (report, log) = bench.restore(&[], Answers::Backwards);
    assert!(report.orders.is_empty() && log.lists.is_empty(), "{:?}, {log:?}", report.orders);
    assert!(log.located.iter().skip_while(|lbn| **lbn <= 3).is_sorted(), "{log:?}");
}
