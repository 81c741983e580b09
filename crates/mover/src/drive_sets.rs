//! The drive sets of a session: each is a drive a copy, with the buffers, packers and interleaving that feed it.
//!
//! ```text
//! connection --+--> drive set 1 --+--> copy 1 --> drive
//! connection --+                  +--> copy 2 --> drive
//!
//! connection --+--> drive set 2 --+--> copy 1 --> drive
//! connection --+                  +--> copy 2 --> drive
//! ```
//! All blocks of a connection go through one drive set. A drive set begins an object with its first connection of it.
//!
//! A volume says that an object is complete only when all of the object is flushed, in all drive sets: whoever finds
//! that record has to find the object. So every drive set but one ends its part without a word, and the first of them,
//! the object's home, ends the object once the others have recorded theirs. With that goes which connections are in
//! other sets, and on volumes of before: whoever has the volume of the home alone knows what is missing. A copy of
//! which a part failed in another set stays open.
//!
//! A session that ends closes the last set first: what the others wait for is then recorded with its last checkpoint,
//! and no drive stops for it once more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_format::{ObjectId, ObjectRecord};

use crate::MoverError;
use crate::control::{Control, Controls, WholeObject};
use crate::meters::Meters;

/// Which drive sets have what of each object. Where there is one drive set, it has everything, and nothing is noted.
pub(crate) struct DriveSets(Mutex<State>);

struct State {
    sets: Vec<DriveSet>,
    copies: usize,
    /// Objects of which more may come, or of which a part is not recorded.
    objects: HashMap<ObjectId, Flow>,
    /// Whether the session takes nothing more.
    is_closing: bool,
}

struct DriveSet {
    controls: Controls,
    /// Connections that have not gone to their ends.
    connections: usize,
    /// Writers, one a copy, that have not ended: by their numbers in the session.
    writers: HashSet<usize>,
    /// Whether it was told to take nothing more.
    is_closed: bool,
}

/// An object on its way.
struct Flow {
    record: ObjectRecord,
    known: Vec<(u16, u64)>,
    job: Option<Arc<Meters>>,
    /// The drive sets that have begun it.
    begun: BTreeSet<usize>,
    end: Option<End>,
}

/// The end of an object, which waits for other drive sets than its own.
struct End {
    ended_ns: i64,
    home: usize,
    /// The writers that have not recorded their part.
    waits_for: HashSet<usize>,
    /// The connections of the other sets, and the lengths of their streams.
    elsewhere: BTreeMap<u16, u64>,
    /// Copies, from 0, whose part failed in another set.
    lacking: BTreeSet<usize>,
}

