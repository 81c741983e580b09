//! Decisions: what becomes of what was asked, on the state as it is.

use capstan_format::{KeyTag, Volser};
use capstan_keys::{
    Cartridge, DataUnit, DrawnKey, Holdings, HoldingsChanges, ImportedKey, IssuedKey, KeyError, KeyGroup, KeyRecord,
    KeyState, KeyToAppend, Name, NewKey, Policy, RealmRecord, RuleRefusal, StoredKey,
};

use super::confirmation::{claim, confirm};
use super::operation::{Adopted, Asked, Operation};
use super::{DeskError, pool};
use crate::family::{Ending, ending_of};
use crate::ledger::Transaction;
use crate::path::Path;
use crate::record::{GroupRecord, IssuedRecord, KeyOrigin, is_unconfirmed};
use crate::root::ClusterKeys;
use crate::seal::SealError;
use crate::state::{LedgerState, View};

/// Keys of one volume that were issued to begin it and not reported as used.
const UNUSED_MAX: usize = 32;

/// What was decided: the answer, and what makes it true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The answer, once the rest is committed.
    pub answer: Answer,
    /// Records as they are to be.
    pub puts: Vec<(Path, Vec<u8>)>,
    /// Records that are to be no more.
    pub removes: Vec<Path>,
    /// Records that the decision rests on beside those.
    pub rests_on: Vec<Path>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A key that is given out.
    Key(Box<IssuedRecord>),
    /// The keys that read only from here on.
    Retired(Vec<KeyTag>),
    /// The record of a key as it is now.
    Record(Box<KeyRecord>),
    /// What became of each key of another store.
    Imported(Vec<ImportedKey>),
    /// It was done.
    Done,
    /// A report of an earlier life of a volume, or of none: nothing is changed by it.
    Late,
}

impl Decided {
    /// Nothing to change.
    fn known(answer: Answer) -> Self {
        Self { answer, puts: Vec::new(), removes: Vec::new(), rests_on: Vec::new() }
    }

    /// Records as they are to be, and others that are to be no more; nothing else is answered.
    pub fn records(puts: Vec<(Path, Vec<u8>)>, removes: Vec<Path>) -> Self {
        Self { puts, removes, ..Self::known(Answer::Done) }
    }

    /// Whether there is anything to commit.
    pub fn changes_anything(&self) -> bool {
        !self.puts.is_empty() || !self.removes.is_empty()
    }

    /// The transaction that makes it true, if everything it rests on is as `state` has it.
    pub fn transaction(&self, state: &LedgerState, keys: &ClusterKeys, epoch: u32) -> Result<Transaction, SealError> {
        let mut transaction = Transaction::default();
        let mut expect = |path: &Path| {
            let expected = (path.to_string(), state.mark(path).expected());
            if !transaction.expect.contains(&expected) {
                transaction.expect.push(expected);
            }
        };
        self.puts.iter().map(|(path, _)| path).chain(&self.removes).chain(&self.rests_on).for_each(&mut expect);
        for (path, plaintext) in &self.puts {
            let change = state.mark(path).change + 1;
            let path = path.to_string();
            let sealed = keys.sealer().seal(&path, epoch, change, plaintext)?;
            transaction.put.push((path, sealed));
        }
        for path in &self.removes {
            let change = state.mark(path).change + 1;
            let path = path.to_string();
            match ending_of(&path) {
                Ending::Deletion => transaction.remove.push(path),
                Ending::Tombstone => {
                    let sealed = keys.sealer().seal_tombstone(&path, epoch, change)?;
                    transaction.put.push((path, sealed));
                }
                Ending::Never => {
                    return Err(SealError::Impossible { path, reason: "records like it are never removed" });
                }
            }
        }
        Ok(transaction)
    }
}

