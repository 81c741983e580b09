//! Tables of measurements, as papers print them: read or made, predicted, and calibrated against.

use capstan_tape::model::{DriveModel, ModelError, built_in};
use serde::Deserialize;

use super::pipeline::{HostModel, PipelineJob, Prediction};

/// One row of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The drive's name, as the table has it.
    pub drive: String,
    /// The columns that say what was done, as the table has them.
    pub columns: Vec<String>,
    /// The same as a job.
    pub job: PipelineJob,
    /// What was measured, MB/s; a table to be predicted need not have it.
    pub measured_mb_per_s: Option<f64>,
}

/// Why a table cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    /// A line is no row.
    #[error(
        "line {line} of the table cannot be read: {reason}. Its columns are \
         drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio and, if it was measured, mb_per_s"
    )]
    Row {
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// A row cannot be done with its drive.
    #[error("line {line} of the table: {source}")]
    Model {
        /// Which line, from 1.
        line: u64,
        /// Why not.
        source: ModelError,
    },
    /// There is no row.
    #[error("the table has no rows")]
    Empty,
    /// A grid cannot be made so.
    #[error("{what}")]
    Axis {
        /// What is wrong.
        what: String,
    },
    /// There is no such drive.
    #[error(transparent)]
    Drive(ModelError),
    /// A drive of the grid cannot write buffers of a size in it.
    #[error("{source}: leave that buffer size out, or make a grid of its own for that drive")]
    Block {
        /// Which drive and size.
        source: ModelError,
    },
    /// A drive of the grid does not encrypt.
    #[error("{source}: leave --encrypted out, or make a grid of its own for that drive with --encrypted 0")]
    Encryption {
        /// Which drive.
        source: ModelError,
    },
    /// There is nothing to calibrate by.
    #[error("the table has no measurements (column mb_per_s) to calibrate by; --measure DIR makes them")]
    Unmeasured,
}

#[derive(Deserialize)]
struct Row {
    drive: String,
    data_buffers: String,
    buffer_size: String,
    encrypted: String,
    file_size: String,
    compression_ratio: String,
    mb_per_s: Option<f64>,
}

/// Heads of the columns that say what was done.
pub const HEADS: [&str; 6] = ["drive", "data_buffers", "buffer_size", "encrypted", "file_size", "compression_ratio"];

/// Lengths as the tables have them: `256KB`, in powers of two.
fn parse_length(text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "KB" | "K" => 10,
        "MB" | "M" => 20,
        "GB" | "G" => 30,
        unit => return Err(format!("{unit} is no unit of {text}")),
    };
    let value: f64 = digits.parse().map_err(|_| format!("{text} is no length"))?;
    let bytes = value * f64::from(1u32 << shift);
    if bytes >= 1.0 { Ok(bytes) } else { Err(format!("{text} is shorter than a byte")) }
}

fn cell(row: Row) -> Result<Cell, String> {
    let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{text} is no number"));
    let buffers = row.data_buffers.parse::<u32>().ok().filter(|buffers| *buffers > 0);
    let ratio = number(&row.compression_ratio)?;
    if !(ratio.is_finite() && ratio >= 1.0) {
        return Err(format!("data compress 1:1 or better, not {}:1", row.compression_ratio));
    }
    let job = PipelineJob {
        file_bytes: parse_length(&row.file_size)?,
        buffer_bytes: parse_length(&row.buffer_size)? as u64,
        buffers: buffers.ok_or_else(|| format!("{} is no number of buffers", row.data_buffers))?,
        ratio,
        encrypted: match row.encrypted.as_str() {
            "0" | "no" => false,
            "1" | "yes" => true,
            other => return Err(format!("encrypted is 0 or 1, not {other}")),
        },
    };
    let Row { drive, data_buffers, buffer_size, encrypted, file_size, compression_ratio, mb_per_s } = row;
    let columns = vec![drive.clone(), data_buffers, buffer_size, encrypted, file_size, compression_ratio];
    Ok(Cell { drive, columns, job, measured_mb_per_s: mb_per_s })
}

/// Reads a table.
///
/// # Errors
/// [`GridError::Row`] for the first line that is no row; [`GridError::Empty`].
pub fn read_grid(text: &str) -> Result<Vec<Cell>, GridError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let mut cells = Vec::new();
    for (at, row) in reader.deserialize::<Row>().enumerate() {
        let line = at as u64 + 2;
        let row = row.map_err(|error| GridError::Row { line, reason: error.to_string() })?;
        cells.push(cell(row).map_err(|reason| GridError::Row { line, reason })?);
    }
    if cells.is_empty() { Err(GridError::Empty) } else { Ok(cells) }
}

