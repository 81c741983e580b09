//! What drives have told over time: each stay of a volume in a drive, how drives and volumes fare, and what asks for a
//! person.
//!
//! Drives count over the life of the drive or of the volume; what happened during a stay is the difference between what
//! was told at the mount and what was told last. A single count says little, as drives correct errors all the time;
//! that it rises from stay to stay says that a volume wears out, or that a drive wants cleaning.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use capstan_catalog::{DriveReport, Moment};
use capstan_format::Volser;
use capstan_tape::{AlertDemand, TapeAlert};

use crate::DirectorError;
use crate::site::{Site, locked};

/// Most reports that are looked at: of twenty drives that work day and night, those of the last days; of most sites,
/// those of years.
const REPORTS_MAX: u32 = 100_000;
/// Reports that are looked at for what a person has to do now.
const RECENT_REPORTS_MAX: u32 = 20_000;
/// What was told before this, and not again, is of a drive or a volume that is used no more, or was looked after.
const CONCERNS_KEPT_NS: i64 = 30 * 24 * 3_600 * 1_000_000_000;

/// Fewer corrected errors than this, in the later half of the stays, are never called a rise.
const RISE_ERRORS_MIN: u64 = 10;
/// So many times more errors per GB in the later half of the stays than in the earlier one are a rise.
const RISE_FACTOR: f64 = 3.0;

/// A volume's stay in a drive. What the drive does not count is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Stay {
    /// When the volume was mounted, or when the drive was first asked; nanoseconds since 1970.
    pub since_ns: i64,
    /// When it left; none while it is there, or where nobody noted it.
    pub left_ns: Option<i64>,
    /// The drive's name.
    pub drive: String,
    /// The volume.
    pub volser: Volser,
    /// MB written, of 10^6 bytes.
    pub written_mb: Option<u64>,
    /// MB read.
    pub read_mb: Option<u64>,
    /// Errors that the drive corrected.
    pub corrected: Option<u64>,
    /// Reads and writes that failed.
    pub uncorrected: Option<u64>,
    /// Compression by the drive of what was written, in hundredths.
    pub compression_percent: Option<u64>,
    /// Whether the drive asked to be cleaned.
    pub cleaning: bool,
    /// TapeAlert flags that were raised.
    pub alerts: Vec<TapeAlert>,
}

/// Corrected errors per GB, before and now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rise {
    /// In the earlier half of the stays.
    pub before_per_gb: f64,
    /// In the later half.
    pub now_per_gb: f64,
}

/// How a drive or a volume has fared over its stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Fare {
    /// The drive's name, or the volume's.
    pub name: String,
    /// How many stays are known.
    pub stays: usize,
    /// MB written in them.
    pub written_mb: u64,
    /// MB read in them.
    pub read_mb: u64,
    /// Errors corrected in them.
    pub corrected: u64,
    /// Reads and writes that failed in them.
    pub uncorrected: u64,
    /// Loads in the life of the drive or the volume, as the drive says.
    pub loads: Option<u64>,
    /// Metres of tape in the life of the drive, as it says.
    pub metres: Option<u64>,
    /// Whether errors per GB rise.
    pub rise: Option<Rise>,
}

/// Something a person has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Concern {
    /// A drive raised a flag during the last stay of drive or volume.
    Alert {
        /// The drive.
        drive: String,
        /// The volume in it.
        volser: Volser,
        /// The flag.
        alert: TapeAlert,
    },
    /// A drive asked to be cleaned, and has not been asked since.
    Cleaning {
        /// The drive.
        drive: String,
    },
    /// Reads or writes failed during the last stay.
    Failed {
        /// The drive.
        drive: String,
        /// The volume in it.
        volser: Volser,
        /// How many.
        count: u64,
    },
    /// Errors per GB rise on a volume.
    VolumeWears {
        /// The volume.
        volser: Volser,
        /// How.
        rise: Rise,
    },
    /// Errors per GB rise in a drive, on more than one volume.
    DriveWears {
        /// The drive.
        drive: String,
        /// How.
        rise: Rise,
    },
}

/// What drives have told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DriveHistory {
    /// Stays, the latest first.
    pub stays: Vec<Stay>,
    /// Drives, by name.
    pub drives: Vec<Fare>,
    /// Volumes, by name.
    pub volumes: Vec<Fare>,
    /// What a person has to do.
    pub concerns: Vec<Concern>,
}

