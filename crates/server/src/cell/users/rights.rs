//! What users of the cell may do: the table of roles, and what each user has of it.

use capstan_catalog::UserRow;
use capstan_service::role_table;
use capstan_service::roles::{RoleSet, TableAct, TableRole};

use crate::cell::CellError;

/// A role of a user of the cell. The numbers are bits in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellRole {
    /// Sets the cell up: policies, machines, users.
    Administrator = 1,
    /// Keeps it running: the queue.
    Operator = 2,
    /// Gets back what was backed up, of the clients that are named.
    Restorer = 4,
    /// Looks at everything, and changes nothing.
    Auditor = 8,
}

impl CellRole {
    /// The role of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::COLUMNS.iter().copied().find(|role| role.name() == name)
    }
}

impl TableRole for CellRole {
    const COLUMNS: &'static [Self] = &[Self::Administrator, Self::Operator, Self::Restorer, Self::Auditor];

    fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Operator => "operator",
            Self::Restorer => "restorer",
            Self::Auditor => "auditor",
        }
    }

    fn bit(self) -> u8 {
        self as u8
    }
}

/// The roles of a user of the cell.
pub type CellRoles = RoleSet<CellRole>;

// x: does it. -: may not. What a restorer does is bounded by the clients that the restorer is named for. AD
// administrator, OP operator, RE restorer, AU auditor. docs/CELL.md has the same table, and a test compares them.
role_table! {
    /// Everything that a user can ask of a cell. The numbers are never used for another act.
    pub enum CellAct of CellRole {
        // code act        name               AD OP RE AU
         1 ReadStatus     "read-status"      [x  x  -  x] "read the status of the cell";

        10 ListQueue      "list-queue"       [x  x  -  x] "list the queue, the runs that have ended and those that come";
        11 EnterRuns      "enter-runs"       [x  x  -  -] "put runs of policies into the queue";
        12 ChangeRuns     "change-runs"      [x  x  -  -] "cancel, hold or release runs";

        20 ListPolicies   "list-policies"    [x  x  -  x] "list or export the policies";
        21 ChangePolicies "change-policies"  [x  -  -  -] "add, change or remove policies";

        30 ListMembers    "list-members"     [x  x  -  x] "list the clients and movers";
        31 ChangeMembers  "change-members"   [x  -  -  -] "enrol, label or revoke a client or mover";

        40 ListUsers      "list-users"       [x  -  -  x] "list the users and their roles";
        41 ChangeUsers    "change-users"     [x  -  -  -] "enrol, change or revoke a user";

        50 ListObjects    "list-objects"     [x  x  x  x] "list what was backed up";
        51 FindFiles      "find-files"       [x  -  x  -] "find and list the files in it";
        52 ListMedia      "list-media"       [x  x  -  x] "list volumes, pools and drives, and what is in libraries";
        53 ChangeMedia    "change-media"     [x  x  -  -] "label volumes that were never written, and have cartridges moved";

        60 Restore        "restore"          [x  -  x  -] "restore what was backed up to a client";

        80 ReadAudit      "read-audit"       [x  -  -  x] "read or verify the audit log";
    }
}

/// What a user may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    roles: CellRoles,
    /// The clients that a restorer is named for.
    clients: Vec<String>,
}

/// Of which clients somebody may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientsOf<'a> {
    /// Of none: it is not allowed.
    Nobody,
    /// Of these.
    Named(&'a [String]),
    /// Of all.
    Everybody,
}

impl Rights {
    /// Those of somebody with these roles, and of a restorer for these clients.
    ///
    /// # Errors
    /// [`CellError::Roles`] if there is no role, an auditor has another one, or clients are named and not for a
    /// restorer, or none for one.
    pub fn new(roles: CellRoles, clients: Vec<String>) -> Result<Self, CellError> {
        let wrong = |reason: &str| CellError::Roles { reason: reason.to_owned() };
        if roles.bits() == 0 {
            return Err(wrong("a user needs a role: name one with --role"));
        }
        if roles.contains(CellRole::Auditor) && roles.iter().count() > 1 {
            return Err(wrong("an auditor has no other role: whoever checks what was done is not one who does it"));
        }
        match (roles.contains(CellRole::Restorer), clients.is_empty()) {
            (true, true) => Err(wrong("a restorer needs clients: name each with --client")),
            (false, false) => Err(wrong("clients are for a restorer: the other roles have no bound of that kind")),
            _ => Ok(Self { roles, clients }),
        }
    }

