//! Directories that say of themselves that what they hold can be made again.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

/// The name of the tag, and what such a file begins with (<https://bford.info/cachedir/>).
pub(crate) const CACHE_TAG: &CStr = c"CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Whether a directory says by its tag that it is a cache.
pub fn is_cache_directory(directory: BorrowedFd<'_>) -> bool {
    // Whatever has that name is opened without waiting for it, and only a file is read.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(tag) = openat(directory, CACHE_TAG, flags, Mode::empty()) else { return false };
    let is_file = fstat(&tag).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let mut begin = Vec::with_capacity(CACHE_SIGNATURE.len());
    let read = || File::from(tag).take(CACHE_SIGNATURE.len() as u64).read_to_end(&mut begin);
    is_file && read().is_ok() && begin == CACHE_SIGNATURE
}
