//! Paths as the catalog keeps them.

use capstan_catalog::{PathParts, PathPredicate};
use regex::bytes::RegexBuilder;

use crate::DirectorError;

/// A path as indexes keep it: no leading or trailing slash, no `.` components.
pub fn index_path(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && part != b".");
    parts.collect::<Vec<_>>().join(&b'/')
}

/// The largest program of a pattern: as globset has it.
const REGEX_BYTES_MAX: usize = 10 << 20;

/// A pattern for paths: on the whole path if it has a slash, else on the last component.
pub struct PathPattern {
    /// Whether a path matches it.
    pub matches: Box<PathPredicate<'static>>,
    /// What each path that matches has in it.
    pub parts: PathParts,
}

/// A pattern by its text.
///
/// # Errors
/// [`DirectorError::Glob`] if the text is no pattern.
pub fn path_pattern(glob: &str) -> Result<PathPattern, DirectorError> {
    let whole = glob.contains('/');
    let pattern = glob.trim_start_matches('/');
    let built = globset::GlobBuilder::new(pattern).literal_separator(whole).build();
    let wrong = |reason: String| DirectorError::Glob { glob: glob.to_owned(), reason };
    let built = built.map_err(|error| wrong(error.to_string()))?;
    // The matcher of globset takes a path apart before each comparison; a search compares millions.
    let regex = RegexBuilder::new(built.regex()).dot_matches_new_line(true).size_limit(REGEX_BYTES_MAX).build();
    let regex = regex.map_err(|error| wrong(error.to_string()))?;
    let matches = move |path: &[u8]| {
        let name = if whole { path } else { path.rsplit(|&byte| byte == b'/').next().unwrap_or(path) };
        regex.is_match(name)
    };
    Ok(PathPattern { matches: Box::new(matches), parts: parts_of(pattern, whole) })
}

/// What each path that matches a pattern has in it: its texts between the stars. Behind a set or an alternative nothing
/// is concluded.
fn parts_of(pattern: &str, whole: bool) -> PathParts {
    let plain = pattern.find(['[', ']', '{', '}', '\\']).unwrap_or(pattern.len());
    let is_all = plain == pattern.len();
    let stars: &[char] = &['*', '?'];
    if !whole && is_all && !pattern.contains(stars) {
        return PathParts::default().with_name(pattern.as_bytes());
    }
    let (mut parts, mut from) = (PathParts::default(), 0);
    if is_all {
        parts = parts.with_segment(segment_of(pattern));
    }
    for text in pattern[..plain].split_inclusive(stars).chain([""]) {
        let begins_at = from;
        from += text.len();
        let mut text = text.trim_end_matches(stars);
        let ends_at = begins_at + text.len();
        // `**/` stands for no directory, too, and `/**` for what its slash belongs to.
        if pattern[..begins_at].ends_with("**") {
            text = text.strip_prefix('/').unwrap_or(text);
        }
        if pattern[ends_at..].starts_with("**") {
            text = text.strip_suffix('/').unwrap_or(text);
        }
        let is_end = is_all && ends_at == pattern.len() && !text.is_empty();
        parts = match (begins_at == 0 && !whole, is_end) {
            _ if text.is_empty() => parts,
            (true, false) => parts.with_beginning(text.as_bytes()),
            (_, true) if !text.ends_with('/') => parts.with_end(text.as_bytes()),
            _ => parts.with_text(text.as_bytes()),
        };
    }
    parts
}

/// Of the texts between stars that each name has in it, the one with most bytes in a row; a `?` is any byte.
fn segment_of(pattern: &str) -> Vec<Option<u8>> {
    let of_name = pattern.rsplit('/').next().unwrap_or_default();
    let runs = |text: &str| text.split('?').map(str::len).collect::<Vec<_>>();
    let longest =
        of_name.split('*').max_by_key(|text| (runs(text).into_iter().max(), runs(text).iter().sum::<usize>()));
    longest.unwrap_or_default().bytes().map(|byte| (byte != b'?').then_some(byte)).collect()
}

/// Where the directories above a path end.
pub(crate) fn ends_above(path: &[u8]) -> impl Iterator<Item = usize> {
    path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn index_paths_have_no_slashes_at_their_ends() {
        assert_eq!(index_path(b"/usr//share/./doc/"), b"usr/share/doc");
        assert_eq!(index_path(b"/"), b"");
        assert_eq!(index_path(b"a"), b"a");
    }

    #[test]
    fn a_pattern_takes_any_byte_of_a_name() {
        for (glob, path, is_match) in [
            ("odd*", &b"srv/odd\xff\nname"[..], true),
            ("odd?\nname", b"odd\xff\nname", true),
            ("*.conf", b"etc/a.conf\n", false),
            ("**/odd*", b"srv/\xfe/odd\n", true),
            ("srv/*", b"srv/a/b", false),
        ] {
            assert_eq!((path_pattern(glob).unwrap().matches)(path), is_match, "{glob}");
        }
    }

    #[test]
    fn a_pattern_says_what_its_paths_have_in_them() {
        let none = PathParts::default;
        for (glob, segment, parts) in [
            ("passwd", "passwd", none().with_name(b"passwd")),
            ("*.conf", ".conf", none().with_end(b".conf")),
            ("IMG_*.jp?g", "IMG_", none().with_beginning(b"IMG_").with_text(b".jp").with_end(b"g")),
            ("*z?b*e", "z?b", none().with_text(b"z").with_text(b"b").with_end(b"e")),
            ("IMG_[0-9]*", "", none().with_beginning(b"IMG_")),
            ("{a,b}c", "", none()),
            ("*", "", none()),
            ("srv/web/*.html", ".html", none().with_text(b"srv/web/").with_end(b".html")),
            ("/srv/web", "web", none().with_end(b"srv/web")),
            ("**/web/index", "index", none().with_end(b"web/index")),
            ("srv/**/index", "index", none().with_text(b"srv").with_end(b"index")),
            ("srv/**", "", none().with_text(b"srv")),
        ] {
            let segment = segment.bytes().map(|byte| (byte != b'?').then_some(byte)).collect();
            assert_eq!(path_pattern(glob).unwrap().parts, parts.with_segment(segment), "{glob}");
        }
    }
}
