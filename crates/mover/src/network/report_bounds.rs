//! Bounds of what a client reports.
//!
//! Every report of a client comes through [`hear`]. Texts are short from then on, and have no character that a terminal
//! would obey. Paths are bytes: they are cut here, and escaped by whoever shows them.
//!
//! A client names as many problems as fit into a message ([`done`], [`fit_extract`]), and counts all of them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use zeroize::Zeroizing;

use super::orders::{JobReport, OrdersLink, ProgressReport, RestoredReport};
use super::peer_text::said;
use crate::extract::ExtractReport;
use crate::source::{ReadFrom, SourceReport};

/// Bytes of a path that are kept: as many as Linux takes at a time.
pub(super) const PATH_LEN_MAX: usize = 4_096;
/// Bytes of the paths and reasons of all problems in one report. Up to four cross for each, and a report must be no
/// longer than a message may be.
const PROBLEMS_LEN_MAX: usize = 512 << 10;
/// Problems of a restore that are named to the mover.
const EXTRACT_PROBLEMS_MAX: usize = 1_000;

/// That a source was read, as a report that can be sent.
pub(super) fn done(mut report: SourceReport) -> JobReport {
    fit(&mut report.problems, |problem| (&mut problem.path, 0));
    JobReport::Done(Box::new(report))
}

/// Names no more problems of a restore than can be sent.
pub(super) fn fit_extract(report: &mut ExtractReport) {
    report.problems.truncate(EXTRACT_PROBLEMS_MAX);
    report.problems.iter_mut().for_each(|problem| problem.reason = said(&problem.reason));
    fit(&mut report.problems, |problem| (&mut problem.path, problem.reason.len()));
}

/// Cuts the paths of problems, and takes out those that there is no room for; `parts` gives a path, and how many bytes
/// there are beside it.
fn fit<P>(problems: &mut Vec<P>, parts: fn(&mut P) -> (&mut Vec<u8>, usize)) {
    let mut left = PROBLEMS_LEN_MAX;
    problems.retain_mut(|problem| {
        let (path, beside) = parts(problem);
        path.truncate(PATH_LEN_MAX);
        let len = path.len() + beside;
        let fits = len <= left;
        left -= if fits { len } else { 0 };
        fits
    });
}

/// The next report of a client, which has no more than so much to attach.
pub(super) fn hear(link: &mut OrdersLink, attached_max: usize) -> io::Result<(JobReport, Zeroizing<Vec<u8>>)> {
    let (report, attached) = link.receive_within(attached_max)?;
    Ok((bounded(report), attached))
}

fn bounded(report: JobReport) -> JobReport {
    match report {
        JobReport::Text(Err(reason)) => JobReport::Text(Err(said(&reason))),
        JobReport::Ran(Err(reason)) => JobReport::Ran(Err(said(&reason))),
        JobReport::Failed { reason, is_stopped } => JobReport::Failed { reason: said(&reason), is_stopped },
        JobReport::Progress(mut progress) => {
            let ProgressReport { current, problems, .. } = &mut *progress;
            cut_name(current);
            problems.iter_mut().for_each(|(path, _)| cut_name(path));
            JobReport::Progress(progress)
        }
        JobReport::Restored(mut report) => {
            let RestoredReport { failed, fatal, extract, .. } = &mut *report;
            failed.iter_mut().for_each(|failed| failed.reason = said(&failed.reason));
            *fatal = fatal.take().map(|reason| said(&reason));
            for problem in extract.iter_mut().flat_map(|ExtractReport { problems, .. }| problems) {
                problem.path.truncate(PATH_LEN_MAX);
                problem.reason = said(&problem.reason);
            }
            JobReport::Restored(report)
        }
        JobReport::Done(mut report) => {
            let SourceReport { problems, from, .. } = &mut *report;
            problems.iter_mut().for_each(|problem| problem.path.truncate(PATH_LEN_MAX));
            match from {
                ReadFrom::Live => {}
                ReadFrom::LiveForWant { reason } => *reason = said(reason),
                ReadFrom::Snapshot { by, left } => {
                    *by = said(by);
                    *left = left.take().map(|reason| said(&reason));
                }
            }
            JobReport::Done(report)
        }
        JobReport::Found(_)
        | JobReport::Text(Ok(_))
        | JobReport::StillRuns
        | JobReport::Ran(Ok(()))
        | JobReport::Missing
        | JobReport::There { .. } => report,
    }
}

