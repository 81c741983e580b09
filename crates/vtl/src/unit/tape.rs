//! A tape drive as a SCSI unit (SSC-5).
//!
//! Below it is any [`Drive`]: what a real drive does in its firmware, this does above the trait: fixed blocks, spacing,
//! modes, log pages, the cartridge's memory, keys set by the host. Where the tape stands the drive alone knows; the
//! table of filemarks is found out as far as it is needed, and kept.
//!
//! It watches who writes: after a reset or another cartridge, a write by an initiator that did not ask for the position
//! first is counted ([`TapeUnit::unverified_writes`]): a program that does so destroys tapes.

mod access_order;
mod agent;
mod failure;
pub(crate) mod faults;
mod filemarks;
mod interruptible;
mod logs;
mod memory;
mod modes;
mod motion;
mod security;
mod transfer;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_format::Volser;
use capstan_tape::model::{Access, DriveModel};
use capstan_tape::scsi::access_order::Segment;
use capstan_tape::scsi::command::Command;
use capstan_tape::scsi::inquiry::DeviceType;
use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{CartridgeDrive, Drive, DriveError, FaultyDrive, Flush, KeySlotKind, Medium, MonotonicClock, Paced};

use self::agent::AgentKey;
use self::failure::sense_of;
use self::filemarks::Filemarks;
use self::interruptible::{Current, Interruptible};
use self::logs::Counters;
use self::memory::CartridgeMemory;
use self::modes::Modes;
use self::security::Keys;
use super::answer::{Answer, Refusal, check, completion, data_out_len, invalid_command_field, unknown_command};
use super::faults::{Faults, Waiting};
use super::nexuses::{Attention, Nexuses};
use super::primary::{Identity, report_operation_codes};
use super::reservation::{Reservations, ReserveOut};
use crate::agent::KeyAgent;
use crate::device::{Completion, DataIn, Nexus, Request};
use crate::events::{DriveVoice, TargetEvent};
use crate::layout::{Encryption, Pace};

/// How a drive is fitted.
pub(crate) struct DriveConfig {
    pub(crate) identity: Identity,
    pub(crate) model: DriveModel,
    pub(crate) encryption: Encryption,
    pub(crate) pace: Pace,
    pub(crate) agent: Option<Arc<dyn KeyAgent>>,
}

impl DriveConfig {
    /// Who fetches its keys, and by which name it asks for them.
    fn agent(&self) -> Option<(&dyn KeyAgent, &str)> {
        self.agent.as_deref().map(|agent| (agent, self.identity.serial.as_str()))
    }
}

/// A drive.
pub(crate) struct TapeUnit {
    fitting: DriveConfig,
    state: Mutex<State>,
    current: Current,
    /// What the robot sees of it, and people: a command may keep the state for minutes, and the robot must not wait for
    /// that.
    face: Mutex<StatusSnapshot>,
}

/// A drive from outside.
#[derive(Debug, Clone, Default)]
struct StatusSnapshot {
    /// The cartridge in it, and whether the drive has let go of it.
    holds: Option<(Volser, bool)>,
    unverified_writes: u64,
}

/// The drive and the cartridge in it.
struct MediumSlot {
    drive: FaultyDrive<Interruptible<Box<dyn Drive>>>,
    volser: Volser,
    memory: CartridgeMemory,
    /// Why it could not be threaded.
    trouble: Option<SenseData>,
}

/// What is known of a cartridge that is threaded; one that is not lies in the mouth, for the robot or a LOAD.
struct Loaded {
    medium: Medium,
    access: Access,
    filemarks: Filemarks,
    /// Programmable early warning was told.
    programmable_told: bool,
    /// As agent: what the drive knows of its key.
    agent_key: AgentKey,
    /// The order that was asked for last.
    access_order: Option<Vec<Segment>>,
}

struct State {
    bay: Option<MediumSlot>,
    loaded: Option<Loaded>,
    nexuses: Nexuses,
    reservations: Reservations,
    modes: Modes,
    keys: Keys,
    counters: Counters,
    /// Initiators that prevent the removal of the cartridge.
    preventing: HashSet<String>,
    unverified_writes: u64,
    faults: Faults,
    current: Current,
    voice: DriveVoice,
}

