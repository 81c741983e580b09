//! Machines and users of the cell, as users see, enrol and revoke them.

use std::collections::BTreeSet;
use std::time::Duration;

use capstan_catalog::UserRow;
use capstan_keys::Name;
use capstan_keys::api::{PeerId, PeerKind};
use capstan_service::audit::{AuditEntry, AuditFact};
use capstan_service::roles::TableRole;

use super::acts::CellActs;
use super::log::KnownNames;
use super::rights::{CellAct, CellRole, CellRoles, Rights};
use super::words::{
    CellUserRow, ChangeUser, EnrolMember, EnrolUser, LabelMember, MachineKind, MemberChangeRow, MemberEnrolmentRow,
    MemberName, MemberRow, MembersAnswer, RevokeMember, RevokeUser, UsersAnswer,
};
use crate::cell::CellError;
use crate::cell::enrolments::{CellPeer, CellPeerState, cell_members, enrol_member, enrolment_address, revoke_member};

/// The longest time that a passphrase may be valid.
const VALID_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

impl CellActs {
    /// The clients or the movers.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read.
    pub fn members(&self, kind: MachineKind) -> Result<MembersAnswer, CellError> {
        self.permitted(CellAct::ListMembers)?;
        let members = cell_members(&self.site, kind.into())?;
        let labels = self.site.catalog().member_labels(PeerKind::from(kind).as_str())?;
        let row = |member: CellPeer| MemberRow {
            labels: labels.iter().filter(|one| one.member == member.name).map(|one| one.label.clone()).collect(),
            member: MemberName::new(kind.into(), member.name),
            state: state_word(member.state).into(),
            connected: member.is_connected,
            seen_ns: member.seen_ns,
            address: member.address,
            version: Some(member.version).filter(|version| !version.is_empty()),
            until_ns: member.until_ns,
        };
        Ok(MembersAnswer { members: members.into_iter().map(row).collect() })
    }

    /// Opens the enrolment of a client or a mover.
    ///
    /// # Errors
    /// [`CellError::Denied`], [`CellError::ValidTooLong`], and those of [`enrol_member`].
    pub fn enrol_member(&self, asked: &EnrolMember) -> Result<MemberEnrolmentRow, CellError> {
        self.permitted(CellAct::ChangeMembers)?;
        let (kind, name) = (PeerKind::from(asked.kind), &asked.name);
        let noted = |entry: AuditEntry| entry.of(kind.as_str(), name).with("change", "enrol");
        self.does(CellAct::ChangeMembers, noted, |_| self.enrol(kind, name, asked.valid_seconds))
    }

    /// Gives a client or a mover labels, in place of those before.
    ///
    /// # Errors
    /// [`CellError::Denied`]; [`CellError::UnknownMember`] if there is none of the name.
    pub fn label_member(&self, asked: &LabelMember) -> Result<MemberChangeRow, CellError> {
        self.permitted(CellAct::ChangeMembers)?;
        let kind = PeerKind::from(asked.kind);
        let labels: BTreeSet<_> = asked.labels.iter().map(Name::to_string).collect();
        let labels: Vec<_> = labels.into_iter().collect();
        let noted = |entry: AuditEntry| {
            let names: Vec<_> = labels.iter().map(String::as_str).collect();
            let entry = entry.of(kind.as_str(), &asked.name).with("change", "label");
            if names.is_empty() { entry } else { entry.with("labels", AuditFact::from(KnownNames(&names))) }
        };
        self.does(CellAct::ChangeMembers, noted, |site| {
            let members = cell_members(site, kind)?;
            if members.iter().all(|member| member.name != asked.name.as_str()) {
                let peer = PeerId { kind, name: asked.name.clone() };
                return Err(CellError::UnknownMember(peer));
            }
            site.label_member(kind.as_str(), asked.name.as_str(), &labels)?;
            Ok(changed(kind, &asked.name, "labelled"))
        })
    }

    /// Revokes a client or a mover.
    ///
    /// # Errors
    /// [`CellError::Denied`], and those of [`revoke_member`].
    pub fn revoke_member(&self, asked: &RevokeMember) -> Result<MemberChangeRow, CellError> {
        self.permitted(CellAct::ChangeMembers)?;
        self.revoke(CellAct::ChangeMembers, asked.kind.into(), &asked.name)
    }

    /// The users.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read.
    pub fn users(&self) -> Result<UsersAnswer, CellError> {
        self.permitted(CellAct::ListUsers)?;
        let known = self.site.catalog().users()?;
        let members = cell_members(&self.site, PeerKind::User)?;
        let row = |member: CellPeer| {
            let rights = known.iter().find(|row| row.name == member.name).map(Rights::of);
            let roles = rights.as_ref().map(Rights::roles).unwrap_or_default();
            CellUserRow {
                user: member.name,
                roles: roles.iter().map(|role: CellRole| role.name().to_owned()).collect(),
                clients: rights.map(|rights| rights.clients().to_vec()).unwrap_or_default(),
                state: state_word(member.state).into(),
                seen_ns: member.seen_ns,
                address: member.address,
                until_ns: member.until_ns,
            }
        };
        let gone = known.iter().filter(|row| members.iter().all(|member| member.name != row.name));
        // Whose certificate ended long ago.
        let as_ended = |row: &UserRow| CellPeer {
            name: row.name.clone(),
            state: CellPeerState::Expired,
            seen_ns: None,
            address: None,
            version: String::new(),
            until_ns: None,
            is_connected: false,
        };
        let gone: Vec<_> = gone.map(as_ended).collect();
        Ok(UsersAnswer { users: members.into_iter().chain(gone).map(row).collect() })
    }

