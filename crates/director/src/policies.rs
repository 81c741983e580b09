//! Policies: backups by name that the catalog keeps, and that a server runs when they are due.
//!
//! A file of policies is what a person writes and reads; the catalog keeps each policy as the part of the text that is
//! its own. What a file would change can be looked at before anything is changed. Each command sees the policies as
//! they are when it opens the site; a policy that this version cannot read stops no other one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use capstan_catalog::{MemberLabel, ObjectFilter, PolicyEdit, PolicyText, Pool};
use capstan_keys::api::PeerKind;
use capstan_schedule::CalendarEvent;
use serde::Deserialize;

use crate::config::{Config, JobConfig, Wrong, fault_of, in_plain_words};
use crate::copy_policy::check_pools;
use crate::known_policies::{BackupPolicy, FoldedPolicies, PolicySources};
use crate::pools::DEFAULT_POOL;
use crate::site::{Site, locked};
use crate::{DirectorError, DrivesOwner};

/// What becomes of policies that a file does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherPolicies {
    /// They stay.
    Keep,
    /// They are removed.
    Remove,
}

/// What would become of one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChange {
    /// Its name.
    pub name: String,
    /// What it is from now on, as text; `None` if it is removed.
    text: Option<String>,
    /// Whether there is one of the name now.
    pub is_known: bool,
    /// The settings that differ.
    pub settings: Vec<PolicySetting>,
    /// Whether it is due at other times from now on.
    is_rescheduled: bool,
}

impl PolicyChange {
    /// Whether it is removed.
    pub fn is_removed(&self) -> bool {
        self.text.is_none()
    }

    fn edit(&self) -> PolicyEdit<'_> {
        match &self.text {
            Some(text) => PolicyEdit::Put { name: &self.name, text, is_rescheduled: self.is_rescheduled },
            None => PolicyEdit::Remove(&self.name),
        }
    }
}

/// A setting that a change gives another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySetting {
    /// Its name.
    pub key: String,
    /// Its value before, if it was set.
    pub before: Option<String>,
    /// Its value from now on, if it is set.
    pub after: Option<String>,
}

/// What a file of policies would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChanges {
    seen: Vec<PolicyText>,
    /// Policies that would change, by name.
    pub changes: Vec<PolicyChange>,
    /// How many of the file's policies are as they were.
    pub unchanged: usize,
}

impl PolicyChanges {
    /// The policies that it was planned on.
    pub fn seen(&self) -> &[PolicyText] {
        &self.seen
    }
}

/// A file of policies.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    policies: BTreeMap<String, JobConfig>,
}

/// A file of policies as its words.
#[derive(Deserialize)]
struct PolicyTables {
    policies: BTreeMap<String, toml::Table>,
}

