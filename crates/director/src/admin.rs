//! Volumes, pools, retention: what an operator does between backups.

use std::collections::HashSet;

use capstan_catalog::{
    Catalog, Extent, LostCopy, MediumKind, Object, ObjectFilter, ObjectStatus, Pool, Promise, Resource, ScratchFeed,
    Volume, VolumeState, Wish,
};
use capstan_format::{Algorithm, BLOCK_HEADER_LEN, KeyTag, ObjectId, Volser};
use capstan_keys::{Cartridge, Destruction};
use capstan_tape::{ChangerError, EncryptionState};

use crate::config::JobConfig;
use crate::damage::BadPlaces;
use crate::drive_keys::note_destroyed;
use crate::hold::Hold;
use crate::keys::unreadable_volumes;
use crate::label::{check_all_known, create_cartridge, label_volume};
use crate::mounter::Mounter;
use crate::ranges::{missing_ranges, stream_lengths};
use crate::retention_lock::check_unlocked;
use crate::site::{Site, locked};
use crate::{DirectorError, WriteOnceBar};

/// What becomes of objects on a volume that is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// They keep the volume from being written over.
    Refuse,
    /// They are lost with it.
    Accept,
}

/// What was lost with the life that a volume had.
#[derive(Debug, Default)]
pub struct Overwritten {
    /// Copies of objects that stood on it, or a part of each.
    pub copies: Vec<LostCopy>,
    /// Objects of which it held what no other volume does: they are gone, or a part of each. The latest first.
    pub last: Vec<Object>,
}

/// A key that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestroyedKey {
    /// Its volume.
    pub volser: Volser,
    /// Its public name.
    pub tag: KeyTag,
}

/// What the catalog has of a volume once it is erased.
pub(crate) fn blank_row(known: Volume) -> Volume {
    Volume {
        pool: None,
        id: None,
        state: VolumeState::Blank,
        key: None,
        written: 0,
        end_of_data_lbn: 0,
        checkpoint_lbn: 0,
        labelled_ns: None,
        recycled: known.recycled + 1,
        key_destroyed_ns: None,
        ..known
    }
}

impl Site {
    /// Labels a volume for a pool, or for scratch; makes the cartridge if the library has none of that name.
    ///
    /// # Errors
    /// [`DirectorError::VolumeHoldsData`] if objects would lose their last copy and `loss` refuses that;
    /// [`DirectorError::RetentionLocked`] if one of them is locked, whatever `loss` says;
    /// [`DirectorError::HoldsUnknown`] if it holds more than the catalog knows and `loss` refuses that;
    /// [`DirectorError::WriteOnce`] if the medium keeps what is on it; [`DirectorError::UnknownPool`];
    /// [`DirectorError::InUse`] if a job has the volume or what is on it. Otherwise the volume cannot be mounted or
    /// written.
    pub fn label(
        &self,
        volser: &Volser,
        pool: Option<&str>,
        capacity_bytes: Option<u64>,
        loss: Loss,
        promise: Promise,
    ) -> Result<Overwritten, DirectorError> {
        let _presence = self.presence()?;
        let mounter = Mounter::new(self).at_volume(volser)?;
        let hold = mounter.holds.volume(volser)?;
        let _objects = self.claim_held_on(volser, pool)?;
        let pool = match pool {
            None => None,
            Some(name) => {
                let found = locked(&self.catalog).pool(name)?;
                Some(found.ok_or_else(|| DirectorError::UnknownPool { pool: name.to_owned() })?)
            }
        };
        if !mounter.anywhere_here()?.contains(volser) {
            if locked(&self.catalog).volume(volser)?.is_some_and(|known| known.id.is_some()) {
                // It was taken out. Another cartridge of its barcode would keep it from coming back.
                return Err(DirectorError::Changer(ChangerError::UnknownVolume { volser: volser.clone() }));
            }
            let usual = mounter.library.config.volume_mib << 20;
            create_cartridge(&mounter, volser, capacity_bytes.unwrap_or(usual))?;
        }
        self.check_rewritable(volser)?;
        let last = self.would_lose(volser, loss, promise)?;
        let encrypts = pool.as_ref().is_some_and(|pool| pool.encryption.is_some());
        let mut volume =
            mounter.clone().for_writing_over(encrypts, loss == Loss::Accept).mount_held(volser, Some(hold))?;
        let known = locked(&self.catalog).volume(volser)?;
        let foreign = known.is_none() && volume.medium.encryption != EncryptionState::Blank;
        let unknown = known.filter(|_| loss == Loss::Refuse);
        let unknown = unknown.map_or(Ok(()), |known| check_all_known(&mounter, &mut volume, &known));
        let block_len_max = (BLOCK_HEADER_LEN + self.config.chunk_len()) as u32;
        let labelled = if let Err(error) = volume.check_rewritable() {
            Err(error)
        } else if foreign && loss == Loss::Refuse {
            Err(DirectorError::VolumeHoldsData { volser: volser.clone(), objects: 0, standing: 0 })
        } else if let Err(error) = unknown {
            Err(error)
        } else {
            label_volume(&mounter, &mut volume, pool.as_ref(), block_len_max, promise)
        };
        mounter.dismount(volume)?;
        let (_, copies) = labelled?;
        Ok(Overwritten { copies, last })
    }

