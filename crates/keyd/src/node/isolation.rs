//! For how long a node that is cut off goes on: what its policies allow, by two clocks.
//!
//! ```text
//!  the majority was heard          the process ends     begins again             now
//!         |--- counted, and noted now and then ---|.....|---- counted anew ------|
//!         |--- by the clock of the machine ------------------------------------->|
//! ```
//! The longer of the two counts: whoever sets the clock back gains nothing while the node runs, and what was noted
//! before a start is not counted less after it. What nobody counted, the time in which the node did not run, the clock
//! alone tells. Nothing here trusts the times of files, which change when one is copied, restored, or mended after a
//! crash. Where no record says when the majority was heard, a limit is over.

use std::fmt;
use std::time::Duration;

use capstan_keys::{Name, Period};
use tokio::time::Instant;

use super::{MajorityContact, Memory, Node, NodeError};
use crate::desk::DeskError;

/// When the majority was heard last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastHeard {
    /// By the clock, in nanoseconds since 1970; 0 where nobody knows.
    since_ns: i64,
    /// How much has passed since then at the least, by what nobody sets, ...
    counted: Duration,
    /// ... at this moment.
    at: Instant,
    /// Whether it was this process that heard it.
    by_this_process: bool,
}

/// Why a node that is cut off does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// The limit is over.
    Over {
        /// Since when it is cut off, in nanoseconds since 1970.
        since_ns: i64,
    },
    /// Operator: its clock says an earlier time than when it was cut off, and tells nothing of how long that was.
    ClockSetBack {
        /// Since when it is cut off, by the clock as it was then.
        since_ns: i64,
    },
    /// It has no record of when it was in touch last.
    NotOnRecord,
}

impl LastHeard {
    /// Nobody knows when.
    pub fn unknown(now: Instant) -> Self {
        Self::on_record(0, Duration::ZERO, now)
    }

    /// As it was noted before this process began.
    pub fn on_record(since_ns: i64, counted: Duration, now: Instant) -> Self {
        Self { since_ns, counted, at: now, by_this_process: false }
    }

    /// By this process, which had asked at that moment. `now` and `now_ns` are the same moment by two clocks.
    pub fn just_now(asked: Instant, now: Instant, now_ns: i64) -> Self {
        let ago_ns = i64::try_from(now.saturating_duration_since(asked).as_nanos()).unwrap_or(i64::MAX);
        Self { since_ns: now_ns.saturating_sub(ago_ns), counted: Duration::ZERO, at: asked, by_this_process: true }
    }

    /// By the clock, in nanoseconds since 1970; 0 where nobody knows.
    pub fn since_ns(&self) -> i64 {
        self.since_ns
    }

    /// When this process heard it, if it did.
    pub fn by_this_process(&self) -> Option<Instant> {
        self.by_this_process.then_some(self.at)
    }

    /// How much has passed since then at the least, whatever the clock says.
    pub fn counted(&self, now: Instant) -> Duration {
        self.counted.saturating_add(now.saturating_duration_since(self.at))
    }

    /// Whether a node that is cut off must not go on. `now` and `now_ns` are the same moment by two clocks.
    pub fn too_long(&self, limit: Period, now: Instant, now_ns: i64) -> Option<TooLong> {
        let Period::Seconds(seconds) = limit else { return None };
        let since_ns = self.since_ns;
        if since_ns == 0 {
            return Some(TooLong::NotOnRecord);
        }
        if now_ns < since_ns {
            return Some(TooLong::ClockSetBack { since_ns });
        }
        let is_over = limit.is_over(since_ns, now_ns) || self.counted(now) >= Duration::from_secs(seconds.into());
        is_over.then_some(TooLong::Over { since_ns })
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = |ns: i64| jiff::Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
        match *self {
            Self::Over { since_ns } => write!(f, "since {:.0}", date(since_ns)),
            Self::ClockSetBack { since_ns } => write!(
                f,
                "since {:.0} (its clock shows an earlier time now, so it cannot tell for how long: set the clock)",
                date(since_ns)
            ),
            Self::NotOnRecord => f.write_str("since before it was started, and has no record of when that began"),
        }
    }
}

impl Node {
    /// Takes up when the majority was heard last, as it was known before there was this node.
    pub fn take_up(&self, last: LastHeard) {
        self.progress.send_modify(|progress| {
            progress.heard = progress.heard.max(last.by_this_process());
            progress.last_heard = last;
        });
    }

    /// The majority was heard: this node's copy was whole when it was asked.
    pub fn heard(&self, asked: Instant) {
        let last = LastHeard::just_now(asked, Instant::now(), self.now_ns());
        self.progress.send_modify(|progress| {
            if progress.heard.is_none_or(|before| before < asked) {
                (progress.heard, progress.last_heard) = (Some(asked), last);
            }
        });
    }

