//! Roles, and sets of them.

use std::fmt;

/// What a person is to the cluster. The numbers are bits in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Users, roles, nodes, sites, core security. Sees no keys.
    SecurityOfficer = 1,
    /// Policies, groups, who may use which; compromised keys, export.
    ComplianceOfficer = 2,
    /// Agents, data units, keys past their time.
    Operator = 4,
    /// Backups, and that they were destroyed.
    BackupOperator = 8,
    /// Looks at everything, changes nothing.
    Auditor = 16,
    /// Approves or rejects what others ask for.
    QuorumMember = 32,
}

impl Role {
    /// All roles, in the order of the table's columns.
    pub const ALL: [Self; 6] = [
        Self::SecurityOfficer,
        Self::ComplianceOfficer,
        Self::Operator,
        Self::BackupOperator,
        Self::Auditor,
        Self::QuorumMember,
    ];

    /// Its name, in commands and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::SecurityOfficer => "security-officer",
            Self::ComplianceOfficer => "compliance-officer",
            Self::Operator => "operator",
            Self::BackupOperator => "backup-operator",
            Self::Auditor => "auditor",
            Self::QuorumMember => "quorum-member",
        }
    }

    /// The role of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    fn bit(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Whether a role is among them.
    pub fn contains(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }

    /// The roles, in the order of [`Role::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |&role| self.contains(role))
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        let all = Role::ALL.into_iter().collect::<Self>();
        (bits & !all.0 == 0).then_some(Self(bits))
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |bits, role| bits | role.bit()))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Role::name).collect();
        f.write_str(if names.is_empty() { "no role" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}
