//! Records of a realm as bytes: what a store keeps and seals.
//!
//! All integers are little-endian. A *name* is its length in one byte and its bytes; an *optional* value a byte 0, or a
//! byte 1 and the value.
//! ```text
//! policy   version 1 (1) | name | algorithm (1): 0 any, 1 AES-256-GCM, 2 AES-256-CCM | encryption period, cryptoperiod (4 each, in
//!          seconds; 0 unlimited) | export, import (1 each): 1 allowed, 2 forbidden
//! policy   version 2 (1) | as version 1 | agents may revoke (1): 1 allowed, 2 forbidden | isolation limit (4, in seconds; 0 unlimited)
//! group    version 1 (1) | name | name of its policy
//! agent    version 1 (1) | name | name of its default group | number of groups (2) | their names
//! unit     version 1 (1) | barcode (a name) | first seen, last seen (8 each) | read until (optional 8)
//! unit     version 2 (1) | as version 1 | number of cartridges (1), more than 0 | each: serial number (a name; empty where it was not told) |
//!          since (8) | seen as (1): 1 the volume's own, 2 another
//! issue    version 1 (1) | barcode (a name) | tag (16) | name of the group | issued for (1): 1 begin, 2 append and the tag of the
//!          volume's first key (16), 3 elsewhere | issued (8) | dropped (optional 8)
//! ```
//! A policy that says nothing of agents and isolation is written as version 1, which older programs read. In it no
//! agent revokes, and isolation has no limit. So is a data unit of whose cartridges no serial number was told. A record
//! is called by its name or barcode, an issue by the key's tag.

use capstan_format::{Algorithm, Cursor, FormatError, KeyTag, MediumSerial, Volser};

use super::{
    Agent, DataUnit, IssuedKey, KeyGroup, KeyUse, Name, Period, Permission, Policy, SeenAs, SeenCartridge,
    SeenCartridges,
};
use crate::fields::{optional_i64, put_optional_i64};

const VERSION: u8 = 1;
/// Of a policy that says something of agents or isolation.
const VERSION_OF_POLICY: u8 = 2;
/// Of a data unit whose cartridge has a serial number.
const VERSION_OF_UNIT: u8 = 2;

/// What a record is about; the numbers stand in stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// Of a policy.
    Policy = 1,
    /// Of a key group.
    Group = 2,
    /// Of an agent.
    Agent = 3,
    /// Of a data unit.
    Unit = 4,
    /// Of the issue of a key.
    Issue = 5,
}

impl RecordKind {
    const ALL: [Self; 5] = [Self::Policy, Self::Group, Self::Agent, Self::Unit, Self::Issue];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The field's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Policy => "key policy",
            Self::Group => "key group",
            Self::Agent => "agent",
            Self::Unit => "data unit",
            Self::Issue => "issue of key",
        }
    }
}

/// One record of a realm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RealmRecord {
    /// A policy.
    Policy(Policy),
    /// A key group.
    Group(KeyGroup),
    /// An agent.
    Agent(Agent),
    /// A data unit, without the keys, whose issues are records of their own.
    Unit(DataUnit),
    /// The issue of a key.
    Issue {
        /// The volume that it was issued for.
        volser: Volser,
        /// The key, and what for.
        key: IssuedKey,
    },
}

impl RealmRecord {
    /// The record of a data unit.
    pub(crate) fn unit(unit: DataUnit) -> Self {
        Self::Unit(DataUnit { keys: Vec::new(), ..unit })
    }

    /// What it is about.
    pub fn kind(&self) -> RecordKind {
        match self {
            Self::Policy(_) => RecordKind::Policy,
            Self::Group(_) => RecordKind::Group,
            Self::Agent(_) => RecordKind::Agent,
            Self::Unit(_) => RecordKind::Unit,
            Self::Issue { .. } => RecordKind::Issue,
        }
    }

    /// What it is called: a name, a barcode, of an issue the key's tag.
    pub fn name(&self) -> String {
        match self {
            Self::Policy(policy) => policy.name.to_string(),
            Self::Group(group) => group.name.to_string(),
            Self::Agent(agent) => agent.name.to_string(),
            Self::Unit(unit) => unit.volser.to_string(),
            Self::Issue { key, .. } => key.tag.to_string(),
        }
    }

