//! What lies in the ledger, as bytes before they are sealed.
//!
//! All integers are little-endian; a *name* is its length in one byte and its bytes; a *part* its length in two bytes
//! and its bytes.
//! ```text
//! key    version 1 (1) | key, as in `capstan_keys::StoredKey` (a part) | issue, as in `capstan_keys::RealmRecord` (a part) |
//!        request (16) | name of the agent that asked | name of the node that issued it
//! pool   version 1 (1) | drawn, in nanoseconds since 1970 (8) | key under the pool key (40)
//! group  version 1 (1) | group, as in `capstan_keys::RealmRecord` (a part) | key of the group under the cluster key (40)
//! held   version 1 (1) | commit (8)
//! ```
//! Policies, agents and data units are as in `capstan_keys::RealmRecord`. A key and its issue are one record, since
//! they change together and a million of them are read at each start. What is read seldom (nodes, sites, backups) is
//! JSON.

use capstan_format::{Cursor, FormatError, Volser};
use capstan_keys::{IssuedKey, KeyGroup, Name, RealmRecord, RecordKind, StoredKey, WrappedKey};
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;
const UNCONFIRMED: &str = "unconfirmed-keys";

/// The group, and the policy, of keys that lost nodes gave out and of which nobody has confirmed yet of which group
/// they are.
pub fn unconfirmed_group() -> Name {
    let Ok(name) = UNCONFIRMED.parse() else { unreachable!("it is a name") };
    name
}

/// Whether a group is that one.
pub fn is_unconfirmed(group: &Name) -> bool {
    group.as_str() == UNCONFIRMED
}

/// A key that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedRecord {
    /// The key, wrapped under its group's.
    pub stored: StoredKey,
    /// What for.
    pub issued: IssuedKey,
    /// To whom, and by whom.
    pub origin: KeyOrigin,
}

/// Who asked for a key, and who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOrigin {
    /// The number that the agent gave its request: asked again, it gets the same key.
    pub request: [u8; 16],
    /// The agent.
    pub agent: Name,
    /// The node.
    pub kma: Name,
}

/// A key that was drawn and not issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKey {
    /// When it was drawn.
    pub created_ns: i64,
    /// The key under the pool key.
    pub wrapped: WrappedKey,
}

/// A key group with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRecord {
    /// The group.
    pub group: KeyGroup,
    /// What its keys are wrapped under, wrapped under the cluster key.
    pub wrapped: WrappedKey,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KmaRecord {
    /// The site it stands at.
    pub site: String,
    /// Where agents reach it: host and port.
    pub address: String,
    /// When it joined, in nanoseconds since 1970.
    pub joined_ns: i64,
}

/// A node that was removed from the cluster. Its name is never given to another: journals and audit logs know no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedKma {
    /// What it was.
    #[serde(flatten)]
    pub was: KmaRecord,
    /// The commit up to which it had said that its disk holds the ledger.
    pub held: i64,
    /// The epoch in which that was.
    pub epoch: u32,
    /// Who asked for its removal.
    pub by: Name,
    /// When it was removed, in nanoseconds since 1970.
    pub removed_ns: i64,
    /// When somebody said that its disks were destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed_ns: Option<i64>,
    /// When it was met although its disks had been said to be destroyed: later than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_ns: Option<i64>,
}

impl RemovedKma {
    /// When its disks were said to be destroyed, if it was not met since.
    pub fn disks_destroyed_ns(&self) -> Option<i64> {
        self.destroyed_ns.filter(|_| self.met_since_ns().is_none())
    }

    /// When it was met although its disks are said to be destroyed.
    pub fn met_since_ns(&self) -> Option<i64> {
        self.met_ns.filter(|met| self.destroyed_ns.is_some_and(|said| *met > said))
    }

    /// The same, whose disks are said to be destroyed: once, unless it was met since.
    pub fn with_disks_destroyed(self, now_ns: i64) -> Self {
        let behind = self.met_ns.map_or(now_ns, |met| now_ns.max(met + 1));
        Self { destroyed_ns: self.disks_destroyed_ns().or(Some(behind)), ..self }
    }

    /// The same, which was met; none where that is nothing new.
    pub fn that_was_met(self, now_ns: i64) -> Option<Self> {
        let said = self.disks_destroyed_ns()?;
        Some(Self { met_ns: Some(now_ns.max(said + 1)), ..self })
    }
}

