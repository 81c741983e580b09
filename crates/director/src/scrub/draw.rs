//! Places of volumes, and drawing some of them at random.

use std::collections::BTreeSet;
use std::ops::Range;

use capstan_mover::joined;
use fastrand::Rng;

/// Blocks of a volume that are cut into places of equal length, but for the last.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// In the order of the tape, without overlap.
    blocks: Vec<Range<u64>>,
    /// How many blocks stand in front of each of these.
    before: Vec<u64>,
    /// How many there are in all.
    count: u64,
    /// Blocks of a place.
    len: u64,
}

impl Places {
    pub(crate) fn new(mut blocks: Vec<Range<u64>>, len: u32) -> Self {
        blocks.retain(|range| !range.is_empty());
        let blocks = joined(blocks);
        let (mut before, mut count) = (Vec::with_capacity(blocks.len()), 0);
        for range in &blocks {
            before.push(count);
            count += range.end - range.start;
        }
        Self { blocks, before, count, len: u64::from(len.max(1)) }
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> u64 {
        self.count
    }

    /// How many places there are.
    pub(crate) fn places(&self) -> u64 {
        self.count.div_ceil(self.len)
    }

    /// The blocks of a place: several runs where others stand between them; none behind the last place.
    pub(crate) fn of(&self, place: u64) -> Vec<Range<u64>> {
        let mut at = place.saturating_mul(self.len).min(self.count);
        let end = at.saturating_add(self.len).min(self.count);
        let mut found = Vec::new();
        while at < end {
            let number = self.before.partition_point(|before| *before <= at) - 1;
            let run = &self.blocks[number];
            let first = run.start + (at - self.before[number]);
            let taken = (end - at).min(run.end - first);
            found.push(first..first + taken);
            at += taken;
        }
        found
    }
}

/// Numbers that were drawn, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// All of so many.
    All(u64),
    /// These.
    Some(Vec<u64>),
}

impl Drawn {
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::All(count) => *count,
            Self::Some(numbers) => numbers.len() as u64,
        }
    }

    pub(crate) fn numbers(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::All(count) => Box::new(0..*count),
            Self::Some(numbers) => Box::new(numbers.iter().copied()),
        }
    }
}

/// Draws so many of `all` numbers, each set of them as likely as every other one (Floyd's way); all, where there are
/// no more.
pub(crate) fn draw(all: u64, wanted: u64, random: &mut Rng) -> Drawn {
    if wanted >= all {
        return Drawn::All(all);
    }
    let mut drawn = BTreeSet::new();
    for last in all - wanted..all {
        let number = random.u64(0..=last);
        if !drawn.insert(number) {
            drawn.insert(last);
        }
    }
    Drawn::Some(drawn.into_iter().collect())
}

/// The same numbers, for parts of so many each that stand behind one another: each part's own, from 0.
pub(crate) fn apart(drawn: &Drawn, parts: &[u64]) -> Vec<Drawn> {
    let Drawn::Some(numbers) = drawn else { return parts.iter().map(|count| Drawn::All(*count)).collect() };
    let (mut before, mut at) = (0, 0);
    let own = |count: &u64| {
        let end = before + count;
        let first = at;
        at += numbers[first..].partition_point(|number| *number < end);
        let own = numbers[first..at].iter().map(|number| number - before).collect();
        before = end;
        Drawn::Some(own)
    };
    parts.iter().map(own).collect()
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;

    #[test]
    fn places_are_cut_from_what_is_there() {
        let places = Places::new(vec![20..23, 5..9, 9..12, 30..30], 4);
        assert_eq!((places.blocks(), places.places()), (10, 3));
        assert_eq!(places.of(0), [5..9]);
        assert_eq!(places.of(1), [9..12, 20..21]);
        assert_eq!(places.of(2), [21..23]);
        assert!(places.of(3).is_empty());
        assert_eq!(Places::new(Vec::new(), 1).places(), 0);
        let single = Places::new(vec![7..9], 1);
        assert_eq!((single.of(0), single.of(1)), (vec![7..8], vec![8..9]));
    }

    #[test]
    fn each_is_as_likely_to_be_drawn_as_every_other_one() {
        const ROUNDS: u32 = 20_000;
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let mut met = [0u32; 10];
        for _ in 0..ROUNDS {
            let drawn = draw(10, 3, &mut random);
            assert_eq!(drawn.count(), 3);
            drawn.numbers().for_each(|number| met[number as usize] += 1);
        }
        // Six standard deviations: less than one in ten million runs is off by more.
        let (mean, deviation) = (f64::from(ROUNDS) * 0.3, (f64::from(ROUNDS) * 0.3 * 0.7).sqrt());
        for count in met {
            assert!((f64::from(count) - mean).abs() < 6.0 * deviation, "{met:?}");
        }
        assert_eq!(draw(3, 7, &mut random), Drawn::All(3));
    }

    #[test]
    fn what_is_drawn_of_all_is_drawn_of_parts() {
        let drawn = Drawn::Some(vec![0, 3, 4, 9]);
        let own = |numbers: &[u64]| Drawn::Some(numbers.to_vec());
        assert_eq!(apart(&drawn, &[4, 0, 1, 4, 1]), [own(&[0, 3]), own(&[]), own(&[0]), own(&[]), own(&[0])]);
        assert_eq!(apart(&Drawn::All(5), &[2, 3]), [Drawn::All(2), Drawn::All(3)]);
    }
}
