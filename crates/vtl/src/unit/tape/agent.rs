//! Keys that the drive fetches itself.
//!
//! A key may be destroyed, or its store be lost from sight, while its volume is in a drive. So the drive asks not only when a
//! cartridge is threaded, but again with the first block behind each motion of the tape, and when what was written is flushed: no
//! job starts under a key that is gone, and none is told that what it wrote under one is safe. With every block it would be too
//! often: the store is read and checked as a whole.
//!
//! A volume may have several keys, and each block names its own: so for reading the drive below has none behind a motion, and is
//! given whichever the next block asks for. What is appended has the key in force, which is fetched anew after any read: never is
//! anything written with a key that came for reading.

use capstan_format::KeyTag;
use capstan_tape::scsi::{SenseData, SenseKey};
use capstan_tape::{Drive, DriveError, EncryptionState, ReadOutcome};

use super::failure::{sense_of, sense_of_agent};
use super::security::Purpose;
use super::{Loaded, Work};
use crate::agent::KeyAgentError;
use crate::layout::Encryption;
use crate::unit::answer::{Answer, Refusal, check};

/// What the drive knows of its volume's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentKey {
    /// It did not ask since the tape was moved, or a reset took the key away.
    Unasked,
    /// The drive below has none, or the one that the last block needed; what the next one needs it will name. Nothing is written.
    AsNamed,
    /// The drive below has the one to append with.
    Held(KeyTag),
    /// The same, and blocks were written with it that nobody relies on yet.
    Used(KeyTag),
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

impl Work<'_> {
    /// Fetches the key to append with to a volume that is encrypted.
    fn fetch_key_in_force(&mut self) {
        let (Some(agent), Ok((bay, loaded))) = (&self.unit.agent, self.state.loaded()) else { return };
        let EncryptionState::Encrypted { tag: first, .. } = loaded.medium.encryption else { return };
        match agent.tag_to_append(&bay.volser, &first) {
            Ok(tag) => self.fetch_key(tag),
            Err(error) => loaded.agent_key = AgentKey::Missing(sense_of_agent(&error)),
        }
    }

    /// Fetches the key of a tag to write with. Where there is none the drive below has none either.
    fn fetch_key(&mut self, tag: KeyTag) {
        let (Some(agent), Ok((bay, loaded))) = (&self.unit.agent, self.state.loaded()) else { return };
        let (key, known) = match agent.key(&bay.volser, &tag) {
            Ok(key) => (Some(key), AgentKey::Held(tag)),
            Err(error) => (None, AgentKey::Missing(sense_of_agent(&error))),
        };
        let taken = bay.drive.set_key(key);
        loaded.agent_key = taken.map_or_else(|error| AgentKey::Missing(sense_of(&error)), |()| known);
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
            (AgentKey::Unasked | AgentKey::Missing(_), Purpose::Reading) => {
                loaded.agent_key = AgentKey::AsNamed;
                return self.state.on_drive(|bay, _| bay.drive.set_key(None));
            }
            // A store that was out of reach may be back.
            (AgentKey::Unasked | AgentKey::Missing(_) | AgentKey::AsNamed, Purpose::Writing) => {
                self.fetch_key_in_force();
            }
            _ => {}
        }
        let (_, loaded) = self.state.loaded()?;
        match (loaded.agent_key, purpose) {
            (AgentKey::Missing(sense), _) => return Err(sense.into()),
            (AgentKey::Held(tag), Purpose::Writing) => loaded.agent_key = AgentKey::Used(tag),
            _ => {}
        }
        Ok(())
    }

    /// Reads a block; as agent, with the key that it names.
    pub(super) fn read_with_its_key(&mut self, buffer: &mut [u8]) -> Result<Result<ReadOutcome, DriveError>, Refusal> {
        let agent = self.unit.agent.as_ref().filter(|_| self.unit.encryption == Encryption::Agent);
        let (bay, loaded) = self.state.loaded()?;
        let read = bay.drive.read_block(buffer);
        let (Some(agent), Some(needed)) = (agent, needed(&read)) else { return Ok(read) };
        // The drive below stands in front of the block still.
        let key = agent.key(&bay.volser, &needed).map_err(|error| sense_of_agent(&error))?;
        loaded.agent_key = AgentKey::AsNamed;
        self.state.on_drive(|bay, _| bay.drive.set_key(Some(key)))?;
        let (bay, _) = self.state.loaded()?;
        Ok(bay.drive.read_block(buffer))
    }

    /// Writing begins at the beginning of tape, with a key that was never used.
    fn take_new_key(&mut self) -> Answer {
        let (Some(agent), Ok((bay, _))) = (&self.unit.agent, self.state.loaded()) else { return Ok(()) };
        let key = agent.new_key(&bay.volser, self.unit.algorithm()).map_err(|error| sense_of_agent(&error))?;
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
                    loaded.agent_key = AgentKey::Held(tag);
                    return Ok(());
                }
                Err(KeyAgentError::Gone { .. }) => self.fetch_key(tag),
                // It is still to be put in force: the next flush tries again.
                Err(error @ KeyAgentError::Unreachable { .. }) => return Err(sense_of_agent(&error).into()),
            },
            AgentKey::Used(tag) => self.fetch_key(tag),
            // Nothing was written since it asked.
            AgentKey::Unasked | AgentKey::AsNamed | AgentKey::Held(_) | AgentKey::Missing(_) => return Ok(()),
        }
        match self.state.loaded()?.1.agent_key {
            AgentKey::Missing(sense) => Err(sense.into()),
            _ => Ok(()),
        }
    }
}

/// The key that a block asks for.
pub(super) fn needed(read: &Result<ReadOutcome, DriveError>) -> Option<KeyTag> {
    match read {
        Err(DriveError::NoKey { tag, .. }) => Some(*tag),
        Err(DriveError::WrongKey { needed, .. }) => Some(*needed),
        _ => None,
    }
}
