//! What was not looked at, and what is not known for lack of it.

use std::fmt;

use capstan_keys::Name;
use serde_json::{Value, json};

use super::Suspect;

/// Why something of a node was not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// It does not answer, or not what it was asked: why.
    Away(String),
    /// It waits to be unlocked.
    Locked,
    /// It was removed from the cluster.
    Removed,
    /// The older part of its log was taken away.
    Shortened {
        /// The first record that is left.
        begins_at: u64,
    },
    /// Keys of lost nodes that no volume has named yet: which volumes are under them is not known.
    Unnamed {
        /// How many.
        keys: usize,
    },
    /// It is the one that was asked, and knows what was so before it was cut off.
    CutOff,
}

impl Lack {
    /// What an error says.
    pub fn away(error: &dyn fmt::Display) -> Self {
        Self::Away(error.to_string())
    }

    /// Its name, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Away(_) => "away",
            Self::Locked => "locked",
            Self::Removed => "removed",
            Self::Shortened { .. } => "shortened",
            Self::Unnamed { .. } => "unnamed-keys",
            Self::CutOff => "cut-off",
        }
    }
}

/// A node of which something was not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Which.
    pub kma: Name,
    /// Why.
    pub lack: Lack,
}

impl Unread {
    /// Whether keys may be exposed that are not listed for lack of it. A node that is suspected knows every key,
    /// whatever its log says.
    pub fn hides(&self, suspect: &Suspect) -> bool {
        matches!(self.lack, Lack::CutOff | Lack::Unnamed { .. }) || matches!(suspect, Suspect::Agent { .. })
    }

    /// What is missing, and what to do.
    pub fn words(&self, suspect: &Suspect) -> String {
        let (kma, why) = (&self.kma, self.why());
        if self.lack == Lack::CutOff {
            return format!("{why}. Ask a node that is in touch");
        }
        if let Lack::Unnamed { .. } = self.lack {
            return format!(
                "{why}. Read each volume once that was written through a lost node while it was cut off, confirm its key, and ask again"
            );
        }
        let Suspect::Agent { name, .. } = suspect else {
            return format!(
                "{why}: every key is counted all the same, but not said which of them {kma} handed out itself"
            );
        };
        let then = match self.lack {
            Lack::Away(_) | Lack::CutOff | Lack::Unnamed { .. } => {
                "See that it runs and is unlocked, and ask again".to_owned()
            }
            Lack::Locked => "Unlock it (`keyd unlock`), and ask again".to_owned(),
            Lack::Removed | Lack::Shortened { .. } => format!(
                "If you have the files of its log (audit/*.jsonl of its state directory), `grep agent/{name}` finds the keys in them: \
                 `keyd exposure --key TAG`, for each. If not, count all data units of the groups that {name} may use as exposed"
            ),
        };
        format!("{why}: what {name} got there to read or append with is missing. {then}")
    }

    fn why(&self) -> String {
        let kma = &self.kma;
        match &self.lack {
            Lack::Away(why) => format!("the audit log of node {kma} was not read ({why})"),
            Lack::Locked => format!("node {kma} is locked, and its audit log was not read"),
            Lack::Removed => format!("node {kma} was removed, and its audit log is asked for no more"),
            Lack::Shortened { begins_at } => {
                format!(
                    "the audit log of node {kma} begins with record {begins_at}, and what stood before was taken away"
                )
            }
            Lack::Unnamed { keys } => format!(
                "{keys} keys of lost nodes (`keyd keys recovered`) were named by no volume yet, and which volumes are under them is not known"
            ),
            Lack::CutOff => format!(
                "node {kma} is cut off from the majority: what was issued elsewhere since, and nodes that came since, are not known to it"
            ),
        }
    }

    /// The same for programs.
    pub fn to_json(&self, suspect: &Suspect) -> Value {
        json!({ "kma": self.kma, "lack": self.lack.name(), "words": self.words(suspect) })
    }
}
