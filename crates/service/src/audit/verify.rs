//! Checks a log against itself and its anchors, away from the node and the cluster.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use capstan_keys::Name;
use thiserror::Error;

use super::chain::{Link, read_line};
use super::entry::WITNESSED;
use super::folder::torn;
use super::{Anchor, LineHash, LogHead};

/// Where a line stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePosition {
    /// The file.
    pub file: PathBuf,
    /// The line in it, from 1.
    pub line: u64,
}

impl fmt::Display for LinePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file.display(), self.line)
    }
}

/// The first thing that is wrong with a log; what stands behind it proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AuditFinding {
    /// Records are gone.
    #[error("record {first} is missing, up to record {last} ({place})")]
    Missing {
        /// The first that is missing.
        first: u64,
        /// The last that is missing.
        last: u64,
        /// Where the next one stands.
        place: LinePosition,
    },
    /// A record is not as it was written.
    #[error("record {sequence} was altered ({place})")]
    Altered {
        /// The record.
        sequence: u64,
        /// Where it stands.
        place: LinePosition,
    },
    /// A record stands where another one belongs, and the other stands elsewhere.
    #[error("record {found} stands where record {sequence} belongs ({place})")]
    Reordered {
        /// What belongs there.
        sequence: u64,
        /// What stands there.
        found: u64,
        /// Where.
        place: LinePosition,
    },
    /// The log is a chain, but not the one that was anchored: it was written anew.
    #[error(
        "record {sequence} is not the one that was anchored: the log was written anew, somewhere after record {whole_to}"
    )]
    Rewritten {
        /// The record of the anchor.
        sequence: u64,
        /// The last one that an anchor vouches for; 0 for none.
        whole_to: u64,
    },
    /// The log ends before its anchor.
    #[error("the log ends with record {last}, and record {anchored} was anchored: what stood behind was cut off")]
    Shorter {
        /// The last record that is there.
        last: u64,
        /// The record of the anchor.
        anchored: u64,
    },
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditReport {
    /// The first record that is there: 1, or later where old files were put away.
    pub first: u64,
    /// The last record that is good.
    pub last: LogHead,
    /// Up to which record an anchor vouches; what stands behind could have been changed by whoever can write the file.
    /// 0 for none.
    pub anchored_to: u64,
    /// Bytes that a crash left behind the last record.
    pub torn_bytes: u64,
    /// What this node saw of other nodes' logs.
    pub witnessed: Vec<Anchor>,
    /// The first thing that is wrong, if anything is.
    pub finding: Option<AuditFinding>,
}

/// Checks the files of a node's log, in the order of their records, against its anchors; those of other nodes are
/// passed over.
///
/// # Errors
/// A file cannot be read. What is wrong with the records is in the report.
pub fn verify(kma: &Name, files: &[PathBuf], anchors: &[Anchor]) -> io::Result<AuditReport> {
    let mut report = AuditReport {
        first: 0,
        last: LogHead::NONE,
        anchored_to: 0,
        torn_bytes: 0,
        witnessed: Vec::new(),
        finding: None,
    };
    let mut lines = Lines::new(files);
    let mut last_place = None;
    while let Some((line, place)) = lines.next()? {
        let Some(link) = Link::read(&line) else {
            match lines.torn(&line)? {
                Some(bytes) => report.torn_bytes = bytes,
                None => report.finding = Some(AuditFinding::Altered { sequence: report.last.sequence + 1, place }),
            }
            break;
        };
        if report.first == 0 {
            report.first = link.sequence;
            report.last.sequence = link.sequence.saturating_sub(1);
        }
        if link.sequence != report.last.sequence + 1 {
            report.finding = Some(misplaced(&report, &link, place, &mut lines)?);
            break;
        }
        // Of files that were put away nothing is known, but that they are not checked here.
        let known = report.first == 1 || link.sequence > report.first;
        if link.kma != kma.as_str() {
            report.finding = Some(AuditFinding::Altered { sequence: link.sequence, place });
            break;
        }
        if known && link.before != report.last.hash.to_string() {
            report.finding = Some(altered(&report, &line, place, last_place, &mut lines)?);
            break;
        }
        report.last = LogHead { sequence: link.sequence, hash: LineHash::of(&line) };
        report.witnessed.extend(witnessed(&link));
        last_place = Some(place);

        let of_this = |anchor: &&Anchor| anchor.kma == *kma && anchor.head.sequence == link.sequence;
        for anchor in anchors.iter().filter(of_this) {
            if anchor.head.hash == report.last.hash {
                report.anchored_to = link.sequence;
            } else {
                let whole_to = report.anchored_to.min(link.sequence - 1);
                report.finding = Some(AuditFinding::Rewritten { sequence: link.sequence, whole_to });
            }
        }
        if report.finding.is_some() {
            break;
        }
    }
    let ours = anchors.iter().filter(|anchor| anchor.kma == *kma);
    if let Some(anchored) = ours.map(|anchor| anchor.head.sequence).max()
        && anchored > report.last.sequence
        && report.finding.is_none()
    {
        report.finding = Some(AuditFinding::Shorter { last: report.last.sequence, anchored });
    }
    Ok(report)
}

