//! Tries a rule: a test message by each of its ways.

use std::sync::atomic::AtomicBool;

use capstan_director::TellRule;

use super::message::TellMessage;
use super::sender::TellSender;
use super::way::TellWay;

/// What came of a test by one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellTrial {
    /// The way.
    pub way: TellWay,
    /// Why it did not arrive; `None` if it did.
    pub problem: Option<String>,
}

/// Sends a test message by each way of a rule, one after the other.
#[must_use]
pub fn try_rule(sender: &TellSender, name: &str, rule: &TellRule, now_ns: i64) -> Vec<TellTrial> {
    let never = AtomicBool::new(false);
    let trial = |way| {
        let sent = sender.send(rule, &TellMessage::test(name, way, now_ns), &never);
        TellTrial { way, problem: sent.err().map(|error| error.to_string()) }
    };
    TellWay::of(rule).map(trial).collect()
}
