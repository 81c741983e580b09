//! What an incremental stands on: the latest complete object of its source that can be given back, with all that it
//! stands on itself.
//!
//! An object can be given back while each part of its streams is on some volume whose key was not destroyed, whichever
//! copies the parts are of, and none of its blocks is on record as damaged everywhere. Volumes that were erased or
//! forgotten are in the catalog no more. One that is away, set aside, or whose key's cryptoperiod is over can be had
//! back, and counts; one of whose several keys one was destroyed does not, for which blocks that key encrypted is not
//! known. Keys are destroyed elsewhere, too, so whoever keeps them is asked: of each volume once a run, and of no more
//! volumes than it takes to find a base.
//!
//! The catalog is locked by turns, and never while somebody else is asked.

use std::collections::{BTreeSet, HashMap, HashSet};

use capstan_catalog::{Catalog, CatalogError, CopyState, Extent, ObjectFilter};
use capstan_format::{ObjectId, ObjectKind, Volser};
use capstan_tape::with_causes;

use crate::damage::BadPlaces;
use crate::drive_keys::note_destroyed;
use crate::events::BaseUnavailable;
use crate::keys::volumes_without_key;
use crate::mounter::Mounter;
use crate::ranges::{missing_ranges, stream_lengths};
use crate::shared::first_of;
use crate::site::locked;
use crate::{DirectorError, Event};

/// Volumes that are named where many are gone.
const NAMED_MAX: usize = 3;

/// What there is to stand on.
#[derive(Debug, Default)]
pub(crate) struct BaseChoice {
    /// The latest complete object that can be restored.
    pub(crate) base: Option<ObjectId>,
    /// The latest complete object, if it is another.
    pub(crate) gone: Option<BaseUnavailable>,
}

/// Judges objects of one run, each once.
pub(crate) struct BaseSelector<'a> {
    mounter: &'a Mounter,
    /// Why an object cannot be given back; `None` for one that can, what it stands on aside.
    judged: HashMap<ObjectId, Option<String>>,
    /// Volumes whose keys were asked for.
    asked: HashSet<Volser>,
    /// Cleared by the first answer that fails to come: each further one would be waited for as long.
    can_ask: bool,
}

impl<'a> BaseSelector<'a> {
    pub(crate) fn new(mounter: &'a Mounter) -> Self {
        Self { mounter, judged: HashMap::new(), asked: HashSet::new(), can_ask: true }
    }

    /// The latest of these objects that can be restored. All must be complete.
    pub(crate) fn choice(&mut self, complete: &ObjectFilter) -> Result<BaseChoice, DirectorError> {
        let mut objects = locked(&self.mounter.catalog).objects(complete)?;
        // What somebody stored under the name of a path is no backup of that path.
        objects.retain(|object| object.kind != ObjectKind::Stream);
        let mut choice = BaseChoice::default();
        let mut fallen = HashSet::new();
        for object in objects {
            if fallen.contains(&object.id) {
                continue;
            }
            let Some(reason) = self.fall(object.id, &mut fallen)? else {
                choice.base = Some(object.id);
                break;
            };
            choice.gone.get_or_insert(BaseUnavailable { object: object.id, reason });
        }
        Ok(choice)
    }

    /// Why an object cannot be restored, on its own account or on that of what it stands on.
    pub(crate) fn why_not(&mut self, object: ObjectId) -> Result<Option<String>, DirectorError> {
        self.fall(object, &mut HashSet::new())
    }

    /// [`BaseSelector::why_not`], and which objects of the chain cannot be restored either.
    fn fall(&mut self, object: ObjectId, fallen: &mut HashSet<ObjectId>) -> Result<Option<String>, DirectorError> {
        let chain = locked(&self.mounter.catalog).chain(object);
        let chain = match chain {
            Ok(chain) => chain,
            Err(error @ CatalogError::ChainBroken { .. }) => {
                fallen.insert(object);
                return Ok(Some(with_causes(&error)));
            }
            Err(error) => return Err(error.into()),
        };
        let mut first = None;
        for (above, link) in chain.iter().enumerate() {
            let Some(reason) = self.judge(*link)? else { continue };
            fallen.extend(&chain[..=above]);
            first.get_or_insert_with(|| match above {
                0 => reason,
                _ => format!("it is based on object {link}, and {reason}"),
            });
        }
        Ok(first)
    }

