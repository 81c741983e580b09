//! Enrolments and certificates, on the catalog.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_catalog::{Catalog, EnrolmentRow, PeerRow};
use capstan_director::Site;
use capstan_keys::api::{IssuedCertificate, PeerId, PeerKind, Problem};
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditFact, AuditOrigin, AuditOutcome};
use capstan_service::enrolment::{Enrolment, EnrolmentId, Registrar};
use capstan_service::identity::{Authority, AuthorityError, CERTIFICATE_LIFETIME_NS, Issued, Peer, random_serial};
use capstan_service::problem::Refusal;
use capstan_service::rate_limit::{AddressRateLimiter, Burst};
use futures_util::future::BoxFuture;

use super::CellError;
use super::authority::as_issued;
use super::error::refusal_of;
use super::known::KnownPeers;
use super::users::note;
use super::users::words::{StatusAnswer, StatusQuery};

/// Tries to enrol from one place at once, and how long each further one waits.
const TRIES_OF_ONE: Burst = Burst { at_once: 20, every: Duration::from_secs(5) };
/// Tries from all places.
const TRIES_OF_ALL: Burst = Burst { at_once: 100, every: Duration::from_millis(50) };
/// Renewals of one peer within an hour: a member asks once, and again if an answer was lost or it started anew.
const RENEWALS_MAX: usize = 3;
const HOUR_NS: i64 = 3600 * 1_000_000_000;
/// How often a change of an enrolment begins anew because another process changed it meanwhile.
const CHANGES_MAX: u32 = 8;

/// A peer gets its first certificate, and the next one.
const JOINS: AuditAction = AuditAction::named("join");
const RENEWS: AuditAction = AuditAction::named("renew-certificate");

/// What the control plane of a cell says while it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellNotice {
    /// A peer has its first certificate.
    Enrolled {
        /// Who.
        peer: PeerId,
        /// The address that it came from.
        from: SocketAddr,
    },
    /// Somebody tried to enrol and did not know the passphrase.
    NotProved {
        /// Who they said they were.
        peer: PeerId,
        /// The address that they came from.
        from: SocketAddr,
    },
    /// A person should look at something, which `status` shows as long as it lasts.
    Attention {
        /// What, and what to do, in words.
        reason: String,
    },
    /// Something does not work, and is tried again.
    Trouble {
        /// What, in words.
        reason: String,
    },
}

/// The process that serves a cell, as its control plane knows it.
pub trait CellHost: Send + Sync {
    /// Hears what the control plane says.
    fn say(&self, notice: CellNotice);

    /// What `status` says of the cell.
    ///
    /// # Errors
    /// Why it cannot be told, in words.
    fn status(&self, asked: &StatusQuery) -> Result<StatusAnswer, String>;
}

/// The registrar of a server that runs. Clones are the same one.
#[derive(Clone)]
pub(super) struct CellRegistrar {
    shared: Arc<Shared>,
}

struct Shared {
    site: Site,
    authority: Arc<Authority>,
    known: Arc<KnownPeers>,
    tries: Mutex<AddressRateLimiter>,
    host: Arc<dyn CellHost>,
}

/// What stands in the way, as the peer is told it.
type Stopped = Box<Problem>;

impl CellRegistrar {
    pub(super) fn new(site: Site, authority: Arc<Authority>, known: Arc<KnownPeers>, host: Arc<dyn CellHost>) -> Self {
        let tries = Mutex::new(AddressRateLimiter::new(TRIES_OF_ONE, TRIES_OF_ALL));
        Self { shared: Arc::new(Shared { site, authority, known, tries, host }) }
    }

    /// Does what waits for the catalog beside the threads that serve connections.
    async fn blocking<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Shared) -> Result<T, Stopped> + Send + 'static,
    ) -> Result<T, Problem> {
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || act(&shared)).await {
            Ok(done) => done.map_err(|problem| *problem),
            Err(_) => Err(*Refusal::failed().0),
        }
    }
}

impl Registrar for CellRegistrar {
    fn take_try<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<Enrolment, Problem>> {
        let peer = peer.clone();
        Box::pin(self.blocking(move |shared| shared.take_try(&peer, from)))
    }

