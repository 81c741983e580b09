//! Keys of drives from a cluster: a [`KeyProvider`] that asks whichever node answers.
//!
//! Nothing is opened until a key is wanted, so that a catalog can be read and plain volumes written while the cluster
//! is away; and what could not be opened is tried anew with the next question. A question has one id however many nodes
//! it is put to, so that an answer that is lost costs no second key. Each key comes wrapped for this question alone
//! ([`KeyRequest`]).
//!
//! The certificate is renewed by the way: whenever a key is asked for and two thirds of its time are over, at most once
//! an hour where that fails. Who enrols the machine anew while this runs need not start it anew: where no node answers,
//! the identity is looked at again.
//!
//! **Locks.** `state` is held to look at it and to change it, and never while a node is asked: a drive that waits for a
//! node that hangs keeps no other one waiting.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_format::{Algorithm, KeyTag, Volser};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::known_nodes::KnownNodes;
use super::place::ClusterPlace;
use super::{ClusterClient, ClusterError, ClusterStatus, Identity, IdentityError, KeyRequest, PeerCertificate, Repeat};
use crate::api::{
    ActivateKey, Activated, AppendVolume, Base64, BeginVolume, CartridgeListed, EndVolume, KeyGiven, KeyOfVolume,
    KeyRevoked, KeyTagText, PeerId, ReadVolume, RequestId, RevokeKey, Standing,
};
use crate::dates::date;
use crate::error::ClusterRefusal;
use crate::{Cartridge, KeyError, KeyProvider, KeyRecord, Name, Revocation, VolumeKey};

/// How long a renewal that failed is left alone: a third of the certificate's time is left, and the cluster has other
/// things to do.
const RENEWAL_PAUSE_NS: i64 = 3_600 * 1_000_000_000;

/// Is told what a person may want to know, and what keeps no key from being given.
pub type OnNotice = Box<dyn Fn(String) + Send + Sync>;

/// Keys from a cluster.
pub struct KeyCluster {
    place: ClusterPlace,
    clock: fn() -> i64,
    notice: OnNotice,
    state: Mutex<State>,
}

struct State {
    connected: Option<Connected>,
    renewal_tried_ns: Option<i64>,
    standing: Standing,
}

#[derive(Clone)]
struct Connected {
    client: ClusterClient,
    certificate: PeerCertificate,
}

impl KeyCluster {
    /// The cluster at this place. Nobody is asked yet. `clock` is read for the certificate alone: nanoseconds since
    /// 1970.
    pub fn new(place: ClusterPlace, clock: fn() -> i64, notice: OnNotice) -> Self {
        let state = State { connected: None, renewal_tried_ns: None, standing: Standing::Current };
        Self { place, clock, notice, state: Mutex::new(state) }
    }

    /// How the cluster looks from here. Every node is asked, and the certificate renewed if it is time to.
    ///
    /// # Errors
    /// [`IdentityError`] if the identity file cannot be read or, renewed, be written. A node that does not answer is no
    /// error.
    pub fn status(&self) -> Result<ClusterStatus, IdentityError> {
        // Who does not answer is told below, each by itself.
        let _ = self.connected();
        ClusterStatus::ask(&self.place)
    }

    /// What the cluster lets this machine know of the keys of a volume.
    ///
    /// # Errors
    /// [`KeyError::Cluster`] if no node answers; [`KeyError::RefusedByCluster`] if this machine may not know.
    pub fn keys_of_volume(&self, volser: &Volser) -> Result<Vec<KeyOfVolume>, KeyError> {
        let path = format!("/v1/units/{volser}/keys");
        self.ask(|connected| connected.client.get(&path))
    }

    /// Takes a key out of use, where its policy lets agents do that.
    ///
    /// # Errors
    /// [`KeyError::RefusedByCluster`], in whose words the policy stands.
    pub fn revoke(&self, tag: &KeyTag, why: Revocation) -> Result<KeyRevoked, KeyError> {
        self.post("/v1/keys/revoke", &RevokeKey { key: *tag, why })
    }

