//! Copies that are migrated only where their disk needs room: the oldest first, and no more than it takes.
//!
//! A copy gives no room back by itself: a volume does, once all copies on it are forgotten. So copies are chosen one
//! after the other until enough volumes hold nothing any more, and those that end no volume stay.

use std::collections::{HashMap, HashSet};

use capstan_catalog::{CopyEnd, Volume};
use capstan_format::{ObjectId, Volser};

use super::ExpirySnapshot;
use super::copies::{ForgottenCopy, leave_what_is_claimed_elsewhere};
use crate::DirectorError;
use crate::room::is_expired;
use crate::site::Site;

/// The folders of a file library on a disk that is taken above its high mark.
#[derive(Debug, Clone)]
pub struct FullFolders {
    /// Bytes that its volumes should give back.
    pub wanted_bytes: u64,
    /// The volumes in them, and how many bytes each holds.
    pub volumes: Vec<(Volser, u64)>,
}

impl Site {
    /// Disks of file libraries that are filled above their mark, and what their volumes hold.
    pub(super) fn full_folders(&self) -> Result<Vec<FullFolders>, DirectorError> {
        let full = self.full_disks()?.into_iter().map(|disk| {
            // What has expired already gives its room back without any migration, if it can.
            let gives = |volume: &&Volume| is_expired(volume) && !self.mounts.stubborn.has(&volume.volser);
            let expired = disk.volumes.iter().filter(gives).map(|volume| volume.written).sum();
            FullFolders {
                wanted_bytes: disk.wanted_bytes.saturating_sub(expired),
                volumes: disk.volumes.into_iter().map(|volume| (volume.volser, volume.written)).collect(),
            }
        });
        Ok(full.collect())
    }
}

/// A copy of an object, by its number.
type CopyOf = (ObjectId, u8);

/// Leaves those copies of the policies that `is_for_room` names which need not go. `copies` come in the order of their
/// objects, the latest first; `goes` says of a copy whether it goes anyway.
///
/// Whole chains go first, the oldest one first: what stays on disk keeps what it is based on there. Where that is not
/// enough, copies go one by one, and restores of later ones read from both places.
pub(super) fn leave_where_there_is_room(
    copies: &mut Vec<ForgottenCopy>,
    known: &ExpirySnapshot,
    is_for_room: impl Fn(&ForgottenCopy) -> bool,
    goes: impl Fn(&CopyOf) -> bool,
) {
    let place = |copy: &ForgottenCopy| (copy.object.id, copy.copy);
    let waiting: Vec<CopyOf> = copies.iter().filter(|copy| is_for_room(copy)).map(place).collect();
    if waiting.is_empty() {
        return;
    }
    let anyway: HashSet<CopyOf> = copies.iter().filter(|copy| !is_for_room(copy)).map(place).collect();
    let goes_anyway = |copy: &CopyOf| goes(copy) || anyway.contains(copy);
    let mut choice = ChosenForRoom::new(known, goes_anyway);
    for chain in chains(known, &waiting, goes_anyway) {
        choice.take(&chain);
    }
    for copy in waiting.iter().rev() {
        choice.take(std::slice::from_ref(copy));
    }
    let go = choice.that_end_a_volume();
    // Nor does what ended by itself go that one of those is based on which stay.
    leave_what_is_claimed_elsewhere(copies, |copy| !is_for_room(copy) || go.contains(&place(copy)), &[]);
}

