//! The ways by which a rule tells.

use capstan_director::TellRule;

/// A way by which a rule tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TellWay {
    /// Mail.
    Mail,
    /// JSON, posted.
    Webhook,
    /// A program with JSON on its standard input.
    Command,
}

impl TellWay {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Webhook => "webhook",
            Self::Command => "command",
        }
    }

    /// The ways that a rule has.
    pub fn of(rule: &TellRule) -> impl Iterator<Item = Self> + use<> {
        let ways = [
            (Self::Mail, !rule.mail.is_empty()),
            (Self::Webhook, !rule.webhook.is_empty()),
            (Self::Command, !rule.command.is_empty()),
        ];
        ways.into_iter().filter(|(_, has)| *has).map(|(way, _)| way)
    }
}