    /// What the cluster lets this machine know of the cartridges that a volume's barcode was seen on.
    ///
    /// # Errors
    /// As [`KeyCluster::keys_of_volume`].
    pub fn cartridges_of_volume(&self, volser: &Volser) -> Result<Vec<CartridgeListed>, KeyError> {
        let path = format!("/v1/units/{volser}/cartridges");
        self.ask(|connected| connected.client.get(&path))
    }

    /// The connection, made if there was none, and the certificate renewed if it is time to.
    fn connected(&self) -> Result<Connected, ClusterError> {
        if self.state().connected.is_none() {
            let identity = load(&self.place.identity, (self.clock)())?;
            let known = KnownNodes::beside(&self.place.identity, identity.certificate().cluster);
            let client = ClusterClient::open_knowing(&identity, &self.place.nodes, &self.place.site, Some(known))?;
            let connected = Connected { client, certificate: identity.certificate().clone() };
            // Another drive may have been faster.
            self.state().connected.get_or_insert(connected);
        }
        self.renew();
        self.state().connected.clone().ok_or(ClusterError::NoAddress)
    }

    /// Renews the certificate if it is due. That it failed is said, and is no reason to give out no keys: it holds for
    /// a while.
    fn renew(&self) {
        let now_ns = (self.clock)();
        let connected = {
            let mut state = self.state();
            let Some(connected) = state.connected.clone() else { return };
            let due = now_ns >= connected.certificate.renewal_due_ns();
            let rests = |tried_ns: i64| (tried_ns..tried_ns.saturating_add(RENEWAL_PAUSE_NS)).contains(&now_ns);
            if !due || state.renewal_tried_ns.is_some_and(rests) {
                return;
            }
            // Whoever comes meanwhile goes on with the old one.
            state.renewal_tried_ns = Some(now_ns);
            connected
        };
        let until = |certificate: &PeerCertificate| date(certificate.not_after_ns);
        let said = match connected.client.renew_if_due(now_ns) {
            Ok(None) => return,
            Ok(Some(identity)) => {
                let certificate = identity.certificate().clone();
                let holds = until(&certificate);
                self.state().connected = Some(Connected { certificate, ..connected });
                match identity.save(&self.place.identity) {
                    Ok(()) => format!("the certificate for the key cluster was renewed: it holds until {holds}"),
                    Err(error) => format!(
                        "the certificate for the key cluster was renewed and could not be kept ({error}): make room for it, for the next \
                         start renews it again"
                    ),
                }
            }
            Err(error) => format!(
                "the certificate for the key cluster should be renewed, and could not be: {error}. It holds until {}; this is tried again",
                until(&connected.certificate)
            ),
        };
        (self.notice)(said);
    }

    /// Asks, in whichever way, and makes of a refusal what callers know.
    fn ask<A>(&self, question: impl FnOnce(&Connected) -> Result<A, ClusterError>) -> Result<A, KeyError> {
        let answer = self.connected().and_then(|connected| question(&connected));
        if matches!(answer, Err(ClusterError::AllGone(_))) {
            self.look_at_identity();
        }
        answer.map_err(key_error)
    }

    /// Where nobody answers, the certificate may be why, and a person may have put that right.
    fn look_at_identity(&self) {
        // What keeps it from being read now is told when it is needed.
        let Ok(identity) = Identity::load(&self.place.identity) else { return };
        let mut state = self.state();
        let is_another = |connected: &Connected| identity.certificate().serial != connected.certificate.serial;
        if state.connected.as_ref().is_some_and(is_another) {
            state.connected = None;
        }
    }

    fn post<A: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> Result<A, KeyError> {
        let request = RequestId::random()?;
        self.ask(|connected| connected.client.post(path, question, &request, Repeat::SameRequest))
    }

