//! Which volume a pool writes to next: a pure function of what volumes there are.
//!
//! The order: a volume of the pool that is partly written, the fullest first, so that volumes are finished; then an
//! empty one of the pool; then one from the scratch pool, which is relabelled for this pool, one that holds nothing
//! first; then, if the library may make cartridges, a new one. Encrypted and plain pools never share a volume, because
//! a volume is labelled for one pool.
//!
//! Of the partly written ones, those that hold what is kept for about as long. If there is none, an empty one; but if
//! only the reserve of empty ones is left, the partly written one whose lifetime is nearest.
//!
//! What no drive of the library writes is passed over, and of what is labelled, cartridges of the drives' own
//! generation come first. So new drives take a pool over: their cartridges are used, and those of the generation before
//! are read until what is on them expires.

use std::cmp::Reverse;

use capstan_format::Volser;
use capstan_tape::WriteFit;

use crate::lifetime::{Lifetime, LifetimeSpan};

/// Name of the pool that `init` makes.
pub const DEFAULT_POOL: &str = "default";

/// The name of a copy's pool.
pub(crate) fn name_of_copy(pool: &str, copy: u8) -> String {
    if copy == 1 { pool.to_owned() } else { format!("{pool}-copy{copy}") }
}

/// Whether a pool is another or one that holds further copies for it.
pub(crate) fn is_copy_pool(pool: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name == pool || name.strip_prefix(pool).and_then(|rest| rest.strip_prefix("-copy")).is_some_and(is_number)
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
    /// Whether it lies in a folder that has less room than is to stay free, and would not get enough of it by being
    /// written anew.
    pub lacks_room: bool,
    /// How well the drives suit it.
    pub fit: WriteFit,
    /// How long what is on it is kept; `None` where nothing on it lives.
    pub lifetimes: Option<LifetimeSpan>,
}

/// What a volume is wanted for.
#[derive(Debug, Clone, Copy)]
pub struct WantedVolume<'a> {
    /// The pool.
    pub pool: &'a str,
    /// How long what is written will be kept.
    pub lifetime: Lifetime,
    /// Where volumes come from when those of the pool are used up.
    pub refill: Refill,
}

/// Where a pool may get volumes from when its own are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    /// From scratch.
    pub scratch: bool,
    /// From so many new cartridges.
    pub create: usize,
    /// So many empty volumes are left for when there is no other with room.
    pub reserve: usize,
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
    /// Volumes of the pool or of scratch in folders with less room than is to stay free.
    pub lacking_room: usize,
    /// Whether every folder has less room, so that no cartridge is made.
    pub folders_full: bool,
    /// How many cartridges the library may have, where it is virtual and has them.
    pub cartridges_max: Option<u32>,
}

