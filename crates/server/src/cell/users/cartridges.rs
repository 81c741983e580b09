//! What users do with cartridges: they label volumes that were never written, and have cartridges moved. What destroys
//! data is done at the server's machine.

use capstan_catalog::Promise;
use capstan_director::{DirectorError, Loss, Sent, Site, barcode};
use capstan_service::audit::AuditEntry;

use super::acts::CellActs;
use super::log::KnownNames;
use super::rights::CellAct;
use super::task_words::{
    CartridgeMove, LabelVolumes, LibraryEvent, MoveCartridges, NotSentRow, SentRow, TaskEnd, VolumeNotLabelled,
};
use crate::cell::CellError;
use crate::cell::error::in_words;

/// Volumes that one task labels or moves.
pub(in crate::cell) const VOLUMES_MAX: usize = 100;

/// Texts that somebody sent, if each is a barcode: only those stand in the audit log.
fn barcodes(texts: &[String]) -> Result<Vec<&str>, CellError> {
    let no_barcode = texts.iter().find(|text| barcode(text).is_none());
    match no_barcode {
        Some(text) => Err(CellError::NoBarcode { text: text.clone() }),
        None => Ok(texts.iter().map(String::as_str).collect()),
    }
}

impl CellActs {
    /// Labels volumes that were never written.
    ///
    /// # Errors
    /// [`CellError::Denied`], or what was asked makes no sense. Volumes that could not be labelled are named in the
    /// end.
    pub(in crate::cell) fn label(&self, site: &Site, asked: &LabelVolumes) -> Result<TaskEnd, CellError> {
        let names = barcodes(&asked.volumes)?;
        let noted = |entry: AuditEntry| entry.of("volume", KnownNames(&names)).with("what", "label");
        self.does(CellAct::ChangeMedia, noted, |_| {
            let site = in_library(site, asked.library.as_deref())?;
            let mut end = TaskEnd::default();
            for volume in &asked.volumes {
                let labelled = self.still_permitted(CellAct::ChangeMedia);
                match labelled.and_then(|()| label_one(&site, volume, asked)) {
                    Ok(()) => end.labelled.push(volume.clone()),
                    Err(error) if asked.volumes.len() == 1 => return Err(error),
                    Err(error) => {
                        let reason = in_words(&error);
                        end.not_labelled.push(VolumeNotLabelled { volume: volume.clone(), reason });
                    }
                }
            }
            match end.labelled.is_empty() {
                false => Ok(end),
                true => {
                    let reasons = end.not_labelled.iter().map(|not| format!("{}: {}", not.volume, not.reason));
                    Err(CellError::NoneLabelled { reasons: reasons.collect::<Vec<_>>().join("; ") })
                }
            }
        })
    }

    /// Has cartridges moved.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the library does not do it.
    pub(in crate::cell) fn move_cartridges(&self, site: &Site, asked: &MoveCartridges) -> Result<TaskEnd, CellError> {
        let names = barcodes(asked.what.volumes())?;
        let noted = |entry: AuditEntry| {
            let entry = if names.is_empty() { entry } else { entry.of("volume", KnownNames(&names)) };
            let (what, drive) = asked.what.word_and_drive();
            let entry = entry.with("what", what);
            match drive {
                Some(drive) => entry.with("drive", u64::from(drive)),
                None => entry,
            }
        };
        self.does(CellAct::ChangeMedia, noted, |_| {
            let site = in_library(site, asked.library.as_deref())?;
            Ok(TaskEnd { moved: Some(move_cartridges(&site, &asked.what)?), ..TaskEnd::default() })
        })
    }
}

fn in_library(site: &Site, library: Option<&str>) -> Result<Site, DirectorError> {
    match library {
        Some(library) => site.clone().in_library(library),
        None => Ok(site.clone()),
    }
}

/// Labels a volume that was never written, or was erased. What has expired on one that was can still be taken back.
fn label_one(site: &Site, volume: &str, asked: &LabelVolumes) -> Result<(), CellError> {
    if site.is_to_stop() {
        return Err(CellError::TaskStopped);
    }
    let no_barcode = || CellError::NoBarcode { text: volume.to_owned() };
    let volser = barcode(volume).ok_or_else(no_barcode)?;
    let known = site.catalog().volume(&volser)?;
    if known.is_some_and(|known| known.checkpoint_lbn > 0) {
        return Err(CellError::WasWritten { volume: volume.to_owned() });
    }
    match site.label(&volser, asked.pool.as_deref(), asked.size, Loss::Refuse, Promise::Keep) {
        Ok(_) => Ok(()),
        Err(DirectorError::Interrupted) => Err(CellError::TaskStopped),
        Err(error) => Err(error.into()),
    }
}

fn sent_event(sent: Sent) -> LibraryEvent {
    fn rows(sent: Vec<(impl ToString, String)>) -> Vec<SentRow> {
        sent.into_iter().map(|(volser, vault)| SentRow { volume: volser.to_string(), vault }).collect()
    }
    let left = sent.left.into_iter();
    LibraryEvent::Sent {
        in_mail_slot: rows(sent.in_mail_slot),
        noted: rows(sent.noted),
        left: left.map(|(volser, reason)| NotSentRow { volume: volser.to_string(), reason }).collect(),
    }
}

/// Has the library of a site move cartridges.
///
/// # Errors
/// [`CellError::NoBarcode`]; otherwise the library does not do it.
pub fn move_cartridges(site: &Site, what: &CartridgeMove) -> Result<LibraryEvent, CellError> {
    let barcode = |text: &String| barcode(text).ok_or_else(|| CellError::NoBarcode { text: text.clone() });
    Ok(match what {
        CartridgeMove::Load { volume, drive } => {
            site.load_drive(&barcode(volume)?, *drive)?;
            LibraryEvent::Loaded { volume: volume.clone(), drive: *drive }
        }
        CartridgeMove::Unload { drive } => {
            site.unload_drive(*drive)?;
            LibraryEvent::Unloaded { drive: *drive }
        }
        CartridgeMove::Exchange { volume, drive } => {
            site.exchange_in_drive(&barcode(volume)?, *drive)?;
            LibraryEvent::Exchanged { volume: volume.clone(), drive: *drive }
        }
        CartridgeMove::Import { mail_slots } => LibraryEvent::Imported { cartridges: site.import(mail_slots)? },
        CartridgeMove::Export { volumes } => {
            for volume in volumes {
                site.export(&barcode(volume)?)?;
            }
            LibraryEvent::Exported { volumes: volumes.clone() }
        }
        CartridgeMove::Initialize => {
            site.initialize_library()?;
            LibraryEvent::Initialized
        }
        CartridgeMove::Send { volumes, vault } => {
            let volumes = volumes.iter().map(barcode).collect::<Result<Vec<_>, _>>()?;
            sent_event(match volumes.is_empty() {
                true => site.send_due_to_vault(&[], vault.as_deref())?,
                false => site.send_to_vault(&volumes, vault.as_deref())?,
            })
        }
        CartridgeMove::Back { volumes } => {
            let volumes = volumes.iter().map(barcode).collect::<Result<Vec<_>, _>>()?;
            let back = site.back_from_vault(&volumes)?;
            LibraryEvent::Back { volumes: back.iter().map(ToString::to_string).collect() }
        }
    })
}
