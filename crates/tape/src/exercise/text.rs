//! The report as text for people: Markdown, which reads well as it is.

use std::fmt::Write;

use super::facts::Privacy;
use super::{DriveVerdict, Driver, Exercised, Rate, Section, Serials};
use crate::conformance::{Checked, RuleOutcome};

/// One rule in one line.
pub(super) fn of_check(checked: &Checked) -> String {
    match &checked.outcome {
        RuleOutcome::Passed => format!("{}: kept", checked.rule),
        RuleOutcome::Failed(text) => format!("{}: BROKEN: {text}", checked.rule),
        RuleOutcome::LeftOut(reason) => format!("{}: left out, {reason}", checked.rule),
    }
}

pub(super) fn markdown(of: &Exercised, serials: Serials) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, of, serials);
    out
}

fn write_all(out: &mut String, of: &Exercised, serials: Serials) -> std::fmt::Result {
    let verdict = match of.verdict() {
        DriveVerdict::Good => "keeps all rules that it was tried by",
        DriveVerdict::Broken => "DOES NOT do what it should: see the rules and the problems below",
    };
    writeln!(out, "# {}: {verdict}\n", of.identity.model)?;
    writeln!(out, "Made by capstan {} (`capstan drives exercise`).\n", env!("CARGO_PKG_VERSION"))?;
    let driver = match of.driver {
        Driver::Generic => "the generic one (sg)",
        Driver::Tape => "the kernel's tape driver (st)",
    };
    writeln!(out, "| | |\n|---|---|\n| driver | {driver} |")?;
    // A path by identifier has the serial number in it.
    if serials == Serials::Told {
        writeln!(out, "| node | {} |", of.device.display())?;
    }
    writeln!(out, "| key slot | {} |", if of.identity.encrypts { "yes" } else { "no, or not by this driver" })?;
    let medium = &of.medium;
    writeln!(out, "| cartridge | {} |", medium.generation.as_deref().unwrap_or("of no generation that is known"))?;
    writeln!(out, "| capacity, bytes | {} |", medium.capacity_bytes)?;
    writeln!(out, "| remaining before, bytes | {} |", medium.remaining_bytes)?;
    rules(out, of)?;
    measurements(out, of)?;
    section(out, &of.host, serials)?;
    for one in &of.facts {
        section(out, one, serials)?;
    }
    writeln!(out, "\n# Logs afterwards")?;
    for one in &of.logs_after {
        section(out, one, serials)?;
    }
    Ok(())
}

fn rules(out: &mut String, of: &Exercised) -> std::fmt::Result {
    let broken = of.rules.broken().count();
    let excused = of.rules.failed().count() - broken;
    writeln!(out, "\n## Rules\n\n{} kept, {broken} broken, {excused} broken by design\n", of.rules.passed())?;
    writeln!(out, "| rule | came out |\n|---|---|")?;
    for checked in &of.rules.checks {
        let text = match &checked.outcome {
            RuleOutcome::Passed => "kept".to_owned(),
            RuleOutcome::LeftOut(reason) => format!("left out: {reason}"),
            RuleOutcome::Failed(text) => match checked.excuse {
                None => format!("**broken:** {text}"),
                Some(excuse) => format!("broken by design: {text} ({excuse})"),
            },
        };
        writeln!(out, "| {} | {} |", checked.rule, cell(&text))?;
    }
    Ok(())
}

fn measurements(out: &mut String, of: &Exercised) -> std::fmt::Result {
    let found = &of.measurements;
    if !found.problems.is_empty() {
        writeln!(out, "\n## Problems\n")?;
        for problem in &found.problems {
            writeln!(out, "- {problem}")?;
        }
    }
    writeln!(out, "\n## Rates\n\n| block, KiB | written, MB | MB/s, with the flush | read, MB/s |\n|--:|--:|--:|--:|")?;
    for written in &found.written {
        let read = found.read.iter().find(|read| read.block_len == written.block_len);
        let read = read.map_or_else(|| "-".to_owned(), |read| format!("{:.1}", mb_per_s(read)));
        let (block, mb) = (written.block_len >> 10, written.bytes as f64 / 1e6);
        writeln!(out, "| {block} | {mb:.1} | {:.1} | {read} |", mb_per_s(written))?;
    }
    writeln!(out, "\n## Times\n\n| what | seconds |\n|---|--:|")?;
    for timing in &found.timings {
        writeln!(out, "| {} | {:.4} |", timing.what, timing.seconds)?;
    }
    Ok(())
}

fn mb_per_s(rate: &Rate) -> f64 {
    rate.bytes as f64 / 1e6 / rate.seconds.max(1e-9)
}

fn section(out: &mut String, section: &Section, serials: Serials) -> std::fmt::Result {
    writeln!(out, "\n## {}\n\n| what | said |\n|---|---|", section.title)?;
    for fact in &section.facts {
        let value = match (fact.privacy, serials) {
            (Privacy::Identifying, Serials::LeftOut) => "(left out: --serials tells it)",
            _ => fact.value.as_str(),
        };
        writeln!(out, "| {} | {} |", cell(&fact.name), cell(value))?;
    }
    Ok(())
}

/// What a drive says may have anything in it.
fn cell(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().replace('|', "\\|")
}
