//! Which peers are let in, in memory: what the catalog says, as it was looked at last.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_catalog::{PeerRow, PeerSeen};
use capstan_keys::api::{PeerId, Serial};
use capstan_service::identity::Revocations;

/// How often it is written of one certificate that its peer was seen.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);

/// How often it is noted that somebody comes with a revoked certificate, and of how many it is known at a time.
const MET_NOTED_EVERY: Duration = Duration::from_secs(60 * 60);
const MET_MAX: usize = 1000;

/// How much is kept of what a peer says is its version.
const VERSION_LEN_MAX: usize = 32;

/// The certificates that let somebody in. A certificate that is not here is taken for a revoked one.
#[derive(Default)]
pub(super) struct KnownPeers {
    known: Mutex<HashMap<Serial, PeerId>>,
    seen: Mutex<HashMap<Serial, Sight>>,
    met: Mutex<HashMap<(PeerId, IpAddr), Met>>,
}

/// A peer that lost a certificate.
pub(super) struct LostPeer {
    pub(super) peer: PeerId,
    pub(super) serial: Serial,
    /// Whether another one lets it in: it was enrolled again.
    pub(super) has_another: bool,
}

/// When and from where a peer was seen, and what of it was written.
struct Sight {
    seen_ns: i64,
    from: SocketAddr,
    /// The version of its program, until that is written.
    version: Option<String>,
    is_written: bool,
    written: Option<Instant>,
}

/// Somebody who came with a revoked certificate.
struct Met {
    from: SocketAddr,
    since: Instant,
    is_noted: bool,
}

impl KnownPeers {
    /// Knows these, and no others, from now on; gives the certificates that were lost, and whose they are. The catalog
    /// that they were read from is locked, so that none that was admitted since is lost.
    pub(super) fn know(&self, rows: &[PeerRow]) -> Vec<LostPeer> {
        let holds = rows.iter().filter(|row| row.revoked_ns.is_none());
        let new: HashMap<_, _> = holds.filter_map(|row| Some((Serial(row.serial), peer_of(row)?))).collect();
        let mut known = locked(&self.known);
        let gone = known.iter().filter(|(serial, _)| !new.contains_key(serial));
        let still: HashSet<&PeerId> = new.values().collect();
        let as_lost = |(serial, peer): (&Serial, &PeerId)| LostPeer {
            peer: peer.clone(),
            serial: *serial,
            has_another: still.contains(peer),
        };
        let lost = gone.map(as_lost).collect();
        locked(&self.seen).retain(|serial, _| new.contains_key(serial));
        *known = new;
        lost
    }

    /// Lets a certificate in that is on record. The catalog is locked.
    pub(super) fn admit(&self, row: &PeerRow) {
        if let Some(peer) = peer_of(row) {
            locked(&self.known).insert(Serial(row.serial), peer);
        }
    }

    /// The peers that have a certificate.
    pub(super) fn all(&self) -> BTreeSet<PeerId> {
        locked(&self.known).values().cloned().collect()
    }

    /// A peer was seen.
    pub(super) fn saw(&self, serial: Serial, seen_ns: i64, from: SocketAddr) {
        let mut seen = locked(&self.seen);
        let (version, written) = seen.remove(&serial).map_or((None, None), |before| (before.version, before.written));
        seen.insert(serial, Sight { seen_ns, from, version, is_written: false, written });
    }

    /// A peer that was seen says the version of its program.
    pub(super) fn has_version(&self, serial: Serial, version: &str) {
        if let Some(sight) = locked(&self.seen).get_mut(&serial) {
            let plain = version.chars().filter(char::is_ascii_graphic).take(VERSION_LEN_MAX);
            sight.version = Some(plain.collect());
        }
    }

    /// What is to be written of peers that were seen: each at most once a minute, or all at the end.
    pub(super) fn to_write(&self, now: Instant, is_end: bool) -> Vec<PeerSeen> {
        let mut due = Vec::new();
        for (serial, sight) in &mut *locked(&self.seen) {
            let rests = sight.written.is_some_and(|written| now.duration_since(written) < WRITTEN_EVERY);
            if sight.is_written || (rests && !is_end) {
                continue;
            }
            (sight.is_written, sight.written) = (true, Some(now));
            let (address, version) = (sight.from.to_string(), sight.version.take());
            due.push(PeerSeen { serial: serial.0, seen_ns: sight.seen_ns, address, version });
        }
        due
    }

    /// Who came with a revoked certificate, as it is to be noted: of each and each address once an hour.
    pub(super) fn met_to_note(&self) -> Vec<(PeerId, SocketAddr)> {
        let mut met = locked(&self.met);
        met.retain(|_, met| met.since.elapsed() < MET_NOTED_EVERY);
        let new = met.iter_mut().filter(|(_, met)| !met.is_noted);
        let note = |((peer, _), met): (&(PeerId, IpAddr), &mut Met)| {
            met.is_noted = true;
            (peer.clone(), met.from)
        };
        new.map(note).collect()
    }

    /// What was to be written could not be: it is the next time.
    pub(super) fn was_not_written(&self, seen: Vec<PeerSeen>) {
        let mut all = locked(&self.seen);
        for PeerSeen { serial, version, .. } in seen {
            if let Some(sight) = all.get_mut(&Serial(serial)) {
                sight.is_written = false;
                sight.version = sight.version.take().or(version);
            }
        }
    }
}

impl Revocations for KnownPeers {
    fn is_revoked(&self, serial: &Serial) -> bool {
        !locked(&self.known).contains_key(serial)
    }

    fn was_met(&self, peer: &PeerId, from: SocketAddr) {
        let mut met = locked(&self.met);
        if met.len() < MET_MAX {
            let comes = || Met { from, since: Instant::now(), is_noted: false };
            met.entry((peer.clone(), from.ip())).or_insert_with(comes);
        }
    }
}

fn peer_of(row: &PeerRow) -> Option<PeerId> {
    Some(PeerId { kind: row.kind.parse().ok()?, name: row.name.parse().ok()? })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
