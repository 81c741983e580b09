//! Reading pax members: header blocks in, [`DecodedMember`]s out.
//!
//! The decoder does no input of its own. Whoever holds the stream feeds it one 512-byte record after another and does
//! what the returned [`Step`] says, so that the same code reads a block in memory, a pipe and a fuzzer's bytes:
//! ```text
//! header 'x'  --> Step::Payload(len) --> payload(bytes) --.
//! header '0'  --> Step::Member       --> content, padded <-'
//! zeros, zeros --> Step::End
//! ```
//! Read are POSIX ustar and pax headers (`x`, `g`), the sparse layout that GNU tar calls 1.0, and of GNU's older habits
//! the long names (`L`, `K`) and base-256 numbers, because common writers still use them. Not read are old GNU sparse
//! members, multi-volume parts and dump directories: such a header is an error, not a guess.
//!
//! Limits: an extended header is at most [`EXTENDED_LEN_MAX`] bytes, a sparse map at most [`SPARSE_EXTENTS_MAX`]
//! extents; what a header claims beyond them is an error before anything is allocated.

mod header;
mod member;
mod records;
mod sparse;

pub use member::{DecodedMember, Sparse};
pub use sparse::{SPARSE_EXTENTS_MAX, SparseDecoder};

use crate::FormatError;
use header::{Header, Role};

use super::BLOCK_LEN;

/// Longest extended header that is read: room for a path of a megabyte and for more than two hundred extended
/// attributes of the 64 KiB that Linux allows each.
pub const EXTENDED_LEN_MAX: usize = 16 << 20;

/// What comes next in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This many bytes, then their [`padding`](super::padding): give them to [`MemberDecoder::payload`].
    Payload(usize),
    /// The member is complete; its content ([`DecodedMember::stored`] bytes and padding) follows.
    Member,
    /// A block of zeros: two of them end an archive, one alone is skipped.
    Zeros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Header,
    Payload(Role, usize),
}

/// The state between header blocks.
#[derive(Debug)]
pub struct MemberDecoder {
    expected: Expected,
    global: Vec<u8>,
    local: Vec<u8>,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl Default for MemberDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl MemberDecoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Self {
        Self { expected: Expected::Header, global: Vec::new(), local: Vec::new(), long_path: None, long_link: None }
    }

    /// Whether extended headers were read whose member is still to come: a stream must not end here.
    pub fn is_inside(&self) -> bool {
        self.expected != Expected::Header
            || !self.local.is_empty()
            || self.long_path.is_some()
            || self.long_link.is_some()
    }

    /// Decodes a header block. On [`Step::Member`] every field of `member` has been set.
    ///
    /// # Errors
    /// [`FormatError`] if the block is no header that this decoder reads, or a payload was due.
    pub fn header(&mut self, block: &[u8; BLOCK_LEN], member: &mut DecodedMember) -> Result<Step, FormatError> {
        if self.expected != Expected::Header {
            return Err(FormatError::Magic { what: "payload of an extended header" });
        }
        let Some(header) = Header::decode(block)? else { return Ok(Step::Zeros) };
        let role = header.role()?;
        if let Role::Member(kind) = role {
            header.fill(kind, member)?;
            if let Some(path) = self.long_path.take() {
                member.path = path;
            }
            if let Some(link) = self.long_link.take() {
                member.link = link;
            }
            records::apply(&self.global, member)?;
            records::apply(&self.local, member)?;
            self.local.clear();
            member.settle(header.posix())?;
            return Ok(Step::Member);
        }
        let len = header.size()?;
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len <= EXTENDED_LEN_MAX)
            .ok_or_else(|| FormatError::Field { what: "extended header", field: "length", value: len.to_string() })?;
        self.expected = Expected::Payload(role, len);
        Ok(Step::Payload(len))
    }

    /// Takes the payload that [`Step::Payload`] asked for, without its padding.
    ///
    /// # Errors
    /// [`FormatError`] if no payload was due, or it has another length, or its records are malformed.
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let Expected::Payload(role, len) = self.expected else {
            return Err(FormatError::Magic { what: "header block" });
        };
        if bytes.len() != len {
            return Err(FormatError::Truncated {
                what: "extended header",
                needed: len as u64,
                found: bytes.len() as u64,
            });
        }
        self.expected = Expected::Header;
        match role {
            Role::Local => replace(&mut self.local, bytes),
            Role::Global => {
                records::check(bytes)?;
                replace(&mut self.global, bytes);
            }
            Role::LongPath => self.long_path = Some(until_nul(bytes).to_vec()),
            Role::LongLink => self.long_link = Some(until_nul(bytes).to_vec()),
            Role::Member(_) => {}
        }
        Ok(())
    }
}

fn replace(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.clear();
    kept.shrink_to(64 << 10);
    kept.extend_from_slice(bytes);
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

#[cfg(test)]
mod tests;
