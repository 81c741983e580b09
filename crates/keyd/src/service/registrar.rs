//! Enrolments and certificates, on the ledger.
//!
//! ```text
//!  authority                     the cluster's authority: certificate, and key wrapped
//!  enrolment/KIND/NAME           an enrolment that is open, or was used
//!  certificate/SERIAL            whose certificate that is, and until when
//!  revoked/SERIAL                it is not let in any more
//! ```
//! All of it is sealed under the cluster key; a node that is locked enrols nobody.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use capstan_keys::api::{Base64, IssuedCertificate, PeerId, PeerKind, Problem, Serial};
use capstan_keys::cluster::PeerCertificate;
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditFact, AuditOrigin, AuditOutcome};
use capstan_service::enrolment::{Enrolment, EnrolmentId, Registrar};
use capstan_service::identity::Peer;
use capstan_service::identity::{
    Authority, AuthorityError, AuthorityKey, CERTIFICATE_LIFETIME_NS, Issued, random_serial,
};
use capstan_service::problem::Refusal;
use capstan_service::rate_limit::{AddressRateLimiter, Burst, RateLimiter};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{REFUSALS_NOTED_MAX, Service, who};
use crate::authority::{CertificateSerial, User, UserStatus};
use crate::authority_record::AuthorityRecord;
use crate::desk::Decided;
use crate::node::{Node, NodeError};
use crate::path::Path;
use crate::record::KmaRecord;
use crate::root::ClusterKeys;
use crate::state::View;

/// The record of a certificate.
#[derive(Serialize, Deserialize)]
pub(super) struct CertificateRecord {
    pub(super) peer: PeerId,
    pub(super) not_after_ns: i64,
    /// The hosts that it names: of a node alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) hosts: Vec<String>,
}

impl CertificateRecord {
    pub(super) fn new(issued: &Issued, hosts: &[String]) -> Self {
        let PeerCertificate { peer, not_after_ns, .. } = &issued.fields;
        Self { peer: peer.clone(), not_after_ns: *not_after_ns, hosts: hosts.to_vec() }
    }
}

/// Where a node was moved to, if its certificate names other hosts: nobody who looks for it there takes it for the one
/// it is.
pub(super) fn moved_from(view: View<'_>, peer: &PeerId, certificate: &Serial) -> Option<String> {
    let kma = view.ledger().kmas().get(&peer.name).filter(|_| peer.kind == PeerKind::Kma)?;
    let CertificateRecord { hosts, .. } = serde_json::from_slice(record(view, &certificate_path(certificate))?).ok()?;
    host_of(&kma.address).filter(|host| !hosts.is_empty() && !hosts.contains(host))
}

pub(super) fn authority_path() -> Path {
    Path::Other("authority".to_owned())
}

/// The private key of the cluster's authority, for a core security backup.
pub(super) fn authority_key(view: View<'_>, keys: &ClusterKeys) -> Option<AuthorityKey> {
    let known: AuthorityRecord = serde_json::from_slice(record(view, &authority_path())?).ok()?;
    known.key(keys).ok()
}

pub(super) fn enrolment_path(PeerId { kind, name }: &PeerId) -> Path {
    Path::Other(format!("enrolment/{kind}/{name}"))
}

pub(super) fn certificate_path(serial: &Serial) -> Path {
    Path::Other(format!("certificate/{serial}"))
}

pub(super) fn revoked_path(serial: &Serial) -> String {
    format!("revoked/{serial}")
}

/// Tries from one place at once that come to nothing, and how long each further one waits: a whole rack may enrol from
/// behind one address.
const TRIES_OF_ONE: Burst = Burst { at_once: 20, every: Duration::from_secs(5) };
/// Tries from all places.
const TRIES_OF_ALL: Burst = Burst { at_once: 100, every: Duration::from_millis(50) };

/// The registrar of a node that runs.
pub(super) struct Registry {
    service: Weak<Service>,
    /// Tries of enrolments that were refused, of all names together.
    refused: Mutex<RateLimiter>,
    /// How often they are tried, and from where.
    tries: Mutex<AddressRateLimiter>,
}

/// What stands in the way, as the peer is told it.
struct Stopped(Box<Problem>);

impl From<NodeError> for Stopped {
    fn from(error: NodeError) -> Self {
        Self(Refusal::from(error).0)
    }
}

impl From<AuthorityError> for Stopped {
    fn from(error: AuthorityError) -> Self {
        Self(match error {
            AuthorityError::Request(_) => Refusal::malformed(error.to_string()).0,
            other => {
                tracing::error!(error = %other, "no certificate was made out");
                Refusal::failed().0
            }
        })
    }
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.0)
    }
}

