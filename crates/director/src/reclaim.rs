//! Reclaim: what is still needed of a volume is written to others of its pool, so that it can be written anew, or laid
//! by.
//!
//! ```text
//! volume of which little is needed --closed--> copies on it, in the order of the tape
//!     --what other volumes of the copy do not hold--> written elsewhere --all there--> the catalog leaves the volume
//!     --nothing left--> scratch, or retired
//! ```
//! The copy stays what it is: its number, its pool and its end. Blocks are handed on as they are. A run that is
//! stopped, or killed, leaves some blocks of a copy on two volumes; the next one writes only what is lacking still.
//! Until the catalog has left a volume, each restore may read it; what cannot be read of it and is nowhere else keeps
//! it from being left.

mod moving;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use capstan_catalog::{MediumKind, Resource, Volume, VolumeState, Wish};
use capstan_format::{ObjectId, Volser, VolumeId};
use capstan_mover::RestoreWatch;

use crate::mounter::{Mounter, generation_of};
use crate::request::Shortfall;
use crate::shared::apart;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// Which volumes are reclaimed.
#[derive(Debug, Clone, Default)]
pub struct ReclaimRequest {
    /// These, whatever else is asked for.
    pub volumes: Vec<Volser>,
    /// Only volumes of these pools; none for all.
    pub pools: Vec<String>,
    /// Full volumes of which less than this share is needed.
    pub below: Option<f64>,
    /// Volumes of these generations.
    pub generations: Vec<String>,
    /// Volumes that were set aside.
    pub suspect: bool,
}

/// How volumes are reclaimed.
#[derive(Debug, Clone, Copy)]
pub struct ReclaimOptions {
    /// Volumes that are empty then are never written again.
    pub retire: bool,
    /// What was written is read back before the catalog leaves a volume.
    pub verify: bool,
    /// What to do where a pool has no volume.
    pub shortfall: Shortfall,
    /// Everything is written in the library of the site, not in that which has volumes of the pool.
    pub in_this_library: bool,
}

/// A volume that can be reclaimed.
#[derive(Debug, Clone)]
pub struct ReclaimableVolume {
    /// Its barcode.
    pub volser: Volser,
    /// Its pool.
    pub pool: String,
    /// How it stands.
    pub state: VolumeState,
    /// Its generation, where that is known.
    pub generation: Option<String>,
    /// When its life began.
    pub labelled_ns: Option<i64>,
    /// Bytes on it.
    pub written: u64,
    /// Bytes of these that are needed.
    pub needed: u64,
    /// Objects that it holds something of.
    pub objects: u64,
    /// Blocks on record as damaged, and errors that were seen.
    pub faults: u64,
    life: VolumeId,
}

/// Volumes to reclaim, in this order: those with most faults first, then those of which least is needed, or that are
/// oldest where their generation is to go.
#[derive(Debug, Clone, Default)]
pub struct ReclaimPlan {
    /// Them.
    pub volumes: Vec<ReclaimableVolume>,
    /// Volumes that cannot be, and why.
    pub left_out: Vec<(Volser, String)>,
}

/// What became of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeFate {
    /// It is free to be written anew.
    Scratch,
    /// It is never written again.
    Retired,
    /// Nothing is needed of it; it stays set aside.
    SetAside,
    /// It holds something that is needed.
    Needed,
    /// Nothing is needed of it, and something keeps it as it is.
    Kept,
}

/// A volume that was reclaimed.
#[derive(Debug, Clone)]
pub struct Reclaimed {
    /// Its barcode.
    pub volser: Volser,
    /// Its pool.
    pub pool: String,
    /// Copies of objects that it was left by.
    pub copies: u64,
    /// Bytes of streams that were written.
    pub bytes: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Volumes that hold the copies now.
    pub onto: Vec<Volser>,
    /// Objects that it still holds, and why.
    pub left: Vec<(ObjectId, String)>,
    /// What became of it.
    pub fate: VolumeFate,
    /// What keeps it as it is, if something does.
    pub kept_by: Option<String>,
    /// How long it took.
    pub elapsed_ns: u64,
}

