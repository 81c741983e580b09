//! What the server tells people of: what `status` calls to attention, and what `drives report` does.

use std::sync::Arc;

use capstan_director::{Concern, Site, TellEvent};
use capstan_server::tell::TellFinding;

use super::{Facts, attention};
use crate::failure::Failure;

/// What a person should look at now, as the server tells it.
pub(crate) fn findings(site: &Site) -> Result<Vec<TellFinding>, Failure> {
    // A server runs for long: its site knows the jobs and policies of when it was opened.
    let site = site.with_own_catalog()?.beside(Arc::new(|_| {}))?;
    let facts = Facts::of(&site, None)?;
    let mut found: Vec<_> = attention::all(&facts).into_iter().filter_map(|attention| attention.finding).collect();
    let history = site.drive_history(None, None)?;
    found.extend(history.concerns.iter().map(of_drive));
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
