//! The database backup: every sealed record of the ledger at one revision.
//!
//! ```text
//!  0   8  "CAPSDATA"
//!  8   4  version, 1
//! 12  16  cluster id
//! 28   4  epoch
//! 32   8  revision of the ledger
//! 40   8  made, nanoseconds since 1970
//! 48  16  public name of the cluster key (its tag, as keys have them)
//! 64  16  backup id, random
//! 80      each record, in ascending order of the paths:
//!          2  length of the path, 1 to 256
//!          4  length of the sealed record, at most 65,536
//!          8  revision of the commit that put it there
//!          n  path
//!          m  sealed record
//! ..   2  0: no more records
//! ..   8  number of records
//! ..   8  number of keys
//! ..      tag (16) of each key that it holds, ascending
//! ..  32  HMAC-SHA-256 of all before, under HKDF(cluster key, salt = backup id, `capstan keyd database backup v1`)
//! ..   4  CRC32C of all before
//! ```
//! It is written and read as a stream: memory holds one record, and the tags. The records stay sealed as they are, so
//! that nothing secret is written that was not in etcd before. The MAC is over all of them together, so that none can
//! be taken out, added or put back to an older change; the checksum has no key, so that damage is told from that.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use aws_lc_rs::hmac;
use capstan_format::{Cursor, FormatError, KeyTag};
use capstan_keys::{KeyError, random};

use super::stream::{End, ReadError, Sealed, Unsealed, WHAT};
use super::{BackupError, Held, HoldsKeys};
use crate::ledger::{Entry, PATH_LEN_MAX, RECORD_LEN_MAX, Snapshot};
use crate::root::file::NewFile;
use crate::root::{ClusterKeys, Existing, RootError};
use crate::seal::SealedContent;
use capstan_keys::api::ClusterId;

const MAGIC: &[u8; 8] = b"CAPSDATA";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 80;
const RECORD_HEADER_LEN: usize = 2 + 4 + 8;

/// What a database backup says of itself. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The cluster it is of.
    pub cluster: ClusterId,
    /// The epoch it was made in.
    pub epoch: u32,
    /// The revision of the ledger that it holds.
    pub revision: i64,
    /// When it was made, in nanoseconds since 1970.
    pub made_ns: i64,
    /// The public name of the cluster key that it opens with.
    pub cluster_key: KeyTag,
    /// The name of this backup, random.
    pub id: [u8; 16],
    /// How many records it holds.
    pub records: u64,
    /// The keys it holds: while it exists, none of them is destroyed for good.
    pub keys: BTreeSet<KeyTag>,
}

/// Writes a database backup where there is no file, for its owner alone: it is there as a whole or not at all.
///
/// Each record is opened on the way, so that nothing is backed up that would not open, and so that the backup knows its
/// keys.
pub fn write_database(
    path: &Path,
    keys: &ClusterKeys,
    epoch: u32,
    snapshot: &Snapshot,
    records: &impl HoldsKeys,
    made_ns: i64,
) -> Result<Manifest, BackupError> {
    let mut file = NewFile::create(path, Existing::Kept)?;
    let mut id = [0; 16];
    random(&mut id)?;
    let manifest = write(&mut file, path, keys, epoch, snapshot, records, made_ns, id)?;
    file.finish(Existing::Kept)?;
    Ok(manifest)
}

