//! Which object is the latest: a pure function of ids and bases.
//!
//! Ids stand in the order of recording ([`timeline`](crate::timeline)), and the clock has no say. Where the chain says
//! otherwise the chain is right: an object is older than whatever stands on it, however late its id. That is so in
//! catalogs of versions that ordered by the clock, and where volumes came back that nobody knew of when later objects
//! were made.

use std::collections::HashMap;

use capstan_format::ObjectId;

/// Sorts objects, the latest first: each before what it stands on, else the one that was recorded later. `chain` gives
/// an object's id and that of its base.
pub(crate) fn rank<T>(objects: &mut [T], chain: impl Fn(&T) -> (ObjectId, Option<ObjectId>)) {
    objects.sort_unstable_by_key(|object| std::cmp::Reverse(chain(object).0));
    let mut keys: HashMap<_, u128> =
        objects.iter().map(|object| (chain(object).0, u128::from_be_bytes(chain(object).0.0))).collect();
    let mut moved = false;
    // Descendants come first in the order of recording, so one pass is enough but where a chain contradicts it. A chain
    // that leads back to itself was made up; it ends with the passes.
    for _ in 0..objects.len() {
        let mut changed = false;
        for object in objects.iter() {
            let (id, Some(base)) = chain(object) else { continue };
            let limit = keys[&id].saturating_sub(1);
            if let Some(key) = keys.get_mut(&base).filter(|key| **key > limit) {
                *key = limit;
                changed = true;
            }
        }
        if !changed {
            break;
        }
        moved = true;
    }
    if moved {
        objects.sort_by_key(|object| std::cmp::Reverse(keys[&chain(object).0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects by number and base, ranked.
    fn ranked(objects: &[(u8, u8)]) -> Vec<u8> {
        let id = |number| ObjectId([number; 16]);
        let mut objects = objects.to_vec();
        rank(&mut objects, |(number, base)| (id(*number), (*base > 0).then(|| id(*base))));
        objects.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn the_one_recorded_last_is_the_latest() {
        assert_eq!(ranked(&[(1, 0), (4, 0), (2, 1), (3, 0)]), [4, 3, 2, 1]);
        assert!(ranked(&[]).is_empty());
    }

    #[test]
    fn what_stands_on_an_object_is_later_than_that() {
        // 9 is of 2030, as its clock said; 3 and 4 were made on it when the clock was right again.
        assert_eq!(ranked(&[(1, 0), (9, 1), (3, 9), (4, 9)]), [4, 3, 9, 1]);
        assert_eq!(ranked(&[(1, 0), (9, 0), (3, 9), (4, 0)]), [4, 3, 9, 1]);
        // The whole chain goes along.
        assert_eq!(ranked(&[(9, 0), (8, 9), (2, 8), (3, 0)]), [3, 2, 8, 9]);
    }

    #[test]
    fn a_base_that_is_not_there_and_a_made_up_circle_do_no_harm() {
        assert_eq!(ranked(&[(1, 7), (2, 1)]), [2, 1]);
        assert_eq!(ranked(&[(5, 6), (6, 5), (1, 0)]).len(), 3);
    }
}
