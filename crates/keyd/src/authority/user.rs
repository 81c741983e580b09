//! Users: people, known by their certificates.

use std::collections::{BTreeMap, BTreeSet};

use capstan_format::{Cursor, FormatError};
use capstan_keys::Name;
use thiserror::Error;

use super::bytes::{name, put_name, version};
use super::{CertificateSerial, Denied, QuorumRule, Role, Roles};

const WHAT: &str = "user";
const VERSION: u8 = 1;
/// The one in use, the one that takes its place, and those of a few devices.
const CERTIFICATES_MAX: usize = 16;

/// Whether somebody is still with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserStatus {
    /// May do what their roles say.
    Enabled,
    /// May nothing; the record stays, for the audit log names it.
    Disabled,
}

/// A person; the record `user/<name>` of the ledger.
///
/// ```text
/// version 1 (1) | name | roles (1): the sum of 1 security officer, 2 compliance officer, 4 operator, 8 backup operator, 16 auditor,
/// 32 quorum member | standing (1): 1 enabled, 2 disabled | number of certificates (1), to 16 | of each, ascending: its length
/// (1), 1 to 20, and its serial number
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name, which is never given to another person: the audit log knows no other.
    pub name: Name,
    /// What they may do.
    pub roles: Roles,
    /// The certificates that prove who they are.
    pub certificates: BTreeSet<CertificateSerial>,
    /// Whether they still may.
    pub standing: UserStatus,
}

impl User {
    /// An enabled user without certificates.
    pub fn new(name: Name, roles: Roles) -> Self {
        Self { name, roles, certificates: BTreeSet::new(), standing: UserStatus::Enabled }
    }

    /// Whether they are enabled and have a role.
    pub fn is(&self, role: Role) -> bool {
        self.standing == UserStatus::Enabled && self.roles.contains(role)
    }

    /// Whether the record can be: an auditor with another role, and more certificates than a record holds, cannot.
    pub fn check(&self) -> Result<(), Unworkable> {
        if self.roles.contains(Role::Auditor) && self.roles.iter().count() > 1 {
            return Err(Unworkable::AuditorWhoActs { user: self.name.clone(), roles: self.roles });
        }
        if self.certificates.len() > CERTIFICATES_MAX {
            return Err(Unworkable::TooManyCertificates { user: self.name.clone() });
        }
        Ok(())
    }

    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put_name(&mut bytes, &self.name);
        let standing = match self.standing {
            UserStatus::Enabled => 1,
            UserStatus::Disabled => 2,
        };
        bytes.extend_from_slice(&[self.roles.bits(), standing, self.certificates.len() as u8]);
        for serial in &self.certificates {
            bytes.push(serial.as_bytes().len() as u8);
            bytes.extend_from_slice(serial.as_bytes());
        }
        bytes
    }

    /// The record of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Cursor::new(WHAT, bytes);
        version(&mut fields, WHAT, VERSION)?;
        let name = name(&mut fields)?;
        let bits = fields.u8()?;
        let roles = Roles::from_bits(bits).ok_or_else(|| fields.field("roles", &bits))?;
        let standing = match fields.u8()? {
            1 => UserStatus::Enabled,
            2 => UserStatus::Disabled,
            other => return Err(fields.field("standing", &other)),
        };
        let mut certificates = BTreeSet::new();
        for _ in 0..fields.u8()? {
            let len = usize::from(fields.u8()?);
            let bytes = fields.take(len)?;
            let serial =
                CertificateSerial::new(bytes).ok_or_else(|| fields.field("length of a serial number", &len))?;
            if certificates.last().is_some_and(|last| *last >= serial) {
                return Err(fields.field("serial number", &"one out of order"));
            }
            certificates.insert(serial);
        }
        fields.end()?;
        let user = Self { name, roles, certificates, standing };
        user.check().map_err(|contradiction| fields.field("roles", &contradiction))?;
        Ok(user)
    }
}

/// All users, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<Name, User>);

impl Users {
    /// A user.
    pub fn get(&self, name: &Name) -> Option<&User> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.0.values()
    }

    /// Takes a user in, in the place of the one of that name.
    pub fn put(&mut self, user: User) {
        self.0.insert(user.name.clone(), user);
    }

    /// Who has a certificate. The handshake has proved that the caller holds it.
    pub fn identify(&self, serial: &CertificateSerial) -> Result<&User, Denied> {
        let unknown = || Denied::UnknownCertificate { serial: serial.clone() };
        let user = self.iter().find(|user| user.certificates.contains(serial)).ok_or_else(unknown)?;
        match user.standing {
            UserStatus::Enabled => Ok(user),
            UserStatus::Disabled => Err(Denied::Disabled { user: user.name.clone() }),
        }
    }

    /// Whether a cluster with these users can be governed. Asked of the users as they are to be, before any change of
    /// them.
    pub fn check(&self, rule: &QuorumRule) -> Result<(), Unworkable> {
        let mut owners = BTreeMap::new();
        for user in self.iter() {
            user.check()?;
            for serial in &user.certificates {
                if let Some(other) = owners.insert(serial, &user.name) {
                    let (serial, one, other) = (serial.clone(), other.clone(), user.name.clone());
                    return Err(Unworkable::SharedCertificate { serial, one, other });
                }
            }
        }
        let members =
            |but: &User| self.iter().filter(|user| user.is(Role::QuorumMember) && user.name != but.name).count();
        let officers: Vec<_> = self.iter().filter(|user| user.is(Role::SecurityOfficer)).map(members).collect();
        let Some(&approvers) = officers.iter().max() else { return Err(Unworkable::NoSecurityOfficer) };
        if approvers < usize::from(rule.needed()) {
            return Err(Unworkable::TooFewMembers { approvers, needed: rule.needed() });
        }
        Ok(())
    }
}

