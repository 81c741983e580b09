//! What users do at a cell: their rights are looked at, what changes something is noted, and then it is done.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use capstan_catalog::{Object, ObjectFilter};
use capstan_director::Site;
use capstan_keys::Name;
use capstan_service::audit::{AuditActor, AuditEntry, AuditFact, AuditOrigin, AuditOutcome};
use capstan_service::roles::{TableAct, TableRole};

use super::log::{self, KnownNames, Refusals, note};
use super::rights::{CellAct, CellRole, ClientsOf, Rights};
use super::words::{AuditAnswer, AuditChecked, CellObjectRow, CellObjectsAnswer, ObjectsQuery, WhoAnswer};
use crate::cell::CellError;
use crate::cell::own_object::{OBJECTS_MAX, own_object};

/// Records that are shown if nobody says how many.
const RECORDS_USUAL: usize = 100;

/// What somebody does at a cell: a user over the network, or whoever has the state directory in hand.
pub struct CellActs {
    pub(super) site: Site,
    who: AuditActor,
    name: String,
    from: AuditOrigin,
    rights: Rights,
    /// Who counts refusals; nobody at a shell.
    refusals: Option<Arc<Refusals>>,
}

/// Somebody at a shell of the server's machine, as the log names them.
pub(super) fn shell_actor(user_id: u32) -> Result<AuditActor, CellError> {
    let no_name = |_| CellError::AuditLog { reason: "the user id makes no name".to_owned() };
    Ok(AuditActor::Peer { kind: "shell", name: format!("uid-{user_id}").parse().map_err(no_name)? })
}

impl CellActs {
    /// Acts of somebody at a shell of the server's machine, with the user id that the machine has for them. Whoever can
    /// write the state directory may do everything.
    ///
    /// # Errors
    /// [`CellError::AuditLog`] if a user id makes no name.
    pub fn at_shell(site: &Site, user_id: u32) -> Result<Self, CellError> {
        let (from, rights) = (AuditOrigin::Here, Rights::of_shell());
        let (name, who) = (format!("uid-{user_id}"), shell_actor(user_id)?);
        Ok(Self { site: site.clone(), who, name, from, rights, refusals: None })
    }

    /// Acts of a user who has proved who they are; what they may do, the catalog says now.
    pub(in crate::cell) fn of_user(
        site: &Site,
        name: &Name,
        from: SocketAddr,
        refusals: &Arc<Refusals>,
    ) -> Result<Self, CellError> {
        let row = site.catalog().user(name.as_str())?;
        let rights = row.as_ref().map(Rights::of).ok_or_else(|| CellError::UnknownUser { name: name.to_string() })?;
        let who = AuditActor::Peer { kind: "user", name: name.clone() };
        let (name, from, refusals) = (name.to_string(), AuditOrigin::Address(from), Some(Arc::clone(refusals)));
        Ok(Self { site: site.clone(), who, name, from, rights, refusals })
    }

    /// Whether the act is theirs at all. A no is noted.
    pub(in crate::cell) fn permitted(&self, act: CellAct) -> Result<(), CellError> {
        if self.rights.of_whom(act) != ClientsOf::Nobody {
            return Ok(());
        }
        self.refused(self.entry(act), "no role of this user may do it")?;
        let (user, roles) = (self.name.clone(), self.rights.roles().to_string());
        Err(CellError::Denied { user, roles, what: act.words(), may: act.roles_in_words() })
    }

    /// Whether the act is theirs for a client. A no is noted.
    pub(in crate::cell) fn permitted_of(&self, act: CellAct, client: &str) -> Result<(), CellError> {
        if self.rights.may_of(act, client) {
            return Ok(());
        }
        // A name that is none of a machine is a text that somebody typed.
        let entry = match client.parse::<Name>() {
            Ok(name) => self.entry(act).with("client", &name),
            Err(_) => self.entry(act),
        };
        self.refused(entry, "the user is not named for the client")?;
        Err(CellError::NotNamedFor { user: self.name.clone(), client: client.to_owned() })
    }

    /// Whether the act of a user is still theirs, who may have been revoked since, or have other roles.
    pub(in crate::cell) fn still_permitted(&self, act: CellAct) -> Result<(), CellError> {
        let catalog = self.site.catalog();
        let rights = catalog.user(&self.name)?.as_ref().map(Rights::of);
        let peers = catalog.peers_named("user", &self.name)?;
        drop(catalog);
        let is_let_in = peers.iter().any(|peer| peer.revoked_ns.is_none() && peer.expires_ns > self.site.now_ns());
        match rights.filter(|rights| is_let_in && rights.of_whom(act) != ClientsOf::Nobody) {
            Some(_) => Ok(()),
            None => Err(CellError::NoMore { user: self.name.clone(), what: act.words() }),
        }
    }

    /// What they may do.
    pub(in crate::cell) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Notes that something was refused.
    pub(in crate::cell) fn refused(&self, entry: AuditEntry, why: &'static str) -> Result<(), CellError> {
        match &self.refusals {
            Some(refusals) if !refusals.is_noted(&format!("user/{}", self.name)) => Ok(()),
            _ => note(&self.site, entry.came_to(AuditOutcome::Refused { why: AuditFact::from(why) })),
        }
    }

