//! The listeners of a cell, on a runtime of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use capstan_catalog::{ActiveRun, QueuedRun};
use capstan_client::CellOrder;
use capstan_director::Site;
use capstan_keys::api::{PeerId, PeerKind};
use capstan_keys::cluster::Identity;
use capstan_mover::{NetworkJob, NetworkJobs, RestoreWatch};
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditFact, AuditOrigin, AuditOutcome};
use capstan_service::clock::WallClock;
use capstan_service::enrolment::renewal_routes;
use capstan_service::identity::{Authority, Gate, PresentedCertificate, enrolment_tls, member_tls};
use capstan_service::listener::{ConnectionCounts, ListenerLimits, listen, serve_enrolment, serve_members};
use capstan_service::shutdown::{Shutdown, ShutdownTrigger};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::access::CellService;
use super::data::{DataListener, ServerDoor, open_job};
use super::enrolments::{client_of_servers_name, note_enrolment_address};
use super::files::FileTurns;
use super::known::{KnownPeers, LostPeer};
use super::movers::MoverConnections;
use super::registrar::{CellHost, CellRegistrar};
use super::relay::MoverRelay;
use super::restores::{RestoreJobs, Restores};
use super::routes::{member_routes, stranger_routes};
use super::tasks::Tasks;
use super::users::note;
use super::{CellAddresses, CellError, CellNotice, Hub, authority};
use crate::look::{note_peers, peers_there_twice};
use crate::restore_run::{Asker, RestoreRun};
use crate::serve::{TakesEntry, Worked};

/// What whoever comes with a certificate does.
const CONNECTS: AuditAction = AuditAction::named("connect");
/// How often it is looked who is let in: a peer that is revoked by another process is refused within this time.
const LOOKS: Duration = Duration::from_secs(3);
/// A request may take as long as a question for orders waits, and some time to be answered.
const REQUEST_MAX: Duration = Duration::from_secs(40);
/// Connections of one client, mover or user: a command has one or two.
const PEER_CONNECTIONS_MAX: usize = 64;
/// The longest request: a file of policies.
const BODY_BYTES_MAX: usize = 4 << 20;
/// How long requests that are under way are waited for at the end.
const GRACE: Duration = Duration::from_secs(3);
/// Peers that are noted as away or as there twice, at most: the note is written anew at each change.
const AWAY_NOTED_MAX: usize = 1_000;
/// How long certificates that have ended are kept for whoever lists clients or movers.
const ENDED_KEPT_NS: i64 = 30 * 24 * 3600 * 1_000_000_000;

/// A cell that is served, until this is dropped.
pub struct ServedCell {
    runtime: Option<Runtime>,
    trigger: ShutdownTrigger,
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
    hub: Hub,
    gate: Gate,
    addresses: CellAddresses,
    jobs: NetworkJobs,
    restores: Restores,
    /// Kept: they listen as long as this.
    _data: DataListener,
    _relay: Option<MoverRelay>,
}

/// What is looked after while the cell is served.
struct Shared {
    site: Site,
    authority: Arc<Authority>,
    known: Arc<KnownPeers>,
    hub: Hub,
    jobs: NetworkJobs,
    movers: MoverConnections,
    restores: Restores,
    tasks: Tasks,
    presented: Arc<PresentedCertificate>,
    host: Arc<dyn CellHost>,
}

