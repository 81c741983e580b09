//! A message: its subject, its text for people, and the same as JSON.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::way::TellWay;

/// Things that a message names one by one; how many more there are, it says.
pub const ITEMS_MAX: usize = 100;
/// Longest text of one thing, in characters.
const TEXT_MAX: usize = 2_000;
/// Longest subject, in characters.
const SUBJECT_MAX: usize = 150;

/// One thing in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellItem {
    /// The event, as the settings name it; `test` for a test.
    pub event: String,
    /// What it is known by.
    pub key: String,
    /// What it is, in a few words.
    pub subject: String,
    /// What it is, why, and what to do next.
    pub text: String,
    /// The policy that it is about; empty for none.
    pub policy: String,
    /// The client that it is about; empty for none.
    pub client: String,
    /// Its entry in the history.
    pub run: Option<i64>,
    /// Since when it is so, or when it happened, nanoseconds since 1970.
    pub since_ns: i64,
    /// Whether it ends when it is found no more.
    pub lasts: bool,
    /// Whether it was told before, and is over now.
    pub is_over: bool,
}

/// What one way of a rule is to carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellMessage {
    /// The rule, by its name in the settings.
    pub rule: String,
    /// The way.
    pub way: TellWay,
    /// What is told, the gravest first.
    pub items: Vec<TellItem>,
}

impl TellItem {
    fn headline(&self) -> String {
        let subject = one_line(&self.subject, SUBJECT_MAX);
        if self.is_over { format!("over: {subject}") } else { subject }
    }
}

impl TellMessage {
    /// A message that says only that it arrives.
    #[must_use]
    pub fn test(rule: &str, way: TellWay, now_ns: i64) -> Self {
        let item = TellItem {
            event: "test".to_owned(),
            key: "test".to_owned(),
            subject: format!("this is a test of rule {rule}"),
            text: format!(
                "Somebody ran `capstan server tell --test {rule}`. If you can read this, the rule works by {}. There is \
                 nothing to do.",
                way.name()
            ),
            policy: String::new(),
            client: String::new(),
            run: None,
            since_ns: now_ns,
            lasts: false,
            is_over: false,
        };
        Self { rule: rule.to_owned(), way, items: vec![item] }
    }

    /// How many things, and the first of them.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(first) = self.items.first() else { return String::new() };
        match self.items.len() {
            1 => first.headline(),
            many if self.items.iter().all(|item| item.is_over) => format!("{many} things are {}", first.headline()),
            many => format!("{many} things, first {}", first.headline()),
        }
    }

    /// The subject of a mail from a host.
    #[must_use]
    pub fn subject(&self, host: &str) -> String {
        format!("capstan {}: {}", one_line(host, SUBJECT_MAX), self.summary())
    }

    /// The text for people.
    #[must_use]
    pub fn text(&self, host: &str) -> String {
        let mut text = String::new();
        for (number, item) in self.items.iter().take(ITEMS_MAX).enumerate() {
            if self.items.len() > 1 {
                text += &format!("{}. ", number + 1);
            }
            let when = match (item.lasts, item.is_over) {
                (_, true) => "It is over. It had been so since",
                (true, false) => "Since",
                (false, false) => "At",
            };
            text += &format!("{}\n{when} {}\n", item.headline(), time_text(item.since_ns));
            if !item.text.is_empty() {
                text += &format!("{}\n", one_line(&item.text, TEXT_MAX));
            }
            text.push('\n');
        }
        if self.items.len() > ITEMS_MAX {
            text += &format!("... and {} more: `capstan status` lists all.\n\n", self.items.len() - ITEMS_MAX);
        }
        text + &format!(
            "--\nThe Capstan server on {host} sends this by rule {} of its capstan.toml.\n\
             `capstan status` shows what is to be done now, `capstan queue` what runs.\n",
            self.rule
        )
    }

    /// The same for programs.
    #[must_use]
    pub fn json(&self, host: &str) -> Value {
        let some = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let event = |item: &TellItem| {
            json!({
                "event": item.event, "subject": one_line(&item.subject, SUBJECT_MAX),
                "text": one_line(&item.text, TEXT_MAX), "policy": some(&item.policy), "client": some(&item.client),
                "run": item.run, "since_ns": item.since_ns, "is_over": item.is_over,
            })
        };
        json!({"host": host, "events": self.items.iter().map(event).collect::<Vec<_>>()})
    }

    /// The events that it has, each once, with commas between.
    #[must_use]
    pub fn events(&self) -> String {
        let mut events: Vec<&str> = Vec::new();
        for item in &self.items {
            if !events.contains(&item.event.as_str()) {
                events.push(&item.event);
            }
        }
        events.join(",")
    }
}

/// A time of the catalog, by the clock of this machine.
pub(super) fn time_text(ns: i64) -> String {
    let at = Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

/// A text without line breaks and other control characters, which a path may have: none of them may become a line of
/// its own in a mail.
fn one_line(text: &str, chars_max: usize) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(chars_max).collect();
    if line.chars().count() < text.chars().count() {
        line += " ...";
    }
    line
}