impl IssuedRecord {
    /// The bytes of the layout above.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let mut stored = Vec::with_capacity(160);
        self.stored.encode(&mut stored);
        put_part(&mut bytes, &stored);
        let volser = self.stored.record.volser.clone();
        put_part(&mut bytes, &RealmRecord::Issue { volser, key: self.issued.clone() }.encode());
        bytes.extend_from_slice(&self.origin.request);
        put_name(&mut bytes, &self.origin.agent);
        put_name(&mut bytes, &self.origin.kma);
        bytes
    }

    /// Reads what [`IssuedRecord::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = begin("key", bytes)?;
        let stored = part(&mut fields)?;
        let mut of_key = Cursor::new("key", stored);
        let stored = StoredKey::decode(&mut of_key)?;
        of_key.end()?;
        let (volser, issued) = match RealmRecord::decode(RecordKind::Issue, part(&mut fields)?)? {
            RealmRecord::Issue { volser, key } => (volser, key),
            _ => return Err(fields.field("issue", &"another kind of record")),
        };
        if volser != stored.record.volser || issued.tag != stored.record.tag {
            return Err(fields.field("issue", &"of another key"));
        }
        let origin = KeyOrigin { request: fields.array()?, agent: name(&mut fields)?, kma: name(&mut fields)? };
        fields.end()?;
        Ok(Self { stored, issued, origin })
    }

    /// The volume it was issued for.
    pub fn volser(&self) -> &Volser {
        &self.stored.record.volser
    }
}

impl PoolKey {
    /// The bytes of the layout above.
    pub fn encode(&self) -> Vec<u8> {
        [&[VERSION][..], &self.created_ns.to_le_bytes(), &self.wrapped].concat()
    }

    /// Reads what [`PoolKey::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = begin("key of a pool", bytes)?;
        let key = Self { created_ns: fields.i64()?, wrapped: fields.array()? };
        fields.end()?;
        Ok(key)
    }
}

impl GroupRecord {
    /// The bytes of the layout above.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put_part(&mut bytes, &RealmRecord::Group(self.group.clone()).encode());
        bytes.extend_from_slice(&self.wrapped);
        bytes
    }

    /// Reads what [`GroupRecord::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = begin("key group", bytes)?;
        let group = match RealmRecord::decode(RecordKind::Group, part(&mut fields)?)? {
            RealmRecord::Group(group) => group,
            _ => return Err(fields.field("group", &"another kind of record")),
        };
        let wrapped = fields.array()?;
        fields.end()?;
        Ok(Self { group, wrapped })
    }
}

/// The record of how far a node holds the ledger.
pub fn encode_held(revision: i64) -> Vec<u8> {
    [&[VERSION][..], &revision.to_le_bytes()].concat()
}

/// Reads what [`encode_held`] wrote.
pub fn decode_held(bytes: &[u8]) -> Result<i64, FormatError> {
    let mut fields = begin("mark of what a node holds", bytes)?;
    let revision = fields.i64()?;
    fields.end()?;
    Ok(revision)
}

fn begin<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Cursor<'a>, FormatError> {
    let mut fields = Cursor::new(what, bytes);
    match fields.u8()? {
        VERSION => Ok(fields),
        found => Err(FormatError::Version { what, found: found.into(), supported: VERSION.into() }),
    }
}

fn put_part(bytes: &mut Vec<u8>, part: &[u8]) {
    // The parts are records of some hundred bytes.
    bytes.extend_from_slice(&(part.len() as u16).to_le_bytes());
    bytes.extend_from_slice(part);
}

fn part<'a>(fields: &mut Cursor<'a>) -> Result<&'a [u8], FormatError> {
    let len = usize::from(u16::from_le_bytes(fields.array()?));
    fields.take(len)
}

fn put_name(bytes: &mut Vec<u8>, name: &Name) {
    bytes.push(name.as_str().len() as u8);
    bytes.extend_from_slice(name.as_str().as_bytes());
}

