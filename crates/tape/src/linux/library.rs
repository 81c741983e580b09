//! A library that the kernel knows: a changer's robot, and drives through their device nodes.
//!
//! Which drive stands in which element is found by serial numbers, each time anew: device numbers change with every
//! start of the host, and while it runs, when a library is switched off and on. What the library tells of its drives is
//! kept from one inventory to the next. A drive that was opened must have the serial number that the library tells, or
//! the robot would bring a cartridge to one drive while another one writes. Drives that are not named are found the
//! same way. The robot's node is opened for each act and closed again, so that several processes can use one library; a
//! drive's is kept from mount to dismount, exclusively.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::scan::{ScsiNode, pair, scan};
use super::sg::{SgDevice, Sharing};
use super::waits::{OnDeviceWait, Watched};
use crate::Finding;
use crate::hardware::{BlockProtection, ScsiChanger, model_of};
use crate::model::is_model;
use crate::{CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, Library};
use capstan_format::Volser;

/// How long another process may keep the robot.
const ROBOT_WITHIN: Duration = Duration::from_secs(300);
const ROBOT_LOOKS: Duration = Duration::from_millis(200);

/// A library of real, or seemingly real, devices. It is looked for when it is first used: a catalog can be asked while
/// it is off.
pub struct LinuxLibrary {
    robot: PathBuf,
    devices: Vec<PathBuf>,
    /// Serial numbers of the drives by element, counted from 0, as the library told them last.
    told: Option<Vec<Option<String>>>,
    /// Where drives were found last, by element.
    places: Vec<Option<PathBuf>>,
    /// Of the last inventory.
    findings: Vec<Finding>,
    protection: BlockProtection,
    on_wait: OnDeviceWait,
}

impl LinuxLibrary {
    /// The library behind a changer's generic node. `devices`: the drives to use, by their nodes; all that the library
    /// says it has and this host finds, if none is named.
    pub fn new(robot: PathBuf, devices: Vec<PathBuf>, protection: BlockProtection, on_wait: OnDeviceWait) -> Self {
        let (told, places, findings) = Default::default();
        Self { robot, devices, told, places, findings, protection, on_wait }
    }

    /// The drives by element, as they are now. The library is asked for their serial numbers if it was not yet, or if
    /// no drive is found by what it told.
    fn found(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        if let Some(told) = self.told.take()
            && let Ok(found) = self.find(&nodes()?, &told)
        {
            self.told = Some(told);
            return Ok(found);
        }
        let told = self.with_robot(ScsiChanger::drive_serials)?;
        let found = self.find(&nodes()?, &told)?;
        self.told = Some(told);
        Ok(found)
    }

    /// The drives with these serial numbers, among what the kernel has.
    fn find(&mut self, nodes: &[ScsiNode], told: &[Option<String>]) -> Result<Vec<DriveDescription>, ChangerError> {
        let paired = pair(nodes, told);
        let paths: Vec<Option<PathBuf>> = if self.devices.is_empty() {
            paired.iter().map(|node| node.and_then(ScsiNode::generic_path).map(Path::to_owned)).collect()
        } else {
            placed(&self.robot, nodes, (told, &self.places), &paired, &self.devices)?
        };
        if paths.iter().all(Option::is_none) {
            let reason = "this host finds none of its drives: `capstan drives scan` shows what there is, and \
                          library.devices names drives whose serial numbers the library does not tell";
            return Err(ChangerError::Unusable {
                library: self.robot.display().to_string(),
                reason: reason.to_owned(),
            });
        }
        self.places.clone_from(&paths);
        let described = paths.into_iter().enumerate().map(|(number, path)| {
            let told = told.get(number).cloned().flatten();
            let one = describe(nodes, path);
            DriveDescription { serial: told.or(one.serial), ..one }
        });
        Ok(described.collect())
    }

    /// The drive in an element: the serial number that the library tells, and its node.
    fn place(&mut self, drive: u32) -> Result<Place, ChangerError> {
        let mut found = self.found()?;
        let nodes = nodes()?;
        let (at, drives) = (drive as usize, found.len() as u32);
        if at >= found.len() {
            return Err(ChangerError::UnknownDrive { drive, drives });
        }
        let Some(path) = found.swap_remove(at).path else {
            let what = format!("drive {drive} of the library");
            return Err(ChangerError::InUse { what, holder: "another host: this one does not find it".to_owned() });
        };
        let told = self.told.as_ref().filter(|told| self.devices.is_empty() || names_any(&nodes, told));
        let told = told.and_then(|told| told.get(at).cloned().flatten());
        Ok(Place { told, path })
    }

