//! Which volume a pool writes to next: a pure function of what volumes there are.
//!
//! The order: a volume of the pool that is partly written, the fullest first, so that volumes are finished; then an
//! empty one of the pool; then one from the scratch pool, which is relabelled for this pool, one that holds nothing
//! first; then, if the library may make cartridges, a new one. Encrypted and plain pools never share a volume, because
//! a volume is labelled for one pool.
//!
//! What no drive of the library writes is passed over, and of what is labelled, cartridges of the drives' own
//! generation come first. So new drives take a pool over: their cartridges are used, and those of the generation before
//! are read until what is on them expires.

use std::cmp::Reverse;

use capstan_format::Volser;
use capstan_tape::WriteFit;

/// Name of the pool that `init` makes.
pub const DEFAULT_POOL: &str = "default";

/// The name of a copy's pool.
pub(crate) fn name_of_copy(pool: &str, copy: u8) -> String {
    if copy == 1 { pool.to_owned() } else { format!("{pool}-copy{copy}") }
}

/// How far a volume has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// No label, or a label and nothing behind it.
    Empty,
    /// Sessions, and room.
    Filling,
    /// No room.
    Full,
    /// Not to be written: suspect, retired, or read-only.
    Barred,
}

/// What the choice knows of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its barcode.
    pub volser: Volser,
    /// Its pool; `None` for scratch, which feeds the pools that let it.
    pub pool: Option<String>,
    /// How far it has come.
    pub fill: Fill,
    /// Bytes written.
    pub written_bytes: u64,
    /// Whether it is in the library.
    pub present: bool,
    /// How well the drives suit it.
    pub fit: WriteFit,
}

/// Where a pool may get volumes from when its own are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    /// From scratch.
    pub scratch: bool,
    /// From new cartridges.
    pub create: bool,
}

/// What to write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Go on behind its last session.
    Append(Volser),
    /// Label it for the pool, then write.
    Label(Volser),
    /// Make a cartridge, label it, then write.
    Create,
    /// There is none; the numbers say why.
    Nothing(Shortage),
}

/// Why a pool has no volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Volumes of the pool that are full.
    pub full: usize,
    /// Volumes of the pool that may not be written.
    pub barred: usize,
    /// Volumes of the pool or of scratch that are not in the library.
    pub absent: usize,
    /// Volumes of the pool that another copy or process writes.
    pub in_use: usize,
    /// Volumes of the pool or of scratch, with room, that no drive there writes.
    pub unfit: usize,
}

