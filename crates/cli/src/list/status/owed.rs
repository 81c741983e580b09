//! Copies that policies have yet to make.

use capstan_director::{BackupPolicy, CopiesOwed, Site, TellEvent};

use super::Facts;
use super::attention::Attention;
use crate::failure::Failure;
use crate::json::StatusOwed;
use crate::units;

/// What each policy of copies has before it; those that have nothing are left out.
pub(super) struct Owed {
    pub(super) rows: Vec<StatusOwed>,
}

pub(super) fn owed(site: &Site) -> Result<Owed, Failure> {
    let mut rows = Vec::new();
    for policy in site.policies()?.iter().filter(|policy| policy.config.is_of_copies()) {
        let CopiesOwed { objects, later, .. } = site.copies_owed(&policy.config)?;
        let Some(oldest_ended_ns) = objects.iter().map(|object| object.ended_ns).min() else { continue };
        rows.push(StatusOwed {
            policy: policy.name.clone(),
            pool: policy.config.pool.clone().unwrap_or_default(),
            objects: objects.len(),
            later,
            oldest_ended_ns,
            // What was there before the policy was is owed since then.
            since_ns: oldest_ended_ns.saturating_add(policy.config.delay_ns()).max(policy.scheduled_ns),
            not_by_itself: not_by_itself(policy).map(str::to_owned),
        });
    }
    Ok(Owed { rows })
}

/// Why no run of a policy comes by itself, if none does.
fn not_by_itself(policy: &BackupPolicy) -> Option<&'static str> {
    match (&policy.fault, policy.config.is_switched_off(), &policy.config.schedule) {
        (Some(_), ..) => Some("cannot run"),
        (None, true, _) => Some("is switched off"),
        (None, false, None) => Some("has no schedule"),
        (None, false, Some(_)) => None,
    }
}

/// What a policy has yet to copy, in a line.
pub(super) fn text(row: &StatusOwed) -> String {
    let (objects, oldest) = (units::counted(row.objects as u64, "object"), units::time(row.oldest_ended_ns));
    let which = if row.objects == 1 { "" } else { ", the oldest" };
    let why = row.not_by_itself.as_ref().map(|why| format!(", which {why}")).unwrap_or_default();
    format!("{objects} to pool {}{which} of {oldest}, by policy {}{why}", row.pool, row.policy)
}

impl Owed {
    /// Copies that could have been made for as long as a backup may be old.
    pub(super) fn lines(&self, facts: &Facts, lines: &mut Vec<Attention>) {
        // While the clock is in doubt, a difference of times says nothing.
        let Some(max_age_ns) = facts.max_age_ns.filter(|_| facts.reading.doubt.is_none()) else { return };
        let is_late = |row: &&StatusOwed| facts.reading.now_ns.saturating_sub(row.since_ns) > max_age_ns;
        for StatusOwed { policy, pool, objects, since_ns, not_by_itself, .. } in self.rows.iter().filter(is_late) {
            let have = if *objects == 1 { "has" } else { "have" };
            let which = if *objects == 1 { "" } else { "one of them " };
            let why = not_by_itself.as_ref().map(|why| format!(". Policy {policy} {why}")).unwrap_or_default();
            let text = format!(
                "{} {have} no copy in pool {pool}, and {which}could have had since {}: `capstan queue add {policy}` copies{why}",
                units::counted(*objects as u64, "object"),
                units::time(*since_ns)
            );
            let subject = format!("copies by policy {policy} are overdue");
            let told = Attention::told(TellEvent::Overdue, format!("copies {policy}"), subject, text);
            lines.push(told.about(policy, ""));
        }
    }
}
