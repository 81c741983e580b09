//! A node that runs: everything of it, until it is told to end.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::http::HeaderValue;
use axum::middleware::map_response;
use axum::response::Response;
use capstan_keys::api::EPOCH_HEADER;
use capstan_keys::cluster::Identity;
use capstan_service::audit::AuditLog;
use capstan_service::clock::system_clock;
use capstan_service::enrolment::{enrolment_routes, renewal_routes};
use capstan_service::health::health_routes;
use capstan_service::identity::{Gate, PresentedCertificate, enrolment_tls, member_tls, member_tls_from};
use capstan_service::listener::{ListenerLimits, serve_enrolment, serve_members};
use capstan_service::metrics::serve_metrics;
use capstan_service::rate_limit::KeyedRateLimiter;
use capstan_service::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::directory::StateDirectory;
use super::phase::{Opening, Phase};
use super::registrar::Registry;
use super::removed::Removed;
use super::unlock::{listen_here, serve_here};
use super::wiped::Wiped;
use super::{
    REFUSALS_NOTED_MAX, Service, autonomous, backups, doubts, kmip, last_heard, low_water, metrics, people, proof,
    room, routes,
};
use crate::ledger::{EtcdLedger, EtcdTiming, Ledger, QUOTA_BYTES};
use crate::node::{NodeSettings, Standing};
use crate::replica::{Delivery, Freshness, PackedRecords, Replica, follow};
use crate::root::SealedRoot;

/// How often a node looks at what is due.
const TEND_EVERY: Duration = Duration::from_millis(200);
/// How often it looks while its pool fills.
const TEND_MORE: Duration = Duration::from_millis(1);

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