    /// Does something with the robot; another process that has it is waited for.
    fn with_robot<R>(
        &self,
        act: impl FnOnce(&mut ScsiChanger<SgDevice>) -> Result<R, ChangerError>,
    ) -> Result<R, ChangerError> {
        let name = self.robot.display().to_string();
        let watched = Watched::new(&format!("library {name}"), &self.on_wait);
        let began = Instant::now();
        let device = loop {
            match SgDevice::open_watched(&self.robot, Sharing::Exclusive, &watched) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < ROBOT_WITHIN => {
                    watched.not_ready("another process has its robot".to_owned(), began.elapsed());
                    std::thread::sleep(ROBOT_LOOKS);
                }
                other => break other.map_err(host(&name))?,
            }
        };
        let mut changer = ScsiChanger::open_waiting(device, name, watched.on_wait())?;
        act(&mut changer)
    }
}

/// Where a drive of the library is on this host.
struct Place {
    /// Its serial number, where the library tells it.
    told: Option<String>,
    path: PathBuf,
}

/// By what a drive is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// By what the library told last.
    AsTold,
    /// By what it tells now.
    Anew,
}

/// Opens the drive that a library has in an element. If another one answers there, it is looked for once more. `open`
/// gives the drive and its serial number.
fn open_told<D>(
    library: &Path,
    drive: u32,
    mut place: impl FnMut(Look) -> Result<Place, ChangerError>,
    open: impl Fn(&Path) -> Result<(D, Option<String>), ChangerError>,
) -> Result<D, ChangerError> {
    let mut look = Look::AsTold;
    loop {
        let Place { told, path } = place(look)?;
        let (opened, serial) = open(&path)?;
        let Some(told) = told.filter(|told| serial.as_deref() != Some(told.trim())) else { return Ok(opened) };
        if look == Look::Anew {
            let answers = serial.map_or_else(
                || "tells no serial number".to_owned(),
                |serial| format!("is the drive with serial number {serial}"),
            );
            let reason = format!(
                "its drive {drive} has serial number {told}, but {} {answers}, so it was not used: have the host look \
                 for its devices anew (rescan-scsi-bus.sh -r, or start it again), then look at `capstan drives scan`",
                path.display()
            );
            return Err(ChangerError::Unusable { library: library.display().to_string(), reason });
        }
        look = Look::Anew;
    }
}

/// What a library tells of its drives now. Where it tells nothing this time, as of a drive that is switched off, what
/// it told before holds, unless that drive stands elsewhere now.
fn told_again(before: &[Option<String>], now: &[Option<String>]) -> Vec<Option<String>> {
    let is_elsewhere = |serial: &String| now.iter().flatten().any(|told| told == serial);
    let kept = |at: usize| before.get(at).cloned().flatten().filter(|serial| !is_elsewhere(serial));
    now.iter().enumerate().map(|(at, told)| told.clone().or_else(|| kept(at))).collect()
}

/// Whether any serial number that a library tells is one of a drive here. Some libraries tell numbers of their own:
/// whoever has named the devices then knows which is which.
fn names_any(nodes: &[ScsiNode], told: &[Option<String>]) -> bool {
    pair(nodes, told).iter().any(Option::is_some)
}

fn nodes() -> Result<Vec<ScsiNode>, ChangerError> {
    scan().map_err(host("looking for drives in sysfs"))
}

/// The drive behind a node, by what the kernel tells of it.
pub(super) fn describe(nodes: &[ScsiNode], path: Option<PathBuf>) -> DriveDescription {
    let real = path.as_ref().and_then(|path| std::fs::canonicalize(path).ok());
    let node = real.and_then(|real| nodes.iter().find(|node| node.has_node(&real)));
    let model = node.map(|node| format!("{} {}", node.vendor, node.product).trim().to_owned());
    let class = node.map(|node| model_of(&node.product)).filter(|class| is_model(class));
    DriveDescription { model, class, serial: node.and_then(|node| node.serial.clone()), path }
}

