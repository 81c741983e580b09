//! Requests to whichever node answers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::identity::{CertificateKey, Identity, IdentityError};
use super::known_nodes::KnownNodes;
use super::roster::{Candidate, Preference, Roster};
use super::transport::ANSWER_LEN_MAX;
use super::{ClusterError, Gone, Silence, tls, transport};
use crate::api::{
    Base64, ClusterId, EPOCH_HEADER, IssuedCertificate, KmaMember, KmaState, Problem, REQUEST_ID_HEADER,
    RenewCertificate, RequestId,
};

/// The kind of a node's answer that this peer's certificate has ended.
const TURNED_AWAY: &str = "turned-away";
/// How long nodes are waited for: first so briefly that fail-over takes less than a second, then as long as a slow one
/// may need.
const ROUNDS: [Patience; 2] = [
    Patience { connect: Duration::from_millis(300), answer: Duration::from_millis(600) },
    Patience { connect: Duration::from_secs(2), answer: Duration::from_secs(10) },
];
/// How often the list of members is asked for anew.
const MEMBERS_AGE_MAX: Duration = Duration::from_secs(60);

/// How long a node is waited for.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
}

/// Whether a request may be sent again when its answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It may: it changes nothing, or the cluster knows the request by its id and does it once.
    SameRequest,
    /// It must not: a lost answer is [`ClusterError::Unanswered`].
    Never,
}

/// A client of the cluster. Clones share its connections and what it knows of the nodes; it may be used by many
/// threads.
#[derive(Clone)]
pub struct ClusterClient {
    shared: Arc<Shared>,
}

struct Shared {
    agent: RwLock<Agent>,
    cluster: ClusterId,
    renewal_due_ns: Mutex<i64>,
    roster: Mutex<Roster>,
    learnt: Mutex<Instant>,
    looking: AtomicBool,
    /// Where the list of members is kept for the next start, where somebody wants that.
    known: Option<KnownNodes>,
    /// The newest epoch that a node has told of.
    epoch: AtomicU32,
}

impl ClusterClient {
    /// Opens the cluster at whichever of `addresses` (host and port) answers, and learns its members. Nodes of `site`
    /// are preferred; an empty one prefers none.
    ///
    /// # Errors
    /// [`ClusterError::NoAddress`], [`ClusterError::AllGone`], or what the cluster says against this identity.
    pub fn open(identity: &Identity, addresses: &[String], site: &str) -> Result<Self, ClusterError> {
        Self::open_knowing(identity, addresses, site, None)
    }

    /// Opens it for a person: the nodes that are named are asked before any other, which answers where they are silent.
    ///
    /// # Errors
    /// As [`ClusterClient::open`].
    pub fn open_at(identity: &Identity, addresses: &[String]) -> Result<Self, ClusterError> {
        Self::open_preferring(identity, addresses, Preference::Named, None)
    }

    /// As [`ClusterClient::open`], and nodes that were known when this machine asked last are asked as well; that list
    /// is kept from here on.
    pub(super) fn open_knowing(
        identity: &Identity,
        addresses: &[String],
        site: &str,
        known: Option<KnownNodes>,
    ) -> Result<Self, ClusterError> {
        Self::open_preferring(identity, addresses, Preference::Site(site.to_owned()), known)
    }

    fn open_preferring(
        identity: &Identity,
        addresses: &[String],
        preference: Preference,
        known: Option<KnownNodes>,
    ) -> Result<Self, ClusterError> {
        if addresses.is_empty() {
            return Err(ClusterError::NoAddress);
        }
        let mut roster = Roster::new(addresses, preference, usize::from(RequestId::random()?.0[0]));
        // As a list of members: the one that a node gives takes its place.
        roster.learn(&known.as_ref().map(KnownNodes::nodes).unwrap_or_default());
        let epoch = AtomicU32::new(known.as_ref().map_or(0, KnownNodes::epoch));
        let agent = transport::agent(tls::member_config(identity).map_err(ClusterError::Tls)?);
        let client = Self {
            shared: Arc::new(Shared {
                agent: RwLock::new(agent),
                cluster: identity.certificate().cluster,
                renewal_due_ns: Mutex::new(identity.certificate().renewal_due_ns()),
                roster: Mutex::new(roster),
                learnt: Mutex::new(Instant::now()),
                looking: AtomicBool::new(false),
                known,
                epoch,
            }),
        };
        client.learn()?;
        Ok(client)
    }

