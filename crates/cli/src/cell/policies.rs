//! `policies`: what the catalog keeps, and what a file would change; `schedule`: what comes next.

use std::path::Path;
use std::process::ExitCode;

use capstan_director::DirectorError;
use capstan_server::cell::users::words::{
    ApplyPolicies, BackupPolicyRow, ExportPolicies, PoliciesChanged, RemovePolicies, ScheduleQuery,
};

use crate::args::{self, BackupPolicyAction};
use crate::door::{Door, door};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::output::{print, print_rows};
use crate::prompt::confirm;
use crate::table::{Table, path_text};
use crate::units;

pub(crate) fn policies(cli: &Globals, args: &args::Policies) -> Result<ExitCode, Failure> {
    let door = door(cli)?;
    match &args.action {
        None => list(cli, &door),
        Some(BackupPolicyAction::Apply { file, dry_run, only, yes }) => {
            let (name, text, only) = (file.display().to_string(), read(file)?, *only);
            change(cli, (*dry_run, *yes), |basis| {
                let (file, text) = (name.clone(), text.clone());
                door.apply_policies(&ApplyPolicies { file, text, only, basis })
            })
        }
        Some(BackupPolicyAction::Export { names }) => {
            print!("{}", door.export_policies(&ExportPolicies { policies: names.clone() })?.text);
            Ok(ExitCode::SUCCESS)
        }
        Some(BackupPolicyAction::Remove { names, yes }) => {
            change(cli, (false, *yes), |basis| door.remove_policies(&RemovePolicies { policies: names.clone(), basis }))
        }
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let wrong = |reason: String| DirectorError::Config { path: file.to_owned(), reason };
    Ok(std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?)
}

/// Looks what would change, asks where policies are removed, and has it changed.
fn change(
    cli: &Globals,
    (dry_run, yes): (bool, bool),
    ask: impl Fn(Option<String>) -> Result<PoliciesChanged, Failure>,
) -> Result<ExitCode, Failure> {
    let planned = ask(None)?;
    if !dry_run {
        confirm_removals(&planned, yes)?;
    }
    let changed = if dry_run { planned } else { ask(Some(planned.basis))? };
    tell(cli, &changed, dry_run)?;
    // A policy that cannot be run is taken, since the script it names may come later; but not without a word.
    for fault in &changed.faults {
        eprintln!("capstan: policy {} cannot be run on this machine: {}", fault.policy, fault.fault);
    }
    for notice in &changed.notices {
        eprintln!("capstan: policy {}: {}", notice.policy, notice.notice);
    }
    Ok(if changed.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}

/// Asks before policies are removed, and says what becomes of what they backed up.
fn confirm_removals(planned: &PoliciesChanged, yes: bool) -> Result<(), Failure> {
    let removed = planned.changes.iter().filter(|change| change.change == "removed");
    let removed: Vec<_> = removed.map(|change| change.policy.as_str()).collect();
    if removed.is_empty() {
        return Ok(());
    }
    let mut question =
        format!("Remove {}? Waiting runs are cancelled, and those at work are stopped.", removed.join(", "));
    if !planned.ruled.is_empty() {
        question += &format!(
            " The backups of {} stay: without the policy no rule expires them, and `capstan expire` takes them by name.",
            planned.ruled.join(", ")
        );
    }
    confirm(&question, yes)
}

fn list(cli: &Globals, door: &Door) -> Result<ExitCode, Failure> {
    let rows = door.policies()?.policies;
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
            runs_when(row),
            row.next_ns.map_or_else(|| "-".to_owned(), units::time),
            row.window.clone().unwrap_or_else(|| "any time".to_owned()),
            row.priority.to_string(),
            backs_up(row),
        ]);
    }
    print(&table)?;
    Ok(code)
}

/// When runs of a policy come.
fn runs_when(row: &BackupPolicyRow) -> String {
    let by_what_is_owed = row.copies_of.as_ref().and_then(|copies| match (copies.when_owed, copies.when_above) {
        (true, _) => Some("when owed".to_owned()),
        (false, above) => above.map(|percent| format!("above {percent} %")),
    });
    let all = row.schedule.clone().into_iter().chain(by_what_is_owed).collect::<Vec<_>>().join("; ");
    match (all.is_empty(), row.enabled) {
        (true, _) => "by hand".to_owned(),
        (false, true) => all,
        (false, false) => format!("off ({all})"),
    }
}

/// What a policy backs up, stores, copies, or looks after.
fn backs_up(row: &BackupPolicyRow) -> String {
    if !row.care_of.is_empty() {
        let pools = if row.care_of.len() == 1 { "pool" } else { "pools" };
        return format!("nothing: care of {pools} {}", row.care_of.join(", "));
    }
    if !row.put_names.is_empty() {
        return format!("what is put as {}", row.put_names.join(", "));
    }
    let Some(copies) = &row.copies_of else {
        let sources = row.sources.iter().map(|source| path_text(source.as_bytes())).collect::<Vec<_>>().join(" ");
        return row.stage.as_ref().map_or(sources.clone(), |stage| format!("{sources} (stage {stage})"));
    };
    let owed = match (copies.owed, copies.later) {
        (0, 0) => String::new(),
        (owed, 0) => format!(" ({owed} to copy)"),
        (0, later) => format!(" ({later} later)"),
        (owed, later) => format!(" ({owed} to copy, {later} later)"),
    };
    let does = if copies.migrate_after.is_some() { "migrates" } else { "copies of" };
    format!("{does} {} to pool {}{owed}", copies.policies.join(", "), copies.pool)
}

fn tell(cli: &Globals, changed: &PoliciesChanged, dry_run: bool) -> Result<(), Failure> {
    if cli.json {
        return print_rows(changed.changes.iter().map(Ok)).map(drop);
    }
    if cli.quiet {
        return Ok(());
    }
    let would = if dry_run { "would be " } else { "" };
    for change in &changed.changes {
        println!("policy {}: {would}{}", change.policy, change.change);
        if change.change == "removed" {
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
    if changed.unchanged > 0 || changed.changes.is_empty() {
        println!("{} unchanged", units::counted(changed.unchanged as u64, "policy"));
    }
    Ok(())
}

pub(crate) fn schedule(cli: &Globals, args: &args::Schedule) -> Result<ExitCode, Failure> {
    let policies = (!args.policies.is_empty()).then(|| args.policies.join(" "));
    let most = u32::try_from(args.most).unwrap_or(u32::MAX);
    let coming = door(cli)?.schedule(&ScheduleQuery { policies, days: Some(args.days), most: Some(most) })?;
    for name in &coming.unscheduled {
        eprintln!("capstan: policy {name} has no schedule: it runs when somebody enters it (capstan queue add {name})");
    }
    for name in &coming.switched_off {
        eprintln!("capstan: policy {name} is switched off (enabled = false): it runs when somebody enters it");
    }
    if cli.json {
        return print_rows(coming.runs.into_iter().map(Ok));
    }
    if coming.runs.is_empty() {
        eprintln!("no run comes within {}", units::counted(args.days.into(), "day"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["begins", "due", "policy", "client"]);
    for run in &coming.runs {
        let due = if run.starts_ns == run.due_ns { String::new() } else { units::time(run.due_ns) };
        table.row(vec![units::time(run.starts_ns), due, run.policy.clone(), run.client.clone()]);
    }
    print(&table)
}
