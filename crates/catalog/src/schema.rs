//! The database's tables, and how they came to be.

use crate::CatalogError;

/// Each step takes the schema from one version to the next. Steps are only added.
pub(crate) const STEPS: [&str; 40] = [
    // Times are nanoseconds since 1970. Volume and session ids are 64 random bits, kept as the signed number of the
    // same bits. `copies` says which copy of an object a life of a volume holds; `checkpoints` makes recording
    // idempotent.
    "
    CREATE TABLE pools (
        name TEXT PRIMARY KEY, encryption INTEGER, retention_ns INTEGER, feed INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE volumes (
        volser TEXT PRIMARY KEY, pool TEXT REFERENCES pools (name), volume INTEGER UNIQUE, state INTEGER NOT NULL,
        key_tag BLOB, algorithm INTEGER, capacity INTEGER, written INTEGER NOT NULL, end_lbn INTEGER NOT NULL,
        checkpoint_lbn INTEGER NOT NULL, labelled_ns INTEGER, written_ns INTEGER, read_ns INTEGER,
        mounts INTEGER NOT NULL, errors INTEGER NOT NULL, recycled INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE sessions (
        volume INTEGER NOT NULL, session INTEGER NOT NULL, started_ns INTEGER, host TEXT, software TEXT,
        closed_ns INTEGER, continued_on TEXT, PRIMARY KEY (volume, session)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE checkpoints (
        volume INTEGER NOT NULL, session INTEGER NOT NULL, number INTEGER NOT NULL, lbn INTEGER NOT NULL,
        written_ns INTEGER NOT NULL, PRIMARY KEY (volume, session, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE objects (
        object BLOB PRIMARY KEY, source BLOB NOT NULL, client TEXT NOT NULL, policy TEXT NOT NULL,
        kind INTEGER NOT NULL, complete INTEGER NOT NULL, base BLOB, chunk_len INTEGER NOT NULL,
        started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL, expired_ns INTEGER,
        generation INTEGER NOT NULL DEFAULT 0, index_len INTEGER, index_crcs BLOB,
        entries INTEGER, files INTEGER, bytes INTEGER, deleted INTEGER, changed INTEGER, problems INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX objects_of_source ON objects (source, client, started_ns);
    CREATE INDEX objects_on_base ON objects (base) WHERE base IS NOT NULL;
    CREATE TABLE parts (
        object BLOB NOT NULL, connection INTEGER NOT NULL, valid_len INTEGER NOT NULL, PRIMARY KEY (object, connection)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE copies (
        object BLOB NOT NULL, volume INTEGER NOT NULL, copy INTEGER NOT NULL, first_ns INTEGER NOT NULL,
        PRIMARY KEY (object, volume)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX copies_on_volume ON copies (volume);
    CREATE TABLE extents (
        object BLOB NOT NULL, volume INTEGER NOT NULL, connection INTEGER NOT NULL, first_sequence INTEGER NOT NULL,
        session INTEGER NOT NULL, first_lbn INTEGER NOT NULL, blocks INTEGER NOT NULL, start INTEGER NOT NULL,
        plain_len INTEGER NOT NULL, stored_len INTEGER NOT NULL,
        PRIMARY KEY (object, connection, first_sequence, volume)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX extents_on_volume ON extents (volume, first_lbn);
    CREATE TABLE pieces (
        piece INTEGER PRIMARY KEY, object BLOB NOT NULL, crc INTEGER NOT NULL, raw_len INTEGER NOT NULL,
        stored BLOB NOT NULL
    ) STRICT;
    CREATE INDEX pieces_of_object ON pieces (object, crc);
    CREATE TABLE jobs (
        job INTEGER PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, started_ns INTEGER NOT NULL,
        ended_ns INTEGER, outcome INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
        stored INTEGER NOT NULL, message TEXT NOT NULL
    ) STRICT;
    ",
    // Which copies an object is wanted in, and whether each is known to be whole; `copies.ended` says whether the
    // volume's record of the object says that it is complete. Until now what existed was what was wanted, and a copy of
    // a complete object is taken to have ended: its extents are looked at when it is asked for. `key_destroyed_ns`
    // notes what the sealed store says of the volume's key, for those who ask without opening it.
    "
    CREATE TABLE wanted_copies (
        object BLOB NOT NULL, copy INTEGER NOT NULL, pool TEXT NOT NULL, whole INTEGER NOT NULL,
        PRIMARY KEY (object, copy)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX lacking_copies ON wanted_copies (object) WHERE whole = 0;
    ALTER TABLE volumes ADD COLUMN key_destroyed_ns INTEGER;
    ALTER TABLE copies ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
    UPDATE copies SET ended = 1 WHERE object IN (SELECT object FROM objects WHERE complete = 1);
    INSERT INTO wanted_copies SELECT object, copy, min(pool), 0 FROM copies JOIN volumes USING (volume)
        WHERE pool IS NOT NULL GROUP BY object, copy;
    ",
    // What drives say of themselves and of volumes: at each mount, and when the volume leaves. `alerts` are the numbers
    // of TapeAlert flags, with commas between; a count that a drive has not is null.
    "
    CREATE TABLE drive_reports (
        report INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, volser TEXT NOT NULL, drive TEXT NOT NULL,
        moment INTEGER NOT NULL, alerts TEXT NOT NULL, cleaning INTEGER, recovered INTEGER NOT NULL, mounts INTEGER,
        write_retries INTEGER, write_errors INTEGER, read_retries INTEGER, read_errors INTEGER,
        written_mb INTEGER, read_mb INTEGER, compression_percent INTEGER
    ) STRICT;
    CREATE INDEX drive_reports_of_volume ON drive_reports (volser, at_ns);
    ",
    // What a drive says of its own life. Drives are asked at checkpoints, too: more rows of the same.
    "
    ALTER TABLE drive_reports ADD COLUMN drive_loads INTEGER;
    ALTER TABLE drive_reports ADD COLUMN drive_metres INTEGER;
    ",
    // Which volumes are write-once, so that nobody plans to write them anew. Until now none could be used.
    "
    ALTER TABLE volumes ADD COLUMN medium INTEGER NOT NULL DEFAULT 0;
    ",
    // What was found bad and since when; when each volume, and what it holds of each object, was last read back (an
    // empty `object` stands for the whole volume). `facts` are single values, such as the id of the library that
    // belongs to this catalog.
    "
    CREATE TABLE damage (
        volume INTEGER NOT NULL, first_lbn INTEGER NOT NULL, blocks INTEGER NOT NULL, since_ns INTEGER NOT NULL,
        found_by TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (volume, first_lbn, blocks)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE verifications (
        volume INTEGER NOT NULL, object BLOB NOT NULL, at_ns INTEGER NOT NULL, how TEXT NOT NULL,
        bad_blocks INTEGER NOT NULL, PRIMARY KEY (volume, object)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    ",
    // What an operator said that no volume knows: that the clock was right at a moment, and that a source is gone.
    // `after` is the last object that was recorded before, of all or of that source.
    "
    CREATE TABLE clock_confirmed (confirmation INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, after BLOB NOT NULL) STRICT;
    CREATE TABLE gone_sources (
        source BLOB NOT NULL, client TEXT NOT NULL, after BLOB NOT NULL, PRIMARY KEY (source, client)
    ) STRICT, WITHOUT ROWID;
    ",
    // Lives of volumes that a session has opened to write and is not known to have closed: they may hold more than is
    // recorded. Until now nobody noted it, so it may be any that is not full.
    "
    CREATE TABLE opened_volumes (volume INTEGER PRIMARY KEY) STRICT;
    INSERT INTO opened_volumes SELECT volume FROM volumes WHERE volume IS NOT NULL AND state IN (2, 4);
    ",
    // Who runs a job, how its command ended, what it said, and which objects it writes: those are being written and not
    // interrupted while its process lives. Until now nothing was entered.
    "
    ALTER TABLE jobs ADD COLUMN process TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN exit_code INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN log TEXT NOT NULL DEFAULT '';
    CREATE INDEX jobs_without_end ON jobs (job) WHERE ended_ns IS NULL;
    CREATE TABLE job_objects (job INTEGER NOT NULL, object BLOB NOT NULL, UNIQUE (job, object)) STRICT;
    ",
    // What each backup was told to leave out, a row a rule; an empty rule says that the others are all. Of older
    // objects nobody knows it.
    "
    CREATE TABLE left_out (object BLOB NOT NULL, rule TEXT NOT NULL, PRIMARY KEY (object, rule)) STRICT, WITHOUT ROWID;
    ",
    // What jobs that run have reserved; and under which reservation a volume was opened. Until now one process at a
    // time wrote.
    "
    CREATE TABLE reservations (
        kind TEXT NOT NULL, name BLOB NOT NULL, generation INTEGER NOT NULL, alone INTEGER NOT NULL,
        owner TEXT NOT NULL, until_ns INTEGER NOT NULL, PRIMARY KEY (kind, name, generation)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX reservations_of_generation ON reservations (generation);
    ALTER TABLE opened_volumes ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
    ",
    // Policies as they were written down; up to where their schedules are decided on; the names of the runs that
    // schedules made due; and the queue, whose runs move from table to table. `run_numbers` has one row.
    "
    CREATE TABLE policies (
        name TEXT PRIMARY KEY, text TEXT NOT NULL, changed_ns INTEGER NOT NULL, scheduled_ns INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE schedule_positions (
        policy TEXT NOT NULL, client TEXT NOT NULL, decided_ns INTEGER NOT NULL, PRIMARY KEY (policy, client)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE due_runs (
        policy TEXT NOT NULL, client TEXT NOT NULL, due_ns INTEGER NOT NULL, PRIMARY KEY (policy, client, due_ns)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE run_numbers (id INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT;
    CREATE TABLE pending_runs (
        run INTEGER PRIMARY KEY, policy TEXT NOT NULL, client TEXT NOT NULL, due_ns INTEGER, priority INTEGER NOT NULL,
        entered_ns INTEGER NOT NULL, attempt INTEGER NOT NULL, returns INTEGER NOT NULL,
        not_before_ns INTEGER NOT NULL, held INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE active_runs (
        run INTEGER PRIMARY KEY, policy TEXT NOT NULL, client TEXT NOT NULL, due_ns INTEGER, priority INTEGER NOT NULL,
        entered_ns INTEGER NOT NULL, attempt INTEGER NOT NULL, returns INTEGER NOT NULL, term INTEGER NOT NULL,
        claim BLOB NOT NULL, started_ns INTEGER NOT NULL, cancelled INTEGER NOT NULL, job INTEGER
    ) STRICT;
    CREATE TABLE done_runs (
        run INTEGER PRIMARY KEY, policy TEXT NOT NULL, client TEXT NOT NULL, due_ns INTEGER, priority INTEGER NOT NULL,
        entered_ns INTEGER NOT NULL, attempt INTEGER NOT NULL, returns INTEGER NOT NULL, started_ns INTEGER,
        ended_ns INTEGER NOT NULL, outcome INTEGER NOT NULL, message TEXT NOT NULL, job INTEGER
    ) STRICT;
    CREATE INDEX done_runs_in_order ON done_runs (ended_ns, run);
    ",
    // Peers of the cell, a row a certificate, and enrolments, which hold the key that a one-time passphrase makes.
    "
    CREATE TABLE peers (
        serial BLOB PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, enrolled_ns INTEGER NOT NULL,
        expires_ns INTEGER NOT NULL, revoked_ns INTEGER, seen_ns INTEGER, address TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE enrolments (peer TEXT PRIMARY KEY, record BLOB NOT NULL) STRICT, WITHOUT ROWID;
    ",
    // What the server told people by each way of each rule, and what came of the last message by each.
    "
    CREATE TABLE told (
        rule TEXT NOT NULL, way TEXT NOT NULL, thing TEXT NOT NULL, event TEXT NOT NULL, subject TEXT NOT NULL,
        policy TEXT NOT NULL, client TEXT NOT NULL, since_ns INTEGER NOT NULL, told_ns INTEGER NOT NULL,
        lasts INTEGER NOT NULL, PRIMARY KEY (rule, way, thing)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tellings (
        rule TEXT NOT NULL, way TEXT NOT NULL, subject TEXT NOT NULL, tried_ns INTEGER NOT NULL, arrived_ns INTEGER,
        problem TEXT NOT NULL, PRIMARY KEY (rule, way)
    ) STRICT, WITHOUT ROWID;
    ",
    // Runs that write to the same drives have the same session.
    "
    ALTER TABLE active_runs ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
    UPDATE active_runs SET session = run;
    ",
    // An attempt of a run knows which run it is of.
    "
    ALTER TABLE jobs ADD COLUMN run INTEGER;
    UPDATE jobs SET run = (SELECT active_runs.run FROM active_runs WHERE active_runs.job = jobs.job);
    ",
    // Users of the cell, who are people: their roles, a bit each, and the clients of a restorer, one a line.
    // Labels of clients, by which policies name them.
    "
    CREATE TABLE users (
        name TEXT PRIMARY KEY, roles INTEGER NOT NULL, clients TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE client_labels (
        client TEXT NOT NULL, label TEXT NOT NULL, since_ns INTEGER NOT NULL, PRIMARY KEY (client, label)
    ) STRICT, WITHOUT ROWID;
    ",
    // There may be several libraries: where a volume was last, and whose drives a run writes to.
    "
    ALTER TABLE volumes ADD COLUMN library TEXT NOT NULL DEFAULT 'main';
    ALTER TABLE active_runs ADD COLUMN library TEXT NOT NULL DEFAULT 'main';
    ",
    // A run may write each of its copies to several drives at once.
    "
    ALTER TABLE active_runs ADD COLUMN drives INTEGER NOT NULL DEFAULT 1;
    ",
    // Retention that nobody may shorten.
    "
    ALTER TABLE objects ADD COLUMN locked INTEGER NOT NULL DEFAULT 0;
    ",
    // What a run restores, for one that is no backup of a policy.
    "
    ALTER TABLE pending_runs ADD COLUMN restore TEXT;
    ALTER TABLE active_runs ADD COLUMN restore TEXT;
    ALTER TABLE done_runs ADD COLUMN restore TEXT;
    ",
    // What a cartridge is, for whoever chooses volumes and drives.
    "
    ALTER TABLE volumes ADD COLUMN generation TEXT;
    ",
    // Why the last attempt of a run did not do it, for whoever looks at what waits.
    "
    ALTER TABLE pending_runs ADD COLUMN last_message TEXT;
    ",
    // A cell may have thousands of peers, and most questions are about one.
    "
    CREATE INDEX peers_named ON peers (kind, name);
    ",
    // Who must be upgraded.
    "
    ALTER TABLE peers ADD COLUMN version TEXT NOT NULL DEFAULT '';
    ",
    // What streams hold of files that are not whole yet, or that began in other streams. `stretch` is how long it is,
    // `goes_on` whether its stream continues another.
    "
    CREATE TABLE fragments (
        object BLOB NOT NULL, connection INTEGER NOT NULL, start INTEGER NOT NULL, stretch INTEGER NOT NULL,
        goes_on INTEGER NOT NULL, entry BLOB NOT NULL, PRIMARY KEY (object, connection, start)
    ) STRICT, WITHOUT ROWID;
    ",
    // How far runs at work are. NULL until somebody notes it.
    "
    ALTER TABLE active_runs ADD COLUMN files INTEGER;
    ALTER TABLE active_runs ADD COLUMN bytes INTEGER;
    ALTER TABLE active_runs ADD COLUMN bytes_planned INTEGER;
    ALTER TABLE active_runs ADD COLUMN rate INTEGER;
    ALTER TABLE active_runs ADD COLUMN noted_ns INTEGER;
    ",
    // Whether somebody asked for a full backup.
    "
    ALTER TABLE pending_runs ADD COLUMN is_full INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE active_runs ADD COLUMN is_full INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE done_runs ADD COLUMN is_full INTEGER NOT NULL DEFAULT 0;
    ",
    // Movers have labels, too.
    "
    CREATE TABLE member_labels (
        kind TEXT NOT NULL, member TEXT NOT NULL, label TEXT NOT NULL, since_ns INTEGER NOT NULL,
        PRIMARY KEY (kind, member, label)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO member_labels SELECT 'client', client, label, since_ns FROM client_labels;
    DROP TABLE client_labels;
    ",
    // What a schedule decides on once more after its clock was set back; and runs that wait without having had a turn.
    "
    ALTER TABLE schedule_positions ADD COLUMN again_ns INTEGER;
    ALTER TABLE pending_runs ADD COLUMN keeps_age INTEGER NOT NULL DEFAULT 0;
    ",
    // Since when no message has arrived by a way of a rule, though some were sent.
    "
    ALTER TABLE tellings ADD COLUMN failing_ns INTEGER;
    ",
    // When another run was due that did not begin because of this one: what was backed up before is not taken for what
    // is there now.
    "
    ALTER TABLE pending_runs ADD COLUMN skipped_due_ns INTEGER;
    ALTER TABLE active_runs ADD COLUMN skipped_due_ns INTEGER;
    ALTER TABLE done_runs ADD COLUMN skipped_due_ns INTEGER;
    ",
    // Runs that their server's end interrupted go on, whatever their window says.
    "
    ALTER TABLE pending_runs ADD COLUMN has_begun INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE active_runs ADD COLUMN has_begun INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE done_runs ADD COLUMN has_begun INTEGER NOT NULL DEFAULT 0;
    ",
    // Whether somebody asked for a run at once, whatever the window of its policy says.
    "
    ALTER TABLE pending_runs ADD COLUMN any_time INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE active_runs ADD COLUMN any_time INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE done_runs ADD COLUMN any_time INTEGER NOT NULL DEFAULT 0;
    ",
    // The volume that a restore waits for to be inserted.
    "
    ALTER TABLE pending_runs ADD COLUMN lacks_volume TEXT;
    ",
    // Until when a volume's record of an object says that it is kept, 0 for ever: a further copy may have a retention
    // of its own. Until now none had.
    "
    ALTER TABLE copies ADD COLUMN expires_ns INTEGER;
    UPDATE copies SET expires_ns = (SELECT expires_ns FROM objects WHERE objects.object = copies.object);
    ",
    // The object whose state a full object holds that was made of it. What is based on that may stand on this one.
    "
    ALTER TABLE objects ADD COLUMN consolidates BLOB;
    CREATE INDEX objects_consolidated ON objects (consolidates) WHERE consolidates IS NOT NULL;
    ",
    // The last runs of a policy for a client say how fast that is, at each look at what waits.
    "
    CREATE INDEX done_runs_of_client ON done_runs (policy, client, ended_ns);
    ",
    // Words by which an object is found, each in a line.
    "
    ALTER TABLE objects ADD COLUMN tags TEXT;
    ",
    // Volumes that were sent away, and where they are kept. Whether there is something new to copy, and when it was
    // tried last, is asked every few seconds.
    "
    CREATE TABLE sent_volumes (
        volser TEXT PRIMARY KEY, vault TEXT NOT NULL, sent_ns INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX objects_by_end ON objects (ended_ns) WHERE complete = 1;
    CREATE INDEX done_runs_of_policy ON done_runs (policy, run);
    ",
];

/// The steps that a database of a version lacks.
pub(crate) fn steps_from(found: i64) -> Result<&'static [&'static str], CatalogError> {
    let supported = STEPS.len() as i64;
    if found > supported {
        return Err(CatalogError::Newer { found, supported });
    }
    let taken = usize::try_from(found)
        .map_err(|_| CatalogError::corrupt("the catalog's database", "the version of its schema is negative"))?;
    Ok(&STEPS[taken..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::ObjectId;
    use rusqlite::Connection;

    use super::*;
    use crate::{Catalog, CopyState};

    #[test]
    fn an_older_catalog_wants_the_copies_that_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let db = Connection::open(dir.path().join("catalog.db")).unwrap();
        db.execute_batch(STEPS[0]).unwrap();
        db.pragma_update(None, "user_version", 1).unwrap();
        db.execute_batch(
            "INSERT INTO pools VALUES ('main', NULL, NULL, 1), ('main-copy2', NULL, NULL, 1);
             INSERT INTO volumes VALUES ('A00001', 'main', 1, 2, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, 0, 0, 0),
                                        ('B00001', 'main-copy2', 2, 2, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, 0, 0, 0);
             INSERT INTO objects (object, source, client, policy, kind, complete, chunk_len, started_ns, ended_ns, expires_ns)
                 VALUES (x'01010101010101010101010101010101', x'2f', 'tern', '', 1, 1, 1, 1, 2, 0),
                        (x'02020202020202020202020202020202', x'2f', 'tern', '', 1, 0, 1, 1, 0, 0);
             INSERT INTO copies VALUES (x'01010101010101010101010101010101', 1, 1, 5),
                                       (x'01010101010101010101010101010101', 2, 2, 5),
                                       (x'02020202020202020202020202020202', 1, 1, 5);",
        )
        .unwrap();
        drop(db);
        let catalog = Catalog::open(dir.path()).unwrap();
        let lacking: Vec<_> =
            catalog.lacking_copies().unwrap().into_iter().map(|copy| (copy.copy, copy.pool, copy.state)).collect();
        let ended = CopyState::Ended;
        assert_eq!(lacking, [(1, "main".to_owned(), ended), (2, "main-copy2".to_owned(), ended)]);
        assert_eq!(catalog.wanted_copies(ObjectId([2; 16])).unwrap()[0].state, CopyState::Open);
    }
}