impl Site {
    /// Chooses volumes to reclaim. One that nothing is needed of is none: `expire` frees it.
    ///
    /// # Errors
    /// [`DirectorError::UnknownVolume`] or [`DirectorError::UnknownPool`]; otherwise the catalog cannot be read.
    pub fn plan_reclaim(&self, request: &ReclaimRequest) -> Result<ReclaimPlan, DirectorError> {
        for volser in &request.volumes {
            Mounter::new(self).volume(volser)?;
        }
        for pool in &request.pools {
            let known = locked(&self.catalog).pool(pool)?;
            known.ok_or_else(|| DirectorError::UnknownPool { pool: pool.clone() })?;
        }
        let (volumes, needed, damage) = apart(&self.catalog, |catalog| {
            Ok::<_, DirectorError>((catalog.volumes()?, catalog.needed_on_volumes()?, catalog.damage()?))
        })?;
        let needed: HashMap<_, _> = needed.into_iter().map(|needed| (needed.volser.clone(), needed)).collect();
        let in_use: HashSet<String> = self.volumes_in_use()?.into_iter().map(|held| held.volser).collect();
        let mut plan = ReclaimPlan::default();
        for volume in &volumes {
            let is_named = request.volumes.contains(&volume.volser);
            if !is_named && !request.takes(volume, needed.get(&volume.volser).map_or(0, |needed| needed.bytes)) {
                continue;
            }
            let mut leave = |reason: &str| plan.left_out.push((volume.volser.clone(), reason.to_owned()));
            let (Some(life), Some(pool), Some(needed)) = (volume.id, &volume.pool, needed.get(&volume.volser)) else {
                if is_named {
                    leave("nothing on it is needed");
                }
                continue;
            };
            if in_use.contains(volume.volser.as_str()) {
                leave("another job uses it");
                continue;
            }
            let damaged = damage.iter().filter(|damage| damage.volser == volume.volser);
            plan.volumes.push(ReclaimableVolume {
                volser: volume.volser.clone(),
                pool: pool.clone(),
                state: volume.state,
                generation: generation_of(volume),
                labelled_ns: volume.labelled_ns,
                written: volume.written,
                needed: needed.bytes,
                objects: needed.objects,
                faults: damaged.map(|damage| damage.blocks.blocks).sum::<u64>().saturating_add(volume.errors),
                life,
            });
        }
        let by_age = !request.generations.is_empty();
        plan.volumes.sort_by_key(|volume| {
            let then = if by_age { volume.labelled_ns.unwrap_or(0).cast_unsigned() } else { volume.needed };
            (Reverse(volume.faults), then, volume.volser.clone())
        });
        Ok(plan)
    }

    /// Reclaims volumes, one after the other; tells of each when it is done. None of them is written to meanwhile.
    ///
    /// # Errors
    /// [`DirectorError::Interrupted`] if `watch` stopped it; [`DirectorError::NoVolume`] if a pool has no room, and
    /// [`DirectorError::OneDrive`] if there is none to write with. What was told of is done all the same.
    pub fn reclaim(
        &self,
        plan: &ReclaimPlan,
        options: ReclaimOptions,
        watch: &RestoreWatch,
        told: &mut dyn FnMut(&Reclaimed),
    ) -> Result<(), DirectorError> {
        let _presence = self.presence()?;
        watch.planned.fetch_add(plan.volumes.iter().map(|volume| volume.needed).sum(), Ordering::Relaxed);
        let mut closed = Vec::new();
        let reclaimed = self.reclaim_each(plan, options, watch, told, &mut closed);
        for volser in &closed {
            // What it has room for is written there again.
            let reopened = locked(&self.catalog).update_volume(volser, |volume| {
                if volume.state == VolumeState::Full {
                    volume.state = VolumeState::Filling;
                }
            });
            if let Err(error) = reopened {
                let message = format!("volume {volser} stays full, though it has room: {error}");
                (self.events)(Event::Notice { message });
            }
        }
        reclaimed
    }

