//! Looking after real drives: whose they are, how they fare, what a cartridge's memory says.
//!
//! None of it may keep a backup from running: what cannot be asked or noted is said and passed over. Only a drive that
//! another host has reserved is not used. A volume that its drive calls worn or damaged is written to the end of the
//! session that has begun, as what is flushed is good, and is set aside then; one of which that is said when it is
//! mounted is not written at all.

use capstan_catalog::{DriveReport, Moment, VolumeState};
use capstan_format::{FORMAT_VERSION, Volser};
use capstan_tape::{AlertDemand, Cleaning, Drive, TapeAlert, VolumeDescription};

use crate::Event;
use crate::mounter::Mounter;
use crate::site::locked;

/// How seldom a drive is asked in the middle of a session: a minute, in nanoseconds. It takes five commands of a
/// millisecond each, for which the tape waits behind a flush that has stopped it anyway.
pub(crate) const ASK_EVERY_NS: i64 = 60 * 1_000_000_000;

/// Whether a flag is about the drive, whatever is in it.
fn is_of_drive(alert: &TapeAlert) -> bool {
    matches!(alert.demand, AlertDemand::Cleaning | AlertDemand::Repair)
}

impl Mounter {
    /// Asks a drive how it and its volume fare, notes it, and says what an operator must know.
    pub(crate) fn ask_drive(&self, drive: &mut dyn Drive, volser: &Volser, moment: Moment) {
        let name = drive.identity().name;
        let Some(care) = drive.care() else { return };
        let (mut alerts, statistics) = (care.alerts(), care.statistics());
        let left = locked(&self.mounts.left_alerts);
        alerts.retain(|alert| is_of_drive(alert) || !left.contains(&(volser.clone(), alert.flag)));
        drop(left);
        for alert in &alerts {
            let meaning = alert.meaning.unwrap_or("a flag of its maker: see the drive's manual");
            let message = format!("drive {name} with volume {volser}: TapeAlert {}: {meaning}", alert.flag);
            (self.events)(Event::Notice { message });
            if alert.demand == AlertDemand::OtherMedium {
                let mut worn = locked(&self.mounts.worn);
                if worn.iter().all(|(other, _)| other != volser) {
                    worn.push((volser.clone(), format!("drive {name} says that {meaning} (TapeAlert {})", alert.flag)));
                }
            }
        }
        let cleaning = statistics.cleaning.map(|cleaning| cleaning == Cleaning::Asked);
        if cleaning == Some(true) {
            let message = format!("drive {name} wants to be cleaned: load a cleaning cartridge when this is done");
            (self.events)(Event::Notice { message });
        }
        let volume = statistics.volume;
        let report = DriveReport {
            at_ns: self.now_ns(),
            volser: volser.clone(),
            drive: name,
            moment,
            alerts: alerts.iter().map(|alert| alert.flag).collect(),
            cleaning,
            recovered: statistics.recovered_errors,
            mounts: volume.mounts,
            write_retries: volume.write_retries,
            write_errors: volume.write_errors,
            read_retries: volume.read_retries,
            read_errors: volume.read_errors,
            written_mb: volume.written_mb,
            read_mb: volume.read_mb,
            compression_percent: statistics.write_compression_percent,
            drive_loads: statistics.loads,
            drive_metres: statistics.metres,
        };
        if let Err(error) = locked(&self.catalog).add_drive_report(&report) {
            let message = format!("what drive {} says of volume {volser} could not be noted: {error}", report.drive);
            (self.events)(Event::Notice { message });
        }
    }

    /// Asks a drive for the flags that are up before a volume comes into it. What is said of a cartridge is said of the
    /// one before, and some drives go on saying it.
    pub(crate) fn take_left_alerts(&self, drive: &mut dyn Drive, volser: &Volser) {
        let name = drive.identity().name;
        let Some(care) = drive.care() else { return };
        for alert in care.alerts().iter().filter(|alert| !is_of_drive(alert)) {
            let meaning = alert.meaning.unwrap_or("a flag of its maker: see the drive's manual");
            let message = format!("drive {name}: TapeAlert {}, left by the cartridge before: {meaning}", alert.flag);
            (self.events)(Event::Notice { message });
            locked(&self.mounts.left_alerts).push((volser.clone(), alert.flag));
        }
    }

    /// What a drive has said against writing on the volume that is in it.
    pub(crate) fn worn(&self, volser: &Volser) -> Option<String> {
        locked(&self.mounts.worn).iter().find(|(other, _)| other == volser).map(|(_, reason)| reason.clone())
    }

    /// Sets a volume aside that its drive has called worn or damaged, now that it leaves.
    pub(crate) fn set_worn_aside(&self, volser: &Volser) {
        let Some(reason) = self.worn(volser) else { return };
        locked(&self.mounts.worn).retain(|(other, _)| other != volser);
        let aside = {
            let mut catalog = locked(&self.catalog);
            let state = catalog.volume(volser).map(|known| known.map(|known| known.state));
            match state {
                // One that the catalog does not know is only being read; one that is set aside needs no more words.
                Ok(None | Some(VolumeState::Suspect | VolumeState::Retired)) => return,
                Ok(Some(_)) => catalog.update_volume(volser, |known| known.state = VolumeState::Suspect).map(drop),
                Err(error) => Err(error),
            }
        };
        let message = match aside {
            Ok(()) => format!(
                "volume {volser} is set aside, and nothing more is written on it: {reason}. Copy what it holds to another \
                 (`capstan show {volser}` lists it) while it can be read"
            ),
            Err(error) => format!("volume {volser} should be set aside ({reason}), and could not be: {error}"),
        };
        (self.events)(Event::Notice { message });
    }

    /// Writes into the memory of a cartridge, where it has one, what the catalog knows of the volume.
    pub(crate) fn describe(&self, drive: &mut dyn Drive, volser: &Volser) {
        let Some(care) = drive.care() else { return };
        let Ok(Some(volume)) = locked(&self.catalog).volume(volser) else { return };
        let Some(life) = volume.id else { return };
        let description = VolumeDescription {
            volser: volser.clone(),
            pool: volume.pool.unwrap_or_default(),
            format: FORMAT_VERSION.to_string(),
            life: life.0,
            checkpoint_lbn: volume.checkpoint_lbn,
        };
        if let Err(error) = care.describe_volume(&description) {
            let message = format!("the memory of cartridge {volser} could not be written: {error}");
            (self.events)(Event::Notice { message });
        }
    }
}
