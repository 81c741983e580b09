//! A node that runs: everything of it, until it is told to end.

use std::convert::Infallible;
use std::path::Path as FilePath;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::Context;
use capstan_keys::Argon2Cost;
use capstan_keys::cluster::Identity;
use capstan_service::audit::AuditLog;
use capstan_service::clock::system_clock;
use capstan_service::enrolment::Registrar;
use capstan_service::housekeeping::Housekeeping;
use capstan_service::identity::PresentedCertificate;
use capstan_service::rate_limit::KeyedRateLimiter;
use capstan_service::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::Instant;

use super::directory::StateDirectory;
use super::doubts::NotedDoubts;
use super::last_heard::{LastHeardNotes, Noted};
use super::listeners::{Listeners, Shown};
use super::low_water::LowWater;
use super::people::{AnchorKeeper, OwnRenewal};
use super::phase::{Opening, Phase};
use super::proof::OwnProofs;
use super::registrar::Registry;
use super::room::RoomWatch;
use super::tend::Tending;
use super::unlock::{listen_here, serve_here};
use super::{KmaSettings, REFUSALS_NOTED_MAX, Service, autonomous, backups, kmip, metrics, people, room};
use crate::ledger::{EtcdLedger, EtcdTiming, Ledger, QUOTA_BYTES};
use crate::node::NodeSettings;
use crate::replica::{Delivery, Freshness, PackedRecords, Replica, follow};
use crate::root::SealedRoot;

/// How soon a node that was locked begins anew: whoever locked it hears that it is so.
const LOCKED_AFTER: Duration = Duration::from_millis(300);

/// Why a node runs no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to end.
    Told,
    /// A person has locked it: it is to begin anew, with nothing in memory.
    ToBeLocked,
}

/// Runs the node of a state directory until the end begins. `ready` is told when its listeners are open. A guess of a
/// custodian's passphrase takes the work of `custodian_cost`.
///
/// # Errors
/// The state directory, the ledger's settings or a listener cannot be used, or the replica cannot be used any more.
pub async fn run(
    directory: &FilePath,
    custodian_cost: Argon2Cost,
    ready: impl FnOnce(&Service),
    shutdown: Shutdown,
) -> anyhow::Result<Ended> {
    let Prepared { directory, service, replica, identity, noted } = prepare(directory, custodian_cost).await?;
    service.unlock_with_pin_file().await;

    let listeners = Listeners::open(&service.settings)?;
    let presented = PresentedCertificate::new(&identity)?;
    let registrar: Arc<dyn Registrar> = Arc::new(Registry::of(Arc::downgrade(&service)));
    let (authority, registrar_of) = (identity.authority_der().clone(), registrar.clone());
    let shown = Shown { presented: presented.clone(), authority, registrar: registrar_of };
    let listeners = listeners.serve(service.clone(), shown, shutdown);
    let here = listen_here(&directory.socket()).context("the socket of the state directory cannot be made")?;

    let (freshness, fresh) = watch::channel(Freshness::default());
    let following = follow_ledger(&service, replica, freshness);
    let renewal = OwnRenewal::new(registrar, identity, directory.identity(), presented);
    let housekeeping = housekeeping(&service, renewal, noted, fresh.clone());
    ready(&service);
    tokio::select! {
        ended = listeners => ended.map(|()| Ended::Told),
        ended = serve_here(&service, here) => ended.map(|()| Ended::Told).context("the socket of the state directory cannot be served"),
        error = following => Err(error),
        never = listen_for_majority(&service, fresh) => match never {},
        never = housekeeping.run() => match never {},
        never = unlock_by_itself(&service) => match never {},
        () = locked(&service) => Ok(Ended::ToBeLocked),
    }
}

/// A node as its state directory has it.
struct Prepared {
    directory: StateDirectory,
    service: Arc<Service>,
    replica: Replica,
    identity: Identity,
    noted: Noted,
}

/// Reads the state directory.
async fn prepare(directory: &FilePath, custodian_cost: Argon2Cost) -> anyhow::Result<Prepared> {
    let (directory, settings) = StateDirectory::open(directory)?;
    backups::sweep_copy(&directory).context(
        "the backup that a restore has made of a replica cannot be overwritten: a key that is destroyed would outlive it in \
         replica.backup or replica.backup.partial of the state directory. Destroy them (`shred -u`) and start the node again",
    )?;
    let ledger =
        EtcdLedger::new(&settings.cluster.to_string(), &settings.etcd.members()?, EtcdTiming::default()).await?;
    let ledger: Arc<dyn Ledger> = Arc::new(ledger.with_quota(settings.etcd.quota_bytes.unwrap_or(QUOTA_BYTES)));

    let mut records = PackedRecords::default();
    let replica = Replica::open(&directory.replica(), &settings.cluster.to_string(), settings.epoch.into(), |entry| {
        records.push(entry.borrowed());
    })?;
    records.close(replica.applied().unwrap_or(0));
    let identity = Identity::load(&directory.identity())?;
    let noted = Noted::of(directory.last_heard(), &settings.cluster, &settings.name);
    let last_heard = noted.read(Instant::now());
    let service = service(&directory, settings, custodian_cost, ledger, records, last_heard)?;
    service.metrics.own_certificate(identity.certificate().not_after_ns);
    if let Err(error) = service.backups.sweep() {
        tracing::warn!(%error, "a backup that nobody can fetch any more is still in the state directory");
    }
    Ok(Prepared { directory, service, replica, identity, noted })
}