/// The copies that wait, by chains, the oldest chain first, without those that something is based on in the same pool
/// that stays.
fn chains(known: &ExpirySnapshot, waiting: &[CopyOf], goes_anyway: impl Fn(&CopyOf) -> bool) -> Vec<Vec<CopyOf>> {
    let waits: HashSet<&CopyOf> = waiting.iter().collect();
    let mut copies_of: HashMap<ObjectId, Vec<&CopyEnd>> = HashMap::new();
    known.copies.iter().for_each(|end| copies_of.entry(end.object).or_default().push(end));
    let bases: HashMap<ObjectId, Option<ObjectId>> =
        known.objects.iter().map(|object| (object.id, object.base)).collect();
    let mut needed: HashSet<(ObjectId, &str)> = HashSet::new();
    let mut free: HashSet<CopyOf> = HashSet::new();
    // An object comes before what it is based on.
    for object in &known.objects {
        for end in copies_of.get(&object.id).map_or(&[][..], Vec::as_slice) {
            let copy = (end.object, end.copy);
            let is_needed = needed.contains(&(object.id, &*end.pool));
            if waits.contains(&copy) && !is_needed {
                free.insert(copy);
            } else if !goes_anyway(&copy)
                && let Some(base) = object.base
            {
                needed.insert((base, &end.pool));
            }
        }
    }
    let full_of = |mut object: ObjectId| {
        while let Some(Some(base)) = bases.get(&object).filter(|base| base.is_some()) {
            object = *base;
        }
        object
    };
    let (mut chains, mut places): (Vec<Vec<CopyOf>>, HashMap<ObjectId, usize>) = Default::default();
    for copy in waiting.iter().rev().filter(|copy| free.contains(copy)) {
        let place = *places.entry(full_of(copy.0)).or_insert(chains.len());
        match chains.get_mut(place) {
            Some(chain) => chain.push(*copy),
            None => chains.push(vec![*copy]),
        }
    }
    chains
}

/// Copies that were chosen to go, and what that gives.
struct ChosenForRoom<'a> {
    /// How many copies each volume still holds, and the volumes of each copy.
    left: HashMap<&'a Volser, usize>,
    volumes_of: HashMap<CopyOf, Vec<&'a Volser>>,
    /// What each disk still needs, and what its volumes hold.
    needed: Vec<(u64, HashMap<&'a Volser, u64>)>,
    /// Those that go together, and all of them.
    chosen: Vec<Vec<CopyOf>>,
    taken: HashSet<CopyOf>,
    emptied: HashSet<&'a Volser>,
}

impl<'a> ChosenForRoom<'a> {
    fn new(known: &'a ExpirySnapshot, goes_anyway: impl Fn(&CopyOf) -> bool) -> Self {
        let (mut left, mut volumes_of) = (HashMap::new(), HashMap::<CopyOf, Vec<&Volser>>::new());
        for (volser, held) in &known.volumes {
            left.insert(volser, held.iter().filter(|copy| !goes_anyway(copy)).count());
            held.iter().for_each(|copy| volumes_of.entry(*copy).or_default().push(volser));
        }
        let need = |folder: &'a FullFolders| {
            let volumes: HashMap<&Volser, u64> =
                folder.volumes.iter().map(|(volser, bytes)| (volser, *bytes)).collect();
            // What goes anyway gives room back, too.
            let freed = volumes.iter().filter(|(volser, _)| left.get(*volser) == Some(&0));
            (folder.wanted_bytes.saturating_sub(freed.map(|(_, bytes)| bytes).sum()), volumes)
        };
        let needed = known.full_folders.iter().map(need).collect();
        let (chosen, taken, emptied) = Default::default();
        Self { left, volumes_of, needed, chosen, taken, emptied }
    }

    /// Chooses copies that go together, if one of them is on a disk that needs room.
    fn take(&mut self, together: &[CopyOf]) {
        let needs =
            |volser: &&Volser| self.needed.iter().any(|(wanted, volumes)| *wanted > 0 && volumes.contains_key(*volser));
        let fresh: Vec<CopyOf> = together.iter().filter(|copy| !self.taken.contains(copy)).copied().collect();
        if !fresh.iter().filter_map(|copy| self.volumes_of.get(copy)).flatten().any(needs) {
            return;
        }
        for volser in fresh.iter().filter_map(|copy| self.volumes_of.get(copy)).flatten() {
            let Some(count) = self.left.get_mut(volser).filter(|count| **count > 0) else { continue };
            *count -= 1;
            if *count == 0 {
                self.emptied.insert(volser);
                for (wanted, volumes) in &mut self.needed {
                    *wanted = wanted.saturating_sub(volumes.get(volser).copied().unwrap_or_default());
                }
            }
        }
        self.taken.extend(&fresh);
        self.chosen.push(fresh);
    }

    /// The chosen ones, but for those that were taken in vain.
    fn that_end_a_volume(&self) -> HashSet<CopyOf> {
        let ends = |copy: &CopyOf| {
            self.volumes_of.get(copy).is_some_and(|volumes| volumes.iter().any(|volser| self.emptied.contains(volser)))
        };
        self.chosen.iter().filter(|together| together.iter().any(ends)).flatten().copied().collect()
    }
}