/// What the rows of a grid are made of: each of one with each of all others.
#[derive(Debug, Clone, PartialEq)]
pub struct GridAxes {
    /// Names of drives that have a model.
    pub drives: Vec<String>,
    /// How many buffers.
    pub buffers: Vec<u32>,
    /// How far the data compress: 2 for 2:1.
    pub ratios: Vec<f64>,
    /// Bytes of a file.
    pub file_bytes: Vec<u64>,
    /// Bytes of a buffer, which is a block on the tape; `None` for those of the papers that the drive writes.
    pub buffer_bytes: Option<Vec<u64>>,
    /// Whether the drive encrypts; `None` for both on a drive that does, and no on one that does not.
    pub encrypted: Option<Vec<bool>>,
}

/// Buffer sizes of both papers; drives that do not write the largest have fewer.
const PAPERS_BUFFER_BYTES: [u64; 5] = [64 << 10, 256 << 10, 512 << 10, 2 << 20, 8 << 20];
/// Most rows of a grid.
const ROWS_MAX: usize = 1_000_000;

impl GridAxes {
    /// What the tables of LTO4 and of T10000A show, all of it for each drive. 64 KB is beside what they show: the
    /// default of many programs, and all that some drives write besides 256 KB.
    pub fn of_papers(drives: Vec<String>) -> Self {
        Self {
            drives,
            buffers: vec![4, 8, 16, 32],
            ratios: vec![1.0, 2.0, 10.0],
            file_bytes: vec![32 << 10, 256 << 10, 1 << 20, 1 << 30, 5 << 30, 10 << 30],
            buffer_bytes: None,
            encrypted: None,
        }
    }

    fn check(&self) -> Result<(), GridError> {
        let refuse = |what: &str| Err(GridError::Axis { what: what.to_owned() });
        let sizes = self.buffer_bytes.as_deref().unwrap_or(&PAPERS_BUFFER_BYTES);
        let lens = [
            self.drives.len(),
            self.buffers.len(),
            self.ratios.len(),
            self.file_bytes.len(),
            sizes.len(),
            self.encrypted.as_ref().map_or(2, Vec::len),
        ];
        if lens.contains(&0) {
            return refuse("a grid has one drive, one number of buffers and one of each other thing at least");
        }
        if lens.iter().fold(1_usize, |rows, len| rows.saturating_mul(*len)) > ROWS_MAX {
            return refuse("the grid would have more than a million rows: leave something out");
        }
        if self.buffers.contains(&0) {
            return refuse("0 is no number of buffers: there is one at least");
        }
        if self.file_bytes.contains(&0) {
            return refuse("files of 0 bytes have no rate: the shortest has one byte");
        }
        if let Some(ratio) = self.ratios.iter().find(|ratio| !(ratio.is_finite() && **ratio >= 1.0)) {
            return refuse(&format!("data compress 1:1 or better, not {ratio}:1"));
        }
        Ok(())
    }

    fn rows_of(&self, drive: &DriveModel) -> Result<Vec<Cell>, GridError> {
        let writes = |bytes: u64| drive.tape_share(bytes, false, 1.0);
        let sizes = match &self.buffer_bytes {
            None => PAPERS_BUFFER_BYTES.into_iter().filter(|bytes| writes(*bytes).is_ok()).collect(),
            Some(sizes) => {
                for bytes in sizes {
                    writes(*bytes).map_err(|source| GridError::Block { source })?;
                }
                sizes.clone()
            }
        };
        let encrypted = match &self.encrypted {
            None if drive.encrypts() => vec![false, true],
            None => vec![false],
            Some(asked) if asked.contains(&true) && !drive.encrypts() => {
                return Err(GridError::Encryption { source: ModelError::NoEncryption { model: drive.name.clone() } });
            }
            Some(asked) => asked.clone(),
        };
        let mut rows = Vec::new();
        for &buffers in &self.buffers {
            for &ratio in &self.ratios {
                for &file_bytes in &self.file_bytes {
                    for &buffer_bytes in &sizes {
                        for &encrypted in &encrypted {
                            let job =
                                PipelineJob { file_bytes: file_bytes as f64, buffer_bytes, buffers, ratio, encrypted };
                            let columns = vec![
                                drive.name.clone(),
                                buffers.to_string(),
                                length_text(buffer_bytes),
                                u8::from(encrypted).to_string(),
                                length_text(file_bytes),
                                ratio.to_string(),
                            ];
                            rows.push(Cell { drive: drive.name.clone(), columns, job, measured_mb_per_s: None });
                        }
                    }
                }
            }
        }
        Ok(rows)
    }
}

