//! Keys that the drive fetches itself.
//!
//! A key may be destroyed, or its store be lost from sight, while its volume is in a drive. So the drive asks not only
//! when a cartridge is threaded, but again with the first block behind each motion of the tape, and when what was
//! written is flushed: no job starts under a key that is gone, and none is told that what it wrote under one is safe.
//! With every block it would be too often: the store is read and checked as a whole.
//!
//! A volume may have several keys, and each block names its own: so for reading the drive below is given whichever the
//! next block asks for. What is appended has the key in force, or a new one when that one's time is over, which is
//! fetched anew after any read: never is anything written with a key that came for reading.

use capstan_format::{KeyTag, Volser};
use capstan_keys::Cartridge;
use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{Drive, DriveError, DriveKey, EncryptionState, Medium, ReadOutcome, with_causes};

use super::failure::{sense_of, sense_of_agent};
use super::security::{Purpose, needed};
use super::{CommandContext, Loaded, State};
use crate::agent::KeyAgentError;
use crate::events::{TargetEvent, VolumeKeyState};
use crate::layout::Encryption;
use crate::unit::answer::{Answer, Refusal, check};

/// What the drive knows of its volume's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentKey {
    /// It did not ask since the tape was moved, or a reset took the key away.
    Unasked,
    /// The drive below has none, or the one that the last block needed; what the next one needs it will name. Nothing
    /// is written.
    AsNamed,
    /// The drive below has the one to append with.
    Granted(KeyTag),
    /// The same, and blocks were written with it that nobody relies on yet.
    Used(KeyTag),
    /// There is none, for this reason.
    Missing(SenseData),
}

impl Loaded {
    /// The tape is moved: before the next block the key is asked for again.
    pub(super) fn moved(&mut self) {
        self.agent_key = AgentKey::Unasked;
    }
}

impl State {
    /// Tells that the drive has no key for what it is to do.
    fn key_trouble(&self, reason: String) {
        let Some(bay) = &self.bay else { return };
        let (drive, barcode) = (self.voice.drive, bay.volser.to_string());
        self.voice.tell(TargetEvent::KeyTrouble { drive, barcode, reason });
    }

    /// The same, and what the host is told.
    fn no_key(&self, error: &KeyAgentError) -> Refusal {
        self.key_trouble(with_causes(error));
        Refusal::Check(sense_of_agent(error))
    }
}

/// The cartridge, for those who give out keys.
fn cartridge<'a>(volser: &'a Volser, medium: &'a Medium) -> Cartridge<'a> {
    Cartridge { volser, serial: medium.serial.as_ref() }
}

