//! The robot as a SCSI unit (SMC-3).

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_format::Volser;
use capstan_tape::scsi::Command;
use capstan_tape::scsi::element::{Assignments, ElementStatus, ElementType, Told, encode};
use capstan_tape::scsi::inquiry::DeviceType;
use capstan_tape::scsi::{SenseData, SenseKey};

use super::answer::{Answer, Refusal, check, completion, data_out_len, invalid_command_field, unknown_command};
use super::faults::{Faults, Waiting};
use super::nexuses::{Attention, Nexuses};
use super::primary::{Identity, ModeHeader, ModeWanted, mode_data, report_operation_codes};
use super::reservation::{Reservations, ReserveOut};
use super::tape::TapeUnit;
use super::tape::faults::ordered_sense;
use crate::device::{Completion, DataIn, Nexus, Request};
use crate::events::{TargetEvent, TargetEvents};
use crate::fault::DeviceFault;
use crate::shelf::{FIRST_DRIVE, FIRST_MAIL, FIRST_SLOT, Place, Shelf, ShelfError, TRANSPORT};

/// The robot.
pub(crate) struct ChangerUnit {
    identity: Identity,
    drives: Vec<Arc<TapeUnit>>,
    events: TargetEvents,
    state: Mutex<State>,
}

struct State {
    shelf: Shelf,
    nexuses: Nexuses,
    reservations: Reservations,
    preventing: HashSet<String>,
    faults: Faults,
    /// Commands that are refused while the door is open.
    door_open_for: u32,
    /// The barcode that every element tells, as a scanner does that reads the same label twice.
    mislabelled: Option<String>,
    /// What the robot puts into the next drive instead of what it was asked for.
    wrong_tape: Option<(Volser, PathBuf)>,
}

