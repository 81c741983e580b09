//! Errors, as RFC 9457 has them.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The media type of a [`Problem`].
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was refused: what the program is to do stands in `kind` and `status`, what the operator is to do in
/// `detail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Which kind of problem: `capstan:problem/...`, the same for ever, for programs.
    #[serde(rename = "type", default = "Problem::blank")]
    pub kind: String,
    /// The kind in words, always the same for one kind.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// What is the matter this time and what to do next.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// What a program may want of it, by name: `tag`, `volume`, `destroyed_ns`.
    #[serde(flatten, default, deserialize_with = "words")]
    pub members: Box<BTreeMap<String, String>>,
    /// The id of the request that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl Problem {
    /// A problem of one of our kinds; `name` is its last part, as in `not-found`.
    pub fn new(status: u16, name: &str, title: &str, detail: impl Into<String>) -> Self {
        let kind = format!("capstan:problem/{name}");
        Self { kind, title: title.to_owned(), status, detail: detail.into(), request: None, members: Box::default() }
    }

    /// The same with one more member.
    pub fn with(mut self, name: &str, value: &impl ToString) -> Self {
        self.members.insert(name.to_owned(), value.to_string());
        self
    }

    /// Whether it is of the kind with this last part.
    pub fn is(&self, name: &str) -> bool {
        self.name() == Some(name)
    }

    /// The last part of its kind, if it is one of ours.
    pub(super) fn name(&self) -> Option<&str> {
        self.kind.strip_prefix("capstan:problem/")
    }

    fn blank() -> String {
        "about:blank".to_owned()
    }
}

/// Members that are words. Others are a later release's, and nobody here asks for them.
#[allow(clippy::box_collection, reason = "keeps a problem below the size at which errors are boxed")]
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<BTreeMap<String, String>>, D::Error> {
    let members = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let word = |(name, value)| match value {
        Value::String(word) => Some((name, word)),
        _ => None,
    };
    Ok(Box::new(members.into_iter().filter_map(word).collect()))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.title.as_str(), self.detail.as_str()) {
            ("", "") => write!(f, "status {}", self.status),
            (title, "") => write!(f, "{title}"),
            ("", detail) => write!(f, "{detail}"),
            (title, detail) => write!(f, "{title}: {detail}"),
        }
    }
}
