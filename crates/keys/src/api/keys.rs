//! Keys for drives: what agents ask.
//!
//! Each request has an id ([`super::REQUEST_ID_HEADER`]), and the same id is the same question: a node that was asked
//! already, or another one that is asked because the first did not answer, gives the same key and not a second one.

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Base64, HandOver, text};
use crate::{KeyState, Name, Revocation};

/// `POST /v1/keys/begin`: a key for a volume that is about to be written from the beginning of tape. Answered with
/// [`KeyGiven`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BeginVolume {
    /// The volume's barcode.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The drive it is in.
    pub drive: Name,
    /// The key group; that of the drive where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// The pool that the volume is of: where no group is named and there is one of the pool's name, it is that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The cipher: `AES-256-GCM`, `AES-256-CCM`.
    #[serde(with = "cipher")]
    #[schemars(with = "String")]
    pub algorithm: Algorithm,
    /// The agent's public key for this request.
    pub public: Base64,
}

/// `POST /v1/keys/append`: the key to append to a volume with. Answered with [`KeyGiven`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppendVolume {
    /// The volume's barcode.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The cartridge's serial number, as its memory tells it; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional")]
    #[schemars(with = "Option<String>")]
    pub serial: Option<MediumSerial>,
    /// The drive it is in.
    pub drive: Name,
    /// The key that the volume's first block names.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub first: KeyTag,
    /// The agent's public key for this request.
    pub public: Base64,
}

/// `POST /v1/keys/read`: a key to read a volume with. Answered with [`KeyGiven`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadVolume {
    /// The volume's barcode.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The cartridge's serial number, as its memory tells it; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional")]
    #[schemars(with = "Option<String>")]
    pub serial: Option<MediumSerial>,
    /// The drive it is in.
    pub drive: Name,
    /// The key that a block names.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
    /// The agent's public key for this request.
    pub public: Base64,
}

/// A key, wrapped for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyGiven {
    /// The key's public name.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
    /// Its cipher.
    #[serde(with = "cipher")]
    #[schemars(with = "String")]
    pub algorithm: Algorithm,
    /// Its group.
    pub group: Name,
    /// Itself.
    pub handed_over: HandOver,
    /// On what the answer stands.
    pub standing: Standing,
}

/// On what an answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The node was in touch with the majority a moment ago.
    Current,
    /// The node is cut off from the majority, and answers by what was so before; what it gave out now the cluster will
    /// learn.
    CutOff,
}

/// `POST /v1/keys/activate`: the first block encrypted with a key is about to be written. Answered with [`Activated`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActivateKey {
    /// The volume's barcode.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The cartridge's serial number, as its memory tells it; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional")]
    #[schemars(with = "Option<String>")]
    pub serial: Option<MediumSerial>,
    /// The key.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
}

/// The keys that read only from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activated {
    /// Their public names.
    pub retired: Vec<KeyTagText>,
}

/// `POST /v1/keys/revoke`: an agent takes a key out of use, where the key's policy lets agents do that. Answered with
/// [`KeyRevoked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokeKey {
    /// The key.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
    /// Why.
    pub why: Revocation,
}

/// What has become of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRevoked {
    /// The volume that it is of.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// Its state.
    #[serde(with = "state")]
    #[schemars(with = "String")]
    pub state: KeyState,
}

/// `POST /v1/keys/end`: a volume was erased, or begun anew without encryption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndVolume {
    /// The volume's barcode.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The serial number of the cartridge that holds nothing of it any more; none where it does not tell one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional")]
    #[schemars(with = "Option<String>")]
    pub serial: Option<MediumSerial>,
    /// The newest key that the volume had then. Keys of a later life of the volume are none of this report's; without
    /// it, none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<KeyTagText>,
}

/// `GET /v1/units/BARCODE/keys`: the keys that a volume ever had, those issued first in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyOfVolume {
    /// Its public name.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
    /// Its group.
    pub group: Name,
    /// Its cipher.
    #[serde(with = "cipher")]
    #[schemars(with = "String")]
    pub algorithm: Algorithm,
    /// Its state, as it is now.
    #[serde(with = "state")]
    #[schemars(with = "String")]
    pub state: KeyState,
    /// When it was issued.
    pub issued: jiff::Timestamp,
    /// When the first block encrypted with it was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated: Option<jiff::Timestamp>,
    /// When it was destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed: Option<jiff::Timestamp>,
    /// Since when the volume holds nothing of it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<jiff::Timestamp>,
}

/// `GET /v1/units/BARCODE/cartridges`, and a part of `GET /v1/units`: a cartridge that a volume's barcode was seen on,
/// those seen first in front.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CartridgeListed {
    /// Its serial number; none where the volume was begun on one that did not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional")]
    #[schemars(with = "Option<String>")]
    pub serial: Option<MediumSerial>,
    /// When it was first seen as that.
    pub since: jiff::Timestamp,
    /// As what.
    pub seen_as: CartridgeSeenAs,
}

/// As what a cartridge was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CartridgeSeenAs {
    /// The one that the volume is on.
    Own,
    /// Another one, under the same barcode: two have one label, or a label stands on a cartridge that it was not made
    /// for.
    Another,
}

/// A tag on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "Tag")]
pub struct KeyTagText(
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub KeyTag,
);

mod cipher {
    use capstan_format::Algorithm;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(algorithm: &Algorithm, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(algorithm.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Algorithm, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let found = [Algorithm::Aes256Gcm, Algorithm::Aes256Ccm].into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| de::Error::custom("a cipher is AES-256-GCM or AES-256-CCM"))
    }
}

mod state {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::KeyState;

    pub(super) fn serialize<S: Serializer>(state: &KeyState, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(state.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KeyState, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let found = KeyState::ALL.into_iter().find(|state| state.name() == text);
        found.ok_or_else(|| de::Error::custom("no state of a key"))
    }
}
