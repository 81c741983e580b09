//! Keys that the drive fetches itself.
//!
//! A key may be destroyed, or its store be lost from sight, while its volume is in a drive. So the drive asks not only when a
//! cartridge is threaded, but again with the first block behind each motion of the tape, and when what was written is flushed: no
//! job starts under a key that is gone, and none is told that what it wrote under one is safe. With every block it would be too
//! often: the store is read and checked as a whole.

use capstan_format::KeyTag;
use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{Drive, EncryptionState};

use super::failure::{sense_of, sense_of_agent};
use super::security::Purpose;
use super::{Loaded, State, Work};
use crate::agent::KeyAgentError;
use crate::events::{Event, VolumeKeyState, with_causes};
use crate::unit::answer::{Answer, Refusal, check};

/// What the drive knows of its volume's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentKey {
    /// It did not ask since the tape was moved, or a reset took the key away.
    Unasked,
    /// The drive below has it.
    Held,
    /// The same, and blocks were written with it that nobody relies on yet.
    Used,
    /// The drive below has a new one, of which no block is known to be on the volume yet.
    New(KeyTag),
    /// There is none, for this reason.
    Missing(SenseData),
}

impl Loaded {
    /// The tape is moved: before the next block the key is asked for again.
    pub(super) fn moved(&mut self) {
        if !matches!(self.agent_key, AgentKey::New(_)) {
            self.agent_key = AgentKey::Unasked;
        }
    }
}

impl State {
    /// Tells that the drive has no key for what it is to do.
    fn key_trouble(&self, reason: String) {
        let Some(bay) = &self.bay else { return };
        let (drive, barcode) = (self.voice.drive, bay.volser.to_string());
        self.voice.tell(Event::KeyTrouble { drive, barcode, reason });
    }

    /// The same, and what the host is told.
    fn no_key(&self, error: &KeyAgentError) -> Refusal {
        self.key_trouble(with_causes(error));
        Refusal::Check(sense_of_agent(error))
    }
}

impl Work<'_> {
    /// Fetches the key of a volume that is encrypted. Where there is none the drive below has none either.
    pub(super) fn fetch_key(&mut self) {
        let (Some(agent), Ok((bay, loaded))) = (&self.unit.agent, self.state.loaded()) else { return };
        let EncryptionState::Encrypted { tag, .. } = loaded.medium.encryption else { return };
        let fetched = agent.key(&bay.volser, &tag);
        let trouble = fetched.as_ref().err().map(|error| (sense_of_agent(error), with_causes(error)));
        let taken = bay.drive.set_key(fetched.ok());
        let trouble = trouble.or_else(|| taken.err().map(|error| (sense_of(&error), with_causes(&error))));
        loaded.agent_key = trouble.as_ref().map_or(AgentKey::Held, |(sense, _)| AgentKey::Missing(*sense));
        if let Some((_, reason)) = trouble {
            self.state.key_trouble(reason);
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
        voice.tell(Event::Mounted { drive: voice.drive, barcode: bay.volser.to_string(), key });
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
        // A store that was out of reach may be back.
        if matches!(loaded.agent_key, AgentKey::Unasked | AgentKey::Missing(_)) {
            self.fetch_key();
        }
        let (_, loaded) = self.state.loaded()?;
        match (loaded.agent_key, purpose) {
            (AgentKey::Missing(sense), _) => return Err(sense.into()),
            (AgentKey::Held, Purpose::Writing) => loaded.agent_key = AgentKey::Used,
            _ => {}
        }
        Ok(())
    }

    /// Writing begins at the beginning of tape, with a key that was never used.
    fn take_new_key(&mut self) -> Answer {
        let (Some(agent), Ok((bay, _))) = (&self.unit.agent, self.state.loaded()) else { return Ok(()) };
        let key = agent.new_key(&bay.volser, self.unit.algorithm()).map_err(|error| self.state.no_key(&error))?;
        let tag = key.tag;
        self.state.on_drive(|bay, loaded| {
            bay.drive.set_key(Some(key))?;
            loaded.agent_key = AgentKey::New(tag);
            Ok(())
        })
    }

    /// All that was written is on the volume: a new key is in force from now on, and one that was destroyed meanwhile is told of
    /// before anybody relies on what was written with it.
    pub(super) fn confirm_key(&mut self) -> Answer {
        let (Some(agent), Ok((bay, loaded))) = (&self.unit.agent, self.state.loaded()) else { return Ok(()) };
        match loaded.agent_key {
            AgentKey::New(tag) => match agent.began(&bay.volser, &tag) {
                Ok(()) => {
                    loaded.agent_key = AgentKey::Held;
                    return Ok(());
                }
                Err(KeyAgentError::Gone { .. }) => self.fetch_key(),
                // It is still to be put in force: the next flush tries again.
                Err(error @ KeyAgentError::Unreachable { .. }) => return Err(self.state.no_key(&error)),
            },
            AgentKey::Used => self.fetch_key(),
            // Nothing was written since it asked.
            AgentKey::Unasked | AgentKey::Held | AgentKey::Missing(_) => return Ok(()),
        }
        match self.state.loaded()?.1.agent_key {
            AgentKey::Missing(sense) => Err(sense.into()),
            _ => Ok(()),
        }
    }
}
