//! PostgreSQL: a schema of a database, over one connection at a time.
//!
//! - A connection that is lost between two transactions is made anew, and whoever asked notices nothing. One that is
//!   lost within a transaction has lost that transaction; nothing of it was recorded, and the error says so.
//! - A transaction that writes takes its turn first: one row, which is locked until the transaction ends, so that there
//!   is one writer, as in SQLite. It notes a random token with the turn. Where the answer to a commit is lost, the turn
//!   is taken over another connection, which waits for the lost transaction to end if it still runs, and the token is
//!   looked for: it is there if, and only if, the transaction was committed.

use std::cell::{Cell as Flag, RefCell};
use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres::error::SqlState;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Statement};

use super::dialect::{COMMITS_KEPT, POSTGRES_TABLES, for_postgres, quoted, schema_for_postgres, take_turn};
use super::place::{Place, without_password};
use super::value::{Cell, Kind};
use super::{Durability, Row, Value};
use crate::CatalogError;
use crate::schema::{STEPS, steps_from};

mod access;

use access::{Access, tls_refusal};

/// How long a server that was there is waited for, and a writer for another one.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one is waited for that nobody has met yet: a person is, too.
const FIRST_PATIENCE: Duration = Duration::from_secs(3);

/// How long one attempt to connect may take.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// How often a server that is not there is tried.
const TRY_EVERY: Duration = Duration::from_millis(250);

/// The oldest version that is known to do.
const VERSION_MIN: i64 = 150_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(super) struct Postgres {
    access: Access,
    place: Place,
    session: RefCell<Option<Session>>,
    /// How long it is waited for now.
    patience: Flag<Duration>,
    state: Flag<State>,
}

/// A connection, and the statements that it has prepared.
struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between transactions.
    Idle,
    Reading,
    /// Under this turn, which has this token.
    Writing(Turn),
    /// Something in the transaction failed: the server keeps nothing of it, and would not say so.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    number: i64,
    token: [u8; 16],
}

impl Postgres {
    pub(super) fn open(place: Place) -> Result<Self, CatalogError> {
        let postgres = Self {
            access: Access::to(&place.url)?,
            place,
            session: RefCell::new(None),
            patience: Flag::new(FIRST_PATIENCE),
            state: Flag::new(State::Idle),
        };
        postgres.migrate()?;
        Ok(postgres)
    }

    pub(super) fn another(&self) -> Result<Self, CatalogError> {
        Self::open(self.place.clone())
    }

    pub(super) fn query(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&Row<'_>) -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        let rows = self.run(|session| session.query(sql, values))?;
        rows.iter().try_for_each(|row| each(&Row::Postgres(row)))
    }

    pub(super) fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, CatalogError> {
        self.run(|session| session.execute(sql, values))
    }

