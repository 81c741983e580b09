//! When the majority was heard last, as a node keeps it over its starts: the limits of policies count from there
//! ([`crate::node::LastHeard`]).
//!
//! ```text
//!  0  8  "CAPHEARD"
//!  8  8  when the majority was heard last, in nanoseconds since 1970
//! 16  8  how much had passed since then when this was written, in nanoseconds, by what nobody sets
//! 24  4  CRC32C of the cluster (16), the node's name, and the 24 bytes above
//! ```
//! Integers are little-endian. The file is replaced as a whole, every [`NOTED_EVERY`], in touch and cut off, locked or
//! not: after a start the node takes itself to be cut off for that much longer than it is, and never for less. A file
//! that is missing, damaged, or another node's is none. Rejected: a table in the replica, which lies still while
//! nothing is committed, and would be written and wiped as often for this alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use capstan_format::{crc32c, crc32c_append};
use capstan_keys::Name;
use capstan_keys::api::ClusterId;
use capstan_service::housekeeping::NextCheck;
use tokio::time::Instant;

use super::Service;
use crate::node::LastHeard;

/// How often it is noted.
const NOTED_EVERY: Duration = Duration::from_secs(10);

const MAGIC: [u8; 8] = *b"CAPHEARD";
const LEN: usize = 28;

/// Where it is noted, and whose it is.
pub(super) struct Noted {
    path: PathBuf,
    /// Over the cluster and the name.
    whose: u32,
}

impl Noted {
    pub(super) fn of(path: PathBuf, cluster: &ClusterId, name: &Name) -> Self {
        Self { path, whose: crc32c_append(crc32c(&cluster.0), name.as_str().as_bytes()) }
    }

    /// As it was noted before this start.
    pub(super) fn read(&self, now: Instant) -> LastHeard {
        match self.try_read(now) {
            Ok(Some(last)) => last,
            Ok(None) => {
                tracing::info!(
                    "no record says when this node was in touch last: cut off, it gives out nothing under a policy with a limit for that"
                );
                LastHeard::unknown(now)
            }
            Err(error) => {
                tracing::warn!(
                    %error, path = %self.path.display(),
                    "the record of when this node was in touch last cannot be read: cut off, it gives out nothing under a policy with a limit \
                     for that. Once it is in touch it writes the record anew"
                );
                LastHeard::unknown(now)
            }
        }
    }

    fn try_read(&self, now: Instant) -> io::Result<Option<LastHeard>> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is damaged, or another node's");
        self.decode(&bytes, now).ok_or_else(damaged).map(Some)
    }

    fn write(&self, last: &LastHeard, now: Instant) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&self.encode(last, now))?;
        file.sync_all()?;
        // Should the name be lost with the power, the record before it is an earlier one, and an earlier one errs to
        // the safe side.
        fs::rename(&new, &self.path)
    }

    fn encode(&self, last: &LastHeard, now: Instant) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&last.since_ns().to_le_bytes());
        let counted_ns = u64::try_from(last.counted(now).as_nanos()).unwrap_or(u64::MAX);
        bytes[16..24].copy_from_slice(&counted_ns.to_le_bytes());
        let checksum = crc32c_append(self.whose, &bytes[..24]);
        bytes[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(&self, bytes: &[u8], now: Instant) -> Option<LastHeard> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let number = |at: usize| -> [u8; 8] { std::array::from_fn(|n| bytes[at + n]) };
        let is_whole = number(0) == MAGIC && bytes[24..] == crc32c_append(self.whose, &bytes[..24]).to_le_bytes();
        let since_ns = i64::from_le_bytes(number(8));
        let counted = Duration::from_nanos(u64::from_le_bytes(number(16)));
        is_whole.then(|| LastHeard::on_record(since_ns, counted, now))
    }
}

impl Service {
    /// When the majority was heard last, by this process or before it.
    pub(super) fn last_heard(&self) -> LastHeard {
        *self.last_heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes it now and then.
pub(super) struct LastHeardNotes {
    noted: Arc<Noted>,
    /// The last one could not be noted.
    fails: bool,
}

impl LastHeardNotes {
    pub(super) fn new(noted: Noted) -> Self {
        Self { noted: Arc::new(noted), fails: false }
    }

    /// Notes when the majority was heard last.
    pub(super) async fn check(&mut self, service: &Service) -> NextCheck<'static> {
        let last = service.last_heard();
        // Where nobody knows there is nothing to note.
        if last.since_ns() != 0 {
            let noted = self.noted.clone();
            let written = tokio::task::spawn_blocking(move || noted.write(&last, Instant::now())).await;
            match written.map_err(io::Error::other).flatten() {
                Ok(()) => self.fails = false,
                Err(error) if !self.fails => {
                    self.fails = true;
                    tracing::warn!(
                        %error,
                        "it cannot be noted that this node is in touch: started again while it is cut off, it goes on for less long than \
                         policies allow. See that its disk has room"
                    );
                }
                Err(_) => {}
            }
        }
        NextCheck::after(NOTED_EVERY)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::path::Path;

    use super::*;

    const SINCE_NS: i64 = 0x0102_0304_0506_0708;
    const CLUSTER: ClusterId = ClusterId([7; 16]);

    fn noted(folder: &Path, name: &str) -> Noted {
        Noted::of(folder.join("last-heard"), &CLUSTER, &name.parse().unwrap())
    }

    #[test]
    fn its_bytes() {
        let now = Instant::now();
        let last = LastHeard::on_record(SINCE_NS, Duration::from_nanos(0x1112), now);
        let bytes = noted(Path::new("/"), "kma1").encode(&last, now);
        let mut wanted = b"CAPHEARD\x08\x07\x06\x05\x04\x03\x02\x01\x12\x11\0\0\0\0\0\0".to_vec();
        let checked = [&CLUSTER.0[..], b"kma1", &wanted].concat();
        wanted.extend(crc32c(&checked).to_le_bytes());
        assert_eq!(bytes[..], wanted);
    }

    #[test]
    fn it_goes_on_from_what_was_noted() {
        let folder = tempfile::tempdir().unwrap();
        let (noted, now) = (noted(folder.path(), "kma1"), Instant::now());
        assert_eq!(noted.read(now), LastHeard::unknown(now), "there is no record yet");
        let later = now + Duration::from_secs(5);
        noted.write(&LastHeard::on_record(SINCE_NS, Duration::from_secs(3), now), later).unwrap();
        assert_eq!(noted.read(later), LastHeard::on_record(SINCE_NS, Duration::from_secs(8), later));
        // In the place of the one before, also of one that was not finished.
        fs::write(folder.path().join("last-heard.new"), [9; 99]).unwrap();
        noted.write(&LastHeard::on_record(SINCE_NS + 1, Duration::ZERO, now), now).unwrap();
        assert_eq!(noted.read(now), LastHeard::on_record(SINCE_NS + 1, Duration::ZERO, now));
    }

    #[test]
    fn what_is_damaged_or_of_another_node_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let (own, now) = (noted(folder.path(), "kma1"), Instant::now());
        own.write(&LastHeard::on_record(SINCE_NS, Duration::ZERO, now), now).unwrap();
        assert_eq!(noted(folder.path(), "kma2").read(now), LastHeard::unknown(now));
        let good = fs::read(&own.path).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            fs::write(&own.path, bytes).unwrap();
            assert_eq!(own.read(now), LastHeard::unknown(now), "byte {at}");
            fs::write(&own.path, &good[..at]).unwrap();
            assert_eq!(own.read(now), LastHeard::unknown(now), "cut to {at}");
        }
    }
}
