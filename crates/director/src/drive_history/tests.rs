//! What a history is made of, and whom it blames.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use super::*;

fn report(drive: &str, volser: &str, at_ns: i64, moment: Moment, (written_mb, retries): (u64, u64)) -> DriveReport {
    DriveReport {
        at_ns,
        volser: volser.parse().unwrap(),
        drive: drive.to_owned(),
        moment,
        alerts: Vec::new(),
        cleaning: Some(false),
        recovered: 0,
        mounts: Some(5),
        write_retries: Some(retries),
        write_errors: Some(0),
        read_retries: None,
        read_errors: Some(0),
        written_mb: Some(written_mb),
        read_mb: Some(0),
        compression_percent: Some(150),
        drive_loads: Some(77),
        drive_metres: None,
    }
}

/// Stays one after another, each with so many GB and so many corrected errors; the latest report first.
fn told(stays: &[(&str, &str, u64, u64)]) -> Vec<DriveReport> {
    let (mut mb, mut retries, mut at_ns) = (100, 7, 0);
    let mut reports = Vec::new();
    for (drive, volser, gb, errors) in stays {
        reports.push(report(drive, volser, at_ns, Moment::Mounted, (mb, retries)));
        reports.push(report(drive, volser, at_ns + 1, Moment::Checkpoint, (mb + gb * 500, retries + errors / 2)));
        (mb, retries) = (mb + gb * 1000, retries + errors);
        reports.push(report(drive, volser, at_ns + 2, Moment::Leaving, (mb, retries)));
        at_ns += 10;
    }
    reports.reverse();
    reports
}

#[test]
fn a_stay_has_what_was_counted_since_its_mount() {
    let found = history(told(&[("a", "A00001", 3, 4), ("a", "A00002", 5, 0)]));
    let [second, first] = &found.stays[..] else { panic!("{found:?}") };
    assert_eq!((first.written_mb, first.corrected, first.uncorrected), (Some(3000), Some(4), Some(0)));
    assert_eq!((first.since_ns, first.left_ns, first.compression_percent), (0, Some(2), Some(150)));
    assert_eq!((second.volser.as_str(), second.written_mb), ("A00002", Some(5000)));
    assert_eq!((found.drives[0].written_mb, found.drives[0].corrected, found.drives[0].loads), (8000, 4, Some(77)));
    assert_eq!((found.volumes[1].name.as_str(), found.volumes[1].loads), ("A00002", Some(5)));
    assert_eq!(found.concerns, []);
}

#[test]
fn a_stay_without_its_beginning_or_end_is_told_as_far_as_it_is_known() {
    let mut reports = told(&[("a", "A00001", 3, 4), ("a", "A00002", 5, 0), ("a", "A00003", 1, 0)]);
    // The first mount was not noted, the second volume left when nobody looked, and the third is there still.
    reports
        .retain(|report| !matches!((report.moment, report.at_ns), (Moment::Mounted, 0) | (Moment::Leaving, 12 | 22)));
    let found = history(reports);
    let known: Vec<_> = found.stays.iter().map(|stay| (stay.left_ns, stay.written_mb)).collect();
    assert_eq!(known, [(None, Some(500)), (None, Some(2500)), (Some(2), None)]);
}

#[test]
fn a_counter_that_began_anew_counts_from_there() {
    assert_eq!(since(Some(10), Some(3)), Some(3));
    assert_eq!(since(Some(10), None), None);
}

#[test]
fn who_wears_is_named() {
    let one =
        history(told(&[("a", "A00001", 9, 9), ("b", "A00001", 9, 9), ("a", "A00001", 9, 80), ("b", "A00001", 9, 90)]));
    let said: Vec<String> = one.concerns.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("volume A00001: corrected errors rose from 1.00 to 9.44 per GB: copy"), "{said:?}");
    let drive =
        history(told(&[("a", "A00001", 9, 0), ("b", "A00002", 9, 0), ("a", "A00003", 9, 40), ("b", "A00002", 9, 1)]));
    let said: Vec<String> = drive.concerns.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("drive a: corrected errors rose from 0.00 to 4.44 per GB"), "{said:?}");
    // As many errors as ever, or too few to speak of, are no news.
    for steady in [[50, 50, 50, 50], [0, 0, 0, 9]] {
        let stays = steady.map(|errors| ("a", "A00001", 9, errors));
        assert_eq!(history(told(&stays)).concerns, []);
    }
}

/// A drive that was taken out says nothing more, for ever.
#[test]
fn what_was_said_long_ago_is_not_called_to_attention() {
    let mut reports = told(&[("a", "A00001", 3, 0), ("b", "A00002", 3, 0)]);
    reports.iter_mut().for_each(|report| report.cleaning = Some(true));
    let since = |ns| history(reports.clone()).concerns_since(ns);
    assert_eq!(since(0).len(), 2);
    assert_eq!(since(12), [Concern::Cleaning { drive: "b".to_owned() }]);
    assert_eq!(since(13), []);
}

#[test]
fn only_what_was_said_last_asks_for_a_person() {
    let mut reports = told(&[("a", "A00001", 3, 0), ("a", "A00002", 5, 0), ("a", "A00002", 5, 0)]);
    for report in &mut reports {
        match (report.moment, report.at_ns) {
            (Moment::Checkpoint, 1) => report.alerts = vec![7],
            (Moment::Checkpoint, 11) => (report.alerts, report.cleaning) = (vec![20], Some(true)),
            (Moment::Leaving, 22) => (report.alerts, report.write_errors) = (vec![60], Some(2)),
            _ => {}
        }
    }
    let found = history(reports);
    assert_eq!(found.stays[1].alerts, [TapeAlert::of_flag(20)]);
    let said: Vec<String> = found.concerns.iter().map(ToString::to_string).collect();
    // The volume of the first stay was not seen since; the drive has been cleaned since the second.
    assert!(said[0].contains("volume A00001: TapeAlert 7: the medium has reached the end of its life"), "{said:?}");
    assert!(said[1].contains("TapeAlert 60: a write over what is on a WORM cartridge was tried"), "{said:?}");
    assert!(said[2].contains("2 reads or writes failed: run `capstan verify A00002`"), "{said:?}");
    assert_eq!(said.len(), 3, "{said:?}");
}
