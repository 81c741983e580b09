//! What agents, people and the nodes of a cluster say to each other: JSON over HTTP, under `/v1`.
//!
//! Both sides use these types, so that they cannot drift apart. Nothing here decides anything, and nothing here is a
//! secret in the clear: keys travel wrapped ([`crate::cluster::KeyRequest`]). Names are checked when they are read,
//! binary is base64, identifiers are hexadecimal, times are RFC 3339. A field that is not known is passed over, so that
//! nodes of two versions get on.

mod backups;
mod base64_text;
mod certificates;
mod hand_over;
mod jobs;
mod key_problem;
mod keys;
mod members;
mod peer;
mod people;
mod problem;
mod text;
mod transfer;

pub use backups::{BackupRecord, BackupState};
pub use base64_text::Base64;
pub use certificates::{AskEnrolment, ENROLMENT_NOT_PROVED, EnrolmentAnswer, IssuedCertificate, RenewCertificate};
pub use hand_over::HandOver;
pub use jobs::{JobSeen, JobStarted};
pub use keys::{
    ActivateKey, Activated, AppendVolume, BeginVolume, CartridgeListed, CartridgeSeenAs, EndVolume, KeyGiven,
    KeyOfVolume, KeyRevoked, KeyTagText, ReadVolume, RevokeKey, Standing,
};
pub use members::{AutonomousUnlock, KmaListed, KmaMember, KmaState, NodeLocked};
pub use peer::{ClusterId, InvalidId, PeerId, PeerKind, RequestId, Serial};
pub use people::{
    AddKma, AddPeer, AddSite, AgentGroups, AssignKmipClient, ConfirmKey, Decide, DescribeSite, EnrolmentOpened,
    ExtendUnit, GroupSaid, JournalOfRemoved, KeyListed, KmipClientAssigned, KmipUsage, Leave, MoveKma, NamedKey, Page,
    PeerListed, PendingListed, PolicySaid, QuorumSaid, RecoveredKey, RemovedListed, RequestOutcome, Requested, Revoked,
    ShownOnce, SiteListed, SplitRoot, UnitListed, UserListed, UserRoles,
};
pub use problem::{PROBLEM_MEDIA_TYPE, Problem};
pub use transfer::{
    AskExport, AskImport, CarryOutExport, CarryOutImport, ExportAt, ExportGiven, ExportListed, ExportWhat, ImportReady,
    ImportStep, KeyTaken, SentExportKey, UnconfirmedKey,
};

/// The header that carries the id of a request: a request that is sent again carries the same.
pub const REQUEST_ID_HEADER: &str = "capstan-request";

/// The header of each answer that says which epoch of the cluster the node is of.
pub const EPOCH_HEADER: &str = "capstan-epoch";
