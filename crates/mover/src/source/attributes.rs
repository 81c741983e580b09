//! Extended attributes of one file, read straight into pax records.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use capstan_format::pax::put_attribute;
use rustix::fs::{fgetxattr, flistxattr, lgetxattr, llistxattr};
use rustix::io::Errno;

/// Linux's limit on a list of names and on a value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const LEN_MAX: usize = 65_536;
/// Bytes and number of one file's attributes that are stored. No header may be longer than a reader takes, and some
/// file systems let anybody give a file hundreds of megabytes of them.
const RECORDS_LEN_MAX: usize = 8 << 20;
const RECORDS_MAX: usize = 8_192;
/// What is tried first. The kernel allocates as much as it is offered, and 64 KiB for each file that has no attributes
/// cost as much as opening it.
const LEN_FIRST: usize = 256;

/// Where a file's attributes are read from.
#[derive(Clone, Copy)]
pub(crate) enum AttributesOf<'a> {
    /// An open file.
    Open(BorrowedFd<'a>),
    /// A name in an open directory, for what cannot or shall not be opened: symbolic links, fifos, devices.
    Named(BorrowedFd<'a>, &'a CStr),
}

/// Buffers for reading attributes, and what was learned of the file system.
pub(crate) struct AttributeReader {
    names: Box<[u8]>,
    value: Box<[u8]>,
    records: Vec<u8>,
    /// Device of a file system that has no attributes, so that they are not asked for again.
    without: Option<u64>,
}

impl AttributeReader {
    pub(crate) fn new() -> Self {
        Self { names: vec![0; LEN_MAX].into(), value: vec![0; LEN_MAX].into(), records: Vec::new(), without: None }
    }

    /// Reads the attributes of a file on `device`, one system call if it has none. What could be read before an error
    /// is kept.
    pub(crate) fn read(&mut self, of: AttributesOf<'_>, device: u64) -> Result<(), Errno> {
        self.records.clear();
        if self.without == Some(device) {
            return Ok(());
        }
        let listed = with_room(&mut self.names, |names| match of {
            AttributesOf::Open(fd) => flistxattr(fd, names),
            AttributesOf::Named(directory, name) => llistxattr(&proc_path(directory, name)[..], names),
        });
        let len = match listed {
            Ok(0) | Err(Errno::NOENT) => return Ok(()),
            Ok(len) => len,
            Err(Errno::OPNOTSUPP) => {
                self.without = Some(device);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut result = Ok(());
        for (number, name) in self.names[..len].split_inclusive(|&byte| byte == 0).enumerate() {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            if !has_room(number, self.records.len()) {
                return Err(Errno::TOOBIG);
            }
            let got = with_room(&mut self.value, |value| match of {
                AttributesOf::Open(fd) => fgetxattr(fd, name, value),
                AttributesOf::Named(directory, file) => lgetxattr(&proc_path(directory, file)[..], name, value),
            });
            match got {
                Ok(len) => put_attribute(&mut self.records, name.to_bytes(), &self.value[..len]),
                // Removed between the list and now.
                Err(Errno::NODATA | Errno::NOENT) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// The records of the file read last.
    pub(crate) fn records(&self) -> &[u8] {
        &self.records
    }
}

/// Whether another attribute is stored behind so many, whose records have so many bytes.
fn has_room(number: usize, records_len: usize) -> bool {
    number < RECORDS_MAX && records_len + LEN_MAX < RECORDS_LEN_MAX
}

/// Asks with little room, and with all of it if that was not enough.
fn with_room(buffer: &mut [u8], ask: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<usize, Errno> {
    match ask(&mut buffer[..LEN_FIRST]) {
        Err(Errno::RANGE) => ask(buffer),
        answer => answer,
    }
}

/// The path under `/proc` that leads to a name in an open directory, however deep that directory is.
fn proc_path(directory: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    if directory.as_raw_fd() == rustix::fs::CWD.as_raw_fd() {
        return name.to_bytes().to_vec();
    }
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    path
}

#[cfg(test)]
mod tests {
    use capstan_format::pax::EXTENDED_LEN_MAX;

    use super::*;

    /// A file with more attributes than a reader takes was stored, and could not be read back.
    #[test]
    fn no_more_attributes_are_stored_than_a_reader_takes() {
        let (mut records, mut number) = (Vec::new(), 0);
        while has_room(number, records.len()) {
            put_attribute(&mut records, format!("user.{number}").as_bytes(), &[1; LEN_MAX]);
            number += 1;
        }
        assert!(number > 100 && records.len() < EXTENDED_LEN_MAX / 2, "{number}: {}", records.len());
        assert!(!has_room(RECORDS_MAX, 0));
    }
}