impl fmt::Display for Rise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrected errors rose from {:.2} to {:.2} per GB", self.before_per_gb, self.now_per_gb)
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alert { drive, volser, alert } => {
                let meaning = alert.meaning.unwrap_or("a flag of its maker: see the drive's manual");
                let then = match alert.demand {
                    AlertDemand::OtherMedium => format!(" (`capstan show {volser}` lists what it holds)"),
                    AlertDemand::Repair => "; use other drives until then".to_owned(),
                    AlertDemand::Attention | AlertDemand::Cleaning => String::new(),
                };
                write!(f, "drive {drive} with volume {volser}: TapeAlert {}: {meaning}{then}", alert.flag)
            }
            Self::Cleaning { drive } => {
                write!(f, "drive {drive} wants to be cleaned: load a cleaning cartridge when no job uses it")
            }
            Self::Failed { drive, volser, count } => write!(
                f,
                "drive {drive} with volume {volser}: {count} reads or writes failed: run `capstan verify {volser}`; if other volumes fail \
                 in this drive too, clean it"
            ),
            Self::VolumeWears { volser, rise } => write!(
                f,
                "volume {volser}: {rise}: copy what it holds to another (`capstan show {volser}` lists it) before it cannot be read"
            ),
            Self::DriveWears { drive, rise } => write!(
                f,
                "drive {drive}: {rise}, and not on one volume alone: clean it, and have it looked at if that does not help"
            ),
        }
    }
}

impl Stay {
    fn begun_by(report: &DriveReport) -> Self {
        Self {
            since_ns: report.at_ns,
            left_ns: None,
            drive: report.drive.clone(),
            volser: report.volser.clone(),
            written_mb: None,
            read_mb: None,
            corrected: None,
            uncorrected: None,
            compression_percent: None,
            cleaning: false,
            alerts: Vec::new(),
        }
    }

    /// What the drive said against writing on the volume.
    pub(crate) fn against_medium(&self) -> Option<&TapeAlert> {
        self.alerts.iter().find(|alert| alert.demand == AlertDemand::OtherMedium)
    }

    fn moved_gb(&self) -> f64 {
        (self.written_mb.unwrap_or(0) + self.read_mb.unwrap_or(0)) as f64 / 1000.0
    }
}

/// What was counted since; a counter that begins anew in between has counted that alone.
fn since(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    let (before, now) = (before?, now?);
    Some(now.checked_sub(before).unwrap_or(now))
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
    }
}

/// A stay that is being put together, and what was told at its mount.
struct Open {
    stay: Stay,
    mounted: Option<DriveReport>,
}

impl Open {
    fn take(&mut self, report: &DriveReport) {
        let stay = &mut self.stay;
        for flag in &report.alerts {
            if stay.alerts.iter().all(|alert| alert.flag != *flag) {
                stay.alerts.push(TapeAlert::of_flag(*flag));
            }
        }
        stay.cleaning |= report.cleaning == Some(true);
        let Some(mounted) = &self.mounted else { return };
        stay.written_mb = since(mounted.written_mb, report.written_mb);
        stay.read_mb = since(mounted.read_mb, report.read_mb);
        if stay.written_mb.is_some_and(|mb| mb > 0) {
            stay.compression_percent = report.compression_percent;
        }
        let retries = |report: &DriveReport| sum(report.write_retries, report.read_retries);
        // Not every drive counts them; what it told of as recovered, command by command, was counted here.
        stay.corrected =
            since(retries(mounted), retries(report)).or(since(Some(mounted.recovered), Some(report.recovered)));
        let errors = |report: &DriveReport| sum(report.write_errors, report.read_errors);
        stay.uncorrected = since(errors(mounted), errors(report));
    }
}

