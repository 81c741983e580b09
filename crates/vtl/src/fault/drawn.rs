//! Faults by lot: what devices may say and do, and a draw from it that a seed repeats.

use capstan_format::Volser;
use capstan_tape::Draw;

use super::{CommandClass, DeviceFault, FaultOrder, FaultyUnit};

/// Sense data of every row of the table of sense to action, with the class of commands at which a device says it.
pub const SENSE_ROWS: &[(CommandClass, u8, u8, u8)] = &[
    (CommandClass::Write, 0x0, 0x00, 0x07),
    (CommandClass::Write, 0x1, 0x0c, 0x00),
    (CommandClass::Write, 0x3, 0x0c, 0x00),
    (CommandClass::Write, 0x3, 0x50, 0x00),
    (CommandClass::Write, 0x3, 0x09, 0x00),
    (CommandClass::Read, 0x3, 0x11, 0x00),
    (CommandClass::Move, 0x3, 0x14, 0x00),
    (CommandClass::Read, 0x3, 0x31, 0x00),
    (CommandClass::Load, 0x3, 0x30, 0x00),
    (CommandClass::Write, 0x7, 0x30, 0x05),
    (CommandClass::Write, 0x4, 0x44, 0x00),
    (CommandClass::Read, 0x4, 0x44, 0x00),
    (CommandClass::Write, 0x4, 0x10, 0x01),
    (CommandClass::Any, 0x6, 0x28, 0x00),
    (CommandClass::Any, 0x6, 0x29, 0x00),
    (CommandClass::Write, 0x6, 0x2a, 0x03),
    (CommandClass::Write, 0x6, 0x2a, 0x11),
    (CommandClass::Write, 0x7, 0x27, 0x00),
    (CommandClass::Write, 0x7, 0x30, 0x0c),
    (CommandClass::Read, 0x7, 0x74, 0x01),
    (CommandClass::Read, 0x7, 0x74, 0x04),
    (CommandClass::Any, 0x2, 0x04, 0x01),
    (CommandClass::Load, 0x2, 0x04, 0x07),
    (CommandClass::Write, 0x0, 0x00, 0x17),
    (CommandClass::Load, 0x2, 0x30, 0x03),
    (CommandClass::Read, 0x8, 0x00, 0x05),
    (CommandClass::Move, 0x8, 0x14, 0x03),
    (CommandClass::Any, 0xb, 0x44, 0x00),
    (CommandClass::Write, 0xb, 0x47, 0x00),
    (CommandClass::Write, 0xd, 0x00, 0x02),
];

/// Sense data that a robot says.
pub const ROBOT_SENSE_ROWS: &[(CommandClass, u8, u8, u8)] = &[
    (CommandClass::Carry, 0x4, 0x15, 0x01),
    (CommandClass::Carry, 0x5, 0x3b, 0x0d),
    (CommandClass::Carry, 0x5, 0x3b, 0x0e),
    (CommandClass::Carry, 0x5, 0x53, 0x02),
    (CommandClass::Any, 0x6, 0x28, 0x01),
    (CommandClass::Any, 0x6, 0x29, 0x00),
    (CommandClass::Any, 0x2, 0x04, 0x01),
    (CommandClass::Carry, 0xb, 0x44, 0x00),
];

/// Draws faults for a library with so many drives; `volsers` are cartridges that may be in the wrong place. The same
/// seed draws the same.
pub fn drawn_faults(seed: u64, drives: usize, volsers: &[Volser]) -> Vec<FaultOrder> {
    let mut numbers = Draw::new(seed);
    let mut draw = |below: usize| numbers.below(below as u64) as usize;
    let mut orders = Vec::new();
    for _ in 0..=draw(3) {
        let robot = draw(6) == 0;
        let unit = if robot { FaultyUnit::Robot } else { FaultyUnit::Drive(draw(drives)) };
        let volser = || volsers.first().map(Volser::to_string).unwrap_or_default();
        let row = |(at, key, asc, ascq): (CommandClass, u8, u8, u8), deferred, carried_out| {
            (at, DeviceFault::Sense { key, asc, ascq, deferred, carried_out })
        };
        let (at, fault) = if robot {
            match draw(8) {
                0..4 => row(ROBOT_SENSE_ROWS[draw(ROBOT_SENSE_ROWS.len())], false, false),
                4 => (CommandClass::Carry, DeviceFault::DoorOpen { commands: draw(4) as u32 + 1 }),
                5 => (CommandClass::Carry, DeviceFault::WrongTape { volser: volser() }),
                6 => (CommandClass::Inventory, DeviceFault::Mislabelled { volser: volser() }),
                _ => (CommandClass::Carry, DeviceFault::Lose { carried_out: draw(2) == 0 }),
            }
        } else {
            match draw(25) {
                0..8 => row(SENSE_ROWS[draw(SENSE_ROWS.len())], false, false),
                8 => row((CommandClass::Any, 0x3, 0x0c, 0x00), true, false),
                9 | 10 => (CommandClass::Write, DeviceFault::LoseWrites { told_after: draw(8) as u64 }),
                11 | 12 => (CommandClass::Write, DeviceFault::LosePower { after: draw(8) as u64 }),
                13 => (CommandClass::Flush, DeviceFault::LosePower { after: 0 }),
                14 => (CommandClass::Any, DeviceFault::Reset { told: true }),
                // In front of the look that a host takes before it writes: between that look and the write nobody could
                // tell.
                15 => (CommandClass::Position, DeviceFault::Reset { told: false }),
                16 => (CommandClass::Any, DeviceFault::Lose { carried_out: draw(2) == 0 }),
                17 => (CommandClass::Read, DeviceFault::Unreadable),
                18 => (CommandClass::Write, DeviceFault::EarlyWarning),
                19 => (CommandClass::Write, DeviceFault::EndOfMedium),
                20 => (CommandClass::Move, DeviceFault::EndOfDataLost { searches: 1 }),
                21 => (CommandClass::Load, DeviceFault::SlideTab),
                22 => (CommandClass::Write, DeviceFault::ChangeKey),
                23 => (CommandClass::Write, DeviceFault::StealReservation),
                _ => (CommandClass::Position, DeviceFault::ChangeTape { volser: volser(), told: draw(2) == 0 }),
            }
        };
        let passing = match at {
            CommandClass::Write | CommandClass::Position | CommandClass::Read => draw(60),
            CommandClass::Any => draw(200),
            _ => draw(6),
        };
        orders.push(FaultOrder { unit, at, passing: passing as u32, fault });
    }
    orders
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let volsers = ["A00001".parse().unwrap()];
        assert_eq!(drawn_faults(7, 2, &volsers), drawn_faults(7, 2, &volsers));
        assert_ne!(drawn_faults(7, 2, &volsers), drawn_faults(8, 2, &volsers));
    }
}
