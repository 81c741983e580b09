//! Reclaim: what is still needed of a volume is written to others of its pool, so that it can be written anew, or laid
//! by.
//!
//! ```text
//! volume of which little is needed --reserved--> copies on it, in the order of the tape
//!     --what other volumes of the copy do not hold--> written elsewhere --all there--> the catalog leaves the volume
//!     --nothing left--> scratch, or retired
//! ```
//! The copy stays what it is: its number, its pool and its end. Blocks are handed on as they are. A run that is
//! stopped, or killed, leaves some blocks of a copy on two volumes; the next one writes only what is lacking still.
//! Until the catalog has left a volume, each restore may read it. What another volume holds counts only while that can
//! be read: it is not set aside, its key is there, and nobody failed to mount it. What cannot be read of a volume and
//! is nowhere else keeps it from being left.
//!
//! Nothing is added to a volume while it is to be emptied ([`Resource::Emptying`]), and nothing any more to those of a
//! generation that is to go: they are retired before the first of them is read.

mod moving;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use capstan_catalog::{MediumKind, Resource, Volume, VolumeState, Wish};
use capstan_format::{ObjectId, Volser, VolumeId};
use capstan_mover::RestoreWatch;
use capstan_tape::with_causes;

use crate::DirectorError;
use crate::hold::Hold;
use crate::mounter::{Mounter, generation_of};
use crate::request::Shortfall;
use crate::shared::apart;
use crate::site::{Site, locked};

/// Which volumes are reclaimed.
#[derive(Debug, Clone, Default)]
pub struct ReclaimRequest {
    /// These, whatever else is asked for.
    pub volumes: Vec<Volser>,
    /// Only volumes of these pools; none for all.
    pub pools: Vec<String>,
    /// Full volumes of which less than this share is needed.
    pub below: Option<f64>,
    /// Volumes of these generations, which are to go: they are retired, whatever is on them.
    pub generations: Vec<String>,
    /// Volumes that were set aside.
    pub suspect: bool,
}

/// How volumes are reclaimed.
#[derive(Debug, Clone, Copy)]
pub struct ReclaimOptions {
    /// Volumes that are empty then are never written again; those of a generation that is to go are not in any case.
    pub retire: bool,
    /// What was written is read back before the catalog leaves a volume; of a generation that is to go in any case.
    pub verify: bool,
    /// So many volumes are emptied, at most.
    pub most: usize,
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
    /// Whether its generation is to go.
    pub is_to_go: bool,
    /// Whether something of an object on it is lost, so that it cannot be emptied.
    pub holds_lost: bool,
    life: VolumeId,
    plain: u64,
}

