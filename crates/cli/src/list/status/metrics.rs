//! What `status` knows as OpenMetrics text, for a collector that reads files.

use std::collections::BTreeMap;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Facts;
use crate::table::path_text;
use crate::wording::{outcome_name, state_name};

/// Nanoseconds of a second.
const NS_A_SECOND: i64 = 1_000_000_000;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge>;

/// Names and words of what is told of each source.
const OF_SOURCES: [(&str, &str, Option<Unit>); 7] = [
    (
        "source_last_success_timestamp",
        "When the last backup that can be restored in full ended; 0 for never",
        Some(Unit::Seconds),
    ),
    ("source_size", "Content of files that the last backup holds itself", Some(Unit::Bytes)),
    ("source_problems", "Paths that vanished, or could not be read in full, in the last backup", None),
    ("source_copies_whole", "Copies of the last backup that are known to be whole, and whose keys are there", None),
    ("source_copies_promised", "Copies of the last backup that were promised", None),
    ("source_running", "1 while a backup of it runs", None),
    ("source_overdue", "1 where the last backup is older than is wanted", None),
];

pub(super) fn text(facts: &Facts, found: usize) -> String {
    let mut registry = Registry::with_prefix("capstan");
    of_sources(facts, &mut registry);
    of_jobs(facts, &mut registry);
    of_volumes(facts, &mut registry);
    of_cell(facts, &mut registry);
    let protection = &facts.protection;
    let to_copy = facts.owed.rows.iter().map(|row| row.objects).sum();
    for (name, words, value) in [
        ("attention", "Lines of `capstan status` that a person should read", found),
        ("objects_protected", "Objects that can be restored in full", protection.protected.len()),
        ("objects_unprotected", "Complete objects that cannot be restored in full", protection.unprotected.len()),
        (
            "objects_lacking_a_copy",
            "Complete objects that lack a promised copy which no policy makes",
            protection.lacking.len(),
        ),
        ("objects_to_copy", "Objects that policies of copies have yet to copy", to_copy),
        ("objects_open", "Objects that are written, or were interrupted", protection.open.len()),
        ("indexes_missing", "Objects whose list of files is gone from the catalog", facts.indexes_missing.len()),
        ("running", "Commands that work now", facts.running.len()),
        ("server_running", "1 while a server runs policies when they are due", usize::from(facts.queued.is_served)),
        ("policies", "Policies", facts.queued.policies()),
        ("queue_waiting", "Runs of policies that wait", facts.queued.waiting),
        ("queue_working", "Runs of policies that are at work", facts.queued.working),
        ("clock_in_doubt", "1 while the clock is not believed", usize::from(facts.reading.doubt.is_some())),
        ("library_unusable", "1 while the library cannot be used", usize::from(facts.library_problem.is_some())),
        ("key_store_missing", "1 while the key store is not there", usize::from(facts.keys_missing.is_some())),
    ] {
        let gauge: Gauge = Gauge::default();
        gauge.set(value as i64);
        registry.register(name, words, gauge);
    }
    let mut out = String::new();
    // A text takes whatever is written to it.
    let _ = encode(&mut out, &registry);
    out
}

fn of_sources(facts: &Facts, registry: &mut Registry) {
    let families = OF_SOURCES.map(|(name, words, unit)| {
        let family = Gauges::default();
        match unit {
            Some(unit) => registry.register_with_unit(name, words, unit, family.clone()),
            None => registry.register(name, words, family.clone()),
        }
        family
    });
    for row in &facts.sources {
        let labels = vec![("source", path_text(&row.source)), ("client", row.client.clone())];
        let counts = row.last.as_ref().and_then(|last| last.counts).unwrap_or_default();
        let values = [
            row.last.as_ref().map_or(0, |last| last.ended_ns / 1_000_000_000),
            counts.bytes as i64,
            counts.problems as i64,
            row.copies.0 as i64,
            row.copies.1 as i64,
            i64::from(row.run.is_some()),
            i64::from(facts.is_overdue(row)),
        ];
        for (family, value) in families.iter().zip(values) {
            family.get_or_create(&labels).set(value);
        }
    }
}