    fn not_proved<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<(), Problem>> {
        if let AuditOrigin::Address(from) = from {
            self.shared.host.say(CellNotice::NotProved { peer: peer.clone(), from });
        }
        let peer = peer.clone();
        let why = AuditFact::from("the passphrase was not proved");
        let refused = AuditEntry::new(AuditActor::Nobody, from, JOINS).came_to(AuditOutcome::Refused { why });
        Box::pin(self.blocking(move |shared| shared.note(refused.of(peer.kind.as_str(), &peer.name))))
    }

    fn admit<'a>(
        &'a self,
        peer: &'a PeerId,
        proved: EnrolmentId,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>> {
        let (peer, request) = (peer.clone(), request.to_vec());
        Box::pin(self.blocking(move |shared| shared.admit(&peer, proved, &request, from)))
    }

    fn renew<'a>(
        &'a self,
        peer: &'a Peer,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>> {
        let (peer, request) = (peer.clone(), request.to_vec());
        Box::pin(self.blocking(move |shared| shared.renew(&peer, &request, from)))
    }
}

impl Shared {
    fn take_try(&self, peer: &PeerId, from: AuditOrigin) -> Result<Enrolment, Stopped> {
        // Before the catalog is asked: names that were never announced cost a stranger as much as others.
        self.wait(from)?;
        for _ in 0..CHANGES_MAX {
            let mut catalog = self.site.catalog();
            let (row, mut enrolment) = self.enrolment(&catalog, peer)?;
            // Beyond the tries that are counted a stranger writes nothing into the catalog.
            let is_counted = enrolment.tries_left > 0;
            enrolment.take_try(self.site.now_ns()).map_err(|_| no_enrolment(peer))?;
            if !is_counted || catalog.change_enrolment(&row, &enrolment.encode(), None).map_err(|e| self.failed(&e))? {
                return Ok(enrolment);
            }
        }
        Err(Refusal::failed().0)
    }

    fn admit(
        &self,
        peer: &PeerId,
        proved: EnrolmentId,
        request: &[u8],
        from: AuditOrigin,
    ) -> Result<IssuedCertificate, Stopped> {
        // The server may have been renamed since the enrolment was opened.
        if peer.kind == PeerKind::Client && peer.name.as_str() == self.site.client() {
            return Err(refusal_of(&CellError::ServersName { name: peer.name.to_string() }).0);
        }
        let catalog = self.site.catalog();
        let (row, mut enrolment) = self.enrolment(&catalog, peer)?;
        let now_ns = self.site.now_ns();
        enrolment.use_up(proved, now_ns).map_err(|refusal| Refusal::forbidden(refusal.to_string()).0)?;
        let issued = self.issue(peer, request, now_ns)?;
        let admitted = as_row(&issued, now_ns, from);
        drop(catalog);
        let joins = AuditEntry::new(AuditActor::of(peer), from, JOINS);
        self.note(joins.clone().came_to(AuditOutcome::Begun))?;
        let mut catalog = self.site.catalog();
        let changed = catalog.change_enrolment(&row, &enrolment.encode(), Some(&admitted));
        if !changed.map_err(|error| self.failed(&error))? {
            return Err(Refusal::conflict(
                "The enrolment was changed meanwhile: join again, with the newest passphrase.",
            )
            .0);
        }
        self.known.admit(&admitted);
        drop(catalog);
        // It has joined, and must have its certificate: the beginning is on record.
        let _ = note(&self.site, joins);
        if let AuditOrigin::Address(from) = from {
            self.tries.lock().unwrap_or_else(PoisonError::into_inner).succeeded(from.ip());
            self.host.say(CellNotice::Enrolled { peer: peer.clone(), from });
        }
        Ok(as_issued(&self.authority, issued.certificate))
    }

