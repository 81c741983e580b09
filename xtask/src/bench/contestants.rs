//! Everyone who is measured: ourselves and peers.

use super::contest::Contestant;
use super::{ours, peers};

/// Everyone, in the order of the report.
pub(super) fn all_contestants() -> impl Iterator<Item = &'static Contestant> {
    ours::CONTESTANTS.iter().chain(peers::CONTESTANTS)
}