fn record<'a>(view: View<'a>, path: &Path) -> Option<&'a [u8]> {
    let path = path.to_string();
    view.ledger().other(&path)
}

fn authority(view: View<'_>, keys: &ClusterKeys) -> Result<Authority, Stopped> {
    let broken = || Stopped(Refusal::failed().0);
    let bytes = record(view, &authority_path()).ok_or_else(broken)?;
    let known: AuthorityRecord = serde_json::from_slice(bytes).map_err(|_| broken())?;
    Ok(known.open(keys)?)
}

fn enrolment(view: View<'_>, peer: &PeerId) -> Result<Enrolment, Stopped> {
    // Who was never announced and who was mistyped are told the same.
    let unknown = || {
        Problem::new(
            403,
            "not-proved",
            "The enrolment came to nothing",
            "There is no such enrolment, or it is over: ask for another (`keyd agents add`, `keyd users enrol`, `keyd kmip-clients add`); for a node, see that the quorum has approved it.",
        )
    };
    let bytes = record(view, &enrolment_path(peer)).ok_or_else(|| Stopped(Box::new(unknown())))?;
    Enrolment::decode(bytes).map_err(|_| Stopped(Refusal::failed().0))
}

impl Registry {
    pub(super) fn of(service: Weak<Service>) -> Self {
        Self {
            service,
            refused: Mutex::new(RateLimiter::new(REFUSALS_NOTED_MAX)),
            tries: Mutex::new(AddressRateLimiter::new(TRIES_OF_ONE, TRIES_OF_ALL)),
        }
    }

    /// How long whoever comes from there is to wait before they try again.
    fn wait(&self, from: AuditOrigin) -> Option<Duration> {
        let AuditOrigin::Address(address) = from else { return None };
        self.tries.lock().unwrap_or_else(PoisonError::into_inner).next(address.ip(), Instant::now()).err()
    }

    /// Notes what a stranger may do as often as he likes.
    async fn note_sparingly(&self, service: &Service, entry: AuditEntry) -> Result<(), Problem> {
        let noted = self.refused.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now());
        let entry = match noted {
            None => return Ok(()),
            Some(0) => entry,
            Some(left_out) => entry.with("left-out", left_out),
        };
        service.note(entry).await.map_err(|refusal| *refusal.0)
    }

    fn node(&self) -> Result<(Arc<Service>, Arc<Node>), Refusal> {
        let service = self.service.upgrade().ok_or_else(Refusal::failed)?;
        let node = service.node()?;
        Ok((service, node))
    }
}

const ENROLMENT_TRIED: AuditAction = AuditAction::named("enrolment-tried");
const ENROLLED: AuditAction = AuditAction::named("enrolled");
const RENEWED: AuditAction = AuditAction::named("certificate-renewed");
const ENROLMENT_REFUSED: AuditAction = AuditAction::named("enrolment-refused");

impl Registrar for Registry {
    fn take_try<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<Enrolment, Problem>> {
        Box::pin(async move {
            let (service, node) = self.node().map_err(|refusal| *refusal.0)?;
            let (mut taken, mut counted) = (None, false);
            let announced = node.view(|view| record(view, &enrolment_path(peer)).is_some());
            let waits = if announced { self.wait(from) } else { None };
            let result = node
                .change(|view| {
                    let mut enrolment = enrolment(view, peer)?;
                    if let Some(wait) = waits {
                        return Err(too_often(wait).into());
                    }
                    counted = enrolment.tries_left > 0;
                    enrolment.take_try(node.now_ns()).map_err(|refusal| {
                        tracing::warn!(%peer, %refusal, "an enrolment is refused");
                        Refusal::forbidden("There is no such enrolment, or it is over: ask for another (`keyd agents add`, `keyd users enrol`, `keyd kmip-clients add`); for a node, see that the quorum has approved it.")
                    })?;
                    // Beyond those that are counted a stranger writes nothing into the ledger.
                    let put = counted.then(|| (enrolment_path(peer), enrolment.encode().to_vec()));
                    taken = Some(enrolment);
                    Ok::<_, Stopped>(Decided::records(put.into_iter().collect(), Vec::new()))
                })
                .await;
            if let Err(Stopped(problem)) = result {
                // Names that were never announced cost whoever invents them nothing, and are not noted.
                let announced = node.view(|view| record(view, &enrolment_path(peer)).is_some());
                if !announced {
                    return Err(*problem);
                }
                let why = match problem.status {
                    403 => "it was used, or is over",
                    429 => "it was tried too often from there",
                    _ => "the try could not be put on record",
                };
                self.note_sparingly(&service, refused(peer, from, AuditFact::from(why))).await?;
                return Err(*problem);
            }
            // Before the proof is looked at: a node that stops meanwhile has it on record.
            let tried = AuditEntry::new(AuditActor::Nobody, from, ENROLMENT_TRIED).of(peer.kind.as_str(), &peer.name);
            let tried = tried.came_to(AuditOutcome::Begun);
            match counted {
                true => service.note(tried).await.map_err(|refusal| *refusal.0)?,
                false => self.note_sparingly(&service, tried).await?,
            }
            taken.ok_or_else(|| *Refusal::failed().0)
        })
    }