    /// Asks for a key and takes it out of its wrapping. `wanted` is the one that it must be, where that is known.
    fn key<Q: Serialize>(
        &self,
        path: &str,
        wanted: Option<&KeyTag>,
        question: impl FnOnce(Base64) -> Q,
    ) -> Result<VolumeKey, KeyError> {
        let failed = |error| KeyError::host("taking a key from the key cluster", error);
        let ours = KeyRequest::new().map_err(failed)?;
        let (question, request) = (question(ours.public()), RequestId::random()?);
        let (given, agent): (KeyGiven, PeerId) = self.ask(|connected| {
            let given = connected.client.post(path, &question, &request, Repeat::SameRequest)?;
            Ok((given, connected.certificate.peer.clone()))
        })?;
        if let Some(wanted) = wanted.filter(|wanted| **wanted != given.key) {
            let what = format!("key {} came where key {wanted} was asked for", given.key);
            return Err(KeyError::host("taking a key from the key cluster", what));
        }
        self.note_standing(given.standing);
        ours.accept(&given.handed_over, &agent, &request, &given.key, given.algorithm).map_err(failed)
    }

    /// Says once that the nodes that answer have lost the majority, and once that they have it again.
    fn note_standing(&self, standing: Standing) {
        if std::mem::replace(&mut self.state().standing, standing) == standing {
            return;
        }
        (self.notice)(match standing {
            Standing::CutOff => "the node of the key cluster that answers is cut off from the majority: it gives out keys for as long as \
                                 policies allow that (`capstan keys status` shows the nodes)"
                .to_owned(),
            Standing::Current => "the key cluster has its majority again".to_owned(),
        });
    }

    /// Nothing here is left half done by a thread that panics.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The identity, if its certificate holds still: what a node would say to one that does not is less plain.
fn load(path: &Path, now_ns: i64) -> Result<Identity, ClusterError> {
    let identity = Identity::load(path)?;
    let not_after_ns = identity.certificate().not_after_ns;
    if now_ns < not_after_ns {
        return Ok(identity);
    }
    let reason = format!(
        "its certificate ended on {}. Enrol this machine anew, or set its clock if that is wrong",
        date(not_after_ns)
    );
    Err(IdentityError::Unfit { path: path.to_owned(), reason }.into())
}

/// What the cluster says, in the words that callers match on.
fn key_error(error: ClusterError) -> KeyError {
    let problem = match error {
        ClusterError::Refused(problem) => problem,
        ClusterError::Host(error) => return error,
        other => return KeyError::Cluster(Box::new(other)),
    };
    match problem.key_error() {
        Some(error) => error,
        // A rule that this program does not know is a rule all the same.
        None if problem.status == 403 => {
            KeyError::RefusedByCluster { reason: ClusterRefusal::Other, detail: problem.to_string() }
        }
        None => KeyError::Cluster(Box::new(ClusterError::Refused(problem))),
    }
}

impl KeyProvider for KeyCluster {
    /// Sees that a node answers. What its policies say of the pool it says when the volume is begun, before anything is
    /// written.
    fn check_new_volume(&self, _drive: Option<&Name>, _pool: &str, _algorithm: Algorithm) -> Result<(), KeyError> {
        self.ask(|connected| connected.client.learn()).map(drop)
    }

    fn key_for_new_volume(
        &self,
        volser: &Volser,
        drive: Option<&Name>,
        pool: Option<&str>,
        algorithm: Algorithm,
        _now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let (volume, pool) = (volser.clone(), pool.map(str::to_owned));
        let drive = self.name_of(drive)?;
        let key = self.key("/v1/keys/begin", None, |public| BeginVolume {
            volume,
            drive,
            group: None,
            pool,
            algorithm,
            public,
        })?;
        if key.algorithm() == algorithm {
            return Ok(key);
        }
        let what =
            format!("a key for {} came where one for {} was asked for", key.algorithm().name(), algorithm.name());
        Err(KeyError::host("taking a key from the key cluster", what))
    }

