//! What the server tells people of: what `status` calls to attention, what `drives report` does, and scratch.

use std::sync::Arc;

use capstan_catalog::VolumeState;
use capstan_director::{Concern, Site, TellEvent};
use capstan_server::tell::TellFinding;

use super::{Facts, attention};
use crate::failure::Failure;

/// What a person should look at now, as the server tells it.
pub(crate) fn findings(site: &Site) -> Result<Vec<TellFinding>, Failure> {
    // A server runs for long: its site knows the jobs and policies of when it was opened.
    let site = site.beside(Arc::new(|_| {}))?;
    let facts = Facts::of(&site, None)?;
    let mut found: Vec<_> = attention::all(&facts).into_iter().filter_map(|attention| attention.finding).collect();
    let history = site.drive_history(None, None)?;
    found.extend(history.concerns.iter().map(of_drive));
    found.extend(scratch(&site, &facts));
    Ok(found)
}

fn of_drive(concern: &Concern) -> TellFinding {
    let (event, key, subject) = match concern {
        Concern::Alert { drive, volser, alert } => (
            TellEvent::Drive,
            format!("drive {drive} alert {} {volser}", alert.flag),
            format!("drive {drive} raised TapeAlert {} with volume {volser}", alert.flag),
        ),
        Concern::Cleaning { drive } => {
            (TellEvent::Drive, format!("drive {drive} cleaning"), format!("drive {drive} wants to be cleaned"))
        }
        Concern::Failed { drive, volser, .. } => (
            TellEvent::Drive,
            format!("drive {drive} failed {volser}"),
            format!("reads or writes failed in drive {drive} with volume {volser}"),
        ),
        Concern::VolumeWears { volser, .. } => {
            (TellEvent::Volume, format!("volume {volser} wears"), format!("errors rise on volume {volser}"))
        }
        Concern::DriveWears { drive, .. } => {
            (TellEvent::Drive, format!("drive {drive} wears"), format!("errors rise in drive {drive}"))
        }
    };
    let text = format!("{concern}. To look further: `capstan drives report`");
    TellFinding::lasting(event, key, subject, text)
}

/// No volume is there for the next pool that needs one, and none is made or becomes scratch by itself.
fn scratch(site: &Site, facts: &Facts) -> Option<TellFinding> {
    let volumes = &facts.volumes;
    let is_scratch = |state| matches!(state, VolumeState::Blank | VolumeState::Scratch);
    let mut libraries = site.config().all_libraries();
    let in_library = |name: &str| volumes.iter().filter(|volume| volume.library == name).count();
    let makes_more =
        libraries.any(|(name, library)| library.is_virtual() && in_library(name) < library.volumes_max as usize);
    let library = &site.config().library;
    if volumes.is_empty() || makes_more {
        return None;
    }
    // What is not known of drives speaks against no volume.
    let unfit = site.volumes_that_no_drive_writes(volumes).unwrap_or_default();
    if facts.expiry.frees.iter().any(|volser| !unfit.contains(volser)) {
        return None;
    }
    let scratch = || volumes.iter().filter(|volume| volume.pool.is_none() && is_scratch(volume.state));
    if scratch().any(|volume| !unfit.contains(&volume.volser)) {
        return None;
    }
    let left = match scratch().count() {
        0 => "is left".to_owned(),
        others => format!("is left that a drive writes ({others} are of other generations)"),
    };
    let more = match library.is_virtual() {
        true => "raise library.volumes_max in capstan.toml",
        false => "put new cartridges into the library and run `capstan label`",
    };
    let text = format!(
        "no scratch volume {left}: a backup that fills its volume cannot go on. To get some, {more}, or let old backups \
         go with `capstan expire`. To look further: `capstan volumes`"
    );
    Some(TellFinding::lasting(TellEvent::Scratch, "scratch".to_owned(), "no scratch volume is left".to_owned(), text))
}
