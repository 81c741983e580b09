//! Header and records as a chain of MACs: written, read, and told apart from what a crash leaves.

use std::collections::VecDeque;

use aws_lc_rs::hmac;
use capstan_format::{Cursor, crc32c};
use capstan_keys::{Name, Secret};

use super::PlacedEntry;
use super::record::{BODY_LEN_MAX, Body};

const MAGIC: &[u8; 8] = b"CAPSJRNL";
const VERSION: u32 = 1;
const MAC_LEN: usize = 32;
/// Length, sequence, checksum of both.
pub(super) const HEAD_LEN: usize = 16;
/// What a disk writes as a whole: zeros that a crash leaves begin at a multiple of it.
const SECTOR_LEN: usize = 512;
const OF_HEADER: &[u8] = &[1];
const OF_RECORD: &[u8] = &[2];

pub(super) type Mac = [u8; MAC_LEN];

/// The key of one node's journal, and the node.
#[derive(Clone)]
pub(super) struct ChainKey {
    pub(super) kma: Name,
    key: hmac::Key,
}

impl ChainKey {
    pub(super) fn new(kma: &Name, key: &Secret) -> Self {
        let cluster = hmac::Key::new(hmac::HMAC_SHA256, key.expose());
        let of_node = hmac::sign(&cluster, &[b"capstan journal v1", kma.as_str().as_bytes()].concat());
        Self { kma: kma.clone(), key: hmac::Key::new(hmac::HMAC_SHA256, of_node.as_ref()) }
    }

    fn sign(&self, parts: &[&[u8]]) -> Mac {
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }

    fn header(&self, sequence: u64, mac: &Mac) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(self.kma.as_str().len() as u8);
        bytes.extend_from_slice(self.kma.as_str().as_bytes());
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(mac);
        let own = self.sign(&[OF_HEADER, &bytes]);
        bytes.extend_from_slice(&own);
        bytes
    }
}

/// Where a chain stands: its last record, and what is not reconciled.
pub(super) struct Chain {
    pub(super) key: ChainKey,
    /// The last record's number; 0 before the first.
    pub(super) sequence: u64,
    /// The last record's MAC.
    pub(super) mac: Mac,
    /// Up to which record all is reconciled.
    pub(super) reconciled: u64,
    pub(super) pending: VecDeque<PlacedEntry>,
}

/// What stands at a place of a file.
pub(super) enum Next<'a> {
    /// A record that is whole; whether it continues a chain is another question.
    Record { sequence: u64, body: &'a [u8], signed: &'a [u8], mac: Mac, len: usize },
    /// What a crash leaves.
    Torn,
    /// What no crash leaves.
    Altered(&'static str),
}

/// A record as the chain takes it in.
pub(super) struct Step {
    sequence: u64,
    mac: Mac,
    body: Body,
}

/// A file or a segment, read.
pub(super) struct Loaded {
    pub(super) chain: Chain,
    /// The length of the header.
    pub(super) header_len: usize,
    /// The length of what is whole.
    pub(super) len: usize,
}

impl Chain {
    pub(super) fn new(key: ChainKey) -> Self {
        Self { key, sequence: 0, mac: [0; MAC_LEN], reconciled: 0, pending: VecDeque::new() }
    }

    /// The same without what is pending.
    pub(super) fn end(&self) -> Self {
        Self { key: self.key.clone(), pending: VecDeque::new(), ..*self }
    }

    /// Takes the steps that another has taken from this one's end.
    pub(super) fn go_on(&mut self, other: Self) {
        let pending = std::mem::take(&mut self.pending);
        *self = other;
        let new = std::mem::replace(&mut self.pending, pending);
        self.forget_up_to(self.reconciled);
        self.pending.extend(new);
    }

    /// In order, and most often the first alone: a look at all of them for each would be the square of a long journal.
    fn forget_up_to(&mut self, up_to: u64) {
        while self.pending.front().is_some_and(|recorded| recorded.sequence <= up_to) {
            self.pending.pop_front();
        }
    }

    /// The header of a file that begins here; everything before is reconciled.
    pub(super) fn header(&self) -> Vec<u8> {
        self.key.header(self.sequence, &self.mac)
    }

