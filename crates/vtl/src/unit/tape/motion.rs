//! Where the tape stands, and moving it: SPACE, LOCATE, READ POSITION, REWIND, LOAD UNLOAD.

use capstan_tape::model::Access;
use capstan_tape::scsi::command::{Destination, PositionForm, SpaceOver};
use capstan_tape::scsi::position::PositionData;
use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{Drive, DriveError, Flush, with_causes};

use super::agent::AgentKey;
use super::failure::sense_of;
use super::filemarks::Filemarks;
use super::{CommandContext, Loaded, MediumSlot, State};
use crate::device::DataIn;
use crate::events::TargetEvent;
use crate::unit::answer::{Answer, Refusal, check, invalid_command_field};

/// Where a SPACE ends, and why, if it is not where it was to.
struct Spaced {
    lbn: u64,
    short: Option<(Met, u64)>,
}

enum Met {
    Filemark,
    EndOfData,
    Beginning,
}

impl CommandContext<'_> {
    /// Makes the cartridge in the drive ready, at its beginning.
    pub(super) fn thread(&mut self) -> Answer {
        let Some(bay) = &mut self.state.bay else { return Err(check(SenseKey::NotReady, 0x3a, 0x00)) };
        let (drive, barcode) = (self.state.voice.drive, bay.volser.to_string());
        let threaded = bay.drive.load();
        self.state.counters.loaded();
        let trouble = match threaded {
            Ok(medium) => {
                let access = medium
                    .generation
                    .as_ref()
                    .map_or(Access::ReadWrite, |generation| self.unit.model.access(generation));
                if access == Access::None {
                    // CANNOT READ MEDIUM - INCOMPATIBLE FORMAT
                    let _ = bay.drive.unload();
                    let reason = format!("a {} drive cannot read its generation", self.unit.model.name);
                    self.state.voice.tell(TargetEvent::NotMounted { drive, barcode, reason });
                    SenseData::new(SenseKey::MediumError, 0x30, 0x02)
                } else {
                    bay.trouble = None;
                    let filemarks = Filemarks::default();
                    self.state.loaded = Some(Loaded {
                        medium,
                        access,
                        filemarks,
                        programmable_told: false,
                        agent_key: AgentKey::Unasked,
                        access_order: None,
                    });
                    self.fetch_first_key();
                    self.tell_mounted();
                    return Ok(());
                }
            }
            Err(error) => {
                let reason = with_causes(&error);
                self.state.voice.tell(TargetEvent::NotMounted { drive, barcode, reason });
                sense_of(&error)
            }
        };
        bay.trouble = Some(trouble);
        Err(trouble.into())
    }

    /// Whether no host prevents that the cartridge is let go.
    pub(super) fn check_removable(&self) -> Result<(), SenseData> {
        let State { preventing, voice, bay, .. } = &*self.state;
        if preventing.is_empty() {
            return Ok(());
        }
        if let Some(bay) = bay {
            let mut by: Vec<String> = preventing.iter().cloned().collect();
            by.sort();
            let unit = format!("drive {}", voice.drive);
            voice.tell(TargetEvent::RemovalPrevented { unit, barcode: bay.volser.to_string(), by });
        }
        // MEDIUM REMOVAL PREVENTED
        Err(SenseData::new(SenseKey::IllegalRequest, 0x53, 0x02))
    }

    /// Flushes and lets the cartridge go; its key goes with it.
    pub(super) fn unthread(&mut self) -> Answer {
        let Some(bay) = &mut self.state.bay else { return Err(check(SenseKey::NotReady, 0x3a, 0x00)) };
        bay.trouble = None;
        if self.state.loaded.is_none() {
            return Ok(());
        }
        let flushed = self.flush();
        let Some(bay) = &mut self.state.bay else { return Ok(()) };
        let let_go = bay.drive.unload();
        let (drive, barcode) = (self.state.voice.drive, bay.volser.to_string());
        self.state.voice.tell(TargetEvent::Dismounted { drive, barcode });
        self.state.loaded = None;
        self.state.keys.demounted();
        let_go.map_err(|error| Refusal::Check(sense_of(&error)))?;
        flushed
    }

    /// LOAD UNLOAD.
    pub(super) fn load_unload(&mut self, load: bool, hold: bool, end_of_tape: bool) -> Answer {
        if end_of_tape {
            return Err(invalid_command_field(4));
        }
        match (load, hold) {
            (true, false) if self.state.loaded.is_some() => self.rewind(),
            (true, false) => {
                let threaded = self.thread();
                self.state.nexuses.position_verified(self.initiator);
                threaded
            }
            // Held in the drive, not threaded: it is there already, or it is unthreaded.
            (true, true) => Ok(()),
            (false, _) => {
                self.check_removable()?;
                self.unthread()
            }
        }
    }

    /// REWIND.
    pub(super) fn rewind(&mut self) -> Answer {
        self.flush()?;
        self.state.on_drive(|bay, _| bay.drive.locate(0))?;
        self.state.nexuses.position_verified(self.initiator);
        Ok(())
    }

    /// What was written is on the medium behind this, under a key that is in force. The tape is moved then.
    fn flush(&mut self) -> Answer {
        if !self.state.loaded()?.1.medium.write_protected {
            self.state.on_drive(|bay, _| bay.drive.write_filemarks(0, Flush::Synchronous))?;
        }
        self.confirm_key()?;
        self.state.loaded()?.1.moved();
        Ok(())
    }

    /// READ POSITION.
    pub(super) fn tell_position(&mut self, form: PositionForm, data_in: &mut DataIn) -> Answer {
        let early = u64::from(self.state.modes.programmable_early_warning_mb) << 20;
        let data = self.state.on_drive(|bay, loaded| {
            let position = bay.drive.position()?;
            let file = match form {
                PositionForm::Long => loaded.filemarks.look(&mut bay.drive, position.lbn).ok(),
                PositionForm::Short | PositionForm::Extended { .. } => None,
            };
            let medium = bay.drive.medium()?;
            Ok(PositionData {
                beginning: position.lbn == 0,
                end: position.early_warning,
                programmable_early_warning: early > 0 && medium.remaining_bytes < early,
                partition: 0,
                lbn: Some(position.lbn),
                file: file.map(|()| loaded.filemarks.below(position.lbn)),
            })
        })?;
        self.state.nexuses.position_verified(self.initiator);
        match form {
            PositionForm::Short => data_in.put(&data.to_short(), 20),
            PositionForm::Long => data_in.put(&data.to_long(), 32),
            PositionForm::Extended { allocation } => data_in.put(&data.to_extended(), usize::from(allocation)),
        }
        Ok(())
    }

    /// LOCATE.
    pub(super) fn locate(&mut self, to: Destination, partition: Option<u8>) -> Answer {
        if partition.is_some_and(|partition| partition != 0) {
            return Err(invalid_command_field(3));
        }
        self.flush()?;
        let found = self.state.on_drive(|bay, loaded| {
            let drive = &mut bay.drive;
            let lbn = match to {
                Destination::Object(lbn) => Some(lbn),
                Destination::EndOfData => None,
                Destination::File(0) => Some(0),
                Destination::File(file) => {
                    loaded.filemarks.end(drive)?;
                    let mark = usize::try_from(file - 1).ok().and_then(|at| loaded.filemarks.all().get(at));
                    Some(mark.map_or(u64::MAX, |mark| mark + 1))
                }
            };
            match lbn.map(|lbn| drive.locate(lbn)) {
                Some(Ok(())) => Ok(true),
                None => drive.space_to_end_of_data().map(|()| true),
                Some(Err(DriveError::BlankCheck { .. })) => drive.space_to_end_of_data().map(|()| false),
                Some(Err(error)) => Err(error),
            }
        })?;
        self.state.nexuses.position_verified(self.initiator);
        // The drive stands at the end of data.
        if found { Ok(()) } else { Err(check(SenseKey::BlankCheck, 0x00, 0x05)) }
    }

    /// SPACE.
    pub(super) fn space(&mut self, over: SpaceOver, count: i64) -> Answer {
        self.flush()?;
        if over == SpaceOver::EndOfData {
            self.state.on_drive(|bay, _| bay.drive.space_to_end_of_data())?;
            // Only this one leads to the same place wherever it began.
            self.state.nexuses.position_verified(self.initiator);
            return Ok(());
        }
        let short = self.state.on_drive(|bay, loaded| {
            let Spaced { lbn, short } = spaced(bay, loaded, over, count)?;
            bay.drive.locate(lbn)?;
            Ok(short)
        })?;
        let Some((met, left)) = short else { return Ok(()) };
        let sense = match met {
            Met::Filemark => SenseData { filemark: true, ..SenseData::new(SenseKey::NoSense, 0x00, 0x01) },
            Met::EndOfData => SenseData::new(SenseKey::BlankCheck, 0x00, 0x05),
            Met::Beginning => SenseData { end_of_medium: true, ..SenseData::new(SenseKey::NoSense, 0x00, 0x04) },
        };
        Err(sense.with_residual(left as i64).into())
    }
}