    /// Whether the policy of a group lets this node go on as it stands, in touch or cut off.
    pub fn check_isolated(&self, group: &Name) -> Result<(), NodeError> {
        self.check_isolation(&self.memory(), group, self.standing())
    }

    /// Whether the policy of a group lets a node that is cut off go on.
    pub(super) fn check_isolation(
        &self,
        memory: &Memory,
        group: &Name,
        standing: MajorityContact,
    ) -> Result<(), NodeError> {
        let MajorityContact::Alone { .. } = standing else { return Ok(()) };
        let policy = memory.state.realm().policy_of(group).map_err(DeskError::from)?;
        let last = self.progress.borrow().last_heard;
        match last.too_long(policy.isolation_limit, Instant::now(), self.now_ns()) {
            None => Ok(()),
            Some(why) => {
                Err(NodeError::IsolatedTooLong { policy: policy.name.clone(), limit: policy.isolation_limit, why })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const NOW_NS: i64 = 1_790_000_000_000_000_000;
    const SECOND_NS: i64 = 1_000_000_000;
    const LIMIT: Period = Period::Seconds(60);
    const OVER: Option<TooLong> = Some(TooLong::Over { since_ns: NOW_NS });

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// After so many seconds by what counts, and so many by the clock.
    fn after(last: &LastHeard, begun: Instant, passed: u64, by_clock: i64) -> Option<TooLong> {
        last.too_long(LIMIT, begun + seconds(passed), NOW_NS + by_clock * SECOND_NS)
    }

    #[test]
    fn a_limit_is_over_when_its_time_has_passed() {
        let begun = Instant::now();
        let last = LastHeard::just_now(begun, begun, NOW_NS);
        assert_eq!(after(&last, begun, 59, 59), None);
        assert_eq!(after(&last, begun, 60, 60), OVER);
        assert_eq!(last.too_long(Period::Unlimited, begun + seconds(1 << 30), i64::MAX), None);
    }

    /// It was the clock alone that counted: set back again and again, though never to before the node was cut off, it
    /// let the node go on for ever.
    #[test]
    fn a_clock_that_is_set_back_prolongs_nothing() {
        let begun = Instant::now();
        let last = LastHeard::just_now(begun, begun, NOW_NS);
        assert_eq!(after(&last, begun, 60, 1), OVER);
        assert_eq!(after(&last, begun, 59, 1), None);
        assert_eq!(after(&last, begun, 1, -1), Some(TooLong::ClockSetBack { since_ns: NOW_NS }));
        // Ahead, it ends too early: that is the safe side.
        assert_eq!(after(&last, begun, 1, 60), OVER);
    }

    /// A start began the limit anew, since the time of a file was taken for the time at which the majority was heard.
    #[test]
    fn a_start_begins_no_limit_anew() {
        let begun = Instant::now();
        let last = LastHeard::on_record(NOW_NS, seconds(50), begun);
        assert_eq!(after(&last, begun, 0, 59), None);
        assert_eq!(after(&last, begun, 0, 60), OVER, "the time in which it did not run counts by the clock");
        // A machine without a clock of its own begins with the time at which it was shut down.
        assert_eq!(after(&last, begun, 9, 9), None);
        assert_eq!(after(&last, begun, 10, 10), OVER);
        assert_eq!((last.by_this_process(), last.counted(begun + seconds(3))), (None, seconds(53)));
    }

    #[test]
    fn without_a_record_a_limit_is_over() {
        let begun = Instant::now();
        let last = LastHeard::unknown(begun);
        assert_eq!(after(&last, begun, 0, 0), Some(TooLong::NotOnRecord));
        // Longer than the years since 1970.
        assert_eq!(last.too_long(Period::Seconds(u32::MAX), begun, NOW_NS), Some(TooLong::NotOnRecord));
        assert_eq!(last.too_long(Period::Unlimited, begun, NOW_NS), None);
    }

    #[test]
    fn an_answer_counts_from_when_it_was_asked_for() {
        let asked = Instant::now();
        let last = LastHeard::just_now(asked, asked + seconds(2), NOW_NS + 2 * SECOND_NS);
        assert_eq!((last.since_ns(), last.counted(asked + seconds(5))), (NOW_NS, seconds(5)));
        assert_eq!(last.by_this_process(), Some(asked));
    }

    #[test]
    fn a_refusal_says_since_when_and_who_may_allow_more() {
        let said = |why| {
            let policy = "strict".parse().unwrap();
            NodeError::IsolatedTooLong { policy, limit: Period::Seconds(3600), why }.to_string()
        };
        let over = said(TooLong::Over { since_ns: NOW_NS });
        for part in ["since 2026-09-21T14:13:20Z", "policy strict", "1 h", "compliance officer", "keyd policies add"] {
            assert!(over.contains(part), "{part}: {over}");
        }
        assert!(said(TooLong::ClockSetBack { since_ns: NOW_NS }).contains("set the clock"));
        assert!(said(TooLong::NotOnRecord).contains("has no record"));
    }
}
