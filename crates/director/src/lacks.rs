//! Which copies are mended, by who mends them and why.

/// Which copies that lack something are mended.
#[derive(Clone, Copy)]
pub(crate) enum Lacks<'a> {
    /// All.
    All,
    /// Those that no policy of copies makes.
    NotOfPolicies,
    /// Those of one pool, in the library that was chosen for it.
    OfPool(&'a str),
    /// The same; whoever asks for it has planned them already.
    Owed(&'a str),
}

impl<'a> Lacks<'a> {
    /// The pool, where it is one alone.
    pub(crate) fn pool(self) -> Option<&'a str> {
        match self {
            Self::All | Self::NotOfPolicies => None,
            Self::OfPool(pool) | Self::Owed(pool) => Some(pool),
        }
    }
}
