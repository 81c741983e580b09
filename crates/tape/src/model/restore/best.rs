//! The best order of few stretches.

use super::Tour;

impl Tour<'_> {
    /// The order that takes least: for each set of stretches, and each of them as its last, the quickest way through it
    /// is a quickest way through the set without that last one, and a step.
    ///
    /// ```text
    ///  seconds(set, last) = min over the others, as the one before:  seconds(set without last, before) + between(before, last)
    /// ```
    /// Room for 2^n n figures: the caller bounds n.
    pub(super) fn best_of_all(&self) -> Vec<usize> {
        let count = self.stretches.len();
        let sets = 1usize << count;
        let mut ways = vec![Way { seconds: f64::INFINITY, before: None }; sets * count];
        for last in 0..count {
            ways[(1 << last) * count + last].seconds = self.between_s(None, Some(&last));
        }
        for set in 1..sets {
            for before in (0..count).filter(|before| set & (1 << before) != 0) {
                let seconds = ways[set * count + before].seconds;
                for last in (0..count).filter(|last| set & (1 << last) == 0) {
                    let way = &mut ways[(set | 1 << last) * count + last];
                    let longer = seconds + self.between_s(Some(&before), Some(&last));
                    if longer < way.seconds {
                        *way = Way { seconds: longer, before: Some(before) };
                    }
                }
            }
        }
        let mut set = sets - 1;
        let whole = |last: &usize| ways[set * count + last].seconds + self.between_s(Some(last), None);
        let mut last = (0..count).min_by(|a, b| whole(a).total_cmp(&whole(b)));
        let mut order = Vec::with_capacity(count);
        while let Some(stretch) = last {
            order.push(stretch);
            last = ways[set * count + stretch].before;
            set &= !(1 << stretch);
        }
        order.reverse();
        order
    }
}

/// The quickest way through a set to its last.
#[derive(Clone, Copy)]
struct Way {
    seconds: f64,
    before: Option<usize>,
}
