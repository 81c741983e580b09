//! What this host has for tape, put together: libraries, drives, and which drive stands in which element of which
//! library.
//!
//! Drives are not opened; a library is, for a moment, because only it knows the serial numbers of its drives.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Access as Wanted, access};

use super::scan::{ScsiNode, pair, scan};
use super::sg::{SgDevice, Sharing};
use crate::hardware::ScsiChanger;
use crate::scsi::inquiry::DeviceType;

/// How long a library that somebody else talks to is waited for. A session takes its robot for moments.
const ROBOT_WITHIN: Duration = Duration::from_secs(5);
const ROBOT_LOOKS: Duration = Duration::from_millis(100);

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Libraries.
    pub changers: Vec<SurveyedChanger>,
    /// Drives, in libraries or not.
    pub drives: Vec<SurveyedDrive>,
}

/// A library.
#[derive(Debug)]
pub struct SurveyedChanger {
    /// As the kernel has it.
    pub node: ScsiNode,
    /// Whether who asks may use it.
    pub access: NodeAccess,
    /// Serial numbers of its drives by element, none where it does not tell; or why it could not be asked.
    pub serials: Result<Vec<Option<String>>, String>,
}

/// A drive.
#[derive(Debug)]
pub struct SurveyedDrive {
    /// As the kernel has it.
    pub node: ScsiNode,
    /// Whether who asks may use it, by either of its nodes.
    pub access: NodeAccess,
    /// Where it stands, if a library that was found says so.
    pub place: Option<DrivePlace>,
}

/// A drive element of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrivePlace {
    /// Which of [`Survey::changers`].
    pub changer: usize,
    /// Which drive of it, counted from 0.
    pub drive: u32,
}

/// Whether a device may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeAccess {
    /// Reading and writing.
    Granted,
    /// Not by this user.
    Denied,
}

/// Looks at everything.
///
/// # Errors
/// The kernel's list of SCSI devices cannot be read. A library that does not answer is no error: see
/// [`SurveyedChanger::serials`].
pub fn survey() -> io::Result<Survey> {
    let nodes = scan()?;
    let mut survey = Survey::default();
    for node in nodes.iter().filter(|node| node.kind == DeviceType::Changer) {
        let asked = ask(node);
        // The kernel keeps INQUIRY page 80h of devices of SCSI-4 (SPC-2) and later alone.
        let serial = node.serial.clone().or_else(|| asked.as_ref().ok()?.0.clone());
        survey.changers.push(SurveyedChanger {
            node: ScsiNode { serial, ..node.clone() },
            access: access_to(&[node.generic.as_deref()]),
            serials: asked.map(|(_, drives)| drives),
        });
    }
    let places = survey.changers.iter().enumerate().flat_map(|(changer, asked)| {
        let serials = asked.serials.as_deref().unwrap_or_default();
        let paired = pair(&nodes, serials).into_iter().zip(0u32..);
        paired.filter_map(move |(node, drive)| Some((node?.address.clone(), DrivePlace { changer, drive })))
    });
    let places: Vec<(String, DrivePlace)> = places.collect();
    for node in nodes.iter().filter(|node| node.kind == DeviceType::Tape) {
        let place = places.iter().find(|(address, _)| *address == node.address).map(|(_, place)| *place);
        let access = access_to(&[node.generic.as_deref(), node.tape.as_deref()]);
        survey.drives.push(SurveyedDrive { node: node.clone(), access, place });
    }
    Ok(survey)
}

fn access_to(nodes: &[Option<&Path>]) -> NodeAccess {
    let granted = nodes.iter().flatten().any(|node| access(*node, Wanted::READ_OK | Wanted::WRITE_OK).is_ok());
    if granted { NodeAccess::Granted } else { NodeAccess::Denied }
}

/// A library's own serial number, and those of its drives.
fn ask(node: &ScsiNode) -> Result<(Option<String>, Vec<Option<String>>), String> {
    let Some(path) = node.generic_path() else {
        return Err("the kernel gives it no generic node: load the module sg (modprobe sg)".to_owned());
    };
    let began = Instant::now();
    let device = loop {
        match SgDevice::open(path, Sharing::Exclusive) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < ROBOT_WITHIN => {
                std::thread::sleep(ROBOT_LOOKS);
            }
            other => break other.map_err(|error| error.to_string())?,
        }
    };
    let mut changer = ScsiChanger::open(device, path.display().to_string()).map_err(|error| error.to_string())?;
    let drives = changer.drive_serials().map_err(|error| error.to_string())?;
    Ok((changer.serial().map(str::to_owned), drives))
}
