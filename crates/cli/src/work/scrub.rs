//! `scrub`: samples of what volumes hold, and what is said of the rest.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_director::{ScrubAmount, ScrubPlan, ScrubReport, ScrubRequest, Tally, UnscrubbedVolume};
use capstan_mover::RestoreWatch;

use crate::args;
use crate::failure::{Failure, STOPPED, ended_in_part};
use crate::globals::Globals;
use crate::json;
use crate::progress::{Display, Standing, stop_on_interrupt};
use crate::prompt::volser;
use crate::secrets::{Need, open};
use crate::units;
use crate::work::recorded::recorded;

/// Volumes that are named where many were left out.
const LEFT_OUT_NAMED: usize = 5;

pub(crate) fn scrub(cli: &Globals, args: &args::Scrub) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let site = open(cli, if args.dry_run { Need::Nothing } else { Need::Keys }, display.events())?;
    let plan = site.plan_scrub(&request(args)?)?;
    if args.dry_run {
        show_plan(cli, &plan);
        return Ok(ExitCode::SUCCESS);
    }
    let watch = Arc::new(RestoreWatch::default());
    stop_on_interrupt(&watch.stop);
    let subject = match (&args.volumes[..], &args.pools[..]) {
        ([], []) => "all volumes".to_owned(),
        ([], pools) => format!("pools {}", pools.join(", ")),
        (volumes, _) => volumes.join(", "),
    };
    recorded(&display, &site, ("scrub", &subject), |record| {
        display.say(&planned_text(&plan));
        let report = display.follow(&|| Standing::of_reading(&watch), || site.scrub(plan, &watch))?;
        let (text, is_good) = said(&display, &report);
        record.tally = Tally { bytes: watch.taken.load(Ordering::Relaxed), ..Tally::default() };
        record.message = text.clone();
        if cli.json {
            // A reader that is gone changes nothing of what was found.
            let _ = json::print(&json::Event::Scrubbed((&report).into()));
        } else {
            println!("{text}");
        }
        Ok(match is_good {
            _ if report.is_stopped => ExitCode::from(STOPPED),
            true => ExitCode::SUCCESS,
            false => ended_in_part(&report.without_key),
        })
    })
}

fn request(args: &args::Scrub) -> Result<ScrubRequest, Failure> {
    let amount = match (args.share, args.places) {
        (Some(share), _) => ScrubAmount::Share(share),
        (None, Some(places)) => ScrubAmount::Places(places),
        (None, None) => ScrubAmount::OneIn(args.one_in),
    };
    Ok(ScrubRequest {
        volumes: args.volumes.iter().map(|name| volser(name)).collect::<Result<_, _>>()?,
        pools: args.pools.clone(),
        place_blocks: args.place,
        amount,
        certainty: args.certainty,
        seed: args.seed,
    })
}

/// `4,603 of 120,331 blocks`.
fn of_all(count: u64, all: u64, place_blocks: u32) -> String {
    let noun = match place_blocks {
        1 => units::counted(all, "block"),
        several => format!("{} of {several} blocks", units::counted(all, "place")),
    };
    format!("{} of {noun}", units::count(count))
}

fn planned_text(plan: &ScrubPlan) -> String {
    let (drawn, all) = plan.places();
    format!(
        "{} are read, on {}; --seed {} draws the same again",
        of_all(drawn, all, plan.place_blocks),
        units::counted(plan.mounts() as u64, "volume"),
        plan.seed
    )
}

fn show_plan(cli: &Globals, plan: &ScrubPlan) {
    if cli.json {
        // A reader that is gone needs no list.
        let _ = json::print(&json::Event::ToScrub(plan.into()));
        return;
    }
    let (drawn, all) = plan.places();
    let mounts = units::counted(plan.mounts() as u64, "volume");
    println!("{} would be read, on {mounts}; nothing was done", of_all(drawn, all, plan.place_blocks));
    for volume in &plan.left_out {
        println!("volume {} would be left out: {}", volume.volser, volume.reason);
    }
}

