//! An enrolment that a security officer opened: what the cluster keeps of it, and the decisions over it. Pure.
//!
//! The key is kept that the passphrase and the peer make (`capstan_keys::cluster::EnrolmentKey`). Each proof costs a
//! try, which is on record before the proof is looked at: a node that stops meanwhile forgets none.
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
//!  0  1  version, 2
//!  1  1  tries left
//!  2  1  state: 1 open, 2 used
//!  3  8  expires, nanoseconds since 1970
//! 11  1  length of the peer, then the peer as text
//! ..  32 the key; zeros once it was used
//! ..  1  number of hosts, then each: length (1) and text
//! ```
//! Version 1 has a verifier of OPAQUE in the place of the key, with its length (2) in front. Nobody proves anything by
//! it any more: such an enrolment counts as expired, and another is opened.

use aws_lc_rs::digest::{SHA256, digest};
use capstan_format::{Cursor, FormatError};
use capstan_keys::api::{AskEnrolment, Base64, EnrolmentAnswer, IssuedCertificate, PeerId};
use capstan_keys::cluster::{ChannelBinding, EnrolmentError, EnrolmentKey, EnrolmentPassphrase};
use capstan_keys::{KEY_LEN, KeyError};
use thiserror::Error;
use zeroize::Zeroizing;

/// How many tries of a passphrase are put on record.
pub const ENROLMENT_TRIES: u8 = 5;
const VERSION: u8 = 2;
/// What is kept in the place of a key that nobody needs any more.
const NO_KEY: [u8; KEY_LEN] = [0; KEY_LEN];
/// The version whose enrolments are over.
const VERSION_OF_OPAQUE: u8 = 1;

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
    /// None once it was used, and for one of version 1: nobody proves anything by it then.
    key: Option<EnrolmentKey>,
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
    /// The cryptographic library failed.
    pub fn open(
        peer: PeerId,
        hosts: Vec<String>,
        passphrase: &EnrolmentPassphrase,
        expires_ns: i64,
    ) -> Result<Self, KeyError> {
        let key = EnrolmentKey::new(passphrase, &peer)?;
        Ok(Self { peer, hosts, expires_ns, tries_left: ENROLMENT_TRIES, state: EnrolmentState::Open, key: Some(key) })
    }

    /// Checks the proof of whoever asks over the connection with this binding; a try must be on record.
    ///
    /// # Errors
    /// They do not know the passphrase, or what they sent was altered or passed on.
    pub fn check_proof(&self, binding: &ChannelBinding, question: &AskEnrolment) -> Result<(), EnrolmentError> {
        let key = self.key.as_ref().ok_or(EnrolmentError::NotProved)?;
        key.check_request(binding, &self.peer, &question.request.0, &question.proof.0)
    }

    /// The answer to whoever has proved themselves, with the node's own proof.
    ///
    /// # Errors
    /// There is nothing to prove it by, or the cryptographic library failed.
    pub fn answer(
        &self,
        binding: &ChannelBinding,
        question: &AskEnrolment,
        issued: IssuedCertificate,
    ) -> Result<EnrolmentAnswer, EnrolmentError> {
        let key = self.key.as_ref().ok_or(EnrolmentError::NotProved)?;
        let proof = key.prove_answer(binding, &question.proof.0, &issued)?;
        Ok(EnrolmentAnswer { issued, proof: Base64(proof) })
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
        id.copy_from_slice(digest(&SHA256, self.key_bytes()).as_ref());
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
        self.key = None;
        Ok(())
    }

    /// Whether it was opened by a program whose passphrases prove nothing any more. No later end makes it good again.
    pub fn is_of_older_program(&self) -> bool {
        self.key.is_none() && self.state == EnrolmentState::Open
    }

    fn key_bytes(&self) -> &[u8; KEY_LEN] {
        self.key.as_ref().map_or(&NO_KEY, EnrolmentKey::expose)
    }

    fn check(&self, now_ns: i64) -> Result<(), EnrolmentRefusal> {
        match self.state {
            EnrolmentState::Used => Err(EnrolmentRefusal::Used),
            EnrolmentState::Open if self.is_of_older_program() || now_ns >= self.expires_ns => {
                Err(EnrolmentRefusal::Expired)
            }
            EnrolmentState::Open => Ok(()),
        }
    }

    /// Its record, to be sealed.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let (peer, key) = (self.peer.to_string(), self.key_bytes());
        let hosts: Vec<_> = self.hosts.iter().filter(|host| host.len() <= 255).take(255).collect();
        let room = 64 + peer.len() + key.len() + hosts.iter().map(|host| host.len() + 1).sum::<usize>();
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend_from_slice(&[
            VERSION,
            self.tries_left,
            if self.key.is_some() && self.state == EnrolmentState::Open { 1 } else { 2 },
        ]);
        bytes.extend_from_slice(&self.expires_ns.to_le_bytes());
        bytes.push(peer.len() as u8);
        bytes.extend_from_slice(peer.as_bytes());
        bytes.extend_from_slice(key);
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
        let version = cursor.u8()?;
        if ![VERSION, VERSION_OF_OPAQUE].contains(&version) {
            return Err(cursor.field("version", &version));
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
        let key = if version == VERSION {
            let bytes = cursor.array()?;
            if bytes == NO_KEY && state == EnrolmentState::Open {
                return Err(cursor.field("key", &"none"));
            }
            (bytes != NO_KEY).then(|| EnrolmentKey::from_bytes(&bytes))
        } else {
            let verifier = u16::from_le_bytes(cursor.array()?);
            cursor.take(usize::from(verifier))?;
            None
        };
        let mut hosts = Vec::new();
        for _ in 0..cursor.u8()? {
            let len = cursor.u8()?;
            hosts.push(text(&mut cursor, "host", len)?);
        }
        cursor.end()?;
        Ok(Self { peer, hosts, expires_ns, tries_left, state, key })
    }
}

fn text(cursor: &mut Cursor<'_>, field: &'static str, len: u8) -> Result<String, FormatError> {
    let bytes = cursor.take(usize::from(len))?.to_vec();
    String::from_utf8(bytes).map_err(|_| cursor.field(field, &"not UTF-8"))
}

#[cfg(test)]
mod tests;
