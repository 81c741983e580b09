//! The budgets of the design (section 9), held against one run's results.

use super::contest::{Data, Results, Sizes};

/// Whom a floor compares with.
#[derive(Debug, Clone, Copy)]
enum Against {
    /// The fastest of these.
    Fastest(&'static [&'static str]),
    /// The slowest of these: any of them may be what bounds us.
    Slowest(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy)]
struct Floor {
    what: &'static str,
    ours: &'static str,
    peer: &'static str,
    against: Against,
    at_least: f64,
}

const FLOORS: [Floor; 11] = [
    Floor {
        what: "small files to null, warm",
        ours: "small-null/capstan",
        peer: "bare loop, 2 threads",
        against: Against::Fastest(&["small-null/bare-2"]),
        at_least: 0.8,
    },
    Floor {
        what: "small files to null, warm",
        ours: "small-null/capstan",
        peer: "GNU tar",
        against: Against::Fastest(&["small-null/tar"]),
        at_least: 3.0,
    },
    Floor {
        what: "small files to null, warm",
        ours: "small-null/capstan",
        peer: "GNU tar with xattrs and ACLs",
        against: Against::Fastest(&["small-null/tar-xattrs"]),
        at_least: 4.0,
    },
    Floor {
        what: "small files to null, cold",
        ours: "small-cold/capstan",
        peer: "best bare reader",
        against: Against::Fastest(&[
            "small-cold/bare-1",
            "small-cold/bare-32",
            "small-cold/bare-ring-64",
            "small-cold/bare-ring-128",
        ]),
        at_least: 0.8,
    },
    Floor {
        what: "small files to null, cold",
        ours: "small-cold/capstan",
        peer: "GNU tar",
        against: Against::Fastest(&["small-cold/tar"]),
        at_least: 2.5,
    },
    Floor {
        what: "small files to an encrypted, compressed volume",
        ours: "small-volume/capstan",
        peer: "tar, zstd -1, age",
        against: Against::Fastest(&["small-volume/tar-zstd-age"]),
        at_least: 2.0,
    },
    Floor {
        what: "small files to an encrypted, compressed volume",
        ours: "small-volume/capstan",
        peer: "Bacula",
        against: Against::Fastest(&["small-volume/bacula"]),
        at_least: 10.0,
    },
    Floor {
        what: "small files to an encrypted, compressed volume",
        ours: "small-volume/capstan",
        peer: "restic",
        against: Against::Fastest(&["small-volume/restic"]),
        at_least: 3.0,
    },
    Floor {
        what: "large files to an encrypted volume, no compression",
        ours: "typical-volume/capstan-encrypted",
        peer: "cat to the same disk",
        against: Against::Fastest(&["typical-volume/cat"]),
        at_least: 0.9,
    },
    Floor {
        what: "encrypted against plain",
        ours: "typical-volume/capstan-encrypted",
        peer: "plain",
        against: Against::Fastest(&["typical-volume/capstan-plain"]),
        at_least: 0.98,
    },
    Floor {
        what: "32 connections against 1",
        ours: "typical-volume/capstan-32",
        peer: "1 connection",
        against: Against::Fastest(&["typical-volume/capstan-1"]),
        at_least: 0.95,
    },
];

const RESTORES: [Floor; 2] = [
    Floor {
        what: "restore of everything, typical files",
        ours: "restore/capstan",
        peer: "the backup, or writing to the target",
        against: Against::Slowest(&["typical-volume/capstan", "restore/cp"]),
        at_least: 0.8,
    },
    Floor {
        what: "restore of everything, small files",
        ours: "restore/capstan-small",
        peer: "the backup, or writing to the target",
        against: Against::Slowest(&["small-volume/capstan", "restore/cp-small"]),
        at_least: 0.8,
    },
];

/// One 8 KB file out of the library, from the start of the program to its end.
const ONE_FILE_MS_MAX: f64 = 50.0;
/// A file version in the catalog.
const VERSION_BYTES_MAX: f64 = 12.0;

/// How a floor was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Miss,
    /// One of the two did not run.
    Unmeasured,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) what: String,
    pub(super) floor: String,
    pub(super) measured: String,
    pub(super) verdict: Verdict,
}

/// Holds the results against every floor.
pub(super) fn judge(results: &Results, sizes: Sizes, version_bytes: Option<f64>) -> Vec<Line> {
    let mut lines: Vec<Line> = FLOORS.iter().chain(&RESTORES).map(|floor| ratio_line(floor, results)).collect();
    let one_file = results.median("one-file/capstan").map(|usage| usage.wall.as_secs_f64() * 1e3);
    let files = sizes.files(Data::Small);
    lines.push(ceiling_line(&format!("one 8 KB file out of {files}"), one_file, ONE_FILE_MS_MAX, "ms"));
    lines.push(ceiling_line("file index of /usr", version_bytes, VERSION_BYTES_MAX, "bytes a version"));
    lines
}

