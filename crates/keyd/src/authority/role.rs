//! Roles, and sets of them.

use std::fmt;

use capstan_service::roles::{RoleSet, TableRole};

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
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl TableRole for Role {
    const COLUMNS: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    fn bit(self) -> u8 {
        self as u8
    }
}

/// A set of roles.
pub type Roles = RoleSet<Role>;
