//! `server tell`: whom the server tells what went wrong, what arrived, and whether a rule works.

use std::process::ExitCode;

use capstan_catalog::TellingRow;
use capstan_director::{Site, TellRule};
use capstan_server::tell::{TellPatience, TellSender, TellTrial, TellWay, try_rule};

use crate::failure::{DONE_WITH_PROBLEMS, Failure, director};
use crate::globals::Globals;
use crate::json::{TellRow, TellTrialRow};
use crate::output::{print, print_rows};
use crate::secrets::{PASSPHRASES, now_ns, site};
use crate::table::Table;
use crate::units;

pub(super) fn tell_people(cli: &Globals, test: Option<&str>) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    match test {
        Some(name) => try_one(cli, &site, name),
        None => list(cli, &site),
    }
}

fn list(cli: &Globals, site: &Site) -> Result<ExitCode, Failure> {
    let tellings = site.catalog().tellings().map_err(director)?;
    let rules = &site.config().tell;
    let rows = rules.iter().flat_map(|(name, rule)| TellWay::of(rule).map(move |way| (name, rule, way)));
    let rows = rows.map(|(name, rule, way)| {
        let last = tellings.iter().find(|telling| telling.rule == *name && telling.way == way.name());
        row(name, rule, way, last)
    });
    if cli.json {
        return print_rows(rows.map(Ok));
    }
    if rules.is_empty() {
        eprintln!("capstan: the server tells nobody: capstan.toml has no [tell.NAME], and docs/CELL.md shows one");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["rule", "way", "to", "events", "again", "arrived", "last"]);
    for row in rows {
        let last = match (row.last, row.problem) {
            (Some(last), None) => last,
            (Some(last), Some(problem)) => format!("did not arrive: {last}: {problem}"),
            (None, _) => "-".to_owned(),
        };
        let events = if row.events.is_empty() { "all".to_owned() } else { row.events.join(", ") };
        let of = if row.policies.is_empty() { String::new() } else { format!(" of {}", row.policies.join(", ")) };
        let arrived = row.arrived_ns.map_or_else(|| "never".to_owned(), units::time);
        let to = row.to.join(", ");
        table.row(vec![row.rule, row.way.to_owned(), to, format!("{events}{of}"), row.again, arrived, last]);
    }
    print(&table)
}

fn row(name: &str, rule: &TellRule, way: TellWay, last: Option<&TellingRow>) -> TellRow {
    let to = match way {
        TellWay::Mail => rule.mail.clone(),
        TellWay::Webhook => vec![without_path(&rule.webhook)],
        TellWay::Command => rule.command.clone(),
    };
    TellRow {
        rule: name.to_owned(),
        way: way.name(),
        to,
        events: rule.events.iter().map(|event| event.name()).collect(),
        policies: rule.policies.clone(),
        again: rule.again.clone(),
        last: last.map(|last| last.subject.clone()),
        tried_ns: last.map(|last| last.tried_ns),
        arrived_ns: last.and_then(|last| last.arrived_ns),
        problem: last.map(|last| last.problem.clone()).filter(|problem| !problem.is_empty()),
    }
}

/// What follows the host is a secret at many receivers.
fn without_path(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}/...")
}

fn try_one(cli: &Globals, site: &Site, name: &str) -> Result<ExitCode, Failure> {
    let config = site.config();
    let Some(rule) = config.tell.get(name) else {
        let known: Vec<_> = config.tell.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Failure::Usage(format!("capstan.toml has no rule [tell.{name}]; its rules are: {known}")));
    };
    let sender = TellSender {
        host: site.client().to_owned(),
        mail: config.mail.clone(),
        patience: TellPatience::once(),
        secrets: PASSPHRASES.map(str::to_owned).into(),
    };
    let trials = try_rule(&sender, name, rule, now_ns());
    note_repaired(site, name, &trials);
    let arrived = trials.iter().filter(|trial| trial.problem.is_none()).count();
    let code = match arrived {
        _ if arrived == trials.len() => ExitCode::SUCCESS,
        0 => ExitCode::FAILURE,
        _ => ExitCode::from(DONE_WITH_PROBLEMS),
    };
    if cli.json {
        print_rows(trials.into_iter().map(|trial| {
            let (rule, way) = (name.to_owned(), trial.way.name());
            Ok(TellTrialRow { rule, way, arrived: trial.problem.is_none(), problem: trial.problem })
        }))?;
        return Ok(code);
    }
    for trial in trials {
        match trial.problem {
            None => println!("{name}: the test went out by {}: look whether it is there", trial.way.name()),
            Some(problem) => eprintln!("capstan: {name}: the test did not arrive: {problem}"),
        }
    }
    Ok(code)
}

/// Notes of ways by which nothing had arrived that a test did. What cannot be noted is, with the next message.
fn note_repaired(site: &Site, rule: &str, trials: &[TellTrial]) {
    let tellings = site.catalog().tellings().unwrap_or_default();
    for trial in trials.iter().filter(|trial| trial.problem.is_none()) {
        let is_own = |last: &TellingRow| last.rule == rule && last.way == trial.way.name();
        let Some(last) = tellings.iter().find(|last| is_own(last) && last.failing_ns.is_some()) else { continue };
        let (subject, problem) = ("a test".to_owned(), String::new());
        let arrived = TellingRow { subject, problem, arrived_ns: Some(now_ns()), failing_ns: None, ..last.clone() };
        let _ = site.catalog().note_telling(Some(&arrived), &[], &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_webhook_is_not_listed() {
        assert_eq!(without_path("https://hooks.example.org:8443/T0/s3cret?x=1"), "https://hooks.example.org:8443/...");
        assert_eq!(without_path("https://user:s3cret@hooks.example.org?s3cret"), "https://hooks.example.org/...");
    }
}
