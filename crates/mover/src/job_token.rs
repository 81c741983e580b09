//! What proves that a connection belongs to a job.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// Proves that a connection belongs to a job. Whoever has it may read for the job, so it is shown to nobody else.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobToken(pub [u8; 32]);

impl JobToken {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for JobToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobToken")
    }
}