    /// The next record, and the step that the chain makes once it is durable.
    pub(super) fn record(&self, body: Body) -> (Vec<u8>, Step) {
        let encoded = body.encode();
        let sequence = self.sequence + 1;
        let mut bytes = (encoded.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&sequence.to_le_bytes());
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&encoded);
        let mac = self.key.sign(&[OF_RECORD, &self.mac, &bytes]);
        bytes.extend_from_slice(&mac);
        (bytes, Step { sequence, mac, body })
    }

    pub(super) fn advance(&mut self, Step { sequence, mac, body }: Step) {
        (self.sequence, self.mac) = (sequence, mac);
        match body {
            Body::Entry(entry) => self.pending.push_back(PlacedEntry { sequence, entry }),
            Body::Reconciled { up_to } => {
                self.reconciled = self.reconciled.max(up_to);
                self.forget_up_to(up_to);
            }
        }
    }

    /// Takes a whole record, if it is the next one.
    pub(super) fn take(&mut self, sequence: u64, body: &[u8], signed: &[u8], mac: Mac) -> Result<(), &'static str> {
        if sequence != self.sequence + 1 {
            return Err("its number is not the next one");
        }
        let own = [OF_RECORD, &self.mac, signed].concat();
        hmac::verify(&self.key.key, &own, &mac).map_err(|_| "its MAC does not continue the chain")?;
        match Body::decode(body) {
            Ok(Body::Reconciled { up_to }) if up_to >= sequence => Err("it reconciles what comes after it"),
            Ok(body) => {
                self.advance(Step { sequence, mac, body });
                Ok(())
            }
            // Whoever holds the key wrote what this program does not read.
            Err(_) => Err("it is of a kind that this program does not know"),
        }
    }

    /// The chain at the beginning of a file, and the length of the header.
    pub(super) fn read_header(key: &ChainKey, bytes: &[u8]) -> Result<(Self, usize), String> {
        let mut fields = Cursor::new("journal", bytes);
        let mut read = || {
            if fields.array::<8>()? != *MAGIC {
                return Err(fields.field("beginning", &"another one"));
            }
            let version = fields.u32()?;
            if version != VERSION {
                return Err(fields.field("version", &version));
            }
            let len = usize::from(fields.u8()?);
            if fields.take(len)? != key.kma.as_str().as_bytes() {
                return Err(fields.field("node", &"another one"));
            }
            Ok((u64::from_le_bytes(fields.array()?), fields.array()?, fields.array()?, len))
        };
        let (sequence, before, mac, name_len): (u64, Mac, Mac, usize) = read().map_err(|error| error.to_string())?;
        let signed_len = MAGIC.len() + 4 + 1 + name_len + 8 + MAC_LEN;
        let signed = [OF_HEADER, &bytes[..signed_len]].concat();
        hmac::verify(&key.key, &signed, &mac).map_err(|_| "the MAC of its header is wrong".to_owned())?;
        let chain = Self { sequence, mac: before, reconciled: sequence, ..Self::new(key.clone()) };
        Ok((chain, signed_len + MAC_LEN))
    }

    /// Reads a whole file. What is torn off its end is left out; what was altered is an error.
    pub(super) fn load(key: &ChainKey, bytes: &[u8]) -> Result<Loaded, String> {
        let (mut chain, header_len) = Self::read_header(key, bytes)?;
        let mut len = header_len;
        while len < bytes.len() {
            let after = chain.sequence;
            let altered = |what| format!("the record after record {after}: {what}");
            match next_record(bytes, len) {
                Next::Record { sequence, body, signed, mac, len: record_len } => {
                    match chain.take(sequence, body, signed, mac) {
                        Ok(()) => len += record_len,
                        // The MAC stands last, so zeros in its place are what a crash leaves.
                        Err(_) if is_zeros_before(bytes, len + record_len) => break,
                        Err(what) => return Err(altered(what)),
                    }
                }
                Next::Torn => break,
                Next::Altered(what) => return Err(altered(what)),
            }
        }
        Ok(Loaded { chain, header_len, len })
    }
}

/// What stands at a place.
pub(super) fn next_record(bytes: &[u8], at: usize) -> Next<'_> {
    let rest = &bytes[at..];
    let Some((head, _)) = rest.split_first_chunk::<HEAD_LEN>() else { return Next::Torn };
    let mut fields = Cursor::new("head", head);
    let (Ok(body_len), Ok(sequence), Ok(checksum)) = (fields.u32(), fields.array(), fields.u32()) else {
        return Next::Torn;
    };
    if checksum != crc32c(&head[..12]) {
        return if is_zeros_before(bytes, at + HEAD_LEN) {
            Next::Torn
        } else {
            Next::Altered("the checksum of its length is wrong")
        };
    }
    let body_len = body_len as usize;
    if body_len > BODY_LEN_MAX {
        return Next::Altered("it is longer than any");
    }
    let len = HEAD_LEN + body_len + MAC_LEN;
    let Some((record, _)) = rest.split_at_checked(len) else { return Next::Torn };
    let (signed, own) = record.split_at(len - MAC_LEN);
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(own);
    Next::Record { sequence: u64::from_le_bytes(sequence), body: &signed[HEAD_LEN..], signed, mac, len }
}

/// Whether from a sector on that begins before `end` there is nothing but zeros up to the end of the file.
fn is_zeros_before(bytes: &[u8], end: usize) -> bool {
    let last = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    last.next_multiple_of(SECTOR_LEN) < end
}

#[cfg(test)]
mod tests;
