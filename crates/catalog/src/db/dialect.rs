//! The few words in which the two databases differ.

use std::fmt::Write;

/// A statement as PostgreSQL takes it: its places are `$1` and not `?1`. No text in a statement holds a question mark.
pub(super) fn for_postgres(sql: &str) -> String {
    sql.replace('?', "$")
}

/// A step of the schema as PostgreSQL takes it. Text is ordered by its bytes, as SQLite does it.
pub(super) fn schema_for_postgres(step: &str) -> String {
    step.replace(" STRICT, WITHOUT ROWID", "")
        .replace(" STRICT", "")
        .replace("INTEGER", "BIGINT")
        .replace("BLOB", "BYTEA")
        .replace(" TEXT", " TEXT COLLATE \"C\"")
}

/// A name as PostgreSQL takes it, whatever is in it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What PostgreSQL needs besides the tables: the version of the schema, whose turn it is to write, and who had the last
/// turns.
pub(super) const POSTGRES_TABLES: &str = "
    CREATE TABLE schema_version (version BIGINT NOT NULL);
    INSERT INTO schema_version VALUES (0);
    CREATE TABLE turns (id BIGINT PRIMARY KEY, turn BIGINT NOT NULL);
    INSERT INTO turns VALUES (1, 0);
    CREATE TABLE commits (slot BIGINT PRIMARY KEY, turn BIGINT NOT NULL, token BYTEA NOT NULL);
";

/// How many commits are remembered, so that one whose answer was lost can be looked for.
pub(super) const COMMITS_KEPT: i64 = 1024;

/// Takes the turn to write, which nobody else has until the transaction ends, and notes whose it is. Gives its number.
pub(super) fn take_turn() -> String {
    let mut sql = String::from("WITH mine AS (UPDATE turns SET turn = turn + 1 WHERE id = 1 RETURNING turn)");
    let _ = write!(
        sql,
        " INSERT INTO commits (slot, turn, token) SELECT turn % {COMMITS_KEPT}, turn, $1 FROM mine
          ON CONFLICT (slot) DO UPDATE SET turn = excluded.turn, token = excluded.token RETURNING turn"
    );
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_schema_is_said_in_both_tongues() {
        let step = "CREATE TABLE a (b BLOB PRIMARY KEY, c TEXT NOT NULL, d INTEGER) STRICT, WITHOUT ROWID;";
        let other = "CREATE TABLE a (b BYTEA PRIMARY KEY, c TEXT COLLATE \"C\" NOT NULL, d BIGINT);";
        assert_eq!(schema_for_postgres(step), other);
        assert_eq!(for_postgres("SELECT ?1 WHERE a = ?12"), "SELECT $1 WHERE a = $12");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