    /// Whether another record would stand in this one's place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Policy(one), Self::Policy(other)) => one.name == other.name,
            (Self::Group(one), Self::Group(other)) => one.name == other.name,
            (Self::Agent(one), Self::Agent(other)) => one.name == other.name,
            (Self::Unit(one), Self::Unit(other)) => one.volser == other.volser,
            (Self::Issue { key: one, .. }, Self::Issue { key: other, .. }) => one.tag == other.tag,
            _ => false,
        }
    }

    /// The bytes of the layout above.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match self {
            Self::Policy(policy) => {
                let Policy { agents_revoke, isolation_limit, .. } = policy;
                let is_plain = (*agents_revoke, *isolation_limit) == (Permission::Forbidden, Period::Unlimited);
                bytes[0] = if is_plain { VERSION } else { VERSION_OF_POLICY };
                put_name(&mut bytes, policy.name.as_str());
                bytes.push(policy.algorithm.map_or(0, Algorithm::code));
                for period in [policy.encryption_period, policy.cryptoperiod] {
                    bytes.extend_from_slice(&seconds(period).to_le_bytes());
                }
                bytes.extend([policy.export, policy.import].map(code));
                if !is_plain {
                    bytes.push(code(*agents_revoke));
                    bytes.extend_from_slice(&seconds(*isolation_limit).to_le_bytes());
                }
            }
            Self::Group(group) => {
                put_name(&mut bytes, group.name.as_str());
                put_name(&mut bytes, group.policy.as_str());
            }
            Self::Agent(agent) => {
                put_name(&mut bytes, agent.name.as_str());
                put_name(&mut bytes, agent.default_group.as_str());
                bytes.extend_from_slice(&(agent.groups.len() as u16).to_le_bytes());
                agent.groups.iter().for_each(|group| put_name(&mut bytes, group.as_str()));
            }
            Self::Unit(unit) => {
                put_name(&mut bytes, unit.volser.as_str());
                bytes.extend_from_slice(&unit.first_seen_ns.to_le_bytes());
                bytes.extend_from_slice(&unit.last_seen_ns.to_le_bytes());
                put_optional_i64(&mut bytes, unit.read_until_ns);
                if unit.cartridges.len() > 0 {
                    bytes[0] = VERSION_OF_UNIT;
                    put_cartridges(&mut bytes, &unit.cartridges);
                }
            }
            Self::Issue { volser, key } => {
                put_name(&mut bytes, volser.as_str());
                bytes.extend_from_slice(&key.tag.0);
                put_name(&mut bytes, key.group.as_str());
                match key.issued_for {
                    KeyUse::Begin => bytes.push(1),
                    KeyUse::Append { first } => {
                        bytes.push(2);
                        bytes.extend_from_slice(&first.0);
                    }
                    KeyUse::Elsewhere => bytes.push(3),
                }
                bytes.extend_from_slice(&key.issued_ns.to_le_bytes());
                put_optional_i64(&mut bytes, key.dropped_ns);
            }
        }
        bytes
    }

    /// Reads what [`RealmRecord::encode`] wrote.
    ///
    /// # Errors
    /// The record is cut short or goes on behind its end, or a field has a value that no writer writes.
    pub fn decode(kind: RecordKind, bytes: &[u8]) -> Result<Self, FormatError> {
        let what = kind.name();
        let mut fields = Cursor::new(what, bytes);
        let supported = match kind {
            RecordKind::Policy => VERSION_OF_POLICY,
            RecordKind::Unit => VERSION_OF_UNIT,
            RecordKind::Group | RecordKind::Agent | RecordKind::Issue => VERSION,
        };
        let version = fields.u8()?;
        if !(VERSION..=supported).contains(&version) {
            return Err(FormatError::Version { what, found: version.into(), supported: supported.into() });
        }
        let record = match kind {
            RecordKind::Policy => Self::Policy(decode_policy(version, &mut fields)?),
            RecordKind::Group => Self::Group(KeyGroup { name: name(&mut fields)?, policy: name(&mut fields)? }),
            RecordKind::Agent => {
                let (name_of_agent, default_group) = (name(&mut fields)?, name(&mut fields)?);
                let groups =
                    (0..u16::from_le_bytes(fields.array()?)).map(|_| name(&mut fields)).collect::<Result<_, _>>()?;
                Self::Agent(Agent { name: name_of_agent, groups, default_group })
            }
            RecordKind::Unit => Self::Unit(DataUnit {
                volser: Volser::new(text(&mut fields)?)?,
                first_seen_ns: fields.i64()?,
                last_seen_ns: fields.i64()?,
                read_until_ns: optional_i64(&mut fields, "end of an extension")?,
                cartridges: match version {
                    VERSION => SeenCartridges::default(),
                    _ => decode_cartridges(&mut fields)?,
                },
                keys: Vec::new(),
            }),
            RecordKind::Issue => {
                Self::Issue { volser: Volser::new(text(&mut fields)?)?, key: decode_issue(&mut fields)? }
            }
        };
        fields.end()?;
        Ok(record)
    }
}

