//! Paths as the catalog keeps them.

use std::os::unix::ffi::OsStrExt;

use crate::DirectorError;

/// A path as indexes keep it: no leading or trailing slash, no `.` components.
pub fn index_path(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && part != b".");
    parts.collect::<Vec<_>>().join(&b'/')
}

/// Whether a path matches a pattern: on the whole path if the pattern has a slash, else on the last component.
///
/// # Errors
/// [`DirectorError::Glob`] if the pattern is not one.
pub fn path_pattern(glob: &str) -> Result<Box<capstan_catalog::PathPredicate<'static>>, DirectorError> {
    let whole = glob.contains('/');
    let pattern = glob.trim_start_matches('/');
    let built = globset::GlobBuilder::new(pattern).literal_separator(whole).build();
    let matcher = built.map_err(|error| DirectorError::Glob { glob: glob.to_owned(), reason: error.to_string() })?;
    let matcher = matcher.compile_matcher();
    Ok(Box::new(move |path: &[u8]| {
        let name = if whole { path } else { path.rsplit(|&byte| byte == b'/').next().unwrap_or(path) };
        matcher.is_match(std::path::Path::new(std::ffi::OsStr::from_bytes(name)))
    }))
}

/// Where the directories above a path end.
pub(crate) fn ends_above(path: &[u8]) -> impl Iterator<Item = usize> {
    path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_paths_have_no_slashes_at_their_ends() {
        assert_eq!(index_path(b"/usr//share/./doc/"), b"usr/share/doc");
        assert_eq!(index_path(b"/"), b"");
        assert_eq!(index_path(b"a"), b"a");
    }
}
