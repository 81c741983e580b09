//! A drive under a load, in virtual time.

use capstan_tape::model::{Conversion, DriveModel, Engine, EngineTotals, ModelError, Motion};
use schemars::JsonSchema;
use serde::Serialize;

use super::load::{HostLoad, LoadError};

/// Most samples that a simulation keeps.
const SAMPLES_MAX: f64 = 1_000_000.0;

/// How a simulation is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Bytes of the host for each byte on the tape.
    pub ratio: f64,
    /// What the Tape Application Accelerator converts.
    pub conversion: Conversion,
    /// Whether the drive's own handling of syncs is on.
    pub accelerated: bool,
    /// Seconds of a sample.
    pub interval_s: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { ratio: 1.0, conversion: Conversion::None, accelerated: false, interval_s: 1.0 }
    }
}

/// What happened in one interval.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "SimulatedInterval")]
pub struct Sample {
    /// Its end, seconds since the beginning.
    pub at_s: f64,
    /// What the drive took, MB/s.
    pub host_mb_per_s: f64,
    /// What went to the tape, MB/s.
    pub tape_mb_per_s: f64,
    /// MB in the buffer at its end.
    pub buffer_mb: f64,
    /// Backhitches that began in it.
    pub backhitches: u64,
    /// Whether the tape moves at its end.
    pub moving: bool,
}

/// How a drive did.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The drive.
    pub drive: String,
    /// MB that its buffer holds.
    pub buffer_mb: f64,
    /// Interval by interval.
    pub samples: Vec<Sample>,
    /// Since the beginning.
    pub totals: EngineTotals,
    /// MB of answered data that a loss of power at the end of the worst interval would have taken.
    pub at_risk_mb: f64,
}

/// Why a simulation cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// The drive.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An option.
    #[error("{what}")]
    Option {
        /// What is wrong.
        what: &'static str,
    },
}

struct Recorder {
    engine: Engine,
    interval_s: f64,
    /// End of the interval that is open, and the totals at its beginning.
    next_s: f64,
    before: EngineTotals,
    samples: Vec<Sample>,
    at_risk_mb: f64,
}

impl Recorder {
    /// Closes every interval that has ended, but no more than a million. What happened within one step of the load is
    /// spread evenly over it.
    fn record(&mut self) -> Result<(), SimulationError> {
        let now = *self.engine.totals();
        while now.elapsed_s >= self.next_s - 1e-9 {
            // One step may last for as many intervals as a file is long.
            if self.samples.len() as f64 >= SAMPLES_MAX {
                return Err(SimulationError::Option {
                    what: "that are more than a million intervals: take longer ones",
                });
            }
            let open_s = now.elapsed_s - self.before.elapsed_s;
            let share = if open_s > 0.0 { ((self.next_s - self.before.elapsed_s) / open_s).min(1.0) } else { 1.0 };
            self.close(self.next_s, share, &now);
            self.next_s += self.interval_s;
        }
        Ok(())
    }

    fn close(&mut self, at_s: f64, share: f64, now: &EngineTotals) {
        let seconds = at_s - self.before.elapsed_s;
        let part = |total: fn(&EngineTotals) -> f64| (total(now) - total(&self.before)) * share;
        let (host_mb, tape_mb) = (part(|totals| totals.host_mb), part(|totals| totals.tape_mb));
        let backhitches = now.backhitches - self.before.backhitches;
        self.samples.push(Sample {
            at_s,
            host_mb_per_s: host_mb / seconds,
            tape_mb_per_s: tape_mb / seconds,
            buffer_mb: self.engine.buffer_mb(),
            backhitches,
            moving: matches!(self.engine.motion(), Motion::Streaming { .. }),
        });
        self.before.elapsed_s = at_s;
        self.before.host_mb += host_mb;
        self.before.tape_mb += tape_mb;
        self.before.backhitches = now.backhitches;
        self.at_risk_mb = self.at_risk_mb.max(self.engine.at_risk_mb());
    }
}

