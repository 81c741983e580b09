//! `expire`: the plan is shown, and what is shown is what is done.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use capstan_catalog::{GoneSource, Object, ObjectFilter, ObjectStatus};
use capstan_director::{
    ExpiryPlan, ExpiryRefusal, ExpiryRequest, ForgottenCopy, Kept, PolicyChoice, Site, Unexpired, kept_reason,
};
use capstan_format::{ObjectId, Volser};

use crate::args;
use crate::audited::{ShellAct, audited};
use crate::failure::director;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::{self, ExpiredLine, ObjectReason};
use crate::place::{find_object, is_named_by_id};
use crate::progress::Display;
use crate::prompt::confirm;
use crate::secrets::{Need, open};
use crate::table::path_text;
use crate::units;
use crate::wording::{bases_line, forgotten_text, short};
use crate::work::recorded::recorded;

/// Volumes that are named one by one.
const FREED_SHOWN: usize = 10;

pub(crate) fn expire(cli: &Globals, args: &args::Expire) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, Need::Nothing, display.events())?;
    if args.undo {
        return undo(cli, args, &display, &site);
    }
    let named: Result<Vec<_>, _> = args.objects.iter().map(|object| find_object(&site, object, None)).collect();
    let gone: Result<Vec<_>, _> = args.gone.iter().map(|source| gone_source(&site, source)).collect();
    let request = ExpiryRequest {
        named: named?.into_iter().map(|object| object.id).collect(),
        policies: policies(&site, &args.policies)?,
        keep_last: usize::from(args.keep_last),
        trust_clock: args.trust_clock,
        gone: gone?,
    };
    let mut plan = site.plan_expiry(&request)?;
    if plan.refusal == Some(ExpiryRefusal::Named) {
        // The first is in the error.
        for (object, why) in plan.kept.iter().skip(1) {
            let reason = kept_reason(*why, &object.source);
            display.say(&format!("{} of {} is kept: {reason}", short(object), path_text(&object.source)));
        }
    }
    plan.check()?;
    if args.dry_run {
        for reduction in &plan.reductions {
            list(cli, &format!("policy {} {reduction}", reduction.policy));
        }
        for (object, parts) in &plan.by_rule {
            let parts: Vec<_> = parts.iter().map(|part| part.name()).collect();
            let (what, job) = (named_object(object), &object.policy);
            list(cli, &format!("would keep {what}: {} ({job})", parts.join(", ")));
        }
        for (object, why) in &plan.kept {
            let why = match why {
                Kept::Last => "the last that can be restored".to_owned(),
                Kept::Base { dependents } => format!("{} on it", stand(*dependents)),
                Kept::Restored => "a restore in the queue gives it back".to_owned(),
                Kept::Owed => "a policy of copies has yet to copy it".to_owned(),
                Kept::Locked { .. } => kept_reason(*why, &object.source),
            };
            list(cli, &format!("would keep {}: {why}", named_object(object)));
        }
    }
    for line in gone_lines(&site, &request, &plan)? {
        match args.dry_run {
            true => list(cli, &line),
            false => display.say(&line),
        }
    }
    for object in &plan.forget {
        let what = named_object(object);
        match args.dry_run {
            true => list(cli, &format!("would forget {what}")),
            false => display.say(&format!("to forget: {what}")),
        }
    }
    for ForgottenCopy { object, copy, pool, migrated_by, stays_in } in &plan.copies {
        let why = match migrated_by {
            None => "its time is over".to_owned(),
            Some(policy) => format!("policy {policy} has migrated it"),
        };
        let what =
            format!("copy {copy} in pool {pool}, of {}: {why}, and it stays in pool {stays_in}", named_object(object));
        match args.dry_run {
            true => list(cli, &format!("would forget {what}")),
            false => display.say(&format!("to forget: {what}")),
        }
    }
    if !args.dry_run {
        if let Some(question) = question(&plan) {
            confirm(&question, args.yes)?;
        }
        let subject = args.objects.join(" ");
        return recorded(&display, &site, ("expire", &subject), |record| {
            let ids = plan.names();
            plan = audited(&site, ShellAct::Expire, &ids, || Ok(site.expire(&plan, &request)?))?;
            site.give_room_back();
            record.message = plan.in_a_line();
            show(cli, args, &display, &plan);
            Ok(ExitCode::SUCCESS)
        });
    }
    show(cli, args, &display, &plan);
    Ok(ExitCode::SUCCESS)
}

