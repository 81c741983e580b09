//! A cluster's authority and its nodes, on loopback and in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use capstan_keys::api::{
    Base64, ClusterId, IssuedCertificate, KmaMember, KmaState, PeerId, Problem, RequestId, Serial,
};
use capstan_keys::cluster::{CertificateKey, EnrolmentPassphrase, Identity};
use capstan_service::audit::AuditOrigin;
use capstan_service::clock::{WallClock, system_clock};
use capstan_service::enrolment::{Enrolment, EnrolmentId, Registrar, enrolment_routes, renewal_routes};
use capstan_service::health::{Readiness, health_routes};
use capstan_service::identity::{Authority, random_serial};
use capstan_service::identity::{Gate, Peer, PresentedCertificate, Revocations, enrolment_tls, member_tls};
use capstan_service::listener::{ConnectionCounts, ListenerLimits, listen, serve_enrolment, serve_members};
use capstan_service::shutdown::{Shutdown, ShutdownTrigger};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;

pub(crate) const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// The machine's clock, moved.
#[derive(Default)]
pub(crate) struct MovedClock(AtomicI64);

impl MovedClock {
    pub(crate) fn advance(&self, by_ns: i64) {
        self.0.fetch_add(by_ns, Ordering::Relaxed);
    }
}

impl MovedClock {
    pub(crate) fn now_ns(&self) -> i64 {
        system_clock()() + self.0.load(Ordering::Relaxed)
    }
}

/// What the cluster's state holds for enrolment: records as bytes, as the ledger would keep them.
pub(crate) struct Site {
    pub(crate) authority: Authority,
    pub(crate) cluster: ClusterId,
    pub(crate) clock: Arc<MovedClock>,
    enrolments: Mutex<BTreeMap<PeerId, Vec<u8>>>,
    revoked: Mutex<BTreeSet<Serial>>,
    /// Tries of enrolments, and where they came from.
    pub(crate) tries: Mutex<Vec<(PeerId, String)>>,
    /// What nodes say to `GET /v1/kmas`.
    pub(crate) members: Mutex<Vec<KmaMember>>,
    /// Ids of the requests that arrived at `/v1/once`.
    pub(crate) requests: Mutex<Vec<RequestId>>,
}

impl Site {
    pub(crate) fn new() -> Arc<Self> {
        let cluster = ClusterId(random_serial().unwrap().0);
        let (authority, _) = Authority::create(cluster, system_clock()()).unwrap();
        let (clock, enrolments, revoked) = (Arc::default(), Mutex::default(), Mutex::default());
        let (members, requests, tries) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { authority, cluster, clock, enrolments, revoked, members, requests, tries })
    }

    pub(crate) fn identity(&self, peer: &str) -> Identity {
        let key = CertificateKey::generate().unwrap();
        let issued = self.issue(&peer.parse().unwrap(), key.request()).unwrap();
        key.certified(&issued).unwrap()
    }

    pub(crate) fn open_enrolment(&self, peer: &str) -> EnrolmentPassphrase {
        let peer: PeerId = peer.parse().unwrap();
        let passphrase = EnrolmentPassphrase::random().unwrap();
        let expires_ns = self.clock.now_ns() + DAY_NS;
        let enrolment = Enrolment::open(peer.clone(), Vec::new(), &passphrase, expires_ns).unwrap();
        self.enrolments.lock().unwrap().insert(peer, enrolment.encode().to_vec());
        passphrase
    }

    pub(crate) fn revoke(&self, identity: &Identity) {
        self.revoked.lock().unwrap().insert(identity.certificate().serial);
    }

    fn issue(&self, peer: &PeerId, request: &[u8]) -> Result<IssuedCertificate, Problem> {
        let hosts = ["localhost", "127.0.0.1"].map(str::to_owned);
        let serial = random_serial().unwrap();
        let issued = self.authority.issue(peer, &hosts, request, serial, self.clock.now_ns());
        let issued = issued.map_err(|error| Problem::new(400, "malformed", "No", error.to_string()))?;
        let authority = Base64(self.authority.certificate().to_vec());
        Ok(IssuedCertificate { certificate: Base64(issued.certificate), authority })
    }

    fn change(
        &self,
        peer: &PeerId,
        change: impl FnOnce(&mut Enrolment) -> Result<(), Problem>,
    ) -> Result<Enrolment, Problem> {
        let none = || Problem::new(403, "no-enrolment", "There is no enrolment", "Ask for another.");
        let mut enrolments = self.enrolments.lock().unwrap();
        let record = enrolments.get_mut(peer).ok_or_else(none)?;
        let mut enrolment = Enrolment::decode(record).unwrap();
        change(&mut enrolment)?;
        *record = enrolment.encode().to_vec();
        Ok(enrolment)
    }
}

fn over(error: capstan_service::enrolment::EnrolmentRefusal) -> Problem {
    Problem::new(403, "no-enrolment", "There is no enrolment", error.to_string())
}

impl Registrar for Site {
    fn take_try<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<Enrolment, Problem>> {
        self.tries.lock().unwrap().push((peer.clone(), from.to_string()));
        async { self.change(peer, |enrolment| enrolment.take_try(self.clock.now_ns()).map_err(over)) }.boxed()
    }

    fn not_proved<'a>(&'a self, _: &'a PeerId, _: AuditOrigin) -> BoxFuture<'a, Result<(), Problem>> {
        async { Ok(()) }.boxed()
    }

