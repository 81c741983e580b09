//! What this process has reserved in the catalog, and keeps: a hold is a reservation that ends with its value.
//!
//! A process of this machine that has ended is seen to have ended, and what it had is free at once. Of a process of
//! another machine nothing is seen but its lease, so whoever holds something renews it three times in a lease's length.
//! A hold that was lost all the same (the machine slept, say) can record nothing: the catalog knows a later generation.
//! What stands in this process's name and it does not hold is free, too: a catalog that was put back says what once
//! was.
//!
//! A hold must not be dropped by a thread that has the catalog locked.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use capstan_catalog::{Catalog, CatalogError, Grant, Reservation, Resource, Wish};
use capstan_format::Volser;
use uuid::Uuid;

use crate::process::{self, Life};
use crate::shared::{Clock, locked};
use crate::{DirectorError, Event, Events};

/// The catalog's fact that names it.
pub(crate) const CATALOG_FACT: &str = "catalog";

/// How long a reservation holds without being renewed, for those who cannot see its process.
const LEASE: Duration = Duration::from_secs(120);

/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(40);

/// How often whoever waits looks whether it can go on.
const LOOKS: Duration = Duration::from_millis(100);

/// What the jobs of this process have reserved.
pub(crate) struct Holds {
    shared: Arc<Shared>,
    /// Renews what is held, from the first hold on.
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What this process holds, by catalog and generation: the same for all that have a catalog open.
static HELD: Mutex<Vec<(PathBuf, u64)>> = Mutex::new(Vec::new());

struct Shared {
    /// The catalog's own name, which no other has.
    name: String,
    /// The catalog's directory.
    dir: PathBuf,
    catalog: Arc<Mutex<Catalog>>,
    clock: Clock,
    events: Events,
    /// This process, in words for others.
    owner: String,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Generations that are held.
    held: Vec<u64>,
    ended: bool,
}

/// A reservation; it is released when the value is dropped.
pub(crate) struct Hold {
    holds: Arc<Holds>,
    generation: u64,
}

impl Hold {
    /// By which others know that it was taken over.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.shared.let_go(self.generation);
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Hold({})", self.generation)
    }
}

impl Holds {
    pub(crate) fn new(catalog: &Arc<Mutex<Catalog>>, clock: Clock, events: &Events) -> Self {
        let dir = locked(catalog).dir().to_owned();
        // One that cannot be written has none, and nobody's drive is taken over in its name.
        let name = locked(catalog).fact_or(CATALOG_FACT, &Uuid::new_v4().simple().to_string()).unwrap_or_default();
        let shared = Shared {
            name,
            dir: std::fs::canonicalize(&dir).unwrap_or(dir),
            catalog: Arc::clone(catalog),
            clock,
            events: Arc::clone(events),
            owner: process::this(),
            state: Mutex::default(),
            wake: Condvar::new(),
        };
        Self { shared: Arc::new(shared), keeper: Mutex::default() }
    }

    /// Reserves all that is wished for; gives what is in the way, if something is.
    pub(crate) fn reserve(self: &Arc<Self>, wish: &Wish) -> Result<Result<Hold, Reservation>, CatalogError> {
        let shared = &self.shared;
        let until_ns = shared.now_ns().saturating_add(LEASE.as_nanos() as i64);
        // From before the row is there: what is not held is free.
        let mut own = locked(&HELD);
        let is_over = |held: &Reservation| shared.is_over(held, &own);
        let grant = locked(&shared.catalog).reserve(wish, &shared.owner, until_ns, &is_over)?;
        match grant {
            Grant::Refused(reservation) => Ok(Err(reservation)),
            Grant::Held(generation) => {
                if !wish.is_empty() {
                    own.push((shared.dir.clone(), generation));
                    drop(own);
                    locked(&shared.state).held.push(generation);
                    self.keep();
                }
                Ok(Ok(Hold { holds: Arc::clone(self), generation }))
            }
        }
    }

    /// Reserves all that is wished for, or says who is in the way.
    pub(crate) fn claim(self: &Arc<Self>, wish: &Wish) -> Result<Hold, DirectorError> {
        self.reserve(wish)?.map_err(|held| in_use(&held))
    }

    /// Reserves a volume, or says who has it.
    pub(crate) fn volume(self: &Arc<Self>, volser: &Volser) -> Result<Hold, DirectorError> {
        self.claim(&Wish::alone(Resource::Volume(volser.clone())))
    }