/// The policies of which objects may go: those named, or all.
fn policies(site: &Site, named: &[String]) -> Result<PolicyChoice, Failure> {
    for policy in named.iter().filter(|policy| !site.config().jobs.contains_key(*policy)) {
        let of_policy = ObjectFilter { policy: Some(policy.clone()), ..ObjectFilter::default() };
        if site.catalog().objects(&of_policy).map_err(director)?.is_empty() {
            let reason = "and no object of one: `capstan objects` shows the policy of each";
            return Err(Failure::Other(format!("there is no policy or job {policy}, {reason}")));
        }
    }
    Ok(if named.is_empty() { PolicyChoice::All } else { PolicyChoice::Only(named.to_vec()) })
}

/// What is asked before so much goes that somebody may not have meant it.
fn question(plan: &ExpiryPlan) -> Option<String> {
    let most = plan.takes_most().then(|| {
        let (count, living) = (plan.forget.len(), plan.living);
        format!("{count} of {living} objects will be forgotten, which is more than half.")
    });
    let reductions = plan
        .reductions
        .iter()
        .filter(|reduction| reduction.takes_most())
        .map(|reduction| format!("Policy {} {reduction}.", reduction.policy));
    let questions: Vec<_> = most.into_iter().chain(reductions).collect();
    (!questions.is_empty()).then(|| questions.join(" "))
}

/// A line of what a dry run was asked for: its answer, and no remark on it.
fn list(cli: &Globals, line: &str) {
    if !cli.json {
        println!("{line}");
    }
}

/// Why a source that is said to be gone keeps its objects, or some of them.
fn gone_lines(site: &Site, request: &ExpiryRequest, plan: &ExpiryPlan) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for GoneSource { source, client } in &request.gone {
        let filter =
            ObjectFilter { source: Some(source.clone()), client: Some(client.clone()), ..ObjectFilter::default() };
        let mut objects = site.catalog().objects(&filter).map_err(director)?;
        let forgotten = |object: &Object| plan.forget.iter().any(|other| other.id == object.id);
        let kept = |object: &Object| plan.kept.iter().any(|(other, _)| other.id == object.id);
        let by_rule = |object: &Object| plan.by_rule.iter().any(|(other, _)| other.id == object.id);
        // On what has no end but is not for ever, the rule of a policy of copies decides.
        let by_rule = |object: &Object| by_rule(object) || object.expires_ns == i64::MAX;
        objects.retain(|object| !forgotten(object) && !kept(object) && !by_rule(object));
        let name = path_text(source);
        let for_ever = objects.iter().filter(|object| object.expires_ns == 0).count() as u64;
        if for_ever > 0 {
            let (what, first) =
                (units::counted(for_ever, "object"), objects.iter().find(|object| object.expires_ns == 0));
            let first = first.map(short).unwrap_or_default();
            lines.push(format!(
                "{what} of {name} will not expire although the source is gone, because no retention was set. To forget \
                 one, run `capstan expire OBJECT`, for example with {first}"
            ));
        }
        if let Some(next_ns) = objects.iter().map(|object| object.expires_ns).filter(|at_ns| *at_ns != 0).min() {
            let later = units::counted(objects.len() as u64 - for_ever, "object");
            lines.push(format!("{later} of {name} will expire, the first on {}", units::time(next_ns)));
        }
    }
    Ok(lines)
}

fn named_object(object: &Object) -> String {
    format!("{} of {}, {}", short(object), path_text(&object.source), units::time(object.started_ns))
}

fn stand(dependents: usize) -> String {
    let objects = units::counted(dependents as u64, "object");
    format!("{objects} {} based", if dependents == 1 { "is" } else { "are" })
}

