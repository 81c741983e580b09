//! Errors, as RFC 9457 has them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::KeyMembers;

/// The media type of a [`Problem`].
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was refused: what the program is to do stands in `kind` and `status`, what the operator is to do in `detail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The id of the request that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The key and the volume that it is about, for problems of keys.
    #[serde(flatten)]
    pub about: Box<KeyMembers>,
}

impl Problem {
    /// A problem of one of our kinds; `name` is its last part, as in `not-found`.
    pub fn new(status: u16, name: &str, title: &str, detail: impl Into<String>) -> Self {
        let kind = format!("capstan:problem/{name}");
        let (title, detail) = (title.to_owned(), detail.into());
        Self { kind, title, status, detail, request: None, about: Box::default() }
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