/// Says what was found; gives the statement, and whether all is good that was to be read.
pub(super) fn said(display: &Display, report: &ScrubReport) -> (String, bool) {
    for volume in report.volumes.iter().filter(|volume| volume.bad > 0) {
        let bad = of_all(volume.bad, volume.drawn, report.place_blocks);
        display.warn(&format!(
            "volume {}: {bad} that were read are bad: `capstan repair` copies them from other copies, `capstan verify \
             {}` reads the rest",
            volume.volser, volume.volser
        ));
    }
    let (failed, others): (Vec<_>, Vec<_>) = report.left_out.iter().partition(|volume| volume.was_wanted);
    name_some(&failed, &|line| display.warn(line));
    name_some(&others, &|line| display.say(line));
    let bad = report.volumes.iter().any(|volume| volume.bad > 0);
    (statement(report), !bad && failed.is_empty())
}

/// Names volumes that were left out, and says how many more there are.
fn name_some(volumes: &[&UnscrubbedVolume], tell: &dyn Fn(&str)) {
    for volume in volumes.iter().take(LEFT_OUT_NAMED) {
        tell(&format!("volume {} was left out: {}", volume.volser, volume.reason));
    }
    if volumes.len() > LEFT_OUT_NAMED {
        tell(&format!("{} more volumes were left out", volumes.len() - LEFT_OUT_NAMED));
    }
}

/// What the sample says of all.
/// The largest number of which one is more than a share: a share that is reached exactly is not fewer.
fn fewer_than_one_in(share: f64) -> u64 {
    ((1.0 / share).ceil() - 1.0).max(1.0) as u64
}

fn statement(report: &ScrubReport) -> String {
    let (all, drawn, bad) = report.places();
    let mut said = Vec::new();
    if report.is_stopped {
        said.push("stopped, so it speaks of the volumes that were read to their end alone".to_owned());
    }
    if drawn == 0 {
        said.push("nothing was read".to_owned());
    } else {
        let met = match bad {
            0 => "all good".to_owned(),
            bad => format!("{} bad", units::count(bad)),
        };
        let volumes = units::counted(report.volumes.len() as u64, "volume");
        said.push(format!("{volumes}: {} read, {met}", of_all(drawn, all, report.place_blocks)));
        let (share, percent) = (report.bad_at_most(), report.certainty * 100.0);
        said.push(match () {
            () if drawn == all => "that is all of them".to_owned(),
            () if share >= 0.5 => "too few to say anything of the rest".to_owned(),
            () => format!(
                "with {percent} % certainty fewer than 1 in {} blocks cannot be read",
                units::count(fewer_than_one_in(share))
            ),
        });
        if bad == 0 && drawn < all && report.wanted_share.is_some_and(|wanted| share > wanted) {
            said.push("that is less than was asked for, as volumes were left out".to_owned());
        }
    }
    if report.known_bad() > 0 {
        said.push(format!("besides, {} are on record as damaged", units::counted(report.known_bad(), "block")));
    }
    if !report.left_out.is_empty() {
        let blocks: u64 = report.left_out.iter().map(|volume| volume.blocks).sum();
        let volumes = units::counted(report.left_out.len() as u64, "volume");
        said.push(format!("{volumes} with {} not looked at", units::counted(blocks, "block")));
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_block_or_several() {
        assert_eq!(of_all(4603, 120_331, 1), "4,603 of 120,331 blocks");
        assert_eq!(of_all(1, 1, 1), "1 of 1 block");
        assert_eq!(of_all(7, 2000, 64), "7 of 2,000 places of 64 blocks");
    }

    #[test]
    fn a_share_that_is_reached_is_not_fewer() {
        assert_eq!([0.5, 0.001, 0.0009].map(fewer_than_one_in), [1, 999, 1111]);
    }
}