    fn activate(&self, cartridge: Cartridge<'_>, tag: &KeyTag, _now_ns: i64) -> Result<Vec<KeyTag>, KeyError> {
        let Cartridge { volser, serial } = cartridge;
        let question = ActivateKey { volume: volser.clone(), serial: serial.copied(), key: *tag };
        let Activated { retired } = self.post("/v1/keys/activate", &question)?;
        Ok(retired.into_iter().map(|tag| tag.0).collect())
    }

    fn key_for_append(
        &self,
        cartridge: Cartridge<'_>,
        first: &KeyTag,
        drive: Option<&Name>,
        _now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let (volume, serial) = (cartridge.volser.clone(), cartridge.serial.copied());
        let (first, drive) = (*first, self.name_of(drive)?);
        self.key("/v1/keys/append", None, |public| AppendVolume { volume, serial, drive, first, public })
    }

    fn key_for_reading(
        &self,
        cartridge: Cartridge<'_>,
        tag: &KeyTag,
        drive: Option<&Name>,
        _now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let (volume, serial) = (cartridge.volser.clone(), cartridge.serial.copied());
        let (key, drive) = (*tag, self.name_of(drive)?);
        self.key("/v1/keys/read", Some(tag), |public| ReadVolume { volume, serial, drive, key, public })
    }

    fn ended(&self, cartridge: Cartridge<'_>, _now_ns: i64) -> Result<(), KeyError> {
        let Cartridge { volser, serial } = cartridge;
        // Named, so that a report that comes late takes nothing from a volume that was begun anew since.
        let path = format!("/v1/units/{volser}/keys");
        let keys: Vec<KeyOfVolume> = self.ask(|connected| connected.client.get(&path))?;
        let held = keys.iter().filter(|key| key.dropped.is_none());
        let last = held.max_by_key(|key| key.issued).map(|key| KeyTagText(key.key));
        let question = EndVolume { volume: volser.clone(), serial: serial.copied(), last };
        self.post::<serde::de::IgnoredAny>("/v1/keys/end", &question).map(drop)
    }

    fn keys_of(&self, volser: &Volser) -> Result<Vec<KeyRecord>, KeyError> {
        Ok(self.in_order(volser)?.iter().map(|key| record(volser, key)).collect())
    }

    fn keys_held(&self, volser: &Volser) -> Result<Vec<KeyRecord>, KeyError> {
        let held = self.in_order(volser)?.into_iter().filter(|key| key.dropped.is_none());
        Ok(held.map(|key| record(volser, &key)).collect())
    }
}

impl KeyCluster {
    /// The keys of a volume as they were issued: a node tells them in any order.
    fn in_order(&self, volser: &Volser) -> Result<Vec<KeyOfVolume>, KeyError> {
        let mut keys = self.keys_of_volume(volser)?;
        keys.sort_by_key(|key| (key.issued, key.key));
        Ok(keys)
    }

    /// The drive, or this agent itself where the drive has no name.
    fn name_of(&self, drive: Option<&Name>) -> Result<Name, KeyError> {
        match drive {
            Some(drive) => Ok(drive.clone()),
            None => Ok(self.connected().map_err(key_error)?.certificate.peer.name.clone()),
        }
    }
}

/// A key as agents may know it. When it was drawn they are not told: it lay in a pool, and became the volume's when it
/// was issued.
fn record(volser: &Volser, key: &KeyOfVolume) -> KeyRecord {
    let ns = |time: &jiff::Timestamp| i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
    KeyRecord {
        tag: key.key,
        volser: volser.clone(),
        algorithm: key.algorithm,
        state: key.state,
        created_ns: ns(&key.issued),
        activated_ns: key.activated.as_ref().map(ns),
        retired_ns: None,
        destroyed_ns: key.destroyed.as_ref().map(ns),
        imported_ns: None,
    }
}