    pub(super) fn begin_snapshot(&self) -> Result<(), CatalogError> {
        self.run(|session| session.client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))?;
        self.state.set(State::Reading);
        Ok(())
    }

    pub(super) fn begin_write(&self, durability: Durability) -> Result<(), CatalogError> {
        let token = *uuid::Uuid::new_v4().as_bytes();
        let number = self.run(|session| session.take_turn(&token, durability))?;
        self.state.set(State::Writing(Turn { number, token }));
        Ok(())
    }

    pub(super) fn commit(&self) -> Result<(), CatalogError> {
        let state = self.state.replace(State::Idle);
        if state == State::Failed {
            return Err(CatalogError::Database { source: "the transaction has failed before its commit".into() });
        }
        let committed = match self.session.borrow_mut().as_mut() {
            Some(session) => session.client.batch_execute("COMMIT"),
            None => return Err(self.unreachable("the connection was lost before the commit".into())),
        };
        match (committed, state) {
            (Ok(()), _) => Ok(()),
            (Err(error), State::Writing(turn)) if is_lost(&error) => self.look_for(turn, &error),
            (Err(error), _) => Err(self.failed(&error)),
        }
    }

    pub(super) fn roll_back(&self) {
        self.state.set(State::Idle);
        let mut session = self.session.borrow_mut();
        let ended = session.as_mut().map(|session| session.client.batch_execute("ROLLBACK"));
        if matches!(ended, Some(Err(_))) {
            // With the connection goes whatever it had open.
            *session = None;
        }
    }

    /// Does something over the connection, and once more over a new one where it was lost and no transaction with it.
    fn run<T>(&self, work: impl Fn(&mut Session) -> Result<T, postgres::Error>) -> Result<T, CatalogError> {
        let is_idle = self.state.get() == State::Idle;
        let mut again = is_idle;
        loop {
            let outcome = {
                let mut held = self.session.borrow_mut();
                let session = match held.take() {
                    Some(session) => held.insert(session),
                    None if is_idle => held.insert(self.connect()?),
                    None => return Err(self.unreachable("the connection was lost in a transaction".into())),
                };
                let outcome = work(session);
                if outcome.as_ref().is_err_and(is_lost) {
                    *held = None;
                }
                if outcome.is_err() && !is_idle {
                    self.state.set(State::Failed);
                }
                outcome
            };
            match outcome {
                Err(error) if again && is_lost(&error) => again = false,
                outcome => return outcome.map_err(|error| self.failed(&error)),
            }
        }
    }

    /// Connects; waits for a server that is not there, as one that is started anew soon is.
    fn connect(&self) -> Result<Session, CatalogError> {
        let began = Instant::now();
        loop {
            match Session::open(&self.access, &self.place.schema) {
                Ok(session) => {
                    self.patience.set(PATIENCE);
                    return Ok(session);
                }
                Err(error) if is_lost(&error) && began.elapsed() < self.patience.get() => sleep(TRY_EVERY),
                Err(error) => {
                    // Whoever winds up after that asks many more times.
                    self.patience.set(Duration::ZERO);
                    return Err(self.failed(&error));
                }
            }
        }
    }

    /// Whether a transaction was committed, of which the answer was lost.
    fn look_for(&self, turn: Turn, lost: &postgres::Error) -> Result<(), CatalogError> {
        *self.session.borrow_mut() = None;
        // The lost transaction has the turn until it ends, if it has not ended yet.
        let found = self.run(|session| {
            session.client.batch_execute("BEGIN")?;
            let now = session.query("SELECT turn FROM turns WHERE id = 1 FOR UPDATE", &[])?;
            let own = session.query("SELECT turn FROM commits WHERE token = ?1", &[Value::Bytes(&turn.token)])?;
            session.client.batch_execute("ROLLBACK")?;
            let now: i64 = now.first().map_or(Ok(i64::MAX), |row| row.try_get(0))?;
            Ok((!own.is_empty(), now))
        });
        match found {
            // Whoever cannot look does not know.
            Err(_) => Err(CatalogError::OutcomeUnknown { database: self.told() }),
            Ok((true, _)) => Ok(()),
            Ok((false, now)) if now - turn.number >= COMMITS_KEPT => {
                Err(CatalogError::OutcomeUnknown { database: self.told() })
            }
            Ok((false, _)) => Err(self.failed(lost)),
        }
    }

    /// Brings the tables to the newest version.
    fn migrate(&self) -> Result<(), CatalogError> {
        let mut lacking = steps_from(self.version()?)?;
        if lacking.is_empty() {
            return Ok(());
        }
        self.begin_write(Durability::Now)?;
        // Another process may have done it while this one waited for its turn.
        lacking = steps_from(self.version()?)?;
        let done = lacking.iter().try_for_each(|step| {
            let step = schema_for_postgres(step);
            self.run(|session| session.client.batch_execute(&step))
        });
        let done = done.and_then(|()| {
            self.execute("UPDATE schema_version SET version = ?1", &[Value::Integer(STEPS.len() as i64)])
        });
        match done {
            Ok(_) => self.commit(),
            Err(error) => {
                self.roll_back();
                Err(error)
            }
        }
    }

    fn version(&self) -> Result<i64, CatalogError> {
        let mut version = 0;
        self.query("SELECT version FROM schema_version", &[], &mut |row| {
            version = row.get(0)?;
            Ok(())
        })?;
        Ok(version)
    }

    fn told(&self) -> String {
        without_password(&self.place.url)
    }

    fn unreachable(&self, source: Failure) -> CatalogError {
        CatalogError::Unreachable { database: self.told(), source }
    }

    fn failed(&self, error: &postgres::Error) -> CatalogError {
        failed(&self.place.url, error)
    }
}

impl Session {
    fn open(access: &Access, schema: &str) -> Result<Self, postgres::Error> {
        let mut client = access.connect()?;
        // What was recorded has been reported as protected, whatever the server's settings say of others.
        client.batch_execute(&format!(
            "SET search_path TO {}; SET synchronous_commit TO on; SET lock_timeout TO {}",
            quoted(schema),
            PATIENCE.as_millis()
        ))?;
        Ok(Self { client, statements: HashMap::new() })
    }