    /// Those of whoever has the state directory in hand.
    pub(super) fn of_shell() -> Self {
        Self { roles: [CellRole::Administrator].into_iter().collect(), clients: Vec::new() }
    }

    /// As the catalog has them; none at all if it has bits that are no role.
    pub(in crate::cell) fn of(row: &UserRow) -> Self {
        Self { roles: CellRoles::from_bits(row.roles).unwrap_or_default(), clients: row.clients.clone() }
    }

    /// As the catalog keeps them of a user.
    pub(super) fn row(&self, name: &str) -> UserRow {
        UserRow { name: name.to_owned(), roles: self.roles.bits(), clients: self.clients.clone() }
    }

    /// The roles.
    #[must_use]
    pub fn roles(&self) -> CellRoles {
        self.roles
    }

    /// The clients that a restorer is named for.
    #[must_use]
    pub fn clients(&self) -> &[String] {
        &self.clients
    }

    /// Whether they may do something of this client.
    #[must_use]
    pub fn may_of(&self, act: CellAct, client: &str) -> bool {
        match self.of_whom(act) {
            ClientsOf::Everybody => true,
            ClientsOf::Named(clients) => clients.iter().any(|named| named == client),
            ClientsOf::Nobody => false,
        }
    }

    /// Of which clients they may do something.
    #[must_use]
    pub fn of_whom(&self, act: CellAct) -> ClientsOf<'_> {
        let may = |role: &CellRole| act.cell(*role).is_some();
        let (by_restorer, by_others): (Vec<_>, Vec<_>) =
            self.roles.iter().filter(may).partition(|role| *role == CellRole::Restorer);
        match (by_others.is_empty(), by_restorer.is_empty()) {
            (false, _) => ClientsOf::Everybody,
            (true, false) => ClientsOf::Named(&self.clients),
            (true, true) => ClientsOf::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn rights(roles: &[CellRole], clients: &[&str]) -> Result<Rights, CellError> {
        Rights::new(roles.iter().copied().collect(), clients.iter().map(|&name| name.to_owned()).collect())
    }

    /// The table as people read it, in docs/CELL.md.
    #[test]
    fn the_table_is_that_of_the_manual() {
        let manual = include_str!("../../../../../docs/CELL.md");
        let rows = CellAct::ALL.iter().map(|act| {
            let cells: Vec<_> =
                CellRole::COLUMNS.iter().map(|role| if act.cell(*role).is_some() { "yes" } else { "" }).collect();
            format!("| {} | {} |", act.words(), cells.join(" | "))
        });
        for row in rows {
            assert!(manual.contains(&row), "docs/CELL.md lacks this row:\n{row}");
        }
    }

    #[test]
    fn a_restorer_is_bounded_and_the_others_are_not() {
        let bert = rights(&[CellRole::Restorer], &["tern"]).unwrap();
        assert_eq!(bert.of_whom(CellAct::ListObjects), ClientsOf::Named(&["tern".to_owned()]));
        assert_eq!(bert.of_whom(CellAct::ListQueue), ClientsOf::Nobody);
        let both = rights(&[CellRole::Restorer, CellRole::Operator], &["tern"]).unwrap();
        assert_eq!(both.of_whom(CellAct::ListObjects), ClientsOf::Everybody, "an operator sees all objects");
        assert_eq!(both.of_whom(CellAct::ChangePolicies), ClientsOf::Nobody);
        for act in CellAct::ALL {
            assert_eq!(Rights::of_shell().of_whom(*act), ClientsOf::Everybody, "{act}");
        }
    }

    #[test]
    fn roles_that_make_no_sense_are_refused() {
        use CellRole::{Administrator, Auditor, Restorer};
        for (roles, clients) in
            [(&[][..], &[][..]), (&[Auditor, Administrator], &[]), (&[Restorer], &[]), (&[Administrator], &["tern"])]
        {
            assert!(rights(roles, clients).is_err(), "{roles:?} {clients:?}");
        }
        let row = UserRow { name: "eve".to_owned(), roles: 64, clients: Vec::new() };
        assert_eq!(Rights::of(&row).of_whom(CellAct::ListQueue), ClientsOf::Nobody, "bits that are no role");
    }

    /// An auditor looks.
    #[test]
    fn an_auditor_changes_nothing() {
        for act in CellAct::ALL.iter().filter(|act| act.cell(CellRole::Auditor).is_some()) {
            assert!(act.name().starts_with("list-") || act.name().starts_with("read-"), "{act}");
        }
    }
}
