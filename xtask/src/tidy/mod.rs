//! The project's own rules, checked: which room may use which, and the habits that no lint knows.
//!
//! Each check returns [`Finding`]s instead of printing, so that the tests can feed it a broken example of every rule.

mod circles;
mod golden;
mod names;
mod rooms;
mod sources;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

/// Whether a finding breaks the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fails,
    Warns,
}

/// One departure from a rule: where, what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    verdict: Verdict,
    place: String,
    text: String,
}

impl Finding {
    fn fails(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fails, place: place.into(), text: text.into() }
    }

    fn warns(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warns, place: place.into(), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Fails => "error",
            Verdict::Warns => "warning",
        };
        write!(f, "{verdict}: {}: {}", self.place, self.text)
    }
}

/// Runs every check over the work tree and prints what it finds.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let mut findings = rooms::check(root)?;
    findings.extend(circles::check(root)?);
    findings.extend(sources::check(root)?);
    findings.extend(golden::check(root)?);
    findings.extend(names::check(root)?);
    for finding in &findings {
        println!("{finding}");
    }
    let fails = findings.iter().any(|finding| finding.verdict == Verdict::Fails);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
