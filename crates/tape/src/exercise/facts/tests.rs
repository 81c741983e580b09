//! Questions to a drive that answers anything.

use super::*;
use crate::scsi::{Reply, SenseData, TransportError};

/// A drive that answers anything.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Transport for Noise {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        let DataPhase::In(room) = data else { panic!("a question moves data to who asks: {cdb:02x?}") };
        let moved = (self.next() as usize % 600).min(room.len());
        for byte in &mut room[..moved] {
            // Many zeroes, as lengths and numbers have them.
            *byte = if self.next().is_multiple_of(3) { (self.next() >> 9) as u8 } else { 0 };
        }
        let status = match self.next() % 8 {
            0 => ScsiStatus::CheckCondition,
            1 => ScsiStatus::Other(0x30),
            2 => return Err(TransportError::Timeout { opcode: 0, after: timeout }),
            _ => ScsiStatus::Good,
        };
        let sense = SenseData::of_bytes(&[0x70, 0, (self.next() % 16) as u8, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0]);
        Ok(Reply { status, sense: sense.filter(|_| status == ScsiStatus::CheckCondition), moved })
    }

    fn data_max(&self) -> usize {
        ROOM
    }
}

#[test]
fn whatever_a_drive_answers_is_no_panic() {
    for seed in 1..=2000u64 {
        // Printed by a failing test only.
        println!("seed {seed}");
        assert!(all(&mut Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))).len() >= 9);
    }
}
