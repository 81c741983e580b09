//! What a setting would give, and where it would be narrowest.

use capstan_format::BLOCK_HEADER_LEN;
use capstan_tape::model::DriveModel;
use schemars::JsonSchema;
use serde::Serialize;

use super::error::AdviseError;
use super::figures::SiteFigures;
use super::setting::{Route, Setting, TapeDrive};
use super::stream::{Stream, Streamed};
use crate::measure::Spread;
use crate::part::{Part, least, together};
use crate::staging_model::{BothWays, through_depots_s};

/// A pool without end must give so much more for the pool to be the bottleneck.
const POOL_GAIN: f64 = 1.03;

/// What a setting gives.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
pub struct Forecast {
    /// MB of the source in a second, until all of it is safe on what it is written to first.
    pub mb_per_s: Spread,
    /// Where it is narrowest.
    pub bottleneck: Part,
    /// What each part would give by itself, MB/s of the source.
    pub parts: Vec<(Part, f64)>,
    /// Times that the tape goes back in each hour in which the drive is taken; none if nobody's time is taken.
    pub backhitches_per_hour: Option<f64>,
    /// The share of the time in which a drive is busy with this backup that its tape moves.
    pub streaming_share: Option<f64>,
    /// Seconds in which the source is read.
    pub source_busy_s: f64,
    /// Seconds in which the drive is taken.
    pub drive_busy_s: f64,
    /// Seconds until all of it is on tape.
    pub on_tape_s: f64,
    /// MB that lie on the staging disk at most.
    pub staging_mb: f64,
    /// MB that one copy takes.
    pub stored_mb: f64,
}

impl Forecast {
    /// The share of all processors that it takes, as the papers' tables have it.
    pub fn processor_share(&self) -> f64 {
        let processor = self.parts.iter().find(|(part, _)| *part == Part::Processor);
        processor.map_or(0.0, |(_, rate)| (self.mb_per_s.median / rate.max(1e-9)).min(1.0))
    }

    /// Times that the tape goes back in all.
    pub fn backhitches(&self) -> f64 {
        self.backhitches_per_hour.unwrap_or_default() * self.drive_busy_s / 3600.0
    }
}

/// A forecast with one of the three figures of each part.
struct Case {
    mb_per_s: f64,
    bottleneck: Part,
    parts: Vec<(Part, f64)>,
    tape: Option<Streamed>,
    drive_busy_s: f64,
    on_tape_s: f64,
    staging_mb: f64,
}

type Pick = fn(&Spread) -> f64;

/// What comes to the block pool, MB/s of the source, and what limits it.
struct Incoming {
    parts: Vec<(Part, f64)>,
    /// Bytes read for each byte stored.
    ratio: f64,
}

impl SiteFigures {
    /// What a setting gives of the whole source.
    ///
    /// # Errors
    /// [`AdviseError`]: no drive was measured, the data path was not measured at the setting's level, the drive's model
    /// does not write such blocks, or a number in the setting cannot be.
    pub fn forecast(&self, setting: &Setting) -> Result<Forecast, AdviseError> {
        let picks: [Pick; 3] = [|spread| spread.low, |spread| spread.median, |spread| spread.high];
        let [low, median, high] = picks.map(|pick| self.case(setting, pick));
        let (low, median, high) = (low?, median?, high?);
        let rates = [low.mb_per_s, median.mb_per_s, high.mb_per_s];
        let mb_per_s = Spread {
            low: rates.into_iter().fold(f64::INFINITY, f64::min),
            median: median.mb_per_s,
            high: rates.into_iter().fold(0.0, f64::max),
        };
        let streamed = median.tape;
        Ok(Forecast {
            mb_per_s,
            bottleneck: median.bottleneck,
            parts: median.parts,
            backhitches_per_hour: streamed.map(|tape| tape.backhitches as f64 / tape.seconds.max(1e-9) * 3600.0),
            streaming_share: streamed.map(|tape| tape.streaming_s / tape.seconds.max(1e-9)),
            source_busy_s: self.source_mb / median.mb_per_s.max(1e-9),
            drive_busy_s: median.drive_busy_s,
            on_tape_s: median.on_tape_s,
            staging_mb: median.staging_mb,
            stored_mb: self.source_mb / self.ratio(setting.compression_level, setting.block_len),
        })
    }

    /// What a run of so many seconds gives from its first block to its last flush, MB/s: short runs are not like long
    /// ones.
    ///
    /// # Errors
    /// As [`SiteFigures::forecast`].
    pub fn forecast_run(&self, setting: &Setting, seconds: f64) -> Result<f64, AdviseError> {
        let pick: Pick = |spread| spread.median;
        let TapeDrive::Model(model) = &setting.drive else { return Ok(self.case(setting, pick)?.mb_per_s) };
        let incoming = self.incoming(setting, pick)?;
        let stream = self.stream(setting, model, &incoming)?;
        Ok(stream.once(seconds, self.tree_mb.unwrap_or(f64::INFINITY) / incoming.ratio).mb_per_s() * incoming.ratio)
    }

