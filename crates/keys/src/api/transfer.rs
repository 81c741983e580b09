//! Keys that leave the cluster, and keys that come to it: in the file of [`crate::KeyExport`], by quorum.
//!
//! ```text
//!  asker                                            node
//!    | POST /v1/exports      which keys               |  pending/ID, approved by others, as ever
//!    | POST /v1/exports/ID   a public key             |  executed, once; keys wrapped under a key that is drawn now,
//!    |     <- that key, handed over; the keys         |  which is handed over to this asker for this request alone
//!    | puts the passphrase on it: `seal_export`       |
//!    |                                                |
//!    | POST /v1/imports      group, digest of a file  |  pending/ID
//!    | GET  /v1/imports/ID   <- a public key          |  derived from the cluster key for this request
//!    | POST /v1/imports/ID   the file, and its key    |  each key under its group's, volume by volume; executed
//!    |      handed over to the cluster                |
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

/// What an export is made of, but for the passphrase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportGiven {
    /// What the keys are wrapped under.
    pub key: SentExportKey,
    /// What [`crate::wrap_for_export`] made.
    pub wrapped: Base64,
    /// Keys that were asked for and by policy never leave.
    pub stay: usize,
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

/// `POST /v1/imports/ID`: carries an import out that was approved. Answered with a list of [`KeyTaken`]. It may be repeated until it is
/// done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CarryOutImport {
    /// The file, as it is.
    pub export: Base64,
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