/// Where a SPACE over `count` things ends.
fn spaced(bay: &mut MediumSlot, loaded: &mut Loaded, over: SpaceOver, count: i64) -> Result<Spaced, DriveError> {
    let drive = &mut bay.drive;
    let marks = &mut loaded.filemarks;
    let from = drive.position()?.lbn;
    let wanted = count.unsigned_abs();
    let all = |lbn| Ok(Spaced { lbn, short: None });
    let short = |lbn, met, left| Ok(Spaced { lbn, short: Some((met, left)) });
    match (over, count > 0) {
        _ if count == 0 => all(from),
        (SpaceOver::Blocks, true) => {
            let to = from.saturating_add(wanted);
            marks.look(drive, to)?;
            match marks.at_or_behind(from).filter(|mark| *mark < to) {
                Some(mark) => short(mark + 1, Met::Filemark, wanted - (mark - from)),
                None => {
                    // Only what is to be passed must be known; the end is looked for if it may lie in front of that.
                    match drive.locate(to) {
                        Ok(()) => all(to),
                        Err(DriveError::BlankCheck { .. }) => {
                            drive.space_to_end_of_data()?;
                            let end = drive.position()?.lbn;
                            short(end, Met::EndOfData, wanted - (end - from))
                        }
                        Err(error) => Err(error),
                    }
                }
            }
        }
        (SpaceOver::Blocks, false) => {
            marks.look(drive, from)?;
            let to = from.saturating_sub(wanted);
            match marks.in_front_of(from).filter(|mark| *mark >= to) {
                Some(mark) => short(mark, Met::Filemark, wanted - (from - 1 - mark)),
                None if wanted > from => short(0, Met::Beginning, wanted - from),
                None => all(to),
            }
        }
        (SpaceOver::Filemarks, true) => {
            let end = marks.end(drive)?;
            let passed = marks.below(from);
            let behind = marks.all().len() as u64 - passed;
            match usize::try_from(passed + wanted - 1).ok().and_then(|at| marks.all().get(at)) {
                Some(mark) => all(mark + 1),
                None => short(end, Met::EndOfData, wanted - behind),
            }
        }
        (SpaceOver::Filemarks, false) => {
            marks.look(drive, from)?;
            let in_front = marks.below(from);
            match in_front.checked_sub(wanted) {
                Some(at) => all(marks.all()[at as usize]),
                None => short(0, Met::Beginning, wanted - in_front),
            }
        }
        (SpaceOver::SequentialFilemarks | SpaceOver::EndOfData, forward) => {
            let end = marks.end(drive)?;
            Ok(sequence(marks.all(), from, wanted, forward, end))
        }
    }
}