impl Site {
    /// The policies, by name.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn policies(&self) -> Result<Arc<Vec<BackupPolicy>>, DirectorError> {
        let texts = locked(&self.catalog).policies()?;
        if texts.is_empty() {
            return Ok(Arc::default());
        }
        let from = self.policy_sources(texts)?;
        Ok(self.known_policies.of(from, |from| self.read_policies(from)))
    }

    /// The policies that a plan changes, as they would be.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn planned_policies(&self, plan: &PolicyChanges) -> Result<Vec<BackupPolicy>, DirectorError> {
        let now_ns = self.now_ns();
        let planned = |change: &PolicyChange| {
            let (name, text) = (change.name.clone(), change.text.clone()?);
            Some(PolicyText { name, text, changed_ns: now_ns, scheduled_ns: now_ns })
        };
        let from = self.policy_sources(plan.changes.iter().filter_map(planned).collect())?;
        Ok(self.read_policies(&from))
    }

    /// All that policies with these texts follow from.
    fn policy_sources(&self, texts: Vec<PolicyText>) -> Result<PolicySources, DirectorError> {
        let (labels, pools) = {
            let catalog = locked(&self.catalog);
            (catalog.labels_of_joined(PeerKind::Client.as_str())?, catalog.pools()?)
        };
        Ok(PolicySources { texts, labels, pools, settings: self.settings_now(), client: self.client.clone() })
    }

    /// The policy of a name.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn policy(&self, name: &str) -> Result<Option<BackupPolicy>, DirectorError> {
        Ok(self.policies()?.iter().find(|policy| policy.name == name).cloned())
    }

    fn read_policies(&self, from: &PolicySources) -> Vec<BackupPolicy> {
        let PolicySources { texts, labels, pools, settings, client } = from;
        let mut policies: Vec<_> = texts.iter().map(|text| read(text.clone(), settings, &self.config)).collect();
        for BackupPolicy { config, fault, .. } in &mut policies {
            if let Err(reason) = check_pool(config, pools) {
                fault.get_or_insert(reason);
            }
            // Nobody joins under the name of the server's machine; but that may be called so since.
            let counts = |label: &&MemberLabel| config.client_labels.contains(&label.label) && label.member != *client;
            let mut labelled: BTreeMap<String, i64> = BTreeMap::new();
            for label in labels.iter().filter(counts) {
                let since_ns = labelled.entry(label.member.clone()).or_insert(label.since_ns);
                *since_ns = label.since_ns.min(*since_ns);
            }
            config.labelled = labelled;
        }
        // A change of either may have them write to one pool.
        let config_of = |name: &String| {
            let policy = policies.iter().find(|policy| policy.name == *name);
            policy.map(|policy| &policy.config).or_else(|| settings.jobs.get(name))
        };
        let fault = |policy: &BackupPolicy| {
            let job = &policy.config;
            job.copies_of.iter().find_map(|copied| check_copying(job, copied, config_of(copied)?).err())
        };
        let faults: Vec<_> = policies.iter().map(fault).collect();
        for (policy, fault) in policies.iter_mut().zip(faults) {
            let in_words = |(key, reason): Wrong| format!("{}: {reason}", key.unwrap_or("copies_of"));
            policy.fault = policy.fault.take().or(fault.map(in_words));
        }
        policies
    }

    /// Whether a backup by name is a policy, and not a job of the settings.
    pub fn is_policy(&self, name: &str) -> bool {
        self.policy_names.contains(name)
    }

    /// Why a policy cannot be run here, if it cannot.
    pub fn policy_fault(&self, name: &str) -> Option<&str> {
        self.policy_faults.get(name).map(String::as_str)
    }

    /// A policy as this machine runs it, of whose clients it is one.
    ///
    /// # Errors
    /// [`DirectorError::PolicyFault`] if its settings lack a script that the policy names.
    pub fn policy_here(&self, name: &str, config: &JobConfig) -> Result<JobConfig, DirectorError> {
        let mut config = config.clone();
        let fault = |reason| DirectorError::PolicyFault { name: name.to_owned(), reason };
        name_programs(&mut config, &self.settings_now()).map_err(fault)?;
        Ok(config)
    }

    /// What a file of policies would change, by its text; `file` is what messages call it.
    ///
    /// # Errors
    /// [`DirectorError::Config`] says what is wrong with the file, with its line. Otherwise the catalog cannot be read.
    pub fn plan_policies(
        &self,
        text: &str,
        file: &Path,
        others: OtherPolicies,
    ) -> Result<PolicyChanges, DirectorError> {
        let wrong = |reason: String| DirectorError::Config { path: file.to_owned(), reason };
        let in_words = |error: toml::de::Error| wrong(in_plain_words(&error.to_string()));
        let named: PolicyFile = toml::from_str(text).map_err(in_words)?;
        let tables: PolicyTables = toml::from_str(text).map_err(in_words)?;
        for (name, policy) in &named.policies {
            let placed = |(key, reason): Wrong| wrong(fault_of(text, ("policies", name), key, &reason));
            policy.check_policy(name).map_err(placed)?;
            if self.config.jobs.contains_key(name) && !self.is_policy(name) {
                let reason = "capstan.toml has a job of that name: give one of them another name";
                return Err(placed((None, reason.to_owned())));
            }
        }
        let seen = locked(&self.catalog).policies()?;
        for (name, policy) in named.policies.iter().filter(|(_, policy)| policy.is_of_copies()) {
            let checked = self.check_copied((name, policy), &named, &seen, others);
            let checked = checked.and_then(|()| check_alone((name, policy), &named, &seen, others));
            checked.map_err(|(key, reason)| wrong(fault_of(text, ("policies", name), key, &reason)))?;
        }
        // Nor do those that stay copy what the file makes of others.
        let stays = |text: &&PolicyText| others == OtherPolicies::Keep && !named.policies.contains_key(&text.name);
        for text in seen.iter().filter(stays) {
            let policy: JobConfig = toml::from_str(&text.text).unwrap_or_default();
            let changed = policy.copies_of.iter().filter_map(|copied| Some((copied, named.policies.get(copied)?)));
            for (copied, config) in changed {
                let checked = check_copying(&policy, copied, config);
                checked.map_err(|(_, reason)| wrong(format!("policy {}, which stays: {reason}", text.name)))?;
            }
        }
        changes(seen, &tables.policies, others)
    }

    /// What is wrong with the policies whose backups one is to copy, if anything is. One that is removed later leaves
    /// backups, which are copied.
    fn check_copied(
        &self,
        (name, policy): (&String, &JobConfig),
        named: &PolicyFile,
        seen: &[PolicyText],
        others: OtherPolicies,
    ) -> Result<(), Wrong> {
        let wrong = |reason: String| Err((Some("copies_of"), reason));
        let own = seen.iter().find(|text| text.name == *name);
        let own: JobConfig = own.and_then(|own| toml::from_str(&own.text).ok()).unwrap_or_default();
        for copied in &policy.copies_of {
            let before = seen.iter().find(|text| text.name == *copied);
            let stays = before.filter(|_| others == OtherPolicies::Keep);
            let known = match (named.policies.get(copied), stays, self.config.jobs.get(copied)) {
                (Some(config), ..) => config.clone(),
                (None, Some(text), _) => toml::from_str(&text.text).unwrap_or_default(),
                (None, None, Some(job)) if !self.is_policy(copied) => job.clone(),
                // It is gone, and its backups need not be.
                _ if own.copies_of.contains(copied) && before.is_none() => continue,
                _ if self.has_backups_of(copied) => continue,
                _ if before.is_some() => {
                    return wrong(format!("policy {copied} is not in the file, and --only removes it"));
                }
                _ => return wrong(format!("there is no policy or job {copied}, and no backup of one")),
            };
            check_copying(policy, copied, &known)?;
        }
        Ok(())
    }

    fn has_backups_of(&self, policy: &str) -> bool {
        let filter = ObjectFilter { policy: Some(policy.to_owned()), ..ObjectFilter::default() };
        // What cannot be read is said by whoever has to read it.
        locked(&self.catalog).latest(&filter).is_ok_and(|latest| latest.is_some())
    }

    /// What it would change to remove these policies. Objects that they made are kept; those that a keep rule of theirs
    /// keeps are kept for ever, until somebody names them.
    ///
    /// # Errors
    /// [`DirectorError::UnknownPolicy`] if there is none of a name. Otherwise the catalog cannot be read.
    pub fn plan_removal(&self, names: &[String]) -> Result<PolicyChanges, DirectorError> {
        let seen = locked(&self.catalog).policies()?;
        for name in names {
            if !seen.iter().any(|policy| policy.name == *name) {
                return Err(unknown(name));
            }
        }
        let stay = seen.iter().filter(|policy| !names.contains(&policy.name));
        let stay = stay.map(|policy| (policy.name.clone(), table(&policy.text))).collect();
        changes(seen, &stay, OtherPolicies::Remove)
    }

    /// Changes policies as planned, all of them or none.
    ///
    /// # Errors
    /// Somebody changed them meanwhile, or the catalog cannot be written.
    pub fn change_policies(&self, plan: &PolicyChanges) -> Result<(), DirectorError> {
        let mut edits: Vec<_> = plan.changes.iter().map(PolicyChange::edit).collect();
        // Whom they backed up, and whom they will.
        let (before, after) = (self.policy_sources(plan.seen.clone())?, self.planned_policies(plan)?);
        let before = self.read_policies(&before);
        let clients = |policy: &BackupPolicy| -> BTreeSet<String> {
            policy.config.clients_of(&self.client).into_iter().map(str::to_owned).collect()
        };
        let changed = after.iter().map(|after| {
            let before = before.iter().find(|before| before.name == after.name).map(clients).unwrap_or_default();
            let schedule = after.config.timing().ok().and_then(|timing| timing.schedule);
            (after.name.as_str(), before, clients(after), schedule)
        });
        let changed: Vec<_> = changed.collect();
        for (name, before, after, schedule) in &changed {
            let delay_ns = |client: &str| {
                let delay = schedule.as_ref().map_or(0, |schedule| schedule.delay(client).as_nanos());
                i64::try_from(delay).unwrap_or(0)
            };
            // Of a policy that is due at other times now, what was noted of its clients is forgotten.
            let is_rescheduled = plan.changes.iter().any(|change| change.name == *name && change.is_rescheduled);
            let begins = |client: &&String| (is_rescheduled && schedule.is_some()) || !before.contains(*client);
            let joins = after.iter().filter(begins);
            edits.extend(joins.map(|client| PolicyEdit::Join { name, client, delay_ns: delay_ns(client) }));
            edits.extend(before.difference(after).map(|client| PolicyEdit::Leave { name, client }));
        }
        let _presence = self.presence()?;
        let mut catalog = locked(&self.catalog);
        catalog.edit_policies(&plan.seen, &edits, self.now_ns())?;
        let changes = |policy: &&BackupPolicy| plan.changes.iter().any(|change| change.name == policy.name);
        Self::note_rules_before(&mut catalog, before.iter().filter(changes))?;
        let is_new = |policy: &&BackupPolicy| before.iter().all(|known| known.name != policy.name);
        self.note_rules_of_new(&mut catalog, after.iter().filter(is_new))
    }

    /// Policies as a file that gives the same policies again: those named, or all.
    ///
    /// # Errors
    /// [`DirectorError::UnknownPolicy`] if there is none of a name. Otherwise the catalog cannot be read.
    pub fn export_policies(&self, names: &[String]) -> Result<String, DirectorError> {
        let texts = locked(&self.catalog).policies()?;
        if let Some(name) = names.iter().find(|name| !texts.iter().any(|text| text.name == **name)) {
            return Err(unknown(name));
        }
        let chosen = texts.iter().filter(|text| names.is_empty() || names.contains(&text.name));
        let policies: toml::Table =
            chosen.map(|text| (text.name.clone(), toml::Value::Table(table(&text.text)))).collect();
        let file = toml::Table::from_iter([("policies".to_owned(), toml::Value::Table(policies))]);
        text_of(&file)
    }

    /// Has the policies stand beside the jobs of the settings, as they are in the catalog now.
    pub(crate) fn fold_policies_in(&mut self) -> Result<(), DirectorError> {
        let policies = self.policies()?;
        let config = (*self.config).clone();
        self.take_policies_in(fold(config, &policies));
        Ok(())
    }

    /// The same with the jobs and scripts of the settings as they are now, in place of those that it was opened with.
    pub(crate) fn fold_policies_in_now(&mut self) -> Result<(), DirectorError> {
        let (policies, opened) = (self.policies()?, Arc::clone(&self.config));
        let by = |now: &Config| {
            let (jobs, scripts) = (now.jobs.clone(), now.scripts.clone());
            fold(Config { jobs, scripts, ..(*opened).clone() }, &policies)
        };
        // What follows from no policies is kept nowhere.
        let folded = self.known_policies.folded(&policies, &opened, by).unwrap_or_else(|| by(&self.settings_now()));
        self.take_policies_in(folded);
        Ok(())
    }

    fn take_policies_in(&mut self, folded: FoldedPolicies) {
        (self.config, self.policy_names, self.policy_faults) = (folded.config, folded.names, folded.faults);
    }
}

