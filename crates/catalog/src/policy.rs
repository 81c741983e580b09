//! Policies: backups by name that the catalog keeps, each as the text of its settings.

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, params};
use crate::queue::{WholeQueue, cancel_all_of, cancel_waiting_of};

/// A policy as it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyText {
    /// Its name.
    pub name: String,
    /// Its settings, in the grammar of whoever put it here.
    pub text: String,
    /// When it was changed last, nanoseconds since 1970.
    pub changed_ns: i64,
    /// Since when it is due at the times at which it is, nanoseconds since 1970.
    pub scheduled_ns: i64,
}

/// What a change does to the policy of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyEdit<'a> {
    /// It has this text from now on.
    Put {
        /// The policy.
        name: &'a str,
        /// Its text.
        text: &'a str,
        /// Whether it is due at other times now: what was due before the change is not caught up with.
        is_rescheduled: bool,
    },
    /// It is removed.
    Remove(&'a str),
    /// It backs this client up from now on: what was to start before is not caught up with.
    Join {
        /// The policy.
        name: &'a str,
        /// The client.
        client: &'a str,
        /// How long after it is due its run starts, in nanoseconds.
        delay_ns: i64,
    },
    /// It does not back this client up any more: its runs for it that wait are cancelled.
    Leave {
        /// The policy.
        name: &'a str,
        /// The client.
        client: &'a str,
    },
}

const FORGET_POSITIONS: &str = "DELETE FROM schedule_positions WHERE policy = ?1";

const POLICY: &str = "SELECT name, text, changed_ns, scheduled_ns FROM policies ORDER BY name";

const PUT: &str = "INSERT INTO policies (name, text, changed_ns, scheduled_ns) VALUES (?1, ?2, ?3, ?4)";

impl Catalog {
    /// All policies, by name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn policies(&self) -> Result<Vec<PolicyText>, CatalogError> {
        self.db.query(POLICY, &[], policy)
    }

    /// Changes policies, all of them or none. A policy that is removed leaves the queue too: its waiting runs are
    /// cancelled, and those at work are told to stop.
    ///
    /// # Errors
    /// [`CatalogError::PoliciesChanged`] if the policies are no longer those that the caller saw. Otherwise the
    /// database cannot be written.
    pub fn edit_policies(
        &mut self,
        seen: &[PolicyText],
        edits: &[PolicyEdit<'_>],
        now_ns: i64,
    ) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        if transaction.query(POLICY, &[], policy)? != seen {
            return Err(CatalogError::PoliciesChanged);
        }
        for edit in edits {
            match edit {
                PolicyEdit::Put { name, text, is_rescheduled } => {
                    let put = format!(
                        "{PUT} ON CONFLICT (name) DO UPDATE SET text = excluded.text, changed_ns = excluded.changed_ns"
                    );
                    transaction.execute(&put, params![name, text, now_ns, now_ns])?;
                    if *is_rescheduled {
                        transaction.execute(FORGET_POSITIONS, params![name])?;
                        let since = "UPDATE policies SET scheduled_ns = ?2 WHERE name = ?1";
                        transaction.execute(since, params![name, now_ns])?;
                    }
                }
                PolicyEdit::Join { name, client, delay_ns } => {
                    let decided = "INSERT INTO schedule_positions (policy, client, decided_ns) VALUES (?1, ?2, ?3)
                        ON CONFLICT (policy, client) DO UPDATE SET decided_ns = excluded.decided_ns, again_ns = NULL";
                    transaction.execute(decided, params![name, client, now_ns.saturating_sub(*delay_ns)])?;
                }
                PolicyEdit::Leave { name, client } => {
                    let forget = "DELETE FROM schedule_positions WHERE policy = ?1 AND client = ?2";
                    transaction.execute(forget, params![name, client])?;
                    cancel_waiting_of(&transaction, name, client, now_ns)?;
                }
                PolicyEdit::Remove(name) => {
                    cancel_all_of(&transaction, name, now_ns)?;
                    transaction.execute(FORGET_POSITIONS, params![name])?;
                    transaction.execute("DELETE FROM policies WHERE name = ?1", params![name])?;
                }
            }
        }
        transaction.commit()
    }

    /// Takes over the policies of another catalog, which this one replaces, what was decided on of their schedules, and
    /// the queue: what was at work there waits.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; nothing is taken over then.
    pub fn take_over_policies(&mut self, old: &Self) -> Result<(), CatalogError> {
        let policies = old.policies()?;
        let positions = old.schedule_positions()?;
        let queue = WholeQueue::of(&old.db)?;
        let transaction = self.write()?;
        for PolicyText { name, text, changed_ns, scheduled_ns } in policies {
            let put = format!("{PUT} ON CONFLICT (name) DO NOTHING");
            transaction.execute(&put, params![name, text, changed_ns, scheduled_ns])?;
        }
        for position in positions {
            transaction.execute(
                "INSERT INTO schedule_positions (policy, client, decided_ns, again_ns) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (policy, client) DO NOTHING",
                params![position.policy, position.client, position.decided_ns, position.again_ns],
            )?;
        }
        queue.put_into(&transaction)?;
        transaction.commit()
    }
}

fn policy(row: &Row<'_>) -> Result<PolicyText, CatalogError> {
    Ok(PolicyText { name: row.get(0)?, text: row.get(1)?, changed_ns: row.get(2)?, scheduled_ns: row.get(3)? })
}