    fn renew(&self, peer: &Peer, request: &[u8], from: AuditOrigin) -> Result<IssuedCertificate, Stopped> {
        let now_ns = self.site.now_ns();
        let left_ns = peer.not_after_ns.saturating_sub(now_ns);
        if (CERTIFICATE_LIFETIME_NS / 2 + 1..=CERTIFICATE_LIFETIME_NS).contains(&left_ns) {
            return Err(Refusal::conflict("The certificate holds for long enough: it is not renewed yet.").0);
        }
        let catalog = self.site.catalog();
        let rows = catalog.peers_named(peer.id.kind.as_str(), peer.id.name.as_str());
        let rows = rows.map_err(|error| self.failed(&error))?;
        drop(catalog);
        let revoked = || Refusal::forbidden("The certificate that is to be renewed was revoked.").0;
        let old = rows.iter().find(|row| row.serial == peer.serial.0).ok_or_else(revoked)?;
        // One that seems to be of the future was made out by a clock that was ahead, and keeps nobody out.
        let new = now_ns.saturating_sub(HOUR_NS)..=now_ns;
        let is_new = |row: &&PeerRow| new.contains(&row.expires_ns.saturating_sub(CERTIFICATE_LIFETIME_NS));
        if rows.iter().filter(is_new).count() >= RENEWALS_MAX {
            let detail = "The certificate was renewed several times within the hour: the newest one holds. Use that \
                          one, or ask again in an hour.";
            return Err(Refusal::conflict(detail).0);
        }
        let issued = self.issue(&peer.id, request, now_ns)?;
        let renewed = as_row(&issued, old.enrolled_ns, from);
        self.note(AuditEntry::new(AuditActor::of(&peer.id), from, RENEWS))?;
        let mut catalog = self.site.catalog();
        if !catalog.renew_peer(peer.serial.0, &renewed).map_err(|error| self.failed(&error))? {
            return Err(revoked());
        }
        self.known.admit(&renewed);
        Ok(as_issued(&self.authority, issued.certificate))
    }

    /// Notes in the audit log; what cannot be noted is not done.
    fn note(&self, entry: AuditEntry) -> Result<(), Stopped> {
        note(&self.site, entry).map_err(|error| self.failed(&error))
    }

    fn issue(&self, peer: &PeerId, request: &[u8], now_ns: i64) -> Result<Issued, Stopped> {
        let serial = random_serial().map_err(|error| self.failed(&error))?;
        self.authority.issue(peer, &[], request, serial, now_ns).map_err(|error| match error {
            AuthorityError::Request(_) => Refusal::malformed(error.to_string()).0,
            other => self.failed(&other),
        })
    }

    /// The enrolment of a peer, and its row.
    fn enrolment(&self, catalog: &Catalog, peer: &PeerId) -> Result<(EnrolmentRow, Enrolment), Stopped> {
        let is_of_cell = matches!(peer.kind, PeerKind::Client | PeerKind::Mover | PeerKind::User);
        let row = if is_of_cell { catalog.enrolment(&peer.to_string()) } else { Ok(None) };
        let row = row.map_err(|error| self.failed(&error))?.ok_or_else(|| no_enrolment(peer))?;
        let enrolment = Enrolment::decode(&row.record).map_err(|error| self.failed(&error))?;
        Ok((row, enrolment))
    }

    /// Lets a try go on, unless there were too many from there.
    fn wait(&self, from: AuditOrigin) -> Result<(), Stopped> {
        let AuditOrigin::Address(address) = from else { return Ok(()) };
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(wait) = tries.next(address.ip(), Instant::now()) else { return Ok(()) };
        let seconds = wait.as_millis().div_ceil(1000);
        let detail = format!("Try again in {seconds} seconds. The passphrase stays valid until it expires.");
        Err(Box::new(Problem::new(429, "too-often", "Too many tries to join", detail)))
    }

    /// What happened is said here, and not to the peer.
    fn failed(&self, error: &dyn std::error::Error) -> Stopped {
        self.host.say(CellNotice::Trouble { reason: format!("a request of a client, mover or user failed: {error}") });
        Refusal::failed().0
    }
}

/// Whoever was never announced, was mistyped, is too late or comes a second time is told the same.
fn no_enrolment(peer: &PeerId) -> Stopped {
    let PeerId { kind, name } = peer;
    let group = if matches!(kind, PeerKind::Mover | PeerKind::User) { kind.as_str() } else { "client" };
    let detail = format!(
        "No enrolment of {kind} {name} is open: it was never opened, has expired or was used. Run `capstan {group} \
         enrol {name}` at the server, and join with the passphrase that it prints."
    );
    Refusal::forbidden(detail).0
}

fn as_row(issued: &Issued, enrolled_ns: i64, from: AuditOrigin) -> PeerRow {
    let PeerId { kind, name } = &issued.fields.peer;
    PeerRow {
        serial: issued.fields.serial.0,
        kind: kind.to_string(),
        name: name.to_string(),
        enrolled_ns,
        expires_ns: issued.fields.not_after_ns,
        revoked_ns: None,
        seen_ns: None,
        address: from.to_string(),
        version: String::new(),
    }
}
