//! Scrub: some of what volumes hold is read back, drawn at random; and what that says of the rest.
//!
//! ```text
//! blocks that somebody still needs --cut--> places --draw--> some --read--> bad ones on record, and how many there
//! of volumes in the library                                             may be among all, with which certainty
//! ```
//! A place is a block, or some blocks that stand behind one another. Each is as likely to be drawn as every other one
//! of all volumes that are looked at, so what is met says how many bad ones there are at most. A place with a block
//! that cannot be read is bad, and no more blocks are than bad places hold, wherever damage clusters. Blocks on record
//! as damaged are not among those that are drawn: how many there are is known, and said.
//!
//! Volumes are read one after the other, each in the order of the tape. What cannot be mounted because of what is on it
//! is bad altogether. A volume that cannot be read for another reason is left out with all its places, and so are those
//! that a run that was stopped did not come to: what was drawn of the others is a fair sample still.

mod confidence;
mod draw;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use capstan_catalog::{Extent, Volume, VolumeState};
use capstan_format::{Volser, VolumeId};
use capstan_mover::{BetweenBlocks, RestoreWatch, VolumePlace};
use capstan_tape::with_causes;
use fastrand::Rng;

pub use self::confidence::{bad_at_most, to_be_drawn};
use self::draw::{Drawn, Places, apart as drawn_apart, draw};
use crate::damage::BadPlaces;
use crate::label::random_u64;
use crate::mounter::{Mounter, ReadMounter};
use crate::shared::apart;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// Places that are read before it is told how many, and looked whether to stop.
const TOLD_EVERY: usize = 256;

/// What is read back.
#[derive(Debug, Clone)]
pub struct ScrubRequest {
    /// Only these volumes; none for all.
    pub volumes: Vec<Volser>,
    /// Only volumes of these pools; none for all.
    pub pools: Vec<String>,
    /// Blocks of a place.
    pub place_blocks: u32,
    /// How many places are drawn.
    pub amount: ScrubAmount,
    /// How sure the statement is to be, above 0 and below 1.
    pub certainty: f64,
    /// Repeats a draw.
    pub seed: Option<u64>,
}

/// How many places are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScrubAmount {
    /// So many.
    Places(u64),
    /// This share of all.
    Share(f64),
    /// As many as it takes to say that less than one in so many is bad, if none is found.
    OneIn(u64),
}

/// A volume of which some is read.
#[derive(Debug, Clone)]
pub struct ScrubbedVolume {
    /// Its barcode.
    pub volser: Volser,
    /// Its pool.
    pub pool: String,
    /// Blocks on it that somebody needs, without those on record as damaged.
    pub blocks: u64,
    /// Those on record as damaged that somebody needs.
    pub known_bad: u64,
    /// Places that these are.
    pub places: u64,
    /// Those that are drawn.
    pub drawn: u64,
    /// Those of them that cannot be read.
    pub bad: u64,
    life: VolumeId,
    numbers: Drawn,
}

/// A volume that is not looked at.
#[derive(Debug, Clone)]
pub struct UnscrubbedVolume {
    /// Its barcode.
    pub volser: Volser,
    /// Blocks on it that somebody needs.
    pub blocks: u64,
    /// Why it is not.
    pub reason: String,
    /// Whether it was to be read. One that is on a shelf, or that a job has, was only if it was named.
    pub was_wanted: bool,
}

/// What will be read.
#[derive(Debug, Clone)]
pub struct ScrubPlan {
    /// Volumes that something is needed of, by barcode; from some nothing is drawn.
    pub volumes: Vec<ScrubbedVolume>,
    /// Volumes that are not looked at.
    pub left_out: Vec<UnscrubbedVolume>,
    /// Blocks of a place.
    pub place_blocks: u32,
    /// The share of bad blocks that is to be ruled out, if one is.
    pub wanted_share: Option<f64>,
    /// What the statement is to say of how sure it is.
    pub certainty: f64,
    /// Repeats the draw, as long as volumes hold what they hold now.
    pub seed: u64,
}

impl ScrubPlan {
    /// Volumes that are mounted.
    pub fn mounts(&self) -> usize {
        self.volumes.iter().filter(|volume| volume.drawn > 0).count()
    }

    /// Places that are drawn, and those that there are.
    pub fn places(&self) -> (u64, u64) {
        self.volumes.iter().fold((0, 0), |(drawn, all), volume| (drawn + volume.drawn, all + volume.places))
    }
}

