//! What is said of keys in general: policies, key groups, agents; and of one volume, that its keys be given out longer.

use capstan_format::Volser;

use super::SealedStore;
use crate::holdings::Holdings;
use crate::{Agent, KeyError, KeyGroup, KnownPolicy, Policy, Realm};

impl SealedStore {
    /// Policies, key groups, agents and data units.
    ///
    /// # Errors
    /// [`KeyError::Tampered`] if the store was altered; else it cannot be read.
    pub fn realm(&self) -> Result<Realm, KeyError> {
        Ok(self.read()?.0.realm())
    }

    /// Makes a policy, of a name that none has.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if there is one of this name, or it contradicts itself; else the store cannot be written.
    pub fn put_policy(&mut self, policy: Policy) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_policy(policy, KnownPolicy::Stays))
    }

    /// Says a policy, anew if there is one of this name; not one that a key was issued under.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if a key was issued under it, or it contradicts itself; else the store cannot be written.
    pub fn replace_policy(&mut self, policy: Policy) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_policy(policy, KnownPolicy::Replaced))
    }

    /// Makes a key group.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if its policy is unknown, or a group of this name has another one; else the store cannot
    /// be written.
    pub fn put_group(&mut self, group: KeyGroup) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_group(group))
    }

    /// Says which groups a drive may use.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if a group of it is unknown, or it may not use its own default group; else the store
    /// cannot be written.
    pub fn put_agent(&mut self, agent: Agent) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_agent(agent))
    }

    /// Gives a volume's keys out for reading until then, though their cryptoperiod be over.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if no key was ever issued for the volume; else the store cannot be written.
    pub fn extend_reading(&mut self, volser: &Volser, until_ns: i64) -> Result<(), KeyError> {
        self.say(|holdings| holdings.extend_reading(volser, until_ns))
    }

    fn say(&mut self, operation: impl FnOnce(&mut Holdings) -> Result<(), KeyError>) -> Result<(), KeyError> {
        self.operate(None, None, |holdings, _| operation(holdings))
    }
}
