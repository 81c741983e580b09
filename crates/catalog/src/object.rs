//! Objects: what was backed up, how far it came, where its copies are.

use capstan_format::{ExtentRecord, ObjectId, ObjectKind, SessionId, Volser};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::counts::Counts;
use crate::db::{Db, Row, Value, impossible, params};
use crate::recency::rank;
use crate::volume::{VolumeState, volser};

/// How far an object has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectStatus {
    /// A run writes it, or was interrupted; the next run of the source goes on with it. The catalog does not know
    /// which: whoever holds the lock on running does.
    Open,
    /// All of it is protected.
    Complete,
    /// It was given up. It can be taken back while its volumes are not labelled anew.
    Expired,
}

/// A backup image of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its id.
    pub id: ObjectId,
    /// What it images: an absolute path, or the name of a stream.
    pub source: Vec<u8>,
    /// The machine the source is on.
    pub client: String,
    /// The policy that asked for it.
    pub policy: String,
    /// Tree, device or stream.
    pub kind: ObjectKind,
    /// How far it has come.
    pub status: ObjectStatus,
    /// The object whose state this one continues, for an incremental: the one that it was made on, or the full one that
    /// stands for that.
    pub base: Option<ObjectId>,
    /// The one that it was made on, as volumes say.
    pub made_on: Option<ObjectId>,
    /// The object whose state it holds in full, for one that was made of that and of what that stands on.
    pub consolidates: Option<ObjectId>,
    /// Payload bytes of every block but a connection's last.
    pub chunk_len: u32,
    /// When it was begun, nanoseconds since 1970.
    pub started_ns: i64,
    /// When it ended; 0 while it is open.
    pub ended_ns: i64,
    /// When it may be forgotten; 0 for never.
    pub expires_ns: i64,
    /// Whether nobody may have it forgotten before.
    pub is_locked: bool,
    /// Words by which it is found.
    pub tags: Vec<String>,
    /// What it holds; `None` until its index is sealed.
    pub counts: Option<Counts>,
}

/// What stands between tags in the database; no tag has it.
pub(crate) const TAG_ENDS: &str = "\n";

fn tags_of(text: &str) -> Vec<String> {
    text.split(TAG_ENDS).map(str::to_owned).collect()
}

/// Which objects are wanted; the default is all that are not expired.
#[derive(Debug, Clone, Default)]
pub struct ObjectFilter {
    /// Only of this source.
    pub source: Option<Vec<u8>>,
    /// Only of this client.
    pub client: Option<String>,
    /// Only of this policy.
    pub policy: Option<String>,
    /// Only with this status; without it, all but expired ones.
    pub status: Option<ObjectStatus>,
}

/// One copy of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectCopy {
    /// Its number, from 1.
    pub copy: u8,
    /// The volumes that hold it, in the order they were written.
    pub volumes: Vec<Volser>,
}

/// How long a policy's objects on a volume are kept, from when each was begun, in nanoseconds; the greatest number is
/// for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOnVolume {
    /// The volume.
    pub volser: Volser,
    /// Its pool.
    pub pool: Option<String>,
    /// The policy.
    pub policy: String,
    /// Of these objects the one that goes first.
    pub shortest_ns: i64,
    /// And the one that goes last.
    pub longest_ns: i64,
}

/// Consecutive blocks of one connection of an object, and which copy and volume they belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The copy.
    pub copy: u8,
    /// The volume.
    pub volser: Volser,
    /// The session that wrote it.
    pub session: SessionId,
    /// The blocks.
    pub record: ExtentRecord,
}

