//! What the ledger says, decoded: the state that every decision is made on.
//!
//! A state is made from a replica's records and kept up to date with each commit. It holds wrapped keys and no others.
//! Each record has a [`Mark`]: the commit that put it there, which a transaction that rests on it expects, and how
//! often it was changed, which never goes back: a record that is older than the one known is refused, whoever brings
//! it.
//!
//! What a node that is cut off has decided is no part of it: it lies [`Apart`], volume by volume, until the ledger has
//! taken it in. A [`View`] is both, one over the other.

mod decoded;
mod kept;
mod pool;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use capstan_format::{FormatError, KeyTag, Volser};
use capstan_keys::{DataUnit, Holdings, IssuedKey, KeyPlace, KeyRecord, KeyState, Name, Realm, RealmRecord};
use thiserror::Error;

use self::decoded::{Said, decode};
use self::pool::DrawnKeys;
use crate::kmip::{ObjectError, Objects};
use crate::path::{Path, RECOVERED};
use crate::record::{GroupRecord, IssuedRecord, KmaRecord, PoolKey, RemovedKma, is_unconfirmed};

pub use self::pool::Half;
pub use crate::mark::Mark;

/// Why a record is not believed.
#[derive(Debug, Error)]
pub enum StateError {
    /// Peer or attacker: somebody put an older version of a record back.
    #[error(
        "the record {path} went back to its change {found} after change {known}: the ledger was put back to an earlier state. \
         It is not believed; restore the cluster by a ceremony (`keyd restore`), or find who writes to its ledger"
    )]
    WentBack {
        /// The record.
        path: String,
        /// The change that was known.
        known: u64,
        /// The one that came.
        found: u64,
    },
    /// Peer: sealed by this cluster, and not readable.
    #[error("the record {path} cannot be read")]
    Record {
        /// The record.
        path: String,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// Peer: sealed by this cluster, and not readable.
    #[error("the record {path} cannot be read")]
    Json {
        /// The record.
        path: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// Peer: sealed by this cluster, and not readable.
    #[error("the record {path} cannot be read")]
    Object {
        /// The record.
        path: String,
        /// What is wrong with it.
        #[source]
        source: ObjectError,
    },
}

impl StateError {
    /// The record.
    pub fn path(&self) -> &str {
        match self {
            Self::WentBack { path, .. }
            | Self::Record { path, .. }
            | Self::Json { path, .. }
            | Self::Object { path, .. } => path,
        }
    }
}

struct Marked<T> {
    record: T,
    mark: Mark,
}

/// A record that was decoded, and is not part of a state yet: of many of them each is decoded for itself.
pub struct Decoded {
    path: Path,
    mark: Mark,
    said: Said,
}

impl Decoded {
    /// Reads what a commit put there.
    pub fn read(path: &str, mark: Mark, plaintext: &[u8]) -> Result<Self, StateError> {
        let path = Path::parse(path);
        let said = decode(&path, plaintext)?;
        Ok(Self { path, mark, said })
    }

    /// The commit that has it.
    pub fn revision(&self) -> i64 {
        self.mark.revision
    }
}

/// The ledger, decoded. Keys are in the order of their tags, and volumes in that of their barcodes: so whoever looks at
/// all of them can do it in slices.
#[derive(Default)]
pub struct LedgerState {
    realm: Realm,
    /// Boxed: the nodes of a tree have room for more than they hold.
    keys: BTreeMap<KeyTag, Box<Marked<IssuedRecord>>>,
    /// How many of them are in each state, in the order of [`KeyState::ALL`].
    keys_in: [usize; KeyState::ALL.len()],
    /// Those that lost nodes gave out, and of which nobody has confirmed yet of which group they are.
    unconfirmed: BTreeSet<KeyTag>,
    /// The newest commit that changed one of them, or an object of KMIP clients.
    keys_changed: i64,
    /// The newest commit that left a key's record without the key.
    keys_destroyed: i64,
    groups: BTreeMap<Name, GroupRecord>,
    pools: BTreeMap<Name, DrawnKeys>,
    kmas: BTreeMap<Name, KmaRecord>,
    held: BTreeMap<Name, i64>,
    kmip: Objects,
    /// Everything that only its own room decodes.
    others: BTreeMap<String, Marked<Vec<u8>>>,
    units: HashMap<Volser, Mark>,
    /// The marks of policies, groups, agents, nodes.
    marks: HashMap<String, Mark>,
    /// Records that the cluster has said are no more.
    buried: HashMap<String, Mark>,
    /// Records that are as they were known here: the ledger has them no more, or others in their place.
    kept: HashSet<String>,
    /// Records that could never be read here.
    unreadable: HashSet<String>,
    /// Each name that a key has, once.
    names: HashSet<Name>,
}

impl LedgerState {
    /// Takes in what a commit put there. A version that the state has already, or that an older commit brought, changes
    /// nothing.
    pub fn put(&mut self, path: &str, mark: Mark, plaintext: &[u8]) -> Result<(), StateError> {
        Decoded::read(path, mark, plaintext).and_then(|decoded| self.put_decoded(decoded))
    }

    /// The same of a record that was decoded before.
    pub fn put_decoded(&mut self, Decoded { path, mark, said }: Decoded) -> Result<(), StateError> {
        let known = self.mark(&path);
        if mark.revision <= known.revision {
            return Ok(());
        }
        if mark.change <= known.change {
            let (known, found) = (known.change, mark.change);
            return Err(StateError::WentBack { path: path.to_string(), known, found });
        }
        if !self.buried.is_empty() || !self.unreadable.is_empty() || !self.kept.is_empty() {
            let path = path.to_string();
            self.buried.remove(&path);
            self.unreadable.remove(&path);
            self.kept.remove(&path);
        }
        self.take_in(path, mark, said);
        Ok(())
    }

    /// Takes out what is no more: its mark goes with it. Whether to believe that, [`crate::family`] says.
    pub fn remove(&mut self, path: &str) {
        match &Path::parse(path) {
            // What was issued stays on record for good, and so do policies and groups.
            Path::Key(_) | Path::Unit(_) | Path::Policy(_) | Path::Group(_) => {}
            Path::Agent(name) => {
                self.realm.remove_agent(name);
                self.marks.remove(path);
            }
            Path::Pool { kma, tag } => {
                if let Some(pool) = self.pools.get_mut(kma) {
                    pool.remove(tag);
                }
            }
            Path::Kma(name) => {
                self.kmas.remove(name);
                self.marks.remove(path);
            }
            Path::Held(name) => {
                self.held.remove(name);
                self.marks.remove(path);
            }
            Path::Kmip(uid) => self.kmip.remove(uid),
            Path::Other(path) => {
                self.others.remove(path);
            }
        }
    }

    fn take_in(&mut self, path: Path, mark: Mark, said: Said) {
        match (path, said) {
            (Path::Key(tag), Said::Key(mut record)) => {
                let IssuedRecord { issued, origin, .. } = &mut *record;
                for name in [&mut issued.group, &mut origin.agent, &mut origin.kma] {
                    share(&mut self.names, name);
                }
                let (volser, key) = (record.volser().clone(), record.issued.clone());
                self.realm.put(RealmRecord::Issue { volser, key });
                self.pools.values_mut().for_each(|pool| pool.issue(&tag));
                self.keys_changed = self.keys_changed.max(mark.revision);
                if record.stored.wrapped.is_none() {
                    self.keys_destroyed = self.keys_destroyed.max(mark.revision);
                }
                let now = state_index(&record);
                match is_unconfirmed(&record.issued.group) && record.stored.wrapped.is_some() {
                    true => self.unconfirmed.insert(tag),
                    false => self.unconfirmed.remove(&tag),
                };
                let volser = record.volser().clone();
                if let Some(before) = self.keys.insert(tag, Box::new(Marked { record: *record, mark })) {
                    self.keys_in[state_index(&before.record)] -= 1;
                    if *before.record.volser() != volser {
                        self.realm.remove_issue(before.record.volser(), &tag);
                    }
                }
                self.keys_in[now] += 1;
            }
            (Path::Unit(volser), Said::Realm(record)) => {
                self.realm.put(record);
                self.units.insert(volser, mark);
            }
            (path @ (Path::Policy(_) | Path::Agent(_)), Said::Realm(record)) => {
                self.realm.put(record);
                self.marks.insert(path.to_string(), mark);
            }
            (Path::Group(name), Said::Group(record)) => {
                self.realm.put(RealmRecord::Group(record.group.clone()));
                self.marks.insert(Path::Group(name.clone()).to_string(), mark);
                self.groups.insert(name, record);
            }
            (Path::Pool { kma, tag }, Said::Pool(record)) => {
                let is_issued = self.keys.contains_key(&tag);
                self.pools.entry(kma).or_default().put(tag, Marked { record, mark }, is_issued);
            }
            (Path::Kma(name), Said::Kma(record)) => {
                self.marks.insert(Path::Kma(name.clone()).to_string(), mark);
                self.kmas.insert(name, record);
            }
            (Path::Held(name), Said::Held(revision)) => {
                self.marks.insert(Path::Held(name.clone()).to_string(), mark);
                self.held.insert(name, revision);
            }
            (Path::Kmip(_), Said::Kmip(record)) => {
                self.keys_changed = self.keys_changed.max(mark.revision);
                self.kmip.put(*record, mark);
            }
            (Path::Other(name), Said::Other(record)) => {
                if name.starts_with(RECOVERED) {
                    // A key that is to be had back like any other.
                    self.keys_changed = self.keys_changed.max(mark.revision);
                }
                self.others.insert(name, Marked { record, mark });
            }
            (path, _) => unreachable!("{path} was decoded as what it is"),
        }
    }

    /// The version of a record that the ledger has.
    pub fn mark(&self, path: &Path) -> Mark {
        match path {
            Path::Key(tag) => self.keys.get(tag).map(|key| key.mark),
            Path::Unit(volser) => self.units.get(volser).copied(),
            Path::Pool { kma, tag } => self.pools.get(kma).and_then(|pool| pool.mark(tag)),
            Path::Kmip(uid) => self.kmip.mark(uid),
            Path::Other(path) => self.others.get(path).map(|other| other.mark),
            Path::Policy(_) | Path::Group(_) | Path::Agent(_) | Path::Kma(_) | Path::Held(_) => {
                self.marks.get(&path.to_string()).copied()
            }
        }
        .or_else(|| if self.buried.is_empty() { None } else { self.buried.get(&path.to_string()).copied() })
        .unwrap_or_default()
    }

    /// Policies, groups, agents, data units.
    pub fn realm(&self) -> &Realm {
        &self.realm
    }

    /// A key that was issued.
    pub fn key(&self, tag: &KeyTag) -> Option<&IssuedRecord> {
        self.keys.get(tag).map(|key| &key.record)
    }

    /// Every key that was issued, by tag.
    pub fn keys(&self) -> impl Iterator<Item = &IssuedRecord> {
        self.keys.values().map(|key| &key.record)
    }

    /// Those behind a tag, by tag.
    pub fn keys_after(&self, after: Option<&KeyTag>) -> impl Iterator<Item = &IssuedRecord> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(*after));
        self.keys.range((from, Bound::Unbounded)).map(|(_, key)| &key.record)
    }

    /// How many keys were issued.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The keys of which nobody has confirmed yet of which group they are, by tag; none that are destroyed.
    pub fn unconfirmed(&self) -> impl ExactSizeIterator<Item = &KeyTag> {
        self.unconfirmed.iter()
    }

    /// The keys of pools that a restore, or the removal of their node, has kept, and that no volume has named yet.
    pub fn recovered(&self) -> impl Iterator<Item = (KeyTag, PoolKey, Mark)> {
        let from = self.others.range(RECOVERED.to_owned()..).take_while(|(path, _)| path.starts_with(RECOVERED));
        from.filter_map(|(path, kept)| {
            let tag = Path::parse(path).recovered_tag().filter(|tag| !self.keys.contains_key(tag))?;
            Some((tag, PoolKey::decode(&kept.record).ok()?, kept.mark))
        })
    }

    /// The newest commit that changed a key, or an object of KMIP clients.
    pub fn keys_changed(&self) -> i64 {
        self.keys_changed
    }

    /// The newest commit that changed a key which is destroyed: no copy of such a key may be left by then.
    pub fn keys_destroyed(&self) -> i64 {
        self.keys_destroyed
    }

    /// How many keys are on record in a state: counted as they change, not now.
    pub fn keys_in(&self, state: KeyState) -> usize {
        KeyState::ALL.iter().position(|other| *other == state).map_or(0, |at| self.keys_in[at])
    }

    /// How many data units there are.
    pub fn unit_count(&self) -> usize {
        self.units.len()
    }

    /// A key group with its wrapped key.
    pub fn group(&self, name: &Name) -> Option<&GroupRecord> {
        self.groups.get(name)
    }

    /// The keys that a node has drawn and not issued, and the commits that hold them.
    pub fn pool(&self, kma: &Name) -> impl Iterator<Item = (&KeyTag, &PoolKey, Mark)> {
        self.pools.get(kma).into_iter().flat_map(DrawnKeys::iter)
    }

    /// One of those keys.
    pub fn pool_key(&self, kma: &Name, tag: &KeyTag) -> Option<&PoolKey> {
        self.pools.get(kma)?.get(tag)
    }

    /// How many of a half of a node's pool were not issued.
    pub fn pool_len(&self, kma: &Name, half: Half) -> usize {
        self.pools.get(kma).map_or(0, |pool| pool.len(half))
    }

    /// Those of a half of a node's pool that commits up to this one have brought, and that were not issued, the first
    /// in front.
    pub fn pool_up_to(&self, kma: &Name, half: Half, revision: i64) -> impl Iterator<Item = &KeyTag> {
        self.pools.get(kma).into_iter().flat_map(move |pool| pool.up_to(half, revision))
    }

    /// Those of a node's pool that commits behind this one have brought, with those commits.
    pub fn pool_behind(&self, kma: &Name, revision: i64) -> impl Iterator<Item = (&KeyTag, i64)> {
        self.pools.get(kma).into_iter().flat_map(move |pool| pool.behind(revision))
    }

    /// The nodes of the cluster, by name.
    pub fn kmas(&self) -> &BTreeMap<Name, KmaRecord> {
        &self.kmas
    }

    /// A node that was removed, and is none of the cluster since.
    pub fn removed(&self, kma: &Name) -> Option<RemovedKma> {
        let said = self.other(&Path::removed(kma).to_string()).filter(|_| !self.kmas.contains_key(kma))?;
        serde_json::from_slice(said).ok()
    }

    /// The nodes that were removed, by name.
    pub fn removed_kmas(&self) -> impl Iterator<Item = Name> {
        let names = self.others("removed/").filter_map(|(path, _)| path.strip_prefix("removed/")?.parse().ok());
        names.filter(|kma| !self.kmas.contains_key(kma))
    }

    /// How far a node holds the ledger on its own disk.
    pub fn held(&self, kma: &Name) -> i64 {
        self.held.get(kma).copied().unwrap_or(0)
    }

    /// The objects of KMIP clients.
    pub fn kmip(&self) -> &Objects {
        &self.kmip
    }

    /// One of the records that only their own rooms decode.
    pub fn other(&self, path: &str) -> Option<&[u8]> {
        self.others.get(path).map(|other| other.record.as_slice())
    }

    /// What only its own room decodes: the records whose paths begin with `prefix`.
    pub fn others<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let from = self.others.range(prefix.to_owned()..);
        let records = from.map(|(path, other)| (path.as_str(), other.record.as_slice()));
        records.take_while(move |(path, _)| path.starts_with(prefix))
    }
}

