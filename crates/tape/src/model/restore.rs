//! Restores, planned: in which order to read what is wanted of a tape, and how long that takes.
//!
//! ```text
//!  load | reach, read | reach, read | ... | rewind | unload
//!         `-- nothing, where the tape stands there already
//!             reading on through what is not wanted, where that is quicker
//!             a locate, by the way along the tape and a turn
//! ```
//! Front to back by block number is right when most of a tape is read, and wrong for little of it: on a tape of wraps,
//! blocks whose numbers are far apart may lie side by side. So the plan is the quickest of several orders: front to
//! back; one sweep out over the wraps that lead away and back over the others (and that the other way round); from each
//! place to the nearest; each of them improved by moving up to three neighbours elsewhere as long as that gains. Moves
//! keep the direction of what they move, which reversals (2-opt) would not: a block is read one way only.
//!
//! The best order of all is a travelling salesman's. Of up to [`BEST_MAX`] extents it is found, by the best way into
//! each set of them (Held and Karp 1962), which takes 2^n n^2 looks; of more it is not looked for.
//!
//! A target that is slower than the drive is behind by as much as the drive's buffer holds, and makes up for it while
//! the tape is on its way; what does not fit holds the tape up.
//!
//! What it leaves out: the turn at the end of a wrap while reading (the buffer hides it), the library's robot, and
//! tapes that are not full where the model's wraps say. It is an estimate, and refuses nothing: what lies behind the
//! end counts as at the end.
//!
//! Limits: time grows as n log n; nearest and improvements look at [`NEAREST_MAX`] and [`LOOKS_MAX`] at most.

mod best;
mod course;

use super::geometry::TapePosition;
use super::spec::DriveModel;
use course::{Course, Head};

/// The best order of no more extents than these is looked for: 2^10 sets, a millisecond.
const BEST_MAX: usize = 10;
/// More stretches than this are not ordered by the nearest, which grows with their square.
const NEAREST_MAX: usize = 2000;
/// Moves that are looked at in an order, at most.
const LOOKS_MAX: usize = 2_000_000;
/// A stretch is moved so many places forward or back, at most.
const MOVE_MAX: usize = 200;
/// Neighbours that are moved together, at most.
const TOGETHER_MAX: usize = 3;
/// A gain of less is rounding.
const GAIN_S_MIN: f64 = 1e-6;

/// Bytes that are wanted, as they stand on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TapeExtent {
    /// Bytes from the beginning of tape to its first.
    pub begin: u64,
    /// How many.
    pub len: u64,
}

impl TapeExtent {
    /// Where the next byte stands.
    pub(super) fn end(&self) -> u64 {
        self.begin.saturating_add(self.len)
    }
}

/// Where the tape stands before a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// The cartridge is in the mouth of the drive.
    Unloaded,
    /// It is loaded, and stands so many bytes from the beginning of tape.
    At(u64),
}

/// What becomes of the tape behind a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It stays where it is.
    Stay,
    /// It is rewound and unloaded.
    Unload,
}

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Restore<'a> {
    /// What is wanted, in any order. What stands there twice is read twice.
    pub extents: &'a [TapeExtent],
    /// Bytes of the host for each byte on the tape, 1 for what does not compress.
    pub ratio: f64,
    /// What the target takes, MB/s of the host; `None` if it is never the slower one.
    pub target_mb_per_s: Option<f64>,
    /// Before.
    pub standing: StartPosition,
    /// Behind.
    pub afterwards: Afterwards,
}

/// How the tape comes to an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It stands there.
    Here,
    /// By reading on through what is not wanted.
    ReadOn,
    /// By a locate.
    Locate,
}

/// One extent of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RestoreStep {
    /// Which of the extents, from 0 as they were given.
    pub extent: usize,
    /// How the tape comes there.
    pub reach: Reach,
    /// Seconds until it is there.
    pub reach_s: f64,
    /// Seconds to read it, those in which a full buffer waits for the target among them.
    pub read_s: f64,
}

/// In which order to read, and how long it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreSchedule {
    /// Each extent once, in the order in which to read.
    pub steps: Vec<RestoreStep>,
    /// Seconds to load; 0 if it is.
    pub load_s: f64,
    /// Seconds to rewind; 0 if it stays.
    pub rewind_s: f64,
    /// Seconds to unload; 0 if it stays.
    pub unload_s: f64,
}

impl RestoreSchedule {
    /// Seconds of everything.
    pub fn total_s(&self) -> f64 {
        self.there_s() + self.rewind_s + self.unload_s
    }

