//! Which paths a stream may name.
//!
//! A path is taken as bytes: components parted by single slashes. Whatever could lead out of the target, or name one
//! thing in two ways, is refused before any system call sees it: an absolute path, an empty component, `.`, `..`, NUL.
//! Only the leading `./` that `tar -C dir .` writes is dropped.

use std::fmt;

use capstan_format::PATH_LEN_STORED_MAX;

/// Longest path that is extracted; what Linux can be led to in one call is 4,096.
pub(super) const PATH_LEN_MAX: usize = PATH_LEN_STORED_MAX;

/// Why a path was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Empty,
    Absolute,
    Upwards,
    Ambiguous,
    Nul,
    Long,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the path is empty",
            Self::Absolute => "the path is absolute and would leave the target",
            Self::Upwards => "the path holds '..' and could leave the target",
            Self::Ambiguous => "the path has an empty component or '.'",
            Self::Nul => "the path holds a NUL byte",
            Self::Long => "the path is longer than 256 KiB",
        })
    }
}

/// The path below the target, empty for the target itself.
pub(super) fn checked(path: &[u8]) -> Result<&[u8], Refused> {
    if path.is_empty() {
        return Err(Refused::Empty);
    }
    if path.len() > PATH_LEN_MAX {
        return Err(Refused::Long);
    }
    if path[0] == b'/' {
        return Err(Refused::Absolute);
    }
    let mut inside = path;
    while let Some(rest) = inside.strip_prefix(b"./") {
        inside = rest;
    }
    if inside.is_empty() || inside == b"." {
        return Ok(b"");
    }
    for component in inside.split(|&byte| byte == b'/') {
        match component {
            b".." => return Err(Refused::Upwards),
            b"" | b"." => return Err(Refused::Ambiguous),
            _ if component.contains(&0) => return Err(Refused::Nul),
            _ => {}
        }
    }
    Ok(inside)
}

/// A path without so many of its leading components; `None` if nothing is left.
pub fn stripped(path: &[u8], components: usize) -> Option<Vec<u8>> {
    if components == 0 {
        return Some(path.to_vec());
    }
    let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && part != b".");
    parts.nth(components - 1)?;
    let left = parts.collect::<Vec<_>>().join(&b'/');
    (!left.is_empty()).then_some(left)
}

/// A checked path's directory (empty for the target) and its last component.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Components of a checked path: the depth of what it names.
pub(super) fn depth(path: &[u8]) -> usize {
    if path.is_empty() { 0 } else { 1 + path.iter().filter(|&&byte| byte == b'/').count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_named() {
        for (path, inside) in [
            (&b"a"[..], &b"a"[..]),
            (b"a/b/c", b"a/b/c"),
            (b"./a", b"a"),
            (b"././a", b"a"),
            (b".", b""),
            (b"./", b""),
            (b"./.", b""),
            (b"...", b"..."),
            (b"..a/b..", b"..a/b.."),
            (b"\xff\n\\", b"\xff\n\\"),
        ] {
            assert_eq!(checked(path), Ok(inside), "{}", path.escape_ascii());
        }
        for (path, why) in [
            (&b""[..], Refused::Empty),
            (b"/", Refused::Absolute),
            (b"/a", Refused::Absolute),
            (b"..", Refused::Upwards),
            (b"./..", Refused::Upwards),
            (b"a/../b", Refused::Upwards),
            (b"a/..", Refused::Upwards),
            (b"a//b", Refused::Ambiguous),
            (b".//a", Refused::Ambiguous),
            (b"a/", Refused::Ambiguous),
            (b"a/./b", Refused::Ambiguous),
            (b"a/.", Refused::Ambiguous),
            (b"a\0b", Refused::Nul),
        ] {
            assert_eq!(checked(path), Err(why), "{}", path.escape_ascii());
        }
        assert_eq!(checked(&vec![b'a'; PATH_LEN_MAX + 1]), Err(Refused::Long));
    }

    #[test]
    fn components_are_stripped_from_the_front() {
        let left = |path: &[u8], components| {
            stripped(path, components).map(|left| String::from_utf8(left).unwrap_or_default())
        };
        assert_eq!(left(b"./a/b/c", 1).as_deref(), Some("b/c"));
        assert_eq!(left(b"a/b/c", 2).as_deref(), Some("c"));
        assert_eq!(left(b"a/b", 0).as_deref(), Some("a/b"));
        assert_eq!([left(b"a/b", 2), left(b"a", 5), left(b".", 1)], [None, None, None]);
        assert_eq!(left(b"a/../b", 1).as_deref(), Some("../b"), "what leads out is refused later");
    }

    #[test]
    fn parts() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"a"), (&b""[..], &b"a"[..]));
        assert_eq!([depth(b""), depth(b"a"), depth(b"a/b")], [0, 1, 2]);
    }
}