impl ServedCell {
    /// Opens the listeners, and serves the peers of the cell from then on.
    ///
    /// # Errors
    /// [`CellError::Listen`] if a port is taken; otherwise the authority or the catalog cannot be used.
    pub fn start(
        site: &Site,
        addresses: &CellAddresses,
        movers: MoverConnections,
        host: Arc<dyn CellHost>,
    ) -> Result<Self, CellError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("cell")
            .enable_all()
            .build()
            .map_err(|source| CellError::Host { what: "start threads for the cell", source })?;
        let open = |setting, address| {
            let _on_runtime = runtime.enter();
            listen(address).map_err(|source| CellError::Listen { setting, address, source })
        };
        let (members, enrolment) = (open("listen", addresses.members)?, open("enrolment", addresses.enrolment)?);
        let listens = (address_of(&members)?, address_of(&enrolment)?);
        let now_ns = site.now_ns();
        let authority = Arc::new(authority::open_or_create(site.dir(), now_ns)?);
        let identity = authority::server_identity(&authority, now_ns)?;
        let presented = PresentedCertificate::new(&identity)?;
        // The port that the system gave, where the settings leave it to it.
        note_enrolment_address(site, listens.1)?;
        site.catalog().forget_ended_peers(now_ns.saturating_sub(ENDED_KEPT_NS))?;
        let (known, hub) = (Arc::new(KnownPeers::default()), Hub::new()?);
        let clock: WallClock = {
            let site = site.clone();
            Arc::new(move || site.now_ns())
        };
        let gate = Gate::new(authority.cluster(), known.clone(), clock.clone());
        let member_tls = member_tls(presented.clone(), authority.certificate().clone(), clock)?;
        let jobs = NetworkJobs::default();
        movers.ask_hub(&hub);
        let told = Arc::clone(&host);
        let door = ServerDoor {
            jobs: jobs.clone(),
            movers: movers.clone(),
            known: Arc::clone(&known),
            say: Arc::new(move |reason| told.say(CellNotice::Trouble { reason })),
        };
        let data = DataListener::start(addresses.data, member_tls.clone(), gate.clone(), Arc::new(door))?;
        // Whoever has drives of its own needs no way to those of a mover.
        let relays = site.config().all_libraries().any(|(_, library)| !library.mover.is_empty());
        let relay = relays.then(|| MoverRelay::start(site.dir(), movers.clone())).transpose()?;
        let addresses = CellAddresses { members: listens.0, enrolment: listens.1, data: data.address() };
        let registrar = CellRegistrar::new(site.clone(), authority.clone(), known.clone(), host.clone());
        let strangers = enrolment_tls(presented.clone())?;
        let (trigger, shutdown) = ShutdownTrigger::new();
        let restores = Restores::default();
        let shared = Arc::new(Shared {
            site: site.clone(),
            authority,
            known: known.clone(),
            hub: hub.clone(),
            jobs: jobs.clone(),
            movers,
            restores: restores.clone(),
            tasks: Tasks::default(),
            presented,
            host: host.clone(),
        });
        shared.look()?;
        shared.note_away()?;
        if let Some(reason) = client_of_servers_name(site)? {
            host.say(CellNotice::Attention { reason });
        }
        let service = Arc::new(CellService {
            hub: hub.clone(),
            site: site.clone(),
            known,
            gate: gate.clone(),
            shutdown: shutdown.clone(),
            data_port: addresses.data.port(),
            restores: restores.clone(),
            refusals: Arc::default(),
            files: FileTurns::default(),
            plans: FileTurns::default(),
            tasks: shared.tasks.clone(),
            host,
        });
        let routes = member_routes().served_by(service).merge(renewal_routes(Arc::new(registrar.clone())));
        let limits = ListenerLimits {
            request: REQUEST_MAX,
            body_bytes_max: BODY_BYTES_MAX,
            grace: GRACE,
            peer_connections_max: PEER_CONNECTIONS_MAX,
            ..ListenerLimits::default()
        };
        let of_strangers = ListenerLimits { grace: GRACE, ..ListenerLimits::enrolment() };
        let counts = ConnectionCounts::default;
        let mut tasks = JoinSet::new();
        let on = runtime.handle();
        tasks
            .spawn_on(serve_members(members, member_tls, gate.clone(), routes, limits, counts(), shutdown.clone()), on);
        let routes = stranger_routes(registrar, addresses.members.port());
        tasks.spawn_on(serve_enrolment(enrolment, strangers, routes, of_strangers, counts(), shutdown.clone()), on);
        tasks.spawn_on(look_after(shared.clone(), identity, shutdown), on);
        Ok(Self {
            runtime: Some(runtime),
            trigger,
            tasks,
            shared,
            hub,
            gate,
            addresses,
            jobs,
            restores,
            _data: data,
            _relay: relay,
        })
    }

    /// Orders to clients.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Where clients and movers are listened for.
    pub fn members_address(&self) -> SocketAddr {
        self.addresses.members
    }

    /// Where those that enrol are listened for.
    pub fn enrolment_address(&self) -> SocketAddr {
        self.addresses.enrolment
    }

    /// Where data is listened for.
    pub fn data_address(&self) -> SocketAddr {
        self.addresses.data
    }

    /// Opens a job of a client, and tells it to come with so many links.
    ///
    /// # Errors
    /// [`CellError::NotConnected`] if it does not wait for orders; otherwise the system has no random numbers.
    pub fn open_job(&self, client: &str, links: u16) -> Result<NetworkJob, CellError> {
        let (job, order) = open_job(&self.jobs, self.addresses.data.port(), client, links)?;
        self.hub.send(client, order)?;
        Ok(job)
    }

    /// Whether a restore that was typed at a client can begin: somebody waits for it there, or nobody will any more.
    pub fn may_begin(&self, run: &QueuedRun) -> bool {
        let restore = run.restore.as_deref().and_then(|text| RestoreRun::of(text).ok());
        restore.is_none_or(|restore| self.restores.may_begin(run.run, &restore.asker))
    }

    /// Carries out a restore whose turn has come, in this thread. `entered` takes the number of its entry in the
    /// history; the client gets what is read no faster than `rate` says.
    pub fn restore(
        &self,
        run: &ActiveRun,
        stop: &Arc<AtomicBool>,
        entered: &TakesEntry<'_>,
        watch: &RestoreWatch,
    ) -> Worked {
        self.restores.carry_out(&self.shared.site, run, (stop, watch), self, entered)
    }

    /// Who is let in, for a listener of members: to be asked on each connection, and now and then on one that is open.
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Looks at once who is let in, after a change by this process.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn look(&self) -> Result<(), CellError> {
        self.shared.look()
    }
}

