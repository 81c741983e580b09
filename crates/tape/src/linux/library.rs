//! A library that the kernel knows: a changer's robot, and drives through their device nodes.
//!
//! Which drive stands in which element is found by serial numbers, since device numbers change with every start. Drives
//! that are not named are found the same way. The robot's node is opened for each act and closed again, so that several
//! processes can use one library; a drive's is kept from mount to dismount, exclusively.

use std::io;
use std::path::{Path, PathBuf};
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
    /// By drive element, counted from 0.
    drives: Option<Vec<DriveDescription>>,
    /// Of the last inventory.
    findings: Vec<Finding>,
    protection: BlockProtection,
    on_wait: OnDeviceWait,
}

impl LinuxLibrary {
    /// The library behind a changer's generic node. `devices`: the drives to use, by their nodes; all that the library
    /// says it has and this host finds, if none is named.
    pub fn new(robot: PathBuf, devices: Vec<PathBuf>, protection: BlockProtection, on_wait: OnDeviceWait) -> Self {
        Self { robot, devices, drives: None, findings: Vec::new(), protection, on_wait }
    }

    /// The drives, found if they were not yet.
    fn found(&mut self) -> Result<&[DriveDescription], ChangerError> {
        let drives = match self.drives.take() {
            Some(drives) => drives,
            None => self.find()?,
        };
        Ok(self.drives.insert(drives))
    }

    fn find(&self) -> Result<Vec<DriveDescription>, ChangerError> {
        let serials = self.with_robot(ScsiChanger::drive_serials)?;
        let nodes = scan().map_err(host("looking for drives in sysfs"))?;
        let paired = pair(&nodes, &serials);
        let paths = if self.devices.is_empty() {
            paired.iter().map(|node| node.and_then(ScsiNode::generic_path).map(Path::to_owned)).collect()
        } else {
            placed(&self.robot, &nodes, &serials, &paired, &self.devices)?
        };
        if paths.iter().all(Option::is_none) {
            let reason = "this host finds none of its drives: `capstan drives scan` shows what there is, and \
                          library.devices names drives whose serial numbers the library does not tell";
            return Err(ChangerError::Unusable {
                library: self.robot.display().to_string(),
                reason: reason.to_owned(),
            });
        }
        let described = paths.into_iter().enumerate().map(|(number, path)| {
            let told = serials.get(number).cloned().flatten();
            let one = describe(&nodes, path);
            DriveDescription { serial: one.serial.clone().or(told), ..one }
        });
        Ok(described.collect())
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

/// The drive behind a node, by what the kernel tells of it.
pub(super) fn describe(nodes: &[ScsiNode], path: Option<PathBuf>) -> DriveDescription {
    let real = path.as_ref().and_then(|path| std::fs::canonicalize(path).ok());
    let node = real.and_then(|real| nodes.iter().find(|node| node.has_node(&real)));
    let model = node.map(|node| format!("{} {}", node.vendor, node.product).trim().to_owned());
    let class = node.map(|node| model_of(&node.product)).filter(|class| is_model(class));
    DriveDescription { model, class, serial: node.and_then(|node| node.serial.clone()), path }
}

/// The drives that a person named, each in its element: by serial number where the library tells them, else in the
/// order named.
fn placed(
    robot: &Path,
    nodes: &[ScsiNode],
    serials: &[Option<String>],
    paired: &[Option<&ScsiNode>],
    devices: &[PathBuf],
) -> Result<Vec<Option<PathBuf>>, ChangerError> {
    let mut drives: Vec<Option<PathBuf>> = vec![None; paired.len().max(devices.len())];
    let mut unplaced = Vec::new();
    for device in devices {
        let real = std::fs::canonicalize(device).map_err(host(&device.display().to_string()))?;
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
        let (elements, findings) = self.with_robot(|robot| Ok((robot.inventory()?, robot.findings())))?;
        self.findings = findings;
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
        Ok(self.found()?.len() as u32)
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        // A drive may have been replaced meanwhile. What the kernel tells needs no robot.
        let nodes = scan().map_err(host("looking for drives in sysfs"))?;
        let found = self.found()?.iter().cloned();
        let described = found.map(|known| {
            let now = describe(&nodes, known.path.clone());
            DriveDescription { serial: now.serial.clone().or(known.serial), ..now }
        });
        Ok(described.collect())
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        let found = self.found()?;
        let drives = found.len() as u32;
        let described = found.get(drive as usize).ok_or(ChangerError::UnknownDrive { drive, drives })?;
        let Some(path) = described.path.clone() else {
            let what = format!("drive {drive} of the library");
            return Err(ChangerError::InUse { what, holder: "another host: this one does not find it".to_owned() });
        };
        super::open_drive(&path, super::FedBy::Robot, self.protection, &self.on_wait)
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        Err(ChangerError::NotMade { volser: spec.volser.clone() })
    }
}