    fn admit<'a>(
        &'a self,
        peer: &'a PeerId,
        begun: EnrolmentId,
        request: &'a [u8],
        _: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>> {
        async move {
            self.change(peer, |enrolment| enrolment.use_up(begun, self.clock.now_ns()).map_err(over))?;
            self.issue(peer, request)
        }
        .boxed()
    }

    fn renew<'a>(
        &'a self,
        peer: &'a Peer,
        request: &'a [u8],
        _: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>> {
        async { self.issue(&peer.id, request) }.boxed()
    }
}

impl Revocations for Site {
    fn is_revoked(&self, serial: &Serial) -> bool {
        self.revoked.lock().unwrap().contains(serial)
    }

    fn was_met(&self, _: &PeerId, _: SocketAddr) {}
}

struct Ready;

impl Readiness for Ready {
    fn ready(&self) -> Result<(), Problem> {
        Ok(())
    }
}

/// A node: its listeners, on a runtime of its own.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) strangers: SocketAddr,
    frozen: Arc<AtomicBool>,
    trigger: Option<ShutdownTrigger>,
    runtime: Option<Runtime>,
}

impl Node {
    pub(crate) fn start(site: &Arc<Site>, name: &str, limits: ListenerLimits) -> Self {
        Self::show(site, &site.identity(&format!("kma/{name}")), limits)
    }

    /// A node that shows `identity`, whosever it is.
    pub(crate) fn show(site: &Arc<Site>, identity: &Identity, limits: ListenerLimits) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let presented = PresentedCertificate::new(identity).unwrap();
        let (trigger, shutdown) = ShutdownTrigger::new();
        let bind = || runtime.block_on(async { listen("127.0.0.1:0".parse().unwrap()) }).unwrap();
        let (members, strangers) = (bind(), bind());
        let addresses = (members.local_addr().unwrap(), strangers.local_addr().unwrap());
        let tls = member_tls(presented.clone(), site.authority.certificate().clone(), clock(site)).unwrap();
        let routes = routes(site);
        runtime.spawn(serve_members(
            members,
            tls,
            gate(site),
            routes,
            limits,
            ConnectionCounts::default(),
            shutdown.clone(),
        ));
        let enrolment = enrolment_routes(site.clone());
        let tls = enrolment_tls(presented).unwrap();
        runtime.spawn(serve_enrolment(
            strangers,
            tls,
            enrolment,
            ListenerLimits::enrolment(),
            ConnectionCounts::default(),
            shutdown,
        ));
        let (frozen, trigger, runtime) = (Arc::default(), Some(trigger), Some(runtime));
        Self { address: addresses.0, strangers: addresses.1, frozen, trigger, runtime }
    }

    /// Stops it as SIGSTOP would: the kernel takes connections and bytes, and nobody looks at them.
    pub(crate) fn freeze(&self) {
        let (frozen, (stopped, is_stopped)) = (self.frozen.clone(), std::sync::mpsc::channel());
        frozen.store(true, Ordering::SeqCst);
        self.runtime.as_ref().unwrap().spawn(async move {
            stopped.send(()).unwrap();
            while frozen.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        is_stopped.recv().unwrap();
    }

    pub(crate) fn thaw(&self) {
        self.frozen.store(false, Ordering::SeqCst);
    }

    pub(crate) fn trigger(&mut self) -> ShutdownTrigger {
        self.trigger.take().unwrap()
    }

    pub(crate) fn member(&self, name: &str, site: &str) -> KmaMember {
        let (name, site, address) = (name.to_owned(), site.to_owned(), self.address.to_string());
        KmaMember { name, site, address, state: KmaState::Serving }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.thaw();
        self.runtime.take().unwrap().shutdown_background();
    }
}

pub(crate) fn gate(site: &Arc<Site>) -> Gate {
    Gate::new(site.cluster, site.clone(), clock(site))
}

pub(crate) fn clock(site: &Arc<Site>) -> WallClock {
    let clock = site.clock.clone();
    Arc::new(move || clock.now_ns())
}

fn routes(site: &Arc<Site>) -> Router {
    let (members, once) = (site.clone(), site.clone());
    let hang = async || tokio::time::sleep(Duration::from_secs(3600)).await;
    Router::new()
        .route("/v1/kmas", get(async move || Json(members.members.lock().unwrap().clone())))
        .route("/v1/whoami", get(async |Extension(peer): Extension<Peer>| Json(peer.id)))
        .route("/v1/echo", post(async |body: String| body))
        .route("/v1/hang", post(hang).get(hang))
        .route("/v1/large", get(async || vec![b' '; 32 << 20]))
        .route(
            "/v1/once",
            post(async move |Extension(id): Extension<RequestId>| {
                once.requests.lock().unwrap().push(id);
                Json(id)
            }),
        )
        .merge(renewal_routes(site.clone()))
        .merge(health_routes(Arc::new(Ready)))
}

/// A handler of streams that says who is there and then says again what it is told, until the end.
pub(crate) async fn echo(visit: capstan_service::listener::PeerConnection, _: Shutdown) {
    let (mut reader, mut writer) = tokio::io::split(visit.stream);
    let greeting = format!("you are {}\n", visit.peer.id);
    tokio::io::AsyncWriteExt::write_all(&mut writer, greeting.as_bytes()).await.unwrap();
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
}