/// What an object stands on: the full object that stands for its base, if there is one, else the base itself. One of
/// another source stands for nothing, whatever a volume says; nor does one whose volumes were erased, nor, while the
/// base is there, one that is not known to be whole.
macro_rules! base {
    () => {
        "COALESCE((SELECT other.object FROM objects AS other WHERE other.consolidates = objects.base
                       AND other.base IS NULL AND other.complete = 1 AND other.expired_ns IS NULL
                       AND other.source = objects.source AND other.client = objects.client
                       AND EXISTS (SELECT 1 FROM copies WHERE copies.object = other.object)
                       AND (EXISTS (SELECT 1 FROM wanted_copies
                                    WHERE wanted_copies.object = other.object AND wanted_copies.whole = 1)
                            OR NOT EXISTS (SELECT 1 FROM objects AS own WHERE own.object = objects.base
                                           AND own.complete = 1 AND own.expired_ns IS NULL
                                           AND EXISTS (SELECT 1 FROM copies WHERE copies.object = own.object)))
                   ORDER BY other.object DESC LIMIT 1), base)"
    };
}

const OBJECT: &str = concat!(
    "SELECT object, source, client, policy, kind, complete, ",
    base!(),
    ", chunk_len, started_ns, ended_ns, expires_ns, expired_ns, entries, files, bytes, deleted, changed, problems, locked,
       consolidates, base, tags FROM objects"
);

/// What a volume holds of objects that are not given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededOnVolume {
    /// The volume.
    pub volser: Volser,
    /// How many objects it holds something of.
    pub objects: u64,
    /// Bytes that this takes on it.
    pub bytes: u64,
    /// The same before compression.
    pub plain_bytes: u64,
}