/// Stays from reports, the earliest first.
fn stays(reports: &[DriveReport]) -> Vec<Stay> {
    // In the order of their beginnings; those that go on, by their place.
    let mut all: Vec<Open> = Vec::new();
    let mut going_on: Vec<usize> = Vec::new();
    for report in reports {
        let at = going_on.iter().position(|stay| all[*stay].stay.drive == report.drive);
        let same = at.filter(|at| all[going_on[*at]].stay.volser == report.volser && report.moment != Moment::Mounted);
        let stay = match same {
            Some(at) => going_on[at],
            None => {
                // Whatever was in the drive before is not there any more.
                if let Some(at) = at {
                    going_on.swap_remove(at);
                }
                let mounted = (report.moment == Moment::Mounted).then(|| report.clone());
                all.push(Open { stay: Stay::begun_by(report), mounted });
                going_on.push(all.len() - 1);
                all.len() - 1
            }
        };
        all[stay].take(report);
        if report.moment == Moment::Leaving {
            all[stay].stay.left_ns = Some(report.at_ns);
            going_on.retain(|other| *other != stay);
        }
    }
    all.into_iter().map(|open| open.stay).collect()
}

/// Whether corrected errors per GB rise from the earlier half of some stays to the later one.
fn rise(stays: &[&Stay]) -> Option<Rise> {
    let counted: Vec<&&Stay> = stays.iter().filter(|stay| stay.corrected.is_some() && stay.moved_gb() > 0.0).collect();
    let (earlier, later) = counted.split_at(counted.len() / 2);
    let errors = |stays: &[&&Stay]| stays.iter().filter_map(|stay| stay.corrected).sum::<u64>();
    let gb = |stays: &[&&Stay]| stays.iter().map(|stay| stay.moved_gb()).sum::<f64>();
    if earlier.is_empty() || errors(later) < RISE_ERRORS_MIN {
        return None;
    }
    let before_per_gb = errors(earlier) as f64 / gb(earlier);
    let now_per_gb = errors(later) as f64 / gb(later);
    // None at all before is taken for one, that a first handful of errors is no rise without bounds.
    let floor = (errors(earlier).max(1)) as f64 / gb(earlier);
    (now_per_gb > RISE_FACTOR * floor).then_some(Rise { before_per_gb, now_per_gb })
}

fn fare(name: &str, stays: &[&Stay], (loads, metres): (Option<u64>, Option<u64>)) -> Fare {
    let total = |of: fn(&Stay) -> Option<u64>| stays.iter().filter_map(|stay| of(stay)).sum();
    Fare {
        name: name.to_owned(),
        stays: stays.len(),
        written_mb: total(|stay| stay.written_mb),
        read_mb: total(|stay| stay.read_mb),
        corrected: total(|stay| stay.corrected),
        uncorrected: total(|stay| stay.uncorrected),
        loads,
        metres,
        rise: rise(stays),
    }
}

/// The history that reports tell, which come the latest first.
fn history(mut reports: Vec<DriveReport>) -> DriveHistory {
    reports.reverse();
    let stays = stays(&reports);
    let (mut drives, mut volumes) = (BTreeMap::<&str, Vec<usize>>::new(), BTreeMap::<&Volser, Vec<usize>>::new());
    for (at, stay) in stays.iter().enumerate() {
        drives.entry(&stay.drive).or_default().push(at);
        volumes.entry(&stay.volser).or_default().push(at);
    }
    let told_of_drive: HashMap<&str, &DriveReport> = reports.iter().map(|report| (&*report.drive, report)).collect();
    let told_of_volume: HashMap<&Volser, &DriveReport> =
        reports.iter().map(|report| (&report.volser, report)).collect();
    let mut found = DriveHistory::default();
    // The last stay of each drive and volume: what was said before has been said.
    let mut last = BTreeSet::<usize>::new();
    for (volume, own) in volumes {
        let its: Vec<&Stay> = own.iter().map(|at| &stays[*at]).collect();
        last.extend(own.last());
        let loads = told_of_volume.get(volume).and_then(|report| report.mounts);
        let fare = fare(volume.as_str(), &its, (loads, None));
        if let Some(rise) = fare.rise {
            found.concerns.push(Concern::VolumeWears { volser: volume.clone(), rise });
        }
        found.volumes.push(fare);
    }
    for (drive, own) in drives {
        let its: Vec<&Stay> = own.iter().map(|at| &stays[*at]).collect();
        last.extend(own.last());
        let told = told_of_drive.get(drive);
        let of_life = told.map_or((None, None), |report| (report.drive_loads, report.drive_metres));
        let fare = fare(drive, &its, of_life);
        if let (Some(rise), true) = (fare.rise, its.iter().any(|stay| stay.volser != its[0].volser)) {
            found.concerns.push(Concern::DriveWears { drive: drive.to_owned(), rise });
        }
        if its.last().is_some_and(|stay| stay.cleaning) {
            found.concerns.push(Concern::Cleaning { drive: drive.to_owned() });
        }
        found.drives.push(fare);
    }
    for Stay { drive, volser, uncorrected, alerts, .. } in last.into_iter().map(|at| &stays[at]) {
        let alert = |alert: &TapeAlert| Concern::Alert { drive: drive.clone(), volser: volser.clone(), alert: *alert };
        found.concerns.extend(alerts.iter().map(alert));
        if let Some(count) = uncorrected.filter(|count| *count > 0) {
            found.concerns.push(Concern::Failed { drive: drive.clone(), volser: volser.clone(), count });
        }
    }
    found.stays = stays;
    found.stays.reverse();
    found
}