impl CommandContext<'_> {
    /// Fetches the key that the first block of an encrypted volume names, to read: that it is not there is told at the
    /// mount.
    pub(super) fn fetch_first_key(&mut self) {
        let (Some((agent, drive)), Ok((bay, loaded))) = (self.unit.agent(), self.state.loaded()) else { return };
        let EncryptionState::Encrypted { tag, .. } = loaded.medium.encryption else { return };
        let fetched = agent.key(drive, cartridge(&bay.volser, &loaded.medium), &tag);
        self.give(fetched, |_| AgentKey::AsNamed);
    }

    /// Fetches the key to append with.
    fn fetch_key_to_append(&mut self) {
        let (Some((agent, drive)), Ok((bay, loaded))) = (self.unit.agent(), self.state.loaded()) else { return };
        let EncryptionState::Encrypted { tag: first, .. } = loaded.medium.encryption else { return };
        let fetched = agent.key_to_append(drive, cartridge(&bay.volser, &loaded.medium), &first);
        self.give(fetched, AgentKey::Used);
    }

    /// Gives a key to the drive below, or takes away what it has where there is none.
    fn give(&mut self, fetched: Result<DriveKey, KeyAgentError>, known: impl FnOnce(KeyTag) -> AgentKey) {
        let Ok((bay, loaded)) = self.state.loaded() else { return };
        let (key, outcome) = match fetched {
            Ok(key) => {
                let tag = key.tag;
                (Some(key), Ok(tag))
            }
            Err(error) => (None, Err((sense_of_agent(&error), with_causes(&error)))),
        };
        let taken = bay.drive.set_key(key).map_err(|error| (sense_of(&error), with_causes(&error)));
        match outcome.and_then(|tag| taken.map(|()| tag)) {
            Ok(tag) => loaded.agent_key = known(tag),
            Err((sense, reason)) => {
                loaded.agent_key = AgentKey::Missing(sense);
                self.state.key_trouble(reason);
            }
        }
    }

    /// Says that a cartridge is threaded, and what the drive knows of its key.
    pub(super) fn tell_mounted(&self) {
        let State { bay: Some(bay), loaded: Some(loaded), voice, .. } = &*self.state else { return };
        let key = self.unit.agent.is_some().then_some(match (loaded.medium.encryption, loaded.agent_key) {
            (EncryptionState::Blank, _) => VolumeKeyState::Blank,
            (EncryptionState::Plain, _) => VolumeKeyState::Plain,
            (EncryptionState::Encrypted { .. }, AgentKey::Missing(_)) => VolumeKeyState::Missing,
            (EncryptionState::Encrypted { .. }, _) => VolumeKeyState::Held,
        });
        voice.tell(TargetEvent::Mounted { drive: voice.drive, barcode: bay.volser.to_string(), key });
    }

    /// Sees that the drive below has the key that this command needs.
    pub(super) fn ready_agent(&mut self, purpose: Purpose) -> Answer {
        let at = self.state.on_drive(|bay, _| bay.drive.position())?.lbn;
        if purpose == Purpose::Writing && at == 0 {
            return self.take_new_key();
        }
        let (_, loaded) = self.state.loaded()?;
        let encrypted = matches!(loaded.medium.encryption, EncryptionState::Encrypted { .. });
        if !encrypted {
            return match purpose {
                Purpose::Reading => Ok(()),
                // A plain volume is not appended to (CANNOT WRITE MEDIUM - INCOMPATIBLE FORMAT).
                Purpose::Writing => Err(check(SenseKey::DataProtect, 0x30, 0x05)),
            };
        }
        match (loaded.agent_key, purpose) {
            (AgentKey::AsNamed | AgentKey::Granted(_) | AgentKey::Used(_), Purpose::Reading) => Ok(()),
            (AgentKey::Unasked | AgentKey::Missing(_), Purpose::Reading) => {
                loaded.agent_key = AgentKey::AsNamed;
                self.state.on_drive(|bay, _| bay.drive.set_key(None))
            }
            (AgentKey::Used(_), Purpose::Writing) => Ok(()),
            (AgentKey::Granted(tag), Purpose::Writing) => {
                loaded.agent_key = AgentKey::Used(tag);
                Ok(())
            }
            // A store that was out of reach may be back.
            (AgentKey::Unasked | AgentKey::Missing(_) | AgentKey::AsNamed, Purpose::Writing) => {
                self.fetch_key_to_append();
                match self.state.loaded()?.1.agent_key {
                    AgentKey::Missing(sense) => Err(sense.into()),
                    AgentKey::Unasked | AgentKey::AsNamed | AgentKey::Granted(_) | AgentKey::Used(_) => Ok(()),
                }
            }
        }
    }

    /// Reads a block; as agent, with the key that it names.
    pub(super) fn read_with_its_key(&mut self, buffer: &mut [u8]) -> Result<Result<ReadOutcome, DriveError>, Refusal> {
        let agent = self.unit.agent().filter(|_| self.unit.encryption == Encryption::Agent);
        let (bay, loaded) = self.state.loaded()?;
        let read = bay.drive.read_block(buffer);
        let (Some((agent, drive)), Some(needed)) = (agent, needed(&read)) else { return Ok(read) };
        // The drive below stands in front of the block still.
        let fetched = agent.key(drive, cartridge(&bay.volser, &loaded.medium), &needed);
        loaded.agent_key = AgentKey::AsNamed;
        let key = fetched.map_err(|error| self.state.no_key(&error))?;
        self.state.on_drive(|bay, _| bay.drive.set_key(Some(key)))?;
        let (bay, _) = self.state.loaded()?;
        Ok(bay.drive.read_block(buffer))
    }

    /// Writing begins at the beginning of tape, with a key that was never used. That it is used now is on record before
    /// the first block is handed over: whatever happens then, a reset, a crash, no block lies under a key that seems to
    /// be unused.
    fn take_new_key(&mut self) -> Answer {
        let (Some((agent, drive)), Ok((bay, loaded))) = (self.unit.agent(), self.state.loaded()) else { return Ok(()) };
        let issued = agent.new_key(drive, &bay.volser, self.unit.algorithm());
        let begun =
            issued.and_then(|key| agent.began(drive, cartridge(&bay.volser, &loaded.medium), &key.tag).map(|()| key));
        let key = begun.map_err(|error| self.state.no_key(&error))?;
        let tag = key.tag;
        self.state.on_drive(|bay, loaded| {
            bay.drive.set_key(Some(key))?;
            loaded.agent_key = AgentKey::Used(tag);
            Ok(())
        })
    }

    /// All that was written is on the volume: a key that was destroyed meanwhile is told of before anybody relies on
    /// what was written with it.
    pub(super) fn confirm_key(&mut self) -> Answer {
        let (Some((agent, drive)), Ok((bay, loaded))) = (self.unit.agent(), self.state.loaded()) else { return Ok(()) };
        // What was not used since it was asked for is no matter.
        let AgentKey::Used(tag) = loaded.agent_key else { return Ok(()) };
        match agent.key(drive, cartridge(&bay.volser, &loaded.medium), &tag) {
            // Whether it still encrypts is asked at the next motion of the tape.
            Ok(_) => loaded.agent_key = AgentKey::Granted(tag),
            Err(error) => {
                let sense = sense_of_agent(&error);
                self.give(Err(error), AgentKey::Granted);
                return Err(sense.into());
            }
        }
        Ok(())
    }
}