fn name(fields: &mut Cursor<'_>) -> Result<Name, FormatError> {
    let len = usize::from(fields.u8()?);
    let bytes = fields.take(len)?;
    let text = str::from_utf8(bytes).map_err(|_| fields.field("name", &"not UTF-8"))?;
    text.parse().map_err(|_| fields.field("name", &text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::{Algorithm, KeyTag};
    use capstan_keys::{KeyRecord, KeyState, KeyUse};

    use super::*;

    fn issued() -> IssuedRecord {
        let record = KeyRecord {
            tag: KeyTag([7; 16]),
            volser: Volser::new("A00001").unwrap(),
            algorithm: Algorithm::Aes256Gcm,
            state: KeyState::Ready,
            created_ns: 1,
            activated_ns: None,
            retired_ns: None,
            destroyed_ns: None,
            imported_ns: None,
        };
        let issued = IssuedKey {
            tag: record.tag,
            group: Name::default(),
            issued_for: KeyUse::Begin,
            issued_ns: 2,
            dropped_ns: None,
        };
        let origin = KeyOrigin { request: [3; 16], agent: "drive".parse().unwrap(), kma: "a".parse().unwrap() };
        IssuedRecord { stored: StoredKey { record, wrapped: Some([9; 40]) }, issued, origin }
    }

    /// Clocks of nodes differ: what was said last counts.
    #[test]
    fn a_disk_that_runs_again_is_not_destroyed_until_that_is_said_again() {
        let was = KmaRecord { site: String::new(), address: "b:1".to_owned(), joined_ns: 1 };
        let by: Name = "ada".parse().unwrap();
        let removed = RemovedKma { was, held: 2, epoch: 1, by, removed_ns: 3, destroyed_ns: None, met_ns: None };
        assert_eq!(removed.clone().that_was_met(4), None, "nobody said anything of its disks");
        let said = removed.with_disks_destroyed(50);
        assert_eq!((said.disks_destroyed_ns(), said.met_since_ns()), (Some(50), None));
        assert_eq!(said.clone().with_disks_destroyed(60).disks_destroyed_ns(), Some(50), "the first time counts");
        let met = said.that_was_met(40).unwrap();
        assert_eq!((met.disks_destroyed_ns(), met.met_since_ns()), (None, Some(51)));
        assert_eq!(met.clone().that_was_met(70), None, "once is enough");
        let again = met.with_disks_destroyed(45);
        assert_eq!((again.disks_destroyed_ns(), again.met_since_ns()), (Some(52), None));
        assert!(again.that_was_met(80).is_some());
    }

    /// The bytes of the layout above, by hand.
    #[test]
    fn records_have_the_bytes_of_the_layout() {
        let stored = [&[7; 16][..], b"\x01\x02\x06A00001", &1_i64.to_le_bytes(), &[0; 4], &[1], &[9; 40]].concat();
        let issue = [b"\x01\x06A00001", &[7; 16][..], b"\x07default\x01", &2_i64.to_le_bytes(), &[0]].concat();
        let key =
            [&[1, stored.len() as u8, 0][..], &stored, &[issue.len() as u8, 0], &issue, &[3; 16], b"\x05drive\x01a"];
        assert_eq!(issued().encode(), key.concat());
        let pool = PoolKey { created_ns: 5, wrapped: [8; 40] };
        assert_eq!(pool.encode(), [&b"\x01\x05\0\0\0\0\0\0\0"[..], &[8; 40]].concat());
        let group = KeyGroup { name: "g".parse().unwrap(), policy: "p".parse().unwrap() };
        let group = GroupRecord { group, wrapped: [6; 40] };
        assert_eq!(group.encode(), [&b"\x01\x05\0\x01\x01g\x01p"[..], &[6; 40]].concat());
        assert_eq!(encode_held(258), b"\x01\x02\x01\0\0\0\0\0\0");
        assert_eq!(IssuedRecord::decode(&issued().encode()).unwrap(), issued());
        assert_eq!(PoolKey::decode(&pool.encode()).unwrap(), pool);
        assert_eq!(GroupRecord::decode(&group.encode()).unwrap(), group);
        assert_eq!(decode_held(&encode_held(258)).unwrap(), 258);
    }

    /// No byte can be cut off, added, or changed without an error or another record; none makes a decoder panic.
    #[test]
    fn altered_records_are_errors_or_other_records() {
        let bytes = issued().encode();
        for len in 0..bytes.len() {
            assert!(IssuedRecord::decode(&bytes[..len]).is_err());
        }
        assert!(IssuedRecord::decode(&[&bytes[..], b"\0"].concat()).is_err());
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut altered = bytes.clone();
            altered[at] ^= 1 << bit;
            assert_ne!(IssuedRecord::decode(&altered).ok(), Some(issued()));
        }
    }
}
