//! Agents: drives that mount volumes, get keys, write and read; and what they have seen, which the cluster is held to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keyd::desk::{Answer, DeskError, Operation};
use capstan_keyd::node::{Answered, Node, NodeError};
use capstan_keys::{KeyError, KeyState};

use super::cluster::{Cluster, Seeded, name};

const AGENTS: u64 = 8;
const MOUNTS: u64 = 12;

/// What agents have seen in a round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) begun: usize,
    pub(crate) appended: usize,
    pub(crate) read: usize,
    /// Answers that were given cut off.
    pub(crate) alone: usize,
    /// Requests that no node answered.
    pub(crate) refused: usize,
    pub(crate) destroyed: usize,
    /// Every key that was given out: its volume and itself.
    keys: HashMap<KeyTag, (Volser, [u8; 32])>,
}

impl Seen {
    pub(crate) fn join(&mut self, other: &Self) {
        self.begun += other.begun;
        self.appended += other.appended;
        self.read += other.read;
        self.alone += other.alone;
        self.refused += other.refused;
        self.destroyed += other.destroyed;
    }
}

/// Agents mount and write while things happen to the nodes.
pub(crate) async fn run(cluster: &Cluster, seed: u64) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let agents = (0..AGENTS).map(|number| agent(cluster, seen.clone(), number, Seeded(seed ^ (number << 32))));
    let working = futures_util::future::join_all(agents);
    let mut random = Seeded(seed);
    let trouble = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100 + random.below(300))).await;
            let seat = random.below(3) as usize;
            match random.below(12) {
                0..3 => cluster.cut(seat, true),
                3..5 => cluster.cut(seat, false),
                5 => cluster.kill(seat),
                6..10 => cluster.jump(if random.below(2) == 0 { 61_000_000_000 } else { -31_000_000_000 }),
                _ => (0..3).filter(|&seat| cluster.seats[seat].node().is_none()).for_each(|seat| cluster.boot(seat)),
            }
        }
    };
    tokio::select! {
        biased;
        _ = working => {}
        () = trouble => {}
    }
    Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
}