    /// MB/s that go to the drive at most, if it takes a model's time; none if no forecast can be made.
    pub(super) fn streamed_mb_per_s(&self, setting: &Setting) -> Option<f64> {
        let TapeDrive::Model(model) = &setting.drive else { return None };
        let incoming = self.incoming(setting, |spread| spread.median).ok()?;
        let source = together(&incoming.parts, self.steadiness) / incoming.ratio;
        Some(source.min(model.ceiling_mb_per_s.value))
    }

    fn incoming(&self, setting: &Setting, pick: Pick) -> Result<Incoming, AdviseError> {
        let Setting { connections, block_len, compression_level, copies, .. } = *setting;
        self.check_level(compression_level)?;
        let ratio = self.ratio(compression_level, block_len);
        let mut cpu = self.path_cpu(compression_level, block_len, connections);
        if let Some((_, cpu_of_drive)) = self.virtual_drive(block_len) {
            cpu += f64::from(copies) * cpu_of_drive / ratio;
        }
        let processors = f64::from(self.path.processors) * pick(&self.usable(compression_level, block_len));
        let mut parts = vec![(Part::Source, pick(&self.source(connections, block_len)))];
        if let Some(network) = &self.network {
            // A client compresses before it sends.
            parts.push((Part::Network, pick(network) * ratio));
        }
        parts.push((Part::Processor, processors / cpu.max(1e-12)));
        Ok(Incoming { parts, ratio })
    }

