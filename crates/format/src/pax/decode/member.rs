//! One member as its headers describe it.

use crate::{EntryKind, FormatError};

/// Whether the content is preceded by a map of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sparse {
    /// The content is the file.
    #[default]
    No,
    /// GNU sparse 1.0: the content begins with a map of the file's data, which a [`super::SparseDecoder`] reads; what
    /// the map leaves out are holes.
    Mapped,
}

/// A member's metadata. Made once and filled again for each member, so that a small file costs no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedMember {
    /// Path as stored, less a directory's trailing slashes. Not checked for anything: it may be absolute, hold `..`,
    /// NUL or any other byte.
    pub path: Vec<u8>,
    /// What it is; never [`EntryKind::Deleted`].
    pub kind: EntryKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size of the file in bytes, holes included; 0 where the kind has no content.
    pub size: u64,
    /// Bytes of content in the stream, the sparse map included, padding not.
    pub stored: u64,
    /// Whether a sparse map precedes the content.
    pub sparse: Sparse,
    /// Modification time, nanoseconds since 1970; times beyond 64 bits (the years 1677 and 2262) are clamped.
    pub mtime_ns: i128,
    /// Access time, if the writer stored one.
    pub atime_ns: Option<i128>,
    /// Target of a symbolic link, or path of the file that a hard link names.
    pub link: Vec<u8>,
    /// Major number of a device.
    pub device_major: u32,
    /// Minor number of a device.
    pub device_minor: u32,
    /// Extended attributes, name and value, in the order stored; where a name comes twice the later value counts.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Access ACL in POSIX.1e text form; empty if there is none.
    pub acl_access: Vec<u8>,
    /// Default ACL of a directory in text form; empty if there is none.
    pub acl_default: Vec<u8>,
    pub(super) sparse_version: (u32, u32),
    pub(super) sparse_size: Option<u64>,
    pub(super) sparse_path: Vec<u8>,
}

impl Default for DecodedMember {
    fn default() -> Self {
        Self::new()
    }
}

impl DecodedMember {
    /// An empty member, to be filled.
    pub fn new() -> Self {
        Self {
            path: Vec::new(),
            kind: EntryKind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            stored: 0,
            sparse: Sparse::No,
            mtime_ns: 0,
            atime_ns: None,
            link: Vec::new(),
            device_major: 0,
            device_minor: 0,
            xattrs: Vec::new(),
            acl_access: Vec::new(),
            acl_default: Vec::new(),
            sparse_version: (0, 0),
            sparse_size: None,
            sparse_path: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        let Self { path, link, xattrs, acl_access, acl_default, sparse_path, .. } = self;
        for bytes in [path, link, acl_access, acl_default, sparse_path] {
            bytes.clear();
            bytes.shrink_to(64 << 10);
        }
        xattrs.clear();
        self.sparse = Sparse::No;
        self.atime_ns = None;
        self.device_major = 0;
        self.device_minor = 0;
        self.sparse_version = (0, 0);
        self.sparse_size = None;
    }

    /// Draws the conclusions once all records are known.
    pub(super) fn settle(&mut self, posix: bool) -> Result<(), FormatError> {
        // POSIX lets a hard link carry the file's content; older writers put a size there and no content.
        let has_content = self.kind == EntryKind::File || self.kind == EntryKind::HardLink && posix;
        if !has_content {
            self.size = 0;
        }
        if i64::try_from(self.size).is_err() {
            return Err(FormatError::Field { what: "pax header", field: "size", value: self.size.to_string() });
        }
        self.stored = self.size;
        match (self.sparse_version, self.sparse_size) {
            ((0, 0), None) => {}
            ((1, 0), Some(size)) if self.kind == EntryKind::File => {
                self.sparse = Sparse::Mapped;
                self.size = size;
                if !self.sparse_path.is_empty() {
                    std::mem::swap(&mut self.path, &mut self.sparse_path);
                }
            }
            ((major, minor), _) => {
                let value = format!("{major}.{minor}");
                return Err(FormatError::Field { what: "pax header", field: "GNU sparse version", value });
            }
        }
        if self.kind == EntryKind::Directory {
            while self.path.len() > 1 && self.path.ends_with(b"/") {
                self.path.pop();
            }
        }
        Ok(())
    }
}
