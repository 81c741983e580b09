//! Keys that the drive fetches itself.
//!
//! A key may be destroyed, or its store be lost from sight, while its volume is in a drive. So the drive asks not only when a
//! cartridge is threaded, but again with the first block behind each motion of the tape, and when what was written is flushed: no
//! job starts under a key that is gone, and none is told that what it wrote under one is safe. With every block it would be too
//! often: the store is read and checked as a whole.
//!
//! To read, any key serves that is there. To append, only one that still encrypts: the store refuses one whose volume was begun anew
//! with another, and a volume has one key from its first block on, so that there is nothing to go on with but another volume.

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
    /// The drive below has it, to read.
    Held,
    /// The same, and it may encrypt.
    Granted,
    /// The same, and blocks were written with it that nobody relies on yet.
    Used,
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
    pub(super) fn fetch_key(&mut self, purpose: Purpose) {
        let (Some(agent), Ok((bay, loaded))) = (&self.unit.agent, self.state.loaded()) else { return };
        let EncryptionState::Encrypted { tag, .. } = loaded.medium.encryption else { return };
        let (fetched, known) = match purpose {
            Purpose::Reading => (agent.key(&bay.volser, &tag), AgentKey::Held),
            Purpose::Writing => (agent.key_to_append(&bay.volser, &tag), AgentKey::Used),
        };
        let trouble = fetched.as_ref().err().map(|error| (sense_of_agent(error), with_causes(error)));
        let taken = bay.drive.set_key(fetched.ok());
        let trouble = trouble.or_else(|| taken.err().map(|error| (sense_of(&error), with_causes(&error))));
        loaded.agent_key = trouble.as_ref().map_or(known, |(sense, _)| AgentKey::Missing(*sense));
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
        match (loaded.agent_key, purpose) {
            (AgentKey::Used, _) | (AgentKey::Held | AgentKey::Granted, Purpose::Reading) => return Ok(()),
            (AgentKey::Granted, Purpose::Writing) => {
                loaded.agent_key = AgentKey::Used;
                return Ok(());
            }
            (AgentKey::Held, Purpose::Writing) | (AgentKey::Unasked | AgentKey::Missing(_), _) => {
                self.fetch_key(purpose);
            }
        }
        match self.state.loaded()?.1.agent_key {
            AgentKey::Missing(sense) => Err(sense.into()),
            AgentKey::Unasked | AgentKey::Held | AgentKey::Granted | AgentKey::Used => Ok(()),
        }
    }

    /// Writing begins at the beginning of tape, with a key that was never used. That it is used now is on record before the first
    /// block is handed over: whatever happens then, a reset, a crash, no block lies under a key that seems to be unused.
    fn take_new_key(&mut self) -> Answer {
        let (Some(agent), Ok((bay, _))) = (&self.unit.agent, self.state.loaded()) else { return Ok(()) };
        let issued = agent.new_key(&bay.volser, self.unit.algorithm());
        let begun = issued.and_then(|key| agent.began(&bay.volser, &key.tag).map(|()| key));
        let key = begun.map_err(|error| self.state.no_key(&error))?;
        self.state.on_drive(|bay, loaded| {
            bay.drive.set_key(Some(key))?;
            loaded.agent_key = AgentKey::Used;
            Ok(())
        })
    }

    /// All that was written is on the volume: a key that was destroyed meanwhile is told of before anybody relies on what was
    /// written with it.
    pub(super) fn confirm_key(&mut self) -> Answer {
        if self.unit.agent.is_none() || self.state.loaded()?.1.agent_key != AgentKey::Used {
            return Ok(());
        }
        self.fetch_key(Purpose::Reading);
        let (_, loaded) = self.state.loaded()?;
        match loaded.agent_key {
            AgentKey::Missing(sense) => return Err(sense.into()),
            // What stopped encrypting since it was granted stops at the next motion of the tape.
            AgentKey::Held => loaded.agent_key = AgentKey::Granted,
            AgentKey::Unasked | AgentKey::Granted | AgentKey::Used => {}
        }
        Ok(())
    }
}