    /// Reserves what a volume holds that is written over or forgotten, so that no job is at it; and the pool that it is
    /// labelled for.
    fn claim_held_on(&self, volser: &Volser, pool: Option<&str>) -> Result<Hold, DirectorError> {
        let known = locked(&self.catalog).volume(volser)?;
        let mut objects = match known {
            Some(_) => locked(&self.catalog).objects_on(volser)?,
            None => Vec::new(),
        };
        objects.retain(|object| object.status != ObjectStatus::Expired);
        self.holds.claim(&Wish {
            alone: objects.into_iter().map(|object| Resource::Object(object.id)).collect(),
            shared: pool.map(|pool| Resource::Pool(pool.to_owned())).into_iter().collect(),
            ..Wish::default()
        })
    }

    /// Refuses a volume of which the catalog knows that it keeps what is on it: no use of force changes that, so none
    /// is suggested.
    fn check_rewritable(&self, volser: &Volser) -> Result<(), DirectorError> {
        let known = locked(&self.catalog).volume(volser)?;
        if known.is_some_and(|volume| volume.medium == MediumKind::WriteOnce && volume.id.is_some()) {
            return Err(DirectorError::WriteOnce { volser: volser.clone(), because: WriteOnceBar::HoldsData });
        }
        Ok(())
    }

    /// Makes a volume blank. What it held is copied anew by the next repair, where there is another copy and its
    /// promise is kept.
    ///
    /// # Errors
    /// [`DirectorError::UnknownVolume`]; otherwise as [`Site::label`]. The catalog may have forgotten what was on a
    /// volume whose medium then could not be erased.
    pub fn erase(&self, volser: &Volser, loss: Loss, promise: Promise) -> Result<Overwritten, DirectorError> {
        let _presence = self.presence()?;
        let mounter = Mounter::new(self);
        let hold = mounter.holds.volume(volser)?;
        let known = mounter.volume(volser)?;
        let objects = self.claim_held_on(volser, None)?;
        self.check_rewritable(volser)?;
        let last = self.would_lose(volser, loss, promise)?;
        let mut volume =
            mounter.clone().for_writing_over(false, loss == Loss::Accept).mount_held(volser, Some(hold))?;
        let erasable = volume.check_writable().and_then(|()| volume.check_rewritable());
        let erasable = erasable.and_then(|()| match loss {
            Loss::Refuse => check_all_known(&mounter, &mut volume, &known),
            Loss::Accept => Ok(()),
        });
        if let Err(error) = erasable {
            mounter.dismount(volume)?;
            return Err(error);
        }
        // The catalog forgets before the medium does: what it lists can always be read.
        let copies = locked(&self.catalog).relabelled(&blank_row(known), promise)?;
        // What is gone is nobody's; to erase takes hours.
        drop(objects);
        let (erased, serial) = (volume.erase(), volume.medium.serial);
        mounter.dismount(volume)?;
        erased?;
        mounter.keys_ended(Cartridge { volser, serial: serial.as_ref() })?;
        Ok(Overwritten { copies, last })
    }