    fn prepared(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Statement, postgres::Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let types: Vec<Type> = values.iter().map(|value| type_of(value.kind())).collect();
        let statement = self.client.prepare_typed(&for_postgres(sql), &types)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Vec<postgres::Row>, postgres::Error> {
        let statement = self.prepared(sql, values)?;
        self.client.query(&statement, &places(values))
    }

    fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64, postgres::Error> {
        let statement = self.prepared(sql, values)?;
        self.client.execute(&statement, &places(values))
    }

    /// Begins a transaction that writes; the number of its turn.
    fn take_turn(&mut self, token: &[u8; 16], durability: Durability) -> Result<i64, postgres::Error> {
        self.client.batch_execute(match durability {
            Durability::Now => "BEGIN",
            Durability::Later => "BEGIN; SET LOCAL synchronous_commit TO off",
        })?;
        let turn = self.query(&take_turn(), &[Value::Bytes(token)]);
        let turn = turn.and_then(|rows| rows.first().map_or(Ok(0), |row| row.try_get(0)));
        if turn.is_err() && !self.client.is_closed() {
            self.client.batch_execute("ROLLBACK")?;
        }
        turn
    }
}

fn places<'a>(values: &'a [Value<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Integer => Type::INT8,
        Kind::Text => Type::TEXT,
        Kind::Bytes => Type::BYTEA,
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, as_type: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        match self {
            Self::Null(_) => Ok(IsNull::Yes),
            Self::Integer(number) => number.to_sql(as_type, out),
            // A server takes no text with a zero in it, which only a message can have.
            Self::Text(text) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql(as_type, out),
            Self::Text(text) => text.to_sql(as_type, out),
            Self::Bytes(bytes) => bytes.to_sql(as_type, out),
        }
    }

    fn accepts(as_type: &Type) -> bool {
        matches!(*as_type, Type::INT8 | Type::TEXT | Type::BYTEA)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Cell<'a> {
    fn from_sql(of_type: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(match *of_type {
            Type::BOOL => Self::Integer(i64::from(bool::from_sql(of_type, raw)?)),
            Type::INT4 => Self::Integer(i64::from(i32::from_sql(of_type, raw)?)),
            Type::INT8 => Self::Integer(i64::from_sql(of_type, raw)?),
            Type::TEXT => Self::Text(<&str>::from_sql(of_type, raw)?),
            Type::BYTEA => Self::Bytes(raw),
            _ => return Err(format!("a column of type {of_type}").into()),
        })
    }

    fn from_sql_null(_of_type: &Type) -> Result<Self, Failure> {
        Ok(Self::Null)
    }

    fn accepts(_of_type: &Type) -> bool {
        true
    }
}

/// Makes a schema for one catalog, with nothing of it yet; its name.
pub(super) fn create_schema(url: &str) -> Result<String, CatalogError> {
    let access = Access::to(url)?;
    let schema = format!("capstan_{}", uuid::Uuid::new_v4().simple());
    let failed = |error| failed(url, &error);
    let mut client = access.connect().map_err(failed)?;
    let version = client.query_one("SELECT current_setting('server_version_num')::bigint", &[]).map_err(failed)?;
    if version.try_get::<_, i64>(0).map_err(failed)? < VERSION_MIN {
        let reason = "it is older than PostgreSQL 15".to_owned();
        return Err(CatalogError::DatabaseRefused { database: without_password(url), reason });
    }
    let name = quoted(&schema);
    client
        .batch_execute(&format!(
            "BEGIN; CREATE SCHEMA {name}; SET LOCAL search_path TO {name}; {POSTGRES_TABLES} COMMIT"
        ))
        .map_err(failed)?;
    Ok(schema)
}

/// Removes a catalog's schema and all that is in it.
pub(super) fn drop_schema(place: &Place) -> Result<(), CatalogError> {
    let failed = |error| failed(&place.url, &error);
    let mut client = Access::to(&place.url)?.connect().map_err(failed)?;
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", quoted(&place.schema))).map_err(failed)
}

/// Whether the connection is gone, or the server with it: not what was asked is wrong.
fn is_lost(error: &postgres::Error) -> bool {
    match error.code() {
        None if tls_refusal(&words(error)).is_some() => false,
        Some(code) => {
            let code = code.code();
            // Connection exceptions; shut down, crashed, starting; too many connections.
            code.starts_with("08") || code.starts_with("57P0") || code == SqlState::TOO_MANY_CONNECTIONS.code()
        }
        None => {
            error.is_closed()
                || std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
        }
    }
}

/// An error of PostgreSQL in the catalog's words.
fn failed(url: &str, error: &postgres::Error) -> CatalogError {
    let database = without_password(url);
    if matches!(error.code(), None | Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION))
        && let Some(reason) = tls_refusal(&words(error))
    {
        return CatalogError::DatabaseRefused { database, reason };
    }
    match error.code() {
        _ if is_lost(error) => CatalogError::Unreachable { database, source: words(error).into() },
        Some(&SqlState::DISK_FULL) => {
            CatalogError::DiskFull { what: format!("write the catalog's database {database}") }
        }
        Some(
            &SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE,
        ) => CatalogError::Busy,
        Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED | &SqlState::UNDEFINED_TABLE) => {
            CatalogError::corrupt(format!("the catalog's database {database}"), words(error))
        }
        Some(code)
            if code.code().starts_with("28")
                || *code == SqlState::INVALID_CATALOG_NAME
                || *code == SqlState::INSUFFICIENT_PRIVILEGE =>
        {
            CatalogError::DatabaseRefused { database, reason: words(error) }
        }
        _ => CatalogError::Database { source: words(error).into() },
    }
}

/// What the server or the connection said.
fn words(error: &postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
