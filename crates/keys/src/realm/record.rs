//! Records of a realm as bytes: what a store keeps and seals.
//!
//! All integers are little-endian. A *name* is its length in one byte and its bytes; an *optional* value a byte 0, or a byte 1
//! and the value.
//! ```text
//! policy   version 1 (1) | name | algorithm (1): 0 any, 1 AES-256-GCM, 2 AES-256-CCM | encryption period, cryptoperiod (4 each, in
//!          seconds; 0 unlimited) | export, import (1 each): 1 allowed, 2 forbidden
//! group    version 1 (1) | name | name of its policy
//! agent    version 1 (1) | name | name of its default group | number of groups (2) | their names
//! unit     version 1 (1) | barcode (a name) | first seen, last seen (8 each) | read until (optional 8) | number of keys (2) |
//!          each: tag (16) | name of the group | issued for (1): 1 begin, 2 append | issued (8) | dropped (optional 8)
//! ```

use capstan_format::{Algorithm, Cursor, FormatError, KeyTag, Volser};

use super::{Agent, DataUnit, IssuedKey, KeyGroup, KeyUse, Name, Period, Permission, Policy};
use crate::fields::{optional_i64, put_optional_i64};

const VERSION: u8 = 1;
/// Most keys that a unit's record lists. Of a volume with more the oldest ones that it holds nothing of any more are left out; the
/// records of the keys themselves stay and name the volume.
const KEYS_MAX: usize = 256;

/// What a record is about; the numbers stand in stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecordKind {
    Policy = 1,
    Group = 2,
    Agent = 3,
    Unit = 4,
}

impl RecordKind {
    const ALL: [Self; 4] = [Self::Policy, Self::Group, Self::Agent, Self::Unit];

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
        }
    }
}

/// One record of a realm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RealmRecord {
    Policy(Policy),
    Group(KeyGroup),
    Agent(Agent),
    Unit(DataUnit),
}