    /// Forgets a volume that is lost or destroyed. What it held is copied anew by the next repair, where there is
    /// another copy and its promise is kept.
    ///
    /// # Errors
    /// [`DirectorError::UnknownVolume`]; [`DirectorError::VolumePresent`] if the library has it;
    /// [`DirectorError::VolumeHoldsData`] if objects would lose their last copy and `loss` refuses that;
    /// [`DirectorError::InUse`] if a job has it.
    pub fn forget(&self, volser: &Volser, loss: Loss, promise: Promise) -> Result<Overwritten, DirectorError> {
        let _presence = self.presence()?;
        let mounter = Mounter::new(self);
        mounter.volume(volser)?;
        let _hold = mounter.holds.volume(volser)?;
        let _objects = self.claim_held_on(volser, None)?;
        // What a person fetches may be lost, and nobody knows but that person.
        if mounter.is_in_a_robot(volser)? {
            return Err(DirectorError::VolumePresent { volser: volser.clone() });
        }
        let last = self.would_lose(volser, loss, promise)?;
        let copies = locked(&self.catalog).remove_volume(volser, promise)?;
        Ok(Overwritten { copies, last })
    }

    /// Refuses to have the key of a volume destroyed, which others keep, where that would take away what is locked:
    /// `what` is the volume, or the tag of one of its keys.
    ///
    /// # Errors
    /// [`DirectorError::RetentionLocked`]; otherwise the catalog cannot be read, or whoever keeps the keys cannot be
    /// asked of which volume one is.
    pub fn check_key_unlocked(&self, what: &str) -> Result<(), DirectorError> {
        let volumes = locked(&self.catalog).volumes()?;
        let is_first = |volume: &Volume| volume.key.is_some_and(|key| key.tag.to_string() == what);
        let mut meant: Vec<&Volume> =
            volumes.iter().filter(|volume| volume.volser.as_str() == what || is_first(volume)).collect();
        // The catalog knows the first key of each volume; a further one is known to whoever keeps them.
        if let (true, Ok(tag), Some(keys)) = (meant.is_empty(), what.parse::<KeyTag>(), self.keys.as_deref()) {
            for volume in volumes.iter().filter(|volume| volume.key.is_some()) {
                if keys.keys_held(&volume.volser)?.iter().any(|key| key.tag == tag) {
                    meant.push(volume);
                    break;
                }
            }
        }
        meant.iter().try_for_each(|volume| self.would_lose(&volume.volser, Loss::Accept, Promise::Keep).map(drop))
    }