#[allow(clippy::too_many_arguments, reason = "what a backup is of, each by its name")]
pub(super) fn write(
    out: impl Write,
    path: &Path,
    keys: &ClusterKeys,
    epoch: u32,
    snapshot: &Snapshot,
    records: &impl HoldsKeys,
    made_ns: i64,
    id: [u8; 16],
) -> Result<Manifest, BackupError> {
    let mut manifest = Manifest {
        cluster: keys.cluster(),
        epoch,
        revision: snapshot.revision,
        made_ns,
        cluster_key: keys.tag(),
        id,
        records: 0,
        keys: BTreeSet::new(),
    };
    let failed = |error| RootError::file("writing", path, error);
    let mut out = Sealed::new(out, &mac_key(keys, &id)?);
    out.put(&manifest.encode_header()).map_err(failed)?;
    let mut last: Option<&str> = None;
    for entry in &snapshot.entries {
        if last.is_some_and(|last| last >= &*entry.path) {
            let what = format!("{} does not follow {}", entry.path, last.unwrap_or_default());
            return Err(BackupError::Records { what });
        }
        last = Some(&entry.path);
        check_lengths(entry.path.len(), entry.sealed.len())
            .map_err(|what| BackupError::Records { what: format!("{}: {what}", entry.path) })?;
        let opened = keys.sealer().open(&entry.path, &entry.sealed)?;
        let held = match opened.content {
            SealedContent::Record => records.held(&entry.path, &opened.plaintext),
            SealedContent::Tombstone => Ok(Vec::new()),
        };
        let held = held.map_err(|reason| BackupError::Record { path: entry.path.clone(), reason })?;
        manifest.keys.extend(held.iter().filter_map(|held| match held {
            Held::Key { tag, .. } | Held::PoolKey { tag, .. } => Some(*tag),
            // An object has no tag: its record is found by its path.
            Held::GroupKey { .. } | Held::Object { .. } => None,
        }));
        let mut header = [0; RECORD_HEADER_LEN];
        header[..2].copy_from_slice(&(entry.path.len() as u16).to_le_bytes());
        header[2..6].copy_from_slice(&(entry.sealed.len() as u32).to_le_bytes());
        header[6..].copy_from_slice(&entry.revision.to_le_bytes());
        for part in [&header, entry.path.as_bytes(), &entry.sealed] {
            out.put(part).map_err(failed)?;
        }
        manifest.records += 1;
    }
    out.put(&[0; 2]).map_err(failed)?;
    out.put(&manifest.records.to_le_bytes()).map_err(failed)?;
    out.put(&(manifest.keys.len() as u64).to_le_bytes()).map_err(failed)?;
    for tag in &manifest.keys {
        out.put(&tag.0).map_err(failed)?;
    }
    out.finish().map_err(failed)?;
    Ok(manifest)
}

fn check_lengths(path: usize, sealed: usize) -> Result<(), &'static str> {
    match () {
        () if path == 0 || path > PATH_LEN_MAX => Err("the path's length is impossible"),
        () if sealed > RECORD_LEN_MAX => Err("the record is longer than records are"),
        () => Ok(()),
    }
}

impl Manifest {
    fn encode_header(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.cluster.0);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.revision.to_le_bytes());
        bytes.extend_from_slice(&self.made_ns.to_le_bytes());
        bytes.extend_from_slice(&self.cluster_key.0);
        bytes.extend_from_slice(&self.id);
        bytes
    }

    fn decode_header(bytes: &[u8; HEADER_LEN]) -> Result<Self, FormatError> {
        let mut fields = Cursor::new(WHAT, bytes);
        if fields.take(MAGIC.len())? != MAGIC {
            return Err(FormatError::Magic { what: WHAT });
        }
        let found = fields.u32()?;
        if found != VERSION {
            return Err(FormatError::Version { what: WHAT, found, supported: VERSION });
        }
        Ok(Self {
            cluster: ClusterId(fields.array()?),
            epoch: fields.u32()?,
            revision: fields.i64()?,
            made_ns: fields.i64()?,
            cluster_key: KeyTag(fields.array()?),
            id: fields.array()?,
            records: 0,
            keys: BTreeSet::new(),
        })
    }
}

/// What a database backup says of itself, without any key: what an officer sees of a file, and what is to be held
/// against the list of backups. Damage is seen; whether somebody altered it only [`super::verify`] can tell.
pub fn read_manifest(path: &Path) -> Result<Manifest, BackupError> {
    read(path, |_| Ok(None), |_| Ok(())).map(|(manifest, _)| manifest)
}

