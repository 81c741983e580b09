//! Agents: drives that mount volumes, get keys, write and read through the client that real agents use; and what they
//! have seen, which the cluster is held to.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::Name;
use capstan_keys::api::{
    ActivateKey, Activated, AppendVolume, BeginVolume, KeyGiven, PeerId, Problem, ReadVolume, RequestId, Standing,
};
use capstan_keys::cluster::{ClusterClient, ClusterError, Identity, KeyRequest, Repeat};
use serde::Serialize;

use super::cluster::name;
use super::network::{PLACES, SITES};
use super::officers::Fate;
use super::trouble::Seeded;

/// The kind of a refusal: the key is destroyed.
const DESTROYED: &str = "key-destroyed";
/// Readers at a time where everything is read again.
const READERS: usize = 4;

/// What agents have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Every key that was given out: its volume and itself.
    pub(crate) keys: HashMap<KeyTag, (Volser, [u8; 32])>,
    /// Of those that officers wanted destroyed.
    pub(crate) fates: HashMap<KeyTag, Fate>,
    pub(crate) counts: Counts,
    /// What must not be.
    pub(crate) wrong: Vec<String>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    pub(crate) begun: usize,
    pub(crate) appended: usize,
    pub(crate) read: usize,
    /// Answers that were given cut off.
    pub(crate) alone: usize,
    /// Keys that officers destroyed.
    pub(crate) destroyed: usize,
    /// Such keys given out later by nodes that said they were cut off.
    pub(crate) unheard: usize,
    /// Requests that no node answered.
    pub(crate) unanswered: usize,
    /// Refusals, by kind.
    pub(crate) refused: HashMap<String, usize>,
    pub(crate) longest: Duration,
}

/// What agents share.
pub(crate) struct Yard {
    pub(crate) seen: Mutex<Seen>,
    /// Written by whoever wants no mount under way.
    pub(crate) open: RwLock<()>,
    pub(crate) ends: AtomicBool,
    pub(crate) states: Vec<PathBuf>,
}

/// A drive and its way to the cluster.
pub(crate) struct Agent {
    pub(crate) client: ClusterClient,
    peer: PeerId,
    drive: Name,
}

impl Agent {
    pub(crate) fn open(identity: &Identity, addresses: &[String], site: &str) -> Option<Self> {
        let peer = identity.certificate().peer.clone();
        let client = ClusterClient::open(identity, addresses, site).ok()?;
        Some(Self { client, drive: peer.name.clone(), peer })
    }

    fn key(
        &self,
        path: &str,
        question: impl FnOnce(capstan_keys::api::Base64) -> Box<dyn erased::Ask>,
    ) -> Result<(KeyGiven, [u8; 32]), ClusterError> {
        let (request, id) = (KeyRequest::new().unwrap(), RequestId::random().unwrap());
        let given: KeyGiven = question(request.public()).ask(&self.client, path, &id)?;
        let key = request.accept(&given.handed_over, &self.peer, &id, &given.key, given.algorithm).unwrap();
        Ok((given, *key.expose()))
    }

    /// Begins a volume with a key of the drive's own group.
    pub(crate) fn begin(&self, volume: &Volser, algorithm: Algorithm) -> Result<KeyTag, ClusterError> {
        let (volume, drive) = (volume.clone(), self.drive.clone());
        let question = |public| -> Box<dyn erased::Ask> {
            Box::new(BeginVolume { volume, drive, group: None, pool: None, algorithm, public })
        };
        self.key("/v1/keys/begin", question).map(|(given, _)| given.key)
    }

    pub(crate) fn read(&self, volume: &Volser, key: &KeyTag) -> Result<([u8; 32], Standing), ClusterError> {
        let (volume, drive, key) = (volume.clone(), self.drive.clone(), *key);
        self.key("/v1/keys/read", |public| Box::new(ReadVolume { volume, serial: None, drive, key, public }))
            .map(|(given, key)| (key, given.standing))
    }

