//! The catalog's tables behind its back, in whichever database is under test.

use std::fs;
use std::path::Path;

use capstan_catalog::Database;
use postgres::{Client, NoTls};

/// The database under test: the one that `CAPSTAN_POSTGRES` names, else SQLite.
pub(crate) fn database() -> Database {
    std::env::var("CAPSTAN_POSTGRES").map_or(Database::Sqlite, |url| Database::Postgres { url })
}

/// A connection to the tables of a catalog, and their schema; none where they are in a file.
fn connect(named_in: &Path) -> Option<(Client, serde_json::Value)> {
    let text = fs::read(named_in).ok()?;
    let place: serde_json::Value = serde_json::from_slice(&text).unwrap();
    Some((Client::connect(place["url"].as_str().unwrap(), NoTls).unwrap(), place))
}

/// Changes tables.
pub(crate) fn sql(catalog: &Path, statements: &str) {
    match connect(&catalog.join("database.json")) {
        Some((mut client, place)) => {
            let schema = place["schema"].as_str().unwrap();
            client
                .batch_execute(&format!("SET search_path TO {schema}; {}", statements.replace(" x'", " '\\x")))
                .unwrap();
        }
        None => rusqlite::Connection::open(catalog.join("catalog.db")).unwrap().execute_batch(statements).unwrap(),
    }
}

/// Has the database refuse every checkpoint, or take them again.
pub(crate) fn refuse_checkpoints(catalog: &Path, refused: bool) {
    let is_postgres = catalog.join("database.json").exists();
    sql(
        catalog,
        match (is_postgres, refused) {
            (false, true) => {
                "CREATE TRIGGER no_room BEFORE INSERT ON checkpoints BEGIN SELECT RAISE(FAIL, 'no room'); END"
            }
            (false, false) => "DROP TRIGGER no_room",
            (true, true) => {
                "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no room'; END$$;
                 CREATE TRIGGER no_room BEFORE INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION no_room()"
            }
            (true, false) => "DROP TRIGGER no_room ON checkpoints; DROP FUNCTION no_room",
        },
    );
}

/// A file of a catalog once more. With the one that names a schema goes a copy of that.
pub(crate) fn copy_file(from: &Path, to: &Path) {
    if from.file_name().is_none_or(|name| name != "database.json") {
        fs::copy(from, to).unwrap();
        return;
    }
    let (mut client, mut place) = connect(from).unwrap();
    let old = place["schema"].as_str().unwrap().to_owned();
    let anew = format!("copy_{}", uuid::Uuid::new_v4().simple());
    let copy = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE SCHEMA {anew};
         DO $$ DECLARE name text; BEGIN
             FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{old}' LOOP
                 EXECUTE format('CREATE TABLE {anew}.%I (LIKE {old}.%I INCLUDING ALL)', name, name);
                 EXECUTE format('INSERT INTO {anew}.%I SELECT * FROM {old}.%I', name, name);
             END LOOP;
         END $$; COMMIT"
    );
    client.batch_execute(&copy).unwrap();
    place["schema"] = anew.into();
    fs::write(to, place.to_string()).unwrap();
}
