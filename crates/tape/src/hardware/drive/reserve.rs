//! Early warning with room for what must come behind it: programmable early warning (SSC-5, 4.2.5).
//!
//! ```text
//! Device configuration extension mode page (10h, subpage 01h)
//!  0  1  50h: page 10h with a subpage          6  2  PEWS: MB in front of early warning at which the
//!  1  1  01h                                          programmable one is told (0/00/07), once; 0 for not
//!  2  2  001Ch                                 8  1  bit 0: volume containing encrypted blocks
//!  4  1  handling of deferred recovery         9 23  reserved
//!  5  1  write mode, short erase mode
//! ```
//! A drive's own early warning lies where its maker put it; the last part of the catalog must fit behind it. A drive
//! that knows no other goes on with its own. The standard lets a drive round; MB are taken for 10^6 bytes, of which no
//! drive is known to mean less.

use std::ops::Range;

use super::{ScsiDrive, modes};
use crate::DriveError;
use crate::scsi::Transport;
use crate::scsi::position::PositionData;

const PAGE: u8 = 0x10;
const SUBPAGE: u8 = 0x01;
/// Where PEWS stands.
const PEWS: Range<usize> = 6..8;
/// No more of a cartridge than this share is kept, however small it is.
const SHARE: u64 = 20;
const MB: u64 = 1_000_000;

/// What is kept in front of a drive's early warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserve {
    /// Nothing was wished.
    NotWished,
    /// So many bytes are wished; the drive has no such page, or was not asked yet.
    Wished(u64),
    /// The drive tells.
    Set(u64),
}

impl<T: Transport> ScsiDrive<T> {
    /// Has early warning told so many bytes in front of the drive's own, or a twentieth of the cartridge where that is
    /// less, from the next load on: if the drive can.
    #[must_use]
    pub fn with_reserve(mut self, bytes: u64) -> Self {
        self.reserve = Reserve::Wished(bytes);
        self
    }

    /// Sets it for a cartridge of this capacity (0: not known). After a reset the drive has forgotten.
    pub(super) fn set_reserve(&mut self, capacity_bytes: u64) -> Result<(), DriveError> {
        let (Reserve::Wished(bytes) | Reserve::Set(bytes)) = self.reserve else { return Ok(()) };
        self.reserve = Reserve::Wished(bytes);
        let Some(mut found) = self.mode_page((PAGE, SUBPAGE))? else { return Ok(()) };
        let kept = if capacity_bytes == 0 { bytes } else { bytes.min(capacity_bytes / SHARE) };
        let megabytes = u16::try_from(kept.div_ceil(MB)).unwrap_or(u16::MAX);
        let Some(pews) = found.page.get_mut(PEWS) else { return Ok(()) };
        pews.copy_from_slice(&megabytes.to_be_bytes());
        match self.mode_select(&found.to_select()) {
            Err(failure) if modes::is_refused(&failure) => {}
            done => {
                self.checked("MODE SELECT", done)?;
                self.reserve = Reserve::Set(bytes);
            }
        }
        Ok(())
    }

    /// Whether early warning, the drive's or ours, lies behind.
    pub(super) fn is_warned(&self, data: PositionData) -> bool {
        data.end || data.programmable_early_warning && matches!(self.reserve, Reserve::Set(_))
    }
}
