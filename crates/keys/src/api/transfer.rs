//! Keys that leave the cluster, and keys that come to it: in the file of [`crate::KeyExport`], by quorum.
//!
//! ```text
//!  asker                                            node
//!    | POST /v1/exports      which keys               |  pending/ID, approved by others, as ever
//!    | POST /v1/exports/ID   a public key             |  executed, once; keys wrapped under a key that is derived for this request,
//!    |     <- that key, handed over; some keys        |  and handed over to this asker for this request alone
//!    | POST /v1/exports/ID   from where on            |  the same key, more keys, until there are no more
//!    | puts the passphrase on it: `ExportWriter`      |
//!    |                                                |
//!    | POST /v1/imports      group, digest of a file  |  pending/ID
//!    | GET  /v1/imports/ID   <- a public key          |  derived from the cluster key for this request
//!    | POST /v1/imports/ID   a part, and the file's   |  checked, part by part: the digest of all is the one that was approved
//!    |      key handed over to the cluster            |
//!    | POST /v1/imports/ID   each part once more      |  each key under its group's, volume by volume; executed with the last
//! ```
//! The passphrase of an export never leaves the machine of whoever types it, and no key is in the clear on the way.

use capstan_format::{KeyTag, Volser};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Base64, HandOver, text};
use crate::Name;

/// Which keys leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExportWhat {
    /// All that policies let go.
    All,
    /// Those of a key group.
    Group(Name),
    /// Those of a data unit, all of them.
    Unit(
        #[serde(with = "text")]
        #[schemars(with = "String")]
        Volser,
    ),
}

/// `POST /v1/exports`: asks the quorum for an export. Answered with [`super::Requested`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskExport {
    /// Which keys.
    pub what: ExportWhat,
}

/// `POST /v1/exports/ID`: carries an export out that was approved. Answered with [`ExportGiven`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CarryOutExport {
    /// Whoever asked, for this request. The same one again is the same question, and gets the same keys.
    pub public: Base64,
    /// Where the keys begin: where the answer before said that they go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ExportAt>,
    /// How many keys at most are wanted at once; a node gives less where that is too much for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<usize>,
}

/// A place in an export: behind a key of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportAt {
    /// The volume.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The key.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
}

/// The key of an export, handed over for the request that is its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentExportKey {
    /// Its public name.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub tag: KeyTag,
    /// Itself, wrapped.
    pub handed_over: HandOver,
}

/// What an export is made of, but for the passphrase: all of it, or a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportGiven {
    /// What the keys are wrapped under.
    pub key: SentExportKey,
    /// What [`crate::wrap_for_export`] made.
    pub wrapped: Base64,
    /// Keys that were asked for and by policy never leave; with the first part alone.
    pub stay: usize,
    /// Keys that may belong to what was asked for, and that nobody has confirmed yet ([`super::ConfirmKey`]), so that
    /// they are not in it: the first of them; with the first part alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unconfirmed: Vec<UnconfirmedKey>,
    /// How many there are in all.
    #[serde(default)]
    pub unconfirmed_in_all: usize,
    /// How many keys of lost nodes no volume has named yet ([`super::RecoveredKey`]): they are not in it either.
    #[serde(default)]
    pub recovered: usize,
    /// Where the next part begins; none after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ExportAt>,
}

/// A key that a lost node gave out, and of which nobody has confirmed yet of which group it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnconfirmedKey {
    /// The volume that named it.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The key.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
}

/// An export that was carried out: `GET /v1/exports`, `POST /v1/exports/ID/destroyed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportListed {
    /// Its request.
    pub id: String,
    /// When the keys left.
    pub made: Timestamp,
    /// Who has them.
    pub by: Name,
    /// Which they are.
    pub what: String,
    /// How many.
    pub keys: usize,
    /// When somebody said that it is destroyed, with whatever was made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed: Option<Timestamp>,
}

/// `POST /v1/imports`: asks the quorum for an import. Answered with [`super::Requested`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskImport {
    /// The group that the keys join.
    pub group: Name,
    /// How many they are.
    pub keys: usize,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

/// `GET /v1/imports/ID`: what the key of the export is handed over to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportReady {
    /// The cluster's public key for this request.
    pub public: Base64,
}

/// What is to become of a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImportStep {
    /// It is checked; every part of the file is, before any is taken.
    Check,
    /// Its keys are taken in.
    Take,
}

/// `POST /v1/imports/ID`: carries an import out that was approved, part by part. Answered with a list of [`KeyTaken`].
/// It may be repeated until it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CarryOutImport {
    /// A part of the file, as it is: its beginning, keys, its end. It ends with a key, or with the file.
    pub export: Base64,
    /// Where it begins in the file.
    pub at: u64,
    /// Whether the file ends with it.
    pub is_last: bool,
    /// What is to become of it.
    pub step: ImportStep,
    /// Its key.
    pub key: SentExportKey,
}

/// What became of one key of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyTaken {
    /// The key.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
    /// Its volume.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// `added`, `known`, `destroyed`.
    pub outcome: String,
    /// Its state, if it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Since when it is destroyed, and stays so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed: Option<Timestamp>,
}