/// Decides what becomes of what was asked. Nothing is changed by it.
pub fn decide(view: View<'_>, keys: &ClusterKeys, asked: &Asked) -> Result<Decided, DeskError> {
    let operation = &asked.operation;
    if let Some(answer) = answered_before(view, asked) {
        Deciding { view, keys, asked }.check_answer(&answer)?;
        return Ok(Decided::known(answer));
    }
    // A key says which volume it is of where the question does not.
    let volser = operation.volser().or_else(|| Some(view.key(operation.tag()?)?.volser())).cloned();
    let mut holdings = view.holdings(volser.as_ref(), operation.tag());
    let desk = Deciding { view, keys, asked };
    let mut group = None;
    let answer = desk.operate(&mut holdings, &mut group)?;
    let changes = holdings.finish();
    let mut decided = desk.records(changes, answer, volser.as_ref())?;
    desk.rest(&mut decided, group.as_ref());
    Ok(decided)
}

/// The answer to a question that was answered already: a lost answer costs no second key.
fn answered_before(view: View<'_>, asked: &Asked) -> Option<Answer> {
    let Operation::Begin { volser, .. } = &asked.operation else { return None };
    let keys = view.unit(volser)?.keys.iter().rev();
    let issued = keys.filter_map(|key| view.key(&key.tag));
    let same = |issued: &&IssuedRecord| issued.origin.request == asked.request && issued.origin.agent == asked.by;
    issued
        .filter(same)
        .find(|issued| issued.stored.record.state == KeyState::Ready)
        .cloned()
        .map(|issued| Answer::Key(Box::new(issued)))
}

struct Deciding<'a> {
    view: View<'a>,
    keys: &'a ClusterKeys,
    asked: &'a Asked,
}

