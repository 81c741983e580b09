//! Looking after real drives: whose they are, how they fare, what a cartridge's memory says.
//!
//! None of it may keep a backup from running: what cannot be asked or noted is said and passed over. Only a drive that
//! another host has reserved is not used. A volume that its drive calls worn or damaged is written to the end of the
//! session that has begun, as what is flushed is good, and is set aside then; one of which that is said when it is
//! mounted is not written at all.

use capstan_catalog::{DriveReport, Moment, VolumeState};
use capstan_format::{FORMAT_VERSION, Volser};
use capstan_mover::DriveHealth;
use capstan_tape::{AlertDemand, Cleaning, TapeAlert, VolumeDescription};

use crate::drive_faults::DriveAt;
use crate::mounter::{InDrive, Mounter};
use crate::site::locked;
use crate::{DirectorError, Event};

/// Whether a flag is about the drive, whatever is in it.
fn is_of_drive(alert: &TapeAlert) -> bool {
    matches!(alert.demand, AlertDemand::Cleaning | AlertDemand::Repair)
}

impl Mounter {
    /// Records how a drive and its volume are, and says what an operator must know.
    pub(crate) fn note_health(&self, health: &DriveHealth, volser: &Volser, moment: Moment) {
        let DriveHealth { drive: name, statistics, .. } = health;
        let left = locked(&self.mounts.left_alerts);
        let is_new = |alert: &TapeAlert| is_of_drive(alert) || !left.contains(&(volser.clone(), alert.flag));
        let alerts: Vec<_> = health.tape_alerts().filter(is_new).collect();
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
            drive: name.clone(),
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

    /// Notes flags that were up before a volume came into a drive. What is said of a cartridge is said of the one
    /// before, and some drives go on saying it.
    pub(crate) fn note_left_alerts(&self, drive: &str, volser: &Volser, flags: &[u16]) {
        for flag in flags {
            let meaning = TapeAlert::of_flag(*flag).meaning.unwrap_or("a flag of its maker: see the drive's manual");
            let message = format!("drive {drive}: TapeAlert {flag}, left by the cartridge before: {meaning}");
            (self.events)(Event::Notice { message });
            locked(&self.mounts.left_alerts).push((volser.clone(), *flag));
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

    /// Notes how a drive left the volume that it has written on. A volume that a write has failed on is set aside: the
    /// next session would come to the same place. What fails on one volume after another is the drive, and they stay.
    pub(crate) fn note_written(&self, volume: &InDrive, has_failed: bool) {
        let (drive, volser) = (&volume.drive, &volume.volser);
        let place = DriveAt { library: volume.library.name.clone(), drive: Some(drive.clone()) };
        if !has_failed {
            return self.note_flushed(volume);
        }
        let before = self.change_drive_faults(|faults| {
            let before = faults.could_not_write(volser, place.clone());
            if before.is_some() {
                // It may be as bad as the other one: others are tried before it.
                faults.failed(volser, &place);
            }
            before
        });
        if let Some(other) = before {
            let message = format!(
                "drive {drive} could not write on volume {volser}, as on volume {other} before: the drive is probably \
                 at fault. Clean it, and have it repaired if it fails again. Volume {volser} stays in use, after others; \
                 `capstan verify {other}` shows whether that one can be used again"
            );
            (self.events)(Event::Notice { message });
            return;
        }
        let message = match self.suspect(volser, &format!("drive {drive} could not write a block on it")) {
            Ok(()) => format!(
                "volume {volser} is set aside, and nothing more is written on it: drive {drive} could not write a block \
                 on it. What was recorded before is not touched by that; `capstan verify {volser}` reads it, and lets \
                 the volume be written again if all of it is good"
            ),
            Err(error) => format!(
                "drive {drive} could not write a block on volume {volser}, and the volume could not be set aside: {error}"
            ),
        };
        (self.events)(Event::Notice { message });
    }

    /// Writes into the memory of a cartridge, where it has one, what the catalog knows of the volume.
    pub(crate) fn describe(&self, volume: &InDrive) {
        let Some(description) = self.description(&volume.volser) else { return };
        if let Err(error) = volume.describe(description) {
            let reason = match &error {
                DirectorError::Volume { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            let message = format!("the memory of cartridge {} could not be written: {reason}", volume.volser);
            (self.events)(Event::Notice { message });
        }
    }

    /// What the memory of a cartridge is to say of its volume.
    pub(crate) fn description(&self, volser: &Volser) -> Option<VolumeDescription> {
        let volume = locked(&self.catalog).volume(volser).ok().flatten()?;
        Some(VolumeDescription {
            volser: volser.clone(),
            pool: volume.pool.unwrap_or_default(),
            format: FORMAT_VERSION.to_string(),
            life: volume.id?.0,
            checkpoint_lbn: volume.checkpoint_lbn,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use capstan_catalog::Volume;
    use capstan_mover::RestoreWatch;
    use capstan_tape::{Drive, Fault, FaultyDrive};

    use super::*;
    use crate::library_in_tests::StateInTests;
    use crate::site::Site;
    use crate::{BackupWatch, Config};

    fn fails_tenth_write(drive: Box<dyn Drive>) -> Box<dyn Drive> {
        Box::new(FaultyDrive::new(drive, vec![Fault::WriteFails { write: 10 }]))
    }

    /// How many of the next mounts fail.
    static FAILS: AtomicU32 = AtomicU32::new(0);

    fn fails_so_often(drive: Box<dyn Drive>) -> Box<dyn Drive> {
        match FAILS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fails| fails.checked_sub(1)) {
            Ok(_) => {
                let faults = (0..500).map(|command| Fault::HardwareFails { command }).collect();
                Box::new(FaultyDrive::new(drive, faults))
            }
            Err(_) => drive,
        }
    }

    /// A cartridge that its drive could not load was tried first in every run, and two of them kept all backups from
    /// their pool.
    #[test]
    fn others_are_tried_before_a_volume_that_failed_and_it_is_set_aside_if_it_fails_again() {
        let state = StateInTests::new(Config::default(), b"a");
        // Each run is a process of its own.
        let open = || state.open_dressed(|_| {}, fails_so_often);
        let volume = |name: &str| locked(&open().catalog).volume(&Volser::new(name).unwrap()).unwrap().unwrap();
        let backup = |fails| {
            FAILS.store(fails, Ordering::Relaxed);
            let done = open().backup(&state.request, &BackupWatch::default()).map(drop);
            FAILS.store(0, Ordering::Relaxed);
            done
        };
        backup(0).unwrap();
        let first = volume("A00001");
        // What fails with one volume after another is the drive.
        for _ in 0..2 {
            backup(9).unwrap_err();
            assert_eq!(volume("A00001").state, VolumeState::Filling);
        }
        // Once it is mended, one that has not failed is taken first.
        backup(0).unwrap();
        assert_eq!(volume("A00001"), first);
        backup(9).unwrap_err();
        assert_eq!(volume("A00001").state, VolumeState::Filling);
        backup(0).unwrap();
        // And a volume that fails again, where the drive takes the next one, is at fault itself.
        backup(1).unwrap();
        assert_eq!(volume("A00001").state, VolumeState::Suspect);
    }

    /// The next session came to the same place, and failed again.
    #[test]
    fn a_volume_that_could_not_be_written_is_set_aside_until_it_was_read() {
        let mut config = Config::default();
        config.data.block_kib = 64;
        let noise = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(at | 1) >> 56) as u8;
        let state = StateInTests::new(config, &(0..2 << 20).map(noise).collect::<Vec<_>>());
        let (request, watch) = (&state.request, BackupWatch::default());
        let notices = Arc::new(Mutex::new(Vec::new()));
        let heard = {
            let notices = Arc::clone(&notices);
            move |event| {
                if let Event::Notice { message } = event {
                    locked(&notices).push(message);
                }
            }
        };
        let volumes = |site: &Site| -> Vec<Volume> { locked(&site.catalog).volumes().unwrap() };
        let states = |site: &Site| volumes(site).iter().map(|volume| volume.state).collect::<Vec<_>>();
        let said = |what: &str| locked(&notices).drain(..).any(|notice| notice.contains(what));

        let broken = state.open_dressed(heard, fails_tenth_write);
        broken.backup(request, &watch).unwrap_err();
        assert!(said("volume A00001 is set aside"));
        assert_eq!(states(&broken), [VolumeState::Suspect]);
        assert_eq!(volumes(&broken)[0].errors, 1);
        // A drive that fails on the next one, too, is at fault itself. Others are tried before that one all the same.
        for others in 1..3 {
            broken.backup(request, &watch).unwrap_err();
            assert!(said("the drive is probably at fault"));
            let known = states(&broken);
            assert_eq!((known[0], &known[1..]), (VolumeState::Suspect, &vec![VolumeState::Filling; others][..]));
        }
        drop(broken);
        let site = state.open();
        site.backup(request, &watch).unwrap();
        assert_eq!(states(&site), [VolumeState::Suspect, VolumeState::Filling, VolumeState::Filling]);
        let first = volumes(&site).remove(0);
        assert!(site.verify_volume(&first.volser, &RestoreWatch::default()).unwrap().is_whole());
        assert_eq!(states(&site)[0], VolumeState::Filling);
    }
}
