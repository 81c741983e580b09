//! What can go wrong with keys, each with what to do next.

use std::fmt;
use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, KeyTag, Volser};
use thiserror::Error;

use crate::dates::date;
use crate::realm::Keeper;
use crate::{KeyState, RuleRefusal};

/// Where keys are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// In a store of this machine.
    Store(PathBuf),
    /// By a cluster of key nodes.
    Cluster,
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(path) => write!(f, "the key store {}", path.display()),
            Self::Cluster => f.write_str("the key cluster"),
        }
    }
}

/// Why the key store did not do what it was asked.
///
/// Wrong secret, missing key, destroyed key and altered store are four different errors, because the operator does four
/// different things: type again, import an export, give the data up, restore the store.
#[derive(Debug, Error)]
pub enum KeyError {
    /// Operator: no slot of the store opens with this passphrase.
    #[error(
        "the passphrase does not open the key store {}: type it again, with the right keyboard layout, or use another \
         of its secrets; without one of them nobody can use its keys",
        store.display()
    )]
    WrongPassphrase {
        /// The store.
        store: PathBuf,
    },
    /// Operator: no slot of the store opens with this key file.
    #[error(
        "the key file does not open the key store {}: it belongs to another store, or was replaced; give the one that \
         was made for this store, or its passphrase",
        store.display()
    )]
    WrongKeyFile {
        /// The store.
        store: PathBuf,
    },
    /// Operator: the store has no slot of this kind.
    #[error("the key store {} does not open with a {offered}, only with a {needed}: give that", store.display())]
    NoSuchSlot {
        /// The store.
        store: PathBuf,
        /// What was offered: `passphrase`, `key file`.
        offered: &'static str,
        /// What would open it.
        needed: &'static str,
    },
    /// Host or operator: the store never had this key, or lost it.
    #[error(
        "{} is not in {place}: {}", key_of_volume(tag, volser.as_ref()), find_it(place)
    )]
    KeyMissing {
        /// Where it was looked for.
        place: KeyPlace,
        /// The key.
        tag: KeyTag,
        /// The volume that carries its tag, where one is concerned.
        volser: Option<Volser>,
    },
    /// Operator: the key was destroyed on purpose.
    #[error(
        "key {tag} of volume {volser} was destroyed on {}: the data on volume {volser} that was encrypted with it is \
         gone for good. Read another copy; to use the volume again, relabel it", date(*destroyed_ns)
    )]
    KeyDestroyed {
        /// The key.
        tag: KeyTag,
        /// The volume it was issued for.
        volser: Volser,
        /// When, in nanoseconds since 1970.
        destroyed_ns: i64,
    },
    /// Caller: the key does not encrypt in the state it is in.
    #[error(
        "key {tag} of volume {volser} is {state}: it decrypts, but no longer encrypts. Continue on another volume, or \
         relabel {volser} from the beginning of tape, which gives it a new key"
    )]
    KeyRetired {
        /// The key.
        tag: KeyTag,
        /// The volume it was issued for.
        volser: Volser,
        /// The state it is in.
        state: KeyState,
    },
    /// Medium or operator: the volume carries the tag of another volume's key.
    #[error(
        "volume {volser} carries the tag of key {tag}, which was issued for volume {owner}: check the barcode, or \
         label {volser} anew before writing to it"
    )]
    KeyOfOtherVolume {
        /// The key.
        tag: KeyTag,
        /// The volume that was to be written.
        volser: Volser,
        /// The volume the key belongs to.
        owner: Volser,
    },
    /// Operator: an import contradicts what is known of a key.
    #[error(
        "key {tag} is on record as a key for {}, but the import says {}: one of the two was altered. Use the one that \
         can read its volume",
        known.name(), said.name()
    )]
    KeyOfOtherCipher {
        /// The key.
        tag: KeyTag,
        /// The cipher that is on record.
        known: Algorithm,
        /// The cipher that the import says.
        said: Algorithm,
    },
    /// Medium or attacker: the store is not as this program left it.
    #[error(
        "the key store {} was altered: {what}. It is not used any further. Put a good copy of the file in its place; if \
         there is none, `capstan keys create` makes a new store and `capstan keys import` takes in an export", store.display()
    )]
    Tampered {
        /// The store.
        store: PathBuf,
        /// Which part of it, and how that shows.
        what: String,
    },
    /// Operator: written by a later program.
    #[error("{what} has version {found}, this program reads {supported}: use a newer Capstan")]
    Version {
        /// What was read.
        what: String,
        /// The version found.
        found: u32,
        /// The highest version that is understood.
        supported: u32,
    },
    /// Operator: there is no store.
    #[error(
        "there is no key store at {}: if it is on a disk of its own, mount that disk; if it is lost, `capstan keys create` makes a new one \
         and `capstan keys import` takes in an export", store.display()
    )]
    StoreMissing {
        /// Where it was looked for.
        store: PathBuf,
    },
    /// Operator: something is there already, and a file that holds keys is never overwritten.
    #[error("{} exists already and is left as it is: use it, or choose another path", path.display())]
    AlreadyExists {
        /// What exists.
        path: PathBuf,
    },
    /// Host: another process holds the store for longer than we wait.
    #[error(
        "the key store {} is in use by another process: wait until that has ended, then repeat the command",
        store.display()
    )]
    Locked {
        /// The store.
        store: PathBuf,
    },
    /// Host: no room.
    #[error("no room on the disk of the key store {}: nothing is lost. Free some and repeat", store.display())]
    DiskFull {
        /// The store.
        store: PathBuf,
    },
    /// Host: the system refused.
    #[error("{what} failed: repair the cause below and repeat the command")]
    Host {
        /// What was done to what.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Operator: the key file is no key file of ours, or others can read it.
    #[error("the key file {} cannot be used: {reason}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// Operator: an empty passphrase protects nothing.
    #[error("the passphrase is empty: choose one of several words, and keep it where the machine is not")]
    EmptyPassphrase,
    /// Caller: Argon2 parameters outside the limits.
    #[error("the Argon2 parameters cannot be used: {reason}")]
    Argon2 {
        /// Which limit.
        reason: String,
    },
    /// Operator: the key's policy, or what was said of a drive, forbids it.
    #[error("{}", .0.said_by(Keeper::Store))]
    Refused(RuleRefusal),
    /// Operator: a key cluster forbids it, and says why in its own words.
    #[error("the key cluster refused: {detail}")]
    RefusedByCluster {
        /// What for, as far as somebody does something else than give up.
        reason: ClusterRefusal,
        /// Why, and who may change it.
        detail: String,
    },
    /// Peer: no node of the key cluster answers, or none could do it; no key was given out.
    #[error(transparent)]
    ///
    /// It is a [`ClusterError`](crate::cluster::ClusterError): [`KeyError::of_cluster`] gives it.
    Cluster(Box<dyn std::error::Error + Send + Sync>),
    /// Operator: the only slot of a store stays.
    #[error("slot {slot} is the only one of the key store {}: add another before removing it", store.display())]
    LastSlot {
        /// The store.
        store: PathBuf,
        /// The slot.
        slot: u8,
    },
    /// Operator: no such slot.
    #[error("the key store {} has no slot {slot}: list its slots and name one of them", store.display())]
    SlotMissing {
        /// The store.
        store: PathBuf,
        /// The slot that was asked for.
        slot: u8,
    },
    /// Operator: what was to open the store does already.
    #[error("{}: slot {slot} is opened by that already, so none was added", store.display())]
    SlotThere {
        /// The store.
        store: PathBuf,
        /// Its slot.
        slot: u8,
    },
    /// Operator: all slots are taken.
    #[error("all {slots} slots of the key store {} are taken: remove one first", store.display())]
    SlotsFull {
        /// The store.
        store: PathBuf,
        /// How many there are.
        slots: usize,
    },
    /// Host: the change is made, but its old bytes may still lie in the file.
    #[error(
        "{what} and will not be used again, but the old bytes could not yet be cleared out of {}: repeat the command \
         when the cause below is repaired", store.display()
    )]
    NotCleared {
        /// What was changed.
        what: String,
        /// The store.
        store: PathBuf,
        /// Why the file could not be rewritten.
        #[source]
        source: Box<KeyError>,
    },
    /// Operator: the passphrase does not open the export.
    #[error("the passphrase does not open the key export: type the one that was given when the export was made")]
    WrongExportPassphrase,
    /// Medium: an export that is not as it was written.
    #[error("the key export is damaged: {what}. Nothing was imported. Use another copy of it")]
    ExportDamaged {
        /// What was found.
        what: String,
    },
}