impl Deciding<'_> {
    fn operate(&self, holdings: &mut Holdings, group_used: &mut Option<Name>) -> Result<Answer, DeskError> {
        let now_ns = self.asked.now_ns;
        match &self.asked.operation {
            Operation::Begin { volser, drive, group, algorithm, draw } => {
                self.check_unused(volser)?;
                let agent = self.view.ledger().realm().agent(drive);
                let group = group.clone().unwrap_or_else(|| agent.default_group.clone());
                if is_unconfirmed(&group) {
                    return Err(RuleRefusal::GroupNotAllowed { agent: agent.name, group }.into());
                }
                let tag = holdings.begin(volser, &agent, &group, *algorithm, now_ns, |new| self.draw(*draw, new))?;
                *group_used = Some(group);
                self.given(holdings, &tag)
            }
            Operation::Append { volser, serial, drive, first, draw } => {
                self.check_confirmed(first)?;
                let agent = self.view.ledger().realm().agent(drive);
                let cartridge = Cartridge { volser, serial: serial.as_ref() };
                let key = holdings.append(cartridge, first, &agent, now_ns, |new| {
                    *group_used = Some(new.group.clone());
                    self.draw(*draw, new)
                })?;
                let tag = match key {
                    KeyToAppend::Stored(stored) => stored.record.tag,
                    KeyToAppend::Drawn { tag } => {
                        // On record before its first block: it was stored twice before it was drawn.
                        holdings.activate(volser, &tag, now_ns)?;
                        tag
                    }
                };
                self.given(holdings, &tag)
            }
            // The volume was begun anew since: a report that was held up says nothing of what it holds now.
            Operation::Activate { volser, tag, .. } if holdings.is_of_earlier_life(volser, tag) => Ok(Answer::Late),
            Operation::Activate { volser, serial, tag } => {
                let cartridge = Cartridge { volser, serial: serial.as_ref() };
                Ok(Answer::Retired(holdings.activate(cartridge, tag, now_ns)?))
            }
            Operation::Carried { volser, serial, first } => {
                let cartridge = Cartridge { volser, serial: serial.as_ref() };
                holdings.carried(cartridge, first, now_ns)?;
                Ok(Answer::Done)
            }
            Operation::Seen { volser, serial } => {
                holdings.seen(Cartridge { volser, serial: Some(serial) }, now_ns);
                Ok(Answer::Done)
            }
            Operation::End { last: None, .. } => Ok(Answer::Late),
            Operation::End { volser, last: Some(last), .. } if holdings.is_of_earlier_life(volser, last) => {
                Ok(Answer::Late)
            }
            Operation::End { volser, serial, last: Some(last) } => {
                holdings.life_ended(Cartridge { volser, serial: serial.as_ref() }, last, now_ns)?;
                Ok(Answer::Done)
            }
            Operation::Adopt(adopted) => {
                let Adopted { volser, tag, wrapped, group, algorithm, issued_for, created_ns } = &**adopted;
                // What an agent had claimed the node's own journal knows better, unless somebody has done something
                // with the key since.
                let is_claimed = self.view.key(tag).is_some_and(|known| {
                    is_unconfirmed(&known.issued.group) && known.stored.record.state == KeyState::ProcessOnly
                });
                if let Ok(known) = holdings.named(tag)
                    && known.volser != *volser
                    && !is_claimed
                {
                    // Given out twice, by a node whose disk was put back: it must not pass for done.
                    let (tag, volser, owner) = (*tag, volser.clone(), known.volser.clone());
                    return Err(KeyError::KeyOfOtherVolume { tag, volser, owner }.into());
                }
                if holdings.named(tag).is_err() || is_claimed {
                    *group_used = Some(group.clone());
                    let new = NewKey { group: group.clone(), algorithm: *algorithm };
                    let (tag, wrapped, created_ns) = (*tag, *wrapped, *created_ns);
                    holdings.adopt(
                        volser,
                        *issued_for,
                        &new,
                        now_ns,
                        DrawnKey { tag, wrapped, state: KeyState::Ready, created_ns },
                    );
                }
                self.issued(holdings, tag)
            }
            Operation::Claim { volser, tag, group_key } => {
                *group_used = claim(self.view, self.keys, holdings, (volser, tag, group_key))?;
                Ok(Answer::Done)
            }
            Operation::Confirm { volser, tag, group } => {
                *group_used = confirm(self.view, self.keys, holdings, (volser, tag, group))?;
                Ok(Answer::Done)
            }
            Operation::Revoke { tag, why } => {
                let agent = self.view.ledger().realm().agent(&self.asked.by);
                Ok(Answer::Record(Box::new(holdings.revoke(tag, *why, &agent, now_ns)?)))
            }
            Operation::Compromise { tag } => Ok(Answer::Record(Box::new(holdings.compromise(tag, now_ns)?))),
            Operation::Destroy { tag } => Ok(Answer::Record(Box::new(holdings.destroy(tag, now_ns)?))),
            Operation::Import { group, keys, .. } => {
                *group_used = Some(group.clone());
                let take_in = |key: &StoredKey| {
                    let (tag, volser) = (key.record.tag, key.record.volser.clone());
                    // A key may be known as another volume's, which is not among these holdings.
                    if let Some(known) = self.view.key(&tag).map(IssuedRecord::volser).filter(|known| **known != volser)
                    {
                        return Err(KeyError::KeyOfOtherVolume { tag, volser, owner: known.clone() });
                    }
                    let outcome = holdings.import(key.clone(), group, now_ns)?;
                    Ok(ImportedKey { tag, volser, outcome })
                };
                Ok(Answer::Imported(keys.iter().map(take_in).collect::<Result<_, _>>()?))
            }
            Operation::PutPolicy { policy: Policy { name, .. }, .. }
            | Operation::PutGroup { group: KeyGroup { name, .. }, .. }
                if is_unconfirmed(name) =>
            {
                let why = "it has the keys of lost nodes that nobody has confirmed yet";
                Err(RuleRefusal::Exists { what: "key group", name: name.clone(), why }.into())
            }
            Operation::PutPolicy { policy, known } => done(holdings.put_policy(policy.clone(), *known)),
            Operation::PutGroup { group, .. } => done(holdings.put_group(group.clone())),
            Operation::PutAgent(agent) => done(holdings.put_agent(agent.clone())),
            Operation::ExtendReading { volser, until_ns } => done(holdings.extend_reading(volser, *until_ns)),
        }
    }

    /// A volume that is begun again and again, and never reported as begun, is a drive that goes wrong: its keys would
    /// fill the cluster.
    fn check_unused(&self, volser: &Volser) -> Result<(), RuleRefusal> {
        let issued = self.view.unit(volser).into_iter().flat_map(|unit| &unit.keys);
        let records = issued.filter_map(|key| self.view.key(&key.tag));
        match records.filter(|record| record.stored.record.state == KeyState::Ready).count() {
            UNUSED_MAX.. => Err(RuleRefusal::BegunInVain { volser: volser.clone() }),
            _ => Ok(()),
        }
    }

    /// What was answered before is answered again to whoever may still have it.
    fn check_answer(&self, answer: &Answer) -> Result<(), RuleRefusal> {
        let (Answer::Key(record), Operation::Begin { drive, .. }) = (answer, &self.asked.operation) else {
            return Ok(());
        };
        let (agent, group) = (self.view.ledger().realm().agent(drive), record.issued.group.clone());
        if !agent.may_use(&group) {
            return Err(RuleRefusal::GroupNotAllowed { agent: agent.name, group });
        }
        self.check_asker(&group)
    }

    /// Whether a key may be gone on with: not before somebody has confirmed of which group it is.
    fn check_confirmed(&self, tag: &KeyTag) -> Result<(), RuleRefusal> {
        match self.view.key(tag) {
            Some(known) if is_unconfirmed(&known.issued.group) && known.stored.wrapped.is_some() => {
                Err(RuleRefusal::Unconfirmed { volser: known.volser().clone(), tag: *tag })
            }
            _ => Ok(()),
        }
    }

    /// Whoever asks for a drive is an agent as well, and may use no group that it was not given itself.
    fn check_asker(&self, group: &Name) -> Result<(), RuleRefusal> {
        let asker = self.view.ledger().realm().agent(&self.asked.by);
        if asker.may_use(group) {
            return Ok(());
        }
        Err(RuleRefusal::GroupNotAllowed { agent: asker.name, group: group.clone() })
    }

    /// Takes a key out of the pool, under the key of its group.
    fn draw(&self, tag: Option<KeyTag>, new: &NewKey) -> Result<DrawnKey, DeskError> {
        let kma = &self.asked.kma;
        let tag = tag.ok_or_else(|| DeskError::PoolEmpty { kma: kma.clone() })?;
        let unusable = || DeskError::PoolKey { kma: kma.clone(), tag };
        let (_, key, _) = self.view.ledger().pool(kma).find(|(other, ..)| **other == tag).ok_or_else(unusable)?;
        let opened = pool::open_pool_key(self.keys, tag, new.algorithm, &key.wrapped)?.ok_or_else(unusable)?;
        let group = self
            .view
            .ledger()
            .group(&new.group)
            .ok_or_else(|| RuleRefusal::UnknownGroup { group: new.group.clone() })?;
        let wrapped = self.keys.group_key(&new.group, &group.wrapped)?.wrap(&opened)?;
        Ok(DrawnKey { tag, wrapped, state: KeyState::Ready, created_ns: key.created_ns })
    }

    /// The answer that gives a key to whoever asked.
    fn given(&self, holdings: &Holdings, tag: &KeyTag) -> Result<Answer, DeskError> {
        self.check_asker(&holdings.issued(tag)?.group)?;
        self.issued(holdings, tag)
    }

    fn issued(&self, holdings: &Holdings, tag: &KeyTag) -> Result<Answer, DeskError> {
        let stored = holdings.wrapped(tag)?.clone();
        Ok(Answer::Key(Box::new(self.record(stored, holdings.issued(tag)?))))
    }

    fn record(&self, stored: StoredKey, issued: IssuedKey) -> IssuedRecord {
        let known = self.view.key(&stored.record.tag);
        // Who asked for a key, and who gave it, a journal knows better than the drive that met it first.
        let is_claim = |known: &&IssuedRecord| {
            matches!(self.asked.operation, Operation::Adopt(_)) && is_unconfirmed(&known.issued.group)
        };
        let known = known.filter(|known| !is_claim(known)).map(|known| known.origin.clone());
        let Asked { request, by, kma, .. } = self.asked;
        let origin = known.unwrap_or_else(|| KeyOrigin { request: *request, agent: by.clone(), kma: kma.clone() });
        IssuedRecord { stored, issued, origin }
    }

    /// The records that change: a key and its issue are one, and a volume's data unit is written whatever changes of
    /// it.
    fn records(&self, changes: HoldingsChanges, answer: Answer, volser: Option<&Volser>) -> Result<Decided, DeskError> {
        let mut decided = Decided::known(answer);
        let mut keys: Vec<(StoredKey, Option<IssuedKey>)> = changes.keys.into_iter().map(|key| (key, None)).collect();
        let mut unit = None;
        for record in changes.realm {
            match record {
                RealmRecord::Issue { key, .. } => {
                    match keys.iter_mut().find(|(stored, _)| stored.record.tag == key.tag) {
                        Some((_, issued)) => *issued = Some(key),
                        None => {
                            if let Some(known) = self.view.key(&key.tag) {
                                keys.push((known.stored.clone(), Some(key)));
                            }
                        }
                    }
                }
                RealmRecord::Unit(changed) => unit = Some(changed),
                RealmRecord::Policy(policy) => {
                    decided.puts.push((Path::Policy(policy.name.clone()), RealmRecord::Policy(policy).encode()));
                }
                RealmRecord::Group(group) => {
                    if let Operation::PutGroup { wrapped, .. } | Operation::Claim { group_key: wrapped, .. } =
                        &self.asked.operation
                    {
                        // A group that is there keeps its key.
                        let wrapped = self.view.ledger().group(&group.name).map_or(*wrapped, |known| known.wrapped);
                        decided.puts.push((Path::Group(group.name.clone()), GroupRecord { group, wrapped }.encode()));
                    }
                }
                RealmRecord::Agent(agent) => {
                    decided.puts.push((Path::Agent(agent.name.clone()), RealmRecord::Agent(agent).encode()));
                }
            }
        }
        let unit = unit.or_else(|| {
            let known = volser.filter(|_| !keys.is_empty()).and_then(|volser| self.view.unit(volser));
            known.map(|known| DataUnit { keys: Vec::new(), ..known.clone() })
        });
        if let Some(unit) = unit {
            decided.puts.push((Path::Unit(unit.volser.clone()), RealmRecord::Unit(unit).encode()));
        }
        for (stored, issued) in keys {
            let tag = stored.record.tag;
            let issued = issued.unwrap_or_else(|| self.view.issued(&stored.record));
            decided.puts.push((Path::Key(tag), self.record(stored, issued).encode()));
            // A key that is issued leaves the pool in the same commit.
            let from_pool = Path::Pool { kma: self.asked.kma.clone(), tag };
            if self.view.ledger().mark(&from_pool).revision != 0 {
                decided.removes.push(from_pool);
            }
            // One that was set aside, for nobody knew that it was issued, is known now: no second record of it stays.
            let set_aside = Path::recovered(&tag);
            if self.view.ledger().mark(&set_aside).revision != 0 {
                decided.removes.push(set_aside);
            }
        }
        Ok(decided)
    }

    /// What else must be as it was.
    fn rest(&self, decided: &mut Decided, group: Option<&Name>) {
        if !decided.changes_anything() {
            return;
        }
        if let Operation::Revoke { .. } = &self.asked.operation {
            decided.rests_on.push(Path::Agent(self.asked.by.clone()));
        }
        if let Operation::Begin { drive, .. } | Operation::Append { drive, .. } = &self.asked.operation {
            decided.rests_on.extend([Path::Agent(drive.clone()), Path::Agent(self.asked.by.clone())]);
        }
        if let Some(group) = group {
            decided.rests_on.push(Path::Group(group.clone()));
            let realm = self.view.ledger().realm();
            if let Ok(policy) = realm.policy_of(group) {
                let path = Path::Policy(policy.name.clone());
                match realm.is_used(&policy.name) {
                    true => decided.rests_on.push(path),
                    // From its first use on a policy stays as it is. To rest on it would not do: whoever changes it at
                    // this moment rests on the policy as well, and sees no use of it. So the first use writes it, as it
                    // is, and one of the two comes too late.
                    false => decided.puts.push((path, RealmRecord::Policy(policy.clone()).encode())),
                }
            }
        }
    }
}

fn done(result: Result<(), KeyError>) -> Result<Answer, DeskError> {
    result?;
    Ok(Answer::Done)
}