impl RestoreJobs for ServedCell {
    fn open(&self, client: &str) -> Result<(NetworkJob, CellOrder), String> {
        open_job(&self.jobs, self.addresses.data.port(), client, 1).map_err(|error| error.to_string())
    }

    fn send(&self, client: &str, order: CellOrder) -> Result<(), String> {
        self.hub.send(client, order).map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for ServedCell {
    fn drop(&mut self) {
        self.trigger.begin();
        let Some(runtime) = self.runtime.take() else { return };
        let tasks = &mut self.tasks;
        runtime.block_on(async {
            let all_ended = async { while tasks.join_next().await.is_some() {} };
            // Whoever does not end by itself is cut off with the runtime.
            let _ = tokio::time::timeout(GRACE + Duration::from_secs(1), all_ended).await;
        });
        // Nobody is left to hear that it cannot be written.
        let _ = self.shared.write_seen(true);
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, CellError> {
    listener.local_addr().map_err(|source| CellError::Host { what: "tell the address of a listener", source })
}

impl Shared {
    /// Knows who is let in as the catalog says it now, and turns away who is not any more.
    fn look(&self) -> Result<(), CellError> {
        let lost = {
            // Locked over both: who is admitted meanwhile is known before or after.
            let catalog = self.site.catalog();
            self.known.know(&catalog.peers()?)
        };
        for LostPeer { peer, serial, has_another } in lost {
            // The other one may be of an enrolment since: what came with this one is not its mover's.
            self.movers.shut_out(&serial);
            if has_another {
                self.hub.wake(&peer);
                continue;
            }
            self.turn_away(&peer);
        }
        Ok(())
    }

    /// Ends what is open of a peer that is not let in any more.
    fn turn_away(&self, peer: &PeerId) {
        self.hub.turn_away(peer);
        match peer.kind {
            PeerKind::Client => {
                self.jobs.shut_out(peer.name.as_str());
                self.restores.stop_of(&self.site, &Asker::Client(peer.name.to_string()));
            }
            PeerKind::User => {
                self.restores.stop_of(&self.site, &Asker::User(peer.name.to_string()));
                self.tasks.stop_of(peer.name.as_str());
            }
            _ => {}
        }
    }

    /// Notes who came with a revoked certificate: a stolen one, or a machine that nobody has switched off.
    fn note_met(&self) -> Result<(), CellError> {
        let refused = || AuditOutcome::Refused { why: AuditFact::from("the certificate was revoked") };
        self.known.met_to_note().into_iter().try_for_each(|(peer, from)| {
            let entry = AuditEntry::new(AuditActor::of(&peer), AuditOrigin::Address(from), CONNECTS);
            note(&self.site, entry.came_to(refused()))
        })
    }

    fn write_seen(&self, is_end: bool) -> Result<(), CellError> {
        let seen = self.known.to_write(Instant::now(), is_end);
        if seen.is_empty() {
            return Ok(());
        }
        let written = self.site.catalog().peers_were_seen(&seen);
        if written.is_err() {
            self.known.was_not_written(seen);
        }
        Ok(written?)
    }

    /// Notes which peers do not wait for orders, and of which two processes do, for whoever shows the queue and the
    /// status. What is new of the latter is said.
    fn note_away(&self) -> Result<(), CellError> {
        let mut away = self.known.all();
        away.retain(|peer| peer.kind != PeerKind::User && !self.hub.has(peer));
        let names: Vec<String> = away.iter().map(PeerId::to_string).take(AWAY_NOTED_MAX).collect();
        let mut twice = self.hub.twice();
        twice.truncate(AWAY_NOTED_MAX);
        let before = peers_there_twice(&self.site)?;
        note_peers(&self.site, &names, &twice)?;
        let who = |line: &str| line.split(": ").next().map(str::to_owned);
        for reason in twice.into_iter().filter(|line| before.iter().all(|known| who(known) != who(line))) {
            self.host.say(CellNotice::Attention { reason });
        }
        Ok(())
    }

    /// Shows a new certificate once two thirds of the time of the old one are over; or if its time has not come: then
    /// the clock was ahead when it was made.
    fn renew(&self, identity: &Identity) -> Result<Option<Identity>, CellError> {
        let now_ns = self.site.now_ns();
        let certificate = identity.certificate();
        if (certificate.not_before_ns..certificate.renewal_due_ns()).contains(&now_ns) {
            return Ok(None);
        }
        let renewed = authority::server_identity(&self.authority, now_ns)?;
        self.presented.replace(&renewed)?;
        Ok(Some(renewed))
    }
}

/// Looks who is let in, notes who was seen, stops tasks that are given up, and renews the server's certificate, until
/// the end begins.
async fn look_after(shared: Arc<Shared>, mut identity: Identity, mut shutdown: Shutdown) {
    let mut trouble = String::new();
    loop {
        tokio::select! {
            () = shutdown.begun() => return,
            () = tokio::time::sleep(LOOKS) => {}
        }
        shared.tasks.stop_given_up(Instant::now());
        let at_work = shared.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let looked = at_work.look().and_then(|()| at_work.write_seen(false)).and_then(|()| at_work.note_away());
            let looked = looked.and(at_work.note_met());
            match (looked, at_work.renew(&identity)) {
                (looked, Ok(renewed)) => (looked, renewed.unwrap_or(identity)),
                (looked, Err(error)) => (looked.and(Err(error)), identity),
            }
        });
        let Ok((looked, after)) = looked.await else { return };
        identity = after;
        let reason = looked.err().map(|error| error.to_string()).unwrap_or_default();
        if !reason.is_empty() && reason != trouble {
            shared.host.say(CellNotice::Trouble { reason: format!("{reason}; the server tries again") });
        }
        trouble = reason;
    }
}
