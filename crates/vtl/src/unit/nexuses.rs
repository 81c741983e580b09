//! What a unit keeps for each initiator: unit attentions that it has not been told, and whether it knows where the tape
//! stands.

use std::collections::{HashMap, HashSet, VecDeque};

use capstan_tape::scsi::{SenseData, SenseKey};

/// Initiators that are remembered; of more, one that asked for nothing lately is forgotten and greeted as new when it
/// returns.
const INITIATORS_MAX: usize = 256;

/// Unit attentions that wait for one initiator; the oldest say the most.
const ATTENTIONS_MAX: usize = 8;

/// Conditions that are told by a unit attention (SPC-5, table F.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attention {
    /// The unit was switched on.
    PowerOn,
    /// It was reset.
    Reset,
    /// The session ended and began anew.
    NexusLost,
    /// Another cartridge may be in the drive.
    MediumChanged,
    /// The mail slot was opened.
    ImportExport,
    /// Settings were changed by another initiator.
    ModeChanged,
    /// Reservations were cleared.
    ReservationsPreempted,
    /// The reservation was released.
    ReservationsReleased,
    /// The registration was taken away.
    RegistrationsPreempted,
    /// The key was changed by another initiator.
    KeyChanged,
}

impl Attention {
    pub(crate) fn sense(self) -> SenseData {
        let (asc, ascq) = match self {
            Self::PowerOn => (0x29, 0x01),
            Self::Reset => (0x29, 0x03),
            Self::NexusLost => (0x29, 0x07),
            Self::MediumChanged => (0x28, 0x00),
            Self::ImportExport => (0x28, 0x01),
            Self::ModeChanged => (0x2a, 0x01),
            Self::ReservationsPreempted => (0x2a, 0x03),
            Self::ReservationsReleased => (0x2a, 0x04),
            Self::RegistrationsPreempted => (0x2a, 0x05),
            Self::KeyChanged => (0x2a, 0x11),
        };
        SenseData::new(SenseKey::UnitAttention, asc, ascq)
    }

    /// Whether the tape may have moved, so that nobody may write before asking where it stands.
    fn moves_tape(self) -> bool {
        matches!(self, Self::PowerOn | Self::Reset | Self::MediumChanged)
    }
}

#[derive(Debug, Default)]
struct Initiator {
    attentions: VecDeque<Attention>,
    /// When it asked last, by the unit's count of commands.
    asked: u64,
}

/// All initiators of a unit, by port name.
#[derive(Debug, Default)]
pub(crate) struct Nexuses {
    initiators: HashMap<String, Initiator>,
    commands: u64,
    /// Who has not asked for the position since the tape may have moved.
    unverified: HashSet<String>,
}

impl Nexuses {
    /// Notes that a command came from an initiator; one that is new is told that the unit was switched on.
    pub(crate) fn met(&mut self, initiator: &str) {
        self.commands += 1;
        let commands = self.commands;
        if let Some(known) = self.initiators.get_mut(initiator) {
            known.asked = commands;
            return;
        }
        if self.initiators.len() >= INITIATORS_MAX {
            let oldest = self.initiators.iter().min_by_key(|(_, known)| known.asked).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                self.initiators.remove(&oldest);
                self.unverified.remove(&oldest);
            }
        }
        let attentions = VecDeque::from([Attention::PowerOn]);
        self.initiators.insert(initiator.to_owned(), Initiator { attentions, asked: commands });
        self.unverified.insert(initiator.to_owned());
    }

    /// To be told to this initiator.
    pub(crate) fn tell(&mut self, initiator: &str, attention: Attention) {
        if attention.moves_tape() {
            self.unverified.insert(initiator.to_owned());
        }
        let Some(known) = self.initiators.get_mut(initiator) else { return };
        if !known.attentions.contains(&attention) && known.attentions.len() < ATTENTIONS_MAX {
            known.attentions.push_back(attention);
        }
    }

    /// To be told to all, or to all but one.
    pub(crate) fn tell_all(&mut self, but: Option<&str>, attention: Attention) {
        let names: Vec<String> = self.initiators.keys().filter(|name| Some(name.as_str()) != but).cloned().collect();
        for name in names {
            self.tell(&name, attention);
        }
    }

    /// What is to be told next.
    pub(crate) fn take(&mut self, initiator: &str) -> Option<Attention> {
        self.initiators.get_mut(initiator)?.attentions.pop_front()
    }

    /// Somebody else on the same host was told, and said nothing.
    pub(crate) fn swallow(&mut self) {
        for known in self.initiators.values_mut() {
            known.attentions.clear();
        }
    }

    /// The initiator asked where the tape stands, or sent it somewhere.
    pub(crate) fn position_verified(&mut self, initiator: &str) {
        self.unverified.remove(initiator);
    }

    /// Whether it may know where the tape stands.
    pub(crate) fn knows_position(&self, initiator: &str) -> bool {
        !self.unverified.contains(initiator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told_once() {
        let mut nexuses = Nexuses::default();
        nexuses.met("one");
        nexuses.met("two");
        assert_eq!(nexuses.take("one"), Some(Attention::PowerOn));
        assert_eq!(nexuses.take("one"), None);
        nexuses.tell_all(Some("one"), Attention::ModeChanged);
        assert_eq!(nexuses.take("one"), None);
        assert_eq!(nexuses.take("two"), Some(Attention::PowerOn));
        assert_eq!(nexuses.take("two"), Some(Attention::ModeChanged));
    }

    #[test]
    fn memory_is_bounded() {
        let mut nexuses = Nexuses::default();
        for number in 0..10_000 {
            nexuses.met(&number.to_string());
            for _ in 0..20 {
                nexuses.tell_all(None, Attention::Reset);
            }
            if number > 300 {
                break;
            }
        }
        assert_eq!(nexuses.initiators.len(), INITIATORS_MAX);
        assert!(nexuses.initiators.contains_key("301") && !nexuses.initiators.contains_key("0"));
        assert!(nexuses.unverified.len() <= INITIATORS_MAX);
    }

    #[test]
    fn a_moved_tape_is_not_known_until_asked_for() {
        let mut nexuses = Nexuses::default();
        nexuses.met("one");
        assert!(!nexuses.knows_position("one"));
        nexuses.position_verified("one");
        nexuses.tell("one", Attention::ModeChanged);
        assert!(nexuses.knows_position("one"));
        nexuses.tell_all(None, Attention::Reset);
        nexuses.swallow();
        assert_eq!(nexuses.take("one"), None);
        assert!(!nexuses.knows_position("one"), "whether it was told or not");
    }
}