/// The drives that a person named, each in its element: by serial number where the library tells them, else in the
/// order named. One whose node is gone is where it was `before`.
fn placed(
    robot: &Path,
    nodes: &[ScsiNode],
    (serials, before): (&[Option<String>], &[Option<PathBuf>]),
    paired: &[Option<&ScsiNode>],
    devices: &[PathBuf],
) -> Result<Vec<Option<PathBuf>>, ChangerError> {
    let mut drives: Vec<Option<PathBuf>> = vec![None; paired.len().max(devices.len())];
    let mut unplaced = Vec::new();
    for device in devices {
        let real = match std::fs::canonicalize(device) {
            Ok(real) => real,
            Err(error) => {
                let was = before.iter().position(|path| path.as_ref() == Some(device));
                let was =
                    was.and_then(|at| drives.get_mut(at)).ok_or(error).map_err(host(&device.display().to_string()))?;
                // A drive that is there may stand there now.
                *was = was.take().or_else(|| Some(device.clone()));
                continue;
            }
        };
        let node = nodes.iter().find(|node| node.has_node(&real));
        let element =
            node.and_then(|node| paired.iter().position(|of| of.is_some_and(|of| of.address == node.address)));
        match element {
            Some(element) => drives[element] = Some(device.clone()),
            None => unplaced.push(device.clone()),
        }
    }
    // Only where the library does not tell which drive it has: one that it tells and that is none of these must stay
    // none.
    let untold: Vec<usize> = (0..drives.len()).filter(|at| serials.get(*at).is_none_or(Option::is_none)).collect();
    for device in unplaced {
        let Some(free) = untold.iter().find(|at| drives[**at].is_none()) else {
            let told: Vec<&str> = serials.iter().flatten().map(String::as_str).collect();
            let reason = format!(
                "{} is none of its drives, which have the serial numbers {}: take it out of library.devices",
                device.display(),
                told.join(", ")
            );
            return Err(ChangerError::Unusable { library: robot.display().to_string(), reason });
        };
        drives[*free] = Some(device);
    }
    Ok(drives)
}

fn host(what: &str) -> impl FnOnce(io::Error) -> ChangerError {
    let what = what.to_owned();
    move |source| ChangerError::Host { what, source }
}

impl Changer for LinuxLibrary {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        let (elements, findings, told) =
            self.with_robot(|robot| Ok((robot.inventory()?, robot.findings(), robot.told_drive_serials())))?;
        self.findings = findings;
        // A drive may have been replaced, or two of them put in each other's place.
        self.told = self.told.as_ref().map(|before| told_again(before, &told));
        Ok(elements)
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.with_robot(|robot| robot.load(volser, drive))
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.with_robot(|robot| robot.unload(drive))
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.with_robot(|robot| robot.carry_out_request(request))
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings.clone()
    }
}

impl Library for LinuxLibrary {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        let drives = match &self.told {
            Some(told) => told.len().max(self.devices.len()),
            None => self.found()?.len(),
        };
        Ok(drives as u32)
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        self.found()
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        let (robot, protection, on_wait) = (self.robot.clone(), self.protection, Arc::clone(&self.on_wait));
        let place = |look| {
            if look == Look::Anew {
                self.told = None;
            }
            self.place(drive)
        };
        open_told(&robot, drive, place, |path| {
            let (opened, serial) = super::open_named(path, super::FedBy::Robot, protection, &on_wait)?;
            // What the tape driver cannot ask for the kernel knows.
            let of_kernel = || describe(&nodes().ok()?, Some(path.to_owned())).serial;
            Ok((opened, serial.or_else(of_kernel)))
        })
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        Err(ChangerError::NotMade { volser: spec.volser.clone() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::scsi::inquiry::DeviceType;

    /// A host whose `sg1`, `sg2` and so on are drives with these serial numbers.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn node(&self, number: usize) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(format!("sg{number}"))
        }

        fn nodes(&self, serials: &[&str]) -> Vec<ScsiNode> {
            let node = |(number, serial): (usize, &&str)| {
                std::fs::write(self.node(number), "").unwrap();
                ScsiNode {
                    kind: DeviceType::Tape,
                    address: format!("0:0:{number}:0"),
                    vendor: "IBM".to_owned(),
                    product: if serial.starts_with('8') { "ULTRIUM-TD8" } else { "ULTRIUM-TD9" }.to_owned(),
                    revision: "1".to_owned(),
                    serial: Some((*serial).to_owned()),
                    generic: Some(self.node(number)),
                    tape: None,
                    changer: None,
                    by_id: Vec::new(),
                }
            };
            (1..).zip(serials).map(node).collect()
        }
    }

    fn library(devices: Vec<PathBuf>) -> LinuxLibrary {
        LinuxLibrary::new(PathBuf::from("/dev/sg0"), devices, BlockProtection::Off, Arc::new(|_| {}))
    }

    fn told(serials: &[&str]) -> Vec<Option<String>> {
        serials.iter().map(|serial| Some((*serial).to_owned()).filter(|serial| !serial.is_empty())).collect()
    }

