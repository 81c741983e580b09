//! `reclaim`: volumes of which little is needed, or that are to go, are emptied.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capstan_director::{
    DirectorError, ReclaimOptions, ReclaimPlan, ReclaimRequest, Reclaimed, Shortfall, Site, Tally, VolumeFate,
};
use capstan_mover::RestoreWatch;
use capstan_server::cell::users::media_words::volume_state_word;

use crate::args;
use crate::audited::{ShellAct, audited};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json;
use crate::progress::{Display, Standing, rate, stop_on_interrupt};
use crate::prompt::{confirm, volser};
use crate::secrets::{Need, open};
use crate::table::Table;
use crate::units;
use crate::wording::short_id;
use crate::work::recorded::recorded;

/// What is reclaimed where nothing is said: full volumes of which less than this share is needed.
const BELOW: f64 = 0.3;
/// Objects that are named which stay on a volume.
const LEFT_NAMED: usize = 5;

pub(crate) fn reclaim(cli: &Globals, args: &args::Reclaim) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, if args.dry_run { Need::Nothing } else { Need::Keys }, display.events())?;
    let site = match &args.unit {
        Some(unit) => site.in_unit(Some(unit))?,
        None => site,
    };
    let plan = site.plan_reclaim(&request(args)?)?;
    if let Some(generation) = plan.unknown.first() {
        return Err(DirectorError::UnknownGeneration { generation: generation.clone() }.into());
    }
    for (volser, reason) in &plan.left_out {
        display.warn(&format!("volume {volser} is not reclaimed: {reason}"));
    }
    if args.dry_run {
        show_plan(cli, &plan)?;
        return Ok(ExitCode::SUCCESS);
    }
    let in_part = !plan.left_out.is_empty();
    if plan.volumes.is_empty() && plan.retires.is_empty() {
        display.say("no volume is to be reclaimed");
        return Ok(if in_part { ExitCode::from(DONE_WITH_PROBLEMS) } else { ExitCode::SUCCESS });
    }
    let retires = if args.retire { plan.volumes.len() } else { plan.retires.len() };
    if retires > 0 {
        let volumes = units::counted(retires as u64, "volume");
        confirm(&format!("Retire {volumes}? Nothing is ever written on them again"), args.yes)?;
    }
    let watch = Arc::new(RestoreWatch::default());
    stop_on_interrupt(&watch.stop);
    let mut names: Vec<_> = plan.volumes.iter().map(|volume| volume.volser.to_string()).collect();
    let subject = if names.is_empty() { args.generations.join(", ") } else { names.join(", ") };
    names.extend(plan.retires.iter().map(ToString::to_string));
    names.sort();
    names.dedup();
    let options = ReclaimOptions {
        retire: args.retire,
        verify: args.verify,
        most: args.volumes_max.unwrap_or(usize::MAX),
        shortfall: if args.wait { Shortfall::Wait } else { Shortfall::Fail },
        in_this_library: args.unit.is_some(),
    };
    recorded(&display, &site, ("reclaim", &subject), |record| {
        let mut outcome = Outcome::default();
        let mut tell = |line: &str, done: &Reclaimed| show(cli, &display, line, done);
        let mut work = || Ok(outcome.of(&display, &site, &plan, options, &watch, &mut tell)?);
        let work = || audited(&site, ShellAct::Reclaim, &names, &mut work);
        let ended = display.follow(&|| Standing::of_reading(&watch), work);
        record.tally = Tally { files: 0, bytes: outcome.bytes, stored: outcome.bytes };
        record.message = outcome.in_a_line();
        ended?;
        match outcome.first_failure.take() {
            Some(error) if outcome.emptied == 0 => Err(error.into()),
            _ if outcome.not_emptied == 0 && !in_part => Ok(ExitCode::SUCCESS),
            _ => Ok(ExitCode::from(DONE_WITH_PROBLEMS)),
        }
    })
}

fn request(args: &args::Reclaim) -> Result<ReclaimRequest, Failure> {
    let says_which = !args.volumes.is_empty() || !args.generations.is_empty() || args.suspect;
    Ok(ReclaimRequest {
        volumes: args.volumes.iter().map(|name| volser(name)).collect::<Result<_, _>>()?,
        pools: args.pools.clone(),
        below: args.below.or((!says_which).then_some(BELOW)),
        generations: args.generations.clone(),
        suspect: args.suspect,
    })
}