    /// Mounts volumes until it is told to end.
    pub(crate) fn work(&self, number: usize, yard: &Yard, mut random: Seeded) {
        // The keys of each of its volumes, the first of its life in front.
        let mut volumes: HashMap<Volser, Vec<KeyTag>> = HashMap::new();
        while !yard.ends.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(random.below(160)));
            let _open = yard.open.read().unwrap();
            let began = Instant::now();
            let volume = Volser::new(&format!("V{number}{}", random.below(5))).unwrap();
            let outcome = self.mount(&volume, &mut volumes, yard, &mut random);
            let mut seen = yard.seen.lock().unwrap();
            seen.counts.longest = seen.counts.longest.max(began.elapsed());
            match outcome {
                Ok(()) => {}
                Err(ClusterError::AllGone(_)) => seen.counts.unanswered += 1,
                Err(ClusterError::Refused(problem)) => {
                    if seen.refused(&problem) == DESTROYED {
                        let keys = volumes.get(&volume).into_iter().flatten();
                        seen.said_to_be_destroyed(keys, &format!("drive {number}, {volume}: {problem}"));
                    }
                }
                Err(error) => seen.wrong.push(format!("drive {number}, {volume}: {error}")),
            }
        }
    }

    fn mount(
        &self,
        volume: &Volser,
        volumes: &mut HashMap<Volser, Vec<KeyTag>>,
        yard: &Yard,
        random: &mut Seeded,
    ) -> Result<(), ClusterError> {
        let drive = self.drive.clone();
        let first = volumes.get(volume).and_then(|keys| keys.first().copied());
        match (random.below(10), first) {
            (0..4, _) | (_, None) => {
                let group = (random.below(2) == 0).then(|| name("brief"));
                let (volume, algorithm) = (volume.clone(), Algorithm::Aes256Gcm);
                let question = |public| -> Box<dyn erased::Ask> {
                    Box::new(BeginVolume { volume: volume.clone(), drive, group, pool: None, algorithm, public })
                };
                let (given, key) = self.key("/v1/keys/begin", question)?;
                yard.given(&volume, &given, key, Purpose::Begin);
                volumes.insert(volume.clone(), vec![given.key]);
                yard.seen.lock().unwrap().counts.begun += 1;
                self.activate(&volume, given.key)
            }
            (4..7, Some(first)) => {
                let volume = volume.clone();
                let question = |public| -> Box<dyn erased::Ask> {
                    Box::new(AppendVolume { volume: volume.clone(), serial: None, drive, first, public })
                };
                let asked = Instant::now();
                let (given, key) = self.key("/v1/keys/append", question)?;
                yard.given(&volume, &given, key, Purpose::Append);
                yard.seen.lock().unwrap().served(&given.key, asked, given.standing);
                let keys = volumes.entry(volume.clone()).or_default();
                if !keys.contains(&given.key) {
                    keys.push(given.key);
                    yard.seen.lock().unwrap().counts.appended += 1;
                    self.activate(&volume, given.key)?;
                }
                Ok(())
            }
            (_, Some(_)) => {
                for tag in &volumes[volume] {
                    let asked = Instant::now();
                    let (key, standing) = self.read(volume, tag)?;
                    let mut seen = yard.seen.lock().unwrap();
                    seen.served(tag, asked, standing);
                    seen.counts.read += 1;
                    if seen.keys.get(tag).is_none_or(|known| *known != (volume.clone(), key)) {
                        seen.wrong.push(format!("key {tag} of {volume} is read as another"));
                    }
                }
                Ok(())
            }
        }
    }

    fn activate(&self, volume: &Volser, key: KeyTag) -> Result<(), ClusterError> {
        let question = ActivateKey { volume: volume.clone(), serial: None, key };
        let id = RequestId::random()?;
        let answered = self.client.post::<Activated>("/v1/keys/activate", &question, &id, Repeat::SameRequest);
        answered.map(drop)
    }
}

impl Seen {
    /// Counts a refusal, and gives its kind.
    pub(crate) fn refused(&mut self, problem: &Problem) -> String {
        let kind = problem.kind.rsplit(['/', ':']).next().unwrap_or_default().to_owned();
        *self.counts.refused.entry(kind.clone()).or_default() += 1;
        kind
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Begin,
    Append,
}

impl Yard {
    /// Takes down a key that was given out, and holds the cluster to what it says of keys.
    fn given(&self, volume: &Volser, given: &KeyGiven, key: [u8; 32], purpose: Purpose) {
        let tag = given.key;
        let stored = self.stored(&tag);
        let mut seen = self.seen.lock().unwrap();
        seen.counts.alone += usize::from(given.standing == Standing::CutOff);
        let mut wrong = Vec::new();
        if !is_at_both_sites(stored) {
            wrong.push(format!(
                "key {tag} was issued for {volume} and lies on the disks of places {stored:?}, not at both sites"
            ));
        }
        match seen.keys.insert(tag, (volume.clone(), key)) {
            Some((owner, _)) if owner != *volume => {
                wrong.push(format!("key {tag} is given out for {owner} and {volume}"));
            }
            Some((_, bytes)) if bytes != key => wrong.push(format!("key {tag} is two keys")),
            Some(_) if purpose == Purpose::Begin => wrong.push(format!("key {tag} begins {volume} twice")),
            Some(_) => {}
            None if seen.keys.values().filter(|(_, bytes)| *bytes == key).count() > 1 => {
                wrong.push(format!("key {tag} of {volume} has another tag as well"));
            }
            None => {}
        }
        seen.wrong.extend(wrong);
    }

