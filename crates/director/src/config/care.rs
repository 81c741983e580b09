//! Policies that look after the volumes of pools, and back up nothing.

use super::job::{JobConfig, Wrong};

/// Bounds of `reclaim_below`, in percent.
const BELOW_MAX: u8 = 95;

impl JobConfig {
    /// Whether it looks after volumes, and backs up nothing itself.
    pub fn is_of_care(&self) -> bool {
        !self.care_of.is_empty()
    }

    /// Whether it makes backups: others copy those, or look after volumes.
    pub fn makes_backups(&self) -> bool {
        !self.is_of_copies() && !self.is_of_care()
    }

    /// What is wrong with a policy that looks after volumes, if anything is.
    pub(super) fn check_care(&self) -> Result<(), Wrong> {
        let wrong = |key: &'static str, reason: &str| Err((Some(key), reason.to_owned()));
        let others = [
            ("copies_of", self.is_of_copies()),
            ("pool", self.pool.is_some()),
            ("retention", self.retention.is_some()),
            ("keep", self.keep.is_some()),
        ];
        let others = others.into_iter().chain(self.copying_keys()).chain(self.backup_keys());
        if let Some((key, _)) = others.into_iter().find(|(_, is_set)| *is_set) {
            return wrong(key, "a policy with care_of makes neither backups nor copies: remove one of them");
        }
        for (number, pool) in self.care_of.iter().enumerate() {
            if self.care_of[..number].contains(pool) {
                return Err((Some("care_of"), format!("pool {pool} is named twice")));
            }
        }
        let is_something_done = self.scrub_one_in.is_some()
            || self.reclaim_below.is_some()
            || self.reclaim_suspect == Some(true)
            || !self.retire_generations.is_empty();
        if !is_something_done {
            return wrong(
                "care_of",
                "nothing is done: set scrub_one_in, reclaim_below, reclaim_suspect or retire_generations",
            );
        }
        if self.scrub_one_in.is_some_and(|one_in| one_in < 2) {
            return wrong(
                "scrub_one_in",
                "must be at least 2: 10000 has enough read to say that fewer than 1 block in \
                          10,000 is bad",
            );
        }
        if self.scrub_place.is_some() && self.scrub_one_in.is_none() {
            return wrong("scrub_place", "it is for samples, and none is read: set scrub_one_in");
        }
        if self.scrub_place == Some(0) {
            return wrong("scrub_place", "must be at least 1");
        }
        if self.reclaim_below.is_some_and(|percent| !(1..=BELOW_MAX).contains(&percent)) {
            let reason = format!("must be between 1 and {BELOW_MAX}, in percent: the share of a volume that is needed");
            return Err((Some("reclaim_below"), reason));
        }
        if self.reclaim_max == Some(0) {
            return wrong("reclaim_max", "must be at least 1; leave it out for no bound");
        }
        Ok(())
    }

    /// The settings that only care of volumes has, and whether each is set.
    pub(super) fn care_keys(&self) -> impl Iterator<Item = (&'static str, bool)> {
        [
            ("care_of", self.is_of_care()),
            ("scrub_one_in", self.scrub_one_in.is_some()),
            ("scrub_place", self.scrub_place.is_some()),
            ("reclaim_below", self.reclaim_below.is_some()),
            ("reclaim_suspect", self.reclaim_suspect.is_some()),
            ("reclaim_max", self.reclaim_max.is_some()),
            ("retire_generations", !self.retire_generations.is_empty()),
        ]
        .into_iter()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn what_is_wrong_with_care_is_named_by_its_setting() {
        let whole = "care_of = [\"vault\"]\nscrub_one_in = 1000\n";
        let policy = |text: &str| toml::from_str::<JobConfig>(text).unwrap().check_policy("care");
        assert_eq!(policy(whole), Ok(()));
        assert_eq!(policy("care_of = [\"a\", \"b\"]\nretire_generations = [\"LTO-6\"]\nreclaim_max = 2"), Ok(()));
        for (text, key, said) in [
            ("care_of = [\"vault\"]".to_owned(), "care_of", "nothing is done"),
            (format!("{whole}sources = [\"/etc\"]"), "sources", "neither backups nor copies"),
            (format!("{whole}copies_of = [\"nightly\"]"), "copies_of", "neither backups nor copies"),
            (format!("{whole}pool = \"vault\""), "pool", "neither backups nor copies"),
            (format!("{whole}migrate_after = \"7d\""), "migrate_after", "neither backups nor copies"),
            (format!("{whole}reclaim_below = 0"), "reclaim_below", "between 1 and 95"),
            (format!("{whole}reclaim_max = 0"), "reclaim_max", "at least 1"),
            ("care_of = [\"a\", \"a\"]\nreclaim_below = 30".to_owned(), "care_of", "named twice"),
            ("care_of = [\"a\"]\nscrub_one_in = 1".to_owned(), "scrub_one_in", "at least 2"),
            ("care_of = [\"a\"]\nreclaim_below = 9\nscrub_place = 8".to_owned(), "scrub_place", "set scrub_one_in"),
            ("sources = [\"/etc\"]\nreclaim_below = 30".to_owned(), "reclaim_below", "set care_of"),
        ] {
            let (at, reason) = policy(&text).unwrap_err();
            assert_eq!(at, Some(key), "{text}");
            assert!(reason.contains(said), "{text}: {reason}");
        }
        assert!(toml::from_str::<JobConfig>("care_of = []").unwrap_err().to_string().contains("it is empty"));
    }
}
