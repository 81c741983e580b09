//! What is said of keys in general: policies, key groups, agents; and of one volume, that its keys be given out longer.

use capstan_format::Volser;

use super::SealedStore;
use crate::realm::RealmRecord;
use crate::{Agent, DataUnit, KeyError, KeyGroup, Policy, Realm, Refusal};

impl SealedStore {
    /// Policies, key groups, agents and data units.
    pub fn realm(&self) -> Result<Realm, KeyError> {
        Ok(self.read()?.0.realm())
    }

    /// Makes a policy; one that no key was issued under may be said anew.
    pub fn put_policy(&mut self, policy: Policy) -> Result<(), KeyError> {
        self.put(|realm| realm.check_policy(&policy).map(|()| RealmRecord::Policy(policy)))
    }

    /// Makes a key group.
    pub fn put_group(&mut self, group: KeyGroup) -> Result<(), KeyError> {
        self.put(|realm| realm.check_group(&group).map(|()| RealmRecord::Group(group)))
    }

    /// Says which groups a drive may use.
    pub fn put_agent(&mut self, agent: Agent) -> Result<(), KeyError> {
        self.put(|realm| realm.check_agent(&agent).map(|()| RealmRecord::Agent(agent)))
    }

    /// Gives a volume's keys out for reading until then, though their cryptoperiod be over.
    pub fn extend_reading(&mut self, volser: &Volser, until_ns: i64) -> Result<(), KeyError> {
        self.put(|realm| {
            let unit = realm.unit(volser).ok_or_else(|| Refusal::UnknownUnit { volser: volser.clone() })?;
            Ok(RealmRecord::unit(DataUnit { read_until_ns: Some(until_ns), ..unit.clone() }))
        })
    }

    fn put(&mut self, record: impl FnOnce(&Realm) -> Result<RealmRecord, Refusal>) -> Result<(), KeyError> {
        self.change(|contents, _| {
            let record = record(&contents.realm())?;
            contents.put(record);
            Ok(())
        })
    }
}