fn show(cli: &Globals, args: &args::Expire, display: &Display, plan: &ExpiryPlan) {
    let (what, freed) = (forgotten_text(plan.forget.len(), plan.copies.len()), freed_text(&plan.frees));
    if cli.json {
        // A reader that is gone changes nothing of what was done.
        let _ = json::print(&json::Event::Expired(ExpiredLine::new(plan, args.dry_run)));
        return;
    }
    match args.dry_run {
        true => println!("{what} would be forgotten, {freed} would be scratch; nothing was done"),
        false => println!("{what} forgotten, {freed} back to scratch"),
    }
    if !args.dry_run && !plan.forget.is_empty() {
        println!("`capstan expire --undo` undoes that, until one of their volumes is relabelled.");
        if !plan.frees.is_empty() {
            let names: Vec<_> = plan.frees.iter().map(Volser::as_str).collect();
            println!("That happens to {} when a pool needs a volume and no other scratch is left.", names.join(", "));
        }
    }
    if !args.dry_run && !plan.copies.is_empty() {
        println!("Copies of objects that stay cannot be taken back.");
    }
    if let Some(line) = bases_line(plan) {
        display.say(&line);
    }
}

/// Volumes that hold nothing any more, by name: one of them may be in a vault.
fn freed_text(frees: &[Volser]) -> String {
    let count = units::counted(frees.len() as u64, "volume");
    if frees.is_empty() {
        return count;
    }
    let names: Vec<_> = frees.iter().take(FREED_SHOWN).map(Volser::as_str).collect();
    let more = if frees.len() > FREED_SHOWN { " and more" } else { "" };
    format!("{count} ({}{more})", names.join(", "))
}

fn ids(objects: &[Object]) -> Vec<String> {
    objects.iter().map(|object| object.id.to_string()).collect()
}

/// `SOURCE` or `HOST:SOURCE`, as a source of which there are objects.
fn gone_source(site: &Site, text: &std::ffi::OsStr) -> Result<GoneSource, Failure> {
    let absolute = std::path::absolute(text).unwrap_or_default();
    for source in [text.as_bytes(), absolute.as_os_str().as_bytes()] {
        match &site.clients_of(source)?[..] {
            [] => {}
            [client] => return Ok(GoneSource { source: source.to_vec(), client: client.clone() }),
            several => {
                let source = path_text(source);
                let each: Vec<_> = several.iter().map(|client| format!("{client}:{source}")).collect();
                return Err(Failure::Usage(format!("several hosts have {source}: write {}", each.join(" or "))));
            }
        }
    }
    let (client, source) = text.as_bytes().split_at(text.as_bytes().iter().position(|&byte| byte == b':').unwrap_or(0));
    let (client, source) = (String::from_utf8_lossy(client).into_owned(), source.strip_prefix(b":").unwrap_or(source));
    if site.clients_of(source)?.contains(&client) {
        return Ok(GoneSource { source: source.to_vec(), client });
    }
    Err(crate::place::unknown(site, &text.to_string_lossy()).into())
}

fn undo(cli: &Globals, args: &args::Expire, display: &Display, site: &Site) -> Result<ExitCode, Failure> {
    let expired = ObjectFilter { status: Some(ObjectStatus::Expired), ..ObjectFilter::default() };
    let expired = site.catalog().objects(&expired).map_err(director)?;
    let named: Result<Vec<ObjectId>, Failure> = args.objects.iter().map(|text| named(&expired, text)).collect();
    let named = named?;
    let names: Vec<_> = named.iter().map(ToString::to_string).collect();
    let take_back = || Ok(site.unexpire(&named)?);
    let Unexpired { objects, lost, volumes } = audited(site, ShellAct::TakeBack, &names, take_back)?;
    for (object, reason) in &lost {
        display.warn(&format!(
            "object {} of {} cannot be taken back: {reason}",
            short(object),
            path_text(&object.source)
        ));
    }
    if cli.json {
        let lost =
            lost.iter().map(|(object, reason)| ObjectReason { object: object.id.to_string(), reason: reason.clone() });
        json::print(&json::Event::Unexpired {
            objects: ids(&objects),
            lost: lost.collect(),
            volumes: volumes.iter().map(ToString::to_string).collect(),
        })?;
    } else {
        println!("{} taken back", units::counted(objects.len() as u64, "object"));
    }
    Ok(if lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) })
}

/// The expired object that a text names by its id, or its beginning or end.
fn named(expired: &[Object], text: &str) -> Result<ObjectId, Failure> {
    match &expired.iter().filter(|object| is_named_by_id(object, text)).collect::<Vec<_>>()[..] {
        [object] => Ok(object.id),
        [_, _, ..] => Err(Failure::Usage(format!("{text:?} matches several expired objects: write more of the id"))),
        _ => Err(Failure::Other(format!("no expired object matches {text:?}: `capstan objects --all` lists them"))),
    }
}
