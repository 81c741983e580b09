//! How long a restore is thought to take, before anything is mounted.
//!
//! Of a cartridge of a generation that has a model, the model says how long loading, the ways along the tape and
//! reading take; where its blocks lie follows from how much is on it, taken to be of equal length. A cartridge in a
//! file takes what its disk takes, unless its library keeps the pace of a drive.

use capstan_catalog::Volume;
use capstan_mover::{Pass, ReadPlan, Wanted};
use capstan_tape::model::{
    Afterwards, DriveModel, Restore, StartPosition, TapeExtent, built_in, front_to_back, plan_restore,
};

use crate::DirectorError;
use crate::mounter::generation_of;
use crate::site::{Site, locked};

/// Bytes a second that cartridges in files are taken to give.
const FILE_RATE: u64 = 400 << 20;
/// What a LOCATE on one is taken to cost.
const FILE_LOCATE_NS: u64 = 100_000;
/// What a mount of one is taken to cost.
const FILE_MOUNT_NS: u64 = 20_000_000;
/// What a robot is taken to need to bring a cartridge to a drive, and the same back: an assumption, as no model of
/// libraries is here.
const ROBOT_S: f64 = 15.0;
/// More stretches than this are reckoned front to back: their order takes longer to find than it is worth here, where
/// each volume of a restore has its own.
const ORDERED_MAX: usize = 50;

/// Blocks that stand behind one another, and what they hold.
struct Stretch {
    first_lbn: u64,
    end_lbn: u64,
}

impl Site {
    /// How long it is thought to take to carry out a plan, in nanoseconds.
    pub(crate) fn estimate_ns(&self, wanted: &Wanted, reads: &ReadPlan) -> Result<u64, DirectorError> {
        let mut total_ns = 0u64;
        for pass in &reads.passes {
            let volser = &wanted.volumes[pass.volume].volser;
            let known = locked(&self.catalog).volume(volser)?;
            let model = known.as_ref().map(|volume| self.model_of(volume)).transpose()?.flatten();
            let own_ns = match (known, model) {
                (Some(volume), Some(model)) => tape_ns(pass, &volume, model),
                _ => file_ns(pass),
            };
            total_ns = total_ns.saturating_add(own_ns);
        }
        Ok(total_ns)
    }

    /// The model by which a volume is read, where it has the ways and the rate of a tape.
    fn model_of(&self, volume: &Volume) -> Result<Option<DriveModel>, DirectorError> {
        let library = self.libraries.of_volume(&self.catalog, &volume.volser, &self.library)?;
        // What the drives of a mover are, their cartridges say.
        if library.config.is_folder_here() {
            return Ok(library.config.pace().ok().flatten());
        }
        Ok(generation_of(volume).and_then(|name| built_in(&name).ok()))
    }
}

fn stretches(pass: &Pass) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for run in &pass.runs {
        let end_lbn = run.lbn.saturating_add(u64::from(run.blocks));
        match stretches.last_mut() {
            Some(last) if last.end_lbn == run.lbn => last.end_lbn = end_lbn,
            _ => stretches.push(Stretch { first_lbn: run.lbn, end_lbn }),
        }
    }
    stretches
}

fn file_ns(pass: &Pass) -> u64 {
    // Catalog parts come from volumes, and a hostile one may claim anything.
    let bytes = pass.runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.plain_len));
    let read_ns = u128::from(bytes) * 1_000_000_000 / u128::from(FILE_RATE);
    let locates = stretches(pass).len() as u64;
    FILE_MOUNT_NS + locates * FILE_LOCATE_NS + u64::try_from(read_ns).unwrap_or(u64::MAX / 4)
}

fn tape_ns(pass: &Pass, volume: &Volume, mut model: DriveModel) -> u64 {
    if let Some(capacity) = volume.capacity.filter(|capacity| *capacity > 0) {
        model.capacity_gb.value = capacity as f64 / 1e9;
    }
    let block_len = volume.written as f64 / volume.end_of_data_lbn.max(1) as f64;
    let byte = |lbn: u64| (lbn as f64 * block_len) as u64;
    let extent = |stretch: &Stretch| {
        let begin = byte(stretch.first_lbn);
        TapeExtent { begin, len: byte(stretch.end_lbn).saturating_sub(begin) }
    };
    let extents: Vec<_> = stretches(pass).iter().map(extent).collect();
    let restore = Restore {
        extents: &extents,
        ratio: 1.0,
        target_mb_per_s: None,
        standing: StartPosition::Unloaded,
        afterwards: Afterwards::Unload,
    };
    let schedule =
        if extents.len() > ORDERED_MAX { front_to_back(&model, &restore) } else { plan_restore(&model, &restore) };
    // Rounded to whole seconds, as the model is no better than that.
    ((schedule.total_s() + 2.0 * ROBOT_S).round() * 1e9) as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::Volser;
    use capstan_mover::Run;

    use super::*;

    const BLOCK: u64 = 256 << 10;

    fn pass(runs: &[(u64, u32)]) -> Pass {
        let run = |&(lbn, blocks): &(u64, u32)| {
            let plain_len = u64::from(blocks) * BLOCK;
            Run { stream: 0, connection: 0, base: 0, lbn, blocks, offset: 0, plain_len }
        };
        Pass { volume: 0, runs: runs.iter().map(run).collect() }
    }

    /// A full cartridge of 2.5 TB, in blocks of 256 KiB.
    fn full() -> Volume {
        let written = 2_500_000_000_000;
        let volser = Volser::new("A00001L6").unwrap();
        Volume { written, end_of_data_lbn: written / BLOCK, capacity: Some(written), ..Volume::blank(volser) }
    }

    fn seconds(runs: &[(u64, u32)]) -> u64 {
        tape_ns(&pass(runs), &full(), built_in("LTO-6").unwrap()) / 1_000_000_000
    }

    #[test]
    fn one_file_of_a_tape_takes_a_minute_or_two_and_all_of_it_hours() {
        let end = full().end_of_data_lbn;
        let one = seconds(&[(end / 3, 4)]);
        assert!((60..240).contains(&one), "{one} s");
        // 2.5 TB at 160 MB/s.
        let all = seconds(&[(0, u32::try_from(end).unwrap())]);
        assert!((15_000..18_000).contains(&all), "{all} s");
        // Neighbours are one stretch, and others are not.
        assert_eq!(stretches(&pass(&[(3, 2), (5, 4), (20, 1)])).len(), 2);
        let many: Vec<_> = (0..1000).map(|number| (number * 9000, 1)).collect();
        assert!(seconds(&many) > seconds(&many[..100]));
    }

    #[test]
    fn a_file_takes_what_its_disk_takes() {
        let ns = file_ns(&pass(&[(0, 1600), (5000, 1600)]));
        assert!((2_000_000_000..2_100_000_000).contains(&ns), "{ns}");
        let hostile = Run { plain_len: u64::MAX, ..pass(&[(0, 1)]).runs[0] };
        assert!(file_ns(&Pass { volume: 0, runs: vec![hostile, hostile] }) > 1_000_000_000);
    }
}
