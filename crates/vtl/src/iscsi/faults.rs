//! A wire that is cut where a script says, to show what the other side then does.
//!
//! A target looks at its script wherever a connection may break; without one that costs one load of an integer.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;

/// Places on the way of a connection at which it may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WirePoint {
    /// A login request has come; it is not answered.
    LoginRequest,
    /// A command has come, with what data were in its PDU; it is never carried out.
    AfterCommand,
    /// Data of a command are about to be asked for.
    BeforeReadyToTransfer,
    /// Half of a data segment of a write has come.
    AmidDataOut,
    /// A command was carried out and nobody knows.
    BeforeResponse,
    /// Half of a data segment of a read was sent.
    AmidDataIn,
    /// A command was answered.
    AfterResponse,
}

impl WirePoint {
    /// All of them, in the order in which a connection passes them.
    pub const ALL: [Self; 7] = [
        Self::LoginRequest,
        Self::AfterCommand,
        Self::BeforeReadyToTransfer,
        Self::AmidDataOut,
        Self::BeforeResponse,
        Self::AmidDataIn,
        Self::AfterResponse,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::LoginRequest => "login-request",
            Self::AfterCommand => "after-command",
            Self::BeforeReadyToTransfer => "before-r2t",
            Self::AmidDataOut => "amid-data-out",
            Self::BeforeResponse => "before-response",
            Self::AmidDataIn => "amid-data-in",
            Self::AfterResponse => "after-response",
        }
    }
}

impl fmt::Display for WirePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such point.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a wire cannot be cut at {name:?}: name one of {}", WirePoint::ALL.map(WirePoint::name).join(", "))]
pub struct UnknownWirePoint {
    /// What was named.
    name: String,
}

impl FromStr for WirePoint {
    type Err = UnknownWirePoint;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let point = Self::ALL.into_iter().find(|point| point.name() == name);
        point.ok_or_else(|| UnknownWirePoint { name: name.to_owned() })
    }
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    Cut,
}

/// A script of cuts, for all connections of a target together.
#[derive(Debug, Default)]
pub struct WireFaults {
    waiting: AtomicUsize,
    done: AtomicU64,
    cuts: Mutex<Vec<(WirePoint, u32)>>,
}

impl WireFaults {
    /// No cuts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the connection that is the `passage`th from now on to come by `point`; 1 is the next one.
    pub fn cut(&self, point: WirePoint, passage: u32) {
        let mut cuts = self.cuts();
        cuts.push((point, passage.max(1)));
        self.waiting.store(cuts.len(), Ordering::Release);
    }

    /// Takes back the cuts that have not come.
    pub fn clear(&self) {
        let mut cuts = self.cuts();
        cuts.clear();
        self.waiting.store(0, Ordering::Release);
    }

    /// Cuts that have not come, each with the passages until then.
    pub fn waiting(&self) -> Vec<(WirePoint, u32)> {
        self.cuts().clone()
    }

    /// Connections that were cut so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// A connection comes by.
    pub(crate) fn pass(&self, point: WirePoint) -> Passage {
        if self.waiting.load(Ordering::Acquire) == 0 { Passage::Open } else { self.count(point) }
    }

    #[cold]
    fn count(&self, point: WirePoint) -> Passage {
        let mut cuts = self.cuts();
        let before = cuts.len();
        cuts.retain_mut(|(at, left)| {
            if *at == point {
                *left -= 1;
            }
            *left > 0
        });
        self.waiting.store(cuts.len(), Ordering::Release);
        if cuts.len() == before {
            return Passage::Open;
        }
        self.done.fetch_add(1, Ordering::AcqRel);
        Passage::Cut
    }

    fn cuts(&self) -> MutexGuard<'_, Vec<(WirePoint, u32)>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn cuts_come_at_the_passage_that_was_named() {
        let faults = WireFaults::new();
        assert_eq!(faults.pass(WirePoint::AmidDataIn), Passage::Open);
        faults.cut(WirePoint::AmidDataIn, 2);
        faults.cut(WirePoint::AfterResponse, 1);
        assert_eq!(faults.pass(WirePoint::AmidDataIn), Passage::Open);
        assert_eq!(faults.waiting(), [(WirePoint::AmidDataIn, 1), (WirePoint::AfterResponse, 1)]);
        assert_eq!(faults.pass(WirePoint::AmidDataIn), Passage::Cut);
        assert_eq!(faults.pass(WirePoint::AmidDataIn), Passage::Open);
        faults.clear();
        assert_eq!((faults.pass(WirePoint::AfterResponse), faults.done()), (Passage::Open, 1));
    }

    #[test]
    fn points_have_names() {
        for point in WirePoint::ALL {
            assert_eq!(point.to_string().parse(), Ok(point));
        }
        let error = "nowhere".parse::<WirePoint>().unwrap_err().to_string();
        assert!(error.contains("\"nowhere\"") && error.contains("before-r2t, amid-data-out"), "{error}");
    }
}