    /// Opens the enrolment of a user, who then has these roles.
    ///
    /// # Errors
    /// [`CellError::Denied`], [`CellError::Roles`], [`CellError::ValidTooLong`], and those of [`enrol_member`].
    pub fn enrol_user(&self, asked: &EnrolUser) -> Result<MemberEnrolmentRow, CellError> {
        self.permitted(CellAct::ChangeUsers)?;
        let rights = rights_of(&asked.roles, &asked.clients)?;
        let noted = |entry: AuditEntry| with_rights(entry.of("user", &asked.name).with("change", "enrol"), &rights);
        self.does(CellAct::ChangeUsers, noted, |site| {
            // Whoever joins finds what they may do.
            let opened = self.enrol(PeerKind::User, &asked.name, asked.valid_seconds)?;
            site.put_user(&rights.row(asked.name.as_str()))?;
            Ok(MemberEnrolmentRow { not_joined: self.not_joined(&asked.clients)?, ..opened })
        })
    }

    /// Gives a user other roles.
    ///
    /// # Errors
    /// [`CellError::Denied`], [`CellError::Roles`]; [`CellError::UnknownUser`] if there is none of the name.
    pub fn change_user(&self, asked: &ChangeUser) -> Result<MemberChangeRow, CellError> {
        self.permitted(CellAct::ChangeUsers)?;
        let rights = rights_of(&asked.roles, &asked.clients)?;
        let noted = |entry: AuditEntry| with_rights(entry.of("user", &asked.name).with("change", "roles"), &rights);
        self.does(CellAct::ChangeUsers, noted, |site| {
            let name = asked.name.as_str();
            if site.catalog().user(name)?.is_none() {
                return Err(CellError::UnknownUser { name: name.to_owned() });
            }
            site.put_user(&rights.row(name))?;
            let not_joined = self.not_joined(&asked.clients)?;
            Ok(MemberChangeRow { not_joined, ..changed(PeerKind::User, &asked.name, "changed") })
        })
    }

    /// Revokes a user: nobody is let in by the certificate any more.
    ///
    /// # Errors
    /// [`CellError::Denied`], and those of [`revoke_member`].
    pub fn revoke_user(&self, asked: &RevokeUser) -> Result<MemberChangeRow, CellError> {
        self.permitted(CellAct::ChangeUsers)?;
        self.revoke(CellAct::ChangeUsers, PeerKind::User, &asked.name)
    }

    /// Those of these clients that have not joined: one may yet, or the name was mistyped.
    fn not_joined(&self, clients: &[Name]) -> Result<Vec<String>, CellError> {
        let known = cell_members(&self.site, PeerKind::Client)?;
        let is_known = |name: &str| name == self.site.client() || known.iter().any(|client| client.name == name);
        Ok(clients.iter().map(Name::to_string).filter(|name| !is_known(name)).collect())
    }

    fn enrol(&self, kind: PeerKind, name: &Name, valid_seconds: u64) -> Result<MemberEnrolmentRow, CellError> {
        let valid = Duration::from_secs(valid_seconds);
        if valid > VALID_MAX {
            return Err(CellError::ValidTooLong);
        }
        let opened = enrol_member(&self.site, &PeerId { kind, name: name.clone() }, valid)?;
        let address = enrolment_address(&self.site)?;
        let server = address.as_deref().unwrap_or("SERVER:5702");
        Ok(MemberEnrolmentRow {
            member: MemberName::new(kind, name.to_string()),
            passphrase: opened.passphrase.expose().to_string(),
            expires_ns: opened.expires_ns,
            command: format!("capstan {kind} join {server} --name {name}"),
            address,
            not_joined: Vec::new(),
        })
    }

    fn revoke(&self, act: CellAct, kind: PeerKind, name: &Name) -> Result<MemberChangeRow, CellError> {
        let noted = |entry: AuditEntry| entry.of(kind.as_str(), name).with("change", "revoke");
        self.does(act, noted, |site| {
            revoke_member(site, &PeerId { kind, name: name.clone() })?;
            Ok(changed(kind, name, "revoked"))
        })
    }
}

fn changed(kind: PeerKind, name: &Name, change: &'static str) -> MemberChangeRow {
    MemberChangeRow { member: MemberName::new(kind, name.to_string()), change: change.into(), not_joined: Vec::new() }
}

/// The rights that these names are.
fn rights_of(roles: &[String], clients: &[Name]) -> Result<Rights, CellError> {
    let named = |name: &String| CellRole::named(name).ok_or_else(|| CellError::UnknownRole { name: name.clone() });
    let roles = roles.iter().map(named).collect::<Result<CellRoles, _>>()?;
    Rights::new(roles, clients.iter().map(Name::to_string).collect())
}

/// A record with the roles that somebody gets.
fn with_rights(entry: AuditEntry, rights: &Rights) -> AuditEntry {
    let names = |entry: AuditEntry, fact, names: Vec<&str>| match names.is_empty() {
        true => entry,
        false => entry.with(fact, AuditFact::from(KnownNames(&names))),
    };
    let roles = rights.roles().iter().map(|role: CellRole| role.name()).collect();
    let clients = rights.clients().iter().map(String::as_str).collect();
    names(names(entry, "roles", roles), "clients", clients)
}

fn state_word(state: CellPeerState) -> &'static str {
    match state {
        CellPeerState::Enrolled => "enrolled",
        CellPeerState::Waiting => "waiting",
        CellPeerState::Revoked => "revoked",
        CellPeerState::Expired => "expired",
    }
}