    /// Seconds until the last byte is read.
    pub fn there_s(&self) -> f64 {
        self.load_s + self.steps.iter().map(|step| step.reach_s + step.read_s).sum::<f64>()
    }

    /// Seconds in which nothing is read that is wanted: on the way to the extents, and back from the last.
    pub fn positioning_s(&self) -> f64 {
        self.steps.iter().map(|step| step.reach_s).sum::<f64>() + self.rewind_s
    }

    /// How many locates it takes.
    pub fn locates(&self) -> usize {
        self.steps.iter().filter(|step| step.reach == Reach::Locate).count()
    }
}

/// The quickest order that was found, never slower than [`front_to_back`]; the quickest that there is of few extents,
/// for a target that is never the slower one.
pub fn plan_restore(model: &DriveModel, restore: &Restore<'_>) -> RestoreSchedule {
    let course = Course::new(model, restore);
    let sorted = by_block_number(restore.extents);
    let stretches = stretches(&course, restore.extents, &sorted);
    let tour = Tour { course: &course, stretches: &stretches, begin: course.begin(), afterwards: restore.afterwards };
    let best = tour.best();
    let order = best.iter().flat_map(|&stretch| &sorted[stretches[stretch].from..stretches[stretch].to]);
    let plan = laid_out(&course, restore, order.copied());
    // Orders are compared by the tape's ways; a slow target makes up for lost time on those, and may turn a close
    // decision.
    let front_to_back = laid_out(&course, restore, sorted.iter().copied());
    if plan.total_s() <= front_to_back.total_s() { plan } else { front_to_back }
}

/// By block number, as the tape was written.
pub fn front_to_back(model: &DriveModel, restore: &Restore<'_>) -> RestoreSchedule {
    laid_out(&Course::new(model, restore), restore, by_block_number(restore.extents).into_iter())
}

/// In this order, each extent by its place in the list: what another's opinion would take. What is named twice or not
/// at all is read so.
pub fn in_order(model: &DriveModel, restore: &Restore<'_>, order: &[usize]) -> RestoreSchedule {
    let there = order.iter().copied().filter(|&extent| extent < restore.extents.len());
    laid_out(&Course::new(model, restore), restore, there)
}

fn by_block_number(extents: &[TapeExtent]) -> Vec<usize> {
    let mut sorted: Vec<usize> = (0..extents.len()).collect();
    sorted.sort_by_key(|&at| (extents[at].begin, extents[at].len, at));
    sorted
}

fn laid_out(course: &Course<'_>, restore: &Restore<'_>, order: impl Iterator<Item = usize>) -> RestoreSchedule {
    let mut head = course.begin();
    let mut target = course.target();
    let mut steps: Vec<RestoreStep> = Vec::with_capacity(restore.extents.len());
    for extent in order {
        let wanted = &restore.extents[extent];
        let (reach, reach_s) = course.reach(&head, &course.head(wanted.begin));
        head = course.head(wanted.end());
        target.pass(reach_s);
        let read_s = course.read_s(wanted.len);
        steps.push(RestoreStep { extent, reach, reach_s, read_s: read_s + target.take(wanted.len, read_s) });
    }
    if let Some(last) = steps.last_mut() {
        last.read_s += target.behind_s();
    }
    let (rewind_s, unload_s) = course.end_s(&head, restore.afterwards);
    RestoreSchedule { steps, load_s: course.load_s(restore.standing), rewind_s, unload_s }
}

/// Extents between which nothing is quicker than reading on: they are never taken apart, unless they are so few that
/// all orders are looked at. (Taken apart, another may be read between them that lies beside the first's end; that is
/// rare, and gains little.)
struct Stretch {
    begin: Head,
    end: Head,
    /// Which of the sorted extents.
    from: usize,
    /// Behind the last of them.
    to: usize,
}

fn stretches(course: &Course<'_>, extents: &[TapeExtent], sorted: &[usize]) -> Vec<Stretch> {
    let few = extents.len() <= BEST_MAX;
    let mut stretches: Vec<Stretch> = Vec::new();
    for (at, &extent) in sorted.iter().enumerate() {
        let (begin, end) = (course.head(extents[extent].begin), course.head(extents[extent].end()));
        match stretches.last_mut() {
            Some(last) if !few && course.is_near(&last.end, &begin) => (last.end, last.to) = (end, at + 1),
            _ => stretches.push(Stretch { begin, end, from: at, to: at + 1 }),
        }
    }
    stretches
}