impl DriveSets {
    /// Drive sets of so many copies each; writers are numbered set by set.
    pub(crate) fn new(controls: Vec<Controls>, copies: usize) -> Self {
        let set = |(number, controls): (usize, Controls)| {
            let writers = (number * copies..(number + 1) * copies).collect();
            DriveSet { controls, connections: 0, writers, is_closed: false }
        };
        let sets = controls.into_iter().enumerate().map(set).collect();
        Self(Mutex::new(State { sets, copies, objects: HashMap::new(), is_closing: false }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object begins.
    pub(crate) fn begin_object(
        &self,
        record: ObjectRecord,
        known: Vec<(u16, u64)>,
        job: Option<Arc<Meters>>,
    ) -> Result<(), MoverError> {
        let mut state = self.state();
        if let [only] = &state.sets[..] {
            return only.controls.send(Control::Object { record, known, job });
        }
        state.objects.insert(record.object, Flow { record, known, job, begun: BTreeSet::new(), end: None });
        Ok(())
    }

    /// The drive set for one more connection of an object: the one that has fewest.
    pub(crate) fn set_for(&self, object: ObjectId) -> usize {
        let mut state = self.state();
        let set = state.least_used();
        state.sets[set].connections += 1;
        // Where nobody hears it, the first block is told so.
        let _ = state.begin_at(set, object);
        set
    }

    /// A connection of a drive set has gone to its end.
    pub(crate) fn connection_is_over(&self, set: usize) {
        let mut state = self.state();
        let connections = &mut state.sets[set].connections;
        *connections = connections.saturating_sub(1);
    }

    /// No further connection of an object comes; and when it was whole, if it is.
    pub(crate) fn end_object(&self, object: ObjectId, ended_ns: Option<i64>) -> Result<(), MoverError> {
        self.state().end_object(object, ended_ns)
    }

    /// All that a set has of an object has gone to its writers: these streams, of these lengths.
    pub(crate) fn has_gone(&self, object: ObjectId, streams: impl IntoIterator<Item = (u16, u64)>) {
        if let Some(end) = self.state().objects.get_mut(&object).and_then(|flow| flow.end.as_mut()) {
            end.elsewhere.extend(streams);
        }
    }

    /// A writer has recorded all that came of these objects.
    pub(crate) fn settled(&self, writer: usize, objects: &[ObjectId]) {
        let mut state = self.state();
        for object in objects {
            if let Some(end) = state.objects.get_mut(object).and_then(|flow| flow.end.as_mut()) {
                end.waits_for.remove(&writer);
            }
        }
        state.go_on();
    }

    /// A writer has ended. Nobody waits for it; where it was the last of its drive set that wrote, the session takes
    /// nothing more, for no object could be whole.
    pub(crate) fn ended(&self, writer: usize, has_failed: bool) {
        let mut state = self.state();
        let copy = writer % state.copies.max(1);
        for end in state.objects.values_mut().filter_map(|flow| flow.end.as_mut()) {
            if end.waits_for.remove(&writer) {
                end.lacking.insert(copy);
            }
        }
        let own = state.sets.iter_mut().find(|set| set.writers.contains(&writer));
        let is_lost = own.is_some_and(|set| set.writers.remove(&writer) && set.writers.is_empty() && has_failed);
        if is_lost && state.sets.len() > 1 {
            // What waits for its end stays open: a part of it may be lost.
            state.objects.clear();
            (0..state.sets.len()).for_each(|set| state.close(set));
        } else {
            state.go_on();
        }
    }

    /// The session takes nothing more: a drive set ends when the objects have whose home it is.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closing = true;
        state.go_on();
    }
}

impl State {
    fn least_used(&self) -> usize {
        let by_use = self.sets.iter().enumerate().min_by_key(|(number, set)| (set.connections, *number));
        by_use.map_or(0, |(number, _)| number)
    }

    fn begin_at(&mut self, set: usize, object: ObjectId) -> Result<(), MoverError> {
        // With one drive set it has begun; behind the end of a session nobody needs to know.
        let Some(flow) = self.objects.get_mut(&object).filter(|flow| !flow.begun.contains(&set)) else {
            return Ok(());
        };
        flow.begun.insert(set);
        let (record, known, job) = (flow.record.clone(), flow.known.clone(), flow.job.clone());
        self.sets[set].controls.send(Control::Object { record, known, job })
    }

    fn end_object(&mut self, object: ObjectId, ended_ns: Option<i64>) -> Result<(), MoverError> {
        if let [only] = &self.sets[..] {
            let whole = |ended_ns| Arc::new(WholeObject { ended_ns, elsewhere: Vec::new(), lacking: BTreeSet::new() });
            return only.controls.send(Control::ObjectEnd { object, whole: ended_ns.map(whole) });
        }
        let Some(begun) = self.objects.get(&object).map(|flow| flow.begun.clone()) else {
            return Err(MoverError::Stopped);
        };
        let Some(ended_ns) = ended_ns else {
            self.objects.remove(&object);
            return self.end_at(|_| true, object, None);
        };
        let home = match begun.first() {
            Some(home) => *home,
            None => {
                let home = self.least_used();
                self.begin_at(home, object)?;
                home
            }
        };
        let others = begun.iter().filter(|set| **set != home);
        let writers = others.flat_map(|set| (0..self.copies).map(move |copy| (*set, copy)));
        let (mut waits_for, mut lacking) = (HashSet::new(), BTreeSet::new());
        for (set, copy) in writers {
            let writer = set * self.copies + copy;
            if self.sets[set].writers.contains(&writer) {
                waits_for.insert(writer);
            } else {
                lacking.insert(copy);
            }
        }
        if let Some(flow) = self.objects.get_mut(&object) {
            flow.end = Some(End { ended_ns, home, waits_for, elsewhere: BTreeMap::new(), lacking });
        }
        let ended = self.end_at(|set| set != home, object, None);
        self.go_on();
        ended
    }

    /// Ends an object at drive sets, whether they have begun it or not.
    fn end_at(
        &self,
        is_meant: impl Fn(usize) -> bool,
        object: ObjectId,
        whole: Option<&Arc<WholeObject>>,
    ) -> Result<(), MoverError> {
        let mut sent = Ok(());
        for (_, set) in self.sets.iter().enumerate().filter(|(set, _)| is_meant(*set)) {
            sent = sent.and(set.controls.send(Control::ObjectEnd { object, whole: whole.map(Arc::clone) }));
        }
        sent
    }

    /// Ends what waits for nothing any more; and drive sets that are to end and are no home of what waits.
    fn go_on(&mut self) {
        let is_ready = |_: &ObjectId, flow: &mut Flow| flow.end.as_ref().is_some_and(|end| end.waits_for.is_empty());
        let ready: Vec<_> = self.objects.extract_if(is_ready).collect();
        for (object, flow) in ready {
            if let Some(End { ended_ns, home, elsewhere, lacking, .. }) = flow.end {
                let whole = WholeObject { ended_ns, elsewhere: elsewhere.into_iter().collect(), lacking };
                // Where nobody hears it, the object stays open.
                let _ = self.end_at(|set| set == home, object, Some(&Arc::new(whole)));
            }
        }
        if self.is_closing {
            let homes: HashSet<usize> =
                self.objects.values().filter_map(|flow| Some(flow.end.as_ref()?.home)).collect();
            (0..self.sets.len()).filter(|set| !homes.contains(set)).for_each(|set| self.close(set));
        }
    }

    fn close(&mut self, set: usize) {
        if !std::mem::replace(&mut self.sets[set].is_closed, true) {
            // It may be gone already because all its copies have failed.
            let _ = self.sets[set].controls.send(Control::Close);
        }
    }
}