impl ChangerUnit {
    /// The robot of a library; cartridges that stood in drives are put into them again.
    pub(crate) fn new(identity: Identity, drives: Vec<Arc<TapeUnit>>, shelf: Shelf, events: TargetEvents) -> Self {
        for (number, drive) in (0u16..).zip(&drives) {
            if let Some((volser, _)) = shelf.at(Place::Drive(number)) {
                // The drive is empty: the program has just begun.
                let _ = drive.insert(&shelf.path(volser), volser);
            }
        }
        let state = State {
            shelf,
            nexuses: Nexuses::default(),
            reservations: Reservations::default(),
            preventing: HashSet::new(),
            faults: Faults::default(),
            door_open_for: 0,
            mislabelled: None,
            wrong_tape: None,
        };
        Self { identity, drives, events, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something done to the cartridges from outside; every host is told that the mail slot was opened, if it was.
    pub(crate) fn by_hand<T>(
        &self,
        act: impl FnOnce(&mut Shelf) -> Result<T, ShelfError>,
        mail_opened: bool,
    ) -> Result<T, ShelfError> {
        let mut state = self.state();
        let done = act(&mut state.shelf)?;
        if mail_opened {
            state.nexuses.tell_all(None, Attention::ImportExport);
        }
        Ok(done)
    }

    /// What stands where, for people.
    pub(crate) fn inventory(&self) -> Vec<(Place, Option<Volser>)> {
        let state = self.state();
        let taken = state.shelf.by_address();
        let at = |place: Place| taken.get(&place.address()).map(|(volser, _)| (*volser).clone());
        state.shelf.places().map(|place| (place, at(place))).collect()
    }

    pub(crate) fn reset(&self) {
        let mut state = self.state();
        state.preventing.clear();
        state.reservations.was_reset();
        state.nexuses.tell_all(None, Attention::Reset);
    }

    pub(crate) fn nexus_lost(&self, nexus: &Nexus) {
        let mut state = self.state();
        state.preventing.remove(&nexus.initiator);
        state.reservations.release(&nexus.initiator);
        state.nexuses.tell(&nexus.initiator, Attention::NexusLost);
    }

    pub(crate) fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion {
        data_in.clear();
        let command = Command::of_cdb(DeviceType::Changer, request.cdb);
        let data_out_len = command.ok().map(|command| data_out_len(&command, 0));
        let mut state = self.state();
        Completion { data_out_len, ..completion(self.answer(&mut state, request, data_in)) }
    }

    fn answer(&self, state: &mut State, request: &Request<'_>, data_in: &mut DataIn) -> Answer {
        let initiator = request.nexus.initiator.as_str();
        state.nexuses.met(initiator);
        let command = Command::of_cdb(DeviceType::Changer, request.cdb)?;
        match command {
            Command::Inquiry { vital_product_data, allocation } => {
                return self.identity.tell(vital_product_data, allocation, data_in);
            }
            Command::RequestSense { allocation, .. } => {
                let told = state.nexuses.take(initiator).map(Attention::sense);
                let sense = told.unwrap_or(SenseData::new(SenseKey::NoSense, 0, 0));
                data_in.put(&sense.to_bytes(), usize::from(allocation));
                return Ok(());
            }
            _ => {}
        }
        if let Some(attention) = state.nexuses.take(initiator) {
            return Err(attention.sense().into());
        }
        if !state.reservations.allows(initiator, &command) {
            return Err(Refusal::Conflict);
        }
        if let Some(waiting) = state.faults.due(&command) {
            (self.events)(TargetEvent::FaultHappened { unit: "robot".to_owned(), fault: waiting.fault.to_string() });
            let carried_out = matches!(
                waiting.fault,
                DeviceFault::Lose { carried_out: true } | DeviceFault::Sense { carried_out: true, .. }
            );
            if carried_out {
                let _ = self.carry_out(state, initiator, &command, request.data_out, data_in);
            }
            self.inject_fault(state, initiator, &waiting)?;
        }
        if state.door_open_for > 0 {
            state.door_open_for -= 1;
            if state.door_open_for == 0 {
                state.nexuses.tell_all(None, Attention::ImportExport);
                (self.events)(TargetEvent::DoorClosed);
            }
            // LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED
            return Err(check(SenseKey::NotReady, 0x04, 0x03));
        }
        self.carry_out(state, initiator, &command, request.data_out, data_in)
    }

    /// Lets a fault happen; what it does to the command at hand is the error.
    fn inject_fault(&self, state: &mut State, initiator: &str, waiting: &Waiting) -> Answer {
        match &waiting.fault {
            DeviceFault::Sense { key, asc, ascq, deferred, .. } => {
                return Err(ordered_sense(*key, *asc, *ascq, *deferred).into());
            }
            DeviceFault::Lose { .. } => return Err(Refusal::Lost),
            DeviceFault::Reset { told } => {
                state.preventing.clear();
                state.reservations.was_reset();
                state.nexuses.tell_all(None, Attention::Reset);
                if *told {
                    state.nexuses.take(initiator);
                    return Err(Attention::Reset.sense().into());
                }
                state.nexuses.swallow();
            }
            DeviceFault::StealReservation => {
                let State { reservations, nexuses, .. } = state;
                reservations.steal(nexuses);
                return Err(Refusal::Conflict);
            }
            DeviceFault::DoorOpen { commands } => {
                state.door_open_for = *commands;
                (self.events)(TargetEvent::DoorOpened { commands: *commands });
            }
            DeviceFault::Mislabelled { volser } => state.mislabelled = Some(volser.clone()),
            DeviceFault::WrongTape { .. } => state.wrong_tape = waiting.cartridge.clone(),
            // A drive's.
            _ => {}
        }
        Ok(())
    }

    /// Nobody has it reserved any more.
    pub(crate) fn end_reservations(&self) {
        self.state().reservations = Reservations::default();
    }

    /// Orders a fault.
    pub(crate) fn order_fault(&self, waiting: Waiting) {
        self.state().faults.order(waiting);
    }

    /// Nothing goes wrong any more; how many faults have happened so far.
    pub(crate) fn forgive(&self) -> u64 {
        let mut state = self.state();
        state.faults.clear();
        state.door_open_for = 0;
        state.mislabelled = None;
        state.wrong_tape = None;
        // Tapes that a hand, or a robot that erred, has put into drives go where they belong.
        for (number, drive) in (0u16..).zip(&self.drives) {
            let belongs = state.shelf.at(Place::Drive(number)).map(|(volser, _)| volser.clone());
            let holds = drive.holds().map(|(volser, _)| volser);
            if holds == belongs {
                continue;
            }
            if holds.is_some() {
                drive.take_by_hand();
            }
            if let Some(volser) = belongs {
                let _ = drive.insert(&state.shelf.path(&volser), &volser);
            }
        }
        state.faults.happened()
    }

    /// A cartridge and its file, if the library has it.
    pub(crate) fn cartridge(&self, volser: &Volser) -> Option<(Volser, PathBuf)> {
        let path = self.state().shelf.path(volser);
        path.exists().then(|| (volser.clone(), path))
    }

    fn carry_out(
        &self,
        state: &mut State,
        initiator: &str,
        command: &Command,
        data_out: &[u8],
        data_in: &mut DataIn,
    ) -> Answer {
        match *command {
            Command::TestUnitReady | Command::InitializeElementStatus | Command::SendDiagnostic { len: 0, .. } => {
                Ok(())
            }
            Command::PositionToElement { transport, to } => {
                check_transport(transport)?;
                state.shelf.place_of(to).map(drop).ok_or_else(invalid_element)
            }
            Command::MoveMedium { transport, from, to } => {
                check_transport(transport)?;
                self.move_medium(state, from, to)
            }
            Command::ExchangeMedium { transport, from, to, second_to } => {
                check_transport(transport)?;
                self.exchange(state, from, to, second_to)
            }
            Command::ReadElementStatus { volume_tags, kind, start, count, device_identifiers, allocation, .. } => {
                let told = Told { volume_tags, device_identifiers };
                let elements = self.elements(state, ElementType::of_code(kind), start, count);
                data_in.put(&encode(&elements, told), allocation as usize);
                Ok(())
            }
            Command::PreventRemoval { prevent } => {
                match prevent {
                    true => state.preventing.insert(initiator.to_owned()),
                    false => state.preventing.remove(initiator),
                };
                Ok(())
            }
            Command::ModeSense { form, no_block_descriptor, control, page, subpage, allocation } => {
                let wanted = ModeWanted { form, no_block_descriptor, control, page, subpage };
                self.tell_modes(state, wanted, allocation, data_in)
            }
            // Nothing can be set; a list that changes nothing is the only one that is no error, and nobody sends it.
            Command::ModeSelect { len: 0, .. } => Ok(()),
            Command::LogSense { page, subpage: 0, from_parameter, allocation, .. } => {
                use capstan_tape::scsi::log::{Parameter, encode, page as log_page};
                let bytes = match page {
                    log_page::SUPPORTED => vec![0, 0, 0, 2, log_page::SUPPORTED, log_page::TAPE_ALERT],
                    log_page::TAPE_ALERT => {
                        let flags: Vec<Parameter> = (1..=64).map(|number| Parameter::new(number, [0])).collect();
                        encode(log_page::TAPE_ALERT, &flags, from_parameter)
                    }
                    _ => return Err(invalid_command_field(2)),
                };
                data_in.put(&bytes, usize::from(allocation));
                Ok(())
            }
            Command::Reserve => state.reservations.reserve(initiator),
            Command::Release => {
                state.reservations.release(initiator);
                Ok(())
            }
            Command::PersistentReserveIn { action, allocation } => {
                data_in.put(&state.reservations.tell(action)?, usize::from(allocation));
                Ok(())
            }
            Command::PersistentReserveOut { action, scope, kind, len } => {
                let out = ReserveOut { action, scope, kind };
                let list = data_out.get(..len as usize).ok_or_else(super::answer::parameter_length)?;
                state.reservations.change(initiator, out, list, &mut state.nexuses)
            }
            Command::ReportSupportedOperationCodes { options, opcode, action, timeouts, allocation } => {
                let of: Option<&dyn Fn(u8) -> u32> = if timeouts { Some(&|_| 300) } else { None };
                let wanted = (options, opcode, action);
                report_operation_codes(DeviceType::Changer, knows, wanted, of, data_in, allocation)
            }
            Command::ReportSupportedTaskFunctions { allocation } => {
                data_in.put(&[0xda, 0, 0, 0], allocation as usize);
                Ok(())
            }
            _ => Err(unknown_command()),
        }
    }

    fn move_medium(&self, state: &mut State, from: u16, to: u16) -> Answer {
        let (from, to) = (place(state, from)?, place(state, to)?);
        let Some((volser, _)) = state.shelf.at(from) else { return Err(source_empty()) };
        let volser = volser.clone();
        if from == to {
            return Ok(());
        }
        if state.shelf.at(to).is_some() {
            return Err(destination_full());
        }
        self.carry(state, &volser, from, to)
    }

    /// Brings a cartridge to a place that is empty.
    fn carry(&self, state: &mut State, volser: &Volser, from: Place, to: Place) -> Answer {
        if let Place::Mail(_) = to
            && !state.preventing.is_empty()
        {
            let mut by: Vec<String> = state.preventing.iter().cloned().collect();
            by.sort();
            (self.events)(TargetEvent::RemovalPrevented { unit: to.to_string(), barcode: volser.to_string(), by });
            // A host that prevents removal has the mail slot locked.
            return Err(check(SenseKey::IllegalRequest, 0x53, 0x02));
        }
        if let Some(drive) = self.drive(from) {
            drive.remove()?;
        }
        if state.shelf.moved(volser, to).is_err() {
            // It stands where it stood; the drive takes it again.
            if let Some(drive) = self.drive(from) {
                let _ = drive.insert(&state.shelf.path(volser), volser);
            }
            // MECHANICAL POSITIONING OR CHANGER ERROR
            return Err(check(SenseKey::HardwareError, 0x15, 0x01));
        }
        if let Place::Mail(_) = to {
            (self.events)(TargetEvent::InMailSlot { barcode: volser.to_string(), place: to.to_string() });
        }
        if let Some(drive) = self.drive(to) {
            let asked = || (volser.clone(), state.shelf.path(volser));
            let (volser, path) = state.wrong_tape.take().unwrap_or_else(asked);
            drive.insert(&path, &volser)?;
        }
        Ok(())
    }

    fn exchange(&self, state: &mut State, from: u16, to: u16, second_to: u16) -> Answer {
        let (from, to, second_to) = (place(state, from)?, place(state, to)?, place(state, second_to)?);
        let (Some((first, _)), Some((second, _))) = (state.shelf.at(from), state.shelf.at(to)) else {
            return Err(source_empty());
        };
        let (first, second) = (first.clone(), second.clone());
        if second_to != from && state.shelf.at(second_to).is_some() {
            return Err(destination_full());
        }
        if second_to != from {
            self.carry(state, &second, to, second_to)?;
            return self.carry(state, &first, from, to);
        }
        // Two change places: the robot has a hand for one and sets it down meanwhile.
        let taken = state.shelf.by_address();
        let free =
            state.shelf.places().find(|place| matches!(place, Place::Slot(_)) && !taken.contains_key(&place.address()));
        let free = free.ok_or_else(destination_full)?;
        self.carry(state, &second, to, free)?;
        self.carry(state, &first, from, to)?;
        self.carry(state, &second, free, second_to)
    }

    fn drive(&self, place: Place) -> Option<&TapeUnit> {
        match place {
            Place::Drive(number) => self.drives.get(usize::from(number)).map(Arc::as_ref),
            Place::Slot(_) | Place::Mail(_) => None,
        }
    }

    /// Elements of a kind, or of all, from an address on.
    fn elements(&self, state: &State, kind: Option<ElementType>, start: u16, count: u16) -> Vec<ElementStatus> {
        let taken = state.shelf.by_address();
        let robot = ElementStatus {
            kind: ElementType::Transport,
            address: TRANSPORT,
            full: false,
            accessible: true,
            by_operator: false,
            exception: None,
            source: None,
            medium_type: None,
            volume_tag: None,
            device_identifier: None,
        };
        let element = |place: Place| {
            let (kind, drive) = match place {
                Place::Slot(_) => (ElementType::Storage, None),
                Place::Mail(_) => (ElementType::ImportExport, None),
                Place::Drive(_) => (ElementType::DataTransfer, self.drive(place)),
            };
            let stands = taken.get(&place.address());
            ElementStatus {
                kind,
                address: place.address(),
                full: stands.is_some(),
                // The robot reaches into a drive that has let go, or is empty.
                accessible: drive.is_none_or(|drive| drive.holds().is_none_or(|(_, let_go)| let_go)),
                by_operator: stands.is_some_and(|(_, stands)| stands.by_operator),
                exception: None,
                source: stands.and_then(|(_, stands)| stands.from),
                medium_type: None,
                volume_tag: stands.map(|(volser, _)| state.mislabelled.clone().unwrap_or_else(|| volser.to_string())),
                device_identifier: drive.map(|drive| drive.identity().designator()),
            }
        };
        std::iter::once(robot)
            .chain(state.shelf.places().map(element))
            .filter(|element| kind.is_none_or(|kind| element.kind == kind) && element.address >= start)
            .take(usize::from(count))
            .collect()
    }

    fn tell_modes(&self, state: &State, wanted: ModeWanted, allocation: u16, data_in: &mut DataIn) -> Answer {
        let (slots, mail_slots) = state.shelf.sizes();
        let assignments = Assignments {
            transport: (TRANSPORT, 1),
            storage: (FIRST_SLOT, slots),
            import_export: (FIRST_MAIL, mail_slots),
            data_transfer: (FIRST_DRIVE, self.drives.len() as u16),
        };
        // Transport geometry: it does not turn cartridges over. Capabilities: everything can be stored and moved
        // everywhere but in the robot's hand.
        let mut capabilities = vec![0x1f, 0x12, 0x0e, 0x00, 0x0e, 0x0e, 0x0e, 0x0e, 0, 0, 0, 0];
        capabilities.extend_from_slice(&[0x00, 0x0e, 0x0e, 0x0e, 0, 0, 0, 0]);
        let pages = [
            (0x1d, 0, assignments.to_bytes().to_vec()),
            (0x1e, 0, vec![0x1e, 0x02, 0x00, 0x00]),
            (0x1f, 0, capabilities),
        ];
        let header = ModeHeader { medium_type: 0, device_specific: 0, block_descriptor: None };
        data_in.put(&mode_data(wanted, header, &pages)?, usize::from(allocation));
        Ok(())
    }
}

fn knows(command: &Command) -> bool {
    !matches!(
        command,
        Command::SecurityProtocolIn { .. }
            | Command::SecurityProtocolOut { .. }
            | Command::ReadAttribute { .. }
            | Command::WriteAttribute { .. }
            | Command::LogSelect { .. }
    )
}

fn check_transport(transport: u16) -> Answer {
    // 0 is the default one.
    if transport == 0 || transport == TRANSPORT { Ok(()) } else { Err(invalid_element()) }
}

fn place(state: &State, address: u16) -> Result<Place, Refusal> {
    state.shelf.place_of(address).ok_or_else(invalid_element)
}

/// INVALID ELEMENT ADDRESS
fn invalid_element() -> Refusal {
    check(SenseKey::IllegalRequest, 0x21, 0x01)
}

/// MEDIUM SOURCE ELEMENT EMPTY
fn source_empty() -> Refusal {
    check(SenseKey::IllegalRequest, 0x3b, 0x0e)
}

/// MEDIUM DESTINATION ELEMENT FULL
fn destination_full() -> Refusal {
    check(SenseKey::IllegalRequest, 0x3b, 0x0d)
}