    /// A library was switched off and on, and its drives came back in the other order: the robot brought a cartridge to
    /// one drive, and the other one, with whatever was in it, was labelled.
    #[test]
    fn drives_that_the_kernel_counts_otherwise_are_found_where_they_are() {
        let host = Host::new();
        for devices in [vec![], vec![host.node(1), host.node(2)]] {
            let (mut library, told) = (library(devices), told(&["8A", "9B"]));
            let mut found = |nodes: &[&str]| {
                let found = library.find(&host.nodes(nodes), &told).unwrap().into_iter();
                found
                    .map(|drive| (drive.serial.unwrap(), drive.class.unwrap(), drive.path.unwrap()))
                    .collect::<Vec<_>>()
            };
            let drive = |serial: &str, class: &str, node| (serial.to_owned(), class.to_owned(), host.node(node));
            assert_eq!(found(&["8A", "9B"]), [drive("8A", "LTO-8", 1), drive("9B", "LTO-9", 2)]);
            assert_eq!(found(&["9B", "8A"]), [drive("8A", "LTO-8", 2), drive("9B", "LTO-9", 1)]);
        }
    }

    #[test]
    fn a_named_drive_that_is_gone_keeps_its_place_and_the_others_are_used() {
        let host = Host::new();
        let (mut library, told) = (library(vec![host.node(1), host.node(2)]), told(&["9B", "9A"]));
        let nodes = host.nodes(&["9A", "9B"]);
        std::fs::remove_file(host.node(2)).unwrap();
        library.find(&nodes[..1], &told).unwrap_err();
        let nodes = host.nodes(&["9A", "9B"]);
        library.find(&nodes, &told).unwrap();
        std::fs::remove_file(host.node(2)).unwrap();
        let found = library.find(&nodes[..1], &told).unwrap();
        assert_eq!((found[0].path.clone(), found[1].path.clone()), (Some(host.node(2)), Some(host.node(1))));
        assert_eq!((found[0].serial.as_deref(), found[0].model.as_deref()), (Some("9B"), None));
    }

    /// As above, and not even the kernel has noticed.
    #[test]
    fn a_drive_with_another_serial_number_is_looked_for_once_more_and_not_used() {
        let run = |told: Option<&str>, answers: [Option<&str>; 2]| {
            let looks = std::cell::RefCell::new(Vec::new());
            let opened = open_told(
                Path::new("/dev/sg0"),
                3,
                |look| {
                    looks.borrow_mut().push(look);
                    Ok(Place { told: told.map(str::to_owned), path: PathBuf::from("/dev/sg1") })
                },
                |_| {
                    let nth = looks.borrow().len();
                    Ok((nth, answers[nth - 1].map(str::to_owned)))
                },
            );
            (opened.map_err(|error| error.to_string()), looks.into_inner())
        };
        let (once, twice) = (vec![Look::AsTold], vec![Look::AsTold, Look::Anew]);
        assert_eq!(run(Some("A "), [Some("A"), None]), (Ok(1), once.clone()));
        assert_eq!(run(None, [Some("B"), None]), (Ok(1), once.clone()), "a library that does not tell");
        assert_eq!(run(None, [None, None]), (Ok(1), once));
        assert_eq!(run(Some("A"), [Some("B"), Some("A")]), (Ok(2), twice.clone()));
        assert_eq!(run(Some("A"), [None, Some("A")]), (Ok(2), twice.clone()));
        let (refused, looks) = run(Some("A"), [Some("B"), Some("B")]);
        assert_eq!(looks, twice);
        let words = "drive 3 has serial number A, but /dev/sg1 is the drive with serial number B, so it was not used";
        assert!(refused.as_ref().is_err_and(|text| text.contains(words)), "{refused:?}");
        let (refused, _) = run(Some("A"), [None, None]);
        assert!(refused.as_ref().is_err_and(|text| text.contains("tells no serial number")), "{refused:?}");
    }

    #[test]
    fn what_a_library_tells_of_its_drives_is_kept_where_it_tells_nothing() {
        let before = told(&["A", "B", "C"]);
        for (now, is) in [
            (["A", "B", "C"], ["A", "B", "C"]),
            (["", "B", ""], ["A", "B", "C"]),
            (["B", "", "D"], ["B", "", "D"]),
            (["B", "A", ""], ["B", "A", "C"]),
        ] {
            assert_eq!(told_again(&before, &told(&now)), told(&is), "{now:?}");
        }
        assert_eq!(told_again(&before, &told(&["", ""])), told(&["A", "B"]));
    }
}
