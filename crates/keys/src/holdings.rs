//! What may be done with keys, decided on what is known of them.
//!
//! An operation is given [`Holdings`]: the realm and the records of the keys it concerns, all of one moment. It
//! decides, and what it decided stands in [`Holdings::finish`] as records to be written. Whoever keeps the records
//! writes them, as a whole or not at all: [`SealedStore`](crate::SealedStore) within a transaction on its file, a
//! cluster by compare-and-set on its ledger. So one machine and a cluster live by the same code.
//!
//! ```text
//!   records --> Holdings --operation(now)--> Changes --> written, if the records are still those
//! ```
//! Holdings need not be everything: for an operation on a volume they are the realm without other volumes, that
//! volume's keys, and those that are named. Nothing here opens an envelope; where a key must be drawn, the caller draws
//! it.

use capstan_format::{Algorithm, KeyTag, Volser};

use crate::lifecycle::KeyEvent;
use crate::realm::RealmRecord;
use crate::record::StoredKey;
use crate::{
    Agent, AppendKey, Cartridge, DataUnit, ImportOutcome, IssuedKey, KeyError, KeyGroup, KeyPlace, KeyRecord, KeyState,
    KeyUse, KnownPolicy, Name, NewKey, Policy, Realm, Revocation, RuleRefusal, SeenCartridges,
};

/// Realm and keys at one moment, as far as an operation looks at them.
pub struct Holdings {
    place: KeyPlace,
    realm: Realm,
    keys: Vec<StoredKey>,
    changes: HoldingsChanges,
}

/// What is to be written: the records as they are to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldingsChanges {
    /// Keys.
    pub keys: Vec<StoredKey>,
    /// Policies, groups, agents, data units, issues.
    pub realm: Vec<RealmRecord>,
}

/// A key that was drawn to be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnKey {
    /// Its public name.
    pub tag: KeyTag,
    /// Itself, wrapped for those who keep the records.
    pub wrapped: crate::WrappedKey,
    /// [`KeyState::Generated`], or [`KeyState::Ready`] if it is proved already that it is stored where it can be had
    /// back.
    pub state: KeyState,
    /// When it was drawn.
    pub created_ns: i64,
}

/// The key that a volume is appended to with.
pub enum KeyToAppend {
    /// One that it has.
    Stored(StoredKey),
    /// One that was drawn for it, which is not in force before [`Holdings::activate`].
    Drawn {
        /// Its public name.
        tag: KeyTag,
    },
}

impl Holdings {
    /// What is known. `keys` stand in the order in which they came to be known; `place` is named where one is missing.
    pub fn new(place: KeyPlace, realm: Realm, keys: Vec<StoredKey>) -> Self {
        Self { place, realm, keys, changes: HoldingsChanges::default() }
    }

    /// What the operations decided.
    pub fn finish(self) -> HoldingsChanges {
        self.changes
    }

    /// Issues a new key of a group for a volume that is about to be written from the beginning of tape. The older ones
    /// stay in force until it is activated.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the rules forbid it; else what `draw` fails with.
    pub fn begin<E: From<KeyError>>(
        &mut self,
        volser: &Volser,
        agent: &Agent,
        group: &Name,
        algorithm: Algorithm,
        now_ns: i64,
        draw: impl FnOnce(&NewKey) -> Result<DrawnKey, E>,
    ) -> Result<KeyTag, E> {
        let new = self.realm.key_to_begin(agent, group, algorithm).map_err(KeyError::from)?;
        let drawn = draw(&new)?;
        Ok(self.issue(volser, KeyUse::Begin, &new, now_ns, drawn))
    }

    /// Takes in a key that was issued where this was not known, whatever the rules say of it by now: data lie under it.
    pub fn adopt(&mut self, volser: &Volser, issued_for: KeyUse, new: &NewKey, issued_ns: i64, drawn: DrawnKey) {
        self.issue(volser, issued_for, new, issued_ns, drawn);
    }