fn state_index(record: &IssuedRecord) -> usize {
    KeyState::ALL.iter().position(|state| *state == record.stored.record.state).unwrap_or_default()
}

/// The volumes that a node has decided something of while it was cut off: their units and keys as they are by that.
#[derive(Default)]
pub struct Apart {
    volumes: LedgerState,
}

/// What a decision is made on.
#[derive(Clone, Copy)]
pub struct View<'a> {
    ledger: &'a LedgerState,
    apart: Option<&'a LedgerState>,
}

impl Apart {
    /// Takes in what was decided on a view of this over a ledger. Keys of pools, policies, groups and agents are the
    /// ledger's alone.
    pub fn put(&mut self, ledger: &LedgerState, puts: &[(Path, Vec<u8>)]) -> Result<(), StateError> {
        for (path, _) in puts {
            if let Path::Unit(volser) = path
                && self.volumes.realm.unit(volser).is_none()
            {
                self.copy(ledger, volser);
            }
        }
        // A key after its volume, whose other keys were copied with it.
        let kinds = [|path: &Path| matches!(path, Path::Unit(_)), |path: &Path| matches!(path, Path::Key(_))];
        kinds.iter().try_for_each(|is_kind| {
            let mut of_kind = puts.iter().filter(|(path, _)| is_kind(path));
            of_kind.try_for_each(|(path, plaintext)| {
                self.volumes.take_in(path.clone(), Mark::default(), decode(path, plaintext)?);
                Ok(())
            })
        })
    }

