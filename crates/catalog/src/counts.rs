//! What an object holds, in numbers.

use capstan_format::{EntryFlags, EntryKind, FileEntry};

/// Numbers of an object's entries. An incremental counts only what it holds itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Entries of every kind.
    pub entries: u64,
    /// Regular files of which something is stored.
    pub files: u64,
    /// Bytes of content of regular files, holes included.
    pub bytes: u64,
    /// Paths that the base has and the source no longer has.
    pub deleted: u64,
    /// Files that grew, shrank or changed while they were read.
    pub changed: u64,
    /// Paths of which nothing is stored: vanished or unreadable.
    pub problems: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, entry: &FileEntry) {
        let any = |flags: EntryFlags| entry.flags.0 & flags.0 != 0;
        let failed = any(EntryFlags::VANISHED.with(EntryFlags::UNREADABLE));
        self.entries += 1;
        if entry.kind == EntryKind::File {
            self.files += u64::from(!failed || entry.member_len > 0);
            if !failed {
                self.bytes = self.bytes.saturating_add(entry.size);
            }
        }
        self.deleted += u64::from(entry.kind == EntryKind::Deleted);
        self.changed += u64::from(any(EntryFlags::GREW.with(EntryFlags::SHRANK).with(EntryFlags::CHANGED)));
        self.problems += u64::from(failed);
    }
}
