//! What of `status` people read on a page, however many machines a cell has.

use std::collections::HashMap;
use std::io::Write;

use capstan_director::SourceRow;

use super::attention::Attention;
use super::{Facts, owed, running_text};
use crate::failure::Failure;
use crate::table::{Table, path_text};
use crate::units;
use crate::wording::bases_line;

/// Width of the names in front of lines.
const NAME_WIDTH: usize = 12;
/// So many lines of attention are shown of whatever kind.
const LINES_MAX: usize = 20;
/// Where there are more: of each kind.
const OF_A_KIND_MAX: usize = 5;
/// Runs at work that are shown.
const RUNS_MAX: usize = 10;
/// So many sources have a line each. Where there are more, only those that need something.
const SOURCES_MAX: usize = 30;
/// What shows all of it.
const ALL: &str = "`capstan status --all`";

/// Writes the page, or all of it.
pub(super) fn text(facts: &Facts, found: &[Attention], all: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut line = |name: &str, value: &str| writeln!(out, "{name:<NAME_WIDTH$}{value}").map_err(Failure::output);
    line("state", &facts.state)?;
    let (objects, files) = (facts.protection.protected.len() as u64, facts.sum(|counts| counts.files));
    let (objects, files) = (units::counted(objects, "object"), units::counted(files, "file"));
    line("protected", &format!("{objects}, {files}, {}", units::bytes(facts.sum(|counts| counts.bytes))))?;
    if let Some(latest) = facts.protection.protected.first() {
        // Where a clock is in doubt, a difference of times says nothing.
        let age = match facts.age_is_certain(latest) {
            true => facts.age_text(latest),
            false => "how long ago is in doubt: `capstan clock` says why".to_owned(),
        };
        line("latest", &format!("{}, {age}", units::time(latest.ended_ns)))?;
    }
    line("volumes", &format!("{}, {} written", facts.volumes.len(), units::bytes(facts.written())))?;
    if let Some(text) = bases_line(&facts.expiry) {
        line("kept", &text)?;
    }
    let without_export = facts.not_exported.0.len() as u64;
    if without_export > 0 && facts.not_exported.1 == 0 {
        let volumes = units::counted(without_export, "volume");
        line("keys", &format!("those of {volumes} are in no export yet: `capstan keys export FILE`"))?;
    }
    for row in &facts.owed.rows {
        line("to copy", &owed::text(row))?;
    }
    for (name, text) in facts.queued.text().into_iter().chain(cell(facts)).chain(untold(facts)) {
        line(name, &text)?;
    }
    let shown = if all { facts.running.len() } else { RUNS_MAX };
    for row in facts.running.iter().take(shown) {
        line("running", &running_text(facts, row))?;
    }
    if let more @ 1.. = facts.running.len().saturating_sub(shown) {
        line("running", &format!("{} more: {ALL}", units::count(more as u64)))?;
    }
    for text in attention_lines(found, all) {
        line("attention", &text)?;
    }
    if facts.sources.is_empty() {
        return Ok(());
    }
    if all || facts.sources.len() <= SOURCES_MAX {
        writeln!(out).map_err(Failure::output)?;
        return sources_table(facts, &facts.sources.iter().collect::<Vec<_>>()).print(out).map_err(Failure::output);
    }
    let needing: Vec<&SourceRow> = facts.sources.iter().filter(|row| needs_something(facts, row)).collect();
    line("sources", &sources_line(facts, needing.len()))?;
    if needing.is_empty() {
        return Ok(());
    }
    writeln!(out).map_err(Failure::output)?;
    let shown = &needing[..needing.len().min(SOURCES_MAX)];
    sources_table(facts, shown).print(out).map_err(Failure::output)?;
    match needing.len() - shown.len() {
        0 => Ok(()),
        more => writeln!(out, "and {} more: {ALL}", units::count(more as u64)).map_err(Failure::output),
    }
}

/// What nobody will hear of, though policies run by themselves.
fn untold(facts: &Facts) -> impl Iterator<Item = (&'static str, String)> {
    let runs_by_itself = facts.queued.is_served && !facts.queued.policies.is_empty();
    let nobody = "nobody: capstan.toml has no rule [tell.NAME]";
    let never = "no age of a backup counts as overdue: attention.backup_hours is 0";
    let told = facts.ways.all.is_empty().then(|| ("told", nobody.to_owned()));
    let overdue = facts.max_age_ns.is_none().then(|| ("overdue", never.to_owned()));
    told.into_iter().chain(overdue).filter(move |_| runs_by_itself)
}