    /// Destroys a key. What it encrypted is gone for good.
    ///
    /// # Errors
    /// [`DirectorError::RetentionLocked`] if nobody may take away what it encrypted; [`DirectorError::InUse`] if a job
    /// has its volume, or an object of that. Otherwise the key store is not
    /// open ([`Site::keys`]), does not have the key, or cannot be written; or the catalog cannot be written. Then the
    /// key is destroyed, and the same call notes it.
    pub fn destroy_key(&self, tag: &KeyTag) -> Result<DestroyedKey, DirectorError> {
        let now_ns = self.now_ns();
        let (of, realm) = {
            let keys = self.keys()?;
            (keys.list()?.into_iter().find(|key| key.tag == *tag), keys.realm()?)
        };
        let _presence = self.presence()?;
        // As long as the key is being destroyed, nobody writes under it, and nobody takes another copy away.
        let (mut hold, mut claim) = (None, None);
        // One that is destroyed already is only to be noted.
        if let Some(key) = of.filter(|key| key.destroyed_ns.is_none()) {
            let first = locked(&self.catalog).volume(&key.volser)?.and_then(|volume| volume.key).map(|key| key.tag);
            hold = Some(self.holds.volume(&key.volser)?);
            let unit = realm.unit(&key.volser);
            let is_of = |first| first == *tag || unit.is_some_and(|unit| unit.may_be_of_life(tag, &first));
            if first.is_some_and(is_of) {
                claim = Some(self.claim_held_on(&key.volser, None)?);
                self.would_lose(&key.volser, Loss::Accept, Promise::Keep)?;
            }
        }
        let (destruction, realm) = {
            let mut keys = self.keys()?;
            (keys.destroy(tag, now_ns)?, keys.realm()?)
        };
        let (Destruction::Destroyed(record) | Destruction::AlreadyDestroyed(record)) = destruction;
        let destroyed_ns = record.destroyed_ns.unwrap_or(now_ns);
        let mut catalog = locked(&self.catalog);
        let first = catalog.volume(&record.volser)?.and_then(|volume| volume.key).map(|key| key.tag);
        let unit = realm.unit(&record.volser);
        let is_further = first
            .filter(|first| first != tag)
            .is_some_and(|first| unit.is_some_and(|unit| unit.may_be_of_life(tag, &first)));
        if is_further && record.activated_ns.is_some() {
            note_destroyed(&mut catalog, &record.volser, &record.tag, destroyed_ns)?;
        } else {
            catalog.key_destroyed(&record.tag, destroyed_ns)?;
        }
        // What was reserved is given back by the catalog.
        drop(catalog);
        drop((claim, hold));
        Ok(DestroyedKey { volser: record.volser, tag: record.tag })
    }