fn show_plan(cli: &Globals, plan: &ReclaimPlan) -> Result<(), Failure> {
    if cli.json {
        for volume in &plan.volumes {
            json::print(&json::Event::ToReclaim(volume.into()))?;
        }
        return Ok(());
    }
    if plan.volumes.is_empty() && plan.retires.is_empty() {
        println!("no volume would be reclaimed");
        return Ok(());
    }
    let heads = ["volume", "pool", "state", "generation", ">written", ">needed", ">share", ">objects", ">faults"];
    let mut table = Table::new(&heads);
    for volume in &plan.volumes {
        table.row(vec![
            volume.volser.to_string(),
            volume.pool.clone(),
            volume_state_word(volume.state).to_owned(),
            volume.generation.clone().unwrap_or_default(),
            units::bytes(volume.written),
            units::bytes(volume.needed),
            format!("{:.0} %", 100.0 * volume.needed as f64 / volume.written.max(1) as f64),
            units::count(volume.objects),
            units::count(volume.faults),
        ]);
    }
    table.print(&mut io::stdout().lock()).map_err(Failure::output)?;
    let retires = match plan.retires.len() as u64 {
        0 => String::new(),
        count => format!(", {} retired", units::counted(count, "volume")),
    };
    let needed = plan.volumes.iter().map(|volume| volume.needed).sum();
    let volumes = units::counted(plan.volumes.len() as u64, "volume");
    println!("{volumes} would be reclaimed, {} written elsewhere{retires}; nothing was done", units::bytes(needed));
    Ok(())
}

/// What came of several.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) emptied: u64,
    pub(super) not_emptied: u64,
    pub(super) bytes: u64,
    /// Volumes that were retired before, as their generation is to go.
    retired: u64,
    /// Why the first was not.
    first_reason: Option<String>,
    /// What went wrong with the first with which something did.
    pub(super) first_failure: Option<DirectorError>,
}

impl Outcome {
    /// Reclaims volumes; warns of what stays on each, and tells how it went, in a line.
    pub(super) fn of(
        &mut self,
        display: &Display,
        site: &Site,
        plan: &ReclaimPlan,
        options: ReclaimOptions,
        watch: &RestoreWatch,
        tell: &mut dyn FnMut(&str, &Reclaimed),
    ) -> Result<(), DirectorError> {
        self.retired = plan.retires.len() as u64;
        self.first_failure = site.reclaim(plan, options, watch, &mut |done| {
            self.bytes += done.bytes;
            if done.is_emptied() {
                self.emptied += 1;
            } else {
                self.not_emptied += 1;
                let reason = done.kept_by.clone().or(done.left.first().map(|(_, reason)| reason.clone()));
                self.first_reason = self.first_reason.take().or(reason);
            }
            warn_of_left(display, done);
            tell(&in_a_line(done), done);
        })?;
        Ok(())
    }

    pub(super) fn in_a_line(&self) -> String {
        let mut line = format!("{} emptied", units::counted(self.emptied, "volume"));
        if self.retired > 0 {
            line.push_str(&format!(", {} retired", units::count(self.retired)));
        }
        if self.not_emptied > 0 {
            line.push_str(&format!(", {} not", self.not_emptied));
        }
        if let Some(reason) = &self.first_reason {
            line.push_str(&format!(": {reason}"));
        }
        line
    }
}

fn warn_of_left(display: &Display, done: &Reclaimed) {
    for (object, reason) in done.left.iter().take(LEFT_NAMED) {
        display.warn(&format!("object {} stays on volume {}: {reason}", short_id(*object), done.volser));
    }
    if done.left.len() > LEFT_NAMED {
        display.warn(&format!("{} more objects stay on volume {}", done.left.len() - LEFT_NAMED, done.volser));
    }
}

fn show(cli: &Globals, display: &Display, line: &str, done: &Reclaimed) {
    if cli.json {
        // A reader that is gone changes nothing of what was done.
        let _ = json::print(&json::Event::Reclaimed(done.into()));
        return;
    }
    display.note(line);
    println!("{line}");
}

fn in_a_line(done: &Reclaimed) -> String {
    let elapsed = Duration::from_nanos(done.elapsed_ns);
    let fate = match (done.fate, &done.kept_by) {
        (VolumeFate::Scratch, _) => "it is scratch now".to_owned(),
        (VolumeFate::Retired, _) => "it is retired: nothing is written on it any more".to_owned(),
        (VolumeFate::SetAside, _) => "nothing on it is needed; it stays set aside".to_owned(),
        (VolumeFate::Needed, Some(reason)) => format!("NOT EMPTIED: {reason}"),
        (VolumeFate::Needed, None) => match done.left.len() as u64 {
            0 => "NOT EMPTIED: something was written on it meanwhile".to_owned(),
            left => format!("NOT EMPTIED: {} on it", units::counted(left, "object")),
        },
        (VolumeFate::Kept, reason) => {
            format!("nothing on it is needed, but it is not freed: {}", reason.as_deref().unwrap_or_default())
        }
    };
    let moved = match (done.copies, &done.onto[..]) {
        (0, _) if done.bytes > 0 => "no copy moved, parts written elsewhere".to_owned(),
        (0, _) => "nothing moved".to_owned(),
        (copies, onto) => {
            let onto: Vec<_> = onto.iter().map(ToString::to_string).collect();
            let copies = if copies == 1 { "1 copy".to_owned() } else { format!("{} copies", units::count(copies)) };
            format!("{copies} moved to {}", onto.join(", "))
        }
    };
    format!(
        "volume {}: {moved}, {} in {} ({}); {fate}",
        done.volser,
        units::bytes(done.bytes),
        units::duration(elapsed.as_secs_f64()),
        rate(done.bytes, elapsed)
    )
}
