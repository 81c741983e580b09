//! Volume keys: the rules of their life, their envelopes, and the sealed store of one machine.
//!
//! Each life of each volume has keys of its own: one, and another each time that the last one's encryption period is
//! over. The volume carries the keys' *tags*, which tell nothing of them; the store finds a key by its tag. There it
//! lies wrapped:
//! ```text
//! passphrase --Argon2id--+                                +--AES key wrap--> key of A00001
//!                        +--AES key wrap--> root key --HKDF--AES key wrap--> key of A00002
//! key file ----HKDF------+      (slots)              |    +--AES key wrap--> ...
//!                                                    +--> MAC of each record, MAC of all of them together
//! ```
//! A key is never given out for writing before it has been read back from the disk, and a volume that was written can
//! be read as long as one slot's secret and one copy of the store, or one export and its passphrase, are left.
//! `docs/KEYS.md` tells the operator what to keep, what destroying means, and what this does not protect against.
//!
//! Limits and rules: at most 8 slots; every operation reads the whole store, which is meant for up to some ten thousand
//! keys; [`SealedStore`] does its own locking between processes and is used by one thread at a time. Nothing here reads
//! a clock; times are arguments, in nanoseconds since 1970.
//!
//! ```
//! use capstan_format::{Algorithm, Volser};
//! use capstan_keys::{Agent, Argon2Cost, Name, SealedStore, Unlock};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("keys.sealed");
//! # let now_ns = 1_790_000_000_000_000_000;
//! # let cost = Argon2Cost { memory_kib: 64, iterations: 1, lanes: 1 };
//! let unlock = Unlock::passphrase(String::from("correct horse battery staple").into());
//! let mut store = SealedStore::create(&path, &unlock, cost)?;
//!
//! let volser = Volser::new("A00001")?;
//! let drive = Agent::anything("CPT0000001".parse()?);
//! let key = store.key_for_new_volume(&volser, &drive, &Name::default(), Algorithm::Aes256Gcm, now_ns)?;
//! // Load `key` into the drive, write the label, flush; then:
//! store.activate(&volser, &key.tag(), now_ns)?;
//!
//! // Later, for a volume that carries this tag:
//! let again = SealedStore::open(&path, &unlock)?.key_for_reading(&volser, &key.tag(), &drive, now_ns)?;
//! assert_eq!(again.expose(), key.expose());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod api;
pub mod cluster;
mod contents;
mod database;
mod dates;
mod enrolment_passphrase;
mod envelope;
mod error;
mod export;
mod fields;
mod file_digest;
mod header;
mod holdings;
mod import;
mod key_file;
mod key_record;
mod lifecycle;
mod provider;
mod realm;
mod record;
mod root;
mod secret;
mod store;
mod unlock;
mod volume_key;

use envelope::derive_from;
pub use envelope::{WRAPPED_LEN, WrappedKey, derive, tag_of, unwrap, wrap};
pub use error::{ClusterRefusal, KeyError, KeyPlace};
pub use export::{
    ExportKey, ExportPart, ExportReader, ExportWriter, ExportedKey, KeyExport, open_records, records_of, seal_export,
    wrap_for_export,
};
pub use file_digest::file_digest;
pub use header::{SlotRecord, StoreHeader};
pub use holdings::{DrawnKey, Holdings, HoldingsChanges, KeyToAppend};
pub use import::{ImportOutcome, ImportedKey};
pub use key_file::read_key_file;
pub use key_record::KeyRecord;
pub use lifecycle::{ForbiddenTransition, KeyEvent, KeyState, Revocation};
pub use provider::KeyProvider;
pub use realm::{
    Agent, AppendKey, Cartridge, DataUnit, InvalidName, IssuedKey, KeyGroup, KeyUse, KnownPolicy, Name, NewKey, Period,
    Permission, Policy, Realm, RealmRecord, RecordKind, RuleRefusal, SeenAs, SeenCartridge, SeenCartridges,
};
pub use record::StoredKey;
pub use root::RootKey;
pub use secret::{KEY_LEN, Secret, random};
pub use store::{Destruction, ExportSelection, SealedStore};
pub use unlock::{Argon2Cost, SALT_LEN, SlotKind, Unlock, create_key_file, passphrase_key};
pub use volume_key::VolumeKey;
