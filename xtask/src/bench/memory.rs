//! Fills free memory with cached pages before a run.
//!
//! A machine that has been up for a while has little free memory: what is written takes the pages of files that were
//! read once. A bench that deletes what each run wrote frees gigabytes instead, and on a virtual machine the first
//! touch of a free page is often a fault in the host, ten times as dear as the page's use: whoever runs behind a large
//! deletion pays for it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Length of the file that is read: all of it a hole, which takes no room on the disk.
const HOLE_BYTES: u64 = 1 << 43;
/// Memory that is left free: the kernel keeps some in any case.
const LEFT_BYTES: u64 = 256 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// Fills free memory, and remembers which pages were used for that.
#[derive(Debug)]
pub(super) struct Filler {
    hole: File,
    at: u64,
}

impl Filler {
    /// In a folder whose file system has room for a name.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let hole = tempfile::tempfile_in(folder).context("make a file without a name")?;
        hole.set_len(HOLE_BYTES).context("make a file of holes")?;
        Ok(Self { hole, at: 0 })
    }

    /// Reads holes until little memory is free.
    pub(super) fn fill(&mut self) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = free_bytes()?.saturating_sub(LEFT_BYTES);
        while left > 0 {
            self.at = (self.at + PIECE_BYTES as u64) % (HOLE_BYTES - PIECE_BYTES as u64);
            self.hole.read_exact_at(&mut piece, self.at).context("read a hole")?;
            left = left.saturating_sub(PIECE_BYTES as u64);
        }
        Ok(())
    }
}

fn free_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:")).context("MemFree in /proc/meminfo")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("MemFree in /proc/meminfo")?;
    Ok(kib << 10)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn free_memory_is_known() {
        assert!(free_bytes().unwrap() > 1 << 20);
    }
}
