//! A question that another program hands on, as words.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Parser, Subcommand};

use crate::audit::AuditShown;
use crate::backups::BackupsKnown;
use crate::commands::People;
use crate::outcome::{Completeness, Sealing};
use crate::program;

/// What a person asks of a key cluster.
#[derive(Debug, Parser)]
#[command(name = "keys", bin_name = "capstan keys", no_binary_name = true, max_term_width = 120)]
pub struct Question {
    #[command(subcommand)]
    asked: Asked,
}

#[derive(Debug, Subcommand)]
enum Asked {
    #[command(flatten)]
    People(People),
    /// The audit logs of the nodes
    #[command(subcommand)]
    Audit(AuditShown),
    /// The database backups that are known
    #[command(subcommand)]
    Backups(BackupsKnown),
}

impl Question {
    /// Reads a question. The identity and the nodes are those that the caller knows, and `json` is whether it wants
    /// JSON; what the words say of these holds instead. Whoever hands words on is `capstan keys`, and messages name its
    /// commands from then on.
    ///
    /// # Errors
    /// The words make no sense, or they ask for help: clap says which, and prints it.
    pub fn parse_words(
        mut words: Vec<OsString>,
        identity: Option<&Path>,
        nodes: &[String],
        json: bool,
    ) -> Result<Self, clap::Error> {
        program::speak_for_capstan();
        let says = |words: &[OsString], option: &str| words.iter().any(|word| is_option(word, option));
        let mut options = Vec::new();
        if let Some(identity) = identity.filter(|_| !says(&words, "--identity")) {
            let mut option = OsString::from("--identity=");
            option.push(identity);
            options.push(option);
        }
        // Whoever sets the variable means other nodes than those of the settings.
        if !says(&words, "--node") && std::env::var_os("KEYD_NODE").is_none() {
            options.push(format!("--node={}", nodes.join(",")).into());
        }
        if json && !says(&words, "--json") {
            options.push("--json".into());
        }
        if !Self::is_help(&words) {
            // What is behind `--` is no option.
            let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
            words.splice(end..end, options);
        }
        Self::try_parse_from(words)
    }

    /// Whether words ask for help, and so nothing of a node.
    #[must_use]
    pub fn is_help(words: &[OsString]) -> bool {
        words.iter().any(|word| word == "--help" || word == "-h") || words.get(1).is_some_and(|word| word == "help")
    }

    /// Asks, and says the answer.
    ///
    /// # Errors
    /// No node answers, the node refuses, or a file cannot be read or written. The text says what to do.
    pub fn run(self, sealing: Sealing) -> anyhow::Result<Completeness> {
        match self.asked {
            Asked::People(people) => return people.run(sealing),
            Asked::Audit(audit) => audit.run(),
            Asked::Backups(backups) => backups.run(),
        }
        .map(|()| Completeness::Whole)
    }
}

/// Whether a word is this option, alone or with its value.
fn is_option(word: &OsStr, option: &str) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn parsed(words: &str, identity: Option<&str>) -> Result<Question, clap::Error> {
        let words = words.split(' ').map(OsString::from).collect();
        Question::parse_words(words, identity.map(Path::new), &["one:1".to_owned(), "two:2".to_owned()], true)
    }

    fn asking(question: &Question) -> (&Path, &[String]) {
        let Asked::People(People::Users(crate::users::UsersCommand::List(ask))) = &question.asked else {
            panic!("{question:?} asks for something else")
        };
        (&ask.asking.identity, &ask.asking.node)
    }

    #[test]
    fn what_the_caller_knows_is_added_and_what_the_words_say_holds() {
        let question = parsed("users list", Some("-me.pem")).unwrap();
        assert_eq!(asking(&question), (Path::new("-me.pem"), &["one:1".to_owned(), "two:2".to_owned()][..]));
        let question = parsed("users list --identity=other.pem --node three:3", Some("me.pem")).unwrap();
        assert_eq!(asking(&question), (Path::new("other.pem"), &["three:3".to_owned()][..]));
    }

    #[test]
    fn what_makes_no_sense_is_told_with_the_words_that_were_typed() {
        let error = parsed("users lst", Some("me.pem")).unwrap_err();
        assert!(error.to_string().contains("lst"), "{error}");
        assert!(error.exit_code() == 2);
        for words in ["pending --help", "pending -h", "pending help", "pending help show"] {
            let help = parsed(words, Some("me.pem")).unwrap_err();
            assert!(
                help.exit_code() == 0 && help.to_string().contains("Usage: capstan keys pending"),
                "{words}: {help}"
            );
        }
        assert_eq!(program::command("pending list"), "`capstan keys pending list`");
        let behind = parsed("exports confirm-destroyed -- 00", Some("me.pem"));
        assert!(behind.is_ok(), "no option goes behind the dashes: {behind:?}");
    }

    #[test]
    fn every_command_is_well_formed() {
        use clap::CommandFactory;
        Question::command().debug_assert();
    }
}