/// Refuses a second policy that copies the same backups to the same pool: who of them says how long the copy is kept?
fn check_alone(
    (name, policy): (&String, &JobConfig),
    named: &PolicyFile,
    seen: &[PolicyText],
    others: OtherPolicies,
) -> Result<(), Wrong> {
    let stays = |text: &&PolicyText| others == OtherPolicies::Keep && !named.policies.contains_key(&text.name);
    let texts = seen.iter().filter(stays);
    let those: Vec<(&String, JobConfig)> =
        texts.map(|text| (&text.name, toml::from_str(&text.text).unwrap_or_default())).collect();
    let all = named.policies.iter().chain(those.iter().map(|(name, policy)| (*name, policy)));
    for (other, config) in all.filter(|(other, _)| *other != name) {
        let pool = policy.first_pool();
        if let Some(copied) = policy.copies_of.iter().find(|copied| config.copies_to(pool, copied)) {
            let reason =
                format!("policy {other} copies the backups of {copied} to pool {pool} already: name another pool");
            return Err((Some("pool"), reason));
        }
    }
    Ok(())
}

/// What keeps a policy from copying the backups of another one, if anything does.
fn check_copying(policy: &JobConfig, copied: &str, other: &JobConfig) -> Result<(), Wrong> {
    if other.is_of_care() {
        let reason = "looks after volumes, and makes no backups: name policies that do";
        return Err((Some("copies_of"), format!("{copied} {reason}")));
    }
    if other.is_of_copies() {
        let reason = "copies itself what others back up: name the policies whose backups those are";
        return Err((Some("copies_of"), format!("{copied} {reason}")));
    }
    check_pools(policy, copied, other).map_err(|reason| (Some("pool"), reason))
}

