//! Direct or staged: whether a run of a policy writes to tape, or first to the disk in front of it.
//!
//! A drive that gets less than its lowest speed stops and goes back, again and again. So what a client cannot send as
//! fast goes to the stage, and a policy of copies brings it to tape from there, at the disk's speed. How fast a client
//! is, its last runs say: the bytes that they stored by the time that they took. One that was never measured goes to
//! the stage. Where no drive of the unit has a lowest speed that is known, nothing is gained by it.

use std::fmt;

use capstan_tape::model::built_in;

use crate::DirectorError;
use crate::config::{JobConfig, StageWhen};
use crate::drive_classes::classes_fact;
use crate::site::{Site, locked};

/// Runs by which a client's rate is measured.
const RUNS_MEASURED: u32 = 5;

/// Where a run writes, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StageChoice {
    /// To the stage or not, as its policy says.
    AsAsked {
        /// Whether it is.
        is_staged: bool,
    },
    /// To the stage: nobody knows yet how fast the client is.
    Unmeasured {
        /// Bytes a second that a drive needs.
        needs: u64,
    },
    /// By how fast the client is.
    Measured {
        /// Bytes a second that its last runs stored.
        rate: u64,
        /// Bytes a second that a drive needs.
        needs: u64,
    },
    /// To tape: no drive there has a lowest speed, as far as is known.
    NoLowest,
}

impl StageChoice {
    /// What follows from what is known.
    pub fn of(when: StageWhen, rate: Option<u64>, needs: Option<u64>) -> Self {
        match (when, needs, rate) {
            (StageWhen::Always, ..) => Self::AsAsked { is_staged: true },
            (StageWhen::Never, ..) => Self::AsAsked { is_staged: false },
            (StageWhen::Slow, None, _) => Self::NoLowest,
            (StageWhen::Slow, Some(needs), None) => Self::Unmeasured { needs },
            (StageWhen::Slow, Some(needs), Some(rate)) => Self::Measured { rate, needs },
        }
    }

    /// Whether the run writes to the stage.
    pub fn is_staged(self) -> bool {
        match self {
            Self::AsAsked { is_staged } => is_staged,
            Self::Unmeasured { .. } => true,
            Self::Measured { rate, needs } => rate < needs,
            Self::NoLowest => false,
        }
    }
}

impl fmt::Display for StageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| format!("{:.1} MB/s", bytes as f64 / 1e6);
        match *self {
            Self::AsAsked { is_staged: true } => write!(f, "to the stage, as its policy says"),
            Self::AsAsked { is_staged: false } => write!(f, "not to the stage, as its policy says"),
            Self::Unmeasured { needs } => {
                write!(f, "to the stage: no run has measured its client yet, and a drive needs {}", mb(needs))
            }
            Self::Measured { rate, needs } => {
                let to = if self.is_staged() { "to the stage" } else { "straight to the drive" };
                write!(f, "{to}: its last runs stored {}, and a drive needs {}", mb(rate), mb(needs))
            }
            Self::NoLowest => {
                write!(f, "straight to the drive: no drive there has a lowest speed, as far as is known")
            }
        }
    }
}

impl Site {
    /// Where a run of a policy for a client is to write; none where the policy has no stage.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn stage_choice(
        &self,
        name: &str,
        job: &JobConfig,
        client: &str,
    ) -> Result<Option<StageChoice>, DirectorError> {
        if job.stage.is_none() {
            return Ok(None);
        }
        let when = job.stage_when.unwrap_or_default();
        if when != StageWhen::Slow {
            return Ok(Some(StageChoice::of(when, None, None)));
        }
        let needs = self.lowest_speed(job)?;
        let rate = locked(&self.catalog).rate_of_runs(name, client, RUNS_MEASURED)?;
        Ok(Some(StageChoice::of(when, rate, needs)))
    }

    /// A policy as a run of it is that writes in a library.
    pub fn policy_in(&self, job: &JobConfig, library: &str) -> JobConfig {
        let is_staged = match &job.stage {
            Some(stage) => self.unit(Some(stage)).is_ok_and(|unit| unit.libraries.iter().any(|own| own == library)),
            None => false,
        };
        if is_staged { job.staged() } else { job.clone() }
    }

    /// The lowest speed at which the drives of a policy's unit write without stopping, bytes a second: of several, that
    /// which needs most.
    fn lowest_speed(&self, job: &JobConfig) -> Result<Option<u64>, DirectorError> {
        let unit = self.unit_of(job)?;
        let mut lowest: Option<f64> = None;
        for name in &unit.libraries {
            let Some((_, config)) = self.config.all_libraries().find(|(known, _)| known == name) else { continue };
            let classes = match config.is_folder_here() {
                true => config.pace.clone(),
                false => locked(&self.catalog).fact(&classes_fact(name))?.unwrap_or_default(),
            };
            let is_used = |class: &&str| unit.models.is_empty() || unit.models.iter().any(|model| model == class);
            for model in classes.split(',').filter(is_used).filter_map(|class| built_in(class).ok()) {
                let own = model.speed_for(0.0);
                lowest = Some(lowest.map_or(own, |known| known.max(own)));
            }
        }
        Ok(lowest.map(|mb_per_s| (mb_per_s * 1e6) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_slower_than_the_drive_goes_to_the_stage() {
        let staged = |when, rate, needs| StageChoice::of(when, rate, needs).is_staged();
        let (slow, fast, needs) = (Some(12_000_000), Some(90_000_000), Some(40_000_000));
        assert!(staged(StageWhen::Slow, slow, needs) && !staged(StageWhen::Slow, fast, needs));
        assert!(staged(StageWhen::Slow, None, needs), "nobody knows how fast it is");
        assert!(!staged(StageWhen::Slow, slow, None), "no drive starves");
        assert!(staged(StageWhen::Always, fast, needs) && !staged(StageWhen::Never, slow, needs));
        let said = StageChoice::of(StageWhen::Slow, slow, needs).to_string();
        assert_eq!(said, "to the stage: its last runs stored 12.0 MB/s, and a drive needs 40.0 MB/s");
    }
}
