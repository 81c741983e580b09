//! Which paths are left out.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::SourceError;

/// Patterns of what is left out. One with a slash is matched on the whole path as the object has it (a slash in front is
/// dropped), one without on the last component. `*` does not cross a slash, `**` does.
#[derive(Debug)]
pub(crate) struct Excludes {
    paths: Option<GlobSet>,
    names: Option<GlobSet>,
}

impl Excludes {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, SourceError> {
        let (mut paths, mut names) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let (mut path_count, mut name_count) = (0, 0);
        for pattern in patterns {
            let error = |reason| SourceError::Exclude { pattern: pattern.clone(), reason };
            let trimmed = pattern.strip_prefix('/').unwrap_or(pattern);
            let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
            let glob =
                GlobBuilder::new(trimmed).literal_separator(true).backslash_escape(true).build().map_err(error)?;
            if pattern.starts_with('/') || trimmed.contains('/') {
                paths.add(glob);
                path_count += 1;
            } else {
                names.add(glob);
                name_count += 1;
            }
        }
        let error = |reason| SourceError::Exclude { pattern: patterns.join(" "), reason };
        Ok(Self {
            paths: (path_count > 0).then(|| paths.build()).transpose().map_err(error)?,
            names: (name_count > 0).then(|| names.build()).transpose().map_err(error)?,
        })
    }

    /// Whether there is nothing to match.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_none() && self.names.is_none()
    }

    /// Whether a path is left out, given its last component too.
    pub(crate) fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        let matched = |set: &Option<GlobSet>, bytes| {
            set.as_ref().is_some_and(|set| set.is_match(Path::new(OsStr::from_bytes(bytes))))
        };
        matched(&self.names, name) || matched(&self.paths, path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn excluded(patterns: &[&str], path: &[u8]) -> bool {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap();
        Excludes::new(&patterns).unwrap().matches(path, name)
    }

    #[test]
    fn a_slash_decides_between_path_and_name() {
        assert!(excluded(&["*.o"], b"home/a/b.o"));
        assert!(excluded(&["/home/*/tmp"], b"home/a/tmp"));
        assert!(!excluded(&["/home/*"], b"home/a/tmp"), "* does not cross a slash");
        assert!(excluded(&["/home/**"], b"home/a/tmp"));
        assert!(excluded(&["cache/"], b"var/cache"));
        assert!(!excluded(&["/cache"], b"var/cache"));
        assert!(excluded(&["caf\\*"], b"caf*"));
        assert!(excluded(&["*.tmp"], b"not-utf8-\xff.tmp"));
        assert!(!excluded(&[], b"anything"));
    }

    #[test]
    fn a_broken_pattern_is_named() {
        let error = Excludes::new(&["a[".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("a["), "{error}");
    }
}