/// The service of a node that is locked.
fn service(
    directory: &StateDirectory,
    settings: KmaSettings,
    custodian_cost: Argon2Cost,
    ledger: Arc<dyn Ledger>,
    records: PackedRecords,
    last_heard: crate::node::LastHeard,
) -> anyhow::Result<Arc<Service>> {
    let clock = system_clock();
    let sealed_root = SealedRoot::read(&directory.root())?;
    let audit = AuditLog::open(&directory.audit(), &settings.name, clock())?;
    let pool_low = settings.pool_keys / 5;
    let opening = Opening {
        ledger,
        journal: directory.journal(),
        identity: directory.identity(),
        refused: directory.refused(),
        locked: directory.locked(),
        root: directory.root(),
        node: NodeSettings { pool_keys: settings.pool_keys, pool_low, ..NodeSettings::default() },
        clock: clock.clone(),
        lost_ledger: std::sync::Mutex::default(),
        turn: std::sync::Mutex::default(),
    };
    let metrics = metrics::Metrics::new(&settings);
    let quotas = kmip::Quotas::new(settings.kmip_domain_objects, settings.kmip_domain_bytes);
    let own_files = autonomous::OwnFiles::of(directory, settings.autonomous_key_file.clone());
    Ok(Arc::new(Service {
        settings,
        own_files,
        sealed_root: RwLock::new(Arc::new(sealed_root)),
        gate: tokio::sync::Mutex::default(),
        phase: RwLock::new(Phase::Locked(records)),
        opened: tokio::sync::Notify::new(),
        opening,
        last_heard: std::sync::Mutex::new(last_heard),
        met: std::sync::Mutex::default(),
        copies: std::sync::Mutex::default(),
        unlocking: tokio::sync::Mutex::default(),
        audit,
        audit_directory: directory.audit(),
        locking: tokio::sync::Notify::new(),
        anchoring: tokio::sync::Notify::new(),
        backups: backups::Spool::new(directory.backups()),
        custodian_cost,
        making_backups: super::jobs::Jobs::new("a backup"),
        proving: super::jobs::Jobs::new("a proof"),
        refusals: KeyedRateLimiter::new(REFUSALS_NOTED_MAX),
        arriving: people::Arriving::default(),
        metrics,
        room: room::RoomSeen::default(),
        quotas,
        clock,
    }))
}

/// What a node looks after beside its requests.
fn housekeeping<'a>(
    service: &'a Arc<Service>,
    mut renewal: OwnRenewal,
    noted: Noted,
    fresh: watch::Receiver<Freshness>,
) -> Housekeeping<'a> {
    let (mut tending, mut anchors, mut proofs) = (Tending::default(), AnchorKeeper::default(), OwnProofs::default());
    let (mut last_heard, mut doubts) = (LastHeardNotes::new(noted), NotedDoubts::default());
    let (mut low_water, mut room) = (LowWater::default(), RoomWatch::default());
    Housekeeping::new()
        .check("last heard", async move || last_heard.check(service).await)
        .check("low water", async move || low_water.check(service))
        .check("room", async move || room.check(service).await)
        .check("metrics", async move || metrics::look(service, &fresh).await)
        .check("tend", async move || tending.check(service).await)
        .check("anchors", async move || anchors.check(service).await)
        .check("renewal", async move || renewal.check(service).await)
        .check("proof", async move || proofs.check(service).await)
        .check("doubts", async move || doubts.check(service).await)
}

/// Follows the ledger in a task of its own: to take in much at once must not keep anybody at the listeners. It ends
/// when the replica cannot be used any more.
fn follow_ledger(
    service: &Arc<Service>,
    replica: Replica,
    freshness: watch::Sender<Freshness>,
) -> impl Future<Output = anyhow::Error> + use<> {
    let (service, seed) = (service.clone(), u64::from(std::process::id()));
    let (ledger, replica) = (service.opening.ledger.clone(), replica.judged_by(service.clone()));
    let mut following = tokio::task::JoinSet::new();
    following.spawn(async move {
        let deliver = |delivery: Delivery<'_>| tokio::task::block_in_place(|| service.deliver(delivery));
        follow(&*ledger, replica, seed, &freshness, deliver).await
    });
    async move {
        match following.join_next().await {
            Some(Ok(error)) => anyhow::Error::from(error).context("the replica cannot be used any more"),
            Some(Err(failed)) => anyhow::Error::from(failed).context("what follows the ledger failed"),
            None => std::future::pending().await,
        }
    }
}

/// Passes on when the majority was heard. It never ends: a ledger that is not followed any more says nothing more, and
/// its node goes on as if cut off.
async fn listen_for_majority(service: &Service, mut fresh: watch::Receiver<Freshness>) -> Infallible {
    let mut told = None;
    while fresh.changed().await.is_ok() {
        let current_at = fresh.borrow_and_update().current_at;
        if let Some(asked) = current_at.filter(|_| current_at != told) {
            service.heard(asked);
            told = current_at;
        }
    }
    std::future::pending().await
}

async fn unlock_by_itself(service: &Arc<Service>) -> Infallible {
    service.unlock_by_itself().await;
    std::future::pending().await
}

/// Waits until somebody has locked the node, and has heard that it is so.
async fn locked(service: &Service) {
    service.locking.notified().await;
    tokio::time::sleep(LOCKED_AFTER).await;
}
