//! What people ask of a node: peers, policies, groups, data units, users, and what waits for a quorum.
//!
//! A request that needs a quorum is answered with [`RequestOutcome::Waits`]. It is done when enough other members have
//! approved exactly that request.

use std::collections::BTreeSet;

use capstan_format::{KeyTag, MediumSerial, Volser};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Base64, CartridgeListed, KeyOfVolume, PeerId, text};
use crate::Name;
use crate::enrolment_passphrase::EnrolmentPassphrase;

/// A one-time passphrase on its way to whoever asked for it. It is in no other answer, ever.
#[derive(JsonSchema)]
#[schemars(transparent)]
pub struct ShownOnce(#[schemars(with = "String")] pub EnrolmentPassphrase);

impl Serialize for ShownOnce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.expose())
    }
}

impl<'de> Deserialize<'de> for ShownOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let shown = zeroize::Zeroizing::new(String::deserialize(deserializer)?);
        shown.parse().map(Self).map_err(de::Error::custom)
    }
}

/// An enrolment that was opened.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct EnrolmentOpened {
    /// Whose.
    pub peer: PeerId,
    /// What it takes.
    pub passphrase: ShownOnce,
    /// Until when.
    pub expires: Timestamp,
}

/// Which key groups an agent may use: `POST /v1/agents/NAME/groups`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentGroups {
    /// The groups; empty for all.
    pub groups: BTreeSet<Name>,
    /// The one it uses unasked.
    pub default_group: Name,
}

/// `POST /v1/agents`, `POST /v1/kmip-clients`: opens an enrolment, answered with [`EnrolmentOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddPeer {
    /// The name.
    pub name: Name,
    /// The groups of an agent; where none are said it keeps those it has, and a new one has `default` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<AgentGroups>,
}

/// An agent or a KMIP client: `GET /v1/agents`, `GET /v1/kmip-clients`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerListed {
    /// The name.
    pub name: Name,
    /// How many certificates let it in.
    pub certificates: usize,
    /// Its enrolment: `open`, `used`, `over`; none if there never was one, or it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<String>,
    /// The groups of an agent; none where nobody has said anything of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<AgentGroups>,
    /// What was assigned to a KMIP client; none where nobody has said anything of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned: Option<KmipClientAssigned>,
    /// What the domain of a KMIP client takes of the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<KmipUsage>,
}

/// What the objects of a domain of KMIP clients take of the ledger, and may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KmipUsage {
    /// Objects that are not destroyed.
    pub objects: u64,
    /// As many as there may be.
    pub objects_max: u64,
    /// Bytes of all records, of destroyed ones too.
    pub bytes: u64,
    /// As many as there may be.
    pub bytes_max: u64,
}

/// What a KMIP client sees, and by which policy it is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KmipClientAssigned {
    /// Clients of one domain see each other's objects. A new client has a domain of its own name.
    pub domain: Name,
    /// The key group whose policy limits for how long a node that is cut off answers it.
    pub group: Name,
}

/// `POST /v1/kmip-clients/NAME/assign`, answered with [`KmipClientAssigned`]. What is not said stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AssignKmipClient {
    /// The domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Name>,
    /// The key group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
}

/// What was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// How many certificates were.
    pub certificates: usize,
}

/// `POST /v1/kmas`: a node that is to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddKma {
    /// Its name.
    pub name: Name,
    /// Where agents and nodes will reach it: host and port.
    pub address: String,
    /// Where it stands; empty where there are no sites.
    #[serde(default)]
    pub site: String,
}

/// `POST /v1/kmas/NAME/move`: where a node is to stand. What is not said stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoveKma {
    /// Where agents and nodes will reach it: host and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Where it will stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// A site: `GET /v1/sites`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteListed {
    /// Its name.
    pub name: String,
    /// What people say of it.
    #[serde(default)]
    pub description: String,
    /// When it was added; never, where nodes have named it since before there were such records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Timestamp>,
    /// The nodes that stand there.
    pub kmas: Vec<Name>,
}

/// `POST /v1/sites`: a site that is new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddSite {
    /// Its name.
    pub name: Name,
    /// What people say of it.
    #[serde(default)]
    pub description: String,
}

/// `POST /v1/sites/NAME/describe`: what people say of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescribeSite {
    /// It, in one line.
    pub description: String,
}

/// `POST /v1/root/split`: the root key as other holders are to open it.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct SplitRoot {
    /// The sealed root key; nothing in it is secret.
    pub root: Base64,
}

/// A node that was removed: `GET /v1/kmas/removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedListed {
    /// Its name, which is never given to another.
    pub name: Name,
    /// Where it stood.
    pub site: String,
    /// When it was removed.
    pub removed: Timestamp,
    /// Who asked for that.
    pub by: Name,
    /// When somebody said that its disks were destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed: Option<Timestamp>,
    /// When it was met after somebody had said that: they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<Timestamp>,
    /// Keys of its pool that are not set aside yet.
    pub pool: usize,
    /// The nodes that have said a copy of its journal to the ledger.
    pub journals: Vec<JournalOfRemoved>,
}

/// What a node has said of the journal of one that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JournalOfRemoved {
    /// The node that has the copy.
    pub holder: String,
    /// The number of the copy's last record.
    pub sequence: u64,
    /// Entries that the ledger has.
    pub taken: usize,
    /// Entries that no longer fit, and why.
    pub void: Vec<String>,
}

