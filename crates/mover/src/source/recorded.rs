//! A connection of tests that keeps entries and nothing else.

use capstan_format::FileEntry;

use crate::{Stopped, StreamSink};

/// Keeps entries only.
#[derive(Default)]
pub(crate) struct Entries {
    chunk: Vec<u8>,
    position: u64,
    pub(crate) entries: Vec<FileEntry>,
}

impl StreamSink for Entries {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        self.chunk.resize(65_536, 0);
        Ok(&mut self.chunk)
    }

    fn advance(&mut self, len: usize) {
        self.position += len as u64;
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn connection(&self) -> u16 {
        0
    }

    fn member(&mut self, entry: FileEntry) {
        self.entries.push(entry);
    }
}