    /// Objects that would lose their last copy, or the last of a part of it, with a volume; refused if the retention of
    /// one is locked. What stands on a volume whose key is destroyed is lost already; what stands on a suspect one, or
    /// on one whose key is not in the store, may be: none stands in for anything.
    pub(crate) fn would_lose(
        &self,
        volser: &Volser,
        loss: Loss,
        promise: Promise,
    ) -> Result<Vec<Object>, DirectorError> {
        let catalog = locked(&self.catalog);
        if catalog.volume(volser)?.is_none() {
            return Ok(Vec::new());
        }
        let unreadable = unreadable_volumes(&catalog)?;
        let counts = |volume: &Volume| {
            volume.volser != *volser && volume.state != VolumeState::Suspect && !unreadable.contains(&volume.volser)
        };
        let others = catalog.volumes()?.into_iter().filter(counts).map(|volume| volume.volser);
        let others: HashSet<Volser> = others.collect();
        let mut last = Vec::new();
        for object in catalog.objects_on(volser)? {
            if object.status == ObjectStatus::Expired {
                continue;
            }
            let copies = catalog.copies(object.id)?;
            let elsewhere = copies.iter().any(|copy| copy.volumes.iter().all(|volume| others.contains(volume)));
            if !elsewhere || holds_alone(&catalog, &object, volser, &others)? {
                last.push(object);
            }
        }
        check_unlocked(&catalog, volser, (&last, promise), self.now_ns())?;
        if !last.is_empty() && loss == Loss::Refuse {
            let (objects, standing) = (last.len(), count_standing_on(&catalog, &last)?);
            return Err(DirectorError::VolumeHoldsData { volser: volser.clone(), objects, standing });
        }
        Ok(last)
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// [`DirectorError::PoolName`] if no pool can have the name; [`DirectorError::PoolDiffers`] if there is one of
    /// another cipher. Otherwise the catalog cannot be written.
    pub fn add_pool(
        &self,
        name: &str,
        encryption: Option<Algorithm>,
        retention_ns: Option<u64>,
    ) -> Result<(), DirectorError> {
        let fits = (1..=63).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
        if !fits || name == "scratch" {
            return Err(DirectorError::PoolName { name: name.to_owned() });
        }
        let _presence = self.presence()?;
        let mut catalog = locked(&self.catalog);
        if let Some(there) = catalog.pool(name)?
            && there.encryption != encryption
        {
            let words = |encryption: Option<Algorithm>| encryption.map_or("plain", Algorithm::name);
            let (is, wanted) = (words(there.encryption), words(encryption));
            return Err(DirectorError::PoolDiffers { pool: name.to_owned(), is, wanted });
        }
        let pool = Pool { name: name.to_owned(), encryption, retention_ns, feed: ScratchFeed::Allowed };
        Ok(catalog.put_pool(&pool)?)
    }

    /// Removes a pool that nothing needs: no volume, no promised copy, no job.
    ///
    /// # Errors
    /// [`DirectorError::PoolNeeded`] says what needs it; [`DirectorError::InUse`] if a job has it. Otherwise the
    /// catalog does not know it or cannot be written.
    pub fn remove_pool(&self, name: &str) -> Result<(), DirectorError> {
        let needed = |reason: String| Err(DirectorError::PoolNeeded { pool: name.to_owned(), reason });
        let _presence = self.presence()?;
        let _pool = self.holds.claim(&Wish::alone(Resource::Pool(name.to_owned())))?;
        let use_of = |job: &JobConfig| match () {
            () if job.is_of_care() => job.care_of.iter().any(|pool| pool == name).then_some("looks after"),
            () => job.own_pools().any(|pool| pool == name).then_some("writes to"),
        };
        if let Some((job, uses)) = self.config.jobs.iter().find_map(|(job, config)| Some((job, use_of(config)?))) {
            let whose =
                if self.is_policy(job) { format!("policy {job}") } else { format!("job {job} of capstan.toml") };
            return needed(format!("{whose} {uses} it"));
        }
        let mut catalog = locked(&self.catalog);
        let wanted = catalog.copies_wanted_in(name)?;
        if wanted > 0 {
            return needed(format!("copies of objects are promised to it ({wanted}): `capstan objects` lists them"));
        }
        Ok(catalog.remove_pool(name)?)
    }

    /// Barcodes of the cartridges in the libraries.
    pub(crate) fn present(&self) -> Result<Vec<Volser>, DirectorError> {
        Mounter::new(self).present()
    }
}

/// How many living objects are based on some, directly or not, that are not among them.
fn count_standing_on(catalog: &Catalog, lost: &[Object]) -> Result<usize, DirectorError> {
    let mut without: HashSet<ObjectId> = lost.iter().map(|object| object.id).collect();
    let all = catalog.objects(&ObjectFilter::default())?;
    let mut standing = 0;
    // From the earliest on: a base was begun before what stands on it.
    for object in all.iter().rev().filter(|object| object.status != ObjectStatus::Expired) {
        if !without.contains(&object.id) && object.base.is_some_and(|base| without.contains(&base)) {
            without.insert(object.id);
            standing += 1;
        }
    }
    Ok(standing)
}

/// Whether a volume holds something of an object that no other does: another copy may be only part of one.
fn holds_alone(
    catalog: &Catalog,
    object: &Object,
    volser: &Volser,
    others: &HashSet<Volser>,
) -> Result<bool, DirectorError> {
    let parts = stream_lengths(catalog, object.id)?;
    // A damaged block stands in for nothing.
    let extents = BadPlaces::of(catalog)?.sound(catalog.extents(object.id, None)?, object.chunk_len);
    let lacking = |left: &dyn Fn(&Extent) -> bool| {
        // What counts is whether any copy has it: all are taken as one.
        let one = extents.iter().filter(|extent| left(extent)).map(|extent| Extent { copy: 1, ..extent.clone() });
        missing_ranges(1, &parts, &one.collect::<Vec<_>>(), object.chunk_len)
    };
    let is_other = |extent: &Extent| others.contains(&extent.volser);
    Ok(lacking(&is_other) != lacking(&|extent| extent.volser == *volser || is_other(extent)))
}
