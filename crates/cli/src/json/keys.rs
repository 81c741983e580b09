//! What `keys` prints of the key store of this machine, and of what a mover may know of a cluster.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// What `keys` has done.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum KeyEvent {
    /// `keys export` has written a sealed file.
    KeysExported {
        /// The file.
        file: String,
        /// Its length, in bytes.
        bytes: u64,
        /// Keys that are not in it, because a policy keeps them in the store. Of an export of some volumes 0.
        kept_back: usize,
    },
    /// `keys import` met a key in the file, one line each.
    KeyImported {
        /// Its public name.
        tag: String,
        /// Its volume.
        volume: String,
        /// `added`, `present` (it was here already), or `stays-destroyed` (it was destroyed here).
        outcome: &'static str,
        /// The state it has here; null if it was not added.
        state: Option<String>,
    },
    /// `keys retire`, `compromise` or `destroy` has given a key another state.
    KeyChanged {
        /// Its public name.
        tag: String,
        /// Its volume.
        volume: String,
        /// Its state now, as `keys list` has it.
        state: String,
    },
    /// `keys extend-decryption`: the keys of a volume are given out for reading for longer.
    ReadingExtended {
        /// The volume.
        volume: String,
        /// Until when, nanoseconds since 1970.
        until_ns: i64,
    },
    /// `keys add` or `keys passphrase`: one more secret opens the key store.
    SlotAdded {
        /// Its number.
        slot: u8,
    },
    /// `keys remove` or `keys passphrase`: a secret opens the key store no more.
    SlotRemoved {
        /// Its number.
        slot: u8,
    },
    /// `keys policies add` has made a policy.
    PolicySet {
        /// Its name.
        name: String,
    },
    /// `keys groups add` has made a group.
    GroupSet {
        /// Its name.
        name: String,
        /// Its policy.
        policy: String,
    },
    /// `keys drives set` has said which groups a drive may use.
    DriveSet {
        /// Its serial number.
        serial: String,
        /// The groups; the first is what it uses unasked.
        groups: Vec<String>,
    },
}

/// A key. What a cluster does not tell a mover is null.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct KeyRow {
    /// Its public name.
    pub(crate) tag: String,
    /// Its volume.
    pub(crate) volume: String,
    /// Its group.
    pub(crate) group: String,
    /// The cipher.
    pub(crate) algorithm: &'static str,
    /// Its state at this moment: `generated`, `ready`, `protect-and-process`, `process-only`, `deactivated`,
    /// `compromised` or `destroyed`.
    pub(crate) state: String,
    /// When it was made, nanoseconds since 1970.
    pub(crate) created_ns: i64,
    /// When it was destroyed; null if it was not.
    pub(crate) destroyed_ns: Option<i64>,
}

/// A secret that opens the key store.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SlotRow {
    /// Its number.
    pub(crate) slot: u8,
    /// `passphrase` or `key file`.
    pub(crate) kind: &'static str,
    /// Whether it opened the store just now.
    pub(crate) used: bool,
}

/// A policy of keys.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct PolicyRow {
    /// Its name.
    pub(crate) name: String,
    /// The cipher; null for that of the pool.
    pub(crate) algorithm: Option<&'static str>,
    /// How long a key encrypts, in seconds; null for ever.
    pub(crate) encryption_period_s: Option<u32>,
    /// How long it decrypts, in seconds; null for ever.
    pub(crate) cryptoperiod_s: Option<u32>,
    /// Whether its keys may be exported.
    pub(crate) export: bool,
    /// Whether keys may be imported under it.
    pub(crate) import: bool,
    /// Whether a mover may revoke its keys.
    pub(crate) agents_revoke: bool,
    /// How long a node that is cut off gives out its keys, in seconds; null for ever.
    pub(crate) isolation_limit_s: Option<u32>,
}

/// A group of keys.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct GroupRow {
    /// Its name.
    pub(crate) name: String,
    /// Its policy.
    pub(crate) policy: String,
    /// Keys that were issued in it.
    pub(crate) keys: usize,
}

/// What a drive may use.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct KeyDriveRow {
    /// Its serial number.
    pub(crate) serial: String,
    /// Groups that it may use.
    pub(crate) groups: Vec<String>,
    /// The one that it uses unasked.
    pub(crate) default_group: String,
}

/// The keys of a volume. What a cluster does not tell a mover is null.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct VolumeKeysRow {
    /// The volume.
    pub(crate) volume: String,
    /// When a key was first asked for it, nanoseconds since 1970.
    pub(crate) first_seen_ns: Option<i64>,
    /// When one was last asked for it.
    pub(crate) last_seen_ns: Option<i64>,
    /// Until when its keys are given out for reading; null for ever.
    pub(crate) read_until_ns: Option<i64>,
    /// The serial number of its own cartridge; null if none is known.
    pub(crate) serial: Option<String>,
    /// The cartridges that were seen under its barcode, in order.
    pub(crate) cartridges: Vec<CartridgeRow>,
    /// Its keys, in the order of their issue.
    pub(crate) keys: Vec<IssuedKeyRow>,
}

/// A cartridge that was seen under a barcode.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct CartridgeRow {
    /// Its serial number; null if the drive told none.
    pub(crate) serial: Option<String>,
    /// Since when, nanoseconds since 1970.
    pub(crate) since_ns: i64,
    /// `own`, or `another` with the same barcode.
    pub(crate) seen_as: &'static str,
}

/// A key as it was issued.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct IssuedKeyRow {
    /// Its public name.
    pub(crate) tag: String,
    /// Its group.
    pub(crate) group: String,
    /// `begin` for a volume that was begun with it, `append` for one that was appended to.
    pub(crate) issued_for: Option<&'static str>,
    /// When, nanoseconds since 1970.
    pub(crate) issued_ns: i64,
    /// When the volume was begun anew without it; null if it was not.
    pub(crate) dropped_ns: Option<i64>,
}

/// `keys status`: who keeps the keys, and how they fare.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct KeysStatusRow {
    /// `key store` or `key cluster`.
    pub(crate) kept_by: &'static str,
    /// The key store of this machine; left out where a cluster keeps the keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// The cluster; left out, as what follows, where a key store keeps the keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// Who this machine is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// Until when its certificate holds, nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_until_ns: Option<i64>,
    /// From when it is renewed by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renewal_due_ns: Option<i64>,
    /// The nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<Vec<NodeRow>>,
}

impl KeysStatusRow {
    /// One that says who keeps the keys, and nothing more.
    pub(crate) fn of(kept_by: &'static str) -> Self {
        Self {
            kept_by,
            path: None,
            cluster: None,
            agent: None,
            certificate_until_ns: None,
            renewal_due_ns: None,
            nodes: None,
        }
    }
}

/// A node of the cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct NodeRow {
    /// Its name; null if it is not known.
    pub(crate) name: Option<String>,
    /// Its site.
    pub(crate) site: String,
    /// Host and port.
    pub(crate) address: String,
    /// `serving`, `locked` or `not known`.
    pub(crate) state: &'static str,
    /// Whether it answers.
    pub(crate) answers: bool,
    /// Why not; null if it does.
    pub(crate) why_not: Option<String>,
}
