//! Policies, as users see and change them.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use capstan_director::{
    BackupPolicy, CopiesOwed, DirectorError, OtherPolicies, PolicyChange, PolicyChanges, PolicySetting,
};
use capstan_keys::api::PeerKind;
use capstan_service::audit::{AuditEntry, AuditFact};
use jiff::Timestamp;

use super::acts::{CellActs, sources_of};
use super::log::KnownNames;
use super::queue::ns;
use super::rights::CellAct;
use super::words::{
    ApplyPolicies, BackupPolicyRow, ChangedSetting, CopiedRow, ExportPolicies, PoliciesAnswer, PoliciesChanged,
    PoliciesFile, PolicyChangeRow, PolicyFaultRow, PolicyNoticeRow, RemovePolicies,
};
use crate::cell::CellError;
use crate::cell::enrolments::{CellPeerState, cell_members};
use crate::look::{Look, look};

/// Longest name of a file in messages.
const FILE_NAME_LEN_MAX: usize = 200;

impl CellActs {
    /// The policies.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read.
    pub fn policies(&self) -> Result<PoliciesAnswer, CellError> {
        self.permitted(CellAct::ListPolicies)?;
        let look = look(&self.site)?;
        let rows = look.policies.iter().map(|policy| Ok(row(&look, policy, self.copied(policy)?)));
        Ok(PoliciesAnswer { policies: rows.collect::<Result<_, DirectorError>>()? })
    }

    /// Policies as a file that gives the same policies again.
    ///
    /// # Errors
    /// [`CellError::Denied`]; [`capstan_director::DirectorError::UnknownPolicy`]; otherwise the catalog cannot be read.
    pub fn export_policies(&self, asked: &ExportPolicies) -> Result<PoliciesFile, CellError> {
        self.permitted(CellAct::ListPolicies)?;
        Ok(PoliciesFile { text: self.site.export_policies(&asked.policies)? })
    }

    /// What a file of policies changes; it is changed if the question says on what basis.
    ///
    /// # Errors
    /// [`CellError::Denied`]; [`capstan_director::DirectorError::Config`] says what is wrong with the file;
    /// [`CellError::PoliciesChanged`] if somebody changed them since they were looked at. Otherwise the state directory
    /// cannot be written.
    pub fn apply_policies(&self, asked: &ApplyPolicies) -> Result<PoliciesChanged, CellError> {
        self.permitted(CellAct::ChangePolicies)?;
        let others = if asked.only { OtherPolicies::Remove } else { OtherPolicies::Keep };
        let file: String = asked.file.chars().take(FILE_NAME_LEN_MAX).collect();
        let plan = self.site.plan_policies(&asked.text, Path::new(&file), others)?;
        self.change_policies(&plan, asked.basis.as_deref())
    }

    /// What it changes to remove policies; they are removed if the question says on what basis.
    ///
    /// # Errors
    /// [`CellError::Denied`]; [`capstan_director::DirectorError::UnknownPolicy`]; [`CellError::PoliciesChanged`] if
    /// somebody changed them since they were looked at. Otherwise the state directory cannot be written.
    pub fn remove_policies(&self, asked: &RemovePolicies) -> Result<PoliciesChanged, CellError> {
        self.permitted(CellAct::ChangePolicies)?;
        let plan = self.site.plan_removal(&asked.policies)?;
        self.change_policies(&plan, asked.basis.as_deref())
    }

    /// What a policy copies, and has yet to copy, if it makes no backups.
    fn copied(&self, policy: &BackupPolicy) -> Result<Option<CopiedRow>, DirectorError> {
        let config = &policy.config;
        if !config.is_of_copies() {
            return Ok(None);
        }
        let CopiesOwed { objects, later, .. } = self.site.copies_owed(config)?;
        let (policies, pool) = (config.copies_of.clone(), config.pool.clone().unwrap_or_default());
        let migrate_after = config.migrate_after.clone();
        let (when_owed, when_above) = (config.when_owed == Some(true), config.when_above);
        Ok(Some(CopiedRow { policies, pool, owed: objects.len(), later, migrate_after, when_owed, when_above }))
    }

