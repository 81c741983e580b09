//! The laboratory: what a drive makes of what a host gives it, before anybody buys either.
//!
//! A [`HostLoad`] is what the host does: a trace of rates, or files one behind the other. [`simulate`] runs it against
//! a drive's model in virtual time and gives a [`Simulation`]: what the host saw, the buffer and the tape, interval by
//! interval, and the totals. [`plot`] draws it.
//!
//! ```
//! use capstan_lab::{HostLoad, Options, simulate};
//! use capstan_tape::model::built_in;
//! let drive = built_in("LTO-6")?;
//! let files = HostLoad::Files { count: 100, mb: 13.0, mb_per_s: 200.0, syncs: true };
//! let simulation = simulate(&drive, &files, &Options::default())?;
//! assert_eq!(simulation.totals.backhitches, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advise;
mod compare;
mod data_set;
mod grid;
mod load;
mod measure;
mod network;
mod part;
mod pipeline;
mod plot;
mod published;
mod report;
mod simulation;
mod site;
mod staging_model;

// The words of the models that this room speaks in, so that a door needs no other room.
pub use advise::{
    Advice, AdviseError, Disagreement, Fit, Forecast, Learned, Lever, Misses, Route, Setting, SettingChange,
    SiteFigures, TapeDrive, Trial, TrialError, advise, interval, try_setting,
};
pub use compare::{CompareError, Comparison, compare, median_error};
pub use data_set::{DataSet, DataSetError, DataSetWatch, Differs, FileLengths, Names, Ratio, Shape, Shrunk};
pub use grid::{Cell, GridAxes, GridError, HEADS, agreeing, calibrate, make_grid, mean_error, predict_grid, read_grid};
pub use load::{HostLoad, LoadError, RateStep};
pub use measure::Spread;
pub use measure::data_path::{
    CHECKPOINT_SECONDS, DataPath, DataPathError, DataPathRun, DataPathTarget, LONGER_MAX, PathRate, PathRates,
    SlowSource, measure_path, null_run, run_data_path,
};
pub use measure::exercise::{
    DriveData, DriveMeasurementError, DriveRate, DriveRates, Exercise, ExerciseMedium, measure_drive,
};
pub use measure::grid::{MeasureGridError, measure_grid};
pub use measure::others::OtherLoad;
pub use measure::restore::{RestoreRates, Restoring, RestoringError, WayRate, measure_restore};
pub use measure::source::{Cache, ClassRate, ReaderRate, Reading, SourceRateError, SourceRates, measure_source};
pub use measure::staging::{Staging, StagingError, StagingRates, WriterRate, measure_staging};
pub use measure::unfinished::Unfinished;
pub use network::{
    Direction, NetworkError, NetworkEvent, NetworkListener, NetworkMeasurement, NetworkPlan, NetworkRate, NetworkTake,
    NetworkWatch, RoundTrip, measure_network,
};
pub use part::Part;
pub use pipeline::{HostModel, PipelineBottleneck, PipelineJob, Prediction};
pub use plot::plot;
pub use published::{PublishedGrid, built_in_host, page, published_grids};
pub use report::{ReportSection, report};
pub use simulation::{Options, Sample, Simulation, SimulationError, simulate};
pub use site::{Measured, Measurements, MeasurementsError, Tried};