/// Runs a load against a drive.
///
/// # Errors
/// [`SimulationError::Option`] if an option cannot be; else the model or the load cannot be used.
pub fn simulate(model: &DriveModel, load: &HostLoad, options: &Options) -> Result<Simulation, SimulationError> {
    load.check()?;
    if !(options.ratio.is_finite() && options.ratio >= 1.0) {
        return Err(SimulationError::Option { what: "data compresses 1:1 or better: the ratio is 1 or more" });
    }
    if !(options.interval_s.is_finite() && options.interval_s > 0.0) {
        return Err(SimulationError::Option { what: "an interval is longer than 0 s" });
    }
    let engine = Engine::new(model, options.ratio).converting(options.conversion).accelerated(options.accelerated);
    let interval_s = options.interval_s;
    let before = EngineTotals::default();
    let mut run = Recorder { engine, interval_s, next_s: interval_s, before, samples: Vec::new(), at_risk_mb: 0.0 };
    match load {
        HostLoad::Trace(steps) => {
            let end_s = steps.last().map_or(0.0, |step| step.to_s);
            if end_s / interval_s > SAMPLES_MAX {
                return Err(SimulationError::Option {
                    what: "that are more than a million intervals: take longer ones",
                });
            }
            for step in steps {
                while run.engine.now_s() < step.to_s - 1e-9 {
                    let until = run.next_s.min(step.to_s);
                    let seconds = until - run.engine.now_s();
                    run.engine.offer(step.mb_per_s, seconds);
                    run.record()?;
                }
            }
        }
        HostLoad::Files { count, mb, mb_per_s, syncs } => {
            for _ in 0..*count {
                let mut left = *mb;
                // In pieces of an interval, so that each interval sees what happened in it.
                while left > 0.0 {
                    let piece = left.min((mb_per_s * interval_s).max(mb / 1e6));
                    run.engine.write(piece, *mb_per_s);
                    left -= piece;
                    run.record()?;
                }
                if *syncs {
                    run.engine.file_sync(*mb);
                    run.record()?;
                }
            }
            run.engine.finish();
            run.record()?;
        }
    }
    let now = *run.engine.totals();
    if now.elapsed_s > run.before.elapsed_s + 1e-9 {
        run.close(now.elapsed_s, 1.0, &now);
    }
    Ok(Simulation {
        drive: model.name.clone(),
        buffer_mb: model.buffer_mb.value,
        samples: run.samples,
        totals: now,
        at_risk_mb: run.at_risk_mb,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::model::built_in;

    use super::*;

    #[test]
    fn samples_add_up_to_the_totals() {
        let drive = built_in("T10000D").unwrap();
        let loads = [
            HostLoad::from_csv("from_s,to_s,mb_per_s\n0,33.5,90\n33.5,100,270\n").unwrap(),
            HostLoad::Files { count: 50, mb: 13.0, mb_per_s: 100.0, syncs: true },
        ];
        for load in &loads {
            let Simulation { samples, totals, .. } = simulate(&drive, load, &Options::default()).unwrap();
            let mut last = 0.0;
            let (mut host, mut tape, mut backhitches) = (0.0, 0.0, 0);
            for sample in &samples {
                host += sample.host_mb_per_s * (sample.at_s - last);
                tape += sample.tape_mb_per_s * (sample.at_s - last);
                backhitches += sample.backhitches;
                last = sample.at_s;
            }
            assert!((host - totals.host_mb).abs() < 1e-6 && (tape - totals.tape_mb).abs() < 1e-6, "{host} {tape}");
            assert_eq!(backhitches, totals.backhitches);
            assert!((last - totals.elapsed_s).abs() < 1e-6);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let drive = built_in("LTO-5").unwrap();
        let files = |count, mb| HostLoad::Files { count, mb, mb_per_s: 100.0, syncs: false };
        let told = |load: &HostLoad, options: &Options| simulate(&drive, load, options).unwrap_err().to_string();
        assert!(told(&files(0, 1.0), &Options::default()).contains("number of files"));
        assert!(told(&files(1, -1.0), &Options::default()).contains("length of a file"));
        assert!(told(&files(1, 1.0), &Options { ratio: 0.5, ..Options::default() }).contains("ratio"));
        assert!(told(&files(1, 1.0), &Options { interval_s: 0.0, ..Options::default() }).contains("interval"));
        // One file, in intervals of which each lasts for less than a piece of it.
        let short = Options { interval_s: 1e-7, ..Options::default() };
        assert!(told(&files(1, 1000.0), &short).contains("more than a million intervals"));
    }
}