/// The opposite of [`parse_length`].
fn length_text(bytes: u64) -> String {
    let units = [(30, "GB"), (20, "MB"), (10, "KB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Makes a table: by drive, buffers, ratio, file size, buffer size and encryption, as the papers' tables go. Each of
/// its rows can be predicted.
///
/// # Errors
/// A value of the axes cannot be, or no model has the name of a drive.
pub fn make_grid(axes: &GridAxes) -> Result<Vec<Cell>, GridError> {
    axes.check()?;
    let mut rows = Vec::new();
    for name in &axes.drives {
        rows.extend(axes.rows_of(&built_in(name).map_err(GridError::Drive)?)?);
    }
    Ok(rows)
}

/// Predicts each row, with the drive that it names.
///
/// # Errors
/// [`GridError::Model`] for the first row whose drive has no model, or does not write such blocks.
pub fn predict_grid(cells: &[Cell], host: &HostModel) -> Result<Vec<Prediction>, GridError> {
    let mut drives: Vec<(String, DriveModel)> = Vec::new();
    let mut predictions = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let model = |source| GridError::Model { line: at as u64 + 2, source };
        if drives.iter().all(|(name, _)| *name != cell.drive) {
            drives.push((cell.drive.clone(), built_in(&cell.drive).map_err(model)?));
        }
        let Some((_, drive)) = drives.iter().find(|(name, _)| *name == cell.drive) else { continue };
        predictions.push(host.predict(drive, &cell.job).map_err(model)?);
    }
    Ok(predictions)
}

/// Mean of how far predictions are from what was measured, as a share of it; none if nothing was.
pub fn mean_error(cells: &[Cell], predictions: &[Prediction]) -> Option<f64> {
    let errors: Vec<f64> = cells
        .iter()
        .zip(predictions)
        .filter_map(|(cell, prediction)| Some((prediction.mb_per_s / cell.measured_mb_per_s? - 1.0).abs()))
        .collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

/// Rows whose encrypted and plain measurements agree: where the paper contradicts itself by more than `share`, neither
/// is known.
pub fn agreeing(cells: &[Cell], share: f64) -> Vec<Cell> {
    let same = |a: &PipelineJob, b: &PipelineJob| {
        a.file_bytes == b.file_bytes && a.buffer_bytes == b.buffer_bytes && a.buffers == b.buffers && a.ratio == b.ratio
    };
    let agrees = |cell: &&Cell| {
        let other = cells.iter().find(|other| {
            other.drive == cell.drive && other.job.encrypted != cell.job.encrypted && same(&other.job, &cell.job)
        });
        match (cell.measured_mb_per_s, other.and_then(|other| other.measured_mb_per_s)) {
            (Some(one), Some(two)) => (one - two).abs() <= share * one.max(two),
            _ => false,
        }
    };
    cells.iter().filter(agrees).cloned().collect()
}

/// Finds the host's figures by which a table is predicted best: from `start` on, each figure in turn a step up or down,
/// by steps that become finer. The same table gives the same figures.
///
/// # Errors
/// As [`predict_grid`], and [`GridError::Unmeasured`] if the table has no measurement.
pub fn calibrate(cells: &[Cell], start: &HostModel) -> Result<(HostModel, f64), GridError> {
    const FIRST_STEP: f64 = 0.4;
    const LAST_STEP: f64 = 1e-4;
    let error_of = |host: &HostModel| -> Result<f64, GridError> {
        mean_error(cells, &predict_grid(cells, host)?).ok_or(GridError::Unmeasured)
    };
    // Bounds keep each figure what it is called, where the table says nothing of it.
    type Figure = (fn(&mut HostModel) -> &mut f64, f64, f64);
    let figures: [Figure; 8] = [
        (|host| &mut host.open_s, 1e-5, 1.0),
        (|host| &mut host.request_s, 1e-6, 0.1),
        (|host| &mut host.window_kb, 64.0, 16e3),
        (|host| &mut host.stream_mb_per_s, 1.0, 1e3),
        (|host| &mut host.border_s, 1e-6, 0.1),
        (|host| &mut host.cycle_s, 1e-4, 1.0),
        (|host| &mut host.copy_mb_per_s, 50.0, 2e3),
        // Twelve is as good as a hard minimum.
        (|host| &mut host.steadiness, 1.5, 12.0),
    ];
    let mut best = start.clone();
    let mut least = error_of(&best)?;
    let mut step = FIRST_STEP;
    while step > LAST_STEP {
        let before = least;
        for (figure, low, high) in figures {
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                let mut tried = best.clone();
                let value = figure(&mut tried);
                *value = (*value * factor).clamp(low, high);
                let error = error_of(&tried)?;
                if error < least {
                    (best, least) = (tried, error);
                }
            }
        }
        if least >= before * (1.0 - 1e-6) {
            step *= 0.7;
        }
    }
    Ok((best, least))
}
