//! Who may do what: a user and an act, held against the table.

use super::act::Cell;
use super::{Act, Denied, Standing, User};

/// How somebody may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// On their own word.
    AtOnce,
    /// Once a quorum has approved it: it is requested, and waits ([`super::Pending`]).
    ByQuorum,
}

/// Whether a user may do something, and how. The one question that every door asks.
pub fn may(user: &User, act: Act) -> Result<Permission, Denied> {
    if user.standing == Standing::Disabled {
        return Err(Denied::Disabled { user: user.name.clone() });
    }
    let cells: Vec<Cell> = user.roles.iter().map(|role| act.cell(role)).collect();
    // No row has both kinds of yes (there is a test); if one had, the careful kind would count.
    if cells.contains(&Cell::ByQuorum) {
        Ok(Permission::ByQuorum)
    } else if cells.contains(&Cell::AtOnce) {
        Ok(Permission::AtOnce)
    } else {
        Err(Denied::Role { user: user.name.clone(), has: user.roles, act })
    }
}