    fn not_proved<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<(), Problem>> {
        Box::pin(async move {
            let (service, node) = self.node().map_err(|refusal| *refusal.0)?;
            let noted = refused(peer, from, AuditFact::from("the passphrase was not proved"));
            // Whoever goes on trying beyond those that are counted does not fill the log.
            match node.view(|view| enrolment(view, peer).is_ok_and(|enrolment| enrolment.tries_left > 0)) {
                true => service.note(noted).await.map_err(|refusal| *refusal.0),
                false => self.note_sparingly(&service, noted).await,
            }
        })
    }

    fn admit<'a>(
        &'a self,
        peer: &'a PeerId,
        proved: EnrolmentId,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>> {
        Box::pin(async move {
            let (service, node) = self.node().map_err(|refusal| *refusal.0)?;
            let mut answer = None;
            let serial = random_serial().map_err(|_| *Refusal::failed().0)?;
            let result = node
                .change(|view| {
                    let now_ns = node.now_ns();
                    if answer.is_some() && record(view, &certificate_path(&serial)).is_some() {
                        // It was committed, and its answer was lost.
                        return Ok(Decided::records(Vec::new(), Vec::new()));
                    }
                    let mut enrolment = enrolment(view, peer)?;
                    enrolment.use_up(proved, now_ns).map_err(|refusal| Refusal::forbidden(refusal.to_string()))?;
                    let authority = authority(view, node.keys())?;
                    let issued = authority.issue(peer, &enrolment.hosts, request, serial, now_ns)?;
                    let mut puts = vec![(enrolment_path(peer), enrolment.encode().to_vec())];
                    puts.extend(of_certificate(view, &issued, &enrolment.hosts, None)?);
                    if let (PeerKind::Kma, Some(kma)) = (peer.kind, &enrolment_note(view, peer)) {
                        let kma = serde_json::to_vec(kma).map_err(|_| Refusal::failed())?;
                        puts.push((Path::Kma(peer.name.clone()), kma));
                    }
                    answer = Some(certificate(&authority, issued));
                    Ok::<_, Stopped>(Decided::records(puts, Vec::new()))
                })
                .await;
            if let Err(Stopped(problem)) = result {
                // Whoever lost a race with the same passphrase is the first sign that it was stolen.
                let why = AuditFact::from("the passphrase was proved, and no certificate was made out");
                service.note(refused(peer, from, why)).await.map_err(|refusal| *refusal.0)?;
                return Err(*problem);
            }
            if let AuditOrigin::Address(address) = from {
                self.tries.lock().unwrap_or_else(PoisonError::into_inner).succeeded(address.ip());
            }
            let noted = AuditEntry::new(who(peer), from, ENROLLED).of("certificate", &CertificateSerial::from(serial));
            service.note(noted).await.map_err(|refusal| *refusal.0)?;
            answer.ok_or_else(|| *Refusal::failed().0)
        })
    }

