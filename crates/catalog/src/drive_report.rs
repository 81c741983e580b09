//! What drives say of themselves and of the volumes in them, kept so that a trend is seen before data are lost.

use capstan_format::Volser;
use rusqlite::{Row, params};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::pool::impossible;

/// When a drive was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Behind the mount.
    Mounted,
    /// Before the volume leaves.
    Leaving,
}

impl Moment {
    const ALL: [Self; 2] = [Self::Mounted, Self::Leaving];
}

/// A drive's word. Counts are those of the volume's whole life where the drive has them so; what it does not count is none.
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
}

/// A count as the database keeps it; one beyond its reach is kept as its largest.
fn kept(count: Option<u64>) -> Option<i64> {
    count.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
}

impl Catalog {
    /// Keeps a report.
    pub fn add_drive_report(&mut self, report: &DriveReport) -> Result<(), CatalogError> {
        let alerts: Vec<String> = report.alerts.iter().map(u16::to_string).collect();
        self.db.execute(
            "INSERT INTO drive_reports (at_ns, volser, drive, moment, alerts, cleaning, recovered, mounts, write_retries,
                 write_errors, read_retries, read_errors, written_mb, read_mb, compression_percent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
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
            ],
        )?;
        Ok(())
    }

    /// The last reports, of one volume or of all, the latest first.
    pub fn drive_reports(&self, volser: Option<&Volser>, limit: u32) -> Result<Vec<DriveReport>, CatalogError> {
        let mut statement = self.db.prepare_cached(
            "SELECT * FROM drive_reports WHERE ?1 IS NULL OR volser = ?1 ORDER BY report DESC LIMIT ?2",
        )?;
        let rows = statement.query_map(params![volser.map(Volser::as_str), limit], report)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn report(row: &Row<'_>) -> rusqlite::Result<DriveReport> {
    let volser: String = row.get(2)?;
    let volser = Volser::new(&volser).map_err(|_| impossible(2, "a volser", 0))?;
    let code: u8 = row.get(4)?;
    let moment = *Moment::ALL.get(usize::from(code)).ok_or_else(|| impossible(4, "a moment", code))?;
    let alerts: String = row.get(5)?;
    let count =
        |at: usize| row.get::<_, Option<i64>>(at).map(|count| count.and_then(|count| u64::try_from(count).ok()));
    Ok(DriveReport {
        at_ns: row.get(1)?,
        volser,
        drive: row.get(3)?,
        moment,
        alerts: alerts.split(',').filter_map(|number| number.parse().ok()).collect(),
        cleaning: row.get(6)?,
        recovered: count(7)?.unwrap_or(0),
        mounts: count(8)?,
        write_retries: count(9)?,
        write_errors: count(10)?,
        read_retries: count(11)?,
        read_errors: count(12)?,
        written_mb: count(13)?,
        read_mb: count(14)?,
        compression_percent: count(15)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn reports_are_read_as_they_were_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = Catalog::open(dir.path()).unwrap();
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
        };
        let second = DriveReport { volser: "A00002L9".parse().unwrap(), moment: Moment::Leaving, ..first.clone() };
        catalog.add_drive_report(&first).unwrap();
        catalog.add_drive_report(&second).unwrap();
        let kept = DriveReport { write_errors: Some(i64::MAX as u64), ..first.clone() };
        assert_eq!(catalog.drive_reports(Some(&first.volser), 10).unwrap(), [kept]);
        assert_eq!(catalog.drive_reports(None, 1).unwrap()[0].moment, Moment::Leaving);
    }
}