impl Catalog {
    /// An object, whatever its status.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn object(&self, object: ObjectId) -> Result<Option<Object>, CatalogError> {
        find(&self.db, object)
    }

    /// Objects, the latest first: those that were recorded last, and each before what it stands on. Clocks have no say.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn objects(&self, filter: &ObjectFilter) -> Result<Vec<Object>, CatalogError> {
        let mut objects = self.select(filter)?;
        rank(&mut objects, |object| (object.id, object.base));
        Ok(objects)
    }

    /// The latest object of a filter.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn latest(&self, filter: &ObjectFilter) -> Result<Option<Object>, CatalogError> {
        Ok(self.objects(filter)?.into_iter().next())
    }

    fn select(&self, filter: &ObjectFilter) -> Result<Vec<Object>, CatalogError> {
        let ObjectFilter { source, client, policy, status } = filter;
        let expired = if *status == Some(ObjectStatus::Expired) { "IS NOT NULL" } else { "IS NULL" };
        let mut query = format!("{OBJECT} WHERE expired_ns {expired}");
        let mut values = Vec::new();
        // What is not asked for is not in the text, so that those of a source are found by its index.
        let mut is = |column: &str, value| {
            query += &format!(" AND {column} = ?{}", values.len() + 1);
            values.push(value);
        };
        if let Some(source) = source {
            is("source", Value::Bytes(source));
        }
        if let Some(client) = client {
            is("client", Value::Text(client));
        }
        if let Some(policy) = policy {
            is("policy", Value::Text(policy));
        }
        if let Some(status) = status.filter(|status| *status != ObjectStatus::Expired) {
            is("complete", Value::Integer(i64::from(status as u8)));
        }
        self.db.query(&query, &values, object_row)
    }

    /// Living objects that stand directly on an object.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn dependents(&self, object: ObjectId) -> Result<Vec<ObjectId>, CatalogError> {
        dependents(&self.db, object)
    }

    /// The copies of an object that are on some volume, each with its volumes in the order they were written.
    ///
    /// # Errors
    /// The database cannot be read, or a barcode in it is damaged.
    pub fn copies(&self, object: ObjectId) -> Result<Vec<ObjectCopy>, CatalogError> {
        let query = "SELECT copy, volser FROM copies JOIN volumes USING (volume) WHERE object = ?1
                     ORDER BY copy, first_ns, volser";
        let rows: Vec<(u8, Volser)> =
            self.db.query(query, params![object.0], |row| Ok((row.get(0)?, volser(row, 1)?)))?;
        let mut copies: Vec<ObjectCopy> = Vec::new();
        for (copy, volser) in rows {
            match copies.last_mut().filter(|last| last.copy == copy) {
                Some(last) => last.volumes.push(volser),
                None => copies.push(ObjectCopy { copy, volumes: vec![volser] }),
            }
        }
        Ok(copies)
    }

    /// Objects that have data on a volume, the latest first, but for expired ones.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn objects_on(&self, volser: &Volser) -> Result<Vec<Object>, CatalogError> {
        let query = format!(
            "{OBJECT} WHERE object IN (SELECT object FROM copies JOIN volumes USING (volume) WHERE volser = ?1)
             AND expired_ns IS NULL"
        );
        let mut objects = self.db.query(&query, params![volser.as_str()], object_row)?;
        rank(&mut objects, |object| (object.id, object.base));
        Ok(objects)
    }

    /// How long what lives on the volumes that are being filled is kept, by volume and policy.
    ///
    /// # Errors
    /// The database cannot be read, or a barcode in it is damaged.
    pub fn kept_on_volumes(&self) -> Result<Vec<KeptOnVolume>, CatalogError> {
        let query = "SELECT volser, pool, policy, MIN(kept_ns), MAX(kept_ns) FROM
                     (SELECT volser, pool, policy,
                             CASE WHEN COALESCE(copies.expires_ns, objects.expires_ns) = 0 THEN ?2
                                  ELSE COALESCE(copies.expires_ns, objects.expires_ns) - started_ns END AS kept_ns
                      FROM volumes JOIN copies USING (volume) JOIN objects USING (object)
                      WHERE state = ?1 AND expired_ns IS NULL) AS kept
                     GROUP BY volser, pool, policy";
        self.db.query(query, params![VolumeState::Filling.code(), i64::MAX], |row| {
            let (volser, pool, policy) = (volser(row, 0)?, row.get(1)?, row.get(2)?);
            Ok(KeptOnVolume { volser, pool, policy, shortest_ns: row.get(3)?, longest_ns: row.get(4)? })
        })
    }

    /// How much volumes hold of objects that are not given up, by barcode; none of those that hold nothing of any. One
    /// pass over all extents.
    ///
    /// # Errors
    /// The database cannot be read, or a barcode in it is damaged.
    pub fn needed_on_volumes(&self) -> Result<Vec<NeededOnVolume>, CatalogError> {
        let query = "SELECT volser, COUNT(DISTINCT copies.object), CAST(COALESCE(SUM(stored), 0) AS BIGINT),
                            CAST(COALESCE(SUM(plain), 0) AS BIGINT)
                     FROM copies JOIN objects USING (object) JOIN volumes USING (volume)
                     LEFT JOIN (SELECT object, volume, CAST(SUM(stored_len) AS BIGINT) AS stored,
                                       CAST(SUM(plain_len) AS BIGINT) AS plain FROM extents
                                GROUP BY object, volume) AS held
                         ON held.object = copies.object AND held.volume = copies.volume
                     WHERE expired_ns IS NULL GROUP BY volser ORDER BY volser";
        self.db.query(query, &[], |row| {
            Ok(NeededOnVolume {
                volser: volser(row, 0)?,
                objects: row.get(1)?,
                bytes: row.get(2)?,
                plain_bytes: row.get(3)?,
            })
        })
    }

    /// The extents of an object, of all copies or of one, by copy, connection and offset.
    ///
    /// # Errors
    /// The database cannot be read, or a barcode in it is damaged.
    pub fn extents(&self, object: ObjectId, copy: Option<u8>) -> Result<Vec<Extent>, CatalogError> {
        self.select_extents(
            "object = ?1 AND (?2 IS NULL OR copy = ?2) ORDER BY copy, connection, start, first_sequence, volume",
            params![object.0, copy],
        )
    }

    /// The extents that hold bytes `from` up to `to` of a connection's stream, by copy and offset.
    ///
    /// # Errors
    /// As [`Catalog::extents`].
    pub fn extents_of_range(
        &self,
        object: ObjectId,
        connection: u16,
        from: u64,
        to: u64,
    ) -> Result<Vec<Extent>, CatalogError> {
        let bound = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.select_extents(
            "object = ?1 AND connection = ?2 AND start < ?4 AND start + plain_len > ?3
             ORDER BY copy, start, first_sequence, volume",
            params![object.0, connection, bound(from), bound(to)],
        )
    }

    /// The extents on a volume, in the order of the tape, but for those of expired objects.
    ///
    /// # Errors
    /// As [`Catalog::extents`].
    pub fn extents_on(&self, volser: &Volser) -> Result<Vec<Extent>, CatalogError> {
        self.select_extents(
            "volser = ?1 AND object NOT IN (SELECT object FROM objects WHERE expired_ns IS NOT NULL)
             ORDER BY first_lbn",
            params![volser.as_str()],
        )
    }

    fn select_extents(&self, condition: &str, values: &[Value<'_>]) -> Result<Vec<Extent>, CatalogError> {
        let query = format!(
            "SELECT copy, volser, session, connection, first_sequence, first_lbn, blocks, start, plain_len, stored_len, object
             FROM extents JOIN copies USING (object, volume) JOIN volumes USING (volume) WHERE {condition}"
        );
        self.db.query(&query, values, extent_row)
    }
}