/// What was read, and what that says.
#[derive(Debug)]
pub struct ScrubReport {
    /// Volumes that the statement is about, with what was drawn and met.
    pub volumes: Vec<ScrubbedVolume>,
    /// Volumes that it is not about.
    pub left_out: Vec<UnscrubbedVolume>,
    /// Volumes whose keys are not there, and why.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// Blocks of a place.
    pub place_blocks: u32,
    /// The share of bad blocks that was to be ruled out, if one was.
    pub wanted_share: Option<f64>,
    /// How sure the statement is.
    pub certainty: f64,
    /// Repeats the draw.
    pub seed: u64,
    /// Blocks that were read, of all volumes.
    pub blocks: u64,
    /// Blocks that cannot be read, of all volumes; they are on record.
    pub bad_blocks: u64,
    /// Whether it was stopped before its end.
    pub is_stopped: bool,
    /// How long it took.
    pub elapsed_ns: u64,
}

impl ScrubReport {
    /// Places that there are, those that were read, and those of these that are bad.
    pub fn places(&self) -> (u64, u64, u64) {
        let add =
            |(all, drawn, bad), volume: &ScrubbedVolume| (all + volume.places, drawn + volume.drawn, bad + volume.bad);
        self.volumes.iter().fold((0, 0, 0), add)
    }

    /// Blocks of the volumes that are on record as damaged; no place has one of them.
    pub fn known_bad(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.known_bad).sum()
    }

    /// How large a share of the blocks is bad at most, of those that are in places.
    pub fn bad_at_most(&self) -> f64 {
        let (all, drawn, bad) = self.places();
        let blocks: u64 = self.volumes.iter().map(|volume| volume.blocks).sum();
        let of_places = bad_at_most(all, drawn, bad, self.certainty);
        (of_places * blocks_of_places(all, self.place_blocks, blocks)).min(1.0)
    }
}

/// How many times as many blocks as there are so many places could hold: the last one of each volume is short, and the
/// bad ones may be the long ones.
fn blocks_of_places(places: u64, place_blocks: u32, blocks: u64) -> f64 {
    if blocks == 0 { 1.0 } else { (places as f64 * f64::from(place_blocks) / blocks as f64).max(1.0) }
}

impl Site {
    /// Draws what is read back. Volumes that are not in a library, that jobs have now or whose key is destroyed are
    /// left out.
    ///
    /// # Errors
    /// [`DirectorError::UnknownVolume`] or [`DirectorError::UnknownPool`]; otherwise the libraries cannot be asked, or
    /// the catalog cannot be read.
    pub fn plan_scrub(&self, request: &ScrubRequest) -> Result<ScrubPlan, DirectorError> {
        for volser in &request.volumes {
            Mounter::new(self).volume(volser)?;
        }
        for pool in &request.pools {
            let known = locked(&self.catalog).pool(pool)?;
            known.ok_or_else(|| DirectorError::UnknownPool { pool: pool.clone() })?;
        }
        let (present, in_use) = (self.present()?, self.volumes_in_use()?);
        let known = locked(&self.catalog).volumes()?;
        let is_meant = |volume: &&Volume| {
            let pool = volume.pool.as_ref();
            (request.volumes.is_empty() || request.volumes.contains(&volume.volser))
                && (request.pools.is_empty() || pool.is_some_and(|pool| request.pools.contains(pool)))
                && !matches!(volume.state, VolumeState::Blank | VolumeState::Scratch)
        };
        let (mut volumes, mut left_out) = (Vec::new(), Vec::new());
        for volume in known.iter().filter(is_meant) {
            let (Some(life), Some(pool)) = (volume.id, &volume.pool) else { continue };
            let (places, known_bad) = self.places_of(&volume.volser, request.place_blocks)?;
            if places.places() == 0 && known_bad == 0 {
                continue;
            }
            let is_held = in_use.iter().any(|held| held.volser == volume.volser.as_str());
            let reason = match () {
                () if !present.contains(&volume.volser) => "it is not in a library",
                () if volume.key_destroyed_ns.is_some() => "its key is destroyed",
                () if is_held => "another job uses it",
                () => {
                    volumes.push(ScrubbedVolume {
                        volser: volume.volser.clone(),
                        pool: pool.clone(),
                        blocks: places.blocks(),
                        known_bad,
                        places: places.places(),
                        drawn: 0,
                        bad: 0,
                        life,
                        numbers: Drawn::Some(Vec::new()),
                    });
                    continue;
                }
            };
            left_out.push(UnscrubbedVolume {
                volser: volume.volser.clone(),
                blocks: places.blocks() + known_bad,
                reason: reason.to_owned(),
                was_wanted: !request.volumes.is_empty(),
            });
        }
        let seed = request.seed.unwrap_or_else(|| random_u64() >> 32);
        let all = volumes.iter().map(|volume| volume.places).sum::<u64>();
        let blocks = volumes.iter().map(|volume| volume.blocks).sum::<u64>();
        let (wanted, wanted_share) = match request.amount {
            ScrubAmount::Places(places) => (places, None),
            ScrubAmount::Share(share) => ((all as f64 * share).ceil() as u64, None),
            ScrubAmount::OneIn(one_in) => {
                let of_places = one_in as f64 * blocks_of_places(all, request.place_blocks, blocks);
                (to_be_drawn(of_places.ceil() as u64, request.certainty), Some(1.0 / one_in as f64))
            }
        };
        let drawn = draw(all, wanted, &mut Rng::with_seed(seed));
        let parts: Vec<u64> = volumes.iter().map(|volume| volume.places).collect();
        for (volume, numbers) in volumes.iter_mut().zip(drawn_apart(&drawn, &parts)) {
            (volume.drawn, volume.numbers) = (numbers.count(), numbers);
        }
        let ScrubRequest { place_blocks, certainty, .. } = *request;
        Ok(ScrubPlan { volumes, left_out, place_blocks, wanted_share, certainty, seed })
    }