    fn copy(&mut self, ledger: &LedgerState, volser: &Volser) {
        let keys = ledger.realm.unit(volser).into_iter().flat_map(|unit| &unit.keys);
        for record in keys.filter_map(|key| ledger.key(&key.tag)) {
            let said = Said::Key(Box::new(record.clone()));
            self.volumes.take_in(Path::Key(record.stored.record.tag), Mark::default(), said);
        }
    }
}

/// Puts the one copy of a name that a state keeps in the place of another.
fn share(names: &mut HashSet<Name>, name: &mut Name) {
    match names.get(name) {
        Some(kept) => *name = kept.clone(),
        None => drop(names.insert(name.clone())),
    }
}

impl<'a> View<'a> {
    /// The ledger alone.
    pub fn of(ledger: &'a LedgerState) -> Self {
        Self { ledger, apart: None }
    }

    /// The ledger, and what was decided apart from it.
    pub fn with(ledger: &'a LedgerState, apart: &'a Apart) -> Self {
        Self { ledger, apart: Some(&apart.volumes) }
    }

    /// What the ledger says.
    pub fn ledger(self) -> &'a LedgerState {
        self.ledger
    }

    /// A data unit.
    pub fn unit(self, volser: &Volser) -> Option<&'a DataUnit> {
        self.apart.and_then(|apart| apart.realm.unit(volser)).or_else(|| self.ledger.realm.unit(volser))
    }

    /// A key that was issued.
    pub fn key(self, tag: &KeyTag) -> Option<&'a IssuedRecord> {
        let known = self.ledger.key(tag);
        // What the majority has taken away is gone, whatever this node had decided before it heard of that.
        let taken =
            |record: &&IssuedRecord| matches!(record.stored.record.state, KeyState::Destroyed | KeyState::Compromised);
        known.filter(taken).or_else(|| self.apart.and_then(|apart| apart.key(tag))).or(known)
    }

    /// The keys that were issued, here and apart, by tag: those behind `after`.
    pub fn keys_after(self, after: Option<&KeyTag>) -> impl Iterator<Item = &'a IssuedRecord> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(*after));
        let range = (from, Bound::Unbounded);
        let mut ledger = self.ledger.keys.range(range).map(|(tag, _)| tag).peekable();
        let mut apart =
            self.apart.into_iter().flat_map(move |apart| apart.keys.range(range).map(|(tag, _)| tag)).peekable();
        std::iter::from_fn(move || {
            let next = match (ledger.peek().copied(), apart.peek().copied()) {
                (Some(here), Some(there)) => here.min(there),
                (here, there) => here.or(there)?,
            };
            ledger.next_if_eq(&next);
            apart.next_if_eq(&next);
            self.key(next)
        })
    }

    /// Keys that were issued apart from the ledger, which does not know of it yet.
    pub fn issued_apart(self) -> impl Iterator<Item = &'a KeyTag> {
        let apart = self.apart.into_iter().flat_map(|apart| apart.keys.keys());
        apart.filter(move |tag| !self.ledger.keys.contains_key(*tag))
    }

    /// What an operation on a volume and a key looks at.
    pub fn holdings(self, volser: Option<&Volser>, tag: Option<&KeyTag>) -> Holdings {
        let mut realm = self.ledger.realm.about(None);
        if let Some(unit) = volser.and_then(|volser| self.unit(volser)) {
            realm.put(RealmRecord::Unit(unit.clone()));
        }
        // What lies apart is of when the node was cut off: the ledger may know further keys of the volume since, and
        // the one that is named may be one of them, or another volume's. Each comes with its issue, for that says which
        // group it is of.
        let units = |state: &'a LedgerState| volser.and_then(|volser| state.realm.unit(volser));
        let of_volume =
            [self.apart.and_then(units), units(self.ledger)].into_iter().flatten().flat_map(|unit| &unit.keys);
        let mut tags: Vec<KeyTag> = Vec::new();
        for tag in of_volume.map(|key| key.tag).chain(tag.copied()) {
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        let records: Vec<_> = tags.iter().filter_map(|tag| self.key(tag)).collect();
        for record in &records {
            realm.put(RealmRecord::Issue { volser: record.volser().clone(), key: record.issued.clone() });
        }
        let keys = records.into_iter().map(|record| record.stored.clone()).collect();
        Holdings::new(KeyPlace::Cluster, realm, keys)
    }

    /// What is known of the issue of a key.
    pub fn issued(self, record: &KeyRecord) -> IssuedKey {
        self.key(&record.tag).map_or_else(|| self.ledger.realm.issued(record), |known| known.issued.clone())
    }
}

#[cfg(test)]
mod tests;