/// How many approve: `GET` and `POST /v1/quorum`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuorumSaid {
    /// Approvals that an act by quorum takes.
    pub needed: u8,
    /// For how long a request waits for them, in seconds; asked for without, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_seconds: Option<u32>,
    /// Enabled quorum members that there are.
    #[serde(default)]
    pub members: usize,
}

/// Whether keys may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// They may.
    Allowed,
    /// They may not.
    Forbidden,
}

/// A key policy: `GET` and `POST /v1/policies`. A period that is not said has no end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicySaid {
    /// Its name.
    pub name: Name,
    /// The cipher of its keys: `AES-256-GCM`, `AES-256-CCM`; left to the pool where none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// For how long a key encrypts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_seconds: Option<u32>,
    /// For how long a key decrypts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cryptoperiod_seconds: Option<u32>,
    /// Whether keys may leave.
    pub export: Leave,
    /// Whether foreign keys may join.
    pub import: Leave,
    /// Whether an agent may report a key as known to others.
    pub agents_revoke: Leave,
    /// For how long a node that is cut off gives out keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation_seconds: Option<u32>,
    /// Whether it takes the place of one of its name that no key was issued under; without this, that one stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// A key group: `GET` and `POST /v1/groups`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupSaid {
    /// Its name.
    pub name: Name,
    /// Its policy, for good.
    pub policy: Name,
}

/// A part of a list, and where the next one begins: `?after=NEXT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Page<T> {
    /// The part.
    pub items: Vec<T>,
    /// What to ask after; none if this was the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A key: `GET /v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyListed {
    /// The volume it was issued for.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// The key.
    #[serde(flatten)]
    pub of: KeyOfVolume,
    /// Who asked for it.
    pub agent: Name,
    /// Who gave it.
    pub kma: Name,
}

/// A data unit: `GET /v1/units`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnitListed {
    /// Its barcode.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub volume: Volser,
    /// How many keys it ever had.
    pub keys: usize,
    /// When the first was issued.
    pub first_seen: Timestamp,
    /// When the last was issued.
    pub last_seen: Timestamp,
    /// Until when its keys are given out though their cryptoperiod be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_until: Option<Timestamp>,
    /// The serial number of its cartridge, where one was told.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional")]
    #[schemars(with = "Option<String>")]
    pub serial: Option<MediumSerial>,
    /// What people should look into: that another cartridge has its barcode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Every cartridge that its barcode was seen on; the last ones are others than its own where two have one label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cartridges: Vec<CartridgeListed>,
}

/// `POST /v1/units/BARCODE/extend`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExtendUnit {
    /// Until when its keys are given out.
    pub until: Timestamp,
}

/// `POST /v1/keys/compromise`, `POST /v1/keys/destroy`: which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedKey {
    /// Its public name.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
}

/// `POST /v1/keys/confirm`: of which volume and group a key is that a lost node gave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfirmKey {
    /// The key.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
    /// The volume; without it the one that is on record, which is what an agent has said.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional")]
    #[schemars(with = "Option<String>")]
    pub volume: Option<Volser>,
    /// The group.
    pub group: Name,
}

/// A key that a lost node may have given out, and that no volume has named yet: `GET /v1/keys/recovered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveredKey {
    /// The key.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub key: KeyTag,
    /// When it was drawn.
    pub drawn: Timestamp,
}

/// A user: `GET /v1/users`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserListed {
    /// The name.
    pub name: Name,
    /// The roles.
    pub roles: Vec<String>,
    /// `enabled`, `disabled`.
    pub standing: String,
    /// How many certificates prove who they are.
    pub certificates: usize,
}

/// `POST /v1/users`, `POST /v1/users/NAME/roles`: a user with these roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserRoles {
    /// The name.
    pub name: Name,
    /// The roles, all of them.
    pub roles: Vec<String>,
}

/// What came of what was asked.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum RequestOutcome {
    /// It was done.
    Done,
    /// It waits for a quorum.
    Waits(Requested),
}

/// A request that waits for its quorum.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Requested {
    /// The request.
    pub id: String,
    /// What exactly is asked for: an approval names it.
    pub digest: String,
    /// How many approvals it takes.
    pub needed: u8,
    /// When it ends by itself.
    pub expires: Timestamp,
    /// What the peer or user will enrol with, once the request is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<ShownOnce>,
    /// What whoever asks should know before others approve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What waits for a quorum, or waited: `GET /v1/pending`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingListed {
    /// The request.
    pub id: String,
    /// The act.
    pub act: String,
    /// Who asks.
    pub requested_by: Name,
    /// When it ends by itself.
    pub expires: Timestamp,
    /// Where it stands: `waiting`, `approved`, `expired`, `rejected`, `withdrawn`, `executed`.
    pub stage: String,
    /// How many approvals count at this moment.
    pub approvals: usize,
    /// How many it takes.
    pub needed: u8,
    /// All that is asked for, as an approver reads it.
    pub words: String,
    /// What an approval names.
    pub digest: String,
}

/// `POST /v1/pending/ID/approve`, `/reject`: the digest of what was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decide {
    /// As it was shown.
    pub digest: String,
}
