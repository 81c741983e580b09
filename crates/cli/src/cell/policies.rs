//! `policies`: what the catalog keeps, and what a file would change; `schedule`: what comes next.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use capstan_director::{BackupPolicy, DirectorError, OtherPolicies, PolicyChange, PolicyChanges, PolicySetting, Site};
use capstan_server::{Look, forecast, look};
use jiff::{SignedDuration, Timestamp};

use super::ns;
use crate::args::{self, BackupPolicyAction};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::{self, BackupPolicyRow, ChangedSetting, ComingRunRow, PolicyChangeRow};
use crate::output::{print, print_rows};
use crate::prompt::confirm;
use crate::secrets::site;
use crate::table::{Table, path_text};
use crate::units;

/// How far ahead the next run of a policy is looked for.
const NEXT_WITHIN: SignedDuration = SignedDuration::from_hours(10 * 366 * 24);

pub(crate) fn policies(cli: &Globals, args: &args::Policies) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    match &args.action {
        None => list(cli, &site),
        Some(BackupPolicyAction::Apply { file, dry_run, only, yes }) => {
            let others = if *only { OtherPolicies::Remove } else { OtherPolicies::Keep };
            let plan = site.plan_policies(file, others)?;
            if !dry_run {
                confirm_removals(&site, &plan, *yes)?;
                site.change_policies(&plan)?;
            }
            tell(cli, &plan, *dry_run)?;
            if *dry_run { Ok(ExitCode::SUCCESS) } else { warn_of_faults(&site, &plan) }
        }
        Some(BackupPolicyAction::Export { names }) => {
            print!("{}", site.export_policies(names)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(BackupPolicyAction::Remove { names, yes }) => {
            let plan = site.plan_removal(names)?;
            confirm_removals(&site, &plan, *yes)?;
            site.change_policies(&plan)?;
            tell(cli, &plan, false)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Asks before policies are removed, and says what becomes of what they backed up.
fn confirm_removals(site: &Site, plan: &PolicyChanges, yes: bool) -> Result<(), Failure> {
    let removed =
        |policy: &&BackupPolicy| plan.changes.iter().any(|change| change.is_removed() && change.name == policy.name);
    let policies = site.policies()?;
    let names = |with_rule: bool| {
        let chosen = policies.iter().filter(removed).filter(|policy| !with_rule || policy.config.keep.is_some());
        chosen.map(|policy| policy.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (all, with_rule) = (names(false), names(true));
    if all.is_empty() {
        return Ok(());
    }
    let mut question = format!("Remove {all}? Waiting runs are cancelled, and those at work are stopped.");
    if !with_rule.is_empty() {
        question += &format!(
            " The backups of {with_rule} stay: without the policy no rule expires them, and `capstan expire` takes them by name."
        );
    }
    confirm(&question, yes)
}

fn list(cli: &Globals, site: &Site) -> Result<ExitCode, Failure> {
    let look = look(site)?;
    let rows: Vec<_> = look.policies.iter().map(|policy| row(&look, policy)).collect();
    let faulty = rows.iter().filter(|row| row.fault.is_some()).count();
    let code = if faulty > 0 { ExitCode::from(DONE_WITH_PROBLEMS) } else { ExitCode::SUCCESS };
    for row in &rows {
        if let Some(fault) = &row.fault {
            eprintln!("capstan: policy {}: {fault}", row.policy);
        }
    }
    if cli.json {
        print_rows(rows.into_iter().map(Ok))?;
        return Ok(code);
    }
    if rows.is_empty() {
        eprintln!(
            "there is no policy: `capstan policies apply FILE` adds those of a file (docs/CELL.md has an example)"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["policy", "schedule", "next run", "window", ">priority", "backs up"]);
    for row in &rows {
        table.row(vec![
            row.policy.clone(),
            row.schedule.clone().unwrap_or_else(|| "by hand".to_owned()),
            row.next_ns.map_or_else(|| "-".to_owned(), units::time),
            row.window.clone().unwrap_or_else(|| "any time".to_owned()),
            row.priority.to_string(),
            row.sources.join(" "),
        ]);
    }
    print(&table)?;
    Ok(code)
}

fn row(look: &Look, policy: &BackupPolicy) -> BackupPolicyRow {
    let scheduled: Vec<_> = look.scheduled.iter().filter(|one| one.policy == policy.name).cloned().collect();
    let until = look.situation.now.checked_add(NEXT_WITHIN).unwrap_or(Timestamp::MAX);
    let paths = policy.config.sources.iter().map(|path| path_text(path.as_os_str().as_bytes()));
    BackupPolicyRow {
        policy: policy.name.clone(),
        schedule: policy.config.schedule.clone(),
        next_ns: forecast(&scheduled, until, 1).first().map(|run| ns(run.starts)),
        zone: policy.config.zone.clone(),
        window: policy.config.window.clone(),
        priority: policy.config.timing().map_or(0, |timing| u8::try_from(timing.priority).unwrap_or(0)),
        sources: paths.chain(policy.config.stdin.clone()).collect(),
        fault: policy.fault.clone(),
        changed_ns: policy.changed_ns,
    }
}

fn change_name(change: &PolicyChange) -> &'static str {
    match (change.is_removed(), change.is_known) {
        (true, _) => "removed",
        (false, true) => "changed",
        (false, false) => "added",
    }
}

fn tell(cli: &Globals, plan: &PolicyChanges, dry_run: bool) -> Result<(), Failure> {
    if cli.json {
        let rows = plan.changes.iter().map(|change| {
            let setting = |setting: &PolicySetting| ChangedSetting {
                key: setting.key.clone(),
                before: setting.before.clone(),
                after: setting.after.clone(),
            };
            let settings = change.settings.iter().map(setting).collect();
            Ok(PolicyChangeRow { policy: change.name.clone(), change: change_name(change), dry_run, settings })
        });
        return print_rows(rows).map(drop);
    }
    if cli.quiet {
        return Ok(());
    }
    let would = if dry_run { "would be " } else { "" };
    for change in &plan.changes {
        println!("policy {}: {would}{}", change.name, change_name(change));
        if change.is_removed() {
            continue;
        }
        for setting in &change.settings {
            match (&setting.before, &setting.after) {
                (Some(before), Some(after)) => println!("  {}: {before} -> {after}", setting.key),
                (None, Some(after)) => println!("  {} = {after}", setting.key),
                (Some(before), None) => println!("  {}: {before} -> not set", setting.key),
                (None, None) => {}
            }
        }
    }
    if plan.unchanged > 0 || plan.changes.is_empty() {
        println!("{} unchanged", units::counted(plan.unchanged as u64, "policy"));
    }
    Ok(())
}

/// A policy that cannot be run here is taken, since the script it names may come later; but not without a word.
fn warn_of_faults(site: &Site, plan: &PolicyChanges) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    for policy in site.policies()?.iter().filter(|policy| plan.changes.iter().any(|change| change.name == policy.name))
    {
        if let Some(fault) = &policy.fault {
            eprintln!("capstan: policy {} cannot be run on this machine: {fault}", policy.name);
            code = ExitCode::from(DONE_WITH_PROBLEMS);
        }
    }
    Ok(code)
}

pub(crate) fn schedule(cli: &Globals, args: &args::Schedule) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let mut look = look(&site)?;
    for name in &args.policies {
        match look.policy(name) {
            None => return Err(DirectorError::UnknownPolicy { name: name.clone() }.into()),
            Some(policy) if policy.config.schedule.is_none() => {
                eprintln!(
                    "capstan: policy {name} has no schedule: it runs when somebody enters it (capstan queue add {name})"
                );
            }
            Some(_) => {}
        }
    }
    look.scheduled.retain(|one| args.policies.is_empty() || args.policies.contains(&one.policy));
    let ahead = SignedDuration::from_hours(24 * i64::from(args.days));
    let until = look.situation.now.checked_add(ahead).unwrap_or(Timestamp::MAX);
    let coming = forecast(&look.scheduled, until, args.most);
    if cli.json {
        return print_rows(coming.into_iter().map(|run| {
            let (starts_ns, due_ns) = (ns(run.starts), ns(run.due));
            Ok(ComingRunRow { starts_ns, due_ns, policy: run.policy, client: run.client })
        }));
    }
    if coming.is_empty() {
        eprintln!("no run comes within {}", units::counted(args.days.into(), "day"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["begins", "due", "policy", "client"]);
    for run in &coming {
        let due = if run.starts == run.due { String::new() } else { units::time(ns(run.due)) };
        table.row(vec![units::time(ns(run.starts)), due, run.policy.clone(), run.client.clone()]);
    }
    print(&table)
}

/// Prints a row of what was done with a run.
pub(super) fn print_change(cli: &Globals, run: i64, change: &'static str, text: &str) -> Result<(), Failure> {
    if cli.json {
        json::print(&json::QueueChangeRow { run, change })?;
    } else if !cli.quiet {
        println!("{text}");
    }
    Ok(())
}