fn cut_name(name: &mut OsString) {
    if name.len() > PATH_LEN_MAX {
        *name = OsString::from_vec(name.as_bytes()[..PATH_LEN_MAX].to_vec());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::os::unix::net::UnixStream;

    use super::super::NetworkStream;
    use super::super::orders::{FailedMembers, MORE_FAILED, ROWS_MAX};
    use super::super::peer_text::{TEXT_LEN_MAX, moves_text};
    use super::*;
    use crate::extract::{ExtractProblem, ExtractProblemKind};
    use crate::link::Link;
    use crate::source::{ProblemKind, SourceProblem};

    fn heard(report: &JobReport) -> JobReport {
        let (near, far) = UnixStream::pair().unwrap();
        let (near, far): (Box<dyn NetworkStream>, Box<dyn NetworkStream>) = (Box::new(near), Box::new(far));
        std::thread::scope(|scope| {
            scope.spawn(move || Link(near).send(report, &[]).unwrap());
            hear(&mut Link(far), 0).unwrap().0
        })
    }

    /// Whoever made a thousand files with long paths that cannot be read kept the source of a client from ever
    /// completing: the report was longer than any message, and each attempt failed in the same way.
    #[test]
    fn a_report_of_many_problems_at_long_paths_can_be_sent() {
        let problem = |number: usize| {
            let path = [number.to_string().as_bytes(), &[200; 100_000]].concat();
            SourceProblem { path, kind: ProblemKind::Unreadable(13) }
        };
        let problems = (0..1_000).map(problem).collect();
        let report = SourceReport { problems, problem_counts: [0, 0, 1_000], ..SourceReport::default() };
        let JobReport::Done(told) = heard(&done(report)) else { panic!("it was read") };
        assert_eq!(told.problem_counts, [0, 0, 1_000]);
        assert!(told.problems.len() > 100, "{} problems", told.problems.len());

        let kind = ExtractProblemKind::NotWritten;
        let problem = |_| ExtractProblem { path: vec![200; 4_096], kind, reason: "\"".repeat(1_024) };
        let problems = (0..3_000).map(problem).collect();
        let mut extract = ExtractReport { problems, problems_count: 3_000, ..ExtractReport::default() };
        fit_extract(&mut extract);
        assert!((50..1_000).contains(&extract.problems.len()), "{} problems", extract.problems.len());
        // With as many members that failed as are ever named.
        let failed = |row: usize| FailedMembers {
            stream: row,
            offset: 1 << 40,
            reason: MORE_FAILED.to_owned(),
            behind: 1_000,
            are_written: false,
        };
        let failed = (0..ROWS_MAX).map(failed).collect();
        let report = RestoredReport { members: 0, bytes: 0, failed, fatal: None, extract: Some(extract) };
        let JobReport::Restored(told) = heard(&JobReport::Restored(Box::new(report))) else { panic!("it ended") };
        assert_eq!((told.failed.len(), told.extract.unwrap().problems_count), (ROWS_MAX, 3_000));
    }

    /// ESC sequences of a client were printed by `capstan queue done`, and its newlines made lines of the server's log.
    #[test]
    fn what_a_client_says_moves_no_cursor_and_is_short() {
        let hostile = || format!("no\u{1b}[2J\u{9b}\nserver: all is well\u{202e}{}", "x".repeat(1 << 20));
        let is_tame = |text: &str| {
            let begins = text.starts_with("no\\u{1b}[2J\\u{9b}\\nserver: all is well\\u{202e}xxx");
            begins && text.len() < TEXT_LEN_MAX + 20 && !text.chars().any(moves_text)
        };
        let JobReport::Ran(Err(reason)) = heard(&JobReport::Ran(Err(hostile()))) else { panic!("it did not end well") };
        assert!(is_tame(&reason), "{reason}");
        let JobReport::Failed { reason, .. } = heard(&JobReport::Failed { reason: hostile(), is_stopped: false })
        else {
            panic!("it failed")
        };
        assert!(is_tame(&reason), "{reason}");
        let JobReport::Text(Err(reason)) = heard(&JobReport::Text(Err(hostile()))) else { panic!("it failed") };
        assert!(is_tame(&reason), "{reason}");
        let kind = ExtractProblemKind::Refused;
        let problem = ExtractProblem { path: vec![b'a'; 10_000], kind, reason: hostile() };
        let failed = FailedMembers { stream: 0, offset: 0, reason: hostile(), behind: 1 << 63, are_written: false };
        let extract = Some(ExtractReport { problems: vec![problem], ..ExtractReport::default() });
        let report = RestoredReport { members: 0, bytes: 0, failed: vec![failed], fatal: Some(hostile()), extract };
        let JobReport::Restored(report) = heard(&JobReport::Restored(Box::new(report))) else { panic!("it ended") };
        assert!(is_tame(&report.failed[0].reason) && report.fatal.is_some_and(|reason| is_tame(&reason)));
        let problem = &report.extract.unwrap().problems[0];
        assert!(is_tame(&problem.reason) && problem.path.len() == PATH_LEN_MAX, "{problem:?}");
        let from = ReadFrom::Snapshot { by: hostile(), left: Some(hostile()) };
        let done = SourceReport { from, ..SourceReport::default() };
        let JobReport::Done(done) = heard(&JobReport::Done(Box::new(done))) else { panic!("it was read") };
        let ReadFrom::Snapshot { by, left } = done.from else { panic!("it is of a snapshot") };
        assert!(is_tame(&by) && left.is_some_and(|reason| is_tame(&reason)));
    }
}