    /// The cluster that this identity belongs to.
    pub fn cluster(&self) -> ClusterId {
        self.shared.cluster
    }

    /// Asks for what is at `path`, as in `/v1/kmas`.
    ///
    /// # Errors
    /// [`ClusterError::AllGone`] if no node answers; [`ClusterError::Refused`] if the cluster refuses;
    /// [`ClusterError::Unreadable`] if the answer is not understood.
    pub fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClusterError> {
        self.request(&RequestId::random()?, path, None, Repeat::SameRequest)
    }

    /// Asks for something to be done. `request` is its id: the same one, also on another node, asks for the same thing
    /// and not for another.
    ///
    /// # Errors
    /// As [`ClusterClient::get`]; [`ClusterError::Unanswered`] if it must not be repeated and no answer came.
    pub fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        question: &impl Serialize,
        request: &RequestId,
        repeat: Repeat,
    ) -> Result<A, ClusterError> {
        let unreadable =
            |error: serde_json::Error| ClusterError::Unreadable { address: "here".to_owned(), what: error.to_string() };
        let body = serde_json::to_vec(question).map_err(unreadable)?;
        self.request(request, path, Some(&body), repeat)
    }

    /// Asks for the list of members, which is done now and then unasked.
    pub(super) fn learn(&self) -> Result<Vec<KmaMember>, ClusterError> {
        let members: Vec<KmaMember> = self.get("/v1/kmas")?;
        *lock(&self.shared.learnt) = Instant::now();
        if members.iter().all(|member| member.state == KmaState::Locked) {
            // A node that is locked knows itself alone.
            lock(&self.shared.roster).are_locked(&members);
            return Ok(members);
        }
        lock(&self.shared.roster).learn(&members);
        if let Some(known) = &self.shared.known {
            // It is for a start on a bad day: where it cannot be kept, as on a full disk, this one is served all the
            // same.
            let _ = known.keep(&members);
        }
        Ok(members)
    }

    /// Renews the certificate if two thirds of its time are over, and gives the new identity, which this client uses
    /// from then on and the caller is to save. A failure is none yet: a third of its time is left to try again in.
    ///
    /// # Errors
    /// As [`ClusterClient::post`], or the certificate that came is not for this identity.
    pub fn renew_if_due(&self, now_ns: i64) -> Result<Option<Identity>, ClusterError> {
        if now_ns < *lock(&self.shared.renewal_due_ns) {
            return Ok(None);
        }
        let key = CertificateKey::generate()?;
        let question = RenewCertificate { request: Base64(key.request().to_vec()) };
        let id = RequestId::random()?;
        let issued: IssuedCertificate = self.post("/v1/certificates/renew", &question, &id, Repeat::SameRequest)?;
        let identity = key.certified(&issued)?;
        // With one of another time this peer would be let in nowhere, and could not even ask for the next.
        if !identity.certificate().holds(now_ns) {
            return Err(IdentityError::OtherTime.into());
        }
        let agent = transport::agent(tls::member_config(&identity).map_err(ClusterError::Tls)?);
        *self.shared.agent.write().unwrap_or_else(PoisonError::into_inner) = agent;
        *lock(&self.shared.renewal_due_ns) = identity.certificate().renewal_due_ns();
        Ok(Some(identity))
    }

    fn request<A: DeserializeOwned>(
        &self,
        id: &RequestId,
        path: &str,
        body: Option<&[u8]>,
        repeat: Repeat,
    ) -> Result<A, ClusterError> {
        self.look_around();
        let agent = self.shared.agent.read().unwrap_or_else(PoisonError::into_inner).clone();
        let failed_at_it = |gone: &Gone| matches!(gone.silence, Silence::Failed(_));
        let mut gone: Vec<Gone> = Vec::new();
        for patience in ROUNDS {
            // What is asked once and never again is waited for: a majority that has just lost a member takes a second
            // or two.
            let patience = match repeat {
                Repeat::Never => Patience { answer: ROUNDS[1].answer, ..patience },
                Repeat::SameRequest => patience,
            };
            // Who failed at it once would again.
            gone.retain(failed_at_it);
            // Bound first: a guard in the head of the loop would be held through all of it.
            let order = lock(&self.shared.roster).order();
            for candidate in order {
                let address = candidate.address.clone();
                if gone.iter().any(|gone| failed_at_it(gone) && gone.address == address) {
                    continue;
                }
                let of_epoch = |address: &str, told| self.check_epoch(address, told);
                match send(&agent, candidate, id, path, body, patience, &of_epoch) {
                    Ok(answer) => {
                        lock(&self.shared.roster).answered(&address);
                        return Ok(answer);
                    }
                    Err(Failed::Final(error)) => {
                        lock(&self.shared.roster).answered(&address);
                        return Err(error);
                    }
                    Err(Failed::Gone(silent)) => {
                        // A node that answers is not silent: what it failed at may be a matter of this question alone.
                        match failed_at_it(&silent) {
                            true => lock(&self.shared.roster).answered(&address),
                            false => lock(&self.shared.roster).was_silent(&address, Instant::now()),
                        }
                        let not_done = matches!(silent.silence, Silence::Unreachable(_) | Silence::Unready(_));
                        if repeat == Repeat::Never && !not_done {
                            return Err(ClusterError::Unanswered(Box::new(silent)));
                        }
                        gone.push(silent);
                    }
                }
            }
        }
        Err(ClusterError::AllGone(gone))
    }

    /// Refuses what a node of an older epoch answers, and remembers a newer one. A node from before they told it is
    /// believed.
    fn check_epoch(&self, address: &str, told: Option<u32>) -> Result<(), Gone> {
        let Some(told) = told else { return Ok(()) };
        let known = self.shared.epoch.fetch_max(told, Ordering::SeqCst);
        if told > known
            && let Some(kept) = &self.shared.known
        {
            // Where it cannot be kept it counts for as long as this runs.
            let _ = kept.keep_epoch(told);
        }
        if told >= known {
            return Ok(());
        }
        let detail = format!(
            "It is of epoch {told}, and the cluster has gone on in epoch {known}: nothing is taken from it. Stop that node; if the cluster \
             was really taken back to the older epoch, take the file agent.nodes away that lies beside this machine's identity."
        );
        let problem = Problem::new(503, "older-epoch", "This node is of an older epoch", detail);
        Err(Gone { name: None, address: address.to_owned(), silence: Silence::Unready(Box::new(problem)) })
    }

    /// Looks at silent nodes and at the list of members, if it is time to, on a thread that ends with that.
    fn look_around(&self) {
        let now = Instant::now();
        let old = now.duration_since(*lock(&self.shared.learnt)) >= MEMBERS_AGE_MAX;
        let silent = lock(&self.shared.roster).to_look_at(now);
        if (!old && silent.is_empty()) || self.shared.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        *lock(&self.shared.learnt) = now;
        let client = self.clone();
        let look = move || {
            let agent = client.shared.agent.read().unwrap_or_else(PoisonError::into_inner).clone();
            for candidate in silent {
                client.look_at(&agent, candidate);
            }
            client.shared.looking.store(false, Ordering::Release);
            if old {
                // Whoever asked is not waiting for this; the next minute asks again.
                let _ = client.learn();
            }
        };
        if std::thread::Builder::new().name("kma-look".to_owned()).spawn(look).is_err() {
            self.shared.looking.store(false, Ordering::Release);
        }
    }

    fn look_at(&self, agent: &Agent, candidate: Candidate) {
        let (Ok(id), address) = (RequestId::random(), candidate.address.clone()) else { return };
        let seen = send::<serde::de::IgnoredAny>(agent, candidate, &id, "/readyz", None, ROUNDS[0], &|_, _| Ok(()));
        let mut roster = lock(&self.shared.roster);
        match seen {
            Err(Failed::Gone(_)) => roster.was_silent(&address, Instant::now()),
            Ok(_) | Err(Failed::Final(_)) => roster.answered(&address),
        }
    }
}

