//! Reservations: persistent ones (SPC-5, 5.14), and the old RESERVE and RELEASE.
//!
//! They belong to an initiator port, not to a session: who logs in again has what it had. Nothing survives the end of
//! the program (APTPL is refused), as it does not survive the loss of power in drives that do not offer it.

use std::collections::BTreeMap;

use capstan_tape::scsi::Command;
use capstan_tape::scsi::command::CommandError;

use super::answer::{Refusal, invalid_command_field, invalid_parameter_field, parameter_length};
use super::nexuses::{Attention, Nexuses};

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE_ACCESS_REGISTRANTS: u8 = 6;
const WRITE_EXCLUSIVE_ALL: u8 = 7;
const EXCLUSIVE_ACCESS_ALL: u8 = 8;

const REGISTRANTS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    by: String,
    kind: u8,
}

/// Who may use a unit.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    generation: u32,
    registrants: BTreeMap<String, u64>,
    held: Option<Held>,
    /// By RESERVE(6).
    old: Option<String>,
}

/// Parameters of PERSISTENT RESERVE OUT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReserveOut {
    pub(crate) action: u8,
    pub(crate) scope: u8,
    pub(crate) kind: u8,
}

fn all_registrants(kind: u8) -> bool {
    matches!(kind, WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ACCESS_ALL)
}

/// Commands that only look, and are allowed to everyone but under a reservation for exclusive access (SSC-5, table 27).
fn only_reads(command: &Command) -> bool {
    matches!(
        command,
        Command::ReadBlockLimits { .. }
            | Command::ReadPosition { .. }
            | Command::ModeSense { .. }
            | Command::TestUnitReady
            | Command::ReadAttribute { .. }
            | Command::ReadElementStatus { .. }
            | Command::ReportDensity { .. }
    )
}

/// Commands that no reservation keeps anyone from.
fn never_conflicts(command: &Command) -> bool {
    matches!(
        command,
        Command::Inquiry { .. }
            | Command::ReportLuns { .. }
            | Command::RequestSense { .. }
            | Command::LogSense { .. }
            | Command::PersistentReserveIn { .. }
            | Command::PersistentReserveOut { .. }
            | Command::ReportSupportedOperationCodes { .. }
            | Command::ReportSupportedTaskFunctions { .. }
            | Command::PreventRemoval { prevent: false }
            | Command::Release
    )
}

impl Reservations {
    /// Whether the initiator may have this command carried out now.
    pub(crate) fn allows(&self, initiator: &str, command: &Command) -> bool {
        if never_conflicts(command) {
            return true;
        }
        if self.old.as_ref().is_some_and(|holder| holder != initiator) {
            return false;
        }
        let Some(held) = &self.held else { return true };
        // Who holds a persistent reservation has no use for the old one, and nobody else may take it.
        if matches!(command, Command::Reserve) {
            return false;
        }
        let registered = self.registrants.contains_key(initiator);
        match held.kind {
            _ if held.by == initiator => true,
            WRITE_EXCLUSIVE => only_reads(command),
            EXCLUSIVE_ACCESS => false,
            WRITE_EXCLUSIVE_REGISTRANTS | WRITE_EXCLUSIVE_ALL => registered || only_reads(command),
            _ => registered,
        }
    }

