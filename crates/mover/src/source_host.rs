//! Where sources are read: in the process of the session, or by a client elsewhere.

use std::io;
use std::path::PathBuf;

use capstan_format::ObjectId;

use crate::source::{CutFile, OnProblem, Progress, SourceError, SourceFound, SourceReport, SourceRun, SourceSpec};
use crate::{Baseline, Connection, Intake, Metadata};

/// A baseline whose rows can be sent to whoever compares.
pub trait ListedBaseline: Baseline {
    /// Calls `found` with each path of the state and its metadata, in the same order each time.
    ///
    /// # Errors
    /// The state cannot be read to its end.
    fn for_each_row(&self, found: &mut dyn FnMut(&[u8], &Metadata)) -> Result<(), String>;

    /// The baseline as what is compared with in this process.
    fn as_baseline(&self) -> &dyn Baseline;
}

/// One source that is read into an object that a session knows.
pub struct SourceReading<'a> {
    /// What is read.
    pub spec: &'a SourceSpec,
    /// The object.
    pub object: ObjectId,
    /// The number of its first connection in this session.
    pub first_connection: u16,
    /// Over how many connections it is read.
    pub connections: usize,
    /// Nanoseconds since 1970 at the beginning of the object.
    pub began_ns: i64,
    /// What an incremental compares with.
    pub baseline: Option<&'a dyn ListedBaseline>,
    /// Files of a tree that an earlier reading was cut off in.
    pub cut: &'a [CutFile],
    /// What is counted meanwhile.
    pub progress: &'a Progress,
    /// Told of each problem.
    pub on_problem: OnProblem,
}

/// A machine that has sources.
pub trait SourceHost: Send + Sync {
    /// What is at each of these paths.
    ///
    /// # Errors
    /// The machine cannot be asked.
    fn look(&self, paths: &[PathBuf]) -> Result<Vec<io::Result<SourceFound>>, SourceError>;

    /// Reads a source to its end, into connections of a session.
    ///
    /// # Errors
    /// As [`SourceSpec::read`]; or the machine is gone. The object stays open then.
    fn read(&self, intake: &Intake, reading: SourceReading<'_>) -> Result<SourceReport, SourceError>;

    /// Whether its paths are those of this process.
    fn is_here(&self) -> bool;
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalSources;

impl SourceHost for LocalSources {
    fn look(&self, paths: &[PathBuf]) -> Result<Vec<io::Result<SourceFound>>, SourceError> {
        Ok(paths.iter().map(|path| SourceFound::at(path)).collect())
    }

    fn read(&self, intake: &Intake, reading: SourceReading<'_>) -> Result<SourceReport, SourceError> {
        let SourceReading { spec, object, first_connection, began_ns, baseline, cut, progress, on_problem, .. } =
            reading;
        let numbers = (first_connection..).take(reading.connections);
        let mut sinks: Vec<Connection> = numbers.map(|number| intake.connection(object, number)).collect();
        let baseline = baseline.map(ListedBaseline::as_baseline);
        let run = SourceRun { began_ns, baseline, cut, progress, on_problem };
        let read = spec.read(&mut sinks, run).and_then(|report| {
            sinks.into_iter().try_for_each(Connection::finish)?;
            Ok(report)
        });
        read.map_err(|error| match (error, intake.why_lost()) {
            (SourceError::Stopped(_), Some(reason)) => SourceError::Mover { reason },
            (error, _) => error,
        })
    }

    fn is_here(&self) -> bool {
        true
    }
}
