//! What drives say of themselves and of the volumes in them, kept so that a trend is seen before data are lost.

use capstan_format::Volser;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, impossible, params};
use crate::volume::volser;

/// When a drive was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Behind the mount.
    Mounted,
    /// Before the volume leaves.
    Leaving,
    /// At a checkpoint, in the middle of a session.
    Checkpoint,
}

impl Moment {
    const ALL: [Self; 3] = [Self::Mounted, Self::Leaving, Self::Checkpoint];
}

/// A drive's word. Counts are those of the volume's whole life where the drive has them so; what it does not count is
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveReport {
    /// When, nanoseconds since 1970.
    pub at_ns: i64,
    /// The volume in it.
    pub volser: Volser,
    /// The drive's name.
    pub drive: String,
    /// At which point of a mount.
    pub moment: Moment,
    /// TapeAlert flags that were up, by number.
    pub alerts: Vec<u16>,
    /// Whether the drive wants to be cleaned.
    pub cleaning: Option<bool>,
    /// Errors that the drive recovered from by itself since it was taken into use.
    pub recovered: u64,
    /// Times the volume was mounted.
    pub mounts: Option<u64>,
    /// Writes that needed another try.
    pub write_retries: Option<u64>,
    /// Writes that failed.
    pub write_errors: Option<u64>,
    /// Reads that needed another try.
    pub read_retries: Option<u64>,
    /// Reads that failed.
    pub read_errors: Option<u64>,
    /// MB written.
    pub written_mb: Option<u64>,
    /// MB read.
    pub read_mb: Option<u64>,
    /// Compression of what was written, in hundredths.
    pub compression_percent: Option<u64>,
    /// Cartridges that the drive has loaded in its life.
    pub drive_loads: Option<u64>,
    /// Metres of tape that have passed its heads in its life.
    pub drive_metres: Option<u64>,
}

/// How long it is kept what drives said in the middle of sessions, unless they raised an alert: what they said at the
/// beginning and the end of each is kept for good. 90 days, in nanoseconds.
const CHECKPOINTS_KEPT_NS: i64 = 90 * 86_400 * 1_000_000_000;

/// A count as the database keeps it; one beyond its reach is kept as its largest.
fn kept(count: Option<u64>) -> Option<i64> {
    count.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
}

impl Catalog {
    /// Keeps a report.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn add_drive_report(&mut self, report: &DriveReport) -> Result<(), CatalogError> {
        let alerts: Vec<String> = report.alerts.iter().map(u16::to_string).collect();
        let transaction = self.write_for_now()?;
        transaction.execute(
            "INSERT INTO drive_reports (report, at_ns, volser, drive, moment, alerts, cleaning, recovered, mounts, write_retries,
                 write_errors, read_retries, read_errors, written_mb, read_mb, compression_percent, drive_loads, drive_metres)
             SELECT (SELECT coalesce(max(report), 0) + 1 FROM drive_reports),
                    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17",
            params![
                report.at_ns,
                report.volser.as_str(),
                report.drive,
                report.moment as u8,
                alerts.join(","),
                report.cleaning,
                kept(Some(report.recovered)),
                kept(report.mounts),
                kept(report.write_retries),
                kept(report.write_errors),
                kept(report.read_retries),
                kept(report.read_errors),
                kept(report.written_mb),
                kept(report.read_mb),
                kept(report.compression_percent),
                kept(report.drive_loads),
                kept(report.drive_metres),
            ],
        )?;
        if report.moment == Moment::Mounted {
            transaction.execute(
                "DELETE FROM drive_reports WHERE moment = ?1 AND alerts = '' AND at_ns < ?2",
                params![Moment::Checkpoint as u8, report.at_ns.saturating_sub(CHECKPOINTS_KEPT_NS)],
            )?;
        }
        transaction.commit()
    }

    /// The last reports, the latest first.
    ///
    /// # Errors
    /// The database cannot be read, or a report in it is damaged.
    pub fn drive_reports(&self, limit: u32) -> Result<Vec<DriveReport>, CatalogError> {
        let query =
            "SELECT at_ns, volser, drive, moment, alerts, cleaning, recovered, mounts, write_retries, write_errors,
                     read_retries, read_errors, written_mb, read_mb, compression_percent, drive_loads, drive_metres
                     FROM drive_reports ORDER BY report DESC LIMIT ?1";
        self.db.query(query, params![limit], report)
    }
}