    /// Who holds the unit by a persistent reservation.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.held.as_ref().map(|held| held.by.as_str())
    }

    /// RESERVE(6).
    pub(crate) fn reserve(&mut self, initiator: &str) -> Result<(), Refusal> {
        if !self.registrants.is_empty() {
            return Err(Refusal::Conflict);
        }
        self.old = Some(initiator.to_owned());
        Ok(())
    }

    /// RELEASE(6); releasing what another holds does nothing.
    pub(crate) fn release(&mut self, initiator: &str) {
        if self.old.as_deref() == Some(initiator) {
            self.old = None;
        }
    }

    /// The unit was reset: the old reservation is gone, persistent ones stay.
    pub(crate) fn was_reset(&mut self) {
        self.old = None;
    }

    /// PERSISTENT RESERVE IN.
    pub(crate) fn tell(&self, action: u8) -> Result<Vec<u8>, Refusal> {
        let mut bytes = self.generation.to_be_bytes().to_vec();
        match action {
            // READ KEYS
            0 => {
                bytes.extend_from_slice(&(8 * self.registrants.len() as u32).to_be_bytes());
                bytes.extend(self.registrants.values().flat_map(|key| key.to_be_bytes()));
            }
            // READ RESERVATION
            1 => match &self.held {
                None => bytes.extend_from_slice(&[0; 4]),
                Some(held) => {
                    bytes.extend_from_slice(&16u32.to_be_bytes());
                    let key = if all_registrants(held.kind) {
                        0
                    } else {
                        self.registrants.get(&held.by).copied().unwrap_or(0)
                    };
                    bytes.extend_from_slice(&key.to_be_bytes());
                    bytes.extend_from_slice(&[0, 0, 0, 0, 0, held.kind, 0, 0]);
                }
            },
            // REPORT CAPABILITIES: the types that are supported, and which commands a reservation allows.
            2 => bytes = vec![0, 8, 0x00, 0x80, 0xea, 0x01, 0, 0],
            // READ FULL STATUS
            3 => {
                let mut all = Vec::new();
                for (name, key) in &self.registrants {
                    let holder = self.held.as_ref().filter(|held| held.by == *name || all_registrants(held.kind));
                    let mut id = name.as_bytes().to_vec();
                    id.resize((id.len() / 4 + 1) * 4, 0);
                    all.extend_from_slice(&key.to_be_bytes());
                    all.extend_from_slice(&[
                        0,
                        0,
                        0,
                        0,
                        u8::from(holder.is_some()),
                        holder.map_or(0, |held| held.kind),
                    ]);
                    all.extend_from_slice(&[0, 0, 0, 0, 0, 1]);
                    all.extend_from_slice(&(4 + id.len() as u32).to_be_bytes());
                    // iSCSI, name and session identifier.
                    all.extend_from_slice(&[0x45, 0]);
                    all.extend_from_slice(&(id.len() as u16).to_be_bytes());
                    all.extend_from_slice(&id);
                }
                bytes.extend_from_slice(&(all.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&all);
            }
            _ => return Err(invalid_command_field(1)),
        }
        Ok(bytes)
    }

    /// PERSISTENT RESERVE OUT.
    pub(crate) fn change(
        &mut self,
        initiator: &str,
        out: ReserveOut,
        parameters: &[u8],
        nexuses: &mut Nexuses,
    ) -> Result<(), Refusal> {
        if parameters.len() != 24 {
            return Err(parameter_length());
        }
        let number =
            |at: usize| parameters[at..at + 8].iter().fold(0u64, |value, byte| (value << 8) | u64::from(*byte));
        let (key, action_key) = (number(0), number(8));
        // SPEC_I_PT and APTPL: not offered.
        if parameters[20] & 0x09 != 0 {
            return Err(invalid_parameter_field(20));
        }
        if self.old.as_ref().is_some_and(|holder| holder != initiator) {
            return Err(Refusal::Conflict);
        }
        let own = self.registrants.get(initiator).copied();
        if out.action != 0 && out.action != 6 && own != Some(key) {
            return Err(Refusal::Conflict);
        }
        match out.action {
            // REGISTER, and REGISTER AND IGNORE EXISTING KEY
            0 | 6 => {
                if out.action == 0 && own.unwrap_or(0) != key {
                    return Err(Refusal::Conflict);
                }
                self.register(initiator, action_key, nexuses)?;
            }
            // RESERVE
            1 => {
                check_kind(out)?;
                let wanted = Held { by: initiator.to_owned(), kind: out.kind };
                match &self.held {
                    Some(held) if *held == wanted || (all_registrants(held.kind) && held.kind == out.kind) => {}
                    Some(_) => return Err(Refusal::Conflict),
                    None => self.held = Some(wanted),
                }
                return Ok(());
            }
            // RELEASE
            2 => {
                let Some(held) = &self.held else { return Ok(()) };
                if held.by != initiator && !all_registrants(held.kind) {
                    return Ok(());
                }
                if held.kind != out.kind {
                    return Err(super::answer::check(capstan_tape::scsi::SenseKey::IllegalRequest, 0x26, 0x04));
                }
                self.released(initiator, nexuses);
                return Ok(());
            }
            // CLEAR
            3 => {
                for name in self.registrants.keys().filter(|name| *name != initiator) {
                    nexuses.tell(name, Attention::ReservationsPreempted);
                }
                self.registrants.clear();
                self.held = None;
            }
            // PREEMPT, and PREEMPT AND ABORT: commands of a unit run one after the other, so there is none to abort.
            4 | 5 => self.preempt(initiator, out, action_key, nexuses)?,
            _ => return Err(invalid_command_field(1)),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn register(&mut self, initiator: &str, key: u64, nexuses: &mut Nexuses) -> Result<(), Refusal> {
        if key == 0 {
            if self.registrants.remove(initiator).is_some()
                && self.held.as_ref().is_some_and(|held| {
                    held.by == initiator && (!all_registrants(held.kind) || self.registrants.is_empty())
                })
            {
                self.released(initiator, nexuses);
            }
            return Ok(());
        }
        if self.registrants.len() >= REGISTRANTS_MAX && !self.registrants.contains_key(initiator) {
            // INSUFFICIENT REGISTRATION RESOURCES
            return Err(super::answer::check(capstan_tape::scsi::SenseKey::IllegalRequest, 0x55, 0x04));
        }
        self.registrants.insert(initiator.to_owned(), key);
        Ok(())
    }

    fn released(&mut self, by: &str, nexuses: &mut Nexuses) {
        let Some(held) = self.held.take() else { return };
        if matches!(
            held.kind,
            WRITE_EXCLUSIVE_REGISTRANTS | EXCLUSIVE_ACCESS_REGISTRANTS | WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ACCESS_ALL
        ) {
            for name in self.registrants.keys().filter(|name| *name != by) {
                nexuses.tell(name, Attention::ReservationsReleased);
            }
        }
    }

    fn preempt(&mut self, initiator: &str, out: ReserveOut, victim: u64, nexuses: &mut Nexuses) -> Result<(), Refusal> {
        let holds = |held: &Held| {
            (all_registrants(held.kind) && victim == 0) || self.registrants.get(&held.by).copied() == Some(victim)
        };
        let takes_over = self.held.as_ref().is_some_and(holds);
        let victims: Vec<String> = self
            .registrants
            .iter()
            .filter(|(name, key)| *name != initiator && (**key == victim || (victim == 0 && takes_over)))
            .map(|(name, _)| name.clone())
            .collect();
        if victims.is_empty() && !takes_over {
            return Err(Refusal::Conflict);
        }
        if takes_over {
            check_kind(out)?;
            self.held = Some(Held { by: initiator.to_owned(), kind: out.kind });
        }
        for name in victims {
            self.registrants.remove(&name);
            nexuses.tell(&name, Attention::RegistrationsPreempted);
        }
        Ok(())
    }

    /// As if another host had taken the unit over: for tests of what its user does then.
    pub(crate) fn steal(&mut self, nexuses: &mut Nexuses) {
        for name in self.registrants.keys() {
            nexuses.tell(name, Attention::RegistrationsPreempted);
        }
        let thief = "another host".to_owned();
        self.registrants = BTreeMap::from([(thief.clone(), 0x7468_6965_6600_0000)]);
        self.held = Some(Held { by: thief, kind: EXCLUSIVE_ACCESS });
        self.generation = self.generation.wrapping_add(1);
    }
}

fn check_kind(out: ReserveOut) -> Result<(), Refusal> {
    if out.scope != 0 || !matches!(out.kind, 1 | 3 | 5..=8) {
        return Err(CommandError::Field(2).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn parameters(key: u64, action_key: u64) -> Vec<u8> {
        let mut bytes = key.to_be_bytes().to_vec();
        bytes.extend_from_slice(&action_key.to_be_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes
    }

    fn act(
        reservations: &mut Reservations,
        nexuses: &mut Nexuses,
        who: &str,
        action: u8,
        keys: (u64, u64),
    ) -> Result<(), Refusal> {
        let out = ReserveOut { action, scope: 0, kind: EXCLUSIVE_ACCESS };
        reservations.change(who, out, &parameters(keys.0, keys.1), nexuses)
    }

    #[test]
    fn one_host_keeps_the_others_out_until_it_is_preempted() {
        let (mut reservations, mut nexuses) = (Reservations::default(), Nexuses::default());
        for host in ["a", "b"] {
            nexuses.met(host);
            nexuses.take(host);
        }
        let rewind = Command::Rewind { immediate: false };
        assert_eq!(act(&mut reservations, &mut nexuses, "a", 1, (1, 0)), Err(Refusal::Conflict), "not registered");
        act(&mut reservations, &mut nexuses, "a", 0, (0, 1)).unwrap();
        act(&mut reservations, &mut nexuses, "a", 1, (1, 0)).unwrap();
        assert!(reservations.allows("a", &rewind) && !reservations.allows("b", &rewind));
        assert!(!reservations.allows("b", &Command::TestUnitReady));
        assert!(reservations.allows("b", &Command::Inquiry { vital_product_data: None, allocation: 36 }));
        act(&mut reservations, &mut nexuses, "b", 6, (9, 2)).unwrap();
        assert_eq!(act(&mut reservations, &mut nexuses, "b", 1, (2, 0)), Err(Refusal::Conflict));
        act(&mut reservations, &mut nexuses, "b", 4, (2, 1)).unwrap();
        assert!(!reservations.allows("a", &rewind) && reservations.allows("b", &rewind));
        assert_eq!(nexuses.take("a"), Some(Attention::RegistrationsPreempted));
        assert_eq!(act(&mut reservations, &mut nexuses, "a", 1, (1, 0)), Err(Refusal::Conflict));
        assert_eq!(reservations.tell(0).unwrap(), [0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
        act(&mut reservations, &mut nexuses, "b", 3, (2, 0)).unwrap();
        assert!(reservations.allows("a", &rewind));
    }

    #[test]
    fn the_old_reservation_ends_with_its_holder_or_a_reset() {
        let mut reservations = Reservations::default();
        reservations.reserve("a").unwrap();
        assert!(!reservations.allows("b", &Command::TestUnitReady));
        reservations.release("b");
        assert!(!reservations.allows("b", &Command::TestUnitReady), "another's is not released");
        reservations.was_reset();
        assert!(reservations.allows("b", &Command::TestUnitReady));
    }
}
