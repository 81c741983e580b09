//! Recommended access order, by the geometry of the drive's model.
//!
//! The model reckons in bytes from the beginning of tape, and a host in blocks: the blocks of the cartridge are taken
//! to be all of their mean length, which for a tape that was written in one block size they nearly are.

use capstan_tape::Drive;
use capstan_tape::model::{Afterwards, Restore, StartPosition, TapeExtent, plan_restore};
use capstan_tape::scsi::access_order::{BEST_ORDER, Segment, segments_of, to_limits, to_receive};

use super::CommandContext;
use crate::device::DataIn;
use crate::unit::answer::{Answer, check, invalid_command_field, invalid_parameter_field};
use capstan_tape::scsi::SenseKey;

/// Most segments in a list, as LTO-9 drives have it.
const SEGMENTS_MAX: u16 = 2730;

impl CommandContext<'_> {
    /// GENERATE RECOMMENDED ACCESS ORDER.
    pub(super) fn generate_order(&mut self, process: u8, len: u32) -> Answer {
        if process != BEST_ORDER {
            return Err(invalid_command_field(2));
        }
        let segments = segments_of(super::parameters(self.data_out, len as usize)?).map_err(invalid_parameter_field)?;
        if segments.len() > usize::from(SEGMENTS_MAX) {
            return Err(invalid_parameter_field(4));
        }
        let (at, end, used) = self.state.on_drive(|bay, loaded| {
            let at = bay.drive.position()?.lbn;
            let end = loaded.filemarks.end(&mut bay.drive)?;
            let medium = bay.drive.medium()?;
            Ok((at, end, medium.capacity_bytes.saturating_sub(medium.remaining_bytes)))
        })?;
        let outside = |segment: &Segment| segment.partition != 0 || segment.last >= end;
        if let Some(outside) = segments.iter().position(outside) {
            return Err(invalid_parameter_field((8 + 32 * outside) as u16));
        }
        let mean = used as f64 / end.max(1) as f64;
        let bytes = |lbn: u64| (lbn as f64 * mean) as u64;
        let extent = |segment: &Segment| TapeExtent {
            begin: bytes(segment.first),
            len: bytes(segment.last - segment.first + 1).max(1),
        };
        let extents: Vec<TapeExtent> = segments.iter().map(extent).collect();
        let (standing, afterwards) = (StartPosition::At(bytes(at)), Afterwards::Stay);
        let restore = Restore { extents: &extents, ratio: 1.0, target_mb_per_s: None, standing, afterwards };
        let plan = plan_restore(&self.unit.model, &restore);
        let order = plan.steps.iter().filter_map(|step| segments.get(step.extent).copied()).collect();
        let (_, loaded) = self.state.loaded()?;
        loaded.access_order = Some(order);
        Ok(())
    }

    /// RECEIVE RECOMMENDED ACCESS ORDER.
    pub(super) fn tell_order(&mut self, limits: bool, offset: u32, allocation: u32, data_in: &mut DataIn) -> Answer {
        if limits {
            data_in.put(&to_limits(SEGMENTS_MAX), allocation as usize);
            return Ok(());
        }
        let (_, loaded) = self.state.loaded()?;
        // COMMAND SEQUENCE ERROR: nobody asked for an order of this cartridge.
        let Some(order) = &loaded.access_order else { return Err(check(SenseKey::IllegalRequest, 0x2c, 0x00)) };
        let list = to_receive(BEST_ORDER, order);
        let Some(rest) = list.get(offset as usize..) else { return Err(invalid_command_field(2)) };
        data_in.put(rest, allocation as usize);
        Ok(())
    }
}
