//! Becoming ready: loading, waiting, and looking again after something happened.

use std::time::Duration;

use super::{Loaded, ScsiDrive};
use crate::hardware::line::Failure;
use crate::scsi::command::Destination;
use crate::scsi::sense::{Action, OFFLINE, Sense};
use crate::scsi::{Command, DataPhase, SenseKey, Transport};
use crate::{DriveError, EncryptionState, Flush, Medium};

/// An LTO-9 cartridge's first load may take two hours.
const READY_WITHIN: Duration = Duration::from_secs(2 * 3600 + 600);

/// How often a load is begun anew when the drive is reset in the middle of it.
const LOADS_MAX: usize = 3;

/// Unit attentions in a row that are taken for news; more are a drive that does nothing else.
const UNIT_ATTENTIONS_MAX: usize = 64;

/// How often the drive may say that it is empty after it has taken a load command.
const EMPTY_AFTER_LOAD_MAX: usize = 5;

/// How long a drive may take to notice a cartridge that a robot has brought: some libraries call a move done when the
/// cartridge lies in the drive's mouth.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

impl<T: Transport> ScsiDrive<T> {
    pub(super) fn load_and_look(&mut self) -> Result<Medium, DriveError> {
        let mut loads = 1;
        loop {
            match self.try_load() {
                // What was in the buffer is lost: that has to be told.
                Err(DriveError::Reset { .. }) if loads < LOADS_MAX && !self.unflushed => loads += 1,
                result => {
                    self.unflushed = false;
                    return result;
                }
            }
        }
    }

    fn try_load(&mut self) -> Result<Medium, DriveError> {
        self.at = None;
        self.others = None;
        let unflushed = self.unflushed;
        if let News::Attention = self.wait_until_ready(self.when_empty)?
            && unflushed
        {
            return Err(self.found_elsewhere());
        }
        self.loaded = None;
        self.ask_limits()?;
        self.command("REWIND", &Command::Rewind { immediate: false }, DataPhase::None)?;
        let modes = self.set_modes()?;
        self.ask_ciphers()?;
        self.clear_foreign_key()?;
        let (medium, name) = self.look_at_medium(modes)?;
        self.set_reserve(medium.capacity_bytes)?;
        self.loaded = Some(Loaded { medium: medium.clone(), name, early_warning: false });
        self.go(Destination::Object(0))?;
        let encryption = self.encryption_at_beginning()?;
        self.go(Destination::Object(0))?;
        self.in_doubt = false;
        self.loaded()?.medium.encryption = encryption;
        if encryption != EncryptionState::Plain {
            // It was taken out to read another volume.
            self.key_back()?;
        }
        Ok(self.loaded()?.medium.clone())
    }

    /// Waits until the medium can be used, and takes the unit attentions that tell of what is known already.
    fn wait_until_ready(&mut self, when_empty: Empty) -> Result<News, DriveError> {
        let since_s = self.line.now_s();
        let mut news = News::None;
        let (mut attentions, mut empty, mut load_sent) = (0, 0, false);
        let mut loads = 0..LOADS_MAX;
        loop {
            let failure = match self.line.run(&Command::TestUnitReady, DataPhase::None) {
                Ok(done) => {
                    self.note(&done);
                    return Ok(news);
                }
                Err(failure) => failure,
            };
            let waited = Duration::from_secs_f64((self.line.now_s() - since_s).max(0.0));
            match (&failure, failure.codes()) {
                (Failure::Check(data), Some((0x6, ..)))
                    if !matches!(data.sense.action(), Some(Action::Stop)) && attentions < UNIT_ATTENTIONS_MAX =>
                {
                    attentions += 1;
                    news = News::Attention;
                    self.in_doubt = true;
                    self.slot.lose();
                }
                // It may be in the mouth of the drive, or let go of by an unload.
                (_, Some((0x2, 0x04, 0x02))) if !load_sent && loads.next().is_some() => {
                    load_sent = self.send_load(when_empty)?;
                }
                (_, Some((0x2, 0x3a, _))) if !load_sent && when_empty == Empty::Load && loads.next().is_some() => {
                    load_sent = self.send_load(when_empty)?;
                }
                (Failure::Check(data), Some((0x2, 0x3a, _)))
                    if when_empty == Empty::Await && waited < NOTICED_WITHIN =>
                {
                    load_sent = load_sent || self.send_load(when_empty)?;
                    self.line.announce(data.sense, since_s);
                }
                (Failure::Check(data), Some((0x2, 0x3a, _))) if load_sent && empty < EMPTY_AFTER_LOAD_MAX => {
                    empty += 1;
                    self.line.announce(data.sense, since_s);
                }
                (Failure::Check(data), Some((0x2, 0x04, OFFLINE))) => return Err(self.not_ready(data.sense, waited)),
                (Failure::Check(data), Some((0x2, 0x04, ascq))) if ascq != NEEDS_A_PERSON => {
                    if waited >= READY_WITHIN {
                        return Err(self.not_ready(data.sense, waited));
                    }
                    self.line.announce(data.sense, since_s);
                }
                _ => return Err(self.failed("TEST UNIT READY", failure)),
            }
        }
    }

