//! A node as a process: its state directory, its locks and listeners, and what runs in it.
//!
//! ```text
//!  keyd.toml     who it is, where it listens, its members of etcd          identity.pem   its certificate and key
//!  root.sealed   the root key, sealed                                      replica.db     the ledger, as it lies there
//!  journal/      what it gave out cut off                                  audit/         who did what
//!  keyd.sock     takes shares of the root key, from its owner alone      refused        another node has refused this one as removed
//!  autonomous.*  what it unlocks itself with, if the quorum lets it      locked         a person has locked it: its holders open it, and nothing else
//! ```
//! ```text
//!  locked --- enough shares, the token, or its key file ---> open
//!    replica follows the ledger, sealed                        Node: state, pool, journal
//!    listeners answer: locked, status, unlock                  listeners answer everything
//! ```
//! The replica follows the ledger whether or not the node is unlocked: following takes no key. **Locks:** `phase`
//! before everything of the node, and never held across an await.

mod access;
mod agent;
mod agents;
mod autonomous;
mod backup_record;
mod backups;
mod directory;
mod doubts;
mod export_record;
mod found;
mod handed;
mod jobs;
mod kmip;
mod last_heard;
mod listeners;
mod low_water;
mod members;
mod metrics;
mod peers;
mod people;
mod person;
mod phase;
mod problem;
mod proof;
mod reenrol;
mod registrar;
mod removed;
mod request_id;
mod room;
mod routes;
mod run;
mod shares;
mod site_record;
mod tend;
mod unlock;
mod wiped;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use capstan_keys::Name;
use capstan_keys::api::{PeerId, PeerKind, Serial};
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditError, AuditLog, AuditOrigin};
use capstan_service::clock::WallClock;
use capstan_service::identity::{Peer, Revocations};
use capstan_service::listener::RemoteAddress;
use capstan_service::problem::Refusal;
use capstan_service::rate_limit::KeyedRateLimiter;

use crate::node::{Node, NodeError};
use crate::replica::Judge;
use crate::root::SealedRoot;
use crate::state::View;

pub use backups::{
    AskCoreBackup, BackupKept, BackupMade, BackupPart, CoreBackupMade, CoreBackupRecord, Custodian, MakeCoreBackup,
    RestoreError, RestoreInputs, Restored, Source, check_stored, restore,
};
pub use directory::{DirectoryError, EtcdSettings, KmaSettings, StateDirectory, TokenSettings};
pub use found::{FirstUser, Founded, Founding, FoundingError, RootChoice, found, new_cluster};
pub use reenrol::Reenrol;
pub use routes::openapi;
pub use run::{Ended, run};
pub use shares::{GivenShare, TokenPin};
pub use unlock::Opener;

use phase::Phase;
pub use proof::{OwnProof, RetrievalProof, Unproved};

/// How many refusals are noted in a minute: of each agent, and of enrolments.
const REFUSALS_NOTED_MAX: u32 = 30;

/// A node that runs.
pub struct Service {
    settings: KmaSettings,
    /// What it unlocks itself with, if the quorum lets it.
    own_files: autonomous::OwnFiles,
    sealed_root: RwLock<Arc<SealedRoot>>,
    gate: tokio::sync::Mutex<crate::root::Unlocking>,
    phase: RwLock<Phase>,
    opened: tokio::sync::Notify,
    opening: phase::Opening,
    /// When the majority was heard last, locked or not.
    last_heard: std::sync::Mutex<crate::node::LastHeard>,
    /// Nodes that were removed, whose disks were said to be destroyed, and that were met since; until the ledger has
    /// it.
    met: std::sync::Mutex<std::collections::BTreeSet<Name>>,
    /// Of other nodes' journals; there while the node is open.
    copies: std::sync::Mutex<Option<Arc<peers::Copies>>>,
    /// Held by whoever tries to open it.
    unlocking: tokio::sync::Mutex<()>,
    audit: AuditLog,
    audit_directory: std::path::PathBuf,
    /// Somebody has locked the node: it begins anew.
    locking: tokio::sync::Notify,
    /// Somebody wants an anchor at once.
    anchoring: tokio::sync::Notify,
    backups: backups::Spool,
    /// What a guess of a passphrase costs that opens a share of a core security backup.
    custodian_cost: capstan_keys::Argon2Cost,
    clock: WallClock,
    making_backups: Arc<jobs::Jobs<BackupMade>>,
    proving: Arc<jobs::Jobs<RetrievalProof>>,
    /// Of agents, as far as they are noted.
    refusals: KeyedRateLimiter<Name>,
    /// Keys of other stores, part by part.
    arriving: people::Arriving,
    metrics: Arc<metrics::Metrics>,
    /// Of the ledger.
    room: room::RoomSeen,
    /// What KMIP clients may take of it.
    quotas: kmip::Quotas,
}

impl Service {
    /// The node, or that it is locked, or none of the cluster any more.
    pub fn node(&self) -> Result<Arc<Node>, Refusal> {
        let node = self.open_node().ok_or_else(|| Refusal::from(problem::locked(&self.settings.name)))?;
        node.check_epoch()?;
        match node.removal() {
            Some(_) => Err(NodeError::Removed { kma: self.settings.name.clone() }.into()),
            None => Ok(node),
        }
    }

    /// The root key as it lies on this node's disk.
    fn sealed_root(&self) -> Arc<SealedRoot> {
        self.sealed_root.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn open_node(&self) -> Option<Arc<Node>> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Open(node) => Some(node.clone()),
            Phase::Locked(_) => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.settings.name
    }

    /// Notes an act before it is answered. One that cannot be noted is not done.
    async fn note(&self, entry: AuditEntry) -> Result<(), Refusal> {
        self.audit.note(entry, (self.clock)()).await.map(drop).map_err(|error: AuditError| {
            tracing::error!(%error, "an act cannot be noted");
            Refusal::unready(error.to_string())
        })
    }
}

/// Who somebody is, in the words of the audit log.
fn who(PeerId { kind, name }: &PeerId) -> AuditActor {
    let kind = match kind {
        PeerKind::KmipClient => "kmip-client",
        PeerKind::Kma
        | PeerKind::Agent
        | PeerKind::User
        // A cell has an authority of its own, so nobody comes to a node as one of these.
        | PeerKind::Server
        | PeerKind::Mover
        | PeerKind::Client => kind.as_str(),
    };
    AuditActor::peer(kind, name.clone())
}

fn entry(peer: &Peer, from: RemoteAddress, action: AuditAction) -> AuditEntry {
    AuditEntry::new(who(&peer.id), AuditOrigin::Address(from.0), action)
}

impl Revocations for Service {
    /// A node that is locked cannot read what is revoked; it answers nothing then that a revoked certificate could be
    /// of use for.
    fn is_revoked(&self, serial: &Serial) -> bool {
        let path = registrar::revoked_path(serial);
        let is_there =
            |view: View<'_>| view.ledger().others(&path).next().is_some() || view.ledger().is_unreadable(&path);
        self.open_node().is_some_and(|node| node.view(is_there))
    }

    /// A node that was removed asks like any other peer: its disks are there.
    fn was_met(&self, peer: &PeerId, _: SocketAddr) {
        if peer.kind == PeerKind::Kma {
            self.removed_was_met(&peer.name);
        }
    }
}

impl Judge for Service {
    fn is_genuine(&self, entry: &crate::ledger::Entry) -> bool {
        self.open_node().is_none_or(|node| node.keys().sealer().open(&entry.path, &entry.sealed).is_ok())
    }
}