    /// Takes in a key of another store, which joins `group`; its policy's periods run from when it was drawn. `key` is
    /// wrapped for those who keep the records. A key that is known keeps its record; one that was destroyed stays so;
    /// one that was filling its volume goes on doing so, unless that is filled with another by now. It may be repeated.
    ///
    /// # Errors
    /// [`KeyError::Refused`]; [`KeyError::KeyOfOtherVolume`] and [`KeyError::KeyOfOtherCipher`] where what is
    /// known contradicts it.
    pub fn import(&mut self, key: StoredKey, group: &Name, now_ns: i64) -> Result<ImportOutcome, KeyError> {
        self.realm.check_import(group)?;
        let (tag, volser) = (key.record.tag, key.record.volser.clone());
        if let Some(known) = self.keys.iter().map(|known| &known.record).find(|known| known.tag == tag) {
            if known.volser != volser {
                return Err(KeyError::KeyOfOtherVolume { tag, volser, owner: known.volser.clone() });
            }
            if known.algorithm != key.record.algorithm {
                return Err(KeyError::KeyOfOtherCipher { tag, known: known.algorithm, said: key.record.algorithm });
            }
            return Ok(match known.destroyed_ns {
                Some(destroyed_ns) => ImportOutcome::StaysDestroyed { destroyed_ns },
                None => ImportOutcome::AlreadyPresent,
            });
        }
        let fills = |known: &KeyRecord| known.volser == volser && known.state == KeyState::ProtectAndProcess;
        let mut key = StoredKey { record: KeyRecord { imported_ns: Some(now_ns), ..key.record }, ..key };
        if self.keys.iter().any(|known| fills(&known.record)) {
            key.advance(KeyEvent::Superseded, now_ns)?;
        }
        // The group's policy holds from when the key was drawn: what is said is how it stands now, which may be past
        // its periods.
        let (stored, drawn_ns) = (key.record.state, key.record.created_ns);
        let state = self.realm.policy_of(group)?.effective_state(stored, drawn_ns, now_ns);
        self.put_on_record(key, group);
        Ok(ImportOutcome::Added(state))
    }

    /// Puts a key on record as one of its volume and of a group, whatever was known of it: its policy's periods run
    /// from when it was drawn.
    pub fn put_on_record(&mut self, key: StoredKey, group: &Name) {
        let KeyRecord { tag, ref volser, created_ns: issued_ns, .. } = key.record;
        let volser = volser.clone();
        self.put_key(key);
        let unit = self.realm.unit(&volser).cloned();
        let unit = unit.unwrap_or_else(|| DataUnit::first_seen(volser.clone(), issued_ns));
        let (first_seen_ns, last_seen_ns) = (unit.first_seen_ns.min(issued_ns), unit.last_seen_ns.max(issued_ns));
        self.put(RealmRecord::unit(DataUnit { first_seen_ns, last_seen_ns, ..unit }));
        let (issued_for, group) = (KeyUse::Elsewhere, group.clone());
        let issued = IssuedKey { tag, group, issued_for, issued_ns, dropped_ns: None };
        self.put(RealmRecord::Issue { volser, key: issued });
    }

