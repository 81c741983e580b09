//! The sealed store as its callers see it.

mod damage;
mod destroy;
mod golden;
mod lives;
mod policies;
mod processes;
mod slots;
mod transfer;
mod unlocking;

use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{Agent, Argon2Cost, ImportedKey, KeyError, Name, SealedStore, Unlock, VolumeKey};
use tempfile::TempDir;
use zeroize::Zeroizing;

/// Argon2 parameters that cost next to nothing: the tests here are not about guessing.
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 8, iterations: 1, lanes: 1 };
/// 2026-09-21T14:13:20Z, in nanoseconds.
const NOW_NS: i64 = 1_790_000_000_000_000_000;
const GCM: Algorithm = Algorithm::Aes256Gcm;

fn text(passphrase: &str) -> Zeroizing<String> {
    Zeroizing::new(passphrase.to_owned())
}

fn passphrase(passphrase: &str) -> Unlock {
    Unlock::passphrase(text(passphrase))
}

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

/// A store with the passphrase `secret`, in a directory of its own.
fn new_store() -> (TempDir, PathBuf, SealedStore) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.sealed");
    let store = SealedStore::create(&path, &passphrase("secret"), CHEAP).unwrap();
    (directory, path, store)
}

fn reopen(path: &Path) -> SealedStore {
    SealedStore::open(path, &passphrase("secret")).unwrap()
}

/// A drive that nobody has said anything of.
fn drive() -> Agent {
    Agent::anything("CPT0000001".parse().unwrap())
}

/// The store of a machine without policies.
trait WithoutPolicies {
    fn new_key(&mut self, volser: &Volser, algorithm: Algorithm, now_ns: i64) -> Result<VolumeKey, KeyError>;
    fn append_key(&mut self, volser: &Volser, tag: &KeyTag, now_ns: i64) -> Result<VolumeKey, KeyError>;
    fn read_key(&self, volser: &Volser, tag: &KeyTag) -> Result<VolumeKey, KeyError>;
    fn take_in(
        &mut self,
        export: &[u8],
        passphrase: &Zeroizing<String>,
        now_ns: i64,
    ) -> Result<Vec<ImportedKey>, KeyError>;
}

impl WithoutPolicies for SealedStore {
    fn new_key(&mut self, volser: &Volser, algorithm: Algorithm, now_ns: i64) -> Result<VolumeKey, KeyError> {
        self.key_for_new_volume(volser, &drive(), &Name::default(), algorithm, now_ns)
    }

    fn append_key(&mut self, volser: &Volser, tag: &KeyTag, now_ns: i64) -> Result<VolumeKey, KeyError> {
        self.key_for_append(volser, tag, &drive(), now_ns)
    }

    fn read_key(&self, volser: &Volser, tag: &KeyTag) -> Result<VolumeKey, KeyError> {
        self.key_for_reading(volser, tag, &drive(), NOW_NS)
    }

    fn take_in(
        &mut self,
        export: &[u8],
        passphrase: &Zeroizing<String>,
        now_ns: i64,
    ) -> Result<Vec<ImportedKey>, KeyError> {
        self.import(export, passphrase, &Name::default(), now_ns)
    }
}

/// Issues a key and activates it, as a volume that is written does; gives its tag and its bytes.
fn fill(store: &mut SealedStore, name: &str) -> (KeyTag, [u8; 32]) {
    let key = store.new_key(&volser(name), GCM, NOW_NS).unwrap();
    store.activate(&volser(name), &key.tag(), NOW_NS + 1).unwrap();
    (key.tag(), *key.expose())
}

#[track_caller]
fn refused<T>(result: Result<T, KeyError>) -> KeyError {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}

/// The store file and everything SQLite puts beside it.
fn files_of(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = std::fs::read_dir(path.parent().unwrap()).unwrap();
    directory.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