/// Runs the node of a state directory until the end begins. `ready` is told when the doors are open.
pub async fn run(directory: &FilePath, ready: impl FnOnce(&Service), shutdown: Shutdown) -> anyhow::Result<Ended> {
    let (directory, settings) = StateDirectory::open(directory)?;
    backups::sweep_copy(&directory).context(
        "the backup that a restore has made of a replica cannot be overwritten: a key that is destroyed would outlive it in \
         replica.backup or replica.backup.partial of the state directory. Destroy them (`shred -u`) and start the node again",
    )?;
    let clock = system_clock();
    let ledger =
        EtcdLedger::new(&settings.cluster.to_string(), &settings.etcd.members()?, EtcdTiming::default()).await?;
    let ledger: Arc<dyn Ledger> = Arc::new(ledger.with_quota(settings.etcd.quota_bytes.unwrap_or(QUOTA_BYTES)));

    let mut records = PackedRecords::default();
    let replica = Replica::open(&directory.replica(), &settings.cluster.to_string(), settings.epoch.into(), |entry| {
        records.push(entry.borrowed());
    })?;
    records.close(replica.applied().unwrap_or(0));
    let sealed_root = SealedRoot::read(&directory.root())?;
    let identity = Identity::load(&directory.identity())?;
    let audit = AuditLog::open(&directory.audit(), &settings.name, clock())?;
    let noted = last_heard::Noted::of(directory.last_heard(), &settings.cluster, &settings.name);
    let opening = Opening {
        ledger: ledger.clone(),
        journal: directory.journal(),
        identity: directory.identity(),
        refused: directory.refused(),
        locked: directory.locked(),
        root: directory.root(),
        node: NodeSettings {
            pool_keys: settings.pool_keys,
            pool_low: settings.pool_keys / 5,
            ..NodeSettings::default()
        },
        clock: clock.clone(),
        lost_ledger: std::sync::Mutex::default(),
        turn: std::sync::Mutex::default(),
    };
    let metrics = metrics::Metrics::new(&settings);
    metrics.own_certificate(identity.certificate().not_after_ns);
    let quotas = kmip::Quotas::new(settings.kmip_domain_objects, settings.kmip_domain_bytes);
    let own_files = autonomous::OwnFiles::of(&directory, settings.autonomous_key_file.clone());
    let service = Arc::new(Service {
        settings,
        own_files,
        sealed_root: RwLock::new(Arc::new(sealed_root)),
        gate: tokio::sync::Mutex::default(),
        phase: RwLock::new(Phase::Locked(records)),
        opened: tokio::sync::Notify::new(),
        opening,
        last_heard: std::sync::Mutex::new(noted.read(Instant::now())),
        met: std::sync::Mutex::default(),
        copies: std::sync::Mutex::default(),
        unlocking: tokio::sync::Mutex::default(),
        audit,
        audit_directory: directory.audit(),
        locking: tokio::sync::Notify::new(),
        anchoring: tokio::sync::Notify::new(),
        backups: backups::Spool::new(directory.backups()),
        making_backups: super::jobs::Jobs::new("a backup"),
        proving: super::jobs::Jobs::new("a proof"),
        refusals: KeyedRateLimiter::new(REFUSALS_NOTED_MAX),
        arriving: people::Arriving::default(),
        metrics: metrics.clone(),
        room: room::RoomSeen::default(),
        quotas,
        clock: clock.clone(),
    });
    if let Err(error) = service.backups.sweep() {
        tracing::warn!(%error, "a backup that nobody can fetch any more is still in the state directory");
    }
    service.unlock_with_pin_file().await;

    let settings = &service.settings;
    let listener = listen(&settings.listen)?;
    let presented = PresentedCertificate::new(&identity)?;
    let tls = member_tls(presented.clone(), identity.authority_der().clone(), clock.clone())?;
    let oldest = settings.kmip_tls_oldest;
    let kmip_tls = member_tls_from(presented.clone(), identity.authority_der().clone(), clock.clone(), oldest)?;
    let gate = Gate::new(settings.cluster, service.clone(), clock);
    let registrar = Arc::new(Registry::of(Arc::downgrade(&service)));
    let routes = routes::routes()
        .served_by(service.clone())
        .merge(renewal_routes(registrar.clone()))
        .merge(health_routes(service.clone()));
    let routes = metrics.requests.count(routes);
    // An agent that has heard of a newer epoch takes nothing from this node.
    let epoch = HeaderValue::from(settings.epoch);
    let routes = routes.layer(map_response(move |mut answer: Response| {
        answer.headers_mut().insert(EPOCH_HEADER, epoch.clone());
        std::future::ready(answer)
    }));
    let kmip_clients = async {
        let Some(address) = &settings.kmip_listen else { return std::future::pending().await };
        let listener = listen(address)?;
        kmip::serve(service.clone(), listener, kmip_tls.clone(), gate.clone(), shutdown.clone()).await;
        anyhow::Ok(())
    };
    // Open before anybody is told that the node is ready.
    let watched_at = settings.metrics_listen.as_deref().map(listen).transpose()?;
    let watchers = async {
        let Some(listener) = watched_at else { return std::future::pending().await };
        serve_metrics(service.clone(), listener, shutdown.clone()).await;
    };
    let counts = metrics.connections.of("members");
    let members =
        serve_members(listener, tls.clone(), gate.clone(), routes, ListenerLimits::default(), counts, shutdown.clone());
    let strangers = async {
        let Some(address) = &settings.enrol_listen else { return std::future::pending().await };
        let listener = listen(address)?;
        let routes = metrics.requests.count(enrolment_routes(registrar.clone(), settings.cluster));
        let (tls, counts) = (enrolment_tls(presented.clone())?, metrics.connections.of("strangers"));
        serve_enrolment(listener, tls, routes, ListenerLimits::enrolment(), counts, shutdown.clone()).await;
        anyhow::Ok(())
    };

    let (freshness, fresh) = watch::channel(Freshness::default());
    // A task of its own: to take in much at once must not keep anybody at the doors.
    let mut following = tokio::task::JoinSet::new();
    following.spawn({
        let (service, seed) = (service.clone(), u64::from(std::process::id()));
        let replica = replica.judged_by(service.clone());
        async move {
            let deliver = |delivery: Delivery<'_>| tokio::task::block_in_place(|| service.deliver(delivery));
            follow(&*ledger, replica, seed, &freshness, deliver).await
        }
    });
    let following = async {
        match following.join_next().await {
            Some(Ok(error)) => anyhow::Error::from(error).context("the replica cannot be used any more"),
            Some(Err(failed)) => anyhow::Error::from(failed).context("what follows the ledger failed"),
            None => std::future::pending().await,
        }
    };
    let here = listen_here(&directory.socket()).context("the socket of the state directory cannot be made")?;
    let own = directory.identity();
    let renewing = people::renew_own(&service, &*registrar, identity, &own, &presented);
    let locked = async {
        service.locking.notified().await;
        tokio::time::sleep(LOCKED_AFTER).await;
    };
    let unlocking_itself = async {
        service.unlock_by_itself().await;
        std::future::pending::<()>().await;
    };
    ready(&service);
    tokio::select! {
        () = members => Ok(Ended::Told),
        ended = strangers => ended.map(|()| Ended::Told),
        ended = kmip_clients => ended.map(|()| Ended::Told),
        () = watchers => Ok(Ended::Told),
        ended = serve_here(&service, here) => ended.map(|()| Ended::Told).context("the socket of the state directory cannot be served"),
        error = following => Err(error),
        () = listen_for_majority(&service, fresh.clone()) => Ok(Ended::Told),
        () = last_heard::note_last_heard(&service, noted) => Ok(Ended::Told),
        () = low_water::watch_low_water(&service) => Ok(Ended::Told),
        () = room::watch_room(&service) => Ok(Ended::Told),
        () = metrics::look_now_and_then(&service, fresh) => Ok(Ended::Told),
        () = tend(&service) => Ok(Ended::Told),
        () = people::keep_anchors(&service) => Ok(Ended::Told),
        () = renewing => Ok(Ended::Told),
        () = proof::prove_now_and_then(&service) => Ok(Ended::Told),
        () = doubts::note_doubts(&service) => Ok(Ended::Told),
        () = unlocking_itself => Ok(Ended::Told),
        () = locked => Ok(Ended::ToBeLocked),
    }
}

fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let refused = || format!("cannot listen at {address}: name another address in keyd.toml");
    let address: SocketAddr = address.parse().with_context(refused)?;
    capstan_service::listener::listen(address).with_context(refused)
}

/// Passes on when the majority was heard. It never ends: a ledger that is not followed any more says nothing more, and
/// its node goes on as if cut off.
async fn listen_for_majority(service: &Service, mut fresh: watch::Receiver<Freshness>) {
    let mut told = None;
    while fresh.changed().await.is_ok() {
        let current_at = fresh.borrow_and_update().current_at;
        if let Some(asked) = current_at.filter(|_| current_at != told) {
            service.heard(asked);
            told = current_at;
        }
    }
    std::future::pending::<()>().await;
}

/// Does what is due: journal, pool, marks of what is held, what removed nodes have left.
async fn tend(service: &Service) {
    loop {
        let Some(node) = service.open_node() else {
            let opened = service.opened.notified();
            if service.open_node().is_none() {
                opened.await;
            }
            continue;
        };
        if let Err(error) = node.take_journal_back().await {
            tracing::error!(%error, "the journal is not the one that the other nodes know: nothing is given out cut off");
        }
        let (mut removed, mut wiped, mut own) = (Removed::default(), Wiped::default(), autonomous::Keeping::default());
        loop {
            let mut pause = TEND_EVERY;
            removed.ask_whether_this_is_one(service, &node).await;
            if node.standing() == Standing::Current {
                match node.reconcile().await {
                    Ok(reconciled) if reconciled.taken > 0 || !reconciled.void.is_empty() => {
                        tracing::info!(?reconciled, "back in touch: the ledger has what was given out cut off");
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "what was given out cut off is not with the ledger yet"),
                }
                match node.tend().await {
                    Ok(tended) if tended.more => pause = TEND_MORE,
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "what is due was not done"),
                }
                if let Err(error) = service.take_root_over(&node) {
                    tracing::error!(%error, "the root key is under other holders, and this node's disk has it under the old ones");
                }
                own.settle(service, &node).await;
                match removed.settle(service, &node).await {
                    Ok(true) => pause = TEND_MORE,
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%error, "what removed nodes have left is not taken in yet"),
                }
                if let Err(error) = wiped.settle(service, &node).await {
                    tracing::warn!(%error, "what is left of journals here is not wiped, or the others do not hear of it yet");
                }
            }
            tokio::time::sleep(pause).await;
        }
    }
}
