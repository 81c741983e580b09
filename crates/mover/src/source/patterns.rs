//! Patterns on the paths of a source: what a backup leaves out, what a restore takes.
//!
//! There is one way to write them, wherever they come from:
//! ```text
//! *.o                a name, at any depth
//! a/node_modules     a path below the source; also one that begins with the source's own name (src/a/node_modules), or at the root
//! /home/ada/tmp      a path from the root of the file system
//! ```
//! `*` and `?` do not cross a slash, `**` does; a backslash takes the meaning from the character behind it; a slash at
//! the end is dropped. What matches is meant with everything below it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

/// A pattern that is none.
#[derive(Debug, thiserror::Error)]
#[error("pattern {pattern:?} cannot be used: correct it or drop it")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    #[source]
    pub reason: globset::Error,
}

/// Patterns of one kind, with their numbers.
#[derive(Debug)]
struct Set {
    globs: GlobSet,
    numbers: Vec<usize>,
}

impl Set {
    fn of(patterns: &[(usize, &str)], all: &[String]) -> Result<Option<Self>, PatternError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let mut globs = GlobSetBuilder::new();
        for (number, text) in patterns {
            let error = |reason| PatternError { pattern: all[*number].clone(), reason };
            globs.add(GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build().map_err(error)?);
        }
        let error = |reason| PatternError { pattern: all.join(" "), reason };
        let numbers = patterns.iter().map(|(number, _)| *number).collect();
        Ok(Some(Self { globs: globs.build().map_err(error)?, numbers }))
    }
}

/// Patterns, ready to be matched; see the module. It remembers which of them matched something.
#[derive(Debug, Default)]
pub struct PathPatterns {
    patterns: Vec<String>,
    /// Matched on the last component.
    names: Option<Set>,
    /// Matched on the path from the root.
    rooted: Option<Set>,
    /// Matched on the path from the root, from the source, and from the directory that the source lies in.
    relative: Option<Set>,
    used: Vec<AtomicBool>,
}

impl PathPatterns {
    /// A matcher of a list of patterns.
    ///
    /// # Errors
    /// A pattern is not one; the error names it.
    pub fn new(patterns: &[String]) -> Result<Self, PatternError> {
        let (mut names, mut rooted, mut relative) = (Vec::new(), Vec::new(), Vec::new());
        for (number, pattern) in patterns.iter().enumerate() {
            let text = pattern.strip_suffix('/').unwrap_or(pattern);
            if let Some(text) = text.strip_prefix('/') {
                rooted.push((number, text));
            } else if let Some(text) = text.strip_prefix("./") {
                relative.push((number, text));
            } else if text.contains('/') {
                relative.push((number, text));
            } else {
                names.push((number, text));
            }
        }
        Ok(Self {
            names: Set::of(&names, patterns)?,
            rooted: Set::of(&rooted, patterns)?,
            relative: Set::of(&relative, patterns)?,
            patterns: patterns.to_vec(),
            used: patterns.iter().map(|_| AtomicBool::new(false)).collect(),
        })
    }

    /// Whether there is nothing to match.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a path of an object matches by itself; `source` is the path of its source in the object (`.` or nothing
    /// for the root of the file system).
    pub fn matches(&self, source: &[u8], path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let mut any = self.matches_one(self.names.as_ref(), name) | self.matches_one(self.rooted.as_ref(), path);
        if let Some(relative) = &self.relative {
            any |= self.matches_one(Some(relative), path);
            let above = source.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            if let Some(below) = path.strip_prefix(source).and_then(|below| below.strip_prefix(b"/")) {
                any |= self.matches_one(Some(relative), below);
                any |= above > 0 && self.matches_one(Some(relative), &path[above..]);
            }
        }
        any
    }

    /// Whether a path or a directory above it, up to its source, matches.
    pub fn matches_with_above(&self, source: &[u8], path: &[u8]) -> bool {
        let is_inside = path.strip_prefix(source).is_some_and(|below| below.is_empty() || below.starts_with(b"/"));
        let inside = if is_inside { source.len() } else { 0 };
        let ends = path.iter().enumerate().filter(|&(at, &byte)| byte == b'/' && at > inside).map(|(at, _)| at);
        ends.chain([path.len()]).any(|end| self.matches(source, &path[..end]))
    }

