//! The keys in the cluster's own records.

use capstan_format::{Algorithm, FormatError, KeyTag};

use super::{Held, HoldsKeys};
use crate::kmip::KmipObjectRecord;
use crate::path::Path;
use crate::record::{GroupRecord, IssuedRecord, PoolKey};

/// Records as nodes write them ([`crate::record`]).
#[derive(Debug, Clone, Copy)]
pub struct ClusterRecords;

impl HoldsKeys for ClusterRecords {
    fn held(&self, path: &str, plaintext: &[u8]) -> Result<Vec<Held>, String> {
        let said = |error: FormatError| error.to_string();
        Ok(match Path::parse(path) {
            Path::Group(group) => {
                let wrapped = GroupRecord::decode(plaintext).map_err(said)?.wrapped;
                vec![Held::GroupKey { group, wrapped }]
            }
            Path::Key(tag) => {
                let IssuedRecord { stored, issued, .. } = IssuedRecord::decode(plaintext).map_err(said)?;
                if stored.record.tag != tag {
                    return Err(format!("it is the record of key {}", stored.record.tag));
                }
                let (algorithm, group) = (stored.record.algorithm, issued.group);
                stored.wrapped.map(|wrapped| Held::Key { tag, algorithm, group, wrapped }).into_iter().collect()
            }
            Path::Pool { tag, .. } => vec![of_pool(tag, plaintext).map_err(said)?],
            path @ Path::Other(_) => match path.recovered_tag() {
                Some(tag) => vec![of_pool(tag, plaintext).map_err(said)?],
                None => Vec::new(),
            },
            Path::Kmip(uid) => {
                let wrapped = KmipObjectRecord::decode(&uid, plaintext).map_err(|error| error.to_string())?.wrapped;
                // One that was destroyed has no material, and some never had any.
                if wrapped.is_empty() { Vec::new() } else { vec![Held::Object { uid, wrapped }] }
            }
            Path::Unit(_) | Path::Policy(_) | Path::Agent(_) | Path::Kma(_) | Path::Held(_) => Vec::new(),
        })
    }
}

fn of_pool(tag: KeyTag, plaintext: &[u8]) -> Result<Held, FormatError> {
    let wrapped = PoolKey::decode(plaintext)?.wrapped;
    // Which cipher it will be for is not known yet; its tag is of its bytes alone.
    Ok(Held::PoolKey { tag, algorithm: Algorithm::Aes256Gcm, wrapped })
}
