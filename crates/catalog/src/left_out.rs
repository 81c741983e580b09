//! What a backup was told to leave out: a set of rules, in the words of the command line, for each object.
//!
//! No volume holds it. It is there to be compared with the rules of the next backup, which would take what is left out
//! now for deleted.

use std::collections::BTreeSet;

use capstan_format::ObjectId;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::params;

/// No rule: the row that says that the rules of an object are known, though there may be none.
const KNOWN: &str = "";

impl Catalog {
    /// The rules of an object; `None` where nobody noted them, as of objects of earlier versions.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn left_out(&self, object: ObjectId) -> Result<Option<BTreeSet<String>>, CatalogError> {
        let query = "SELECT rule FROM left_out WHERE object = ?1";
        let rules: Vec<String> = self.db.query(query, params![object.0], |row| row.get(0))?;
        let mut rules = BTreeSet::from_iter(rules);
        Ok(rules.remove(KNOWN).then_some(rules))
    }

    /// Notes the rules of objects, instead of those that are there.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn put_left_out(&mut self, objects: &[ObjectId], rules: &BTreeSet<String>) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for object in objects {
            transaction.execute("DELETE FROM left_out WHERE object = ?1", params![object.0])?;
            for rule in rules.iter().map(String::as_str).chain([KNOWN]) {
                transaction.execute(
                    "INSERT INTO left_out (object, rule) VALUES (?1, ?2) ON CONFLICT (object, rule) DO NOTHING",
                    params![object.0, rule],
                )?;
            }
        }
        transaction.commit()
    }

    /// Takes over the rules of the objects that there are from an older catalog.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; rules of some objects may be taken over by then.
    pub fn take_over_left_out(&mut self, old: &Self) -> Result<(), CatalogError> {
        for object in self.objects(&crate::ObjectFilter::default())? {
            if let Some(rules) = old.left_out(object.id)? {
                self.put_left_out(&[object.id], &rules)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::place_in_tests::catalog_in;

    #[test]
    fn no_rules_are_not_the_same_as_unknown_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let (one, other) = (ObjectId([1; 16]), ObjectId([2; 16]));
        assert_eq!(catalog.left_out(one).unwrap(), None);
        let rules = BTreeSet::from(["*.o".to_owned(), "a/b".to_owned()]);
        catalog.put_left_out(&[one, other], &rules).unwrap();
        catalog.put_left_out(&[other], &BTreeSet::new()).unwrap();
        assert_eq!(catalog.left_out(one).unwrap(), Some(rules));
        assert_eq!(catalog.left_out(other).unwrap(), Some(BTreeSet::new()));
    }
}