    fn not_ready(&mut self, sense: Sense, waited: Duration) -> DriveError {
        DriveError::NotReady { drive: self.line.name.clone(), reason: sense.to_string(), waited }
    }

    /// At once, so that what the drive does meanwhile can be told; a drive that knows no such thing is waited for.
    /// Whether it was begun.
    fn send_load(&mut self, when_empty: Empty) -> Result<bool, DriveError> {
        let load = |immediate| Command::LoadUnload {
            load: true,
            hold: false,
            end_of_tape: false,
            retension: false,
            immediate,
        };
        let mut done = self.line.run(&load(true), DataPhase::None);
        if done.as_ref().is_err_and(Failure::is_not_known) {
            done = self.line.run(&load(false), DataPhase::None);
        }
        match done {
            // Not begun because of something that the next TEST UNIT READY has no word of.
            Err(Failure::Check(data)) if data.sense.key == SenseKey::UnitAttention as u8 => {
                self.in_doubt = true;
                self.slot.lose();
                Ok(false)
            }
            Err(failure) if when_empty == Empty::Await && matches!(failure.codes(), Some((0x2, 0x3a, _))) => Ok(false),
            // It does so already.
            Err(failure) if matches!(failure.codes(), Some((0x2, 0x04, _))) => Ok(true),
            done => self.checked("LOAD", done).map(|_| true),
        }
    }

    /// Before going to a place after the position was lost: the same cartridge must be there, and the modes must be
    /// set.
    pub(super) fn recover(&mut self) -> Result<(), DriveError> {
        if self.at.is_some() {
            return Ok(());
        }
        self.wait_until_ready(Empty::Tell)?;
        if !self.in_doubt {
            return Ok(());
        }
        let encryption = self.loaded()?.medium.encryption;
        let modes = self.set_modes()?;
        self.clear_foreign_key()?;
        let (mut medium, name) = self.look_at_medium(modes)?;
        medium.encryption = encryption;
        let expected = &self.loaded()?.name;
        if expected.is_other(&name) {
            let (expected, found) = (expected.to_string(), name.to_string());
            self.loaded = None;
            return Err(DriveError::MediumChanged { drive: self.line.name.clone(), expected, found });
        }
        self.set_reserve(medium.capacity_bytes)?;
        self.loaded()?.medium = medium;
        // What the reset left unwritten may have been the first block.
        if encryption == EncryptionState::Blank || self.unflushed {
            self.go(Destination::Object(0))?;
            self.loaded()?.medium.encryption = self.encryption_at_beginning()?;
            self.at = None;
        }
        self.unflushed = false;
        self.in_doubt = false;
        Ok(())
    }

    pub(super) fn flush_and_let_go(&mut self) -> Result<(), DriveError> {
        let mut first = Ok(());
        if self.at.is_some() && self.unflushed {
            first = self.filemarks(0, Flush::Synchronous).map(drop);
        }
        if matches!(first, Err(DriveError::OutOfReach { .. })) {
            // Whatever else is sent would be waited for in vain.
            return first;
        }
        let cleared = self.clear_slot();
        self.end_protection();
        // Whoever prevented removal in this nexus has no use for it any more; a drive without the command prevents
        // nothing.
        drop(self.line.run(&Command::PreventRemoval { prevent: false }, DataPhase::None));
        let unload =
            Command::LoadUnload { load: false, hold: false, end_of_tape: false, retension: false, immediate: false };
        let mut told = Ok(());
        for _ in 0..=UNIT_ATTENTIONS_MAX {
            match self.line.run(&unload, DataPhase::None) {
                Err(failure) if matches!(failure.codes(), Some((0x2, 0x3a, _))) => break,
                Err(failure) => {
                    let again = matches!(&failure, Failure::Check(data)
                        if data.sense.key == 0x6 || data.sense.action() == Some(Action::RollBack));
                    let lost = self.unflushed || !matches!(&failure, Failure::Check(data) if data.sense.key == 0x6);
                    let error = self.failed("UNLOAD", failure);
                    if told.is_ok() && lost {
                        told = Err(error);
                    }
                    // It was not carried out: what it told of concerns earlier commands.
                    if !again {
                        break;
                    }
                }
                Ok(done) => {
                    self.note(&done);
                    break;
                }
            }
        }
        self.loaded = None;
        self.at = None;
        self.unflushed = false;
        self.in_doubt = true;
        first.and(told).and(cleared)
    }
}

/// Qualifier of 2/04: no waiting helps.
const NEEDS_A_PERSON: u8 = 0x03;

/// What is done about a drive that says it is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Empty {
    /// The cartridge may lie in its mouth: it is told to load it.
    Load,
    /// A robot has just brought one, which the drive may not have noticed yet: it is waited for and told to load it.
    Await,
    /// A cartridge that was there is gone, or nobody brought one: that is told.
    Tell,
}

/// What was learnt while waiting.
enum News {
    None,
    Attention,
}