    /// Patterns that matched nothing so far.
    pub fn unused(&self) -> Vec<String> {
        let unused = self.patterns.iter().zip(&self.used).filter(|(_, used)| !used.load(Ordering::Relaxed));
        unused.map(|(pattern, _)| pattern.clone()).collect()
    }

    fn matches_one(&self, set: Option<&Set>, bytes: &[u8]) -> bool {
        let Some(Set { globs, numbers }) = set else { return false };
        let candidate = Candidate::new(Path::new(OsStr::from_bytes(bytes)));
        if !globs.is_match_candidate(&candidate) {
            return false;
        }
        for at in globs.matches_candidate(&candidate) {
            self.used[numbers[at]].store(true, Ordering::Relaxed);
        }
        true
    }
}

/// Patterns of a text, one a line: empty lines and those that begin with `#` are passed over, as is white space at the
/// end. A pattern that begins with `#` is written `\#`.
pub fn patterns_in(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn of(patterns: &[&str]) -> PathPatterns {
        PathPatterns::new(&patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn excluded(patterns: &[&str], path: &[u8]) -> bool {
        of(patterns).matches(b".", path)
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

    /// `--exclude a/node_modules` and `--exclude ex/a/node_modules` of a backup of `ex` matched nothing, silently.
    #[test]
    fn a_path_without_a_leading_slash_is_one_below_the_source() {
        let matches = |pattern: &str, path: &[u8]| of(&[pattern]).matches(b"srv/ex", path);
        assert!(matches("a/node_modules", b"srv/ex/a/node_modules"));
        assert!(matches("ex/a/node_modules", b"srv/ex/a/node_modules"), "from the source's own name");
        assert!(matches("srv/ex/a/node_modules", b"srv/ex/a/node_modules"), "from the root, as ever");
        assert!(matches("a/*.o", b"srv/ex/a/b.o") && !matches("a/*.o", b"srv/ex/a/b/c.o"));
        assert!(!matches("a/node_modules", b"srv/ex/b/a/node_modules"), "not at any depth: that is **/a/node_modules");
        assert!(matches("**/a/node_modules", b"srv/ex/b/a/node_modules"));
        assert!(!matches("/a/node_modules", b"srv/ex/a/node_modules"), "a leading slash means the root");
        assert!(matches("./cache", b"srv/ex/cache") && !matches("./cache", b"srv/ex/a/cache"));
        assert!(!matches("x/a", b"srv/ex/a"), "components are whole");
    }

    #[test]
    fn what_lies_below_a_match_is_meant_too_but_nothing_above_the_source_counts() {
        let patterns = of(&["a/b", "*.d", "ex"]);
        assert!(patterns.matches_with_above(b"srv/ex", b"srv/ex/a/b/c/d"));
        assert!(patterns.matches_with_above(b"srv/ex", b"srv/ex/x.d/c"));
        assert!(!patterns.matches_with_above(b"srv/ex", b"srv/ex/a/c"));
        assert!(patterns.matches_with_above(b"", b"srv/x.d/c") && patterns.matches_with_above(b".", b"x.d/c"));
    }

    #[test]
    fn it_is_known_which_patterns_matched_nothing() {
        let patterns = of(&["*.o", "a/b", "*.o"]);
        assert!(patterns.matches(b"srv", b"srv/x.o") && !patterns.matches(b"srv", b"srv/b"));
        assert_eq!(patterns.unused(), ["a/b"]);
    }

    #[test]
    fn a_broken_pattern_is_named() {
        let error = PathPatterns::new(&["fine".to_owned(), "a[".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("\"a[\""), "{error}");
    }

    #[test]
    fn a_file_of_patterns_may_have_comments() {
        assert_eq!(patterns_in("# caches\n\n*.o  \r\n\\#x\n a b\n"), ["*.o", "\\#x", " a b"]);
    }
}