    fn judge(&mut self, object: ObjectId) -> Result<Option<String>, DirectorError> {
        if let Some(known) = self.judged.get(&object) {
            return Ok(known.clone());
        }
        let copies = locked(&self.mounter.catalog).copies(object)?;
        for volser in copies.iter().flat_map(|copy| &copy.volumes) {
            self.ask(volser)?;
        }
        let reason = why_gone(&locked(&self.mounter.catalog), object)?;
        self.judged.insert(object, reason.clone());
        Ok(reason)
    }

    /// Learns whether a key of a volume was destroyed elsewhere. Where nobody can be asked, what the catalog knows has
    /// to do.
    fn ask(&mut self, volser: &Volser) -> Result<(), DirectorError> {
        if !self.can_ask || !self.asked.insert(volser.clone()) {
            return Ok(());
        }
        let known = locked(&self.mounter.catalog).volume(volser)?;
        let Some(first) = known.filter(|known| known.key_destroyed_ns.is_none()).and_then(|known| known.key) else {
            return Ok(());
        };
        match self.mounter.destroyed_elsewhere(volser, &first.tag) {
            Ok(None) => {}
            Ok(Some((tag, destroyed_ns))) => {
                note_destroyed(&mut locked(&self.mounter.catalog), volser, &tag, destroyed_ns)?;
            }
            Err(error) => {
                self.can_ask = false;
                let message = format!(
                    "Capstan could not ask whether keys of older volumes were destroyed: {}. It chooses the base, and \
                     the object to continue, by what the catalog knows",
                    with_causes(&error)
                );
                (self.mounter.events)(Event::Notice { message });
            }
        }
        Ok(())
    }
}

/// Why an object cannot be given back as a whole, what it stands on aside. A pure function of the catalog.
pub(crate) fn why_gone(catalog: &Catalog, object: ObjectId) -> Result<Option<String>, DirectorError> {
    let Some(record) = catalog.object(object)? else { return Err(CatalogError::UnknownObject(object).into()) };
    let copies = catalog.copies(object)?;
    let lost_keys = volumes_without_key(catalog)?;
    let mut without_key = Vec::new();
    for volser in copies.iter().flat_map(|copy| &copy.volumes) {
        let known = catalog.volume(volser)?;
        let gone = known.is_some_and(|volume| volume.key_destroyed_ns.is_some()) || lost_keys.contains(volser);
        if gone && !without_key.contains(volser) {
            without_key.push(volser.clone());
        }
    }
    let stands = |volser: &Volser| !without_key.contains(volser);
    // As a rule a copy is known to be whole, and its extents, which may be very many, need not be looked at.
    let wanted = catalog.wanted_copies(object)?;
    let is_whole = |copy: u8| wanted.iter().any(|wanted| wanted.copy == copy && wanted.state == CopyState::Whole);
    if copies.iter().any(|copy| is_whole(copy.copy) && copy.volumes.iter().all(stands)) {
        return Ok(None);
    }
    // An object that has no bytes has to stand somewhere all the same.
    let bad = BadPlaces::of(catalog)?;
    let lengths = stream_lengths(catalog, object)?;
    let left: Vec<_> = catalog.extents(object, None)?.into_iter().filter(|extent| stands(&extent.volser)).collect();
    let lacks = |extents: Vec<Extent>| {
        let one: Vec<_> = extents.into_iter().map(|extent| Extent { copy: 1, ..extent }).collect();
        !missing_ranges(1, &lengths, &one, record.chunk_len).is_empty()
    };
    if copies.iter().flat_map(|copy| &copy.volumes).any(stands) {
        let (sound, damaged) = bad.split(left.clone(), record.chunk_len);
        let damaged: BTreeSet<String> = damaged.iter().map(|extent| extent.volser.to_string()).collect();
        if !lacks(sound) {
            return Ok(None);
        }
        if !lacks(left) {
            let volumes = damaged.into_iter().take(NAMED_MAX).collect::<Vec<_>>().join(", ");
            return Ok(Some(format!(
                "blocks of it cannot be read any more (volume {volumes}), and no other copy has them"
            )));
        }
    }
    if let Some(lost) = without_key.iter().find(|volser| lost_keys.contains(volser)) {
        return Ok(Some(format!(
            "the key of volume {lost} is not in the key store, and no other copy has all that it held: `capstan keys import` takes in an export"
        )));
    }
    Ok(Some(match &without_key[..] {
        [] => "volumes that held it were erased or forgotten".to_owned(),
        [one] => format!("the key of volume {one} was destroyed, and no other copy has all that it held"),
        several => {
            let names = first_of(several, NAMED_MAX, ToString::to_string);
            format!("keys of volumes {names} were destroyed, and no other copy has all that they held")
        }
    }))
}
