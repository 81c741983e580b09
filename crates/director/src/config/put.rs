//! Jobs and policies for what somebody stores by name: they read nothing themselves, and say where it goes and how
//! long it is kept.

use capstan_mover::PathPatterns;
use capstan_tape::with_causes;

use super::job::{JobConfig, Wrong};

/// Settings of a backup that such a one may have.
const ALLOWED: [&str; 4] = ["copies", "compression", "lock", "wait"];

impl JobConfig {
    /// Whether it is for what somebody stores by name, and reads nothing itself.
    pub fn takes_puts(&self) -> bool {
        !self.put_names.is_empty()
    }

    /// Whether what is stored under a name is its own.
    pub fn takes_name(&self, name: &str) -> bool {
        self.takes_puts() && PathPatterns::new(&self.put_names).is_ok_and(|names| names.matches(b"/", name.as_bytes()))
    }

    /// What is wrong with one that stores by name, if anything is.
    pub(super) fn check_put(&self) -> Result<(), Wrong> {
        if let Err(error) = PathPatterns::new(&self.put_names) {
            return Err((Some("put_names"), with_causes(&error)));
        }
        let timing = self.timing_keys();
        let others = self.backup_keys().filter(|(key, _)| !ALLOWED.contains(key)).chain(timing);
        if let Some((key, _)) = others.into_iter().find(|(_, is_set)| *is_set) {
            let reason = "with put_names it stores what `capstan put` brings, whenever that is: it has no sources and \
                          no times. Remove one of them";
            return Err((Some(key), reason.to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn policy(text: &str) -> JobConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn names_are_taken_by_their_patterns() {
        let logs = policy("put_names = [\"*.log\", \"dumps/**\"]");
        for name in ["app.log", "web/access.log", "dumps/shop.sql", "dumps/2026/shop.sql"] {
            assert!(logs.takes_name(name), "{name}");
        }
        for name in ["app.txt", "shop.sql", "app.log.1"] {
            assert!(!logs.takes_name(name), "{name}");
        }
        assert!(!policy("sources = [\"/etc\"]").takes_name("app.log"));
    }

    #[test]
    fn what_reads_nothing_has_no_sources_and_no_times() {
        let whole =
            "put_names = [\"*\"]\nunit = \"disk\"\npool = \"logs\"\nretention = \"30d\"\ncopies = 2\nlock = true";
        assert_eq!(policy(whole).check_policy("logs"), Ok(()));
        let wrong = [
            ("sources = [\"/etc\"]", "sources"),
            ("schedule = \"daily\"", "schedule"),
            ("clients = [\"tern\"]", "clients"),
            ("stage = \"disk\"", "stage"),
            ("before = [\"x\"]", "before"),
        ];
        for (line, key) in wrong {
            let (at, reason) = policy(&format!("put_names = [\"*\"]\n{line}")).check_policy("logs").unwrap_err();
            assert!(at == Some(key) && reason.contains("capstan put"), "{at:?} {reason}");
        }
        let (at, _) = policy("put_names = [\"a[\"]").check_policy("logs").unwrap_err();
        assert_eq!(at, Some("put_names"));
        assert!(toml::from_str::<JobConfig>("put_names = []").is_err());
    }
}