/// Policies beside the jobs of settings. A job of the settings stays what its timer means.
fn fold(mut config: Config, policies: &[BackupPolicy]) -> FoldedPolicies {
    let (mut names, mut faults) = (BTreeSet::new(), BTreeMap::new());
    for policy in policies {
        if !config.jobs.contains_key(&policy.name) {
            faults.extend(policy.fault.clone().map(|fault| (policy.name.clone(), fault)));
            names.insert(policy.name.clone());
            config.jobs.insert(policy.name.clone(), policy.config.clone());
        }
    }
    FoldedPolicies { config: Arc::new(config), names: Arc::new(names), faults: Arc::new(faults) }
}

fn unknown(name: &str) -> DirectorError {
    DirectorError::UnknownPolicy { name: name.to_owned() }
}

/// A policy from its text, with the programs that this machine's settings have for its scripts. `opened` are the
/// settings by which libraries were opened.
fn read(text: PolicyText, settings: &Config, opened: &Config) -> BackupPolicy {
    let PolicyText { name, text, changed_ns, scheduled_ns } = text;
    let (mut config, mut fault) = match toml::from_str::<JobConfig>(&text) {
        Ok(config) => (config, None),
        Err(error) => {
            let fault = format!("this version cannot read it: {}", in_plain_words(error.message()));
            (JobConfig::default(), Some(fault))
        }
    };
    if settings.jobs.contains_key(&name) {
        fault = Some("capstan.toml has a job of that name: give one of them another name".to_owned());
    }
    if let Err(reason) = check_unit(&config, opened) {
        fault.get_or_insert(reason);
    }
    if let Err((key, reason)) = config.check_policy(&name) {
        let place = key.map_or(String::new(), |key| format!("{key}: "));
        fault.get_or_insert(format!("{place}{reason}"));
    }
    // What other machines run stands in their own settings.
    if !config.is_of_clients()
        && let Err(reason) = name_programs(&mut config, settings)
    {
        fault.get_or_insert(reason);
    }
    if fault.is_some() {
        // What it says itself is never run.
        for script in [&mut config.stdin_command, &mut config.before, &mut config.after] {
            script.clear();
        }
    }
    BackupPolicy { name, config, fault, changed_ns, scheduled_ns }
}