/// Chooses a volume, leaving out those in `in_use`.
pub fn choose_volume(candidates: &[Candidate], wanted: WantedVolume<'_>, in_use: &[Volser]) -> Choice {
    let WantedVolume { pool, lifetime, refill } = wanted;
    let free = |candidate: &&Candidate| {
        candidate.present
            && !candidate.lacks_room
            && candidate.fit != WriteFit::None
            && !in_use.contains(&candidate.volser)
    };
    let of = |name: Option<&str>, fill: Fill| {
        let name = name.map(str::to_owned);
        candidates.iter().filter(free).filter(move |candidate| candidate.pool == name && candidate.fill == fill)
    };
    let apart = |c: &Candidate| c.lifetimes.map_or(0, |of| of.apart(lifetime));
    let is_mixed = |c: &Candidate| c.lifetimes.is_some_and(LifetimeSpan::is_mixed);
    let nearest = of(Some(pool), Fill::Filling)
        .min_by_key(|c| (apart(c), is_mixed(c), Reverse(c.written_bytes), c.volser.clone()));
    // What expired and is on scratch may still be taken back: no lifetime is worth that.
    let of_scratch = of(None, Fill::Empty).filter(|c| refill.scratch && c.written_bytes == 0);
    let empty_left = of(Some(pool), Fill::Empty).count() + of_scratch.count() + refill.create;
    if let Some(nearest) = nearest
        && (apart(nearest) == 0 || empty_left <= refill.reserve)
    {
        return Choice::Append(nearest.volser.clone());
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
    if refill.create > 0 {
        return Choice::Create;
    }
    let mut shortage = Shortage::default();
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
        } else if candidate.lacks_room {
            shortage.lacking_room += 1;
        }
    }
    Choice::Nothing(shortage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;
    const ANY: Refill = Refill { scratch: true, create: 100, reserve: 2 };
    const NONE_BUT_SCRATCH: Refill = Refill { create: 0, ..ANY };
    const NONE: Refill = Refill { scratch: false, create: 0, reserve: 2 };

    fn days(days: i64) -> Lifetime {
        Lifetime::of_ns(days * DAY_NS)
    }

    fn daily(refill: Refill) -> WantedVolume<'static> {
        WantedVolume { pool: "daily", lifetime: days(30), refill }
    }

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
            lacks_room: false,
            fit: WriteFit::Own,
            lifetimes: (written_bytes > 0).then(|| LifetimeSpan::of(days(30))),
        }
    }

    #[test]
    fn the_fullest_partly_written_volume_goes_first() {
        let volumes = [
            candidate("A", "daily", Fill::Filling, 10),
            candidate("B", "daily", Fill::Filling, 20),
            candidate("C", "daily", Fill::Empty, 0),
        ];
        assert_eq!(choose_volume(&volumes, daily(ANY), &[]), Choice::Append(volser("B")));
        assert_eq!(choose_volume(&volumes, daily(ANY), &[volser("B")]), Choice::Append(volser("A")));
    }

    #[test]
    fn what_is_kept_for_like_times_gathers() {
        let kept = |kept, candidate: Candidate| Candidate { lifetimes: Some(LifetimeSpan::of(kept)), ..candidate };
        let volumes = [
            kept(days(30), candidate("A", "daily", Fill::Filling, 10)),
            kept(Lifetime::ENDLESS, candidate("B", "daily", Fill::Filling, 30)),
            kept(days(365), candidate("C", "daily", Fill::Filling, 20)),
            candidate("S", "scratch", Fill::Empty, 0),
        ];
        let scratch = |reserve| Refill { reserve, ..NONE_BUT_SCRATCH };
        let chosen = |lifetime, refill| choose_volume(&volumes, WantedVolume { lifetime, ..daily(refill) }, &[]);
        for (lifetime, volume) in [(days(20), "A"), (days(45), "A"), (days(600), "C"), (Lifetime::ENDLESS, "B")] {
            assert_eq!(chosen(lifetime, scratch(0)), Choice::Append(volser(volume)));
        }
        assert_eq!(chosen(days(3_650), scratch(0)), Choice::Label(volser("S")), "none is like it");
        assert_eq!(
            chosen(days(3_650), scratch(1)),
            Choice::Append(volser("C")),
            "the last one is for when it is needed"
        );
        assert_eq!(chosen(days(7), NONE), Choice::Append(volser("A")), "there is no empty one");
        let new = Refill { create: 3, ..NONE };
        assert_eq!(chosen(days(7), new), Choice::Create);
        let mut volumes = volumes;
        volumes[3].written_bytes = 5;
        let week = WantedVolume { lifetime: days(7), ..daily(scratch(0)) };
        assert_eq!(choose_volume(&volumes, week, &[]), Choice::Append(volser("A")), "scratch may be taken back yet");
        let volumes = [Candidate { lifetimes: None, ..candidate("A", "daily", Fill::Filling, 10) }];
        assert_eq!(choose_volume(&volumes, daily(ANY), &[]), Choice::Append(volser("A")), "nothing on it lives");
    }

    #[test]
    fn a_volume_of_another_pool_is_never_taken() {
        let volumes = [candidate("A", "plain", Fill::Filling, 10), candidate("B", "plain", Fill::Empty, 0)];
        assert_eq!(choose_volume(&volumes, daily(ANY), &[]), Choice::Create);
    }

    #[test]
    fn scratch_feeds_a_pool_that_has_none() {
        let volumes = [candidate("A", "daily", Fill::Full, 10), candidate("S", "scratch", Fill::Empty, 0)];
        assert_eq!(choose_volume(&volumes, daily(ANY), &[]), Choice::Label(volser("S")));
    }

    #[test]
    fn what_lies_on_a_full_disk_is_passed_over() {
        let full = |candidate: Candidate| Candidate { lacks_room: true, ..candidate };
        let volumes = [
            full(candidate("A", "daily", Fill::Filling, 10)),
            candidate("B", "daily", Fill::Filling, 5),
            full(candidate("S", "scratch", Fill::Empty, 0)),
        ];
        assert_eq!(choose_volume(&volumes, daily(NONE_BUT_SCRATCH), &[]), Choice::Append(volser("B")));
        let volumes = [volumes[0].clone(), volumes[2].clone()];
        assert_eq!(choose_volume(&volumes, daily(ANY), &[]), Choice::Create, "on another disk");
        let shortage = Shortage { lacking_room: 2, ..Default::default() };
        assert_eq!(choose_volume(&volumes, daily(NONE_BUT_SCRATCH), &[]), Choice::Nothing(shortage));
    }

    #[test]
    fn scratch_that_still_holds_what_expired_is_taken_last() {
        let volumes = [candidate("A", "scratch", Fill::Empty, 10), candidate("S", "scratch", Fill::Empty, 0)];
        assert_eq!(choose_volume(&volumes, daily(ANY), &[]), Choice::Label(volser("S")));
        assert_eq!(choose_volume(&volumes[..1], daily(ANY), &[]), Choice::Label(volser("A")));
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
        let shortage = Shortage { full: 1, barred: 1, absent: 1, in_use: 1, ..Default::default() };
        assert_eq!(choose_volume(&volumes, daily(NONE), &[volser("D")]), Choice::Nothing(shortage));
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
        let chosen = |volumes: &[Candidate]| choose_volume(volumes, daily(NONE_BUT_SCRATCH), &[]);
        assert_eq!(chosen(&volumes), Choice::Append(volser("B")), "what was begun and can be written is finished");
        volumes[1].fill = Fill::Full;
        assert_eq!(chosen(&volumes), Choice::Label(volser("E")), "though it holds what has expired");
        volumes.pop();
        assert_eq!(chosen(&volumes), Choice::Label(volser("D")), "better than none");
        volumes.pop();
        let shortage = Shortage { full: 1, unfit: 2, ..Default::default() };
        assert_eq!(chosen(&volumes), Choice::Nothing(shortage));
    }
}
