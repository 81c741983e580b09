//! Agents: drives, as those see them who give out keys.

use std::collections::BTreeSet;

use super::Name;

/// A drive that asks for keys: what it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name: the serial number of the drive.
    pub name: Name,
    /// The key groups it may use; empty for all.
    pub groups: BTreeSet<Name>,
    /// The group of the keys it is given unasked.
    pub default_group: Name,
}

impl Agent {
    /// One that nobody has said anything of.
    pub fn anything(name: Name) -> Self {
        Self { name, groups: BTreeSet::new(), default_group: Name::default() }
    }

    /// Whether it may have keys of a group.
    pub fn may_use(&self, group: &Name) -> bool {
        self.groups.is_empty() || self.groups.contains(group)
    }
}
