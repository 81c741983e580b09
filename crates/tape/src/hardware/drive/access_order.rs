//! The drive's own opinion on the order in which to read.

use super::ScsiDrive;
use crate::DriveError;
use crate::scsi::access_order::{BEST_ORDER, SEGMENT_LEN, Segment, segments_max_of, segments_of, to_generate};
use crate::scsi::{Command, DataPhase, Transport};

impl<T: Transport> ScsiDrive<T> {
    /// Asks for the order of stretches that its limits allow, and believes an order only if it names each once.
    pub(super) fn ask_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.loaded()?;
        let mut limits = [0; 4];
        let ask = Command::ReceiveRecommendedAccessOrder { limits: true, offset: 0, allocation: 4 };
        let told = match self.line.run(&ask, DataPhase::In(&mut limits)) {
            Err(failure) if failure.is_not_known() => return Ok(None),
            told => self.checked("RECEIVE RECOMMENDED ACCESS ORDER", told)?,
        };
        let room = 8 + stretches.len() * SEGMENT_LEN;
        let taken = segments_max_of(&limits[..told.moved.min(4)]).is_some_and(|most| stretches.len() <= most);
        if !taken || room > self.line.transport.data_max() || stretches.is_empty() {
            return Ok(None);
        }
        let segment = |(number, &(first, last)): (usize, &(u64, u64))| {
            let mut name = [0; 10];
            name[2..].copy_from_slice(&(number as u64).to_be_bytes());
            Segment { name, partition: 0, first, last }
        };
        let list = to_generate(&stretches.iter().enumerate().map(segment).collect::<Vec<_>>());
        let generate = Command::GenerateRecommendedAccessOrder { process: BEST_ORDER, len: list.len() as u32 };
        match self.line.run(&generate, DataPhase::Out(&list)) {
            Err(failure) if failure.is_not_known() => return Ok(None),
            done => self.checked("GENERATE RECOMMENDED ACCESS ORDER", done)?,
        };
        let mut answer = vec![0; room];
        let receive = Command::ReceiveRecommendedAccessOrder { limits: false, offset: 0, allocation: room as u32 };
        let moved =
            self.command("RECEIVE RECOMMENDED ACCESS ORDER", &receive, DataPhase::In(&mut answer))?.moved.min(room);
        let ordered = segments_of(&answer[..moved]).unwrap_or_default();
        let number = |segment: &Segment| u64::from_be_bytes(segment.name[2..].try_into().unwrap_or_default()) as usize;
        let order: Vec<usize> = ordered.iter().map(number).collect();
        // An order that leaves something out, or says it twice, is none.
        let mut seen = order.clone();
        seen.sort_unstable();
        Ok(seen.into_iter().eq(0..stretches.len()).then_some(order))
    }
}
