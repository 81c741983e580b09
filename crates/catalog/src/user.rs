//! Users of the cell, who are people: what each of them may do. Who a user is, certificates say ([`crate::PeerRow`]).

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, Transaction, params};

/// What a user of the cell may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    /// The name, as in the user's certificates.
    pub name: String,
    /// The roles, a bit each: 1 administrator, 2 operator, 4 restorer, 8 auditor.
    pub roles: u8,
    /// The clients whose backups a restorer may restore.
    pub clients: Vec<String>,
}

const PUT: &str = "INSERT INTO users (name, roles, clients) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET roles = excluded.roles, clients = excluded.clients";

impl Catalog {
    /// All users, by name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn users(&self) -> Result<Vec<UserRow>, CatalogError> {
        self.db.query("SELECT name, roles, clients FROM users ORDER BY name", &[], user)
    }

    /// The user of a name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn user(&self, name: &str) -> Result<Option<UserRow>, CatalogError> {
        self.db.query_first("SELECT name, roles, clients FROM users WHERE name = ?1", params![name], user)
    }

    /// Puts on record what a user may do from now on.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn put_user(&mut self, user: &UserRow) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        put(&transaction, user)?;
        transaction.commit()
    }

    /// Takes over the users of another catalog, which this one replaces.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; nothing is taken over then.
    pub fn take_over_users(&mut self, old: &Self) -> Result<(), CatalogError> {
        let users = old.users()?;
        let transaction = self.write()?;
        users.iter().try_for_each(|user| put(&transaction, user))?;
        transaction.commit()
    }
}

fn put(transaction: &Transaction<'_>, user: &UserRow) -> Result<(), CatalogError> {
    let (roles, clients) = (i64::from(user.roles), user.clients.join("\n"));
    transaction.execute(PUT, params![user.name, roles, clients]).map(drop)
}

fn user(row: &Row<'_>) -> Result<UserRow, CatalogError> {
    let (roles, clients): (i64, String) = (row.get(1)?, row.get(2)?);
    let roles = u8::try_from(roles).map_err(|_| CatalogError::corrupt("a user", "the roles are no set of roles"))?;
    Ok(UserRow { name: row.get(0)?, roles, clients: clients.lines().map(str::to_owned).collect() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::place_in_tests::catalog_in;

    #[test]
    fn what_a_person_may_do_is_kept_and_taken_over() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut catalog = catalog_in(dir.path());
        let ada = UserRow { name: "ada".to_owned(), roles: 1, clients: Vec::new() };
        let bert = UserRow { name: "bert".to_owned(), roles: 4, clients: vec!["tern".to_owned(), "web.1".to_owned()] };
        catalog.put_user(&bert).unwrap();
        catalog.put_user(&UserRow { roles: 2, ..ada.clone() }).unwrap();
        catalog.put_user(&ada).unwrap();
        assert_eq!(catalog.users().unwrap(), [ada.clone(), bert.clone()]);
        assert_eq!((catalog.user("ada").unwrap(), catalog.user("eve").unwrap()), (Some(ada), None));
        let mut anew = catalog_in(other.path());
        anew.take_over_users(&catalog).unwrap();
        assert_eq!(anew.users().unwrap(), catalog.users().unwrap());
    }
}