fn extent_row(row: &Row<'_>) -> Result<Extent, CatalogError> {
    Ok(Extent {
        copy: row.get(0)?,
        volser: volser(row, 1)?,
        session: SessionId(row.get::<i64>(2)?.cast_unsigned()),
        record: ExtentRecord {
            object: ObjectId(row.get(10)?),
            connection: row.get(3)?,
            first_sequence: row.get(4)?,
            first_lbn: row.get(5)?,
            blocks: row.get(6)?,
            offset: row.get(7)?,
            plain_len: row.get(8)?,
            stored_len: row.get(9)?,
        },
    })
}

pub(crate) fn find(db: &Db, object: ObjectId) -> Result<Option<Object>, CatalogError> {
    db.query_first(&format!("{OBJECT} WHERE object = ?1"), params![object.0], object_row)
}

pub(crate) fn dependents(db: &Db, object: ObjectId) -> Result<Vec<ObjectId>, CatalogError> {
    let query = concat!(
        "SELECT object FROM objects WHERE expired_ns IS NULL
         AND (base = ?1 OR base = (SELECT consolidates FROM objects WHERE object = ?1)) AND ",
        base!(),
        " = ?1 ORDER BY object"
    );
    db.query(query, params![object.0], |row| row.get(0).map(ObjectId))
}

/// The number that a kind has in the database.
pub(crate) fn kind_code(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::Tree => 1,
        ObjectKind::Device => 2,
        ObjectKind::Stream => 3,
    }
}

fn object_row(row: &Row<'_>) -> Result<Object, CatalogError> {
    let kind = match row.get::<u8>(4)? {
        1 => ObjectKind::Tree,
        2 => ObjectKind::Device,
        3 => ObjectKind::Stream,
        other => return Err(impossible("an object's kind", other)),
    };
    let status = match (row.get::<bool>(5)?, row.get::<Option<i64>>(11)?) {
        (_, Some(_)) => ObjectStatus::Expired,
        (true, None) => ObjectStatus::Complete,
        (false, None) => ObjectStatus::Open,
    };
    let counts = match row.get::<Option<u64>>(12)? {
        Some(entries) => Some(Counts {
            entries,
            files: row.get(13)?,
            bytes: row.get(14)?,
            deleted: row.get(15)?,
            changed: row.get(16)?,
            problems: row.get(17)?,
        }),
        None => None,
    };
    Ok(Object {
        id: ObjectId(row.get(0)?),
        source: row.get(1)?,
        client: row.get(2)?,
        policy: row.get(3)?,
        kind,
        status,
        base: row.get::<Option<_>>(6)?.map(ObjectId),
        made_on: row.get::<Option<_>>(20)?.map(ObjectId),
        consolidates: row.get::<Option<_>>(19)?.map(ObjectId),
        chunk_len: row.get(7)?,
        started_ns: row.get(8)?,
        ended_ns: row.get(9)?,
        expires_ns: row.get(10)?,
        is_locked: row.get(18)?,
        tags: row.get::<Option<String>>(21)?.map_or_else(Vec::new, |text| tags_of(&text)),
        counts,
    })
}