fn seconds(period: Period) -> u32 {
    match period {
        Period::Unlimited => 0,
        Period::Seconds(seconds) => seconds,
    }
}

fn code(permission: Permission) -> u8 {
    match permission {
        Permission::Allowed => 1,
        Permission::Forbidden => 2,
    }
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name.as_bytes());
}

fn put_cartridges(bytes: &mut Vec<u8>, cartridges: &SeenCartridges) {
    bytes.push(cartridges.len() as u8);
    for seen in cartridges.iter() {
        put_name(bytes, seen.serial.as_ref().map(MediumSerial::as_str).unwrap_or_default());
        bytes.extend_from_slice(&seen.since_ns.to_le_bytes());
        bytes.push(match seen.seen_as {
            SeenAs::Own => 1,
            SeenAs::Another => 2,
        });
    }
}

fn decode_cartridges(fields: &mut Cursor<'_>) -> Result<SeenCartridges, FormatError> {
    let count = fields.u8()?;
    if count == 0 {
        return Err(fields.field("number of cartridges", &count));
    }
    let mut history = Vec::with_capacity(count.into());
    for _ in 0..count {
        let serial = match text(fields)? {
            "" => None,
            text => Some(MediumSerial::new(text)?),
        };
        let since_ns = fields.i64()?;
        let seen_as = match fields.u8()? {
            1 => SeenAs::Own,
            2 => SeenAs::Another,
            other => return Err(fields.field("what a cartridge was seen as", &other)),
        };
        history.push(SeenCartridge { serial, since_ns, seen_as });
    }
    Ok(SeenCartridges::from_history(history))
}

fn text<'a>(fields: &mut Cursor<'a>) -> Result<&'a str, FormatError> {
    let len = usize::from(fields.u8()?);
    let bytes = fields.take(len)?;
    str::from_utf8(bytes).map_err(|_| fields.field("name", &"not UTF-8"))
}

fn name(fields: &mut Cursor<'_>) -> Result<Name, FormatError> {
    let text = text(fields)?;
    text.parse().map_err(|_| fields.field("name", &text))
}

fn decode_policy(version: u8, fields: &mut Cursor<'_>) -> Result<Policy, FormatError> {
    let name = name(fields)?;
    let algorithm = match fields.u8()? {
        0 => None,
        code => Some(Algorithm::from_code(code).ok_or_else(|| fields.field("algorithm", &code))?),
    };
    let (encryption_period, cryptoperiod) = (period(fields)?, period(fields)?);
    let (export, import) = (permission(fields)?, permission(fields)?);
    let plain = Policy { algorithm, encryption_period, cryptoperiod, export, import, ..Policy::unlimited(name) };
    if version == VERSION {
        return Ok(plain);
    }
    Ok(Policy { agents_revoke: permission(fields)?, isolation_limit: period(fields)?, ..plain })
}

fn period(fields: &mut Cursor<'_>) -> Result<Period, FormatError> {
    Ok(match fields.u32()? {
        0 => Period::Unlimited,
        seconds => Period::Seconds(seconds),
    })
}

fn permission(fields: &mut Cursor<'_>) -> Result<Permission, FormatError> {
    match fields.u8()? {
        1 => Ok(Permission::Allowed),
        2 => Ok(Permission::Forbidden),
        other => Err(fields.field("permission", &other)),
    }
}