impl FromIterator<User> for Users {
    fn from_iter<I: IntoIterator<Item = User>>(users: I) -> Self {
        Self(users.into_iter().map(|user| (user.name.clone(), user)).collect())
    }
}

/// Users as they cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unworkable {
    /// Operator: who checks must not do.
    #[error("user {user} cannot be {roles}: an auditor has no other role; give the other roles to somebody else")]
    AuditorWhoActs {
        /// Who.
        user: Name,
        /// What they were to be.
        roles: Roles,
    },
    /// Operator: more certificates than a person needs.
    #[error("user {user} has more than {CERTIFICATES_MAX} certificates: remove those that are no longer used")]
    TooManyCertificates {
        /// Who.
        user: Name,
    },
    /// Operator: a certificate is one person's.
    #[error("certificate {serial} cannot belong to both {one} and {other}: enrol a certificate of their own")]
    SharedCertificate {
        /// The certificate.
        serial: CertificateSerial,
        /// Whose it is.
        one: Name,
        /// Whose it was to be, too.
        other: Name,
    },
    /// Operator: nobody would be left to ask.
    #[error("no security officer would be left, and nobody could add one: make another user one first")]
    NoSecurityOfficer,
    /// Operator: nobody would be left to approve.
    #[error(
        "{approvers} quorum members beside the security officer would be left, and {needed} must approve what they ask for: make \
         other users quorum members first, or ask for a smaller quorum"
    )]
    TooFewMembers {
        /// How many there would be.
        approvers: usize,
        /// How many it takes.
        needed: u8,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::bytes::check_hostile;
    use super::*;

    fn serial(byte: u8) -> CertificateSerial {
        CertificateSerial::new(&[byte, 2]).unwrap()
    }

    fn user(name: &str, roles: &[Role], certificates: &[u8]) -> User {
        let certificates = certificates.iter().map(|&byte| serial(byte)).collect();
        User { certificates, ..User::new(name.parse().unwrap(), roles.iter().copied().collect()) }
    }

    #[test]
    fn bytes_are_as_documented() {
        let anna = user("anna", &[Role::SecurityOfficer, Role::QuorumMember], &[7, 9]);
        assert_eq!(anna.encode(), b"\x01\x04anna\x21\x01\x02\x02\x07\x02\x02\x09\x02");
        let gone = User { standing: UserStatus::Disabled, ..user("bo", &[Role::Auditor], &[]) };
        assert_eq!(gone.encode(), b"\x01\x02bo\x10\x02\0");
        for user in [anna, gone] {
            check_hostile(&user, &user.encode(), User::decode);
        }
    }

    #[test]
    fn a_certificate_names_one_enabled_user() {
        let gone = User { standing: UserStatus::Disabled, ..user("bo", &[Role::Operator], &[2]) };
        let users: Users = [user("anna", &[Role::Operator], &[1]), gone].into_iter().collect();
        assert_eq!(users.identify(&serial(1)).unwrap().name.as_str(), "anna");
        assert_eq!(users.identify(&serial(2)), Err(Denied::Disabled { user: "bo".parse().unwrap() }));
        assert_eq!(users.identify(&serial(3)), Err(Denied::UnknownCertificate { serial: serial(3) }));
    }

    #[test]
    fn users_who_could_not_govern_are_refused() {
        use Role::{Auditor, Operator, QuorumMember, SecurityOfficer};
        let rule = QuorumRule::default();
        let check = |users: &[User]| users.iter().cloned().collect::<Users>().check(&rule);
        let members = [user("m1", &[QuorumMember], &[]), user("m2", &[QuorumMember], &[])];
        let with = |others: &[User]| [&members[..], others].concat();

        assert_eq!(check(&with(&[user("anna", &[SecurityOfficer], &[1])])), Ok(()));
        assert_eq!(check(&members), Err(Unworkable::NoSecurityOfficer));
        let gone = User { standing: UserStatus::Disabled, ..user("anna", &[SecurityOfficer], &[]) };
        assert_eq!(check(&with(&[gone])), Err(Unworkable::NoSecurityOfficer));
        // Anna's own membership does not help her: it takes two others.
        let alone = [members[0].clone(), user("anna", &[SecurityOfficer, QuorumMember], &[])];
        assert_eq!(check(&alone), Err(Unworkable::TooFewMembers { approvers: 1, needed: 2 }));
        let error = check(&with(&[user("anna", &[SecurityOfficer], &[1]), user("bo", &[Operator], &[1])]));
        assert!(matches!(error, Err(Unworkable::SharedCertificate { .. })), "{error:?}");
        let error = check(&with(&[user("anna", &[SecurityOfficer], &[]), user("bo", &[Operator, Auditor], &[])]));
        assert!(matches!(error, Err(Unworkable::AuditorWhoActs { .. })), "{error:?}");
    }

    #[test]
    fn serial_numbers_print_as_hex() {
        assert_eq!(serial(0x0f).to_string(), "0f02");
        assert_eq!((CertificateSerial::new(&[]), CertificateSerial::new(&[1; 21])), (None, None));
    }
}