    fn change_policies(&self, plan: &PolicyChanges, basis: Option<&str>) -> Result<PoliciesChanged, CellError> {
        let before = self.site.policies()?;
        let is_removed = |policy: &&BackupPolicy| {
            plan.changes.iter().any(|change| change.is_removed() && change.name == policy.name)
        };
        let ruled = before.iter().filter(is_removed).filter(|policy| policy.config.keep.is_some());
        let ruled = ruled.map(|policy| policy.name.clone()).collect();
        let reductions = self.site.reductions_of_change(plan)?;
        let found = basis_of(plan);
        let is_made = match basis {
            None => false,
            Some(basis) if basis == found => true,
            Some(_) => return Err(CellError::PoliciesChanged),
        };
        if is_made && !plan.changes.is_empty() {
            let noted = |entry: AuditEntry| {
                let names = |is_removed: bool| -> Vec<&str> {
                    let chosen = plan.changes.iter().filter(|change| change.is_removed() == is_removed);
                    chosen.map(|change| change.name.as_str()).collect()
                };
                let with = |entry: AuditEntry, fact, names: Vec<&str>| match names.is_empty() {
                    true => entry,
                    false => entry.with(fact, AuditFact::from(KnownNames(&names))),
                };
                with(with(entry, "set", names(false)), "removed", names(true))
            };
            self.does(CellAct::ChangePolicies, noted, |site| Ok(site.change_policies(plan)?))?;
        }
        let after = self.site.planned_policies(plan)?;
        let fault = |policy: &BackupPolicy| {
            policy.fault.clone().map(|fault| PolicyFaultRow { policy: policy.name.clone(), fault })
        };
        let clients = cell_members(&self.site, PeerKind::Client)?;
        let joined = clients.iter().filter(|client| client.state == CellPeerState::Enrolled);
        let joined: HashSet<&str> = joined.map(|client| client.name.as_str()).chain([self.site.client()]).collect();
        let notices = after.iter().filter(|policy| policy.fault.is_none());
        let notices = notices.flat_map(|policy| {
            let row = |notice| PolicyNoticeRow { policy: policy.name.clone(), notice };
            notices_of(policy, &joined, self.site.client()).into_iter().map(row)
        });
        let reductions = reductions
            .iter()
            .map(|reduction| PolicyNoticeRow { policy: reduction.policy.clone(), notice: reduction.change_text() });
        Ok(PoliciesChanged {
            changes: plan.changes.iter().map(|change| change_row(change, !is_made)).collect(),
            unchanged: plan.unchanged,
            ruled,
            basis: found,
            faults: after.iter().filter_map(fault).collect(),
            notices: notices.chain(reductions).collect(),
        })
    }
}

/// What makes a policy that can be run do less than its words say: who it names and is not there, when it never comes.
fn notices_of(policy: &BackupPolicy, joined: &HashSet<&str>, server: &str) -> Vec<String> {
    let config = &policy.config;
    let mut notices = Vec::new();
    for client in config.clients.iter().filter(|client| !joined.contains(client.as_str())) {
        notices.push(format!(
            "client {client} has not joined, or its certificate holds no more: its runs wait until it has joined \
             (`capstan client enrol {client}` at the server)"
        ));
    }
    if config.is_of_clients() && config.clients_of(server).is_empty() {
        notices
            .push(format!("there is none of its {}: `capstan client label` gives a label", config.clients_in_words()));
    }
    let event = config.timing().ok().and_then(|timing| timing.schedule);
    if let Some(schedule) = event
        && schedule.next_run(Timestamp::now(), "").is_none()
    {
        notices.push("its schedule has no time that is still to come".to_owned());
    }
    notices
}

/// What stands for the policies that a plan was made on. Only this process and others like it compare it.
fn basis_of(plan: &PolicyChanges) -> String {
    let mut hasher = DefaultHasher::new();
    for policy in plan.seen() {
        (&policy.name, &policy.text).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn change_row(change: &PolicyChange, dry_run: bool) -> PolicyChangeRow {
    let name = match (change.is_removed(), change.is_known) {
        (true, _) => "removed",
        (false, true) => "changed",
        (false, false) => "added",
    };
    let setting = |setting: &PolicySetting| ChangedSetting {
        key: setting.key.clone(),
        before: setting.before.clone(),
        after: setting.after.clone(),
    };
    let settings = change.settings.iter().map(setting).collect();
    PolicyChangeRow { policy: change.name.clone(), change: name.into(), dry_run, settings }
}

fn row(look: &Look, policy: &BackupPolicy, copies_of: Option<CopiedRow>) -> BackupPolicyRow {
    BackupPolicyRow {
        policy: policy.name.clone(),
        schedule: policy.config.schedule.clone(),
        enabled: !policy.config.is_switched_off(),
        next_ns: look.next_run(&policy.name, look.situation.now).map(ns),
        zone: policy.config.zone.clone(),
        window: policy.config.window.clone(),
        priority: policy.config.timing().map_or(0, |timing| u8::try_from(timing.priority).unwrap_or(0)),
        sources: sources_of(&policy.config),
        copies_of,
        stage: policy.config.stage.clone(),
        care_of: policy.config.care_of.clone(),
        put_names: policy.config.put_names.clone(),
        fault: policy.fault.clone(),
        changed_ns: policy.changed_ns,
    }
}
