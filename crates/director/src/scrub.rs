//! Scrub: some of what volumes hold is read back, drawn at random; and what that says of the rest.
//!
//! ```text
//! blocks that somebody still needs --cut--> places --draw--> some --read--> bad ones on record, and how many there
//! of volumes in the library                                             may be among all, with which certainty
//! ```
//! A place is a block, or some blocks that stand behind one another. Each is as likely to be drawn as every other one
//! of all volumes that are looked at, so what is met says how many bad ones there are at most. A place with a block
//! that cannot be read is bad; so a smaller share of blocks than of places is, wherever damage clusters. What is on
//! record as damaged already is not among them.
//!
//! Volumes are read one after the other, each in the order of the tape. A volume of which not all that was drawn could
//! be read, for no fault of its medium, is left out with all its places: those of the others are a fair sample still.

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
use self::draw::{Places, draw};
use crate::damage::BadPlaces;
use crate::label::random_u64;
use crate::mounter::{Mounter, ReadMounter};
use crate::shared::apart;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// Places that are read before it is told how many, and looked whether to stop.
const TOLD_EVERY: usize = 64;

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
    /// Blocks on it that somebody needs.
    pub blocks: u64,
    /// Places that these are.
    pub places: u64,
    /// Those that are drawn.
    pub drawn: u64,
    /// Those of them that cannot be read.
    pub bad: u64,
    life: VolumeId,
    numbers: BTreeSet<u64>,
}

/// What will be read.
#[derive(Debug, Clone)]
pub struct ScrubPlan {
    /// Volumes that something is needed of, by barcode; from some nothing is drawn.
    pub volumes: Vec<ScrubbedVolume>,
    /// Volumes that are not looked at, and why.
    pub left_out: Vec<(Volser, String)>,
    /// Blocks of a place.
    pub place_blocks: u32,
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
    /// Volumes that it is not about, and why.
    pub left_out: Vec<(Volser, String)>,
    /// Volumes whose keys are not there, and why.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// Blocks of a place.
    pub place_blocks: u32,
    /// How sure the statement is.
    pub certainty: f64,
    /// Repeats the draw.
    pub seed: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Blocks that cannot be read; they are on record.
    pub bad_blocks: u64,
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

