//! A record of the ledger, decoded: what takes time of many records, and nothing of the state to do it.

use capstan_format::FormatError;
use capstan_keys::{RealmRecord, RecordKind};

use super::StateError;
use crate::kmip::KmipObjectRecord;
use crate::path::Path;
use crate::record::{GroupRecord, IssuedRecord, KmaRecord, PoolKey, decode_held};

/// What a record says, by the kind of its path.
pub(super) enum Said {
    Key(Box<IssuedRecord>),
    /// A unit, a policy, an agent.
    Realm(RealmRecord),
    Group(GroupRecord),
    Pool(PoolKey),
    Kma(KmaRecord),
    Held(i64),
    Kmip(Box<KmipObjectRecord>),
    Other(Vec<u8>),
}

/// Reads the record of a path.
pub(super) fn decode(path: &Path, plaintext: &[u8]) -> Result<Said, StateError> {
    let unreadable = |source: FormatError| StateError::Record { path: path.to_string(), source };
    let of_realm = |kind| RealmRecord::decode(kind, plaintext).map(Said::Realm).map_err(unreadable);
    Ok(match path {
        Path::Key(_) => Said::Key(Box::new(IssuedRecord::decode(plaintext).map_err(unreadable)?)),
        Path::Unit(_) => of_realm(RecordKind::Unit)?,
        Path::Policy(_) => of_realm(RecordKind::Policy)?,
        Path::Agent(_) => of_realm(RecordKind::Agent)?,
        Path::Group(_) => Said::Group(GroupRecord::decode(plaintext).map_err(unreadable)?),
        Path::Pool { .. } => Said::Pool(PoolKey::decode(plaintext).map_err(unreadable)?),
        Path::Kma(_) => {
            let record = serde_json::from_slice(plaintext);
            Said::Kma(record.map_err(|source| StateError::Json { path: path.to_string(), source })?)
        }
        Path::Held(_) => Said::Held(decode_held(plaintext).map_err(unreadable)?),
        Path::Kmip(uid) => {
            let record = KmipObjectRecord::decode(uid, plaintext);
            Said::Kmip(Box::new(record.map_err(|source| StateError::Object { path: path.to_string(), source })?))
        }
        Path::Other(_) => Said::Other(plaintext.to_vec()),
    })
}
