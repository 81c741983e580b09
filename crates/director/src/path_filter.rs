//! Which paths of what is restored are wanted, by patterns.

use capstan_mover::{PathPatterns, PatternError};
use capstan_tape::with_causes;

use crate::DirectorError;

/// What of the places of a restore is wanted: what `include` matches, if it has anything, and `exclude` does not.
#[derive(Debug, Default)]
pub struct PathFilter {
    include: PathPatterns,
    exclude: PathPatterns,
}

impl PathFilter {
    /// A filter of patterns as a backup's excludes have them.
    ///
    /// # Errors
    /// [`DirectorError::Glob`] names the pattern that is not one.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, DirectorError> {
        Ok(Self { include: patterns(include)?, exclude: patterns(exclude)? })
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether a path of a source passes; a directory that is left out leaves out what is below it.
    pub(crate) fn takes(&self, source: &[u8], path: &[u8]) -> bool {
        let included = self.include.is_empty() || self.include.matches_with_above(source, path);
        // Asked in any case, so that it is known which patterns match nothing.
        let excluded = self.exclude.matches_with_above(source, path);
        included && !excluded
    }

    /// Patterns that matched nothing in the plans that were made with this filter, as they stand on the command line.
    pub fn unused(&self) -> Vec<String> {
        let named = |option: &str, patterns: &PathPatterns| -> Vec<String> {
            patterns.unused().into_iter().map(|pattern| format!("--{option} {pattern}")).collect()
        };
        [named("include", &self.include), named("exclude", &self.exclude)].concat()
    }
}

/// A matcher of patterns, whose fault is the operator's.
pub(crate) fn patterns(patterns: &[String]) -> Result<PathPatterns, DirectorError> {
    PathPatterns::new(patterns).map_err(|error: PatternError| {
        let reason = with_causes(&error.reason);
        DirectorError::Glob { glob: error.pattern, reason }
    })
}

/// Refuses a pattern that is none, such as `[a`; without one.
///
/// # Errors
/// [`DirectorError::Glob`] names the pattern.
pub fn check_patterns(globs: &[String]) -> Result<(), DirectorError> {
    if globs.iter().any(String::is_empty) {
        return Err(DirectorError::Glob {
            glob: String::new(),
            reason: "it is empty, and leaves nothing out".to_owned(),
        });
    }
    patterns(globs).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_what_is_included_and_not_excluded() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let filter = PathFilter::new(&words(&["docs", "*.tex"]), &words(&["docs/old"])).expect("patterns");
        let takes = |path: &[u8]| filter.takes(b"srv/ex", path);
        assert!(takes(b"srv/ex/docs") && takes(b"srv/ex/docs/a") && takes(b"srv/ex/b/c.tex"));
        assert!(!takes(b"srv/ex/docs/old/a.tex") && !takes(b"srv/ex/b") && !takes(b"srv/ex"));
        assert!(PathFilter::default().takes(b"srv/ex", b"srv/ex"));
    }
}
