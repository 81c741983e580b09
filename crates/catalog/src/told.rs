//! What the server has told people: the memory by which nothing is told twice, and what came of each way.

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, params};

/// Something that arrived by one way of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldRow {
    /// The rule, by its name in the settings.
    pub rule: String,
    /// `mail`, `webhook` or `command`.
    pub way: String,
    /// What it is known by.
    pub key: String,
    /// Its event, as the settings name it.
    pub event: String,
    /// What it is, in a few words.
    pub subject: String,
    /// The policy that it is about; empty for none.
    pub policy: String,
    /// The client that it is about; empty for none.
    pub client: String,
    /// Since when it is so, nanoseconds since 1970.
    pub since_ns: i64,
    /// When it was told last, nanoseconds since 1970.
    pub told_ns: i64,
    /// Whether its end is told: what happened once has none.
    pub lasts: bool,
}

/// What came of the last message by one way of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellingRow {
    /// The rule, by its name in the settings.
    pub rule: String,
    /// `mail`, `webhook` or `command`.
    pub way: String,
    /// What the message was about.
    pub subject: String,
    /// When it was sent last, or tried, nanoseconds since 1970.
    pub tried_ns: i64,
    /// When a message arrived last, nanoseconds since 1970; `None` if none did.
    pub arrived_ns: Option<i64>,
    /// Why the last one did not arrive; empty if it did.
    pub problem: String,
    /// Since when none has arrived that was tried, nanoseconds since 1970; `None` if the last one did. What is noted
    /// already stays until one arrives.
    pub failing_ns: Option<i64>,
}

const TOLD: &str = "rule, way, thing, event, subject, policy, client, since_ns, told_ns, lasts";

impl Catalog {
    /// All that was told and is remembered, by rule, way and key.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn told(&self) -> Result<Vec<ToldRow>, CatalogError> {
        self.db.query(&format!("SELECT {TOLD} FROM told ORDER BY rule, way, thing"), &[], told)
    }

    /// What came of the last message by each way, by rule and way.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn tellings(&self) -> Result<Vec<TellingRow>, CatalogError> {
        let all =
            "SELECT rule, way, subject, tried_ns, arrived_ns, problem, failing_ns FROM tellings ORDER BY rule, way";
        self.db.query(all, &[], telling)
    }

    /// Notes what came of a message, what it told, and what need not be remembered any more: `rule`, `way` and `key` of
    /// each row of `over` count.
    ///
    /// # Errors
    /// The database cannot be written; nothing is noted then.
    pub fn note_telling(
        &mut self,
        telling: Option<&TellingRow>,
        news: &[ToldRow],
        over: &[ToldRow],
    ) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for row in over {
            let remove = "DELETE FROM told WHERE rule = ?1 AND way = ?2 AND thing = ?3";
            transaction.execute(remove, params![row.rule, row.way, row.key])?;
        }
        for row in news {
            let ToldRow { rule, way, key, event, subject, policy, client, since_ns, told_ns, lasts } = row;
            let put = format!(
                "INSERT INTO told ({TOLD}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (rule, way, thing) DO UPDATE SET event = excluded.event, subject = excluded.subject,
                    policy = excluded.policy, client = excluded.client, since_ns = excluded.since_ns,
                    told_ns = excluded.told_ns, lasts = excluded.lasts"
            );
            let lasts = i64::from(*lasts);
            let values = params![rule, way, key, event, subject, policy, client, since_ns, told_ns, lasts];
            transaction.execute(&put, values)?;
        }
        if let Some(TellingRow { rule, way, subject, tried_ns, arrived_ns, problem, failing_ns }) = telling {
            let put = "INSERT INTO tellings (rule, way, subject, tried_ns, arrived_ns, problem, failing_ns)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                       ON CONFLICT (rule, way) DO UPDATE SET subject = excluded.subject, tried_ns = excluded.tried_ns,
                          arrived_ns = COALESCE(excluded.arrived_ns, tellings.arrived_ns), problem = excluded.problem,
                          failing_ns = CASE WHEN excluded.problem = '' THEN NULL
                                            ELSE COALESCE(tellings.failing_ns, excluded.failing_ns) END";
            transaction.execute(put, params![rule, way, subject, tried_ns, arrived_ns, problem, failing_ns])?;
        }
        transaction.commit()
    }

    /// Takes over what another catalog, which this one replaces, knows to be told.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written.
    pub fn take_over_told(&mut self, old: &Self) -> Result<(), CatalogError> {
        let (told, tellings) = (old.told()?, old.tellings()?);
        self.note_telling(None, &told, &[])?;
        tellings.iter().try_for_each(|telling| self.note_telling(Some(telling), &[], &[]))
    }
}