/// Whether its pool is there and gives it what it lacks.
fn check_pool(config: &JobConfig, pools: &[Pool]) -> Result<(), String> {
    if config.is_of_care() {
        let missing = config.care_of.iter().find(|name| pools.iter().all(|pool| pool.name != **name));
        return missing
            .map_or(Ok(()), |name| Err(format!("care_of: {}", DirectorError::UnknownPool { pool: name.to_owned() })));
    }
    let name = config.pool.as_deref().unwrap_or(DEFAULT_POOL);
    let Some(pool) = pools.iter().find(|pool| pool.name == name) else {
        return Err(format!("pool: {}", DirectorError::UnknownPool { pool: name.to_owned() }));
    };
    if let Some(name) = config.stage_pool.as_ref().filter(|name| pools.iter().all(|pool| pool.name != **name)) {
        return Err(format!("stage_pool: {}", DirectorError::UnknownPool { pool: name.clone() }));
    }
    if config.lock && config.retention.is_none() && pool.retention_ns.is_none() {
        return Err(format!("lock: a locked retention must end: give it, or pool {name}, a retention"));
    }
    Ok(())
}

/// Whether its storage unit is there and can have a drive for each copy.
fn check_unit(config: &JobConfig, opened: &Config) -> Result<(), String> {
    let Some(unit) = opened.unit(config.unit.as_deref()) else {
        let reason = opened.no_such_unit(config.unit.as_deref().unwrap_or_default());
        return Err(format!("unit: {reason} (a server learns of new ones when it is started again)"));
    };
    if let Some(name) = &config.stage {
        let Some(stage) = opened.unit(Some(name)) else {
            return Err(format!(
                "stage: {} (a server learns of new ones when it is started again)",
                opened.no_such_unit(name)
            ));
        };
        if let Some(both) = stage.libraries.iter().find(|library| unit.libraries.contains(library)) {
            return Err(format!(
                "stage: library {both} is one of the policy's unit, too: name a unit of other libraries"
            ));
        }
    }
    // All copies of an object are written in one library. How many drives a mover's has, and one whose drives answer
    // themselves, is not known here.
    let drives_of = |name: &String| {
        let (_, library) = opened.all_libraries().find(|(known, _)| known == name)?;
        (DrivesOwner::of(library) == DrivesOwner::Settings).then_some(library.drives)
    };
    // Nor which movers will have its labels.
    let is_known = opened.units.get(&unit.name).is_none_or(|settings| settings.mover_labels.is_empty());
    let most = unit.libraries.iter().map(drives_of).try_fold(0, |most, drives| Some(drives?.max(most)));
    let most = most.filter(|_| is_known);
    let copies = config.copies.unwrap_or(1);
    match (unit.drives, most) {
        (Some(bound), _) if u32::from(copies) > bound => {
            let of = if unit.models.is_empty() { String::new() } else { format!(" (of {})", unit.models.join(", ")) };
            Err(format!(
                "copies: it makes {copies} copies at once, and its storage unit {} has a bound of {bound}{of}",
                unit.name
            ))
        }
        (_, Some(drives)) if copies > 1 && u32::from(copies) > drives => {
            let too_few = DirectorError::TooFewDrives { copies, drives, owner: DrivesOwner::Settings };
            Err(format!("copies: {too_few}"))
        }
        _ => Ok(()),
    }
}