/// So many filemarks one behind the other: behind the last of them, or in front of the first.
fn sequence(marks: &[u64], from: u64, wanted: u64, forward: bool, end: u64) -> Spaced {
    let mut runs = marks.chunk_by(|one, other| one + 1 == *other);
    let long_enough = |len: u64| len >= wanted;
    let found = if forward {
        runs.find_map(|run| {
            let first = run[0].max(from);
            let last = run[run.len() - 1];
            (last >= first && long_enough(last - first + 1)).then_some(first + wanted)
        })
    } else {
        runs.rev().find_map(|run| {
            let last = run[run.len() - 1].min(from.saturating_sub(1));
            (run[0] < from && long_enough(last + 1 - run[0])).then(|| last + 1 - wanted)
        })
    };
    match found {
        Some(lbn) => Spaced { lbn, short: None },
        None if forward => Spaced { lbn: end, short: Some((Met::EndOfData, wanted)) },
        None => Spaced { lbn: 0, short: Some((Met::Beginning, wanted)) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filemarks_in_a_row_are_found_in_both_directions() {
        let marks = [2, 5, 6, 9, 10, 11];
        let to = |from, wanted, forward| sequence(&marks, from, wanted, forward, 20).lbn;
        assert_eq!(to(0, 2, true), 7);
        assert_eq!(to(6, 2, true), 11, "half of a run lies behind");
        assert_eq!(to(0, 3, true), 12);
        assert_eq!(to(0, 4, true), 20);
        assert_eq!(to(20, 2, false), 10);
        assert_eq!(to(9, 2, false), 5);
        assert_eq!(to(5, 2, false), 0);
    }
}