    /// Reserves all that is wished for, however long somebody else has it, and tells what is waited for. No lock may be
    /// held, and nothing that the other may wait for.
    pub(crate) fn wait_for(
        self: &Arc<Self>,
        wish: &Wish,
        (stop, events): (&AtomicBool, &Events),
        waiting: impl Fn(&Reservation) -> String,
    ) -> Result<Hold, DirectorError> {
        let mut said = String::new();
        loop {
            let message = match self.reserve(wish)? {
                Ok(hold) => return Ok(hold),
                Err(held) => waiting(&held),
            };
            if message != said {
                events(Event::Waiting { message: message.clone() });
                said = message;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            std::thread::sleep(LOOKS);
        }
    }

    /// Volumes that jobs have which live, this process's among them.
    pub(crate) fn volumes(&self) -> Result<Vec<Volser>, CatalogError> {
        let volumes = self.living()?.into_iter().filter_map(|held| match held.resource {
            Resource::Volume(volser) => Some(volser),
            _ => None,
        });
        Ok(volumes.collect())
    }

    /// Volumes that jobs empty, or will.
    pub(crate) fn emptied(&self) -> Result<Vec<Volser>, CatalogError> {
        let volumes = self.living()?.into_iter().filter_map(|held| match held.resource {
            Resource::Emptying(volser) => Some(volser),
            _ => None,
        });
        Ok(volumes.collect())
    }

    /// What jobs have that live.
    pub(crate) fn living(&self) -> Result<Vec<Reservation>, CatalogError> {
        let own = locked(&HELD);
        let mut all = locked(&self.shared.catalog).reservations()?;
        all.retain(|held| !self.shared.is_over(held, &own));
        Ok(all)
    }

    /// The name of the catalog that reservations stand in.
    pub(crate) fn catalog_name(&self) -> &str {
        &self.shared.name
    }

    /// Sees that what is held is renewed.
    fn keep(&self) {
        let mut keeper = locked(&self.keeper);
        if keeper.is_none() {
            let shared = Arc::clone(&self.shared);
            // Without a keeper the lease is all there is, which those who see this process do not ask for.
            *keeper = std::thread::Builder::new().name("leases".to_owned()).spawn(move || shared.keep()).ok();
        }
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        locked(&self.shared.state).ended = true;
        self.shared.wake.notify_all();
        if let Some(keeper) = locked(&self.keeper).take() {
            let _ = keeper.join();
        }
    }
}

impl Shared {
    fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    /// Whether what an owner had is free: it has ended, or it cannot be seen and its lease is over.
    fn is_over(&self, held: &Reservation, own: &[(PathBuf, u64)]) -> bool {
        if held.owner == self.owner {
            return !own.iter().any(|(dir, generation)| *generation == held.generation && *dir == self.dir);
        }
        match process::life(&held.owner) {
            Life::Lives => false,
            Life::Ended => true,
            Life::Unseen => held.until_ns < self.now_ns(),
        }
    }

    fn let_go(&self, generation: u64) {
        locked(&self.state).held.retain(|held| *held != generation);
        locked(&HELD).retain(|(dir, held)| *held != generation || *dir != self.dir);
        // A row that cannot be removed, as the disk is full, counts for nothing either.
        let _ = locked(&self.catalog).release(&[generation]);
    }

    fn keep(&self) {
        let mut state = locked(&self.state);
        while !state.ended {
            let (woken, waited) =
                self.wake.wait_timeout(state, RENEW_EVERY).unwrap_or_else(std::sync::PoisonError::into_inner);
            state = woken;
            if !waited.timed_out() || state.held.is_empty() {
                continue;
            }
            let held = state.held.clone();
            drop(state);
            self.renew(&held);
            state = locked(&self.state);
        }
    }