    /// On which disks a key lies, in a pool or issued. A page may be on its way to the file: so it looks more than
    /// once, and where a node was killed or stopped on that way, what was there before is in the file's own journal.
    fn stored(&self, tag: &KeyTag) -> [bool; PLACES] {
        let tag = tag.to_string();
        let mut held = [false; PLACES];
        for _ in 0..5 {
            for (held, state) in held.iter_mut().zip(&self.states) {
                // The paths of records are not sealed.
                let has_it = |file| fs::read(state.join(file)).is_ok_and(|bytes| contains(&bytes, tag.as_bytes()));
                *held |= has_it("replica.db") || has_it("replica.db-journal");
            }
            if is_at_both_sites(held) {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        held
    }
}

/// Whether a key lies where it must before it is given out: on a disk at another site than that of the node that gives
/// it. That node's own has it too, since it knows the mark of the other only behind the key; so it lies at both,
/// whichever of them gave it.
pub(crate) fn is_at_both_sites(held: [bool; PLACES]) -> bool {
    let at = |wanted: &str| SITES.iter().zip(held).any(|(site, held)| held && *site == wanted);
    SITES.iter().all(|site| at(site))
}

/// Whether the bytes are anywhere in there.
fn contains(all: &[u8], part: &[u8]) -> bool {
    let mut rest = all;
    while let Some(at) = rest.iter().position(|byte| *byte == part[0]) {
        if rest[at..].starts_with(part) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// Reads every key again, at nodes of both sites: of two nodes at one site a client asks each in turn. Those that were
/// destroyed are refused.
pub(crate) fn read_again(identity: &Identity, addresses: &[String], seen: &Seen) -> Vec<String> {
    let all: Vec<_> = seen.keys.iter().map(|(tag, (volume, bytes))| (tag, volume, bytes)).collect();
    std::thread::scope(|scope| {
        let read = |part| scope.spawn(move || read_part(identity, addresses, &seen.fates, part));
        let readers: Vec<_> = all.chunks(all.len().div_ceil(READERS).max(1)).map(read).collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    })
}

fn read_part(
    identity: &Identity,
    addresses: &[String],
    fates: &HashMap<KeyTag, Fate>,
    part: &[(&KeyTag, &Volser, &[u8; 32])],
) -> Vec<String> {
    let asked =
        [SITES[0], SITES[0], SITES[PLACES - 1]].map(|site| (site, Agent::open(identity, addresses, site).unwrap()));
    let mut wrong = Vec::new();
    for (tag, volume, bytes) in part {
        let fate = fates.get(*tag);
        let mut there = Vec::new();
        // The same client twice: it asks the other node of its site then.
        for (site, agent) in [&asked[0], &asked[0], &asked[2]] {
            match agent.read(volume, tag) {
                Ok((key, _)) if key != **bytes => {
                    wrong.push(format!("key {tag} of {volume} is another at site {site}"));
                }
                Ok(_) => there.push(true),
                Err(ClusterError::Refused(problem)) if problem.kind.ends_with(DESTROYED) => there.push(false),
                Err(error) => wrong.push(format!("key {tag} of {volume} is lost at site {site}: {error}")),
            }
        }
        let is_right = match fate {
            None => there.iter().all(|there| *there),
            Some(Fate::Destroyed(_)) => !there.iter().any(|there| *there),
            Some(Fate::Perhaps) => there.windows(2).all(|two| two[0] == two[1]),
        };
        if !is_right {
            wrong.push(format!("key {tag} of {volume}, {fate:?}: nodes that have it: {there:?}"));
        }
    }
    wrong
}

/// Questions of different types in one function.
mod erased {
    use super::{ClusterClient, ClusterError, KeyGiven, Repeat, RequestId, Serialize};

    pub(super) trait Ask {
        fn ask(&self, client: &ClusterClient, path: &str, id: &RequestId) -> Result<KeyGiven, ClusterError>;
    }

    impl<Q: Serialize> Ask for Q {
        fn ask(&self, client: &ClusterClient, path: &str, id: &RequestId) -> Result<KeyGiven, ClusterError> {
            client.post(path, self, id, Repeat::SameRequest)
        }
    }
}
