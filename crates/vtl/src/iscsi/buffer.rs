//! Memory for the data of a command, used again by the next one, and wiped in between where it may hold a key.

use zeroize::Zeroize;

/// SECURITY PROTOCOL OUT: its parameters are a key, plain or wrapped.
const SECURITY_PROTOCOL_OUT: u8 = 0xb5;

/// Whether what a buffer holds may be seen by who uses it next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Content {
    /// Blocks and parameters.
    #[default]
    Plain,
    /// A key: overwritten before the memory serves for anything else, or is given back.
    Secret,
}

impl Content {
    /// What a command with this descriptor block comes with.
    pub(crate) fn of(cdb: &[u8]) -> Self {
        if cdb.first() == Some(&SECURITY_PROTOCOL_OUT) { Self::Secret } else { Self::Plain }
    }
}

/// Memory for data.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    content: Content,
}

impl Buffer {
    /// From now on it holds something of this kind.
    pub(crate) fn hold(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The first `len` bytes.
    pub(crate) fn first(&self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }

    /// Room for `len` bytes behind the first `begin`.
    pub(crate) fn room(&mut self, begin: usize, len: usize) -> &mut [u8] {
        let end = begin + len;
        if self.bytes.len() < end {
            if self.content == Content::Secret && self.bytes.capacity() < end {
                // Memory that grew by itself would leave a copy where it was.
                let mut grown = Vec::with_capacity(end);
                grown.extend_from_slice(&self.bytes);
                self.bytes.zeroize();
                self.bytes = grown;
            }
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[begin..end]
    }

    /// Nothing that is secret is in it any more.
    pub(crate) fn wipe(&mut self) {
        if self.content == Content::Secret {
            self.bytes.zeroize();
            self.content = Content::Plain;
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("len", &self.bytes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All the memory of a buffer, as it is between two commands.
    fn memory(buffer: &mut Buffer) -> Vec<u8> {
        let capacity = buffer.bytes.capacity();
        buffer.bytes.resize(capacity, 0);
        buffer.bytes.clone()
    }

    #[test]
    fn a_key_is_gone_from_a_buffer_before_the_next_command_has_it() {
        let mut buffer = Buffer::default().hold(Content::of(&[SECURITY_PROTOCOL_OUT; 12]));
        buffer.room(0, 16).fill(0xee);
        buffer.room(16, 4000).fill(0xee);
        assert_eq!(buffer.first(4016), [0xee; 4016], "what came first is there after it grew");
        buffer.wipe();
        assert!(buffer.is_empty());
        assert!(!memory(&mut buffer).contains(&0xee));
        assert!(!format!("{buffer:?}").contains("ee"), "nor is it printed");
    }

    #[test]
    fn blocks_stay_where_they_are() {
        let mut buffer = Buffer::default().hold(Content::of(&[0x0a; 6]));
        buffer.room(0, 100).fill(0xee);
        buffer.wipe();
        assert_eq!(buffer.first(100), [0xee; 100], "wiping costs time, and is for keys alone");
    }
}
