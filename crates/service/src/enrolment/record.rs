//! An enrolment that a security officer opened: what the cluster keeps of it, and the decisions over it. Pure.
//!
//! Only a verifier of the passphrase is kept. Each begun key exchange costs a try, whether it is finished or not: who
//! guesses wrong learns it from the second message and need not send the third, so counting failures at the end would
//! count nobody's.
//! ```text
//!  open --try--> 4 left ... --try--> 0 left                  at any time: expired
//!    `--- proved and certified ---> used, for good
//! ```
//! That no try is left of those that are counted locks nothing: a passphrase of 100 bits is not guessed, and whoever
//! could reach the door and knew a name held its enrolment up for good by five tries. Whoever tries on waits, by where
//! he comes from ([`crate::rate_limit::AddressRateLimiter`]), and others do not.
//!
//! **Bytes** (before sealing; integers little-endian):
//! ```text
//!  0  1  version, 1
//!  1  1  tries left
//!  2  1  state: 1 open, 2 used
//!  3  8  expires, nanoseconds since 1970
//! 11  1  length of the peer, then the peer as text
//! ..  2  length of the verifier, then the verifier
//! ..  1  number of hosts, then each: length (1) and text
//! ```

use aws_lc_rs::digest::{SHA256, digest};
use capstan_format::{Cursor, FormatError};
use capstan_keys::api::{ClusterId, PeerId};
use capstan_keys::cluster::{EnrolmentPassphrase, PakeError, PakeVerifier};
use thiserror::Error;
use zeroize::Zeroizing;

/// How many tries of a passphrase are put on record.
pub const ENROLMENT_TRIES: u8 = 5;
const VERSION: u8 = 1;

/// An enrolment. It holds a secret: no `Debug`.
pub struct Enrolment {
    /// Whom it is for: the certificate will say this and nothing else.
    pub peer: PeerId,
    /// Names and addresses that a node's certificate is to hold; empty for others.
    pub hosts: Vec<String>,
    /// When it ends.
    pub expires_ns: i64,
    /// How many further tries are counted.
    pub tries_left: u8,
    /// Whether it was used.
    pub state: EnrolmentState,
    pub(super) verifier: PakeVerifier,
}

/// Which enrolment of a peer: another passphrase makes another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnrolmentId([u8; 32]);

/// Whether an enrolment was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnrolmentState {
    /// Not yet.
    Open,
    /// It has led to a certificate, and never leads to another.
    Used,
}

/// Why an enrolment does not go on. The peer is told one thing for all of them; the officer and the audit log are told
/// which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EnrolmentRefusal {
    /// Its time is over.
    #[error("the enrolment has expired: open another")]
    Expired,
    /// Another was opened since for the same peer.
    #[error("another enrolment was opened for this peer since: the passphrase of the newest one is what counts")]
    Replaced,
    /// It was used.
    #[error(
        "the enrolment was used: if it was not by whom it was meant for, revoke that certificate; and open another"
    )]
    Used,
}

impl Enrolment {
    /// A new one.
    ///
    /// # Errors
    /// The key exchange cannot be prepared.
    pub fn open(
        peer: PeerId,
        hosts: Vec<String>,
        cluster: &ClusterId,
        passphrase: &EnrolmentPassphrase,
        expires_ns: i64,
    ) -> Result<Self, PakeError> {
        let verifier = PakeVerifier::new(passphrase, &peer, cluster)?;
        Ok(Self { peer, hosts, expires_ns, tries_left: ENROLMENT_TRIES, state: EnrolmentState::Open, verifier })
    }

    /// Takes one try off, as long as they are counted. What is counted must be on record before the other side gets an
    /// answer.
    ///
    /// # Errors
    /// It is used or over.
    pub fn take_try(&mut self, now_ns: i64) -> Result<(), EnrolmentRefusal> {
        self.check(now_ns)?;
        self.tries_left = self.tries_left.saturating_sub(1);
        Ok(())
    }

    /// Which one it is.
    pub fn id(&self) -> EnrolmentId {
        let mut id = [0; 32];
        id.copy_from_slice(digest(&SHA256, self.verifier.expose()).as_ref());
        EnrolmentId(id)
    }

    /// Uses it up, for a peer that has proved itself to the enrolment `begun`. It must be on record, in one transaction
    /// with the certificate, before the certificate is given out.
    ///
    /// # Errors
    /// It is used, over, or not the one that was begun.
    pub fn use_up(&mut self, begun: EnrolmentId, now_ns: i64) -> Result<(), EnrolmentRefusal> {
        self.check(now_ns)?;
        if begun != self.id() {
            return Err(EnrolmentRefusal::Replaced);
        }
        self.state = EnrolmentState::Used;
        Ok(())
    }

    fn check(&self, now_ns: i64) -> Result<(), EnrolmentRefusal> {
        match self.state {
            EnrolmentState::Used => Err(EnrolmentRefusal::Used),
            EnrolmentState::Open if now_ns >= self.expires_ns => Err(EnrolmentRefusal::Expired),
            EnrolmentState::Open => Ok(()),
        }
    }

    /// Its record, to be sealed.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let (peer, verifier) = (self.peer.to_string(), self.verifier.expose());
        let hosts: Vec<_> = self.hosts.iter().filter(|host| host.len() <= 255).take(255).collect();
        let room = 64 + peer.len() + verifier.len() + hosts.iter().map(|host| host.len() + 1).sum::<usize>();
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend_from_slice(&[VERSION, self.tries_left, if self.state == EnrolmentState::Open { 1 } else { 2 }]);
        bytes.extend_from_slice(&self.expires_ns.to_le_bytes());
        bytes.push(peer.len() as u8);
        bytes.extend_from_slice(peer.as_bytes());
        bytes.extend_from_slice(&(verifier.len() as u16).to_le_bytes());
        bytes.extend_from_slice(verifier);
        bytes.push(hosts.len() as u8);
        for host in hosts {
            bytes.push(host.len() as u8);
            bytes.extend_from_slice(host.as_bytes());
        }
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The bytes are not a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new("enrolment", bytes);
        match cursor.u8()? {
            VERSION => {}
            other => return Err(cursor.field("version", &other)),
        }
        let tries_left = cursor.u8()?;
        let state = match cursor.u8()? {
            1 => EnrolmentState::Open,
            2 => EnrolmentState::Used,
            other => return Err(cursor.field("state", &other)),
        };
        let expires_ns = cursor.i64()?;
        let len = cursor.u8()?;
        let peer = text(&mut cursor, "peer", len)?;
        let peer = peer.parse().map_err(|_| cursor.field("peer", &peer))?;
        let len = u16::from_le_bytes(cursor.array()?);
        let verifier = cursor.take(usize::from(len))?;
        let verifier = PakeVerifier::from_bytes(verifier).map_err(|_| cursor.field("verifier", &"not one"))?;
        let mut hosts = Vec::new();
        for _ in 0..cursor.u8()? {
            let len = cursor.u8()?;
            hosts.push(text(&mut cursor, "host", len)?);
        }
        cursor.end()?;
        Ok(Self { peer, hosts, expires_ns, tries_left, state, verifier })
    }
}

fn text(cursor: &mut Cursor<'_>, field: &'static str, len: u8) -> Result<String, FormatError> {
    let bytes = cursor.take(usize::from(len))?.to_vec();
    String::from_utf8(bytes).map_err(|_| cursor.field(field, &"not UTF-8"))
}
