//! How a session runs, by the settings and by what was asked for.

use std::time::Duration;

use capstan_mover::{CheckpointBounds, ExtentBounds, PackOptions, SessionOptions};

use crate::limits::ENTRY_BYTES_MAX;
use crate::request::{BackupRequest, Target};
use crate::site::Site;

/// How long what has ended may wait for a checkpoint while other jobs of the session write: the tape stands still for
/// each.
const ENDED_WITHIN: Duration = Duration::from_secs(5);
/// Connections of a job that shares its session, at most.
const CONNECTIONS_SHARED_MAX: u16 = 8;

impl Site {
    /// Streams that a backup reads at the same time: one a drive at least.
    pub(super) fn connections(&self, request: &BackupRequest, sets: usize) -> usize {
        let wanted = request.connections.max(1);
        let most = request.session.map_or(wanted, |_| CONNECTIONS_SHARED_MAX);
        usize::from(wanted.min(most)).max(sets)
    }

    /// Options of a session that copies one object, a connection at a time.
    pub(crate) fn session_options_for_copy(&self, chunk_len: usize) -> SessionOptions {
        let mut options = self.options(chunk_len, self.config.data.compression_level);
        options.connections = 1;
        options
    }

    pub(super) fn session_options(&self, request: &BackupRequest, sets: usize) -> SessionOptions {
        let data = &self.config.data;
        let level = match (request.compression, request.target) {
            (Some(level), _) => level,
            (None, Target::Pool) => data.compression_level,
            // To null the source is measured, not the compressor.
            (None, Target::Null) => 0,
        };
        let mut options = self.options(self.config.chunk_len(), level);
        options.drive_sets = sets;
        options.connections = usize::from(request.connections.max(1)).max(sets);
        if request.session.is_some() {
            let jobs = usize::from(self.config.server.runs_per_drive.max(1));
            options.connections = jobs * usize::from(CONNECTIONS_SHARED_MAX);
            options.ended_within = Some(ENDED_WITHIN);
            // A slow source is to hold no drive that it does not write to yet.
            options.mounts_for_blocks = true;
        }
        options
    }

    fn options(&self, chunk_len: usize, level: i32) -> SessionOptions {
        let data = &self.config.data;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        SessionOptions {
            chunk_len,
            pool_bytes: data.buffer_mib << 20,
            pack: if level == 0 { PackOptions::Store } else { PackOptions::Zstd(level) },
            pack_workers: cores.saturating_sub(1).max(1),
            connections: 1,
            first_copy: 1,
            extents: ExtentBounds {
                worthwhile: data.extent_worthwhile_mib << 20,
                longest: data.extent_longest_mib << 20,
            },
            checkpoints: CheckpointBounds {
                bytes: data.checkpoint_mib << 20,
                every: self.config.checkpoint_every(),
                entry_bytes: ENTRY_BYTES_MAX.min(crate::Config::reserve_bytes_min(&self.library.config) / 2),
            },
            ended_within: None,
            mounts_for_blocks: false,
            drive_sets: 1,
        }
    }
}