/// How many times as fast as its peer ours is. Both handle the same data set.
fn ratio(floor: &Floor, results: &Results) -> Option<f64> {
    let ours = results.median(floor.ours)?.wall.as_secs_f64();
    let seconds = |ids: &[&str]| -> Vec<f64> {
        ids.iter().filter_map(|id| results.median(id)).map(|usage| usage.wall.as_secs_f64()).collect()
    };
    let theirs = match floor.against {
        Against::Fastest(ids) => seconds(ids).into_iter().reduce(f64::min),
        Against::Slowest(ids) => seconds(ids).into_iter().reduce(f64::max),
    };
    Some(theirs? / ours.max(1e-9))
}

fn ratio_line(floor: &Floor, results: &Results) -> Line {
    let ratio = ratio(floor, results);
    Line {
        what: floor.what.to_owned(),
        floor: format!("{} × {}", floor.at_least, floor.peer),
        measured: ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} ×")),
        verdict: verdict(ratio, |ratio| ratio >= floor.at_least),
    }
}

fn ceiling_line(what: &str, measured: Option<f64>, at_most: f64, unit: &str) -> Line {
    Line {
        what: what.to_owned(),
        floor: format!("at most {at_most} {unit}"),
        measured: measured.map_or_else(|| "-".to_owned(), |measured| format!("{measured:.1} {unit}")),
        verdict: verdict(measured, |measured| measured <= at_most),
    }
}

fn verdict(measured: Option<f64>, met: impl Fn(f64) -> bool) -> Verdict {
    match measured {
        None => Verdict::Unmeasured,
        Some(value) if met(value) => Verdict::Pass,
        Some(_) => Verdict::Miss,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::contestants::all_contestants;
    use super::super::measure::Usage;
    use super::*;

    fn seconds(seconds: f64) -> Usage {
        Usage { wall: Duration::from_secs_f64(seconds), ..Usage::default() }
    }

    const SIZES: Sizes = Sizes { small_files: 100, small_bytes: 1, typical_files: 20, typical_bytes: 1 };

    #[test]
    fn every_floor_names_contestants_of_one_data_set() {
        let data =
            |id: &str| all_contestants().find(|contestant| contestant.id == id).map(|contestant| contestant.data);
        for floor in FLOORS.iter().chain(&RESTORES) {
            let (Against::Fastest(ids) | Against::Slowest(ids)) = floor.against;
            let ours = data(floor.ours);
            assert!(ours.is_some(), "{}", floor.ours);
            assert!(ids.iter().all(|id| data(id) == ours), "{ids:?} against {}", floor.ours);
        }
        assert!(data("one-file/capstan").is_some());
    }

    #[test]
    fn ratios_are_of_medians() {
        let mut results = Results::default();
        for wall in [9.0, 1.0, 2.0] {
            results.record("small-null/capstan", seconds(wall));
        }
        results.record("small-null/tar", seconds(6.0));
        results.record("small-null/tar-xattrs", seconds(7.9));
        let lines = judge(&results, SIZES, Some(12.0));
        assert_eq!((lines[0].measured.as_str(), lines[0].verdict), ("-", Verdict::Unmeasured));
        assert_eq!((lines[1].measured.as_str(), lines[1].verdict), ("3.00 ×", Verdict::Pass));
        assert_eq!((lines[2].measured.as_str(), lines[2].verdict), ("3.95 ×", Verdict::Miss));
        let last = lines.last().map(|line| (line.measured.as_str(), line.verdict));
        assert_eq!(last, Some(("12.0 bytes a version", Verdict::Pass)));
    }

    #[test]
    fn the_best_peer_counts_and_the_slowest_bound() {
        let mut results = Results::default();
        results.record("small-cold/capstan", seconds(1.0));
        results.record("small-cold/bare-1", seconds(3.0));
        results.record("small-cold/bare-32", seconds(0.7));
        assert_eq!(judge(&results, SIZES, None)[3].measured, "0.70 ×");
        results.record("restore/capstan", seconds(10.0));
        results.record("typical-volume/capstan", seconds(4.0));
        results.record("restore/cp", seconds(9.0));
        assert_eq!(judge(&results, SIZES, None)[11].measured, "0.90 ×");
    }
}