    /// The key to append to a volume with, whose first block names the key `first`: that one, or the one that was put
    /// in force for it since, while its encryption period lasts; else a new one of the same group.
    ///
    /// A first key that is still `ready` is activated by this: the volume proves that it was begun with it, and that
    /// only the report was lost.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] and [`KeyError::KeyOfOtherVolume`] if `first` is no key of this volume;
    /// [`KeyError::KeyDestroyed`]; [`KeyError::Refused`] if the rules forbid it; else what `draw` fails with.
    pub fn append<'a, E: From<KeyError>>(
        &mut self,
        cartridge: impl Into<Cartridge<'a>>,
        first: &KeyTag,
        agent: &Agent,
        now_ns: i64,
        draw: impl FnOnce(&NewKey) -> Result<DrawnKey, E>,
    ) -> Result<KeyToAppend, E> {
        let cartridge @ Cartridge { volser, .. } = cartridge.into();
        let state = self.owned(volser, first)?.record.state;
        // It was not begun anew, whatever was reported.
        self.change_issues(volser, |key| {
            if key.is_of_life(first) {
                key.dropped_ns = None;
            }
        });
        if state == KeyState::Ready {
            self.activate(cartridge, first, now_ns)?;
        }
        let stored = self.key(&self.in_force(volser, first), Some(volser))?.clone();
        if let Some(destroyed_ns) = stored.record.destroyed_ns {
            let (tag, volser) = (stored.record.tag, volser.clone());
            return Err(KeyError::KeyDestroyed { tag, volser, destroyed_ns }.into());
        }
        let key = match self.realm.key_to_append(agent, &stored.record, now_ns).map_err(KeyError::from)? {
            AppendKey::Same => KeyToAppend::Stored(stored),
            AppendKey::New(new) => {
                let drawn = draw(&new)?;
                let tag = self.issue(volser, KeyUse::Append { first: *first }, &new, now_ns, drawn);
                KeyToAppend::Drawn { tag }
            }
        };
        self.seen(cartridge, now_ns);
        Ok(key)
    }

    /// The first block of a volume was seen to name the key `first`: nothing that was said before has ended that life
    /// of it.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] and [`KeyError::KeyOfOtherVolume`] if `first` is no key of this volume.
    pub fn carried<'a>(
        &mut self,
        cartridge: impl Into<Cartridge<'a>>,
        first: &KeyTag,
        seen_ns: i64,
    ) -> Result<(), KeyError> {
        let cartridge @ Cartridge { volser, .. } = cartridge.into();
        let state = self.owned(volser, first)?.record.state;
        self.change_issues(volser, |key| {
            if key.is_of_life(first) && key.dropped_ns.is_some_and(|dropped_ns| dropped_ns <= seen_ns) {
                key.dropped_ns = None;
            }
        });
        if state == KeyState::Ready {
            self.activate(cartridge, first, seen_ns)?;
        }
        self.seen(cartridge, seen_ns);
        Ok(())
    }

    /// A volume was seen on a cartridge, and a block of it has one of its keys. Where another one is known as the
    /// volume's, that is noted for people, and nothing is refused: a serial number is what a host says.
    pub fn seen<'a>(&mut self, cartridge: impl Into<Cartridge<'a>>, now_ns: i64) {
        let Cartridge { volser, serial: Some(serial) } = cartridge.into() else { return };
        self.change_cartridges(volser, |cartridges| cartridges.seen_on(serial, now_ns));
    }

    /// A key to read with. Whether the policy lets it be given out is asked after its envelope was opened: a record
    /// that was altered must not be what forbids it.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key.
    pub fn reading(&self, volser: &Volser, tag: &KeyTag) -> Result<&StoredKey, KeyError> {
        self.key(tag, Some(volser))
    }

    /// Whether a key may be given out to read with.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the agent may not use the group, or the cryptoperiod is over.
    pub fn check_reading(&self, agent: &Agent, record: &KeyRecord, now_ns: i64) -> Result<(), KeyError> {
        Ok(self.realm.check_reading(agent, record, now_ns)?)
    }

    /// The record of a key.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key.
    pub fn named(&self, tag: &KeyTag) -> Result<&KeyRecord, KeyError> {
        Ok(&self.key(tag, None)?.record)
    }

    /// What is known of the issue of a key.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key.
    pub fn issued(&self, tag: &KeyTag) -> Result<IssuedKey, KeyError> {
        Ok(self.realm.issued(self.named(tag)?))
    }

    /// A key, wrapped.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key.
    pub fn wrapped(&self, tag: &KeyTag) -> Result<&StoredKey, KeyError> {
        self.key(tag, None)
    }

    /// A key was stored where it can be had back, and was read back from there.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key, or that its state does not allow it.
    pub fn stored(&mut self, tag: &KeyTag, now_ns: i64) -> Result<(), KeyError> {
        self.advance(tag, KeyEvent::Stored, now_ns).map(drop)
    }

    /// The first block encrypted with a key stands on its volume: from here on that key fills the volume; its older
    /// keys only read. Gives the tags of those that this has retired.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] and [`KeyError::KeyOfOtherVolume`] if it is no key of this volume;
    /// [`KeyError::KeyDestroyed`] and [`KeyError::KeyRetired`] if its state does not allow it.
    pub fn activate<'a>(
        &mut self,
        cartridge: impl Into<Cartridge<'a>>,
        tag: &KeyTag,
        now_ns: i64,
    ) -> Result<Vec<KeyTag>, KeyError> {
        let Cartridge { volser, serial } = cartridge.into();
        let record = self.owned(volser, tag)?.record.clone();
        self.advance(tag, KeyEvent::Activated, now_ns)?;
        if self.realm.issued(&record).issued_for == KeyUse::Begin {
            // The volume holds nothing of the others any more.
            self.change_issues(volser, |key| {
                if !key.is_of_life(tag) {
                    key.dropped_ns = key.dropped_ns.or(Some(now_ns));
                }
            });
            // Said once more it says nothing of the cartridge: that may have been appended to since.
            if record.activated_ns.is_none() {
                self.change_cartridges(volser, |cartridges| cartridges.begun_on(serial, now_ns));
            }
        }
        self.supersede(volser, |other| other != tag, now_ns)
    }

    /// A volume was erased, or begun anew without encryption: its keys encrypt no more, and it holds nothing of them.
    ///
    /// # Errors
    /// A key of the volume is in a state that does not allow it.
    pub fn ended<'a>(&mut self, cartridge: impl Into<Cartridge<'a>>, now_ns: i64) -> Result<(), KeyError> {
        let Cartridge { volser, serial } = cartridge.into();
        // Which cartridge that was says what is gone.
        self.change_cartridges(volser, |cartridges| cartridges.begun_on(serial, now_ns));
        self.change_issues(volser, |key| key.dropped_ns = key.dropped_ns.or(Some(now_ns)));
        self.supersede(volser, |_| true, now_ns).map(drop)
    }

    /// The same, of the life of the volume that a key belongs to and of those before it: a volume that was begun anew
    /// since keeps its keys.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] and [`KeyError::KeyOfOtherVolume`] if `of` is no key of this volume.
    pub fn life_ended<'a>(
        &mut self,
        cartridge: impl Into<Cartridge<'a>>,
        of: &KeyTag,
        now_ns: i64,
    ) -> Result<(), KeyError> {
        let Cartridge { volser, serial } = cartridge.into();
        self.owned(volser, of)?;
        let later = self.later_lives(volser, of);
        // A report that comes late says nothing of where the volume is by now.
        if later.is_empty() {
            self.change_cartridges(volser, |cartridges| cartridges.begun_on(serial, now_ns));
        }
        self.change_issues(volser, |key| {
            if !later.contains(&key.tag) {
                key.dropped_ns = key.dropped_ns.or(Some(now_ns));
            }
        });
        self.supersede(volser, |tag| !later.contains(tag), now_ns).map(drop)
    }

    /// Whether the volume of a key holds nothing of it any more, since it was begun anew with one that was issued
    /// later, and that is in force or was.
    pub fn is_of_earlier_life(&self, volser: &Volser, tag: &KeyTag) -> bool {
        let dropped =
            self.realm.unit(volser).and_then(|unit| unit.key(tag)).is_some_and(|key| key.dropped_ns.is_some());
        let was_begun =
            |tag: &KeyTag| self.keys.iter().any(|key| key.record.tag == *tag && key.record.activated_ns.is_some());
        dropped && self.later_lives(volser, tag).iter().any(was_begun)
    }

    /// The keys of a volume's lives that began after the one of this key.
    fn later_lives(&self, volser: &Volser, of: &KeyTag) -> Vec<KeyTag> {
        let keys = || self.realm.unit(volser).into_iter().flat_map(|unit| &unit.keys);
        let first_of = |key: &IssuedKey| match key.issued_for {
            KeyUse::Append { first } => first,
            KeyUse::Begin | KeyUse::Elsewhere => key.tag,
        };
        let begun_ns = |first: KeyTag| keys().find(|key| key.tag == first).map(|key| key.issued_ns);
        let Some(own_ns) = keys().find(|key| key.tag == *of).and_then(|key| begun_ns(first_of(key))) else {
            return Vec::new();
        };
        let is_later = |key: &&IssuedKey| begun_ns(first_of(key)).is_some_and(|other_ns| other_ns > own_ns);
        keys().filter(is_later).map(|key| key.tag).collect()
    }

    /// An agent takes a key out of use, where its policy lets agents do that. Gives its record.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key; [`KeyError::Refused`] if the agent may not;
    /// [`KeyError::KeyDestroyed`] if it is gone.
    pub fn revoke(&mut self, tag: &KeyTag, why: Revocation, agent: &Agent, now_ns: i64) -> Result<KeyRecord, KeyError> {
        self.realm.check_revoking(agent, self.named(tag)?)?;
        self.advance(tag, why.event(), now_ns)
    }

    /// A key is to encrypt no more; it reads as before. Gives its record.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key; [`KeyError::KeyDestroyed`] if it is gone.
    pub fn retire(&mut self, tag: &KeyTag, now_ns: i64) -> Result<KeyRecord, KeyError> {
        self.advance(tag, KeyEvent::Retired, now_ns)
    }

    /// Somebody else may know a key: it encrypts no more, and reads what is to be moved under another. Gives its
    /// record.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key; [`KeyError::KeyDestroyed`] if it is gone.
    pub fn compromise(&mut self, tag: &KeyTag, now_ns: i64) -> Result<KeyRecord, KeyError> {
        self.advance(tag, KeyEvent::Compromised, now_ns)
    }

    /// Destroys a key: it is gone, its record stays. Gives the record; its time of destruction is earlier if it was
    /// gone before.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key.
    pub fn destroy(&mut self, tag: &KeyTag, now_ns: i64) -> Result<KeyRecord, KeyError> {
        self.advance(tag, KeyEvent::Destroyed, now_ns)
    }

    /// Makes a policy.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the policy contradicts itself, or one of this name stays as it is.
    pub fn put_policy(&mut self, policy: Policy, known: KnownPolicy) -> Result<(), KeyError> {
        self.realm.check_policy(&policy, known)?;
        self.put(RealmRecord::Policy(policy));
        Ok(())
    }

    /// Makes a key group.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if its policy is unknown, or a group of this name has another one.
    pub fn put_group(&mut self, group: KeyGroup) -> Result<(), KeyError> {
        self.realm.check_group(&group)?;
        self.put(RealmRecord::Group(group));
        Ok(())
    }

    /// Says which groups a drive may use.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if a group of it is unknown, or it may not use its own default group.
    pub fn put_agent(&mut self, agent: Agent) -> Result<(), KeyError> {
        self.realm.check_agent(&agent)?;
        self.put(RealmRecord::Agent(agent));
        Ok(())
    }

    /// Gives a volume's keys out for reading until then, though their cryptoperiod be over.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if no key was ever issued for the volume.
    pub fn extend_reading(&mut self, volser: &Volser, until_ns: i64) -> Result<(), KeyError> {
        let unit = self.realm.unit(volser).ok_or_else(|| RuleRefusal::UnknownUnit { volser: volser.clone() })?;
        let unit = DataUnit { read_until_ns: Some(until_ns), ..unit.clone() };
        self.put(RealmRecord::unit(unit));
        Ok(())
    }

    /// Records a key that was drawn, and what for.
    fn issue(&mut self, volser: &Volser, issued_for: KeyUse, new: &NewKey, now_ns: i64, drawn: DrawnKey) -> KeyTag {
        let DrawnKey { tag, wrapped, state, created_ns } = drawn;
        let record = KeyRecord {
            tag,
            volser: volser.clone(),
            algorithm: new.algorithm,
            state,
            created_ns,
            activated_ns: None,
            retired_ns: None,
            destroyed_ns: None,
            imported_ns: None,
        };
        self.put_key(StoredKey { record, wrapped: Some(wrapped) });
        let unit = self.realm.unit(volser).cloned().unwrap_or_else(|| DataUnit::first_seen(volser.clone(), now_ns));
        self.put(RealmRecord::unit(DataUnit { last_seen_ns: now_ns, ..unit }));
        let key = IssuedKey { tag, group: new.group.clone(), issued_for, issued_ns: now_ns, dropped_ns: None };
        self.put(RealmRecord::Issue { volser: volser.clone(), key });
        tag
    }

    /// The key that a volume is appended to with: `first`, or the last one that was drawn for this life of it and is in
    /// force.
    fn in_force(&self, volser: &Volser, first: &KeyTag) -> KeyTag {
        let is_in_force = |tag: &KeyTag| {
            let mut records = self.keys.iter().map(|key| &key.record);
            records.any(|key| key.tag == *tag && key.state == KeyState::ProtectAndProcess)
        };
        let keys = self.realm.unit(volser).into_iter().flat_map(|unit| &unit.keys);
        let mut of_life = keys.filter(|key| key.is_of_life(first));
        of_life.rfind(|key| is_in_force(&key.tag)).map_or(*first, |key| key.tag)
    }

    fn supersede(
        &mut self,
        volser: &Volser,
        which: impl Fn(&KeyTag) -> bool,
        now_ns: i64,
    ) -> Result<Vec<KeyTag>, KeyError> {
        let of_volume = self.keys.iter().map(|key| &key.record).filter(|key| key.volser == *volser && which(&key.tag));
        let mut retired = Vec::new();
        for (tag, before) in of_volume.map(|key| (key.tag, key.state)).collect::<Vec<_>>() {
            if self.advance(&tag, KeyEvent::Superseded, now_ns)?.state != before {
                retired.push(tag);
            }
        }
        Ok(retired)
    }

    fn change_cartridges(&mut self, volser: &Volser, change: impl FnOnce(&mut SeenCartridges)) {
        let Some(before) = self.realm.unit(volser) else { return };
        let mut unit = before.clone();
        change(&mut unit.cartridges);
        if unit.cartridges != before.cartridges {
            self.put(RealmRecord::unit(unit));
        }
    }

    fn change_issues(&mut self, volser: &Volser, change: impl Fn(&mut IssuedKey)) {
        let keys = self.realm.unit(volser).map(|unit| unit.keys.clone()).unwrap_or_default();
        for before in keys {
            let mut key = before.clone();
            change(&mut key);
            if key != before {
                self.put(RealmRecord::Issue { volser: volser.clone(), key });
            }
        }
    }

    /// Takes a key through one event of its life.
    fn advance(&mut self, tag: &KeyTag, event: KeyEvent, now_ns: i64) -> Result<KeyRecord, KeyError> {
        let before = self.key(tag, None)?;
        let mut after = before.clone();
        after.advance(event, now_ns)?;
        let (changed, record) = (after != *before, after.record.clone());
        if changed {
            self.put_key(after);
        }
        Ok(record)
    }

    fn key(&self, tag: &KeyTag, volser: Option<&Volser>) -> Result<&StoredKey, KeyError> {
        self.keys.iter().find(|key| key.record.tag == *tag).ok_or_else(|| KeyError::KeyMissing {
            place: self.place.clone(),
            tag: *tag,
            volser: volser.cloned(),
        })
    }

    /// A key of this volume and no other.
    fn owned(&self, volser: &Volser, tag: &KeyTag) -> Result<&StoredKey, KeyError> {
        let key = self.key(tag, Some(volser))?;
        if key.record.volser == *volser {
            return Ok(key);
        }
        Err(KeyError::KeyOfOtherVolume { tag: *tag, volser: volser.clone(), owner: key.record.volser.clone() })
    }

    fn put_key(&mut self, key: StoredKey) {
        put_in_place(&mut self.keys, key.clone(), |one, other| one.record.tag == other.record.tag);
        put_in_place(&mut self.changes.keys, key, |one, other| one.record.tag == other.record.tag);
    }

    fn put(&mut self, record: RealmRecord) {
        self.realm.put(record.clone());
        put_in_place(&mut self.changes.realm, record, RealmRecord::is_same);
    }
}

fn put_in_place<T>(records: &mut Vec<T>, record: T, is_same: impl Fn(&T, &T) -> bool) {
    match records.iter_mut().find(|other| is_same(other, &record)) {
        Some(other) => *other = record,
        None => records.push(record),
    }
}