impl DriveHistory {
    /// What a person has to do about drives and volumes that were in use since then.
    fn concerns_since(self, since_ns: i64) -> Vec<Concern> {
        let Self { stays, mut concerns, .. } = self;
        concerns.retain(|concern| {
            let (drive, volume) = concern.of();
            stays.iter().any(|stay| {
                stay.left_ns.unwrap_or(stay.since_ns) >= since_ns
                    && drive.is_none_or(|drive| stay.drive == drive)
                    && volume.is_none_or(|volume| stay.volser == *volume)
            })
        });
        concerns
    }
}

impl Concern {
    /// The drive and the volume that it is about.
    fn of(&self) -> (Option<&str>, Option<&Volser>) {
        match self {
            Self::Alert { drive, volser, .. } | Self::Failed { drive, volser, .. } => (Some(drive), Some(volser)),
            Self::Cleaning { drive } | Self::DriveWears { drive, .. } => (Some(drive), None),
            Self::VolumeWears { volser, .. } => (None, Some(volser)),
        }
    }

    fn is_about(&self, wanted_drive: Option<&str>, wanted_volume: Option<&Volser>) -> bool {
        let (drive, volume) = self.of();
        let other_drive = wanted_drive.zip(drive).is_some_and(|(wanted, drive)| wanted != drive);
        let other_volume = wanted_volume.zip(volume).is_some_and(|(wanted, volume)| wanted != volume);
        !other_drive && !other_volume
    }
}

impl Site {
    /// What drives have told: all of it, or of one drive (by its name in messages, or its number in `capstan drives`),
    /// or one volume.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn drive_history(&self, drive: Option<&str>, volser: Option<&Volser>) -> Result<DriveHistory, DirectorError> {
        let mut found = history(locked(&self.catalog).drive_reports(REPORTS_MAX)?);
        let by_number = match drive.and_then(|text| text.parse::<u32>().ok()) {
            Some(number) => {
                self.drives()?.into_iter().find(|row| row.number == number).and_then(|row| row.description.path)
            }
            None => None,
        };
        let by_number = by_number.map(|path| path.display().to_string());
        let drive = by_number.as_deref().or(drive);
        found.stays.retain(|stay| {
            drive.is_none_or(|drive| stay.drive == drive) && volser.is_none_or(|volser| stay.volser == *volser)
        });
        found.drives.retain(|fare| found.stays.iter().any(|stay| stay.drive == fare.name));
        found.volumes.retain(|fare| found.stays.iter().any(|stay| stay.volser.as_str() == fare.name));
        found.concerns.retain(|concern| concern.is_about(drive, volser));
        let has = |concern: &Concern| match concern {
            Concern::VolumeWears { volser, .. } => found.stays.iter().any(|stay| stay.volser == *volser),
            Concern::DriveWears { drive, .. } | Concern::Cleaning { drive } => {
                found.stays.iter().any(|stay| stay.drive == *drive)
            }
            Concern::Alert { .. } | Concern::Failed { .. } => true,
        };
        found.concerns.retain(has);
        Ok(found)
    }

    /// What drives have told lately and a person has to do.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn drive_concerns(&self) -> Result<Vec<Concern>, DirectorError> {
        let found = history(locked(&self.catalog).drive_reports(RECENT_REPORTS_MAX)?);
        let since_ns = self.now_ns().saturating_sub(CONCERNS_KEPT_NS);
        Ok(found.concerns_since(since_ns))
    }
}

#[cfg(test)]
mod tests;
