//! Labels of clients, by which policies name several at once.

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, params};

/// A label of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLabel {
    /// The client.
    pub client: String,
    /// The label.
    pub label: String,
}

const PUT: &str = "INSERT INTO client_labels (client, label) VALUES (?1, ?2)";
const ALL: &str = "SELECT client, label FROM client_labels ORDER BY client, label";
const OF_MEMBERS: &str = "SELECT client, label FROM client_labels WHERE EXISTS
    (SELECT 1 FROM peers WHERE kind = 'client' AND name = client AND revoked_ns IS NULL) ORDER BY client, label";

impl Catalog {
    /// All labels, by client.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn client_labels(&self) -> Result<Vec<ClientLabel>, CatalogError> {
        self.db.query(ALL, &[], label)
    }

    /// The labels of clients that have joined and are not revoked, by client.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn labels_of_members(&self) -> Result<Vec<ClientLabel>, CatalogError> {
        self.db.query(OF_MEMBERS, &[], label)
    }

    /// Gives a client these labels, in place of those before.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn label_client(&mut self, client: &str, labels: &[String]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        transaction.execute("DELETE FROM client_labels WHERE client = ?1", params![client])?;
        for label in labels {
            transaction.execute(PUT, params![client, label])?;
        }
        transaction.commit()
    }

    /// Takes over the labels of another catalog, which this one replaces.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; nothing is taken over then.
    pub fn take_over_client_labels(&mut self, old: &Self) -> Result<(), CatalogError> {
        let labels = old.client_labels()?;
        let transaction = self.write()?;
        for ClientLabel { client, label } in &labels {
            transaction.execute(PUT, params![client, label])?;
        }
        transaction.commit()
    }
}

fn label(row: &Row<'_>) -> Result<ClientLabel, CatalogError> {
    Ok(ClientLabel { client: row.get(0)?, label: row.get(1)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::place_in_tests::catalog_in;
    use crate::{EnrolmentRow, PeerRow};

    #[test]
    fn labels_count_while_their_client_is_a_member() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut catalog = catalog_in(dir.path());
        let labels = |of: &[(&str, &str)]| -> Vec<ClientLabel> {
            of.iter().map(|(client, label)| ClientLabel { client: (*client).into(), label: (*label).into() }).collect()
        };
        catalog.label_client("tern", &["old".to_owned()]).unwrap();
        catalog.label_client("tern", &["prod".to_owned(), "web".to_owned()]).unwrap();
        catalog.label_client("plover", &["web".to_owned()]).unwrap();
        let all = labels(&[("plover", "web"), ("tern", "prod"), ("tern", "web")]);
        assert_eq!((catalog.client_labels().unwrap(), catalog.labels_of_members().unwrap()), (all.clone(), Vec::new()));
        let (open, address) = (EnrolmentRow { peer: "client/tern".to_owned(), record: vec![1] }, String::new());
        catalog.put_enrolment(&open).unwrap();
        let (kind, name) = ("client".to_owned(), "tern".to_owned());
        let (serial, revoked_ns, seen_ns) = ([1; 16], None, None);
        let row = PeerRow { serial, kind, name, enrolled_ns: 0, expires_ns: 9, revoked_ns, seen_ns, address };
        assert!(catalog.change_enrolment(&open, &[2], Some(&row)).unwrap());
        assert_eq!(catalog.labels_of_members().unwrap(), labels(&[("tern", "prod"), ("tern", "web")]));
        catalog.revoke_peer("client", "tern", 5).unwrap();
        assert!(catalog.labels_of_members().unwrap().is_empty());
        let mut anew = catalog_in(other.path());
        anew.take_over_client_labels(&catalog).unwrap();
        assert_eq!(anew.client_labels().unwrap(), all);
    }
}
