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
    /// Since when the client has it, nanoseconds since 1970; of one that joined later, since then.
    pub since_ns: i64,
}

const PUT: &str = "INSERT INTO client_labels (client, label, since_ns) VALUES (?1, ?2, ?3)
    ON CONFLICT (client, label) DO NOTHING";
const ALL: &str = "SELECT client, label, since_ns FROM client_labels ORDER BY client, label";
const OF_MEMBERS: &str = "SELECT client, label, since_ns,
    (SELECT MIN(enrolled_ns) FROM peers WHERE kind = 'client' AND name = client AND revoked_ns IS NULL)
    FROM client_labels ORDER BY client, label";

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
        let labels = self.db.query(OF_MEMBERS, &[], |row| {
            let (known, enrolled_ns): (_, Option<i64>) = (label(row)?, row.get(3)?);
            Ok(enrolled_ns.map(|at_ns| ClientLabel { since_ns: known.since_ns.max(at_ns), ..known }))
        })?;
        Ok(labels.into_iter().flatten().collect())
    }

    /// Gives a client these labels, in place of those before. It has one that it had before since then.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn label_client(&mut self, client: &str, labels: &[String], now_ns: i64) -> Result<(), CatalogError> {
        let before = self.client_labels()?;
        let transaction = self.write()?;
        for ClientLabel { label, .. } in before.iter().filter(|before| before.client == client) {
            if !labels.contains(label) {
                let remove = "DELETE FROM client_labels WHERE client = ?1 AND label = ?2";
                transaction.execute(remove, params![client, label])?;
            }
        }
        for label in labels {
            transaction.execute(PUT, params![client, label, now_ns])?;
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
        for ClientLabel { client, label, since_ns } in &labels {
            transaction.execute(PUT, params![client, label, since_ns])?;
        }
        transaction.commit()
    }
}

fn label(row: &Row<'_>) -> Result<ClientLabel, CatalogError> {
    Ok(ClientLabel { client: row.get(0)?, label: row.get(1)?, since_ns: row.get(2)? })
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
        let labels = |of: &[(&str, &str, i64)]| -> Vec<ClientLabel> {
            let one = |&(client, label, since_ns): &(&str, &str, i64)| ClientLabel {
                client: client.to_owned(),
                label: label.to_owned(),
                since_ns,
            };
            of.iter().map(one).collect()
        };
        catalog.label_client("tern", &["old".to_owned(), "web".to_owned()], 1).unwrap();
        catalog.label_client("tern", &["prod".to_owned(), "web".to_owned()], 7).unwrap();
        catalog.label_client("plover", &["web".to_owned()], 8).unwrap();
        let all = labels(&[("plover", "web", 8), ("tern", "prod", 7), ("tern", "web", 1)]);
        assert_eq!((catalog.client_labels().unwrap(), catalog.labels_of_members().unwrap()), (all.clone(), Vec::new()));
        let (open, address) = (EnrolmentRow { peer: "client/tern".to_owned(), record: vec![1] }, String::new());
        catalog.put_enrolment(&open).unwrap();
        let (kind, name) = ("client".to_owned(), "tern".to_owned());
        let (serial, revoked_ns, seen_ns, version) = ([1; 16], None, None, String::new());
        let row = PeerRow { serial, kind, name, enrolled_ns: 5, expires_ns: 9, revoked_ns, seen_ns, address, version };
        assert!(catalog.change_enrolment(&open, &[2], Some(&row)).unwrap());
        assert_eq!(catalog.labels_of_members().unwrap(), labels(&[("tern", "prod", 7), ("tern", "web", 5)]));
        catalog.revoke_peer("client", "tern", 5).unwrap();
        assert!(catalog.labels_of_members().unwrap().is_empty());
        let mut anew = catalog_in(other.path());
        anew.take_over_client_labels(&catalog).unwrap();
        assert_eq!(anew.client_labels().unwrap(), all);
    }
}
