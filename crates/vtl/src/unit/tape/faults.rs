//! Faults of a drive, as they happen.

use std::path::Path;

use capstan_format::{KeyTag, Volser};
use capstan_tape::scsi::sense::{About, Sense};
use capstan_tape::scsi::{Command, SenseData, SenseKey};
use capstan_tape::{Drive, Fault};

use super::{CommandContext, State};
use crate::device::DataIn;
use crate::fault::DeviceFault;
use crate::unit::answer::{Answer, Refusal};
use crate::unit::faults::Waiting;
use crate::unit::nexuses::Attention;

/// Sense data that a fault names.
pub(crate) fn ordered_sense(key: u8, asc: u8, ascq: u8, deferred: bool) -> SenseData {
    let about = if deferred { About::AnEarlierCommand } else { About::ThisCommand };
    let sense = Sense { about, key, asc, ascq };
    // Early warning and volume overflow come with the mark of the end of the medium.
    let end_of_medium = matches!((key, asc, ascq), (0x0 | 0xd, 0x00, 0x02));
    SenseData { sense, end_of_medium, ..SenseData::new(SenseKey::NoSense, 0, 0) }
}

impl CommandContext<'_> {
    /// Lets a fault happen at a command.
    pub(super) fn inject_fault(&mut self, waiting: &Waiting, command: &Command, data_in: &mut DataIn) -> Answer {
        match &waiting.fault {
            DeviceFault::Sense { key, asc, ascq, deferred, carried_out } => {
                // What the drive recovered from, or only remarks, it has carried out.
                if *carried_out || *key <= SenseKey::RecoveredError as u8 {
                    self.carry_out(command, data_in)?;
                }
                let sense = ordered_sense(*key, *asc, *ascq, *deferred);
                if sense.sense.key == SenseKey::UnitAttention as u8 {
                    self.meant(asc, ascq);
                }
                Err(sense.into())
            }
            DeviceFault::LoseWrites { told_after } => {
                let told_after = *told_after;
                self.in_drive(|next| Fault::WritesLost { write: next.write, writes_until_told: told_after });
                self.carry_out(command, data_in)
            }
            DeviceFault::LosePower { after } => {
                let after = *after;
                self.in_drive(|next| Fault::PowerLost { write: next.write, writes_until_reset: after });
                self.carry_out(command, data_in)
            }
            DeviceFault::Reset { told } => {
                self.state.reset();
                self.state.nexuses.tell_all(None, Attention::Reset);
                if *told {
                    self.state.nexuses.take(self.initiator);
                    return Err(Attention::Reset.sense().into());
                }
                self.state.nexuses.swallow();
                self.carry_out(command, data_in)
            }
            DeviceFault::Lose { carried_out } => {
                if *carried_out {
                    let _ = self.carry_out(command, data_in);
                }
                Err(Refusal::Lost)
            }
            DeviceFault::Unreadable => {
                let at = self.state.on_drive(|bay, _| bay.drive.position())?.lbn;
                self.in_drive(|_| Fault::ReadFails { lbn: at });
                self.carry_out(command, data_in)
            }
            DeviceFault::EarlyWarning => {
                let at = self.state.on_drive(|bay, _| bay.drive.position())?.lbn;
                self.in_drive(|_| Fault::EarlyWarning { lbn: at });
                self.carry_out(command, data_in)
            }
            DeviceFault::EndOfMedium => {
                let at = self.state.on_drive(|bay, _| bay.drive.position())?.lbn;
                self.in_drive(|_| Fault::EarlyWarning { lbn: at.saturating_sub(1) });
                self.in_drive(|_| Fault::EndOfMedium { lbn: at });
                self.carry_out(command, data_in)
            }
            DeviceFault::EndOfDataLost { searches } => {
                let searches = *searches;
                self.in_drive(|_| Fault::EndOfDataLost { searches });
                self.carry_out(command, data_in)
            }
            DeviceFault::SlideTab => {
                let done = self.carry_out(command, data_in);
                if let Some(loaded) = &mut self.state.loaded {
                    loaded.medium.write_protected = true;
                }
                done
            }
            DeviceFault::Alert { flag } => {
                self.state.counters.raise(*flag);
                self.carry_out(command, data_in)
            }
            DeviceFault::SoftErrors { count } => {
                match command {
                    Command::Read { .. } => self.state.counters.read_recovered(*count),
                    _ => self.state.counters.write_recovered(*count),
                }
                self.carry_out(command, data_in)
            }
            DeviceFault::StealReservation => {
                let State { reservations, nexuses, .. } = &mut *self.state;
                let held = reservations.holder().map(str::to_owned);
                reservations.steal(nexuses);
                let told = nexuses.take(self.initiator);
                self.reservation_may_be_lost(held.as_deref());
                match told {
                    Some(attention) => Err(attention.sense().into()),
                    None => Err(Refusal::Conflict),
                }
            }
            DeviceFault::ChangeKey => {
                self.state.keys.set_by_another(KeyTag([0xee; 16]));
                Err(Attention::KeyChanged.sense().into())
            }
            DeviceFault::ChangeTape { told, .. } => {
                let Some((volser, path)) = &waiting.cartridge else { return self.carry_out(command, data_in) };
                self.change_tape(volser, path);
                self.state.nexuses.tell_all(None, Attention::MediumChanged);
                if *told {
                    self.state.nexuses.take(self.initiator);
                    return Err(Attention::MediumChanged.sense().into());
                }
                self.state.nexuses.swallow();
                self.carry_out(command, data_in)
            }
            // The robot's.
            DeviceFault::WrongTape { .. } | DeviceFault::Mislabelled { .. } | DeviceFault::DoorOpen { .. } => {
                self.carry_out(command, data_in)
            }
        }
    }

    fn in_drive(&mut self, fault: impl FnOnce(capstan_tape::Next) -> Fault) {
        if let Some(bay) = &mut self.state.bay {
            bay.drive.inject(fault);
        }
    }

    /// A unit attention that is said must also be true.
    fn meant(&mut self, asc: &u8, ascq: &u8) {
        match (asc, ascq) {
            (0x29, _) => self.state.reset(),
            (0x28, 0x00) => {
                let _ = self.rewind();
            }
            (0x2a, 0x11) => self.state.keys.set_by_another(KeyTag([0xee; 16])),
            _ => return,
        }
        let told = if (*asc, *ascq) == (0x2a, 0x11) { Attention::KeyChanged } else { Attention::Reset };
        self.state.nexuses.tell_all(None, told);
        self.state.nexuses.take(self.initiator);
    }

    /// Somebody takes the cartridge out by hand and puts another one in.
    fn change_tape(&mut self, volser: &Volser, path: &Path) {
        let _ = self.unthread();
        self.state.bay = Some(super::MediumSlot::new(self.unit, &self.state.current, path, volser));
        let _ = self.thread();
    }
}