    /// How large a share of the places is bad at most, and so of the blocks.
    pub fn bad_at_most(&self) -> f64 {
        let (all, drawn, bad) = self.places();
        bad_at_most(all, drawn, bad, self.certainty)
    }
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
            let places = self.places_of(&volume.volser, request.place_blocks)?;
            if places.places() == 0 {
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
                        places: places.places(),
                        drawn: 0,
                        bad: 0,
                        life,
                        numbers: BTreeSet::new(),
                    });
                    continue;
                }
            };
            left_out.push((volume.volser.clone(), reason.to_owned()));
        }
        let seed = request.seed.unwrap_or_else(|| random_u64() >> 32);
        let all = volumes.iter().map(|volume| volume.places).sum::<u64>();
        let wanted = match request.amount {
            ScrubAmount::Places(places) => places,
            ScrubAmount::Share(share) => (all as f64 * share).ceil() as u64,
            ScrubAmount::OneIn(one_in) => to_be_drawn(one_in, request.certainty),
        };
        let mut drawn = draw(all, wanted, &mut Rng::with_seed(seed)).into_iter().peekable();
        let mut before = 0;
        for volume in &mut volumes {
            let end = before + volume.places;
            while let Some(number) = drawn.next_if(|number| *number < end) {
                volume.numbers.insert(number - before);
            }
            volume.drawn = volume.numbers.len() as u64;
            before = end;
        }
        let ScrubRequest { place_blocks, certainty, .. } = *request;
        Ok(ScrubPlan { volumes, left_out, place_blocks, certainty, seed })
    }

    /// Reads what was drawn, and puts on record what cannot be read.
    ///
    /// # Errors
    /// [`DirectorError::RestoreInterrupted`] if `watch` stopped it: nothing is stated then, and what was found bad is
    /// on record. Otherwise the catalog cannot be read. A volume that cannot be read is in the report.
    pub fn scrub(&self, plan: ScrubPlan, watch: &RestoreWatch) -> Result<ScrubReport, DirectorError> {
        let began = Instant::now();
        let ScrubPlan { volumes, left_out, place_blocks, certainty, seed } = plan;
        let mut report = ScrubReport {
            volumes: Vec::new(),
            left_out,
            without_key: Vec::new(),
            place_blocks,
            certainty,
            seed,
            blocks: 0,
            bad_blocks: 0,
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
            let block_len = len_of(&volume)?;
            match self.scrub_volume(&mut volume, place_blocks, block_len, &mut host, watch, &mut report) {
                Ok(()) => report.volumes.push(volume),
                Err(DirectorError::Interrupted) => return Err(DirectorError::RestoreInterrupted),
                Err(error @ (DirectorError::Keys(_) | DirectorError::KeysLocked)) => {
                    report.left_out.push((volume.volser.clone(), with_causes(&error)));
                    report.without_key.push((volume.volser, error));
                }
                Err(error) => {
                    let reason = with_causes(&error);
                    let message = format!("volume {} could not be read: {reason}", volume.volser);
                    (self.events)(Event::Notice { message });
                    report.left_out.push((volume.volser, reason));
                }
            }
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
        if volume.numbers.is_empty() {
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
        let places = self.places_of(&volume.volser, place_blocks)?;
        let drawn: Vec<Vec<Range<u64>>> =
            volume.numbers.iter().map(|number| places.of(*number)).filter(|blocks| !blocks.is_empty()).collect();
        let blocks: Vec<Range<u64>> = drawn.iter().flatten().cloned().collect();
        let mut between = BetweenBlocks::new(place.clone(), blocks.iter().cloned(), &watch.stop);
        for some in blocks.chunks(TOLD_EVERY) {
            let Some(last) = some.last() else { break };
            let before = between.blocks;
            let read = host.read_between(&place, &mut between, last.end);
            watch.taken.fetch_add((between.blocks - before) * block_len, Ordering::Relaxed);
            if watch.stop.load(Ordering::Relaxed) || read.is_err() {
                host.note_bad(&between.bad, "scrub");
                read?;
                return Err(DirectorError::Interrupted);
            }
        }
        host.note_bad(&between.bad, "scrub");
        report.blocks += between.blocks;
        report.bad_blocks += between.bad.iter().map(|bad| bad.blocks).sum::<u64>();
        if let Some(lost) = between.lost.iter().find(|lost| !lost.of_medium) {
            return Err(DirectorError::Output { reason: lost.to_string() });
        }
        let bad: BTreeSet<u64> = between.lost.iter().filter_map(|lost| lost.lbn).collect();
        let is_bad = |blocks: &&Vec<Range<u64>>| blocks.iter().any(|run| bad.range(run.clone()).next().is_some());
        volume.drawn = drawn.len() as u64;
        volume.bad = drawn.iter().filter(is_bad).count() as u64;
        (volume.blocks, volume.places) = (places.blocks(), places.places());
        Ok(())
    }

    /// The blocks of a volume that somebody needs and that are not on record as damaged, in places.
    fn places_of(&self, volser: &Volser, place_blocks: u32) -> Result<Places, DirectorError> {
        let sound = apart(&self.catalog, |catalog| {
            let extents = catalog.extents_on(volser)?;
            BadPlaces::of(catalog)?.sound_of_each(catalog, extents)
        })?;
        let blocks = sound
            .iter()
            .map(|Extent { record, .. }| record.first_lbn..record.first_lbn.saturating_add(u64::from(record.blocks)));
        Ok(Places::new(blocks.collect(), place_blocks))
    }
}