    /// A record of what they do.
    pub(super) fn entry(&self, act: CellAct) -> AuditEntry {
        AuditEntry::new(self.who.clone(), self.from, capstan_service::audit::AuditAction::named(act.name()))
    }

    /// Does something that changes something: noted before it begins and when it has ended. Whoever finds a beginning
    /// alone has to look what became of it.
    pub(super) fn does<T>(
        &self,
        act: CellAct,
        noted: impl FnOnce(AuditEntry) -> AuditEntry,
        work: impl FnOnce(&Site) -> Result<T, CellError>,
    ) -> Result<T, CellError> {
        self.permitted(act)?;
        log::noted(&self.site, noted(self.entry(act)), Err, CellError::for_the_log, || work(&self.site))
    }

    /// Who they are, and what they may do.
    #[must_use]
    pub fn who(&self) -> WhoAnswer {
        let may = |act: &&CellAct| self.rights.of_whom(**act) != ClientsOf::Nobody;
        WhoAnswer {
            user: self.name.clone(),
            roles: self.rights.roles().iter().map(|role: CellRole| role.name().to_owned()).collect(),
            clients: self.rights.clients().to_vec(),
            acts: CellAct::ALL.iter().filter(may).map(|act| act.name().to_owned()).collect(),
        }
    }

    /// What was backed up of the clients that they may see.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be opened or read.
    pub fn objects(&self, asked: &ObjectsQuery) -> Result<CellObjectsAnswer, CellError> {
        self.permitted(CellAct::ListObjects)?;
        let shown = |object: &&Object| self.rights.may_of(CellAct::ListObjects, &object.client);
        // A client that is not theirs is as one that is not there.
        let (client, policy) = (asked.client.clone(), asked.policy.clone());
        let filter = ObjectFilter { client, policy, ..ObjectFilter::default() };
        // There may be many: nobody else waits for the catalog meanwhile.
        let site = self.site.with_own_catalog()?;
        let objects = site.catalog().objects(&filter)?;
        let wanted = |object: &&Object| {
            asked.since_ns.is_none_or(|since_ns| object.started_ns >= since_ns)
                && asked.source.as_ref().is_none_or(|source| *source == own_object(object).source.as_str())
        };
        let row = |object: &Object| CellObjectRow { client: object.client.clone(), own: own_object(object) };
        let found = objects.iter().filter(wanted).filter(shown);
        Ok(CellObjectsAnswer { objects: found.take(OBJECTS_MAX).map(row).collect() })
    }

    /// Whether they may have something of one client restored to another one, or to the same: a restorer must be named
    /// for both. Gives what is noted of it.
    ///
    /// # Errors
    /// [`CellError::Denied`] or [`CellError::NotNamedFor`].
    pub(in crate::cell) fn restores(&self, of: &str, to: &str) -> Result<AuditEntry, CellError> {
        self.permitted(CellAct::Restore)?;
        let entry = self.entry(CellAct::Restore).reading();
        match [of, to].into_iter().find(|client| !self.rights.may_of(CellAct::Restore, client)) {
            None => Ok(entry.of("client", known(of)).with("to", known(to))),
            Some(client) => {
                // A name that is none of a machine is a text that somebody typed.
                let named = |entry: AuditEntry, fact, name: &str| match name.parse::<Name>() {
                    Ok(name) => entry.with(fact, &name),
                    Err(_) => entry,
                };
                self.refused(named(named(entry, "client", of), "to", to), "the user is not named for the client")?;
                Err(CellError::NotNamedFor { user: self.name.clone(), client: client.to_owned() })
            }
        }
    }

    /// The name of whoever acts.
    pub(in crate::cell) fn name(&self) -> &str {
        &self.name
    }

    /// The last records of the audit log. That they were read is noted.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the log cannot be read or written.
    pub fn audit(&self, last: Option<u32>) -> Result<AuditAnswer, CellError> {
        self.permitted(CellAct::ReadAudit)?;
        note(&self.site, self.entry(CellAct::ReadAudit))?;
        let last = last.map_or(RECORDS_USUAL, |last| last as usize);
        Ok(AuditAnswer { records: log::records(&self.site, last)? })
    }

    /// Checks the audit log.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the log cannot be read or written.
    pub fn check_audit(&self) -> Result<AuditChecked, CellError> {
        self.permitted(CellAct::ReadAudit)?;
        let report = log::check(&self.site)?;
        let entry = self.entry(CellAct::ReadAudit).with("checked-to", report.last.sequence);
        // A log that is not whole is not written any further.
        if report.finding.is_none() {
            note(&self.site, entry)?;
        }
        let finding = report.finding.map(|finding| finding.to_string());
        let (first, last, anchored_to) = (report.first, report.last.sequence, report.anchored_to);
        Ok(AuditChecked { first, last, anchored_to, finding })
    }
}

/// A path as text; bytes that are no UTF-8 are replaced.
pub(super) fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// The sources of a policy, as they are listed.
pub(super) fn sources_of(config: &capstan_director::JobConfig) -> Vec<String> {
    let paths = config.sources.iter().map(|path| lossy(path.as_os_str().as_bytes()));
    paths.chain(config.stdin.clone()).collect()
}

/// A record's fact of one name that the catalog has.
pub(super) fn known(name: &str) -> AuditFact {
    AuditFact::from(KnownNames(&[name]))
}
