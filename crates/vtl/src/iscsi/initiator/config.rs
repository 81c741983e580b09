//! Whom an initiator logs in to, and how.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::config::ChapCredentials;
use super::super::negotiate::Wish;
use super::super::wire::{Digest, Digests};

/// Which data of a write may be sent before the target asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsolicited {
    /// None.
    None,
    /// What is in the command's own PDU.
    Immediate,
    /// What follows the command in PDUs of its own.
    Separate,
    /// Both.
    Both,
}

/// Whom to log in to, and how.
pub struct InitiatorConfig {
    /// Where the target listens.
    pub portal: SocketAddr,
    /// Its name.
    pub target: String,
    /// Our name.
    pub name: String,
    /// Which of our ports: one that logs in again ends its old session.
    pub isid: [u8; 6],
    /// What we prove.
    pub chap: Option<ChapCredentials>,
    /// What the target must prove.
    pub mutual: Option<ChapCredentials>,
    /// Checksums of headers.
    pub header_digest: Digest,
    /// Checksums of data.
    pub data_digest: Digest,
    /// Which data may be sent unasked, if the target agrees.
    pub unsolicited: Unsolicited,
    /// Most data that are sent unasked, in bytes.
    pub first_burst_bytes: u32,
    /// Most data of one sequence, in bytes.
    pub burst_bytes: u32,
    /// Longest data segment that we receive, in bytes.
    pub segment_bytes: u32,
    /// How long the target may be silent.
    pub timeout: Duration,
}

impl InitiatorConfig {
    /// A login without proof and checksums, with lengths that suit blocks of 256 KiB and more.
    pub fn new(portal: SocketAddr, target: impl Into<String>) -> Self {
        Self {
            portal,
            target: target.into(),
            name: "iqn.2026-01.org.capstan:initiator".to_owned(),
            // A random qualifier, so that it is nobody else's port.
            isid: [0x80, 0, 0, 0, 0, 1],
            chap: None,
            mutual: None,
            header_digest: Digest::None,
            data_digest: Digest::None,
            unsolicited: Unsolicited::Both,
            first_burst_bytes: 256 << 10,
            burst_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            timeout: Duration::from_secs(60),
        }
    }

    pub(super) fn wish(&self) -> Wish {
        Wish {
            digests: Digests { header: self.header_digest, data: self.data_digest },
            initial_r2t: matches!(self.unsolicited, Unsolicited::None | Unsolicited::Immediate),
            immediate_data: matches!(self.unsolicited, Unsolicited::Immediate | Unsolicited::Both),
            first_burst: self.first_burst_bytes,
            burst: self.burst_bytes,
            receive_segment: self.segment_bytes,
        }
    }
}