fn report(row: &Row<'_>) -> Result<DriveReport, CatalogError> {
    let code: u8 = row.get(3)?;
    let moment = *Moment::ALL.get(usize::from(code)).ok_or_else(|| impossible("a moment", code))?;
    let alerts: String = row.get(4)?;
    let count = |at: usize| row.get::<Option<i64>>(at).map(|count| count.and_then(|count| u64::try_from(count).ok()));
    Ok(DriveReport {
        at_ns: row.get(0)?,
        volser: volser(row, 1)?,
        drive: row.get(2)?,
        moment,
        alerts: alerts.split(',').filter_map(|number| number.parse().ok()).collect(),
        cleaning: row.get(5)?,
        recovered: count(6)?.unwrap_or(0),
        mounts: count(7)?,
        write_retries: count(8)?,
        write_errors: count(9)?,
        read_retries: count(10)?,
        read_errors: count(11)?,
        written_mb: count(12)?,
        read_mb: count(13)?,
        compression_percent: count(14)?,
        drive_loads: count(15)?,
        drive_metres: count(16)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::place_in_tests::catalog_in;

    #[test]
    fn reports_are_read_as_they_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let first = DriveReport {
            at_ns: 5,
            volser: "A00001L9".parse().unwrap(),
            drive: "/dev/sg1".to_owned(),
            moment: Moment::Mounted,
            alerts: vec![3, 20],
            cleaning: Some(true),
            recovered: 2,
            mounts: Some(7),
            write_retries: None,
            write_errors: Some(u64::MAX),
            read_retries: Some(0),
            read_errors: None,
            written_mb: Some(1),
            read_mb: Some(2),
            compression_percent: Some(100),
            drive_loads: Some(900),
            drive_metres: None,
        };
        let second = DriveReport { volser: "A00002L9".parse().unwrap(), moment: Moment::Leaving, ..first.clone() };
        catalog.add_drive_report(&first).unwrap();
        catalog.add_drive_report(&second).unwrap();
        let kept = |report: &DriveReport| DriveReport { write_errors: Some(i64::MAX as u64), ..report.clone() };
        assert_eq!(catalog.drive_reports(10).unwrap(), [kept(&second), kept(&first)]);
        assert_eq!(catalog.drive_reports(1).unwrap(), [kept(&second)]);
    }

    #[test]
    fn what_was_said_in_the_middle_of_old_sessions_goes_unless_it_is_an_alert() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let quiet = DriveReport {
            at_ns: 0,
            volser: "A00001L9".parse().unwrap(),
            drive: "/dev/sg1".to_owned(),
            moment: Moment::Checkpoint,
            alerts: Vec::new(),
            cleaning: None,
            recovered: 0,
            mounts: None,
            write_retries: None,
            write_errors: None,
            read_retries: None,
            read_errors: None,
            written_mb: None,
            read_mb: None,
            compression_percent: None,
            drive_loads: None,
            drive_metres: None,
        };
        let loud = DriveReport { alerts: vec![20], ..quiet.clone() };
        let leaving = DriveReport { moment: Moment::Leaving, ..quiet.clone() };
        let recent = DriveReport { at_ns: 2, ..quiet.clone() };
        let mounted = DriveReport { at_ns: CHECKPOINTS_KEPT_NS + 1, moment: Moment::Mounted, ..quiet.clone() };
        for report in [&quiet, &loud, &leaving, &recent, &mounted] {
            catalog.add_drive_report(report).unwrap();
        }
        assert_eq!(catalog.drive_reports(10).unwrap(), [mounted, recent, leaving, loud]);
    }
}
