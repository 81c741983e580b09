//! A table of jobs, done: files of each length are made, and go through the data path to virtual drives that take the
//! time of the drives that the table names.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use capstan_format::{Algorithm, BLOCK_HEADER_LEN};
use capstan_tape::model::{ModelError, built_in};

use super::Scratch;
use super::data_path::{DataPath, DataPathError, DataPathTarget, check, null_run, run_data_path};
use super::source::Cache;
use crate::data_set::{DataSet, DataSetError, DataSetWatch, FileLengths, Ratio, Shape};
use crate::grid::Cell;

/// Why a table could not be done.
#[derive(Debug, thiserror::Error)]
pub enum MeasureGridError {
    /// The files.
    #[error(transparent)]
    DataSet(#[from] DataSetError),
    /// The data path.
    #[error(transparent)]
    DataPath(#[from] DataPathError),
    /// A drive.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The folder.
    #[error("cannot make a folder below {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl MeasureGridError {
    /// Whether somebody stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::DataSet(DataSetError::Stopped) | Self::DataPath(DataPathError::Stopped))
    }
}

/// Does each job of a table, with one connection, and notes what it gave. `mb` of files are made for each length and
/// ratio, at least one file, below a folder, and removed; a job reads for so many seconds at most. The block pool is as
/// large as the buffers of the job, but holds a dozen blocks at least. All jobs are checked before the first is done.
///
/// # Errors
/// [`MeasureGridError`]: no model has the name of a drive, the files cannot be made, or the data path failed. Cells
/// that were measured before keep their figures.
pub fn measure_grid(
    cells: &mut [Cell],
    folder: &Path,
    mb: f64,
    seconds: f64,
    watch: &DataSetWatch,
    tell: &mut dyn FnMut(&Cell),
) -> Result<(), MeasureGridError> {
    let mut checked: Vec<(f64, f64)> = Vec::new();
    for cell in cells.iter() {
        if cell.job.buffer_bytes > 2 << 20 {
            let what = "blocks of more than 2 MiB cannot be measured here: leave them out of --buffer-sizes";
            return Err(DataPathError::Option { what }.into());
        }
        check(&run_of(cell, folder, seconds)?)?;
        let files = (cell.job.file_bytes, cell.job.ratio);
        if !checked.contains(&files) {
            files_of(files, mb)?;
            checked.push(files);
        }
    }
    let scratch = Scratch::below(folder);
    let scratch = scratch.map_err(|source| MeasureGridError::Folder { path: folder.to_owned(), source })?;
    let mut order: Vec<usize> = (0..cells.len()).collect();
    // Jobs of the same files one behind the other: they are made once, and there is room for one set at a time.
    order.sort_by(|&one, &other| {
        let key = |at: usize| (cells[at].job.file_bytes, cells[at].job.ratio);
        let ((bytes, ratio), (other_bytes, other_ratio)) = (key(one), key(other));
        bytes.total_cmp(&other_bytes).then(ratio.total_cmp(&other_ratio))
    });
    let set = scratch.path().join("files");
    let mut made: Option<(f64, f64)> = None;
    for at in order {
        let job = cells[at].job;
        if made != Some((job.file_bytes, job.ratio)) {
            let _ = std::fs::remove_dir_all(&set);
            files_of((job.file_bytes, job.ratio), mb)?.make(&set, watch)?;
            made = Some((job.file_bytes, job.ratio));
        }
        let run = run_of(&cells[at], scratch.path(), seconds)?;
        let run = DataPath { source: set.clone(), ..run };
        let stop: &AtomicBool = &watch.stop;
        cells[at].measured_mb_per_s = Some(run_data_path(&run, stop)?.mb_per_s());
        tell(&cells[at]);
    }
    Ok(())
}

/// Files of one length and ratio: `mb` of them, at least one.
fn files_of((file_bytes, ratio): (f64, f64), mb: f64) -> Result<DataSet, DataSetError> {
    let length = (file_bytes as u64).max(1);
    let bytes = (mb * 1e6) as u64 / length * length;
    let shape = Shape::of_bytes(FileLengths::Sizes { from: length, to: length }, bytes.max(length), 1);
    DataSet::plan(&Shape { ratio: Ratio::EachFile(ratio), ..shape })
}

/// How a job is done, with cartridges below a folder; its source is named later.
fn run_of(cell: &Cell, folder: &Path, seconds: f64) -> Result<DataPath, ModelError> {
    let (job, model) = (&cell.job, built_in(&cell.drive)?);
    let encryption = job.encrypted.then_some(Algorithm::Aes256Gcm);
    let buffer = usize::try_from(job.buffer_bytes).unwrap_or(usize::MAX);
    Ok(DataPath {
        cache: Cache::Cold,
        connections: 1,
        block_len: buffer.saturating_sub(BLOCK_HEADER_LEN),
        pool_bytes: job.buffer_bytes * u64::from(job.buffers),
        target: DataPathTarget::Virtual { folder: folder.to_owned(), encryption, pace: Some(Box::new(model)) },
        seconds,
        // A drive compresses what the data path does not.
        drive_ratio: job.ratio,
        ..null_run(Path::new(""))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::grid::read_grid;

    #[test]
    fn each_job_is_done_at_the_pace_of_its_drive() {
        let folder = tempfile::tempdir().unwrap();
        let table = "drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio\n\
                     SDLT-220,32,128KB,0,1MB,1\nSDLT-220,32,128KB,0,1MB,2\nT9840D,32,128KB,1,256KB,1\n";
        let mut cells = read_grid(table).unwrap();
        let mut told = 0;
        measure_grid(&mut cells, folder.path(), 40.0, 1.5, &DataSetWatch::default(), &mut |_| told += 1).unwrap();
        let rates: Vec<f64> = cells.iter().map(|cell| cell.measured_mb_per_s.unwrap()).collect();
        assert_eq!(told, 3);
        assert!(rates[0] < 12.0, "no faster than the drive: {rates:?}");
        assert!(rates[1] > rates[0] * 1.2, "a drive that compresses is faster: {rates:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A job that could not be was found out when the others had been done.
    #[test]
    fn all_jobs_are_checked_before_the_first_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let table = "drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio\n\
                     SDLT-220,32,128KB,0,1MB,1\nSDLT-220,32,128KB,0,1MB,2\n";
        let mut cells = read_grid(table).unwrap();
        cells[1].drive = "LTO-99".to_owned();
        let out = folder.path().join("out");
        let mut told = 0;
        let refused = measure_grid(&mut cells, &out, 40.0, 1.0, &DataSetWatch::default(), &mut |_| told += 1);
        assert!(matches!(refused, Err(MeasureGridError::Model(_))), "{refused:?}");
        assert!(told == 0 && !out.exists());
    }
}