    fn renew<'a>(
        &'a self,
        peer: &'a Peer,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>> {
        Box::pin(async move {
            let (service, node) = self.node().map_err(|refusal| *refusal.0)?;
            let mut answer = None;
            let serial = random_serial().map_err(|_| *Refusal::failed().0)?;
            let result = node
                .change(|view| {
                    if answer.is_some() && record(view, &certificate_path(&serial)).is_some() {
                        return Ok(Decided::records(Vec::new(), Vec::new()));
                    }
                    let old = revoked_path(&peer.serial);
                    if view.ledger().other(&old).is_some() {
                        return Err(Refusal::forbidden("The certificate that is to be renewed was revoked.").into());
                    }
                    let left_ns = peer.not_after_ns.saturating_sub(node.now_ns());
                    // What holds for longer than any does was made out by a clock that was ahead, and is taken by
                    // nobody.
                    let holds_long = (CERTIFICATE_LIFETIME_NS / 2 + 1..=CERTIFICATE_LIFETIME_NS).contains(&left_ns);
                    if holds_long && moved_from(view, &peer.id, &peer.serial).is_none() {
                        return Err(
                            Refusal::conflict("The certificate holds for long enough: it is not renewed yet.").into()
                        );
                    }
                    let authority = authority(view, node.keys())?;
                    let kma = view.ledger().kmas().get(&peer.id.name).filter(|_| peer.id.kind == PeerKind::Kma);
                    let hosts: Vec<_> = kma.and_then(|kma| host_of(&kma.address)).into_iter().collect();
                    let issued = authority.issue(&peer.id, &hosts, request, serial, node.now_ns())?;
                    let mut decided =
                        Decided::records(of_certificate(view, &issued, &hosts, Some(&peer.serial))?, Vec::new());
                    // Whoever revokes this peer's certificates meanwhile either finds the new one or stops this.
                    if let Some(known) = record(view, &certificate_path(&peer.serial)) {
                        decided.puts.push((certificate_path(&peer.serial), known.to_vec()));
                    }
                    decided.rests_on.push(Path::Other(old));
                    answer = Some(certificate(&authority, issued));
                    Ok::<_, Stopped>(decided)
                })
                .await;
            result.map_err(|Stopped(problem)| *problem)?;
            let noted =
                AuditEntry::new(who(&peer.id), from, RENEWED).of("certificate", &CertificateSerial::from(serial));
            service.note(noted).await.map_err(|refusal| *refusal.0)?;
            answer.ok_or_else(|| *Refusal::failed().0)
        })
    }
}

fn too_often(wait: Duration) -> Refusal {
    let seconds = wait.as_millis().div_ceil(1000);
    let detail = format!(
        "There were too many tries to enrol, from your address or from all addresses: try again in {seconds} seconds. \
         Nothing is locked, and the passphrase stays valid until it expires."
    );
    Problem::new(429, "too-often", "Too many tries", detail).into()
}

/// Somebody came with the name of a peer, who it was nobody knows.
fn refused(peer: &PeerId, from: AuditOrigin, why: AuditFact) -> AuditEntry {
    let entry = AuditEntry::new(AuditActor::Nobody, from, ENROLMENT_REFUSED);
    entry.of(peer.kind.as_str(), &peer.name).came_to(AuditOutcome::Refused { why })
}

/// The records of a certificate that is made out: itself, and for a person that it is theirs, beside the one it renews.
pub(super) fn of_certificate(
    view: View<'_>,
    issued: &Issued,
    hosts: &[String],
    renewed: Option<&Serial>,
) -> Result<Vec<(Path, Vec<u8>)>, Refusal> {
    let PeerCertificate { serial, peer, .. } = &issued.fields;
    let certificate = CertificateRecord::new(issued, hosts);
    let bytes = serde_json::to_vec(&certificate).map_err(|_| Refusal::failed())?;
    let mut puts = vec![(certificate_path(serial), bytes)];
    if peer.kind == PeerKind::User {
        let path = Path::Other(format!("user/{}", peer.name));
        let bytes =
            record(view, &path).ok_or_else(|| Refusal::forbidden(format!("There is no user {}.", peer.name)))?;
        let mut user = User::decode(bytes).map_err(|_| Refusal::failed())?;
        if user.standing != UserStatus::Enabled {
            return Err(Refusal::forbidden(format!("User {} is disabled.", peer.name)));
        }
        if let Some(renewed) = renewed.map(|renewed| CertificateSerial::from(*renewed)) {
            if !user.certificates.contains(&renewed) {
                return Err(Refusal::forbidden("The certificate that is to be renewed is no longer this user's."));
            }
            // It holds beside the new one until its end or until that one is renewed: the answer may be lost, or a
            // clock make the new one useless, and whoever had none then would need the quorum, which may be themselves.
            user.certificates.retain(|serial| *serial == renewed);
        }
        user.certificates.insert(CertificateSerial::from(*serial));
        user.check().map_err(|error| Refusal::conflict(error.to_string()))?;
        puts.push((path, user.encode()));
    }
    Ok(puts)
}

fn certificate(authority: &Authority, issued: Issued) -> IssuedCertificate {
    IssuedCertificate { certificate: Base64(issued.certificate), authority: Base64(authority.certificate().to_vec()) }
}

/// What was said of a node when its enrolment was opened: it becomes one with its certificate.
fn enrolment_note(view: View<'_>, peer: &PeerId) -> Option<KmaRecord> {
    serde_json::from_slice(record(view, &joining_path(peer))?).ok()
}

/// Where a node that is to join is described: `joining/NAME`.
pub(super) fn joining_path(peer: &PeerId) -> Path {
    Path::Other(format!("joining/{}", peer.name))
}

/// The host of `host:port`.
pub(super) fn host_of(address: &str) -> Option<String> {
    let (host, _) = address.rsplit_once(':')?;
    Some(host.trim_matches(['[', ']']).to_owned())
}
