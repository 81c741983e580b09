//! Backups made, checked, restored, damaged and altered, as files.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};

use capstan_keys::{Argon2Cost, Secret, VolumeKey};
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::*;
use crate::ledger::{Entry, Snapshot};
use crate::root::{ClusterKeys, Holder, Quorum, RootError};
use capstan_keys::api::ClusterId;

const CLUSTER: ClusterId = ClusterId([7; 16]);
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 64, iterations: 1, lanes: 1 };
const EPOCH: u32 = 3;
const REVISION: i64 = 1000;
const NOW_NS: i64 = 1_790_000_000_000_000_000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn passphrase(holder: &str) -> Zeroizing<String> {
    Zeroizing::new(format!("{holder}!"))
}

fn custodians() -> Quorum {
    let holder = |holder| Holder { name: name(holder), passphrase: passphrase(holder) };
    Quorum { threshold: 2, holders: ["ada", "bob", "cyd"].map(holder).into(), cost: CHEAP }
}

/// Records as these tests write them: a group's key alone, or cipher, wrapped key and group of a key; others hold none.
fn records(path: &str, plaintext: &[u8]) -> Result<Vec<Held>, String> {
    let cut = || format!("{path} is cut short");
    match path.split_once('/') {
        Some(("group", group)) => {
            let wrapped = plaintext.try_into().map_err(|_| cut())?;
            Ok(vec![Held::GroupKey { group: name(group), wrapped }])
        }
        Some(("key" | "pool", tag)) => {
            let (wrapped, group) = plaintext.split_first_chunk::<40>().ok_or_else(cut)?;
            let (wrapped, group) = (*wrapped, name(str::from_utf8(group).map_err(|_| cut())?));
            let tag = tag.rsplit('/').next().unwrap().parse().map_err(|_| cut())?;
            Ok(vec![Held::Key { tag, algorithm: Algorithm::Aes256Gcm, group, wrapped }])
        }
        _ => Ok(Vec::new()),
    }
}

struct Sample {
    directory: TempDir,
    keys: ClusterKeys,
    snapshot: Snapshot,
    tags: Vec<KeyTag>,
}

impl Sample {
    /// Two groups, five keys of which one is in a pool, two volumes and a policy.
    fn new() -> Self {
        let keys = ClusterKeys::create(CLUSTER).unwrap();
        let mut plain: Vec<(String, Vec<u8>)> = vec![
            ("policy/default".to_owned(), b"unlimited".to_vec()),
            ("unit/A00001".to_owned(), Vec::new()),
            ("unit/A00002".to_owned(), vec![9; 300]),
        ];
        let mut tags = Vec::new();
        for (group, count) in [("daily", 2), ("weekly", 3)] {
            let (key, wrapped) = keys.new_group_key(&name(group)).unwrap();
            plain.push((format!("group/{group}"), wrapped.to_vec()));
            for at in 0..count {
                let volume = VolumeKey::new(Secret::random().unwrap(), Algorithm::Aes256Gcm);
                let path = if at == 2 { format!("pool/a/{}", volume.tag()) } else { format!("key/{}", volume.tag()) };
                plain.push((path, [&key.wrap(&volume).unwrap()[..], group.as_bytes()].concat()));
                tags.push(volume.tag());
            }
        }
        let mut sample = Self {
            directory: tempfile::tempdir().unwrap(),
            keys,
            snapshot: Snapshot { revision: REVISION, entries: Vec::new() },
            tags,
        };
        plain.sort();
        for (at, (path, plaintext)) in plain.iter().enumerate() {
            let sealed = sample.keys.sealer().seal(path, EPOCH, at as u64, plaintext).unwrap();
            sample.snapshot.entries.push(Entry { path: path.clone(), sealed, revision: 10 * at as i64 });
        }
        sample
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn core(&self) -> OpenCore {
        let core = CoreBackup::create(&self.keys, EPOCH, b"a CA key", &custodians(), NOW_NS).unwrap();
        open_core(&core)
    }

    fn write(&self, name: &str) -> (PathBuf, Manifest) {
        let path = self.path(name);
        let manifest = write_database(&path, &self.keys, EPOCH, &self.snapshot, &records, NOW_NS).unwrap();
        (path, manifest)
    }

    /// Puts other plaintext under a path, sealed as it should be.
    fn put(&mut self, path: &str, plaintext: &[u8]) {
        let entry = self.snapshot.entries.iter_mut().find(|entry| entry.path == path).unwrap();
        entry.sealed = self.keys.sealer().seal(path, EPOCH, 99, plaintext).unwrap();
    }

    fn plaintext(&self, path: &str) -> Vec<u8> {
        let entry = self.snapshot.entries.iter().find(|entry| entry.path == path).unwrap();
        self.keys.sealer().open(path, &entry.sealed).unwrap().plaintext.to_vec()
    }
}

fn open_core(core: &CoreBackup) -> OpenCore {
    let shares = ["cyd", "ada"].map(|holder| core.open_share(&name(holder), &passphrase(holder)).unwrap());
    core.open(&shares).unwrap()
}

fn reached(epoch: u32, revision: i64) -> Knowledge {
    Knowledge::Reached(Known { epoch, revision })
}

fn refused<T>(result: Result<T, BackupError>) -> BackupError {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    }
}

fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len() - 4;
    let crc = capstan_format::crc32c(&bytes[..body]);
    bytes[body..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn what_is_backed_up_is_proved_and_restored_into_a_new_epoch() {
    let sample = Sample::new();
    let (path, written) = sample.write("database");
    let core_path = sample.path("core");
    CoreBackup::create(&sample.keys, EPOCH, b"a CA key", &custodians(), NOW_NS).unwrap().write(&core_path).unwrap();
    let core = CoreBackup::read(&core_path).unwrap();
    assert_eq!((core.cluster(), core.epoch(), core.made_ns(), core.threshold()), (CLUSTER, EPOCH, NOW_NS, 2));
    assert_eq!(core.custodians().map(Name::as_str).collect::<Vec<_>>(), ["ada", "bob", "cyd"]);
    let core = open_core(&core);
    assert_eq!((&core.ca_key[..], core.key_tag()), (&b"a CA key"[..], sample.keys.tag()));

    let report = verify(&core, &path, &records, reached(EPOCH, REVISION)).unwrap();
    assert_eq!((&report.unproved[..], &report.manifest), (&[][..], &written));
    assert_eq!(report.proved, sample.tags.iter().copied().collect());
    assert_eq!(read_manifest(&path).unwrap(), written, "without any key");
    assert_eq!((written.records, written.keys.len(), written.revision), (10, 5, REVISION));

    let restored = restore(&core, &path, &records, reached(EPOCH, REVISION), EPOCH + 1).unwrap();
    assert_eq!(restored.revision, REVISION);
    for (before, after) in sample.snapshot.entries.iter().zip(&restored.entries) {
        let open = |entry: &Entry| core.keys.sealer().open(&entry.path, &entry.sealed).unwrap();
        let (old, new) = (open(before), open(after));
        assert_eq!((&before.path, before.revision), (&after.path, after.revision));
        assert_eq!((&old.plaintext, old.change, new.epoch), (&new.plaintext, new.change, EPOCH + 1));
    }
    // What was restored is as good as what it was made of.
    let again = sample.path("again");
    write_database(&again, &core.keys, EPOCH + 1, &restored, &records, NOW_NS).unwrap();
    assert_eq!(verify(&core, &again, &records, Knowledge::Nothing).unwrap().proved, report.proved);
}

#[test]
fn the_core_security_backup_wants_its_custodians() {
    let keys = ClusterKeys::create(CLUSTER).unwrap();
    let core = CoreBackup::create(&keys, EPOCH, b"ca", &custodians(), NOW_NS).unwrap();
    let share = |core: &CoreBackup, holder| core.open_share(&name(holder), &passphrase(holder)).unwrap();
    let wrong = core.open_share(&name("bob"), &passphrase("bobby"));
    assert!(matches!(wrong.err(), Some(RootError::WrongPassphrase { holder }) if holder.as_str() == "bob"));
    let one = refused(core.open([&share(&core, "ada")]));
    assert!(matches!(one, BackupError::Root(RootError::NotEnoughShares { given: 1, needed: 2 })), "{one}");
    let other = CoreBackup::create(&keys, EPOCH, b"ca", &custodians(), NOW_NS).unwrap();
    let mixed = refused(core.open([&share(&core, "ada"), &share(&other, "bob")]));
    assert!(matches!(mixed, BackupError::Root(RootError::OtherSplit { .. })), "{mixed}");
}

#[test]
fn backups_that_do_not_belong_together_are_told_apart() {
    let sample = Sample::new();
    let (path, _) = sample.write("database");
    let other_key = Sample::new().core();
    let error = refused(verify(&other_key, &path, &records, Knowledge::Nothing));
    assert!(matches!(error, BackupError::OtherKey { database, .. } if database == sample.keys.tag()), "{error}");
    let elsewhere = ClusterKeys::create(ClusterId([8; 16])).unwrap();
    let core = CoreBackup::create(&elsewhere, EPOCH, b"", &custodians(), NOW_NS).unwrap();
    let error = refused(verify(&open_core(&core), &path, &records, Knowledge::Nothing));
    assert!(matches!(error, BackupError::OtherCluster { database: CLUSTER, .. }), "{error}");
}

/// A backup of a KMA, brought back after the cluster went on.
#[test]
fn an_older_backup_is_named_and_not_believed() {
    let sample = Sample::new();
    let (path, _) = sample.write("database");
    let core = sample.core();
    for known in [reached(EPOCH, REVISION + 1), reached(EPOCH + 1, 0)] {
        let error = refused(verify(&core, &path, &records, known));
        assert!(matches!(error, BackupError::Older { epoch: EPOCH, revision: REVISION, .. }), "{error}");
        assert!(restore(&core, &path, &records, known, 100).is_err());
    }
    for fits in [reached(EPOCH, REVISION), reached(EPOCH, 0), reached(EPOCH - 1, REVISION + 5), Knowledge::Nothing] {
        assert!(verify(&core, &path, &records, fits).is_ok(), "{fits:?}");
    }
    // The core security backup alone tells that there was a later epoch.
    let later = CoreBackup::create(&sample.keys, EPOCH + 2, b"", &custodians(), NOW_NS).unwrap();
    let error = refused(verify(&open_core(&later), &path, &records, reached(EPOCH, REVISION)));
    assert!(matches!(error, BackupError::Older { known_epoch: 5, .. }), "{error}");
    for (knowledge, epoch) in [(Knowledge::Nothing, EPOCH), (Knowledge::Nothing, 0), (reached(EPOCH, REVISION), EPOCH)]
    {
        let error = refused(restore(&core, &path, &records, knowledge, epoch));
        assert!(matches!(error, BackupError::EpochNotNew { above: EPOCH, .. }), "{error}");
    }
}

/// Records that are sealed as they should be and hold what they should not: a fault of the desk, found by the next
/// check.
#[test]
fn a_key_that_would_not_come_back_is_named() {
    type Damage = fn(&mut Sample);
    let damages: [(&str, Damage); 4] = [
        ("is another than its tag says", |sample| {
            let (one, other) = (format!("key/{}", sample.tags[0]), format!("key/{}", sample.tags[1]));
            let swapped = sample.plaintext(&other);
            sample.put(&one, &swapped);
        }),
        ("does not open under group weekly", |sample| {
            let path = format!("key/{}", sample.tags[0]);
            let wrapped = sample.plaintext(&path);
            sample.put(&path, &[&wrapped[..40], b"weekly"].concat());
        }),
        ("whose key is not there", |sample| sample.snapshot.entries.retain(|entry| entry.path != "group/daily")),
        ("the key of group daily does not open", |sample| {
            let other = sample.plaintext("group/weekly");
            sample.put("group/daily", &other);
        }),
    ];
    for (said, damage) in damages {
        let mut sample = Sample::new();
        damage(&mut sample);
        let (path, _) = sample.write("database");
        let core = sample.core();
        let report = verify(&core, &path, &records, Knowledge::Nothing).unwrap();
        assert!(report.unproved.iter().any(|unproved| unproved.reason.contains(said)), "{said}: {:?}", report.unproved);
        assert!(!report.proved.contains(&sample.tags[0]), "{said}");
        assert!(report.proved.contains(&sample.tags[2]), "{said}: the others are proved");
        let error = refused(restore(&core, &path, &records, Knowledge::Nothing, EPOCH + 1));
        assert!(matches!(error, BackupError::Unproved { .. }), "{error}");
    }
}

#[test]
fn nothing_is_backed_up_that_would_not_open() {
    let write = |sample: &Sample| {
        refused(write_database(&sample.path("database"), &sample.keys, EPOCH, &sample.snapshot, &records, NOW_NS))
    };
    let mut altered = Sample::new();
    altered.snapshot.entries[2].sealed[30] ^= 1;
    assert!(matches!(write(&altered), BackupError::Seal(_)));
    let mut moved = Sample::new();
    moved.snapshot.entries.swap(0, 1);
    assert!(matches!(write(&moved), BackupError::Records { .. }));
    let mut short = Sample::new();
    short.put("group/daily", b"short");
    assert!(matches!(write(&short), BackupError::Record { .. }));
    assert_eq!(std::fs::read_dir(short.directory.path()).unwrap().count(), 0, "and no half of a file is left");
}

#[test]
fn a_backup_is_for_its_owner_and_overwrites_nothing() {
    let sample = Sample::new();
    let (path, _) = sample.write("database");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&path).unwrap();
    let again = refused(write_database(&path, &sample.keys, EPOCH, &sample.snapshot, &records, NOW_NS));
    assert!(matches!(again, BackupError::Root(RootError::Exists { .. })), "{again}");
    let core = CoreBackup::create(&sample.keys, EPOCH, b"", &custodians(), NOW_NS).unwrap();
    assert!(matches!(refused(core.write(&path)), BackupError::Root(RootError::Exists { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let missing = refused(read_manifest(&sample.path("none")));
    assert!(matches!(missing, BackupError::Root(RootError::Missing { .. })), "{missing}");
}

/// The system's own full device.
#[test]
fn a_full_disk_is_named() {
    let sample = Sample::new();
    let (path, full) = (Path::new("/dev/full"), std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let written = database::write(full, path, &sample.keys, EPOCH, &sample.snapshot, &records, NOW_NS, [1; 16]);
    assert!(matches!(refused(written), BackupError::Root(RootError::DiskFull { .. })));
}

/// Each byte flipped and each length cut; and the same by somebody who makes the checksum right.
#[test]
fn damage_and_alteration_are_seen() {
    let sample = Sample::new();
    let (path, _) = sample.write("database");
    let (core, bytes) = (sample.core(), std::fs::read(&path).unwrap());
    let check = |bytes: &[u8]| {
        let file = sample.path("damaged");
        std::fs::write(&file, bytes).unwrap();
        verify(&core, &file, &records, reached(EPOCH, REVISION))
    };
    assert!(check(&bytes).unwrap().unproved.is_empty());
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        assert!(check(&altered).is_err(), "byte {at}");
        if at < bytes.len() - 4 {
            assert!(check(&mended(altered)).is_err(), "byte {at}, with the checksum made right");
        }
    }
    for len in (0..bytes.len()).step_by(7) {
        assert!(check(&bytes[..len]).is_err(), "cut to {len}");
    }
    assert!(check(&[&bytes[..], &[0]].concat()).is_err());

    // A whole record taken out, and its number made right: only the MAC tells.
    let first = &sample.snapshot.entries[0];
    let record_len = 14 + first.path.len() + first.sealed.len();
    let mut without = [&bytes[..80], &bytes[80 + record_len..]].concat();
    let count = without.len() - 4 - 32 - 5 * 16 - 8 - 8;
    assert_eq!(without[count], 10);
    without[count] = 9;
    assert!(matches!(refused(check(&mended(without))), BackupError::Altered { .. }));

    let core = CoreBackup::create(&sample.keys, EPOCH, b"ca", &custodians(), NOW_NS).unwrap();
    let bytes = core.encode();
    let shares = ["ada", "bob"].map(|holder| core.open_share(&name(holder), &passphrase(holder)).unwrap());
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        assert!(CoreBackup::decode(&altered).is_err() && CoreBackup::decode(&bytes[..at]).is_err(), "byte {at}");
        if at < bytes.len() - 4 {
            let opened = CoreBackup::decode(&mended(altered)).ok().and_then(|core| core.open(&shares).ok());
            assert!(opened.is_none(), "byte {at} of the core security backup, with the checksum made right");
        }
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1").join(name)
}

/// Backups of version 1 stay readable. `testdata/` is only ever added to.
#[test]
fn golden() {
    let core = CoreBackup::read(&fixture("core.backup")).unwrap();
    assert_eq!(core.encode(), std::fs::read(fixture("core.backup")).unwrap());
    let report = verify(&open_core(&core), &fixture("database.backup"), &records, reached(EPOCH, REVISION)).unwrap();
    assert_eq!((report.proved.len(), report.unproved.len(), report.manifest.records), (5, 0, 10));
    assert_eq!(report.manifest.made_ns, NOW_NS);
    let bytes = std::fs::read(fixture("database.backup")).unwrap();
    assert_eq!(
        bytes[..48],
        [b"CAPSDATA\x01\0\0\0".as_slice(), &[7; 16], b"\x03\0\0\0\xe8\x03\0\0\0\0\0\0", &NOW_NS.to_le_bytes()].concat()
    );
    assert_eq!(bytes[80..94], *b"\x0b\0\x51\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(bytes[94..105], *b"group/daily");
}

/// How the fixtures were made.
#[test]
#[ignore = "writes fixtures; run once for each version of the format"]
fn write_fixtures() {
    let sample = Sample::new();
    let core = CoreBackup::create(&sample.keys, EPOCH, b"a CA key", &custodians(), NOW_NS).unwrap();
    core.write(&fixture("core.backup")).unwrap();
    write_database(&fixture("database.backup"), &sample.keys, EPOCH, &sample.snapshot, &records, NOW_NS).unwrap();
}
