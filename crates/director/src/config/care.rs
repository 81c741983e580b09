//! Policies that look after the volumes of pools, and back up nothing.

use super::job::{JobConfig, Wrong, parse_age};

/// Bounds of `reclaim_below`, in percent.
const BELOW_MAX: u8 = 95;

/// Characters in the name of a vault.
const NAME_MAX: usize = 60;

/// Where a policy has volumes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VaultRule {
    pub(crate) vault: String,
    /// How old the oldest on a volume is when it goes before it is full.
    pub(crate) after_ns: Option<i64>,
}

/// What is wrong with the name of a vault, if anything is.
pub(crate) fn check_vault(name: &str) -> Result<(), String> {
    if name.trim().is_empty() || name.trim() != name {
        return Err("the name of a vault is a word or several, without spaces around them".to_owned());
    }
    if name.chars().any(char::is_control) || name.chars().count() > NAME_MAX {
        return Err(format!("the name of a vault is one line of up to {NAME_MAX} characters"));
    }
    Ok(())
}

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
            || !self.retire_generations.is_empty()
            || self.vault.is_some();
        if !is_something_done {
            return wrong(
                "care_of",
                "nothing is done: set scrub_one_in, reclaim_below, reclaim_suspect, retire_generations or vault",
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
        if let Some(Err(reason)) = self.vault.as_deref().map(check_vault) {
            return Err((Some("vault"), reason));
        }
        if self.vault_after.is_some() && self.vault.is_none() {
            return wrong("vault_after", "it is for volumes that go to a vault: set vault");
        }
        if let Some(Err(reason)) = self.vault_after.as_deref().map(parse_age) {
            return Err((Some("vault_after"), reason));
        }
        Ok(())
    }

    /// Where the volumes go that it looks after, if they are to leave.
    pub(crate) fn vault_rule(&self) -> Option<VaultRule> {
        let after_ns = self.vault_after.as_deref().and_then(|text| parse_age(text).ok());
        self.vault.clone().map(|vault| VaultRule { vault, after_ns })
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
            ("vault", self.vault.is_some()),
            ("vault_after", self.vault_after.is_some()),
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
        assert_eq!(policy("care_of = [\"a\"]\nvault = \"Iron hill\"\nvault_after = \"7d\""), Ok(()));
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
            ("care_of = [\"a\"]\nvault = \" hill\"".to_owned(), "vault", "without spaces around"),
            (format!("{whole}vault_after = \"7d\""), "vault_after", "set vault"),
            (format!("{whole}vault = \"hill\"\nvault_after = \"soon\""), "vault_after", "soon"),
            ("care_of = [\"a\"]\nreclaim_below = 9\nscrub_place = 8".to_owned(), "scrub_place", "set scrub_one_in"),
            ("sources = [\"/etc\"]\nreclaim_below = 30".to_owned(), "reclaim_below", "set care_of"),
        ] {
            let (at, reason) = policy(&text).unwrap_err();
            assert_eq!(at, Some(key), "{text}");
            assert!(reason.contains(said), "{text}: {reason}");
        }
        assert!(toml::from_str::<JobConfig>("care_of = []").unwrap_err().to_string().contains("it is empty"));
    }

    #[test]
    fn a_vault_is_named_in_one_line() {
        assert_eq!(check_vault("Iron hill"), Ok(()));
        for wrong in ["", " ", "hill ", "a\nb", &"x".repeat(61)] {
            assert!(check_vault(wrong).is_err(), "{wrong:?}");
        }
    }
}
