//! Which connections a listener keeps: so many and no more, of one peer so many, and which one gives way to another.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::ConnectionCounts;

/// What a connection is doing. The order is that of giving way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionState {
    /// It has not shown who it is.
    Arriving,
    /// Its peer is known, and asks for nothing at the moment, or has not sent the whole of a short request.
    Idle,
    /// A request of it is being served: it never gives way.
    Busy,
}

/// The connections of a listener.
pub(super) struct ConnectionLimiter {
    connections_max: usize,
    counts: ConnectionCounts,
    held: Mutex<HeldPermits>,
}

#[derive(Default)]
struct HeldPermits {
    /// By state, and within it by how long: the first entry is the first to give way.
    order: BTreeMap<(ConnectionState, u64), u64>,
    permits: HashMap<u64, HeldPermit>,
    /// How many permits each known peer has.
    of_peer: HashMap<Arc<str>, usize>,
    /// Counts up: a time without a clock.
    tick: u64,
}

struct HeldPermit {
    key: (ConnectionState, u64),
    evicted: Arc<Notify>,
    peer: Option<Arc<str>>,
}

/// A connection's permit, given back when dropped.
pub struct Permit {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    evicted: Arc<Notify>,
}

impl ConnectionLimiter {
    /// An empty one.
    pub(super) fn new(connections_max: usize, counts: ConnectionCounts) -> Arc<Self> {
        Arc::new(Self { connections_max, counts, held: Mutex::default() })
    }

    /// A permit for a connection that arrives. When there is none, the connection that has been quiet longest is
    /// evicted; when all are busy, none is, and there is no permit.
    pub(super) fn acquire(self: &Arc<Self>) -> Option<Permit> {
        let mut held = self.held();
        if held.permits.len() >= self.connections_max {
            let quiet = held.order.first_key_value().filter(|((state, _), _)| *state < ConnectionState::Busy);
            let Some((&key, &id)) = quiet else {
                self.counts.refused.inc();
                return None;
            };
            self.counts.evicted.inc();
            held.evict(key, id);
        }
        let id = held.next();
        let (key, evicted) = ((ConnectionState::Arriving, id), Arc::new(Notify::new()));
        held.order.insert(key, id);
        held.permits.insert(id, HeldPermit { key, evicted: evicted.clone(), peer: None });
        self.counts.accepted.inc();
        self.counts.open.inc();
        Some(Permit { limiter: self.clone(), id, evicted })
    }

    fn held(&self) -> MutexGuard<'_, HeldPermits> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldPermits {
    fn evict(&mut self, key: (ConnectionState, u64), id: u64) {
        self.order.remove(&key);
        if let Some(permit) = self.release(id) {
            permit.evicted.notify_one();
        }
    }

    fn release(&mut self, id: u64) -> Option<HeldPermit> {
        let permit = self.permits.remove(&id)?;
        if let Some(peer) = &permit.peer
            && let Some(count) = self.of_peer.get_mut(peer)
        {
            *count -= 1;
            if *count == 0 {
                self.of_peer.remove(peer);
            }
        }
        Some(permit)
    }

    fn next(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }
}

impl Permit {
    /// Says what the connection does from now on. It must be told on each request, or a busy connection may
    /// be evicted.
    pub fn set_state(&self, state: ConnectionState) {
        let mut held = self.limiter.held();
        let since = held.next();
        let Some(HeldPermit { key, .. }) = held.permits.get_mut(&self.id) else { return };
        let old = std::mem::replace(key, (state, since));
        held.order.remove(&old);
        held.order.insert((state, since), self.id);
    }