/// Nothing here is left half done by a thread that panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why one node gave no answer to return.
pub(super) enum Failed {
    /// Another node may do better.
    Gone(Gone),
    /// Every node would say the same.
    Final(ClusterError),
}

impl Failed {
    pub(super) fn into_error(self, name: Option<&str>, address: &str) -> ClusterError {
        match self {
            Self::Gone(Gone { silence: Silence::Failed(problem), .. }) => ClusterError::Refused(problem),
            Self::Gone(gone) => {
                let (name, address) = (name.map(str::to_owned).or(gone.name), address.to_owned());
                ClusterError::AllGone(vec![Gone { name, address, silence: gone.silence }])
            }
            Self::Final(error) => error,
        }
    }
}

/// Judges the epoch that an answer of a node names, if it names one.
pub(super) type OfEpoch<'a> = &'a dyn Fn(&str, Option<u32>) -> Result<(), Gone>;

/// Asks one node; `of_epoch` says whether an answer of the epoch that the node tells is taken.
pub(super) fn send<A: DeserializeOwned>(
    agent: &Agent,
    candidate: Candidate,
    id: &RequestId,
    path: &str,
    body: Option<&[u8]>,
    patience: Patience,
    of_epoch: OfEpoch<'_>,
) -> Result<A, Failed> {
    let Candidate { name, address } = candidate;
    let url = format!("https://{address}{path}");
    let answered = match body {
        None => agent
            .get(url)
            .header(REQUEST_ID_HEADER, id.to_string())
            .config()
            .timeout_connect(Some(patience.connect))
            .timeout_global(Some(patience.answer))
            .build()
            .call(),
        Some(body) => agent
            .post(url)
            .header(REQUEST_ID_HEADER, id.to_string())
            .content_type("application/json")
            .config()
            .timeout_connect(Some(patience.connect))
            .timeout_global(Some(patience.answer))
            .build()
            .send(body),
    };
    match answered {
        Ok(answer) => of_epoch(&address, epoch_of(&answer))
            .map_err(Failed::Gone)
            .and_then(|()| read_answer(&address, answer))
            .map_err(|failed| match failed {
                Failed::Gone(gone) => Failed::Gone(Gone { name, ..gone }),
                other => other,
            }),
        Err(error) => Err(Failed::Gone(gone(name, &address, &error))),
    }
}