impl RealmRecord {
    pub(crate) fn kind(&self) -> RecordKind {
        match self {
            Self::Policy(_) => RecordKind::Policy,
            Self::Group(_) => RecordKind::Group,
            Self::Agent(_) => RecordKind::Agent,
            Self::Unit(_) => RecordKind::Unit,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Policy(policy) => policy.name.as_str(),
            Self::Group(group) => group.name.as_str(),
            Self::Agent(agent) => agent.name.as_str(),
            Self::Unit(unit) => unit.volser.as_str(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match self {
            Self::Policy(policy) => {
                put_name(&mut bytes, policy.name.as_str());
                bytes.push(policy.algorithm.map_or(0, Algorithm::code));
                for period in [policy.encryption_period, policy.cryptoperiod] {
                    let seconds = match period {
                        Period::Unlimited => 0,
                        Period::Seconds(seconds) => seconds,
                    };
                    bytes.extend_from_slice(&seconds.to_le_bytes());
                }
                bytes.extend([policy.export, policy.import].map(|permission| match permission {
                    Permission::Allowed => 1,
                    Permission::Forbidden => 2,
                }));
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
                let keys = listed(&unit.keys);
                bytes.extend_from_slice(&(keys.len() as u16).to_le_bytes());
                for key in keys {
                    bytes.extend_from_slice(&key.tag.0);
                    put_name(&mut bytes, key.group.as_str());
                    bytes.push(match key.issued_for {
                        KeyUse::Begin => 1,
                        KeyUse::Append => 2,
                    });
                    bytes.extend_from_slice(&key.issued_ns.to_le_bytes());
                    put_optional_i64(&mut bytes, key.dropped_ns);
                }
            }
        }
        bytes
    }

    pub(crate) fn decode(kind: RecordKind, bytes: &[u8]) -> Result<Self, FormatError> {
        let what = kind.name();
        let mut fields = Cursor::new(what, bytes);
        match fields.u8()? {
            VERSION => {}
            found => return Err(FormatError::Version { what, found: found.into(), supported: VERSION.into() }),
        }
        let record = match kind {
            RecordKind::Policy => Self::Policy(decode_policy(&mut fields)?),
            RecordKind::Group => Self::Group(KeyGroup { name: name(&mut fields)?, policy: name(&mut fields)? }),
            RecordKind::Agent => {
                let (name_of_agent, default_group) = (name(&mut fields)?, name(&mut fields)?);
                let groups =
                    (0..u16::from_le_bytes(fields.array()?)).map(|_| name(&mut fields)).collect::<Result<_, _>>()?;
                Self::Agent(Agent { name: name_of_agent, groups, default_group })
            }
            RecordKind::Unit => Self::Unit(decode_unit(&mut fields)?),
        };
        fields.end()?;
        Ok(record)
    }
}

/// The keys of a unit that its record lists.
fn listed(keys: &[IssuedKey]) -> Vec<&IssuedKey> {
    let mut surplus = keys.len().saturating_sub(KEYS_MAX);
    let is_listed = |key: &&IssuedKey| {
        let left_out = surplus > 0 && key.dropped_ns.is_some();
        surplus -= usize::from(left_out);
        !left_out
    };
    let listed: Vec<&IssuedKey> = keys.iter().filter(is_listed).collect();
    // Only labels that failed hundreds of times in a row come to this.
    listed[surplus..].to_vec()
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name.as_bytes());
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

fn decode_policy(fields: &mut Cursor<'_>) -> Result<Policy, FormatError> {
    let name = name(fields)?;
    let algorithm = match fields.u8()? {
        0 => None,
        code => Some(Algorithm::from_code(code).ok_or_else(|| fields.field("algorithm", &code))?),
    };
    let mut period = || {
        Ok::<_, FormatError>(match fields.u32()? {
            0 => Period::Unlimited,
            seconds => Period::Seconds(seconds),
        })
    };
    let (encryption_period, cryptoperiod) = (period()?, period()?);
    let mut permission = || match fields.u8()? {
        1 => Ok(Permission::Allowed),
        2 => Ok(Permission::Forbidden),
        other => Err(fields.field("permission", &other)),
    };
    let (export, import) = (permission()?, permission()?);
    Ok(Policy { name, algorithm, encryption_period, cryptoperiod, export, import })
}

fn decode_unit(fields: &mut Cursor<'_>) -> Result<DataUnit, FormatError> {
    let volser = Volser::new(text(fields)?)?;
    let (first_seen_ns, last_seen_ns) = (fields.i64()?, fields.i64()?);
    let read_until_ns = optional_i64(fields, "end of an extension")?;
    let mut keys = Vec::new();
    for _ in 0..u16::from_le_bytes(fields.array()?) {
        let (tag, group) = (KeyTag(fields.array()?), name(fields)?);
        let issued_for = match fields.u8()? {
            1 => KeyUse::Begin,
            2 => KeyUse::Append,
            other => return Err(fields.field("use of a key", &other)),
        };
        let (issued_ns, dropped_ns) = (fields.i64()?, optional_i64(fields, "time of the next beginning")?);
        keys.push(IssuedKey { tag, group, issued_for, issued_ns, dropped_ns });
    }
    Ok(DataUnit { volser, first_seen_ns, last_seen_ns, read_until_ns, keys })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn records() -> Vec<RealmRecord> {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let key = |byte, issued_for, dropped_ns| IssuedKey {
            tag: KeyTag([byte; 16]),
            group: name("g"),
            issued_for,
            issued_ns: 5,
            dropped_ns,
        };
        vec![
            RealmRecord::Policy(Policy {
                name: name("yearly"),
                algorithm: Some(Algorithm::Aes256Ccm),
                encryption_period: Period::Seconds(0x0102_0304),
                cryptoperiod: Period::Unlimited,
                export: Permission::Allowed,
                import: Permission::Forbidden,
            }),
            RealmRecord::Group(KeyGroup { name: name("g"), policy: name("yearly") }),
            RealmRecord::Agent(Agent {
                name: name("CPT0000001"),
                groups: [name("g"), name("h")].into(),
                default_group: name("h"),
            }),
            RealmRecord::Unit(DataUnit {
                volser: Volser::new("A00001").unwrap(),
                first_seen_ns: 1,
                last_seen_ns: 2,
                read_until_ns: Some(3),
                keys: vec![key(1, KeyUse::Begin, Some(9)), key(2, KeyUse::Append, None)],
            }),
        ]
    }

    /// The bytes of the layout above, by hand.
    #[test]
    fn records_have_the_bytes_of_the_layout() {
        let mut expected = vec![
            b"\x01\x06yearly\x02\x04\x03\x02\x01\0\0\0\0\x01\x02".to_vec(),
            b"\x01\x01g\x06yearly".to_vec(),
            b"\x01\x0aCPT0000001\x01h\x02\0\x01g\x01h".to_vec(),
        ];
        let mut unit = b"\x01\x06A00001\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x03\0\0\0\0\0\0\0\x02\0".to_vec();
        unit.extend_from_slice(&[1; 16]);
        unit.extend_from_slice(b"\x01g\x01\x05\0\0\0\0\0\0\0\x01\x09\0\0\0\0\0\0\0");
        unit.extend_from_slice(&[2; 16]);
        unit.extend_from_slice(b"\x01g\x02\x05\0\0\0\0\0\0\0\0");
        expected.push(unit);
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

    #[test]
    fn a_unit_of_many_lives_lists_the_newest_keys_and_all_that_still_read() {
        let key = |number: u16| IssuedKey {
            tag: KeyTag([number as u8; 16]),
            group: Name::default(),
            issued_for: KeyUse::Begin,
            issued_ns: i64::from(number),
            dropped_ns: number.is_multiple_of(2).then_some(0),
        };
        let keys: Vec<IssuedKey> = (0..400).map(key).collect();
        let left: Vec<i64> = listed(&keys).into_iter().map(|key| key.issued_ns).collect();
        assert_eq!(left.len(), KEYS_MAX);
        assert_eq!(left.iter().filter(|number| **number % 2 == 1).count(), 200);
        assert!(left.contains(&398) && !left.contains(&0));
    }
}