/// One command being carried out: the unit, its state, and who asks.
struct CommandContext<'a> {
    unit: &'a DriveConfig,
    state: &'a mut State,
    initiator: &'a str,
    data_out: &'a [u8],
}

impl TapeUnit {
    pub(crate) fn new(fitting: DriveConfig, voice: DriveVoice) -> Self {
        let current = Current::default();
        let state = State {
            bay: None,
            loaded: None,
            nexuses: Nexuses::default(),
            reservations: Reservations::default(),
            modes: Modes::default(),
            keys: Keys::default(),
            counters: Counters::default(),
            preventing: HashSet::new(),
            unverified_writes: 0,
            faults: Faults::default(),
            current: current.clone(),
            voice,
        };
        Self { fitting, state: Mutex::new(state), current, face: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.fitting.identity
    }

    /// Writes that came from initiators that could not know where the tape stood.
    pub(crate) fn unverified_writes(&self) -> u64 {
        self.face().unverified_writes
    }

    fn face(&self) -> StatusSnapshot {
        self.face.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows what a command has changed.
    fn show(&self, state: &State) {
        let holds = state.bay.as_ref().map(|bay| (&bay.volser, state.loaded.is_none()));
        let mut face = self.face.lock().unwrap_or_else(PoisonError::into_inner);
        face.unverified_writes = state.unverified_writes;
        if face.holds.as_ref().map(|(volser, let_go)| (volser, *let_go)) != holds {
            face.holds = holds.map(|(volser, let_go)| (volser.clone(), let_go));
        }
    }

    pub(crate) fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion {
        data_in.clear();
        // Who it is it says at once, whatever it is busy with.
        if let Ok(Command::Inquiry { vital_product_data, allocation }) = Command::of_cdb(DeviceType::Tape, request.cdb)
        {
            return completion(self.fitting.identity.tell(vital_product_data, allocation, data_in));
        }
        let mut state = self.state();
        let command = Command::of_cdb(DeviceType::Tape, request.cdb);
        let data_out_len = command.ok().map(|command| data_out_len(&command, state.modes.block_len));
        self.current.begin(request.cancel);
        let answer = self.answer(&mut state, request, data_in);
        self.current.end();
        self.show(&state);
        Completion { data_out_len, ..completion(answer) }
    }

    fn answer(&self, state: &mut State, request: &Request<'_>, data_in: &mut DataIn) -> Answer {
        let initiator = request.nexus.initiator.as_str();
        state.nexuses.met(initiator);
        let command = Command::of_cdb(DeviceType::Tape, request.cdb)?;
        // It is answered whatever happened before (SAM-5, 5.14).
        if let Command::RequestSense { allocation, .. } = command {
            let told = state.nexuses.take(initiator).map(Attention::sense);
            let sense = told.unwrap_or(SenseData::new(SenseKey::NoSense, 0, 0));
            data_in.put(&sense.to_bytes(), usize::from(allocation));
            return Ok(());
        }
        if let Some(attention) = state.nexuses.take(initiator) {
            return Err(attention.sense().into());
        }
        if !state.reservations.allows(initiator, &command) {
            return Err(Refusal::Conflict);
        }
        let due = state.faults.due(&command);
        let mut work = CommandContext { unit: &self.fitting, state, initiator, data_out: request.data_out };
        match due {
            None => work.carry_out(&command, data_in),
            Some(waiting) => {
                let voice = &work.state.voice;
                let (unit, fault) = (format!("drive {}", voice.drive), waiting.fault.to_string());
                voice.tell(TargetEvent::FaultHappened { unit, fault });
                work.inject_fault(&waiting, &command, data_in)
            }
        }
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
        if let Some(bay) = &mut state.bay {
            bay.drive.forgive();
        }
        state.faults.happened()
    }

    /// CommandContext that nobody's command asks for.
    fn own_work<T>(&self, work: impl FnOnce(&mut CommandContext<'_>) -> T) -> T {
        let mut state = self.state();
        let done = work(&mut CommandContext { unit: &self.fitting, state: &mut state, initiator: "", data_out: &[] });
        self.show(&state);
        done
    }

    /// The robot puts a cartridge in; the drive threads it at once, as library drives do.
    pub(crate) fn insert(&self, path: &Path, volser: &Volser) -> Result<(), SenseData> {
        self.own_work(|work| {
            if work.state.bay.is_some() {
                return Err(SenseData::new(SenseKey::IllegalRequest, 0x3b, 0x0d));
            }
            work.state.bay = Some(MediumSlot::new(work.unit, &work.state.current, path, volser));
            // What is wrong with the cartridge is told to whoever uses the drive: it is in it in any case.
            let _ = work.thread();
            work.state.nexuses.tell_all(None, Attention::MediumChanged);
            Ok(())
        })
    }

    /// The robot takes the cartridge out, where nobody prevents it.
    pub(crate) fn remove(&self) -> Result<(), SenseData> {
        self.own_work(|work| {
            if work.state.bay.is_none() {
                return Err(SenseData::new(SenseKey::IllegalRequest, 0x3b, 0x0e));
            }
            work.check_removable()?;
            if let Err(Refusal::Check(sense)) = work.unthread() {
                return Err(sense);
            }
            work.state.bay = None;
            Ok(())
        })
    }

    /// A person takes the cartridge out, whoever prevents it.
    pub(crate) fn take_by_hand(&self) {
        self.own_work(|work| {
            let _ = work.unthread();
            work.state.bay = None;
            work.state.nexuses.tell_all(None, Attention::MediumChanged);
        });
    }

    /// The cartridge in the drive, and whether the drive has let go of it.
    pub(crate) fn holds(&self) -> Option<(Volser, bool)> {
        self.face().holds
    }

    /// A reset: what runs is given up, the tape stands at its beginning, keys and modes are forgotten.
    pub(crate) fn reset(&self) {
        self.current.give_up();
        let mut state = self.state();
        state.reset();
        state.nexuses.tell_all(None, Attention::Reset);
    }

    /// What is in the drive's buffer goes to the medium; what kept it from there.
    pub(crate) fn flush(&self) -> Result<(), DriveError> {
        let state = &mut *self.state();
        match (&mut state.bay, &state.loaded) {
            (Some(bay), Some(_)) => bay.drive.write_filemarks(0, Flush::Synchronous).map(drop),
            _ => Ok(()),
        }
    }

    pub(crate) fn nexus_lost(&self, nexus: &Nexus) {
        let mut state = self.state();
        let initiator = nexus.initiator.as_str();
        state.reservations.release(initiator);
        state.preventing.remove(initiator);
        state.keys.nexus_lost(initiator);
        state.nexuses.tell(initiator, Attention::NexusLost);
    }
}

impl MediumSlot {
    fn new(unit: &DriveConfig, current: &Current, path: &Path, volser: &Volser) -> Self {
        let drive = Interruptible::new(unit.drive_for(path), current.clone());
        let drive = FaultyDrive::new(drive, Vec::new());
        Self { drive, volser: volser.clone(), memory: CartridgeMemory::open(path), trouble: None }
    }
}

impl DriveConfig {
    fn drive_for(&self, path: &Path) -> Box<dyn Drive> {
        let kind = match self.encryption {
            Encryption::None => KeySlotKind::Missing,
            Encryption::Host | Encryption::Agent => KeySlotKind::Fitted,
        };
        let drive = CartridgeDrive::new(self.identity.serial.clone(), path, kind);
        match self.pace {
            Pace::Disk => Box::new(drive),
            Pace::Model => Box::new(Paced::new(drive, self.model.clone(), MonotonicClock::start())),
        }
    }
}

impl State {
    fn reset(&mut self) {
        // What follows is not the command's that met the reset.
        self.current.end();
        if let (Some(bay), Some(loaded)) = (&mut self.bay, &mut self.loaded) {
            // What the drive had taken it still writes; a failure of that is a failure of blocks that nobody was
            // promised.
            if let Err(error @ (DriveError::Deferred { .. } | DriveError::WriteFailed { .. })) =
                bay.drive.write_filemarks(0, Flush::Synchronous)
            {
                self.voice.write_failed(&bay.volser, &error);
            }
            let _ = bay.drive.locate(0);
            // A key goes with the power. One that stayed below, unknown to the page that hosts ask, would encrypt what
            // is to be plain.
            let _ = bay.drive.set_key(None);
            loaded.agent_key = AgentKey::Unasked;
            loaded.filemarks.forget();
            loaded.programmable_told = false;
        }
        self.keys.clear();
        self.modes = Modes::default();
        self.preventing.clear();
        self.reservations.was_reset();
    }

    /// The drive with its cartridge, and what is known of it.
    fn loaded(&mut self) -> Result<(&mut MediumSlot, &mut Loaded), Refusal> {
        match (&mut self.bay, &mut self.loaded) {
            (Some(bay), Some(loaded)) => Ok((bay, loaded)),
            (Some(MediumSlot { trouble: Some(trouble), .. }), None) => Err(Refusal::Check(*trouble)),
            _ => Err(check(SenseKey::NotReady, 0x3a, 0x00)),
        }
    }

    /// Has the drive do something with its cartridge.
    fn on_drive<T>(
        &mut self,
        act: impl FnOnce(&mut MediumSlot, &mut Loaded) -> Result<T, DriveError>,
    ) -> Result<T, Refusal> {
        let (bay, loaded) = self.loaded()?;
        let done = act(bay, loaded);
        done.map_err(|error| self.failed(&error))
    }

    /// An error of the drive, as sense data; what a failed write left is not known.
    fn failed(&mut self, error: &DriveError) -> Refusal {
        if matches!(error, DriveError::Deferred { .. } | DriveError::WriteFailed { .. })
            && let (Some(bay), Some(loaded)) = (&self.bay, &mut self.loaded)
        {
            self.voice.write_failed(&bay.volser, error);
            loaded.filemarks.forget();
            self.counters.write_failed();
        }
        if matches!(error, DriveError::ReadFailed { .. }) {
            self.counters.read_failed();
        }
        if matches!(error, DriveError::Reset { .. }) {
            self.reset();
            self.nexuses.tell_all(None, Attention::Reset);
        }
        Refusal::Check(sense_of(error))
    }
}

impl CommandContext<'_> {
    fn carry_out(&mut self, command: &Command, data_in: &mut DataIn) -> Answer {
        match *command {
            Command::TestUnitReady => self.state.loaded().map(drop),
            Command::ReadBlockLimits { object_identifier } => self.block_limits(object_identifier, data_in),
            Command::Read { length, suppress_incorrect_length, at } => {
                self.go_to_address(at)?;
                self.read(length, suppress_incorrect_length, data_in)
            }
            Command::Write { length, at } => {
                self.go_to_address(at)?;
                self.write(length)
            }
            Command::WriteFilemarks { count, immediate, at } => {
                self.go_to_address(at)?;
                self.write_filemarks(count, immediate)
            }
            Command::Verify { length, to_end_of_data, by_filemarks, check_protection, compare } => {
                // Whoever has blocks checked against a method must have set one (SSC-5, 6.17, as it is read here).
                if compare || check_protection && self.state.modes.protection.method.is_none() {
                    return Err(invalid_command_field(1));
                }
                self.verify(length, to_end_of_data, by_filemarks)
            }
            Command::Erase { at, .. } => {
                self.go_to_address(at)?;
                self.erase()
            }
            Command::Rewind { .. } => self.rewind(),
            Command::Space { over, count } => self.space(over, count),
            Command::Locate { to, partition, .. } => self.locate(to, partition),
            Command::ReadPosition { form } => self.tell_position(form, data_in),
            Command::LoadUnload { load, hold, end_of_tape, .. } => self.load_unload(load, hold, end_of_tape),
            Command::PreventRemoval { prevent } => {
                match prevent {
                    true => self.state.preventing.insert(self.initiator.to_owned()),
                    false => self.state.preventing.remove(self.initiator),
                };
                Ok(())
            }
            Command::ModeSense { form, no_block_descriptor, control, page, subpage, allocation } => {
                let wanted = super::primary::ModeWanted { form, no_block_descriptor, control, page, subpage };
                self.tell_modes(wanted, allocation, data_in)
            }
            Command::ModeSelect { form, page_format, save, len } => self.set_modes(form, page_format, save, len),
            Command::ReportDensity { of_medium, medium_type, allocation } => {
                self.tell_densities(of_medium, medium_type, allocation, data_in)
            }
            Command::LogSense { page, subpage, from_parameter, allocation, .. } => {
                self.tell_log(page, subpage, from_parameter, allocation, data_in)
            }
            Command::LogSelect { reset, page, len, .. } => self.reset_log(reset, page, len),
            Command::ReadAttribute { action, volume, partition, first, allocation } => {
                self.tell_attributes(action, (volume, partition), first, allocation, data_in)
            }
            Command::WriteAttribute { partition, len, .. } => self.set_attributes(partition, len),
            Command::SecurityProtocolIn { protocol, specific, allocation } => {
                self.tell_security(protocol, specific, allocation, data_in)
            }
            Command::SecurityProtocolOut { protocol, specific, len } => self.set_security(protocol, specific, len),
            Command::GenerateRecommendedAccessOrder { process, len } => self.generate_order(process, len),
            Command::ReceiveRecommendedAccessOrder { limits, offset, allocation } => {
                self.tell_order(limits, offset, allocation, data_in)
            }
            Command::Reserve => self.state.reservations.reserve(self.initiator),
            Command::Release => {
                self.state.reservations.release(self.initiator);
                Ok(())
            }
            Command::PersistentReserveIn { action, allocation } => {
                data_in.put(&self.state.reservations.tell(action)?, usize::from(allocation));
                Ok(())
            }
            Command::PersistentReserveOut { action, scope, kind, len } => {
                let out = ReserveOut { action, scope, kind };
                let parameters = parameters(self.data_out, len as usize)?;
                let State { reservations, nexuses, .. } = &mut *self.state;
                let held = reservations.holder().map(str::to_owned);
                let changed = reservations.change(self.initiator, out, parameters, nexuses);
                self.reservation_may_be_lost(held.as_deref());
                changed
            }
            // The self-test of a drive without hardware.
            Command::SendDiagnostic { len: 0, .. } => Ok(()),
            Command::ReportSupportedOperationCodes { options, opcode, action, timeouts, allocation } => {
                let of: Option<&dyn Fn(u8) -> u32> = if timeouts { Some(&timeout_s) } else { None };
                let known = |command: &Command| self.knows(command);
                report_operation_codes(DeviceType::Tape, known, (options, opcode, action), of, data_in, allocation)
            }
            Command::ReportSupportedTaskFunctions { allocation } => {
                // Abort task, abort task set, clear task set, logical unit reset, target reset.
                data_in.put(&[0xda, 0, 0, 0], allocation as usize);
                Ok(())
            }
            _ => Err(unknown_command()),
        }
    }

    /// Keys that were to go with a reservation go, if `held` had one and has it no more.
    fn reservation_may_be_lost(&mut self, held: Option<&str>) {
        let State { reservations, nexuses, keys, .. } = &mut *self.state;
        let now = reservations.holder();
        if held.is_some() && held != now && keys.reservations_changed(|initiator| held != Some(initiator)) {
            nexuses.tell_all(None, Attention::KeyChanged);
        }
    }

    /// Whether a command that can be read is carried out, too.
    fn knows(&self, command: &Command) -> bool {
        match command {
            Command::SecurityProtocolIn { .. } | Command::SecurityProtocolOut { .. } => self.unit.takes_keys(),
            _ => true,
        }
    }
}

/// Seconds after which a host may give a command up, as LTO-9 drives report them.
fn timeout_s(opcode: u8) -> u32 {
    match opcode {
        0x08 | 0x88 => 2340,
        0x0a | 0x8a => 1500,
        0x10 | 0x80 => 1620,
        0x11 | 0x91 | 0x2b | 0x92 | 0x13 => 2940,
        0x19 | 0x93 => 16_000,
        0x01 | 0x1b => 780,
        _ => 60,
    }
}

/// The first `len` bytes of what the initiator sent.
fn parameters(data_out: &[u8], len: usize) -> Result<&[u8], Refusal> {
    data_out.get(..len).ok_or_else(super::answer::parameter_length)
}