    fn stream<'a>(
        &self,
        setting: &Setting,
        model: &'a DriveModel,
        incoming: &Incoming,
    ) -> Result<Stream<'a>, AdviseError> {
        let block_len = setting.block_len + BLOCK_HEADER_LEN;
        let tape_share = model.tape_share(block_len as u64, true, 1.0)?;
        // Each connection has a chunk in hand and a spare; the rest of the pool is buffer.
        let held = 2 * setting.connections as usize * setting.block_len;
        let pool = (setting.pool_bytes as usize).saturating_sub(held).max(2 * setting.block_len);
        Ok(Stream {
            drive: model,
            source_mb_per_s: together(&incoming.parts, self.steadiness) / incoming.ratio,
            pool_mb: pool as f64 / 1e6 / incoming.ratio,
            checkpoint_mb: setting.checkpoint_bytes as f64 / 1e6,
            checkpoint_s: setting.checkpoint_seconds as f64,
            tape_share,
        })
    }

    fn case(&self, setting: &Setting, pick: Pick) -> Result<Case, AdviseError> {
        if setting.connections == 0 || setting.copies == 0 || setting.block_len == 0 {
            return Err(AdviseError::Option {
                what: "there is at least one connection, one copy, and a byte in a block",
            });
        }
        let incoming = self.incoming(setting, pick)?;
        match (&setting.route, &setting.drive) {
            (Route::Direct, TapeDrive::Virtual) => self.to_disk(setting, incoming, pick),
            (Route::Direct, TapeDrive::Model(model)) => self.to_tape(setting, &incoming, model),
            (Route::Staged { depot_mb }, drive) => self.by_way_of_disk(setting, incoming, *depot_mb, drive, pick),
        }
    }

    fn to_disk(&self, setting: &Setting, incoming: Incoming, pick: Pick) -> Result<Case, AdviseError> {
        let (drive, _) = self.virtual_drive(setting.block_len).ok_or(AdviseError::NoDrive)?;
        // Copies lie on one disk: each gets what that many writers get.
        let taken = pick(&drive) * self.share_of_writer(setting.copies) * incoming.ratio;
        let mut parts = incoming.parts;
        parts.push((Part::Drive, taken));
        if self.shares_disk() {
            // Time of the disk for each MB of the source: to read it, and to write what it becomes.
            let written = pick(&drive) * self.share_of_writer(setting.copies);
            if let Some((read_s, write_s)) = self.disk_s(written, pick) {
                parts.push((Part::Disk, 1.0 / (read_s + write_s / incoming.ratio)));
            }
        }
        let (bottleneck, mb_per_s) = (least(&parts).0, together(&parts, self.steadiness));
        let seconds = self.source_mb / mb_per_s.max(1e-9);
        Ok(Case { mb_per_s, bottleneck, parts, tape: None, drive_busy_s: seconds, on_tape_s: seconds, staging_mb: 0.0 })
    }

    fn to_tape(&self, setting: &Setting, incoming: &Incoming, model: &DriveModel) -> Result<Case, AdviseError> {
        let stream = self.stream(setting, model, incoming)?;
        let streamed = stream.steadily();
        let mb_per_s = streamed.mb_per_s() * incoming.ratio;
        // A source without end, to see what the drive does by itself.
        let alone = Stream { source_mb_per_s: model.ceiling_mb_per_s.value * 4.0, ..stream }.steadily();
        let mut parts = incoming.parts.clone();
        parts.push((Part::Drive, alone.mb_per_s() * incoming.ratio));
        let mut bottleneck = least(&parts).0;
        let least = (stream.source_mb_per_s * incoming.ratio).min(alone.mb_per_s() * incoming.ratio);
        if mb_per_s * POOL_GAIN < least {
            let larger = Stream { pool_mb: f64::INFINITY, ..stream }.steadily();
            if larger.mb_per_s() > streamed.mb_per_s() * POOL_GAIN {
                bottleneck = Part::Buffers;
                parts.push((Part::Buffers, mb_per_s));
            } else {
                bottleneck = Part::Drive;
            }
        }
        let seconds = self.source_mb / mb_per_s.max(1e-9);
        Ok(Case {
            mb_per_s,
            bottleneck,
            parts,
            tape: Some(streamed),
            drive_busy_s: seconds,
            on_tape_s: seconds,
            staging_mb: 0.0,
        })
    }

    /// To the disk, and from the disk to the drive, depot by depot. While there is more than one depot the two go on
    /// beside each other and share the disk.
    fn by_way_of_disk(
        &self,
        setting: &Setting,
        incoming: Incoming,
        depot_mb: f64,
        drive: &TapeDrive,
        pick: Pick,
    ) -> Result<Case, AdviseError> {
        let staging = self.staging.as_ref().ok_or(AdviseError::Option {
            what: "no disk was measured as a file library yet: capstan lab staging --folder DIR",
        })?;
        if !(depot_mb.is_finite() && depot_mb > 0.0) {
            return Err(AdviseError::Option { what: "a depot holds more than nothing" });
        }
        let stored_mb = self.source_mb / incoming.ratio;
        let depots = (stored_mb / depot_mb).ceil().max(1.0);
        let alone = depots <= 1.0;
        let one = staging.write.iter().min_by_key(|rate| rate.writers);
        let written_alone = one.map_or(0.0, |rate| pick(&rate.mb_per_s) / f64::from(rate.writers));
        let written = if alone { written_alone } else { pick(&staging.write_beside_read).min(written_alone) };
        let read = if alone { pick(&staging.read) } else { pick(&staging.read_beside_write) };
        let ratio = incoming.ratio;
        let stream = match drive {
            TapeDrive::Virtual => None,
            TapeDrive::Model(model) => {
                let mut stream = self.stream(setting, model, &incoming)?;
                // An object copy has the whole pool, and one connection.
                stream.source_mb_per_s = read;
                Some(stream.steadily())
            }
        };
        let copied = match stream {
            Some(streamed) => streamed.mb_per_s(),
            None => {
                let (drive, _) = self.virtual_drive(setting.block_len).ok_or(AdviseError::NoDrive)?;
                read.min(pick(&drive))
            }
        };
        let mut parts = incoming.parts;
        parts.push((Part::Staging, written * self.share_of_writer(setting.copies) * ratio));
        let (bottleneck, mb_per_s) = (least(&parts).0, together(&parts, self.steadiness));
        let depot_mb = depot_mb.min(stored_mb);
        let rates = BothWays { taken_mb_per_s: (mb_per_s / ratio).max(1e-9), given_mb_per_s: copied.max(1e-9) };
        let (fill_s, drain_s) = (depot_mb / rates.taken_mb_per_s, depot_mb / rates.given_mb_per_s);
        // What was measured beside each other holds for the first depot and the last, too: they are few.
        let on_tape_s = through_depots_s(stored_mb, depot_mb, &rates, &rates);
        let drive_busy_s = stored_mb / copied.max(1e-9);
        let tape = stream.map(|streamed| {
            // A depot that is copied before the next is full leaves the tape standing: it goes back once for each.
            let stops = if drain_s < fill_s { depots } else { 1.0 };
            let per_s = streamed.backhitches as f64 / streamed.seconds.max(1e-9);
            let backhitches = (per_s * drive_busy_s + stops).round() as u64;
            let streaming_s = streamed.streaming_s / streamed.seconds.max(1e-9) * drive_busy_s;
            Streamed { mb: stored_mb, seconds: drive_busy_s, backhitches, streaming_s }
        });
        // What has come by the time that the source is read, less what has gone by then; a depot fills while another is
        // copied.
        let gone = (stored_mb * mb_per_s / ratio).min(stored_mb * copied) / (mb_per_s / ratio).max(1e-9);
        let staging_mb = (stored_mb - gone).max(2.0 * depot_mb).min(stored_mb);
        Ok(Case { mb_per_s, bottleneck, parts, tape, drive_busy_s, on_tape_s, staging_mb })
    }
}