    /// Says whose connection it is, or of which address. If the peer has so many connections already, the one that has
    /// been idle longest is evicted; if all of them are busy, this one must be closed.
    pub(super) fn assign_to(&self, peer: &str, peer_connections_max: usize) -> bool {
        let mut held = self.limiter.held();
        if !held.permits.contains_key(&self.id) {
            // It was evicted, and will hear of it.
            return true;
        }
        if held.of_peer.get(peer).is_some_and(|count| *count >= peer_connections_max) {
            let is_of_peer = |id: &u64| held.permits[id].peer.as_deref() == Some(peer);
            let idle = held.order.iter().find(|((state, _), id)| *state < ConnectionState::Busy && is_of_peer(id));
            let Some((&key, &id)) = idle else {
                self.limiter.counts.refused.inc();
                return false;
            };
            self.limiter.counts.evicted.inc();
            held.evict(key, id);
        }
        let peer: Arc<str> = peer.into();
        *held.of_peer.entry(peer.clone()).or_default() += 1;
        if let Some(permit) = held.permits.get_mut(&self.id) {
            permit.peer = Some(peer);
        }
        true
    }

    /// Waits until it has to give way.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.limiter.held();
        if let Some(permit) = held.release(self.id) {
            held.order.remove(&permit.key);
        }
        self.limiter.counts.open.dec();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use futures_util::FutureExt;

    use super::*;

    fn is_evicted(permit: &Permit) -> bool {
        permit.evicted().now_or_never().is_some()
    }

    #[test]
    fn who_is_quiet_longest_gives_way() {
        let counts = ConnectionCounts::default();
        let limiter = ConnectionLimiter::new(3, counts.clone());
        let [idle, arriving, busy] = std::array::from_fn(|_| limiter.acquire().unwrap());
        idle.set_state(ConnectionState::Idle);
        busy.set_state(ConnectionState::Busy);
        let first = limiter.acquire().unwrap();
        assert!(is_evicted(&arriving) && !is_evicted(&idle));
        first.set_state(ConnectionState::Idle);
        let second = limiter.acquire().unwrap();
        assert!(is_evicted(&idle) && !is_evicted(&first));
        second.set_state(ConnectionState::Busy);
        first.set_state(ConnectionState::Busy);
        assert!(limiter.acquire().is_none(), "a busy connection gave way");
        assert!(![&first, &second, &busy].into_iter().any(is_evicted));
        // Whatever was evicted changes nothing any more, whatever it says.
        idle.set_state(ConnectionState::Busy);
        drop((idle, arriving));
        assert_eq!(limiter.held().permits.len(), 3);
        drop(second);
        assert!(limiter.acquire().is_some());
        drop((first, busy));
        let counted = [counts.accepted.get(), counts.evicted.get(), counts.refused.get()];
        assert_eq!((counted, counts.open.get()), ([6, 2, 1], 0));
    }

    /// One certificate took all permits with messages that it never finished, and others were dropped.
    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let counts = ConnectionCounts::default();
        let limiter = ConnectionLimiter::new(10, counts.clone());
        let acquire = |peer: &str| limiter.acquire().filter(|permit| permit.assign_to(peer, 3));
        let greedy: Vec<_> = (0..3).map(|_| acquire("greedy").unwrap()).collect();
        greedy.iter().for_each(|permit| permit.set_state(ConnectionState::Busy));
        assert!(acquire("greedy").is_none(), "all of its permits are busy");
        let other = acquire("other").unwrap();
        greedy[1].set_state(ConnectionState::Idle);
        let again = acquire("greedy").unwrap();
        assert!(is_evicted(&greedy[1]) && !is_evicted(&other));
        assert_eq!((counts.refused.get(), counts.evicted.get()), (1, 1));
        drop((greedy, other, again));
        assert!(limiter.held().of_peer.is_empty());
    }

    #[test]
    fn nothing_is_left_of_those_who_went() {
        let limiter = ConnectionLimiter::new(10, ConnectionCounts::default());
        for _ in 0..100 {
            let permit = limiter.acquire().unwrap();
            permit.set_state(ConnectionState::Idle);
        }
        assert_eq!(limiter.held().permits.len(), 0);
        assert!(limiter.held().order.is_empty());
    }
}