fn decode_issue(fields: &mut Cursor<'_>) -> Result<IssuedKey, FormatError> {
    let (tag, group) = (KeyTag(fields.array()?), name(fields)?);
    let issued_for = match fields.u8()? {
        1 => KeyUse::Begin,
        2 => KeyUse::Append { first: KeyTag(fields.array()?) },
        3 => KeyUse::Elsewhere,
        other => return Err(fields.field("use of a key", &other)),
    };
    let (issued_ns, dropped_ns) = (fields.i64()?, optional_i64(fields, "time of the next beginning")?);
    Ok(IssuedKey { tag, group, issued_for, issued_ns, dropped_ns })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn records() -> Vec<RealmRecord> {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let volser = Volser::new("A00001").unwrap();
        let issue = |byte, issued_for, dropped_ns| RealmRecord::Issue {
            volser: volser.clone(),
            key: IssuedKey { tag: KeyTag([byte; 16]), group: name("g"), issued_for, issued_ns: 5, dropped_ns },
        };
        vec![
            RealmRecord::Policy(Policy {
                name: name("yearly"),
                algorithm: Some(Algorithm::Aes256Ccm),
                encryption_period: Period::Seconds(0x0102_0304),
                cryptoperiod: Period::Unlimited,
                export: Permission::Allowed,
                import: Permission::Forbidden,
                agents_revoke: Permission::Forbidden,
                isolation_limit: Period::Unlimited,
            }),
            RealmRecord::Policy(Policy {
                agents_revoke: Permission::Allowed,
                isolation_limit: Period::Seconds(5),
                ..Policy::unlimited(name("p"))
            }),
            RealmRecord::Group(KeyGroup { name: name("g"), policy: name("yearly") }),
            RealmRecord::Agent(Agent {
                name: name("CPT0000001"),
                groups: [name("g"), name("h")].into(),
                default_group: name("h"),
            }),
            RealmRecord::Unit(DataUnit {
                volser: volser.clone(),
                first_seen_ns: 1,
                last_seen_ns: 2,
                read_until_ns: Some(3),
                cartridges: SeenCartridges::default(),
                keys: Vec::new(),
            }),
            RealmRecord::Unit(DataUnit {
                volser: volser.clone(),
                first_seen_ns: 1,
                last_seen_ns: 2,
                read_until_ns: None,
                cartridges: SeenCartridges::from_history(vec![
                    SeenCartridge { serial: Some("HP1".parse().unwrap()), since_ns: 4, seen_as: SeenAs::Own },
                    SeenCartridge { serial: Some("S 2".parse().unwrap()), since_ns: 5, seen_as: SeenAs::Another },
                    SeenCartridge { serial: None, since_ns: 6, seen_as: SeenAs::Own },
                ]),
                keys: Vec::new(),
            }),
            issue(1, KeyUse::Begin, Some(9)),
            issue(2, KeyUse::Append { first: KeyTag([1; 16]) }, None),
            issue(3, KeyUse::Elsewhere, None),
        ]
    }

    /// The bytes of the layout above, by hand.
    #[test]
    fn records_have_the_bytes_of_the_layout() {
        let mut expected = vec![
            b"\x01\x06yearly\x02\x04\x03\x02\x01\0\0\0\0\x01\x02".to_vec(),
            b"\x02\x01p\0\0\0\0\0\0\0\0\0\x01\x01\x01\x05\0\0\0".to_vec(),
            b"\x01\x01g\x06yearly".to_vec(),
            b"\x01\x0aCPT0000001\x01h\x02\0\x01g\x01h".to_vec(),
        ];
        expected.push(b"\x01\x06A00001\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x03\0\0\0\0\0\0\0".to_vec());
        let unit = b"\x02\x06A00001\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\x03".to_vec();
        let cartridges =
            [&b"\x03HP1\x04\0\0\0\0\0\0\0\x01"[..], b"\x03S 2\x05\0\0\0\0\0\0\0\x02", b"\0\x06\0\0\0\0\0\0\0\x01"];
        expected.push([unit, cartridges.concat()].concat());
        let issue = |tag: u8, rest: &[&[u8]]| [&b"\x01\x06A00001"[..], &[tag; 16], b"\x01g", &rest.concat()].concat();
        expected.push(issue(1, &[b"\x01\x05\0\0\0\0\0\0\0\x01\x09\0\0\0\0\0\0\0"]));
        expected.push(issue(2, &[b"\x02", &[1; 16], b"\x05\0\0\0\0\0\0\0\0"]));
        expected.push(issue(3, &[b"\x03\x05\0\0\0\0\0\0\0\0"]));
        assert_eq!(records().iter().map(RealmRecord::encode).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for record in records() {
            assert_eq!(RealmRecord::decode(record.kind(), &record.encode()).unwrap(), record);
        }
    }

    /// No byte can be cut off, added, or changed without an error or another record; none makes the decoder panic.
    #[test]
    fn altered_records_are_errors_or_other_records() {
        for record in records() {
            let bytes = record.encode();
            for len in 0..bytes.len() {
                assert!(RealmRecord::decode(record.kind(), &bytes[..len]).is_err());
            }
            assert!(RealmRecord::decode(record.kind(), &[&bytes[..], b"\0"].concat()).is_err());
            for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut altered = bytes.clone();
                altered[at] ^= 1 << bit;
                assert_ne!(RealmRecord::decode(record.kind(), &altered).ok().as_ref(), Some(&record));
            }
        }
    }
}