fn told(row: &Row<'_>) -> Result<ToldRow, CatalogError> {
    Ok(ToldRow {
        rule: row.get(0)?,
        way: row.get(1)?,
        key: row.get(2)?,
        event: row.get(3)?,
        subject: row.get(4)?,
        policy: row.get(5)?,
        client: row.get(6)?,
        since_ns: row.get(7)?,
        told_ns: row.get(8)?,
        lasts: row.get::<i64>(9)? != 0,
    })
}

fn telling(row: &Row<'_>) -> Result<TellingRow, CatalogError> {
    Ok(TellingRow {
        rule: row.get(0)?,
        way: row.get(1)?,
        subject: row.get(2)?,
        tried_ns: row.get(3)?,
        arrived_ns: row.get(4)?,
        problem: row.get(5)?,
        failing_ns: row.get(6)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::place_in_tests::catalog_in;

    fn row(key: &str, told_ns: i64) -> ToldRow {
        ToldRow {
            rule: "oncall".to_owned(),
            way: "mail".to_owned(),
            key: key.to_owned(),
            event: "failed".to_owned(),
            subject: format!("policy web failed, {key}"),
            policy: "web".to_owned(),
            client: "tern".to_owned(),
            since_ns: 5,
            told_ns,
            lasts: key != "run 7",
        }
    }

    #[test]
    fn what_was_told_is_remembered_until_it_is_over_and_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let telling = |tried_ns, arrived_ns, problem: &str| TellingRow {
            rule: "oncall".to_owned(),
            way: "mail".to_owned(),
            subject: "2 things".to_owned(),
            tried_ns,
            arrived_ns,
            problem: problem.to_owned(),
            failing_ns: (!problem.is_empty()).then_some(tried_ns),
        };
        let arrived = telling(10, Some(10), "");
        catalog.note_telling(Some(&arrived), &[row("run 7", 10), row("source /etc", 10)], &[]).unwrap();
        assert_eq!(catalog.told().unwrap(), [row("run 7", 10), row("source /etc", 10)]);
        catalog
            .note_telling(Some(&telling(20, None, "no route")), &[row("run 7", 20)], &[row("source /etc", 0)])
            .unwrap();
        assert_eq!(catalog.told().unwrap(), [row("run 7", 20)]);
        let kept = telling(20, Some(10), "no route");
        assert_eq!(catalog.tellings().unwrap(), [kept], "when one arrived is not forgotten");
        catalog.note_telling(Some(&telling(30, None, "no route")), &[], &[]).unwrap();
        let failing = TellingRow { failing_ns: Some(20), ..telling(30, Some(10), "no route") };
        assert_eq!(catalog.tellings().unwrap(), [failing], "nor is since when none does");
        let other = tempfile::tempdir().unwrap();
        let mut anew = catalog_in(other.path());
        anew.take_over_told(&catalog).unwrap();
        assert_eq!(anew.told().unwrap(), catalog.told().unwrap());
        assert_eq!(anew.tellings().unwrap(), catalog.tellings().unwrap());
        catalog.note_telling(Some(&telling(40, Some(40), "")), &[], &[]).unwrap();
        assert_eq!(catalog.tellings().unwrap()[0].failing_ns, None);
    }
}
