//! Who may do what: a user and an act, held against the table.

use capstan_service::roles::{ActPermission, TableAct};

use super::{Act, Denied, User, UserStatus};

/// Whether a user may do something, and how: at once, or by a request that waits for a quorum ([`super::Pending`]). The
/// one question that every route asks.
///
/// # Errors
/// The user may not, and why.
pub fn may(user: &User, act: Act) -> Result<ActPermission, Denied> {
    if user.standing == UserStatus::Disabled {
        return Err(Denied::Disabled { user: user.name.clone() });
    }
    let denied = || Denied::Role { user: user.name.clone(), has: user.roles, act };
    act.permission(user.roles).ok_or_else(denied)
}
