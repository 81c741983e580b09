//! Labels of clients, by which policies name several at once, and of movers, by which storage units do.

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, params};

/// A label of a client or a mover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLabel {
    /// The client or the mover.
    pub member: String,
    /// The label.
    pub label: String,
    /// Since when it has it, nanoseconds since 1970; of one that joined later, since then.
    pub since_ns: i64,
}

const PUT: &str = "INSERT INTO member_labels (kind, member, label, since_ns) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (kind, member, label) DO NOTHING";
const ALL: &str = "SELECT member, label, since_ns FROM member_labels WHERE kind = ?1 ORDER BY member, label";
const OF_PEERS: &str = "SELECT member, label, since_ns,
    (SELECT MIN(enrolled_ns) FROM peers
     WHERE peers.kind = member_labels.kind AND peers.name = member_labels.member AND revoked_ns IS NULL)
    FROM member_labels WHERE kind = ?1 ORDER BY member, label";

impl Catalog {
    /// All labels of clients, or of movers, by their names.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn member_labels(&self, kind: &str) -> Result<Vec<MemberLabel>, CatalogError> {
        self.db.query(ALL, params![kind], label)
    }

    /// The labels of those that have joined and are not revoked.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn labels_of_joined(&self, kind: &str) -> Result<Vec<MemberLabel>, CatalogError> {
        let labels = self.db.query(OF_PEERS, params![kind], |row| {
            let (known, enrolled_ns): (_, Option<i64>) = (label(row)?, row.get(3)?);
            Ok(enrolled_ns.map(|at_ns| MemberLabel { since_ns: known.since_ns.max(at_ns), ..known }))
        })?;
        Ok(labels.into_iter().flatten().collect())
    }

    /// Gives a client or a mover these labels, in place of those before. It has one that it had before since then.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn label_member(
        &mut self,
        kind: &str,
        member: &str,
        labels: &[String],
        now_ns: i64,
    ) -> Result<(), CatalogError> {
        let before = self.member_labels(kind)?;
        let transaction = self.write()?;
        for MemberLabel { label, .. } in before.iter().filter(|before| before.member == member) {
            if !labels.contains(label) {
                let remove = "DELETE FROM member_labels WHERE kind = ?1 AND member = ?2 AND label = ?3";
                transaction.execute(remove, params![kind, member, label])?;
            }
        }
        for label in labels {
            transaction.execute(PUT, params![kind, member, label, now_ns])?;
        }
        transaction.commit()
    }

    /// Takes over the labels of another catalog, which this one replaces.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; nothing is taken over then.
    pub fn take_over_member_labels(&mut self, old: &Self) -> Result<(), CatalogError> {
        let labels = old.db.query("SELECT member, label, since_ns, kind FROM member_labels", &[], |row| {
            let kind: String = row.get(3)?;
            Ok((kind, label(row)?))
        })?;
        let transaction = self.write()?;
        for (kind, MemberLabel { member, label, since_ns }) in &labels {
            transaction.execute(PUT, params![kind, member, label, since_ns])?;
        }
        transaction.commit()
    }
}

fn label(row: &Row<'_>) -> Result<MemberLabel, CatalogError> {
    Ok(MemberLabel { member: row.get(0)?, label: row.get(1)?, since_ns: row.get(2)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::place_in_tests::catalog_in;
    use crate::{EnrolmentRow, PeerRow};

    fn labels(of: &[(&str, &str, i64)]) -> Vec<MemberLabel> {
        let one = |&(member, label, since_ns): &(&str, &str, i64)| MemberLabel {
            member: member.to_owned(),
            label: label.to_owned(),
            since_ns,
        };
        of.iter().map(one).collect()
    }

    #[test]
    fn labels_count_while_their_client_is_a_member() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut catalog = catalog_in(dir.path());
        catalog.label_member("client", "tern", &["old".to_owned(), "web".to_owned()], 1).unwrap();
        catalog.label_member("client", "tern", &["prod".to_owned(), "web".to_owned()], 7).unwrap();
        catalog.label_member("client", "plover", &["web".to_owned()], 8).unwrap();
        catalog.label_member("mover", "tern", &["fast".to_owned()], 9).unwrap();
        let all = labels(&[("plover", "web", 8), ("tern", "prod", 7), ("tern", "web", 1)]);
        let joined = |catalog: &Catalog| catalog.labels_of_joined("client").unwrap();
        assert_eq!((catalog.member_labels("client").unwrap(), joined(&catalog)), (all.clone(), Vec::new()));
        let (open, address) = (EnrolmentRow { peer: "client/tern".to_owned(), record: vec![1] }, String::new());
        catalog.put_enrolment(&open).unwrap();
        let (kind, name) = ("client".to_owned(), "tern".to_owned());
        let (serial, revoked_ns, seen_ns, version) = ([1; 16], None, None, String::new());
        let row = PeerRow { serial, kind, name, enrolled_ns: 5, expires_ns: 9, revoked_ns, seen_ns, address, version };
        assert!(catalog.change_enrolment(&open, &[2], Some(&row)).unwrap());
        assert_eq!(joined(&catalog), labels(&[("tern", "prod", 7), ("tern", "web", 5)]));
        assert!(catalog.labels_of_joined("mover").unwrap().is_empty(), "a client of its name has joined");
        catalog.revoke_peer("client", "tern", 5).unwrap();
        assert!(joined(&catalog).is_empty());
        let mut anew = catalog_in(other.path());
        anew.take_over_member_labels(&catalog).unwrap();
        assert_eq!(anew.member_labels("client").unwrap(), all);
        assert_eq!(anew.member_labels("mover").unwrap(), labels(&[("tern", "fast", 9)]));
    }
}