/// What changes if these are the policies, beside or instead of the others.
fn changes(
    seen: Vec<PolicyText>,
    wanted: &BTreeMap<String, toml::Table>,
    others: OtherPolicies,
) -> Result<PolicyChanges, DirectorError> {
    let (mut changes, mut unchanged) = (Vec::new(), 0);
    for (name, after) in wanted {
        let known = seen.iter().find(|policy| policy.name == *name);
        let before = known.map(|policy| table(&policy.text)).unwrap_or_default();
        let settings = differences(&before, after);
        if known.is_some() && settings.is_empty() {
            unchanged += 1;
            continue;
        }
        let (text, is_rescheduled) = (Some(text_of(after)?), times(&before) != times(after));
        changes.push(PolicyChange { name: name.clone(), text, is_known: known.is_some(), settings, is_rescheduled });
    }
    if others == OtherPolicies::Remove {
        for policy in seen.iter().filter(|policy| !wanted.contains_key(&policy.name)) {
            let settings = differences(&table(&policy.text), &toml::Table::new());
            let (name, text, is_known) = (policy.name.clone(), None, true);
            changes.push(PolicyChange { name, text, is_known, settings, is_rescheduled: false });
        }
    }
    Ok(PolicyChanges { seen, changes, unchanged })
}

fn text_of(table: &toml::Table) -> Result<String, DirectorError> {
    let unwritable = |error: toml::ser::Error| error.to_string();
    let wrong = |reason| DirectorError::Config { path: Path::new("policies").to_owned(), reason };
    toml::to_string(table).map_err(unwritable).map_err(wrong)
}

fn table(text: &str) -> toml::Table {
    text.parse().unwrap_or_default()
}

/// At which times a policy is due, however that is written; none while it is switched off.
fn times(policy: &toml::Table) -> Option<(Option<CalendarEvent>, Option<String>)> {
    let text = |key: &str| policy.get(key).and_then(toml::Value::as_str);
    let is_off = policy.get("enabled").and_then(toml::Value::as_bool) == Some(false);
    let event = text("schedule").and_then(|schedule| schedule.parse().ok());
    (!is_off).then(|| (event, text("zone").map(str::to_owned)))
}

fn differences(before: &toml::Table, after: &toml::Table) -> Vec<PolicySetting> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let words = |table: &toml::Table, key: &str| table.get(key).map(ToString::to_string);
    let change =
        |key: &String| PolicySetting { key: key.clone(), before: words(before, key), after: words(after, key) };
    keys.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

/// Puts the programs in the place of the scripts that a policy names.
fn name_programs(config: &mut JobConfig, settings: &Config) -> Result<(), String> {
    for (key, script) in
        [("stdin_command", &mut config.stdin_command), ("before", &mut config.before), ("after", &mut config.after)]
    {
        let Some(named) = script.first() else { continue };
        match settings.scripts.get(named) {
            Some(command) => script.clone_from(command),
            None => {
                return Err(format!(
                    "{key}: capstan.toml of this machine has no script {named}: add it there under [scripts]"
                ));
            }
        }
    }
    Ok(())
}