/// A record with another number than the next one: is that one gone, or does it stand elsewhere?
fn misplaced(
    report: &AuditReport,
    link: &Link,
    place: LinePosition,
    lines: &mut Lines<'_>,
) -> io::Result<AuditFinding> {
    let sequence = report.last.sequence + 1;
    let found = link.sequence;
    if found < sequence {
        return Ok(AuditFinding::Reordered { sequence, found, place });
    }
    while let Some((line, _)) = lines.next()? {
        if Link::read(&line).is_some_and(|link| link.sequence == sequence) {
            return Ok(AuditFinding::Reordered { sequence, found, place });
        }
    }
    Ok(AuditFinding::Missing { first: sequence, last: found - 1, place })
}

/// A record that was chained to another one than stands before it. Which of the two was altered is for the one after it
/// to say.
fn altered(
    report: &AuditReport,
    line: &[u8],
    place: LinePosition,
    place_before: Option<LinePosition>,
    lines: &mut Lines<'_>,
) -> io::Result<AuditFinding> {
    let sequence = report.last.sequence;
    let vouched = match lines.next()? {
        Some((next, _)) => Link::read(&next).is_none_or(|next| next.before == LineHash::of(line).to_string()),
        None => true,
    };
    Ok(match (vouched, place_before) {
        (true, Some(place)) => AuditFinding::Altered { sequence, place },
        _ => AuditFinding::Altered { sequence: sequence + 1, place },
    })
}

fn witnessed(link: &Link) -> Option<Anchor> {
    if link.act != WITNESSED.name() {
        return None;
    }
    let kma = link.object.strip_prefix("kma/")?.parse().ok()?;
    let head =
        LogHead { sequence: link.facts.get("sequence")?.parse().ok()?, hash: link.facts.get("hash")?.parse().ok()? };
    Some(Anchor { kma, head, at_ns: 0 })
}

/// The lines of several files, one after the other.
struct Lines<'a> {
    files: std::slice::Iter<'a, PathBuf>,
    open: Option<(&'a Path, BufReader<File>, u64)>,
}

impl<'a> Lines<'a> {
    fn new(files: &'a [PathBuf]) -> Self {
        Self { files: files.iter(), open: None }
    }

    fn next(&mut self) -> io::Result<Option<(Vec<u8>, LinePosition)>> {
        loop {
            if let Some((path, file, number)) = &mut self.open {
                let mut line = Vec::new();
                read_line(file, &mut line)?;
                if !line.is_empty() {
                    *number += 1;
                    return Ok(Some((line, LinePosition { file: path.to_path_buf(), line: *number })));
                }
            }
            let Some(path) = self.files.next() else { return Ok(None) };
            self.open = Some((path, BufReader::new(File::open(path)?), 0));
        }
    }

    /// How many bytes a crash left here, if it is a crash that left them: they are the last of the last file.
    fn torn(&mut self, line: &[u8]) -> io::Result<Option<u64>> {
        let Some((_, file, _)) = &mut self.open else { return Ok(None) };
        match torn(line, file)? {
            Some((bytes, _)) if self.files.as_slice().is_empty() => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