    /// Reads what was drawn, and puts on record what cannot be read. One that `watch` stopped speaks of the volumes
    /// that it came to the end of.
    ///
    /// # Errors
    /// The catalog cannot be read. A volume that cannot be read is in the report.
    pub fn scrub(&self, plan: ScrubPlan, watch: &RestoreWatch) -> Result<ScrubReport, DirectorError> {
        let began = Instant::now();
        let ScrubPlan { volumes, left_out, place_blocks, wanted_share, certainty, seed } = plan;
        let mut report = ScrubReport {
            volumes: Vec::new(),
            left_out,
            without_key: Vec::new(),
            place_blocks,
            wanted_share,
            certainty,
            seed,
            blocks: 0,
            bad_blocks: 0,
            is_stopped: false,
            elapsed_ns: 0,
        };
        let len_of = |volume: &ScrubbedVolume| -> Result<u64, DirectorError> {
            let known = locked(&self.catalog).volume(&volume.volser)?;
            // What a block takes on the volume, on average.
            Ok(known.map_or(0, |known| known.written / known.end_of_data_lbn.max(1)))
        };
        for volume in &volumes {
            let planned = volume.drawn * u64::from(place_blocks) * len_of(volume)?;
            watch.planned.fetch_add(planned, Ordering::Relaxed);
        }
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop));
        for mut volume in volumes {
            let (blocks, block_len) = (volume.blocks + volume.known_bad, len_of(&volume)?);
            report.is_stopped |= watch.stop.load(Ordering::Relaxed);
            let read = match report.is_stopped {
                true => Err(DirectorError::Interrupted),
                false => self.scrub_volume(&mut volume, place_blocks, block_len, &mut host, watch, &mut report),
            };
            let error = match read {
                Ok(()) => {
                    report.volumes.push(volume);
                    continue;
                }
                Err(error) => error,
            };
            let volser = volume.volser.clone();
            let mut reason = with_causes(&error);
            match error {
                _ if watch.stop.load(Ordering::Relaxed) => {
                    report.is_stopped = true;
                    "this was stopped before".clone_into(&mut reason);
                }
                DirectorError::Keys(_) | DirectorError::KeysLocked => report.without_key.push((volser.clone(), error)),
                // Nothing on it can be read: so much is known of each of its places.
                error if error.blames_medium() => {
                    host.note_bad(&[], "scrub");
                    let message = format!("volume {volser} cannot be read, so all of it counts as bad: {reason}");
                    (self.events)(Event::Notice { message });
                    volume.bad = volume.drawn;
                    report.volumes.push(volume);
                    continue;
                }
                _ => {}
            }
            report.left_out.push(UnscrubbedVolume { volser, blocks, reason, was_wanted: true });
        }
        report.elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(report)
    }

    /// Reads what was drawn of a volume.
    fn scrub_volume(
        &self,
        volume: &mut ScrubbedVolume,
        place_blocks: u32,
        block_len: u64,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
        report: &mut ScrubReport,
    ) -> Result<(), DirectorError> {
        if volume.drawn == 0 {
            return Ok(());
        }
        let place = VolumePlace { volser: volume.volser.clone(), volume: volume.life };
        let is_it = locked(&self.catalog).volume(&volume.volser)?.and_then(|known| known.id) == Some(volume.life);
        if !is_it {
            return Err(DirectorError::VolumeDiffers {
                volser: volume.volser.clone(),
                reason: "it was labelled anew meanwhile".to_owned(),
            });
        }
        // Objects may have been given up since: what nobody needs any more is in no place.
        let (places, known_bad) = self.places_of(&volume.volser, place_blocks)?;
        // And what was written since was in no draw: nothing is said of it.
        volume.blocks = places.blocks().min(volume.blocks);
        volume.places = places.places().min(volume.places);
        volume.known_bad = known_bad;
        let is_there = |number: &u64| *number < volume.places;
        volume.drawn = volume.numbers.numbers().filter(is_there).count() as u64;
        let (mut drawn, mut bad, mut not_read) = (0, 0, 0);
        let mut unread = None;
        let mut left = volume.numbers.numbers().map(|number| places.of(number)).filter(|blocks| !blocks.is_empty());
        loop {
            let some: Vec<Vec<Range<u64>>> = left.by_ref().take(TOLD_EVERY).collect();
            let Some(end) = some.last().and_then(|blocks| blocks.last()).map(|run| run.end) else { break };
            let mut between = BetweenBlocks::new(place.clone(), some.iter().flatten().cloned(), &watch.stop);
            let read = host.read_between(&place, &mut between, end);
            host.note_bad(&between.bad, "scrub");
            report.blocks += between.blocks;
            report.bad_blocks += between.bad.iter().map(|bad| bad.blocks).sum::<u64>();
            watch.taken.fetch_add(between.blocks * block_len, Ordering::Relaxed);
            read?;
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            unread = unread.or_else(|| between.lost.iter().find(|lost| !lost.of_medium).map(ToString::to_string));
            let lost_by = |of_medium| -> BTreeSet<u64> {
                let lost = between.lost.iter().filter(|lost| lost.of_medium == of_medium);
                lost.filter_map(|lost| lost.lbn).collect()
            };
            let (of_medium, of_others) = (lost_by(true), lost_by(false));
            let meets = |blocks: &[Range<u64>], lbns: &BTreeSet<u64>| {
                blocks.iter().any(|run| lbns.range(run.clone()).next().is_some())
            };
            drawn += some.len() as u64;
            for blocks in &some {
                let is_bad = meets(blocks, &of_medium);
                bad += u64::from(is_bad);
                not_read += u64::from(!is_bad && meets(blocks, &of_others));
            }
        }
        drop(left);
        // With a fault of the medium beside them, the others are hardly the drive's.
        match unread.filter(|_| bad == 0) {
            Some(reason) => Err(DirectorError::Output { reason }),
            None => {
                (volume.drawn, volume.bad) = (drawn, bad + not_read);
                Ok(())
            }
        }
    }

    /// The blocks of a volume that somebody needs, in places, without those on record as damaged; and how many these
    /// are.
    fn places_of(&self, volser: &Volser, place_blocks: u32) -> Result<(Places, u64), DirectorError> {
        let (needed, sound) = apart(&self.catalog, |catalog| {
            let extents = catalog.extents_on(volser)?;
            let sound = BadPlaces::of(catalog)?.sound_of_each(catalog, extents.clone())?;
            Ok::<_, DirectorError>((extents, sound))
        })?;
        let blocks = |extents: &[Extent]| {
            let blocks = extents.iter().map(|Extent { record, .. }| {
                record.first_lbn..record.first_lbn.saturating_add(u64::from(record.blocks))
            });
            Places::new(blocks.collect(), place_blocks)
        };
        let sound = blocks(&sound);
        let known_bad = blocks(&needed).blocks().saturating_sub(sound.blocks());
        Ok((sound, known_bad))
    }
}
