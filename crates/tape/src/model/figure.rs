//! A figure and where it comes from.

use serde::{Deserialize, Deserializer, de};

/// Where a figure comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A data sheet, a manual or a standard says so.
    Sourced(String),
    /// It follows from others that do.
    Derived(String),
    /// It is an estimate, for this reason.
    Estimate(String),
}

/// A figure with its origin: `{ value = 120, sourced = "data sheet" }`.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure<T> {
    /// The figure.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<T> {
    value: T,
    sourced: Option<String>,
    derived: Option<String>,
    estimate: Option<String>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Figure<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { value, sourced, derived, estimate } = Written::deserialize(deserializer)?;
        let origin = match (sourced, derived, estimate) {
            (Some(text), None, None) => Origin::Sourced(text),
            (None, Some(text), None) => Origin::Derived(text),
            (None, None, Some(text)) => Origin::Estimate(text),
            _ => return Err(de::Error::custom("a figure has one origin: `sourced`, `derived` or `estimate`")),
        };
        Ok(Self { value, origin })
    }
}
