//! How long a client's file of patterns may be: every pattern is compared with every path, and goes to the client again
//! with each order to read.

use std::path::Path;

use super::peer_text::said;
use crate::source::patterns_in;

/// Bytes of the file.
pub(super) const TEXT_LEN_MAX: u64 = 1 << 20;
/// Patterns in it.
const PATTERNS_MAX: usize = 10_000;

/// The text of a file of patterns, if it is not too long; else what to do.
pub(super) fn bounded(path: &Path, text: String) -> Result<String, String> {
    let fits = text.len() as u64 <= TEXT_LEN_MAX && patterns_in(&text).len() <= PATTERNS_MAX;
    if fits { Ok(text) } else { Err(too_long(path)) }
}

/// What is said of one that is too long.
pub(super) fn too_long(path: &Path) -> String {
    let path = said(&path.to_string_lossy());
    format!(
        "{path} is too long to be a list of patterns (1 MiB, or 10,000 patterns): exclude directories instead of the \
         files in them, or put patterns together with *"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound was the client's alone, and a hostile one sent as many patterns as a message holds.
    #[test]
    fn a_file_of_patterns_is_not_longer_than_is_of_use() {
        let path = Path::new("/etc/patterns");
        let lines = |count: usize| "# why\na\n\n".repeat(count);
        assert_eq!(bounded(path, lines(PATTERNS_MAX)), Ok(lines(PATTERNS_MAX)));
        for long in [lines(PATTERNS_MAX + 1), "x".repeat((1 << 20) + 1)] {
            assert_eq!(bounded(path, long), Err(too_long(path)));
        }
        assert!(too_long(path).contains("/etc/patterns is too long"));
    }
}