/// Why a key cluster refused, as far as it makes a difference to who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterRefusal {
    /// The key's time for reading is over: it may be had again when somebody says so.
    CryptoperiodOver {
        /// The key.
        tag: KeyTag,
    },
    /// The volume goes on under no further key.
    KeysUsedUp,
    /// A lost node gave the key out, and nobody has confirmed yet of which group it is.
    Unconfirmed {
        /// The key.
        tag: KeyTag,
    },
    /// Something else.
    Other,
}

impl From<RuleRefusal> for KeyError {
    fn from(refusal: RuleRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl KeyError {
    /// The key that is not given out because its cryptoperiod is over, if that is the matter.
    pub fn past_its_time(&self) -> Option<KeyTag> {
        match self {
            Self::Refused(RuleRefusal::CryptoperiodOver { tag, .. })
            | Self::RefusedByCluster { reason: ClusterRefusal::CryptoperiodOver { tag }, .. } => Some(*tag),
            _ => None,
        }
    }

    /// Whether the volume has as many keys as it can have.
    pub fn keys_used_up(&self) -> bool {
        matches!(
            self,
            Self::Refused(RuleRefusal::KeysUsedUp { .. })
                | Self::RefusedByCluster { reason: ClusterRefusal::KeysUsedUp, .. }
        )
    }

    /// Whether a lost node gave the key out, and somebody must confirm first of which group it is.
    pub fn unconfirmed(&self) -> bool {
        matches!(
            self,
            Self::Refused(RuleRefusal::Unconfirmed { .. })
                | Self::RefusedByCluster { reason: ClusterRefusal::Unconfirmed { .. }, .. }
        )
    }

    /// Whether a rule forbids it: asking again, or asking somebody else, changes nothing.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::RefusedByCluster { .. })
    }

    pub(crate) fn host(what: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Host { what: what.into(), source: source.into() }
    }

    pub(crate) fn tampered(store: &Path, what: impl Into<String>) -> Self {
        Self::Tampered { store: store.to_owned(), what: what.into() }
    }
}

fn key_of_volume(tag: &KeyTag, volser: Option<&Volser>) -> String {
    match volser {
        Some(volser) => format!("key {tag} of volume {volser}"),
        None => format!("key {tag}"),
    }
}

/// Where else a key may be.
fn find_it(place: &KeyPlace) -> &'static str {
    match place {
        KeyPlace::Store(_) => {
            "import an export that holds it (`capstan keys import`), or use the key store of the machine that wrote the volume"
        }
        KeyPlace::Cluster => {
            "it belongs to another cluster, or to a machine's own key store: read the volume with a state directory that uses that one"
        }
    }
}