async fn agent(cluster: &Cluster, seen: Arc<Mutex<Seen>>, number: u64, mut random: Seeded) {
    let drive = name(&format!("drive-{number}"));
    // The keys of each of its volumes, the first of its life in front.
    let mut volumes: HashMap<Volser, Vec<KeyTag>> = HashMap::new();
    for _ in 0..MOUNTS {
        let volser = Volser::new(&format!("V{number}{}", random.below(4))).unwrap();
        let mut request = [0; 16];
        request[..8].copy_from_slice(&random.below(u64::MAX).to_le_bytes());
        let first = volumes.get(&volser).and_then(|keys| keys.first().copied());
        match (random.below(10), first) {
            (0..4, _) | (_, None) => {
                let group = (random.below(2) == 0).then(|| name("brief"));
                let begin = Operation::Begin {
                    volser: volser.clone(),
                    drive: drive.clone(),
                    group,
                    algorithm: Algorithm::Aes256Gcm,
                    draw: None,
                };
                let Some(tag) = given(cluster, &seen, &drive, begin, request, &mut random).await else { continue };
                // The volume is written from the beginning: what it held is gone, whether the report arrives or not.
                let dropped = volumes.insert(volser.clone(), vec![tag]).unwrap_or_default();
                seen.lock().unwrap().begun += 1;
                let activate = Operation::Activate { volser: volser.clone(), serial: None, tag };
                let activated = ask(cluster, &seen, &drive, activate, request, &mut random).await;
                if let (Some(old), true) = (dropped.first(), activated.is_some() && random.below(4) == 0) {
                    let destroy = Operation::Destroy { tag: *old };
                    let answered = ask(cluster, &seen, &drive, destroy, request, &mut random).await.is_some();
                    let mut seen = seen.lock().unwrap();
                    seen.destroyed += usize::from(answered);
                    // Where every answer was lost it may have been done, too: nobody is held to that key any more.
                    seen.keys.remove(old);
                }
            }
            (4..8, Some(first)) => {
                let append =
                    Operation::Append { volser: volser.clone(), serial: None, drive: drive.clone(), first, draw: None };
                let Some(tag) = given(cluster, &seen, &drive, append, request, &mut random).await else { continue };
                let keys = volumes.entry(volser).or_default();
                if !keys.contains(&tag) {
                    keys.push(tag);
                    seen.lock().unwrap().appended += 1;
                }
            }
            (_, Some(_)) => {
                for tag in &volumes[&volser] {
                    read(cluster, &seen, &drive, &volser, tag).await;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(random.below(150))).await;
    }
}

/// Asks the nodes one after the other, the same request, until one answers.
async fn ask(
    cluster: &Cluster,
    seen: &Mutex<Seen>,
    drive: &capstan_keys::Name,
    operation: Operation,
    request: [u8; 16],
    random: &mut Seeded,
) -> Option<(Arc<Node>, Answered)> {
    let begin = random.below(3) as usize;
    for seat in (0..6).map(|next| (begin + next) % 3) {
        let Some(node) = cluster.seats[seat].node() else { continue };
        // An agent does not wait for ever; what it asked for may happen all the same.
        let asked = tokio::time::timeout(Duration::from_millis(700), node.ask(operation.clone(), drive, request)).await;
        match asked {
            Ok(Ok(answered)) => {
                cluster.trace.note(format_args!("{} answers {drive}, alone: {}", node.name(), answered.is_alone()));
                let mut seen = seen.lock().unwrap();
                seen.alone += usize::from(answered.is_alone());
                return Some((node, answered));
            }
            Ok(Err(NodeError::Desk(DeskError::Key(KeyError::KeyRetired { state, .. })))) => {
                // A report that came twice, or later than a newer key's.
                assert!(state != KeyState::Ready && state != KeyState::Generated, "{state}");
                return None;
            }
            // A node that is cut off need not know the key; another may.
            Ok(Err(_)) | Err(_) => {}
        }
    }
    cluster.trace.note(format_args!("nobody answers {drive}"));
    seen.lock().unwrap().refused += 1;
    None
}

/// The same for a key: what is given out is opened, and held against all that was given out before.
async fn given(
    cluster: &Cluster,
    seen: &Mutex<Seen>,
    drive: &capstan_keys::Name,
    operation: Operation,
    request: [u8; 16],
    random: &mut Seeded,
) -> Option<KeyTag> {
    let volser = operation.volser().unwrap().clone();
    let begins = matches!(operation, Operation::Begin { .. });
    let (node, answered) = ask(cluster, seen, drive, operation, request, random).await?;
    let Answer::Key(record) = answered.answer else { panic!("no key was answered") };
    let key = node.open(&record).unwrap();
    let tag = key.tag();
    cluster.trace.note(format_args!("{drive} has key {tag} for {volser}"));
    assert_eq!(*record.volser(), volser, "the key of another volume");
    // Stored twice before it was issued: another node's disk has it by now, in the pool or issued.
    let holders = cluster.seats.iter().filter(|seat| seat.name != *node.name() && seat.holds(&tag)).count();
    assert!(holders > 0, "key {tag} was issued by {} and is nowhere else", node.name());
    let mut seen = seen.lock().unwrap();
    let known = seen.keys.insert(tag, (volser.clone(), *key.expose()));
    match known {
        Some((owner, bytes)) => {
            assert_eq!(owner, volser, "key {tag} was given out for two volumes");
            assert_eq!(bytes, *key.expose());
            assert!(!begins, "key {tag} was given out to begin {volser} twice");
        }
        None => {
            assert!(seen.keys.values().filter(|(_, bytes)| bytes == key.expose()).count() == 1, "one key, two tags");
        }
    }
    Some(tag)
}

async fn read(cluster: &Cluster, seen: &Mutex<Seen>, drive: &capstan_keys::Name, volser: &Volser, tag: &KeyTag) {
    for seat in &cluster.seats {
        let Some(node) = seat.node() else { continue };
        // A node that is cut off need not know the key.
        let Ok((_, key, _)) = node.look_up(drive, drive, volser, tag).await else { continue };
        let mut seen = seen.lock().unwrap();
        seen.read += 1;
        if let Some((owner, bytes)) = seen.keys.get(tag) {
            assert_eq!((owner, bytes), (volser, key.expose()));
        }
    }
}

/// Everything that was given out and not destroyed is known to every node, as it was given out.
pub(crate) async fn check(cluster: &Cluster, seen: &Seen) {
    for seat in &cluster.seats {
        let node = seat.node().unwrap();
        for (tag, (volser, bytes)) in &seen.keys {
            let drive = name("auditor");
            let lost = |why: &str| -> ! { panic!("node {} lost key {tag} of {volser}: {why}", seat.name) };
            if node.view(|view| view.key(tag).is_none()) {
                lost("its copy does not have it");
            }
            let read = node.look_up(&drive, &drive, volser, tag).await;
            let (record, key, _) = read.unwrap_or_else(|error| lost(&error.to_string()));
            assert_eq!(key.expose(), bytes);
            assert_eq!(record.volser(), volser);
        }
        // And of all keys of the ledger none is of the pool still.
        node.view(|view| {
            for kma in ["a", "b", "c"] {
                for (tag, _, _) in view.ledger().pool(&name(kma)) {
                    assert!(view.ledger().key(tag).is_none(), "key {tag} is issued and in the pool");
                }
            }
        });
    }
}