/// Reads a backup as a stream: `header` gives the MAC's key where it is known, `entry` takes the records one by one,
/// and what it does with them counts only once the end is [`End::Genuine`].
pub(super) fn read(
    path: &Path,
    header: impl FnOnce(&Manifest) -> Result<Option<hmac::Key>, BackupError>,
    entry: impl FnMut(Entry) -> Result<(), BackupError>,
) -> Result<(Manifest, End), BackupError> {
    let file = std::fs::File::open(path).map_err(|error| RootError::file("reading", path, error))?;
    read_from(BufReader::with_capacity(256 << 10, file), path, header, entry)
}

pub(super) fn read_from(
    mut input: impl Read,
    path: &Path,
    header: impl FnOnce(&Manifest) -> Result<Option<hmac::Key>, BackupError>,
    mut entry: impl FnMut(Entry) -> Result<(), BackupError>,
) -> Result<(Manifest, End), BackupError> {
    let failed = |error| match error {
        ReadError::Format(source) => BackupError::Format { path: path.to_owned(), source },
        ReadError::Io(error) => RootError::file("reading", path, error).into(),
    };
    let mut bytes = [0; HEADER_LEN];
    let got = read_up_to(&mut input, &mut bytes).map_err(|error| failed(ReadError::Io(error)))?;
    if got < HEADER_LEN {
        let short = FormatError::Truncated { what: WHAT, needed: HEADER_LEN as u64, found: got as u64 };
        return Err(failed(short.into()));
    }
    let mut manifest = Manifest::decode_header(&bytes).map_err(|error| failed(error.into()))?;
    let key = header(&manifest)?.unwrap_or_else(|| hmac::Key::new(hmac::HMAC_SHA256, &[]));
    let mut input = Unsealed::new(bytes.chain(input), &key);
    input.array::<HEADER_LEN>().map_err(failed)?;

    let mut last: Option<String> = None;
    while let Some(found) = next(&mut input, last.as_deref()).map_err(failed)? {
        last = Some(found.path.clone());
        manifest.records += 1;
        entry(found)?;
    }
    manifest.keys = tail(&mut input, manifest.records).map_err(failed)?;
    let end = input.finish().map_err(failed)?;
    Ok((manifest, end))
}

fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match input.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn next(input: &mut Unsealed<impl Read>, last: Option<&str>) -> Result<Option<Entry>, ReadError> {
    let path_len = usize::from(u16::from_le_bytes(input.array()?));
    if path_len == 0 {
        return Ok(None);
    }
    let sealed_len = u32::from_le_bytes(input.array()?) as usize;
    let revision = i64::from_le_bytes(input.array()?);
    check_lengths(path_len, sealed_len).map_err(|what| impossible("length of a record", what.to_owned()))?;
    let (mut path, mut sealed) = (vec![0; path_len], vec![0; sealed_len]);
    input.take(&mut path)?;
    input.take(&mut sealed)?;
    let path = String::from_utf8(path).map_err(|_| impossible("path", "not UTF-8".to_owned()))?;
    if last.is_some_and(|last| last >= &*path) {
        return Err(impossible("order of paths", path));
    }
    Ok(Some(Entry { path, sealed, revision }))
}

fn tail(input: &mut Unsealed<impl Read>, records: u64) -> Result<BTreeSet<KeyTag>, ReadError> {
    let count = u64::from_le_bytes(input.array()?);
    if count != records {
        return Err(impossible("number of records", count.to_string()));
    }
    let count = u64::from_le_bytes(input.array()?);
    let mut keys = BTreeSet::new();
    // Grows with what is there: the count is believed only as far as tags follow.
    for _ in 0..count {
        let tag = KeyTag(input.array()?);
        if keys.last().is_some_and(|last: &KeyTag| last.0 >= tag.0) {
            return Err(impossible("order of keys", tag.to_string()));
        }
        keys.insert(tag);
    }
    Ok(keys)
}

fn impossible(field: &'static str, value: String) -> ReadError {
    ReadError::Format(FormatError::Field { what: WHAT, field, value })
}

pub(super) fn mac_key(keys: &ClusterKeys, id: &[u8; 16]) -> Result<hmac::Key, KeyError> {
    let key = keys.derive(id, "capstan keyd database backup v1")?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
}
