//! Reading and writing past the page cache: memory that is aligned for it, and files opened for it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Bytes that are read or written together.
pub(super) const PIECE_BYTES: usize = 4 * 1024 * 1024;
/// What direct transfers are aligned to, in the file and in memory: what every file system and disk in use is content
/// with.
pub(super) const PAGE_BYTES: usize = 4096;

/// Memory of one piece, from a page's border on.
pub(super) struct Memory(Vec<u8>);

impl Memory {
    /// Memory of no length, which takes none.
    pub(super) const fn empty() -> Self {
        Self(Vec::new())
    }

    /// Zeroed memory: it is not touched until it is used, and a small volume uses little.
    pub(super) fn new() -> Self {
        Self(vec![0; PIECE_BYTES + PAGE_BYTES])
    }

    /// Whether it is of no length.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of a piece.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(PAGE_BYTES);
        &mut self.0[start..start + PIECE_BYTES]
    }
}

/// The same file, opened anew past the page cache by `options`; an error where that is not allowed.
pub(super) fn open_direct(file: &File, options: &mut OpenOptions) -> io::Result<File> {
    // By its descriptor: a name may lead to another file by now.
    options.custom_flags(libc::O_DIRECT).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
