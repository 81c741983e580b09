//! What was not measured yet, measured.

use std::path::Path;

use capstan_lab::{
    Cache, DataPath, DriveData, Exercise, ExerciseMedium, LONGER_MAX, Measured, Measurements, Reading, Setting,
    SiteFigures, Staging, StagingError, measure_drive, measure_path, measure_source, measure_staging, null_run,
};

use super::Site;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::lab::measure::{drive_failed, failed, measuring, read_failed, staging_failed, wrong_file};
use crate::progress::Display;
use crate::secrets::now_ns;

/// Adds to what is kept, and takes what others have added meanwhile.
pub(super) fn keep_in(site: &Site, all: &mut Measurements, add: impl FnOnce(&mut Measurements)) -> Result<(), Failure> {
    let kept = Measurements::add(&site.state, |kept| {
        add(kept);
        all.clone_from(kept);
    });
    kept.map(|_| ()).map_err(|error| wrong_file(&error))
}

/// Measures what advice for this setting lacks.
pub(super) fn measure_missing(
    cli: &Globals,
    all: &mut Measurements,
    source: &Path,
    site: &Site,
    current: &Setting,
) -> Result<(), Failure> {
    const ROUNDS: u32 = 3;
    const SECONDS: f64 = 2.0;
    let seconds_max = SECONDS * LONGER_MAX;
    let display = Display::new(cli);
    let connections = [1, 2, 4, 8, 16];
    let known = SiteFigures::of(all, source).ok().map(|figures| figures.path);
    if let Some(known) = known.filter(|known| !known.has_level(current.compression_level)) {
        let level = current.compression_level;
        display.say(&format!("measuring the data path at zstd {level} (capstan lab null)"));
        // As it was measured at other levels.
        let what = DataPath { seconds: SECONDS, seconds_max, cache: known.cache, slow: known.slow, ..null_run(source) };
        let mut each: Vec<_> = known.rates.iter().map(|rate| (rate.connections, rate.block_len, level)).collect();
        each.sort_unstable();
        each.dedup();
        let about_s = SECONDS * f64::from(ROUNDS) * each.len() as f64;
        let found = measuring(cli, about_s, |stop, _| measure_path(&what, &each, ROUNDS, stop, &mut |_| {}));
        let found = found.map_err(|unfinished| failed(&unfinished.error))?;
        keep_in(site, all, |all| all.add_levels(found, now_ns()))?;
    }
    if all.paths.iter().all(|measured| measured.found.source != source) {
        display.say("measuring the data path without a drive (capstan lab null)");
        let what = DataPath { seconds: SECONDS, seconds_max, ..null_run(source) };
        let mut levels = vec![0, 1, current.compression_level];
        levels.sort_unstable();
        levels.dedup();
        let each: Vec<_> = levels
            .iter()
            .flat_map(|&level| connections.map(|connections| (connections, current.block_len, level)))
            .collect();
        let about_s = SECONDS * f64::from(ROUNDS) * each.len() as f64;
        let found = measuring(cli, about_s, |stop, _| measure_path(&what, &each, ROUNDS, stop, &mut |_| {}));
        let found = Measured { at_ns: now_ns(), found: found.map_err(|unfinished| failed(&unfinished.error))? };
        keep_in(site, all, |all| all.add_path(found))?;
    }
    if all.sources.iter().all(|measured| measured.found.source != source) {
        display.say("measuring bare readers (capstan lab read)");
        let reading = Reading {
            readers: connections.to_vec(),
            block_len: 256 << 10,
            cache: Cache::Cold,
            rounds: ROUNDS,
            seconds: SECONDS,
            seconds_max,
        };
        let about_s = SECONDS * f64::from(ROUNDS) * connections.len() as f64;
        let found = measuring(cli, about_s, |stop, _| measure_source(source, &reading, stop, &mut |_| {}));
        let found = Measured { at_ns: now_ns(), found: found.map_err(|unfinished| read_failed(&unfinished.error))? };
        keep_in(site, all, |all| all.add_source(found))?;
    }
    if all.drives.iter().all(|measured| measured.found.model.is_some() || measured.found.sync_mb.is_some()) {
        display.say("measuring the virtual drive (capstan lab drive)");
        let medium = ExerciseMedium::New { folder: site.folder.clone() };
        let blocks = [64 << 10, 256 << 10, 512 << 10, 2000 << 10].map(|block_len| (DriveData::Random, block_len));
        let what = Exercise {
            data: DriveData::Random,
            block_len: 0,
            mb: 500.0,
            mb_per_s: None,
            sync_mb: None,
            encryption: Some(capstan_format::Algorithm::Aes256Gcm),
            pace: None,
        };
        let found = measuring(cli, 20.0, |stop, _| measure_drive(&medium, &blocks, ROUNDS, &what, stop, &mut |_| {}));
        let found = Measured { at_ns: now_ns(), found: found.map_err(|unfinished| drive_failed(&unfinished.error))? };
        keep_in(site, all, |all| all.add_drive(found))?;
    }
    if all.staging.is_empty() {
        display.say("measuring the disk as a file library (capstan lab staging)");
        let what = Staging { writers: vec![1, 2, 4], block_len: 512 << 10, mb: 400.0, rounds: ROUNDS };
        let found = measuring(cli, 40.0, |stop, _| measure_staging(&site.folder, &what, stop, &mut |_| {}));
        match found {
            Ok(found) => keep_in(site, all, |all| all.add_staging(Measured { at_ns: now_ns(), found }))?,
            // Only advice to go by way of a disk needs it.
            Err(StagingError::NoRoom { folder, needed, free }) => {
                let folder = folder.display();
                display.warn(&format!(
                    "the disk of {folder} is not measured as a file library: that takes {needed} MB, and {free} are free. \
                     So nothing is said of staging; measure it with less: \
                     capstan lab staging --folder {folder} --depot 100M"
                ));
            }
            Err(error) => return Err(staging_failed(&error)),
        }
    }
    Ok(())
}