/// The epoch that a node tells of itself.
fn epoch_of(answer: &Response<Body>) -> Option<u32> {
    answer.headers().get(EPOCH_HEADER)?.to_str().ok()?.parse().ok()
}

/// Reads what a node answered.
pub(super) fn read_answer<A: DeserializeOwned>(address: &str, answer: Response<Body>) -> Result<A, Failed> {
    let status = answer.status();
    let body = answer.into_body().with_config().limit(ANSWER_LEN_MAX).read_to_vec();
    let body = body.map_err(|error| Failed::Gone(gone(None, address, &error)))?;
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|error| {
            let (address, what) = (address.to_owned(), error.to_string());
            Failed::Final(ClusterError::Unreadable { address, what })
        });
    }
    let mut problem = serde_json::from_slice::<Problem>(&body).unwrap_or_else(|_| {
        let said: String = String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).take(200).collect();
        Problem::new(status.as_u16(), "unknown", status.canonical_reason().unwrap_or("an error"), said)
    });
    problem.status = status.as_u16();
    let silence = match status.as_u16() {
        502..=504 => Silence::Unready(Box::new(problem)),
        // Nothing was done: by that node's clock the certificate has ended, and the clock may be what is wrong.
        _ if problem.is(TURNED_AWAY) => Silence::Unready(Box::new(problem)),
        500.. => Silence::Failed(Box::new(problem)),
        _ => return Err(Failed::Final(ClusterError::Refused(Box::new(problem)))),
    };
    Err(Failed::Gone(Gone { name: None, address: address.to_owned(), silence }))
}

/// What the failure of a request says of the node.
pub(super) fn gone(name: Option<String>, address: &str, error: &ureq::Error) -> Gone {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let silence = match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            Silence::Unreachable("it does not take the connection".to_owned())
        }
        ureq::Error::Timeout(_) => Silence::TimedOut,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => {
            Silence::Unreachable(error.to_string())
        }
        ureq::Error::Io(io) if matches!(io.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable) => {
            Silence::Unreachable(io.to_string())
        }
        ureq::Error::Io(io) if io.kind() == std::io::ErrorKind::TimedOut => Silence::TimedOut,
        other => Silence::Broken(other.to_string()),
    };
    Gone { name, address: address.to_owned(), silence }
}
