//! Names of a directory, in pieces of bounded length, sorted.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Names after which a piece ends; what the last system call gave still belongs to it. Directories below that are sorted as
/// a whole; a larger one is passed on after each piece, so that several connections share it and no listing grows without bound.
const PIECE_NAMES: usize = 2_048;
/// About 700 names of ordinary length in a system call.
const BUFFER_LEN: usize = 32_768;

#[derive(Debug, Clone, Copy)]
struct Place {
    at: u32,
    file_type: FileType,
}

/// Names in one buffer, each ended by NUL.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Names {
    fn push(&mut self, name: &CStr, file_type: FileType) {
        // A piece holds some thousand names of 255 bytes at most, far below 4 GiB.
        self.places.push(Place { at: self.bytes.len() as u32, file_type });
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The name with this number, and what the directory says it is.
    pub(crate) fn get(&self, index: usize) -> Option<(&CStr, FileType)> {
        let place = self.places.get(index)?;
        let name = CStr::from_bytes_until_nul(&self.bytes[place.at as usize..]).ok()?;
        Some((name, place.file_type))
    }

    fn sort(&mut self) {
        let Self { bytes, places } = self;
        let name = |place: &Place| {
            let from = &bytes[place.at as usize..];
            &from[..from.iter().position(|&byte| byte == 0).unwrap_or(from.len())]
        };
        // Directories are often written in the order of their names already, which this sort notices.
        places.sort_by(|a, b| name(a).cmp(name(b)));
        places.dedup_by(|a, b| name(a) == name(b));
    }
}

/// What a piece of a listing is followed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Further names; the open directory stands before them.
    More,
    /// Nothing.
    End,
}

/// Reads the next piece of an open directory: directories and all else apart.
pub(crate) struct Lister {
    buffer: Box<[MaybeUninit<u8>]>,
    /// What is not known to be a directory.
    pub(crate) files: Names,
    /// What is a directory.
    pub(crate) directories: Names,
}

impl Lister {
    pub(crate) fn new() -> Self {
        Self { buffer: Box::new_uninit_slice(BUFFER_LEN), files: Names::default(), directories: Names::default() }
    }

    /// Fills `files` and `directories`. After an error they hold what was read before it.
    pub(crate) fn read(&mut self, directory: BorrowedFd<'_>) -> Result<Rest, Errno> {
        self.files.clear();
        self.directories.clear();
        let result = self.fill(directory);
        self.files.sort();
        self.directories.sort();
        result
    }

    fn fill(&mut self, directory: BorrowedFd<'_>) -> Result<Rest, Errno> {
        let mut raw = RawDir::new(directory, &mut self.buffer);
        loop {
            if raw.is_buffer_empty() && self.files.len() + self.directories.len() >= PIECE_NAMES {
                return Ok(Rest::More);
            }
            let Some(entry) = raw.next() else { return Ok(Rest::End) };
            let entry = entry?;
            match (entry.file_name().to_bytes(), entry.file_type()) {
                (b"." | b"..", _) => {}
                (_, FileType::Directory) => self.directories.push(entry.file_name(), FileType::Directory),
                (_, other) => self.files.push(entry.file_name(), other),
            }
        }
    }
}