    fn renew(&self, held: &[u64]) {
        let until_ns = self.now_ns().saturating_add(LEASE.as_nanos() as i64);
        let renewed = locked(&self.catalog).renew(held, until_ns);
        let message = match renewed {
            Ok(lost) => {
                let mut state = locked(&self.state);
                // What was let go of meanwhile is not lost.
                let lost: Vec<u64> = lost.into_iter().filter(|generation| state.held.contains(generation)).collect();
                state.held.retain(|generation| !lost.contains(generation));
                if lost.is_empty() {
                    return;
                }
                "another job took over what this job had reserved, because this job gave no sign of life for too long: \
                 it records nothing more"
                    .to_owned()
            }
            Err(error) => format!("what this job has reserved could not be renewed: {error}"),
        };
        (self.events)(Event::Notice { message });
    }
}

/// Who has something, in words.
pub(crate) fn holder(held: &Reservation) -> String {
    match process::number_of(&held.owner) {
        Some(number) => format!("another job (process {number})"),
        None => "another job".to_owned(),
    }
}

/// What is reserved, in words.
pub(crate) fn what(resource: &Resource) -> String {
    match resource {
        Resource::Source { source, .. } => format!("source {}", String::from_utf8_lossy(source)),
        Resource::Object(object) => format!("object {object}"),
        Resource::CopyOf(object) => format!("a copy of object {object}"),
        Resource::Volume(volser) | Resource::Emptying(volser) => format!("volume {volser}"),
        Resource::Pool(pool) => format!("pool {pool}"),
        Resource::CatchUp(pool) => format!("what is missing of pool {pool}"),
        Resource::Seat { .. } => "each drive".to_owned(),
        Resource::Server => "the queue".to_owned(),
    }
}

fn in_use(held: &Reservation) -> DirectorError {
    let holder = holder(held);
    match &held.resource {
        Resource::Source { source, .. } => {
            DirectorError::SourceInUse { source_name: String::from_utf8_lossy(source).into_owned(), holder }
        }
        resource => DirectorError::InUse { what: what(resource), holder },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn holds(dir: &std::path::Path) -> Arc<Holds> {
        let catalog = Arc::new(Mutex::new(Catalog::open(dir).unwrap()));
        Arc::new(Holds::new(&catalog, || 5, &(Arc::new(|_| {}) as Events)))
    }

    #[test]
    fn a_hold_ends_with_its_value_and_keeps_other_jobs_of_the_process_away() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (holds(dir.path()), holds(dir.path()));
        let volser = Volser::new("A00001").unwrap();
        let held = one.volume(&volser).unwrap();
        for holds in [&one, &other] {
            let refused = holds.volume(&volser).unwrap_err().to_string();
            assert!(refused.contains(&format!("another job (process {})", std::process::id())), "{refused}");
            assert!(holds.volumes().unwrap() == std::slice::from_ref(&volser));
        }
        drop(held);
        assert_eq!(other.volumes().unwrap(), []);
        drop(other.volume(&volser).unwrap());
    }

    /// A blank volume holds no object that would be reserved while it is labelled, for a minute in a large library.
    #[test]
    fn nothing_is_lost_of_a_hold_on_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Arc::new(Mutex::new(Catalog::open(dir.path()).unwrap()));
        let said = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&said);
        let events: Events = Arc::new(move |event| locked(&hears).push(event));
        let holds = Arc::new(Holds::new(&catalog, || 5, &events));
        let _nothing = holds.claim(&Wish::default()).unwrap();
        let something = holds.volume(&Volser::new("A00001").unwrap()).unwrap();
        let renew = || {
            let held = locked(&holds.shared.state).held.clone();
            holds.shared.renew(&held);
            locked(&said).len()
        };
        assert_eq!(renew(), 0, "{:?}", locked(&said));
        locked(&catalog).release(&[something.generation()]).unwrap();
        assert_eq!(renew(), 1, "what is lost is said");
    }

    #[test]
    fn what_a_process_had_is_free_when_it_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let volser = Volser::new("A00001").unwrap();
        let wanted = Wish::alone(Resource::Volume(volser.clone()));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let owner = process::of(child.id());
        Catalog::open(dir.path()).unwrap().reserve(&wanted, &owner, 0, &|_| false).unwrap();
        let holds = holds(dir.path());
        holds.volume(&volser).unwrap_err();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(holds.volumes().unwrap(), []);
        let held = holds.volume(&volser).unwrap();
        assert_eq!(held.generation(), 2);
    }

    #[test]
    fn a_catalog_that_was_put_back_says_what_once_was() {
        let dir = tempfile::tempdir().unwrap();
        let (one, volser) = (holds(dir.path()), Volser::new("A00001").unwrap());
        let row = Wish::alone(Resource::Volume(volser.clone()));
        Catalog::open(dir.path()).unwrap().reserve(&row, &process::this(), 9, &|_| false).unwrap();
        assert_eq!(one.volumes().unwrap(), []);
        drop(one.volume(&volser).unwrap());
    }

    #[test]
    fn of_a_process_that_cannot_be_seen_the_lease_decides() {
        let dir = tempfile::tempdir().unwrap();
        let volser = Volser::new("A00001").unwrap();
        let wanted = Wish::alone(Resource::Volume(volser.clone()));
        let elsewhere = "another-boot 7 7 another-machine pid:[1]";
        let mut catalog = Catalog::open(dir.path()).unwrap();
        catalog.reserve(&wanted, elsewhere, 5, &|_| false).unwrap();
        let holds = holds(dir.path());
        holds.volume(&volser).unwrap_err();
        catalog.renew(&[1], 4).unwrap();
        holds.volume(&volser).unwrap();
    }
}