/// Orders of stretches, and what they cost.
struct Tour<'a> {
    course: &'a Course<'a>,
    stretches: &'a [Stretch],
    begin: Head,
    afterwards: Afterwards,
}

impl Tour<'_> {
    fn best(&self) -> Vec<usize> {
        if self.stretches.len() <= BEST_MAX {
            return self.best_of_all();
        }
        let front_to_back: Vec<usize> = (0..self.stretches.len()).collect();
        let mut best = (self.seconds(&front_to_back), front_to_back.clone());
        let mut orders = vec![front_to_back, self.sweep(0), self.sweep(1)];
        if self.stretches.len() <= NEAREST_MAX {
            orders.push(self.nearest());
        }
        for mut order in orders {
            self.improve(&mut order);
            let seconds = self.seconds(&order);
            if seconds < best.0 {
                best = (seconds, order);
            }
        }
        best.1
    }

    /// Seconds between two stretches; none in front is where the tape stands, none behind is its end.
    fn between_s(&self, before: Option<&usize>, after: Option<&usize>) -> f64 {
        let from = before.map_or(&self.begin, |&before| &self.stretches[before].end);
        match after {
            Some(&after) => self.course.reach(from, &self.stretches[after].begin).1,
            None => self.course.end_s(from, self.afterwards).0,
        }
    }

    fn seconds(&self, order: &[usize]) -> f64 {
        let between: f64 = order.windows(2).map(|pair| self.between_s(Some(&pair[0]), Some(&pair[1]))).sum();
        let end = if order.is_empty() { 0.0 } else { self.between_s(order.last(), None) };
        self.between_s(None, order.first()) + between + end
    }

    /// Along the tape over the wraps of this kind, 0 those that lead away, and back over the others.
    fn sweep(&self, first: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.stretches.len()).collect();
        order.sort_by(|&a, &b| {
            let key = |at: usize| {
                let TapePosition { wrap, along_m } = self.stretches[at].begin.place;
                let backward = wrap % 2 == 1;
                (wrap % 2 != first, if backward { -along_m } else { along_m })
            };
            let ((half_a, along_a), (half_b, along_b)) = (key(a), key(b));
            half_a.cmp(&half_b).then(along_a.total_cmp(&along_b))
        });
        order
    }

    fn nearest(&self) -> Vec<usize> {
        let mut left: Vec<usize> = (0..self.stretches.len()).collect();
        let mut order: Vec<usize> = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let last = order.last();
            let mut nearest = (f64::INFINITY, 0);
            for (at, stretch) in left.iter().enumerate() {
                let seconds = self.between_s(last, Some(stretch));
                if seconds < nearest.0 {
                    nearest = (seconds, at);
                }
            }
            order.push(left.remove(nearest.1));
        }
        order
    }

    /// Moves neighbours elsewhere as long as that gains.
    fn improve(&self, order: &mut [usize]) {
        let mut looks = 0;
        let mut gained = true;
        while gained {
            gained = false;
            for at in 0..order.len() {
                for together in 1..=TOGETHER_MAX.min(order.len() - at) {
                    gained |= self.move_on(order, at, together, &mut looks);
                }
                if looks > LOOKS_MAX {
                    return;
                }
            }
        }
    }

    /// Moves these neighbours to where they cost least, if that is less than here.
    fn move_on(&self, order: &mut [usize], at: usize, together: usize, looks: &mut usize) -> bool {
        let behind = at + together;
        let before = at.checked_sub(1).map(|before| &order[before]);
        let (first, last, after) = (&order[at], &order[behind - 1], order.get(behind));
        let gain =
            self.between_s(before, Some(first)) + self.between_s(Some(last), after) - self.between_s(before, after);
        let mut best = (gain - GAIN_S_MIN, None);
        for to in at.saturating_sub(MOVE_MAX)..=(behind + MOVE_MAX).min(order.len()) {
            if (at..=behind).contains(&to) {
                continue;
            }
            *looks += 1;
            let (before, after) = (to.checked_sub(1).map(|before| &order[before]), order.get(to));
            let cost =
                self.between_s(before, Some(first)) + self.between_s(Some(last), after) - self.between_s(before, after);
            if cost < best.0 {
                best = (cost, Some(to));
            }
        }
        match best.1 {
            Some(to) if to < at => order[to..behind].rotate_right(together),
            Some(to) => order[at..to].rotate_left(together),
            None => return false,
        }
        true
    }
}