fn of_jobs(facts: &Facts, registry: &mut Registry) {
    let timestamps = "When the last run of the job began; 0 for never";
    let (begun, age) = (Gauges::default(), Gauges::default());
    registry.register_with_unit("job_last_run_timestamp", timestamps, Unit::Seconds, begun.clone());
    registry.register_with_unit("job_last_run_age", "How long ago that was", Unit::Seconds, age.clone());
    let code = Gauges::default();
    registry.register("job_last_exit_code", "Exit code of the last run of the job that has ended", code.clone());
    let took = Gauges::default();
    registry.register_with_unit("job_last_duration", "How long that run took", Unit::Seconds, took.clone());
    let running = Gauges::default();
    registry.register("job_running", "1 while the job runs", running.clone());
    let outcome = Gauges::default();
    let words = "1 for how the last run of the job that has ended ended: done, problems, busy, stopped, failed, killed";
    registry.register("job_last_outcome", words, outcome.clone());
    for (name, runs) in &facts.jobs {
        let labels = vec![("job", name.clone())];
        let begun_ns = runs.first().map(|run| run.job.started_ns);
        begun.get_or_create(&labels).set(begun_ns.unwrap_or_default() / NS_A_SECOND);
        running.get_or_create(&labels).set(runs.iter().filter(|run| run.runs).count().min(1) as i64);
        if let Some(begun_ns) = begun_ns.filter(|_| facts.reading.doubt.is_none()) {
            age.get_or_create(&labels).set(facts.reading.now_ns.saturating_sub(begun_ns).max(0) / NS_A_SECOND);
        }
        let Some(last) = runs.iter().find(|run| !run.runs) else { continue };
        for word in ["done", "problems", "busy", "stopped", "failed", "killed"] {
            let labels = vec![("job", name.clone()), ("outcome", word.to_owned())];
            outcome.get_or_create(&labels).set(i64::from(outcome_name(last) == word));
        }
        if let Some(end) = &last.job.end {
            code.get_or_create(&labels).set(i64::from(end.exit_code));
            let took_ns = end.ended_ns.saturating_sub(last.job.started_ns).max(0);
            took.get_or_create(&labels).set(took_ns / NS_A_SECOND);
        }
    }
}

/// Of a cell: its machines, its queue, its libraries.
fn of_cell(facts: &Facts, registry: &mut Registry) {
    let (connected, about) = (Gauges::default(), Gauges::default());
    registry.register("member_connected", "1 while the client or mover waits for orders", connected.clone());
    registry.register("member_version", "1 for the version of its program that it said last", about.clone());
    let (seen, end) = (Gauges::default(), Gauges::default());
    let words = "When it was last seen; 0 for never";
    registry.register_with_unit("member_last_seen_timestamp", words, Unit::Seconds, seen.clone());
    let words = "Until when its certificate holds";
    registry.register_with_unit("member_certificate_end_timestamp", words, Unit::Seconds, end.clone());
    for member in &facts.members {
        let labels = vec![("kind", member.kind.to_owned()), ("name", member.name.clone())];
        connected.get_or_create(&labels).set(i64::from(member.is_connected));
        seen.get_or_create(&labels).set(member.seen_ns.unwrap_or_default() / NS_A_SECOND);
        if let Some(until_ns) = member.until_ns {
            end.get_or_create(&labels).set(until_ns / NS_A_SECOND);
        }
        if !member.version.is_empty() {
            let labels = [&labels[..], &[("version", member.version.clone())]].concat();
            about.get_or_create(&labels).set(1);
        }
    }
    let failing = Gauges::default();
    let words = "1 while nothing has arrived by this way of the rule for an hour, though it was tried";
    registry.register("tell_failing", words, failing.clone());
    for way in &facts.ways.all {
        let labels = vec![("rule", way.rule.clone()), ("way", way.way.name().to_owned())];
        failing.get_or_create(&labels).set(i64::from(way.failing.is_some()));
    }
    let ended = Gauges::default();
    registry.register(
        "runs_of_a_day",
        "Runs of policies that ended in the last 24 hours, of the last 1000",
        ended.clone(),
    );
    for (outcome, count) in &facts.queued.ended_of_day {
        ended.get_or_create(&vec![("outcome", (*outcome).to_owned())]).set(*count);
    }
    let longest = Gauge::<i64>::default();
    longest.set(facts.queued.longest_wait_ns / NS_A_SECOND);
    let words = "How long a run has waited since its time or its window came last, of the one that has waited longest";
    registry.register_with_unit("queue_longest_wait", words, Unit::Seconds, longest);
    let drives = Gauges::default();
    registry.register("drives", "Drives of a library, once a server has asked it", drives.clone());
    for (library, count) in &facts.queued.drives {
        drives.get_or_create(&vec![("library", library.clone())]).set(i64::from(*count));
    }
    let left = Gauges::default();
    registry.register("volumes_left", "Volumes of a library that a pool could take next", left.clone());
    for (library, count) in facts.running_out.counts() {
        left.get_or_create(&vec![("library", library.to_owned())]).set(count as i64);
    }
}

fn of_volumes(facts: &Facts, registry: &mut Registry) {
    let (count, written) = (Gauges::default(), Gauges::default());
    registry.register("volumes", "Volumes by pool and state; no pool for scratch", count.clone());
    registry.register_with_unit("volumes_written", "What is written on them", Unit::Bytes, written.clone());
    let mut sums: BTreeMap<(String, &str), (i64, u64)> = BTreeMap::new();
    for volume in &facts.volumes {
        let sum = sums.entry((volume.pool.clone().unwrap_or_default(), state_name(volume.state))).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(volume.written));
    }
    for ((pool, state), (volumes, bytes)) in sums {
        let labels = vec![("pool", pool), ("state", state.to_owned())];
        count.get_or_create(&labels).set(volumes);
        written.get_or_create(&labels).set(bytes as i64);
    }
    let damaged = Gauge::<i64>::default();
    damaged.set(facts.damage.iter().map(|damage| damage.blocks.blocks as i64).sum());
    registry.register("damaged_blocks", "Blocks that are on record as damaged", damaged);
}
