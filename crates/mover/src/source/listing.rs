//! Names of a directory, in pieces of bounded length, in the order of their inodes.
//!
//! The order of inodes is the order in which a cold file system reads best: inode tables are read ahead in runs, and
//! files written together mostly lie together. Sorting by name would cost more and win nothing, since the catalog sorts
//! by path.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Names after which a piece ends; what the last system call gave still belongs to it. Directories below that are
/// sorted as a whole; a larger one is passed on after each piece, so that several connections share it and no listing
/// grows without bound.
const PIECE_NAMES: usize = 2_048;
/// About 700 names of ordinary length in a system call.
const BUFFER_LEN: usize = 32_768;

#[derive(Debug, Clone, Copy)]
struct Place {
    inode: u64,
    at: u32,
    /// Length with the NUL.
    len: u16,
    file_type: FileType,
}

/// Names in one buffer, each ended by NUL.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Names {
    fn push(&mut self, name: &CStr, file_type: FileType, inode: u64) {
        let bytes = name.to_bytes_with_nul();
        // A piece holds some thousand names of 255 bytes at most, far below 4 GiB; a longer name is no name.
        let (Ok(at), Ok(len)) = (u32::try_from(self.bytes.len()), u16::try_from(bytes.len())) else { return };
        self.places.push(Place { inode, at, len, file_type });
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a name that was listed before.
    pub(crate) fn push_back(&mut self, name: &CStr) {
        self.push(name, FileType::RegularFile, 0);
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The name with this number, with the NUL that ends it, and what the directory says it is.
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], FileType)> {
        let place = self.places.get(index)?;
        Some((name(&self.bytes, place), place.file_type))
    }

    fn sort(&mut self) {
        let Self { bytes, places } = self;
        places.sort_unstable_by(|a, b| a.inode.cmp(&b.inode).then_with(|| name(bytes, a).cmp(name(bytes, b))));
        // A directory that changes while it is listed may give a name twice.
        places.dedup_by(|a, b| a.inode == b.inode && name(bytes, a) == name(bytes, b));
    }
}

fn name<'a>(bytes: &'a [u8], place: &Place) -> &'a [u8] {
    &bytes[place.at as usize..][..usize::from(place.len)]
}

/// What a piece of a listing is followed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Further names; the open directory stands before them.
    More,
    /// Nothing.
    End,
}

/// A piece of a listing: directories and all else apart.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// What is not known to be a directory.
    pub(crate) files: Names,
    /// What is a directory.
    pub(crate) directories: Names,
}

/// Reads listings, one piece after the other.
pub(crate) struct Lister {
    buffer: Box<[MaybeUninit<u8>]>,
}

impl Lister {
    pub(crate) fn new() -> Self {
        Self { buffer: Box::new_uninit_slice(BUFFER_LEN) }
    }

    /// The next piece of an open directory, and how it ended. After an error the piece holds what was read before it.
    pub(crate) fn read(&mut self, directory: BorrowedFd<'_>) -> (Listing, Result<Rest, Errno>) {
        let mut listing = Listing::default();
        let result = self.fill(directory, &mut listing);
        listing.files.sort();
        listing.directories.sort();
        (listing, result)
    }

    fn fill(&mut self, directory: BorrowedFd<'_>, listing: &mut Listing) -> Result<Rest, Errno> {
        let mut raw = RawDir::new(directory, &mut self.buffer);
        loop {
            if raw.is_buffer_empty() && listing.files.len() + listing.directories.len() >= PIECE_NAMES {
                return Ok(Rest::More);
            }
            let Some(entry) = raw.next() else { return Ok(Rest::End) };
            let entry = entry?;
            let (name, file_type) = (entry.file_name(), entry.file_type());
            if name == c"." || name == c".." {
                continue;
            }
            let names = if file_type == FileType::Directory { &mut listing.directories } else { &mut listing.files };
            names.push(name, file_type, entry.ino());
        }
    }
}