/// The machines of the cell, if it has any beside the server.
fn cell(facts: &Facts) -> Option<(&'static str, String)> {
    let of_kind = |kind: &str| {
        let own = facts.members.iter().filter(|member| member.kind == kind);
        let (all, connected) =
            own.fold((0u64, 0u64), |(all, connected), member| (all + 1, connected + u64::from(member.is_connected)));
        (all > 0).then(|| format!("{} of {}", units::count(connected), units::counted(all, kind)))
    };
    let kinds: Vec<_> = ["client", "mover"].into_iter().filter_map(of_kind).collect();
    let is_told = facts.queued.is_served && !kinds.is_empty();
    is_told.then(|| ("cell", format!("{} connected", kinds.join(" and "))))
}

/// The lines of all that was found; where there are many, some of each kind.
fn attention_lines(found: &[Attention], all: bool) -> Vec<String> {
    if all || found.len() <= LINES_MAX {
        return found.iter().map(|attention| attention.text.clone()).collect();
    }
    let mut of_kind: HashMap<&str, usize> = HashMap::new();
    for attention in found {
        *of_kind.entry(attention.kind()).or_default() += 1;
    }
    let mut shown: HashMap<&str, usize> = HashMap::new();
    let mut lines = Vec::new();
    for attention in found {
        let number = shown.entry(attention.kind()).or_default();
        *number += 1;
        match (*number, of_kind[attention.kind()]) {
            (number, count) if number < OF_A_KIND_MAX || count == OF_A_KIND_MAX => lines.push(attention.text.clone()),
            (OF_A_KIND_MAX, count) => {
                lines.push(format!("{} more of this kind: {ALL}", units::count((count - OF_A_KIND_MAX + 1) as u64)));
            }
            _ => {}
        }
    }
    lines
}

fn needs_something(facts: &Facts, row: &SourceRow) -> bool {
    row.run.is_none() && !row.is_gone && facts.next_step(row).is_some()
}

fn sources_line(facts: &Facts, needing: usize) -> String {
    let mut clients: Vec<_> = facts.sources.iter().map(|row| &row.client).collect();
    clients.sort();
    clients.dedup();
    let (all, at_work) = (facts.sources.len(), facts.sources.iter().filter(|row| row.run.is_some()).count());
    let counts = [(all - at_work - needing, "as they should be"), (at_work, "at work"), (needing, "to look at")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts.map(|(count, what)| format!("{} {what}", units::count(count as u64))).collect();
    let (all, clients) = (units::count(all as u64), units::counted(clients.len() as u64, "host"));
    format!("{all} on {clients}: {}. {ALL} lists them", counts.join(", "))
}

/// A line a source. The machine has a column where there are several.
fn sources_table(facts: &Facts, rows: &[&SourceRow]) -> Table {
    let one_client = facts.sources.windows(2).all(|pair| pair[0].client == pair[1].client);
    let mut heads = vec!["source", "host", "last backup", "age", ">size", ">problems", ">copies", "next"];
    if one_client {
        heads.remove(1);
    }
    let mut table = Table::new(&heads);
    for row in rows {
        let last = row.last.as_ref();
        let counts = last.and_then(|last| last.counts).unwrap_or_default();
        let mut cells = vec![
            path_text(&row.source),
            row.client.clone(),
            last.map_or_else(|| "never".to_owned(), |last| units::time(last.ended_ns)),
            last.map_or_else(|| "-".to_owned(), |last| facts.age_text(last)),
            units::bytes(counts.bytes),
            units::count(counts.problems),
            format!("{} of {}", row.copies.0, row.copies.1),
            facts.next_step(row).unwrap_or_else(|| "-".to_owned()),
        ];
        if one_client {
            cells.remove(1);
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use capstan_director::TellEvent;

    use super::*;

    #[test]
    fn of_many_lines_some_of_each_kind_are_shown() {
        let told = |key: String| Attention::told(TellEvent::Overdue, key.clone(), "", key);
        let mut found: Vec<_> = (0..200).map(|number| told(format!("overdue {number}"))).collect();
        found.extend((0..5).map(|number| told(format!("client {number}"))));
        found.extend((0..6).map(|number| Attention::shown("held", format!("held {number}"))));
        let lines = attention_lines(&found, false);
        let of_overdue =
            ["overdue 0", "overdue 1", "overdue 2", "overdue 3", "196 more of this kind: `capstan status --all`"];
        assert_eq!(lines[..5], of_overdue);
        assert_eq!(lines[5..10], ["client 0", "client 1", "client 2", "client 3", "client 4"]);
        assert_eq!(lines[13..], ["held 3", "2 more of this kind: `capstan status --all`"]);
        assert_eq!(attention_lines(&found, true).len(), 211);
        assert_eq!(attention_lines(&found[195..], false).len(), 16, "what fits is shown");
    }
}