    fn reclaim_each(
        &self,
        plan: &ReclaimPlan,
        options: ReclaimOptions,
        watch: &RestoreWatch,
        told: &mut dyn FnMut(&Reclaimed),
        closed: &mut Vec<Volser>,
    ) -> Result<(), DirectorError> {
        // All of them, before the first is read: none may be what another one is written to.
        let mut left_to_others = HashSet::new();
        for volume in &plan.volumes {
            match self.close(volume) {
                Ok(was_open) => closed.extend(was_open.then(|| volume.volser.clone())),
                Err(DirectorError::InUse { .. }) => drop(left_to_others.insert(volume.volser.clone())),
                Err(error) => return Err(error),
            }
        }
        for volume in &plan.volumes {
            let began = Instant::now();
            let mut done = Reclaimed {
                volser: volume.volser.clone(),
                pool: volume.pool.clone(),
                copies: 0,
                bytes: 0,
                blocks: 0,
                onto: Vec::new(),
                left: Vec::new(),
                fate: VolumeFate::Needed,
                kept_by: None,
                elapsed_ns: 0,
            };
            if left_to_others.contains(&volume.volser) {
                done.kept_by = Some("another job uses it".to_owned());
            } else {
                let site = match options.in_this_library {
                    true => self.clone(),
                    false => self.clone().in_library_of_pool(&volume.pool)?,
                };
                site.move_off(volume, options, watch, &mut done)?;
                site.settle(volume, options, &mut done)?;
            }
            if done.fate != VolumeFate::Needed {
                closed.retain(|volser| *volser != volume.volser);
            }
            done.elapsed_ns = began.elapsed().as_nanos() as u64;
            told(&done);
        }
        Ok(())
    }

    /// Has nobody write to a volume any more; whether it had room.
    fn close(&self, volume: &ReclaimableVolume) -> Result<bool, DirectorError> {
        let _hold = self.holds.volume(&volume.volser)?;
        let mut was_open = false;
        locked(&self.catalog).update_volume(&volume.volser, |known| {
            was_open = known.state == VolumeState::Filling && known.id == Some(volume.life);
            if was_open {
                known.state = VolumeState::Full;
            }
        })?;
        Ok(was_open)
    }

    /// Says what becomes of a volume once all that could be moved is.
    fn settle(
        &self,
        volume: &ReclaimableVolume,
        options: ReclaimOptions,
        done: &mut Reclaimed,
    ) -> Result<(), DirectorError> {
        let volser = &volume.volser;
        let Ok(_hold) = self.holds.reserve(&Wish::alone(Resource::Volume(volser.clone())))? else {
            done.kept_by = Some("another job uses it".to_owned());
            return Ok(());
        };
        let mut catalog = locked(&self.catalog);
        if !catalog.objects_on(volser)?.is_empty() {
            return Ok(());
        }
        let known = catalog.volume(volser)?.filter(|known| known.id == Some(volume.life));
        let Some(known) = known else { return Ok(()) };
        let retires = options.retire || known.medium == MediumKind::WriteOnce;
        (done.fate, done.kept_by) = match known.state {
            _ if retires => (VolumeFate::Retired, None),
            VolumeState::Suspect => (VolumeFate::SetAside, None),
            _ if catalog.opened_volumes()?.contains(&volume.life) => {
                let reason = format!(
                    "a backup that wrote on it was killed, and it may hold more than the catalog knows. `capstan label \
                     {volser}` makes it scratch unless it does"
                );
                (VolumeFate::Kept, Some(reason))
            }
            VolumeState::Retired => (VolumeFate::Retired, None),
            _ => (VolumeFate::Scratch, None),
        };
        let fate = done.fate;
        catalog.update_volume(volser, |volume| match fate {
            VolumeFate::Retired => volume.state = VolumeState::Retired,
            VolumeFate::Scratch => (volume.state, volume.pool) = (VolumeState::Scratch, None),
            VolumeFate::SetAside | VolumeFate::Needed | VolumeFate::Kept => {}
        })?;
        Ok(())
    }
}

impl ReclaimRequest {
    /// Whether a volume is meant that is not named.
    fn takes(&self, volume: &Volume, needed: u64) -> bool {
        let is_of_pool = volume.pool.as_ref().is_some_and(|pool| self.pools.is_empty() || self.pools.contains(pool));
        if !is_of_pool || volume.checkpoint_lbn == 0 {
            return false;
        }
        let bare = |name: &str| name.replace('-', "").to_ascii_lowercase();
        let is_old = generation_of(volume)
            .is_some_and(|own| self.generations.iter().any(|generation| bare(generation) == bare(&own)));
        let is_sparse = |below: f64| {
            volume.state == VolumeState::Full
                && volume.medium == MediumKind::Rewritable
                && (needed as f64) < below * volume.written as f64
        };
        is_old || self.suspect && volume.state == VolumeState::Suspect || self.below.is_some_and(is_sparse)
    }
}