/// Volumes to reclaim, in this order: those with most faults first, then those of which least is needed, or that are
/// oldest where their generation is to go. Last are those that cannot be emptied.
#[derive(Debug, Clone, Default)]
pub struct ReclaimPlan {
    /// Them.
    pub volumes: Vec<ReclaimableVolume>,
    /// Volumes that cannot be, and why.
    pub left_out: Vec<(Volser, String)>,
    /// Volumes of generations that are to go, and that are not retired yet; nothing on some of them is needed.
    pub retires: Vec<Volser>,
    /// Generations that are to go and of which no volume is: such a name may be wrong.
    pub unknown: Vec<String>,
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
        let lost = self.lost_parts()?;
        let is_unknown = |generation: &&String| !volumes.iter().any(|volume| is_of(volume, generation));
        let unknown = request.generations.iter().filter(is_unknown).cloned().collect();
        let mut plan = ReclaimPlan { unknown, ..ReclaimPlan::default() };
        for volume in &volumes {
            let is_named = request.volumes.contains(&volume.volser);
            let is_to_go = request.generations.iter().any(|generation| is_of(volume, generation))
                && volume.pool.as_ref().is_none_or(|pool| request.takes_pool(pool));
            if is_to_go && !matches!(volume.state, VolumeState::Retired | VolumeState::Suspect) {
                plan.retires.push(volume.volser.clone());
            }
            let needed = needed.get(&volume.volser);
            if !is_named && !is_to_go && !request.takes(volume, needed.map_or(0, |needed| needed.bytes)) {
                continue;
            }
            let mut leave = |reason: &str| plan.left_out.push((volume.volser.clone(), reason.to_owned()));
            let (life, pool, needed) = match (volume.id, &volume.pool, needed) {
                (Some(life), Some(pool), Some(needed)) => (life, pool, needed),
                (Some(_), None, Some(_)) => {
                    leave("it holds something that is needed, and is in no pool: `capstan verify` says how it stands");
                    continue;
                }
                _ => {
                    if is_named {
                        leave("nothing on it is needed");
                    }
                    continue;
                }
            };
            if in_use.contains(volume.volser.as_str()) {
                leave("another job uses it");
                continue;
            }
            let damaged = damage.iter().filter(|damage| damage.volser == volume.volser);
            let holds_lost = !lost.is_empty()
                && locked(&self.catalog).copies_on(&volume.volser)?.iter().any(|(object, _)| lost.bytes(*object) > 0);
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
                is_to_go,
                holds_lost,
                life,
                plain: needed.plain_bytes,
            });
        }
        plan.volumes.sort_by_key(|volume| {
            let by_age = volume.labelled_ns.unwrap_or(0).cast_unsigned();
            let then = if volume.is_to_go { by_age } else { volume.needed };
            (volume.holds_lost, Reverse(volume.faults), then, volume.volser.clone())
        });
        Ok(plan)
    }

    /// Reclaims volumes, one after the other; tells of each when it is done. None of them is written to meanwhile. What
    /// cannot be done of one does not keep others from it; the first such failure is given back.
    ///
    /// # Errors
    /// [`DirectorError::ReclaimStopped`] if `watch` stopped it; otherwise the catalog cannot be read or written. What
    /// was told of is done all the same.
    pub fn reclaim(
        &self,
        plan: &ReclaimPlan,
        options: ReclaimOptions,
        watch: &RestoreWatch,
        told: &mut dyn FnMut(&Reclaimed),
    ) -> Result<Option<DirectorError>, DirectorError> {
        let _presence = self.presence()?;
        // What another volume holds counts only while that can be read. A site without a key store has none to look at.
        let _ = self.look_at_keys();
        for volser in &plan.retires {
            locked(&self.catalog).update_volume(volser, |volume| {
                // It may have been set aside since it was planned.
                if volume.state != VolumeState::Suspect {
                    volume.state = VolumeState::Retired;
                }
            })?;
        }
        let planned = plan.volumes.iter().take(options.most).map(|volume| volume.plain).sum();
        watch.planned.fetch_add(planned, Ordering::Relaxed);
        // All of them, before the first is read: none may be what another one is written to.
        let mut holds: HashMap<&Volser, Hold> = HashMap::new();
        for volume in &plan.volumes {
            let wish = Wish::alone(Resource::Emptying(volume.volser.clone()));
            if let Ok(hold) = self.holds.reserve(&wish)? {
                holds.insert(&volume.volser, hold);
            }
        }
        let (mut first_failure, mut without_room, mut emptied) = (None, HashSet::new(), 0);
        for volume in &plan.volumes {
            if emptied >= options.most {
                break;
            }
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::ReclaimStopped);
            }
            let began = Instant::now();
            let mut done = Reclaimed::of(volume);
            if !holds.contains_key(&volume.volser) {
                done.kept_by = Some("another job empties it".to_owned());
            } else if without_room.contains(&volume.pool) {
                done.kept_by = Some(format!("pool {} has no volume to write to", volume.pool));
            } else {
                match self.empty(volume, options, watch, &mut done) {
                    Ok(()) => {}
                    Err(_) if watch.stop.load(Ordering::Relaxed) => return Err(DirectorError::ReclaimStopped),
                    Err(error @ DirectorError::Catalog(_)) => return Err(error),
                    Err(error) => {
                        if matches!(error, DirectorError::NoVolume { .. }) {
                            without_room.insert(volume.pool.clone());
                        }
                        done.kept_by = Some(with_causes(&error));
                        first_failure.get_or_insert(error);
                    }
                }
            }
            holds.remove(&volume.volser);
            emptied += usize::from(done.is_emptied());
            done.elapsed_ns = began.elapsed().as_nanos() as u64;
            told(&done);
        }
        Ok(first_failure)
    }

    fn empty(
        &self,
        volume: &ReclaimableVolume,
        options: ReclaimOptions,
        watch: &RestoreWatch,
        done: &mut Reclaimed,
    ) -> Result<(), DirectorError> {
        let site = match options.in_this_library {
            true => self.clone(),
            false => self.clone().in_library_of_pool(&volume.pool)?,
        };
        site.move_off(volume, options, watch, done)?;
        site.settle(volume, options, done)
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
        let Some(known) = catalog.volume(volser)?.filter(|known| known.id == Some(volume.life)) else {
            done.kept_by = Some("it was labelled anew meanwhile".to_owned());
            return Ok(());
        };
        if !catalog.objects_on(volser)?.is_empty() {
            return Ok(());
        }
        let retires = options.retire || volume.is_to_go || known.medium == MediumKind::WriteOnce;
        (done.fate, done.kept_by) = match known.state {
            _ if catalog.opened_volumes()?.contains(&volume.life) => {
                let reason = format!(
                    "a backup that wrote on it was killed, and it may hold more than the catalog knows. `capstan label \
                     {volser}` makes it scratch unless it does"
                );
                (VolumeFate::Kept, Some(reason))
            }
            _ if retires => (VolumeFate::Retired, None),
            VolumeState::Suspect => (VolumeFate::SetAside, None),
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

impl Reclaimed {
    fn of(volume: &ReclaimableVolume) -> Self {
        Self {
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
        }
    }

    /// Whether nothing on it is needed any more, and nothing keeps it as it is.
    pub fn is_emptied(&self) -> bool {
        !matches!(self.fate, VolumeFate::Needed | VolumeFate::Kept)
    }
}

/// Whether a volume is of a generation, whatever its name's case and with or without hyphens.
fn is_of(volume: &Volume, generation: &str) -> bool {
    let bare = |name: &str| name.replace('-', "").to_ascii_lowercase();
    generation_of(volume).is_some_and(|own| bare(&own) == bare(generation))
}

impl ReclaimRequest {
    fn takes_pool(&self, pool: &String) -> bool {
        self.pools.is_empty() || self.pools.contains(pool)
    }

    /// Whether a volume is meant that is not named.
    fn takes(&self, volume: &Volume, needed: u64) -> bool {
        if !volume.pool.as_ref().is_some_and(|pool| self.takes_pool(pool)) || volume.checkpoint_lbn == 0 {
            return false;
        }
        let is_sparse = |below: f64| {
            volume.state == VolumeState::Full
                && volume.medium == MediumKind::Rewritable
                && (needed as f64) < below * volume.written as f64
        };
        self.suspect && volume.state == VolumeState::Suspect || self.below.is_some_and(is_sparse)
    }
}
