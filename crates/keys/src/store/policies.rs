//! What is said of keys in general: policies, key groups, agents; and of one volume, that its keys be given out longer.

use capstan_format::Volser;

use super::SealedStore;
use crate::holdings::Holdings;
use crate::{Agent, KeyError, KeyGroup, KnownPolicy, Policy, Realm};

impl SealedStore {
    /// Policies, key groups, agents and data units.
    pub fn realm(&self) -> Result<Realm, KeyError> {
        Ok(self.read()?.0.realm())
    }

    /// Makes a policy, of a name that none has.
    pub fn put_policy(&mut self, policy: Policy) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_policy(policy, KnownPolicy::Stays))
    }

    /// Says a policy, anew if there is one of this name; not one that a key was issued under.
    pub fn replace_policy(&mut self, policy: Policy) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_policy(policy, KnownPolicy::Replaced))
    }

    /// Makes a key group.
    pub fn put_group(&mut self, group: KeyGroup) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_group(group))
    }

    /// Says which groups a drive may use.
    pub fn put_agent(&mut self, agent: Agent) -> Result<(), KeyError> {
        self.say(|holdings| holdings.put_agent(agent))
    }

    /// Gives a volume's keys out for reading until then, though their cryptoperiod be over.
    pub fn extend_reading(&mut self, volser: &Volser, until_ns: i64) -> Result<(), KeyError> {
        self.say(|holdings| holdings.extend_reading(volser, until_ns))
    }

    fn say(&mut self, operation: impl FnOnce(&mut Holdings) -> Result<(), KeyError>) -> Result<(), KeyError> {
        self.operate(None, None, |holdings, _| operation(holdings))
    }
}
