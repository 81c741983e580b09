//! What was measured before something failed or was stopped.

use std::fmt;

/// Why a measurement of several ways ended early, and what was found until then.
#[derive(Debug)]
pub struct Unfinished<T, E> {
    /// What was found; none if no way was measured to its end.
    pub found: Option<Box<T>>,
    /// Why it ended.
    pub error: E,
}

impl<T, E> From<E> for Unfinished<T, E> {
    fn from(error: E) -> Self {
        Self { found: None, error }
    }
}

impl<T, E: fmt::Display> fmt::Display for Unfinished<T, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl<T: fmt::Debug, E: std::error::Error> std::error::Error for Unfinished<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// What was measured way by way: all of it, or the reason why it ended early with what was found until then.
pub(crate) fn ended<T, E>(found: T, is_empty: bool, failed: Option<E>) -> Result<T, Unfinished<T, E>> {
    match failed {
        None => Ok(found),
        Some(error) => Err(Unfinished { found: (!is_empty).then(|| Box::new(found)), error }),
    }
}