/// Chooses a volume for `pool`, leaving out those in `in_use`.
pub fn choose_volume(candidates: &[Candidate], pool: &str, in_use: &[Volser], refill: Refill) -> Choice {
    let free = |candidate: &&Candidate| {
        candidate.present && candidate.fit != WriteFit::None && !in_use.contains(&candidate.volser)
    };
    let of = |name: Option<&str>, fill: Fill| {
        let name = name.map(str::to_owned);
        candidates.iter().filter(free).filter(move |candidate| candidate.pool == name && candidate.fill == fill)
    };
    if let Some(fullest) = of(Some(pool), Fill::Filling).max_by_key(|c| (c.written_bytes, Reverse(c.volser.clone()))) {
        return Choice::Append(fullest.volser.clone());
    }
    let empty = of(Some(pool), Fill::Empty).min_by_key(|c| (Reverse(c.fit), c.volser.clone()));
    // What expired and is on it can be taken back until it is labelled anew: it comes last.
    let scratch = || {
        let of_scratch = of(None, Fill::Empty).filter(|_| refill.scratch);
        of_scratch.min_by_key(|c| (Reverse(c.fit), c.written_bytes > 0, c.volser.clone()))
    };
    if let Some(empty) = empty.or_else(scratch) {
        return Choice::Label(empty.volser.clone());
    }
    if refill.create {
        return Choice::Create;
    }
    let mut shortage = Shortage { full: 0, barred: 0, absent: 0, in_use: 0, unfit: 0 };
    for candidate in candidates.iter().filter(|c| c.pool.as_deref().is_none_or(|of| of == pool)) {
        if !candidate.present {
            shortage.absent += 1;
        } else if in_use.contains(&candidate.volser) {
            shortage.in_use += 1;
        } else if candidate.fill == Fill::Full {
            shortage.full += 1;
        } else if candidate.fill == Fill::Barred {
            shortage.barred += 1;
        } else if candidate.fit == WriteFit::None {
            shortage.unfit += 1;
        }
    }
    Choice::Nothing(shortage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Refill = Refill { scratch: true, create: true };
    const NONE_BUT_SCRATCH: Refill = Refill { scratch: true, create: false };
    const NONE: Refill = Refill { scratch: false, create: false };

    fn volser(name: &str) -> Volser {
        Volser::new(name).expect("a volser")
    }

    fn candidate(name: &str, pool: &str, fill: Fill, written_bytes: u64) -> Candidate {
        Candidate {
            volser: volser(name),
            pool: (pool != "scratch").then(|| pool.to_owned()),
            fill,
            written_bytes,
            present: true,
            fit: WriteFit::Own,
        }
    }

    #[test]
    fn the_fullest_partly_written_volume_goes_first() {
        let volumes = [
            candidate("A", "daily", Fill::Filling, 10),
            candidate("B", "daily", Fill::Filling, 20),
            candidate("C", "daily", Fill::Empty, 0),
        ];
        assert_eq!(choose_volume(&volumes, "daily", &[], ANY), Choice::Append(volser("B")));
        assert_eq!(choose_volume(&volumes, "daily", &[volser("B")], ANY), Choice::Append(volser("A")));
    }

    #[test]
    fn a_volume_of_another_pool_is_never_taken() {
        let volumes = [candidate("A", "plain", Fill::Filling, 10), candidate("B", "plain", Fill::Empty, 0)];
        assert_eq!(choose_volume(&volumes, "daily", &[], ANY), Choice::Create);
    }

    #[test]
    fn scratch_feeds_a_pool_that_has_none() {
        let volumes = [candidate("A", "daily", Fill::Full, 10), candidate("S", "scratch", Fill::Empty, 0)];
        assert_eq!(choose_volume(&volumes, "daily", &[], ANY), Choice::Label(volser("S")));
    }

    #[test]
    fn scratch_that_still_holds_what_expired_is_taken_last() {
        let volumes = [candidate("A", "scratch", Fill::Empty, 10), candidate("S", "scratch", Fill::Empty, 0)];
        assert_eq!(choose_volume(&volumes, "daily", &[], ANY), Choice::Label(volser("S")));
        assert_eq!(choose_volume(&volumes[..1], "daily", &[], ANY), Choice::Label(volser("A")));
    }

    #[test]
    fn a_shortage_says_why() {
        let mut absent = candidate("C", "daily", Fill::Filling, 5);
        absent.present = false;
        let volumes = [
            candidate("A", "daily", Fill::Full, 10),
            candidate("B", "daily", Fill::Barred, 10),
            absent,
            candidate("D", "daily", Fill::Filling, 1),
        ];
        let shortage = Shortage { full: 1, barred: 1, absent: 1, in_use: 1, unfit: 0 };
        assert_eq!(choose_volume(&volumes, "daily", &[volser("D")], NONE), Choice::Nothing(shortage));
    }

    #[test]
    fn a_new_generation_takes_over_from_the_old_one() {
        let fit = |fit, candidate: Candidate| Candidate { fit, ..candidate };
        let mut volumes = vec![
            fit(WriteFit::None, candidate("A", "daily", Fill::Filling, 10)),
            fit(WriteFit::Older, candidate("B", "daily", Fill::Filling, 5)),
            fit(WriteFit::None, candidate("C", "scratch", Fill::Empty, 0)),
            fit(WriteFit::Older, candidate("D", "scratch", Fill::Empty, 0)),
            fit(WriteFit::Own, candidate("E", "scratch", Fill::Empty, 10)),
        ];
        let chosen = |volumes: &[Candidate]| choose_volume(volumes, "daily", &[], NONE_BUT_SCRATCH);
        assert_eq!(chosen(&volumes), Choice::Append(volser("B")), "what was begun and can be written is finished");
        volumes[1].fill = Fill::Full;
        assert_eq!(chosen(&volumes), Choice::Label(volser("E")), "though it holds what has expired");
        volumes.pop();
        assert_eq!(chosen(&volumes), Choice::Label(volser("D")), "better than none");
        volumes.pop();
        let shortage = Shortage { full: 1, barred: 0, absent: 0, in_use: 0, unfit: 2 };
        assert_eq!(chosen(&volumes), Choice::Nothing(shortage));
    }
}
