//! What is known of a drive, as its file gives it.

use serde::Deserialize;

use super::figure::{Figure, Origin};
use super::geometry::Geometry;

/// Speeds at which the tape can run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Speeds {
    /// These, in MB/s, the slowest first.
    List(Vec<f64>),
    /// Any between these two, in MB/s.
    Range {
        /// The slowest.
        from: f64,
        /// The fastest.
        to: f64,
    },
}

/// Handling of syncs on drives that write them to unused wraps first (File Sync Accelerator).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Files shorter than this many MB are small.
    pub small_file_mb: Figure<f64>,
    /// Seconds of pad that follow each file on the sparse wraps.
    pub pad_s: Figure<f64>,
    /// Share of the buffer that is gathered before it is written to its own wrap.
    pub gathered_share: Figure<f64>,
    /// Share of the capacity that pad between large files may take.
    pub large_file_pad_share: Figure<f64>,
}

/// Handling of syncs on drives that write them to spare wraps without stopping (virtual backhitch).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualBackhitch {
    /// Seconds that each sync takes besides writing.
    pub sync_s: Figure<f64>,
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveModel {
    /// Its name.
    pub name: String,
    /// Native rate, MB/s.
    pub native_mb_per_s: Figure<f64>,
    /// What it sustained with data that do not compress, MB/s, where that was measured and is not the native rate.
    pub sustained_mb_per_s: Option<Figure<f64>>,
    /// What its host interface and its compression take at most, MB/s of host data.
    pub ceiling_mb_per_s: Figure<f64>,
    /// Speeds of the tape; the native rate alone if there is only one.
    pub speeds_mb_per_s: Option<Figure<Speeds>>,
    /// Buffer, MB of data as it goes to the tape.
    pub buffer_mb: Figure<f64>,
    /// Share of the buffer at which a tape that stands begins to move.
    pub high_water: Figure<f64>,
    /// Share of the buffer at which a tape that moves stops.
    pub low_water: Figure<f64>,
    /// Seconds from running out of data until the tape can write on.
    pub backhitch_s: Figure<f64>,
    /// Seconds that another rate lasts before the drive takes another speed.
    pub calibration_s: Figure<f64>,
    /// Seconds from a cartridge in the mouth to ready.
    pub load_s: Figure<f64>,
    /// Seconds until it is out again.
    pub unload_s: Figure<f64>,
    /// The tape's way.
    pub geometry: Geometry,
    /// GB without compression.
    pub capacity_gb: Figure<f64>,
    /// Share of the capacity that is left at early warning.
    pub early_warning_share: Figure<f64>,
    /// Longest block, bytes.
    pub block_len_max: Figure<u32>,
    /// Bytes of tape between two blocks.
    pub block_gap_bytes: Figure<f64>,
    /// Bytes that encryption adds to a block; none on a drive that does not encrypt.
    pub encryption_bytes: Option<Figure<u32>>,
    /// The cipher, if it encrypts.
    pub cipher: Option<Figure<String>>,
    /// Density code of what it writes.
    pub density_code: Option<Figure<u8>>,
    /// Formats it reads.
    pub reads: Figure<Vec<String>>,
    /// Formats it writes.
    pub writes: Figure<Vec<String>>,
    /// File Sync Accelerator, on drives that have it.
    pub accelerator: Option<Accelerator>,
    /// Virtual backhitch, on drives that have it.
    pub virtual_backhitch: Option<VirtualBackhitch>,
}

/// What a drive can do with cartridges of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// Read them.
    ReadOnly,
    /// Read and write them.
    ReadWrite,
}

/// The generation of cartridges that were made for no model: any drive takes them.
const ANY_GENERATION: &str = "virtual";

/// A name without what people write in different ways.
pub(super) fn bare(name: &str) -> String {
    name.replace(['-', ' '], "").to_ascii_uppercase()
}

/// Why a model cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// There is no drive of that name.
    #[error("no model of a drive is named {name}; there are {there}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// The file is not one of a model.
    #[error("the model cannot be read: {reason}")]
    Unreadable {
        /// What is wrong, with line and column.
        reason: String,
    },
    /// A figure cannot be.
    #[error("{model}: {figure} is {value}, and must be {must}")]
    Figure {
        /// The model.
        model: String,
        /// Which figure.
        figure: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// The drive cannot write blocks of that length.
    #[error("{model} writes blocks of 1 to {max} bytes, not of {len}")]
    BlockLength {
        /// The model.
        model: String,
        /// What was asked for.
        len: u64,
        /// The longest.
        max: u32,
    },
    /// The drive does not encrypt.
    #[error("{model} does not encrypt")]
    NoEncryption {
        /// The model.
        model: String,
    },
}

