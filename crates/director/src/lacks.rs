//! Which copies are mended, by who mends them and why; and which of them policies make.

use capstan_catalog::Object;

use crate::DirectorError;
use crate::config::JobConfig;
use crate::site::Site;

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

/// Which copies policies make.
pub(crate) struct CopiesOfPolicies(Vec<JobConfig>);

impl CopiesOfPolicies {
    /// Whether one of them makes a copy of an object in a pool.
    pub(crate) fn make(&self, object: &Object, pool: &str) -> bool {
        self.0.iter().any(|job| job.copies_to(pool, &object.policy))
    }
}

impl Site {
    /// Which copies the policies of copies make.
    pub(crate) fn copies_of_policies(&self) -> Result<CopiesOfPolicies, DirectorError> {
        let policies = self.policies()?;
        let own = policies.iter().filter(|policy| policy.config.is_of_copies());
        Ok(CopiesOfPolicies(own.map(|policy| policy.config.clone()).collect()))
    }
}
