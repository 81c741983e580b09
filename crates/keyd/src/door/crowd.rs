//! Who is at a door: so many and no more, of one peer so many, and who gives way when it is full.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Tally;

/// What a connection is doing. The order is that of giving way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has not shown who it is.
    Arriving,
    /// Its peer is known, and asks for nothing at the moment.
    Idle,
    /// A request of it is being served: it never gives way.
    Busy,
}

/// The connections of a door.
pub(super) struct Crowd {
    places_max: usize,
    tally: Tally,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// By standing, and within it by how long: the first entry is the first to give way.
    order: BTreeMap<(Standing, u64), u64>,
    places: HashMap<u64, Taken>,
    /// How many places each known peer has.
    of_peer: HashMap<Arc<str>, usize>,
    /// Counts up: a time without a clock.
    tick: u64,
}

struct Taken {
    key: (Standing, u64),
    shown_out: Arc<Notify>,
    peer: Option<Arc<str>>,
}

/// A connection's place, given back when dropped.
pub struct Place {
    crowd: Arc<Crowd>,
    id: u64,
    shown_out: Arc<Notify>,
}

impl Crowd {
    /// An empty one.
    pub(super) fn new(places_max: usize, tally: Tally) -> Arc<Self> {
        Arc::new(Self { places_max, tally, inside: Mutex::default() })
    }

    /// A place for somebody who arrives. When there is none the one that has been quiet longest is shown out; when all
    /// are busy, nobody is, and there is no place.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut inside = self.inside();
        if inside.places.len() >= self.places_max {
            let quiet = inside.order.first_key_value().filter(|((standing, _), _)| *standing < Standing::Busy);
            let Some((&key, &id)) = quiet else {
                self.tally.refused.inc();
                return None;
            };
            self.tally.shown_out.inc();
            inside.show_out(key, id);
        }
        let id = inside.next();
        let (key, shown_out) = ((Standing::Arriving, id), Arc::new(Notify::new()));
        inside.order.insert(key, id);
        inside.places.insert(id, Taken { key, shown_out: shown_out.clone(), peer: None });
        self.tally.accepted.inc();
        self.tally.open.inc();
        Some(Place { crowd: self.clone(), id, shown_out })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn show_out(&mut self, key: (Standing, u64), id: u64) {
        self.order.remove(&key);
        if let Some(taken) = self.leave(id) {
            taken.shown_out.notify_one();
        }
    }

    fn leave(&mut self, id: u64) -> Option<Taken> {
        let taken = self.places.remove(&id)?;
        if let Some(peer) = &taken.peer
            && let Some(count) = self.of_peer.get_mut(peer)
        {
            *count -= 1;
            if *count == 0 {
                self.of_peer.remove(peer);
            }
        }
        Some(taken)
    }

    fn next(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }
}

impl Place {
    /// Says what the connection does from now on. It must be told on each request, or a busy connection may be shown
    /// out.
    pub fn stands(&self, standing: Standing) {
        let mut inside = self.crowd.inside();
        let since = inside.next();
        let Some(Taken { key, .. }) = inside.places.get_mut(&self.id) else { return };
        let old = std::mem::replace(key, (standing, since));
        inside.order.remove(&old);
        inside.order.insert((standing, since), self.id);
    }

    /// Says whose connection it is. A peer that has so many places already gives up the one that has been idle longest;
    /// when all of them are busy there is none for this one, and it must be closed.
    pub(super) fn is_of(&self, peer: &str, peer_places_max: usize) -> bool {
        let mut inside = self.crowd.inside();
        if !inside.places.contains_key(&self.id) {
            // It was shown out, and will hear of it.
            return true;
        }
        if inside.of_peer.get(peer).is_some_and(|count| *count >= peer_places_max) {
            let is_of_peer = |id: &u64| inside.places[id].peer.as_deref() == Some(peer);
            let idle = inside.order.iter().find(|((standing, _), id)| *standing < Standing::Busy && is_of_peer(id));
            let Some((&key, &id)) = idle else {
                self.crowd.tally.refused.inc();
                return false;
            };
            self.crowd.tally.shown_out.inc();
            inside.show_out(key, id);
        }
        let peer: Arc<str> = peer.into();
        *inside.of_peer.entry(peer.clone()).or_default() += 1;
        if let Some(taken) = inside.places.get_mut(&self.id) {
            taken.peer = Some(peer);
        }
        true
    }

    /// Waits until it has to give way.
    pub async fn shown_out(&self) {
        self.shown_out.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.crowd.inside();
        if let Some(taken) = inside.leave(self.id) {
            inside.order.remove(&taken.key);
        }
        self.crowd.tally.open.dec();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use futures_util::FutureExt;

    use super::*;

    fn is_shown_out(place: &Place) -> bool {
        place.shown_out().now_or_never().is_some()
    }

    #[test]
    fn who_is_quiet_longest_gives_way() {
        let tally = Tally::default();
        let crowd = Crowd::new(3, tally.clone());
        let [idle, arriving, busy] = std::array::from_fn(|_| crowd.enter().unwrap());
        idle.stands(Standing::Idle);
        busy.stands(Standing::Busy);
        let first = crowd.enter().unwrap();
        assert!(is_shown_out(&arriving) && !is_shown_out(&idle));
        first.stands(Standing::Idle);
        let second = crowd.enter().unwrap();
        assert!(is_shown_out(&idle) && !is_shown_out(&first));
        second.stands(Standing::Busy);
        first.stands(Standing::Busy);
        assert!(crowd.enter().is_none(), "a busy connection gave way");
        assert!(![&first, &second, &busy].into_iter().any(is_shown_out));
        // Who was shown out changes nothing any more, whatever it says.
        idle.stands(Standing::Busy);
        drop((idle, arriving));
        assert_eq!(crowd.inside().places.len(), 3);
        drop(second);
        assert!(crowd.enter().is_some());
        drop((first, busy));
        let counted = [tally.accepted.get(), tally.shown_out.get(), tally.refused.get()];
        assert_eq!((counted, tally.open.get()), ([6, 2, 1], 0));
    }

    /// One certificate took all places with messages that it never finished, and others were dropped.
    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let tally = Tally::default();
        let crowd = Crowd::new(10, tally.clone());
        let enter = |peer: &str| crowd.enter().filter(|place| place.is_of(peer, 3));
        let greedy: Vec<_> = (0..3).map(|_| enter("greedy").unwrap()).collect();
        greedy.iter().for_each(|place| place.stands(Standing::Busy));
        assert!(enter("greedy").is_none(), "all of its places are busy");
        let other = enter("other").unwrap();
        greedy[1].stands(Standing::Idle);
        let again = enter("greedy").unwrap();
        assert!(is_shown_out(&greedy[1]) && !is_shown_out(&other));
        assert_eq!((tally.refused.get(), tally.shown_out.get()), (1, 1));
        drop((greedy, other, again));
        assert!(crowd.inside().of_peer.is_empty());
    }

    #[test]
    fn nothing_is_left_of_those_who_went() {
        let crowd = Crowd::new(10, Tally::default());
        for _ in 0..100 {
            let place = crowd.enter().unwrap();
            place.stands(Standing::Idle);
        }
        assert_eq!(crowd.inside().places.len(), 0);
        assert!(crowd.inside().order.is_empty());
    }
}