impl DriveModel {
    /// Reads a model from the text of its file.
    ///
    /// # Errors
    /// [`ModelError::Unreadable`] if it is no model; [`ModelError::Figure`] if a figure in it cannot be.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let model: Self = toml::from_str(text).map_err(|error| ModelError::Unreadable { reason: error.to_string() })?;
        model.check()?;
        Ok(model)
    }

    /// How many of its figures are estimates, and how many there are.
    pub fn estimates(&self) -> (usize, usize) {
        let mut origins = vec![
            &self.native_mb_per_s.origin,
            &self.ceiling_mb_per_s.origin,
            &self.buffer_mb.origin,
            &self.high_water.origin,
            &self.low_water.origin,
            &self.backhitch_s.origin,
            &self.calibration_s.origin,
            &self.load_s.origin,
            &self.unload_s.origin,
            &self.capacity_gb.origin,
            &self.early_warning_share.origin,
            &self.block_len_max.origin,
            &self.block_gap_bytes.origin,
            &self.reads.origin,
            &self.writes.origin,
            &self.geometry.length_m.origin,
            &self.geometry.wraps.origin,
            &self.geometry.locate_m_per_s.origin,
            &self.geometry.turn_s.origin,
        ];
        origins.extend(self.speeds_mb_per_s.iter().map(|figure| &figure.origin));
        origins.extend(self.encryption_bytes.iter().map(|figure| &figure.origin));
        origins.extend(self.cipher.iter().map(|figure| &figure.origin));
        origins.extend(self.density_code.iter().map(|figure| &figure.origin));
        let estimates = origins.iter().filter(|origin| matches!(origin, Origin::Estimate(_))).count();
        (estimates, origins.len())
    }

    /// What it can do with cartridges of that generation.
    pub fn access(&self, generation: &str) -> Access {
        let among = |names: &[String]| names.iter().any(|name| bare(name) == bare(generation));
        if generation == ANY_GENERATION || among(&self.writes.value) {
            Access::ReadWrite
        } else if among(&self.reads.value) {
            Access::ReadOnly
        } else {
            Access::None
        }
    }

    fn check(&self) -> Result<(), ModelError> {
        let wrong =
            |figure, value: String, must| Err(ModelError::Figure { model: self.name.clone(), figure, value, must });
        let positive = [
            ("native_mb_per_s", self.native_mb_per_s.value),
            ("ceiling_mb_per_s", self.ceiling_mb_per_s.value),
            ("buffer_mb", self.buffer_mb.value),
            ("backhitch_s", self.backhitch_s.value),
            ("capacity_gb", self.capacity_gb.value),
            ("geometry.length_m", self.geometry.length_m.value),
            ("geometry.locate_m_per_s", self.geometry.locate_m_per_s.value),
        ];
        for (figure, value) in positive {
            if !value.is_finite() || value <= 0.0 {
                return wrong(figure, value.to_string(), "more than 0");
            }
        }
        let times = [
            ("calibration_s", self.calibration_s.value),
            ("load_s", self.load_s.value),
            ("unload_s", self.unload_s.value),
            ("block_gap_bytes", self.block_gap_bytes.value),
        ];
        for (figure, value) in times {
            if !value.is_finite() || value < 0.0 {
                return wrong(figure, value.to_string(), "0 or more");
            }
        }
        let (low, high) = (self.low_water.value, self.high_water.value);
        if !(0.0..=1.0).contains(&high) || !(0.0..=1.0).contains(&low) || low >= high {
            return wrong("high_water", high.to_string(), "a share of 1 above low_water");
        }
        if self.geometry.wraps.value == 0 {
            return wrong("geometry.wraps", "0".to_owned(), "1 or more");
        }
        match self.speeds_mb_per_s.as_ref().map(|speeds| &speeds.value) {
            Some(Speeds::List(list)) if list.is_empty() || !list.windows(2).all(|pair| pair[0] < pair[1]) => {
                wrong("speeds_mb_per_s", format!("{list:?}"), "a list from the slowest to the fastest")
            }
            Some(Speeds::Range { from, to }) if !(*from > 0.0 && from < to) => {
                wrong("speeds_mb_per_s", format!("{from} to {to}"), "a range from slow to fast")
            }
            _ => Ok(()),
        }
    }

    /// The speed at which most of what comes in gets through, MB/s; of several, the slowest.
    ///
    /// A slower tape takes what it can. A faster one runs empty and goes back, and takes everything if the buffer holds
    /// what comes in meanwhile. So a drive of two speeds may start and stop at the higher rather than stream at the
    /// lower.
    pub fn speed_for(&self, incoming_mb_per_s: f64) -> f64 {
        match self.speeds_mb_per_s.as_ref().map(|speeds| &speeds.value) {
            None => self.native_mb_per_s.value,
            Some(Speeds::Range { from, to }) => incoming_mb_per_s.clamp(*from, *to),
            Some(Speeds::List(list)) => {
                let mut best = (self.native_mb_per_s.value, f64::NEG_INFINITY);
                for &speed in list {
                    let through = self.through(incoming_mb_per_s, speed);
                    // What rounding adds must not make a faster speed the better one.
                    if through > best.1 * (1.0 + 1e-9) || best.1 < 0.0 {
                        best = (speed, through);
                    }
                }
                best.0
            }
        }
    }

    /// What gets through at a speed, in the long run.
    fn through(&self, incoming: f64, speed: f64) -> f64 {
        if speed <= incoming {
            return speed;
        }
        let held = (incoming * self.backhitch_s.value).min(self.buffer_mb.value);
        let emptying_s = held / (speed - incoming);
        (held + incoming * emptying_s) / (self.backhitch_s.value + emptying_s)
    }

    /// Whether the drive itself encrypts.
    pub fn encrypts(&self) -> bool {
        self.encryption_bytes.is_some()
    }

    /// Bytes of tape that a block of `block_len` bytes takes, for each of its bytes.
    ///
    /// # Errors
    /// [`ModelError::BlockLength`] if the drive does not write blocks of that length.
    pub fn tape_share(&self, block_len: u64, encrypted: bool, ratio: f64) -> Result<f64, ModelError> {
        let max = self.block_len_max.value;
        if block_len == 0 || block_len > u64::from(max) {
            return Err(ModelError::BlockLength { model: self.name.clone(), len: block_len, max });
        }
        let added = self.encryption_bytes.as_ref().filter(|_| encrypted).map_or(0.0, |bytes| f64::from(bytes.value));
        let len = block_len as f64;
        Ok((len / ratio + added + self.block_gap_bytes.value) / (len / ratio))
    }
}
