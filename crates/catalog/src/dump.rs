//! The catalog as text, to compare one that was lost with one that was rebuilt.

use std::io::{self, Write};

use capstan_format::{FileEntry, ObjectId};
use serde_json::{Value, json};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::Cell;
use crate::fragments::StreamEnds;
use crate::object::{Object, ObjectFilter};

impl Catalog {
    /// Writes one JSON object a line for all that can be read back from volumes, in an order that depends on nothing
    /// else: volumes, sessions, checkpoints; then each object with its streams, copies, extents and entries.
    ///
    /// Left out is what only this catalog knows: pools' rules, volumes' states and counters, jobs, expired objects
    /// (their data may still be on a volume: a rebuild brings them back), and objects and wanted copies of which no
    /// volume holds anything. Nothing should be recorded meanwhile.
    ///
    /// # Errors
    /// The database or an index file cannot be read, or `out` cannot be written.
    pub fn dump(&self, out: &mut dyn Write) -> Result<(), CatalogError> {
        self.dump_volumes(out)?;
        let mut objects = self.objects(&ObjectFilter::default())?;
        objects.sort_by_key(|object| object.id);
        for object in objects {
            self.dump_object(&object, out)?;
        }
        Ok(())
    }

    fn dump_volumes(&self, out: &mut dyn Write) -> Result<(), CatalogError> {
        for volume in self.volumes()? {
            let Some(id) = volume.id else { continue };
            let key = volume.key.map(|key| json!({"tag": key.tag.to_string(), "algorithm": key.algorithm.name()}));
            let line = json!({
                "row": "volume", "volser": volume.volser.as_str(), "id": id.to_string(), "pool": volume.pool, "key": key,
                "labelled_ns": volume.labelled_ns, "recycled": volume.recycled,
                "checkpoint_lbn": volume.checkpoint_lbn, "end_of_data_lbn": volume.end_of_data_lbn,
            });
            put(out, &line)?;
        }
        let sessions = "SELECT volser, session, started_ns, host, software, closed_ns, continued_on
                        FROM sessions JOIN volumes USING (volume) ORDER BY volser, coalesce(started_ns, 0), session";
        let columns = ["volser", "session", "started_ns", "host", "software", "closed_ns", "continued_on"];
        self.dump_rows(out, "session", sessions, &columns)?;
        let checkpoints = "SELECT volser, session, number, lbn, checkpoints.written_ns
                           FROM checkpoints JOIN volumes USING (volume) ORDER BY volser, lbn";
        self.dump_rows(out, "checkpoint", checkpoints, &["volser", "session", "number", "lbn", "written_ns"])
    }

    /// One line for each row of a query, each column under its name.
    fn dump_rows(&self, out: &mut dyn Write, name: &str, query: &str, columns: &[&str]) -> Result<(), CatalogError> {
        let lines = self.db.query(query, &[], |row| {
            let mut line = serde_json::Map::from_iter([("row".to_owned(), json!(name))]);
            for (at, column) in columns.iter().enumerate() {
                let value = match row.cell(at)? {
                    Cell::Integer(number) => json!(number),
                    Cell::Text(text) => json!(text),
                    Cell::Null | Cell::Bytes(_) => Value::Null,
                };
                line.insert((*column).to_owned(), value);
            }
            Ok(Value::Object(line))
        })?;
        lines.iter().try_for_each(|line| put(out, line))
    }

    fn dump_object(&self, object: &Object, out: &mut dyn Write) -> Result<(), CatalogError> {
        let copies = self.copies(object.id)?;
        if copies.is_empty() {
            return Ok(());
        }
        let line = json!({
            "row": "object", "id": object.id.to_string(), "source": text(&object.source), "client": object.client,
            "policy": object.policy, "kind": format!("{:?}", object.kind), "status": format!("{:?}", object.status),
            "base": object.base.map(|base| base.to_string()), "chunk_len": object.chunk_len,
            "started_ns": object.started_ns, "ended_ns": object.ended_ns, "expires_ns": object.expires_ns,
            "locked": object.is_locked, "consolidates": object.consolidates.map(|other| other.to_string()),
            "tags": object.tags,
        });
        put(out, &line)?;
        let id = object.id.to_string();
        let StreamEnds { parts, continued } = self.stream_ends(object.id)?;
        for part in parts {
            let (connection, valid_len) = (part.connection, part.valid_len);
            let by = continued.get(&connection).map(|stream| stream.by);
            let mut line = json!({"row": "part", "object": id, "connection": connection, "valid_len": valid_len});
            if let (Some(by), Some(line)) = (by, line.as_object_mut()) {
                line.insert("continued_by".to_owned(), by.into());
            }
            put(out, &line)?;
        }
        let wanted = self.wanted_copies(object.id)?;
        let ends = self.copy_ends(Some(object.id))?;
        for copy in copies {
            let volumes: Vec<_> = copy.volumes.iter().map(capstan_format::Volser::as_str).collect();
            let wanted = wanted.iter().find(|wanted| wanted.copy == copy.copy);
            let (pool, state) = (wanted.map(|it| &it.pool), wanted.map(|it| format!("{:?}", it.state)));
            let line = json!({
                "row": "copy", "object": id, "copy": copy.copy, "volumes": volumes, "pool": pool, "state": state,
                "expires_ns": ends.iter().find(|end| end.copy == copy.copy).map(|end| end.expires_ns),
            });
            put(out, &line)?;
        }
        for extent in self.extents(object.id, None)? {
            let record = extent.record;
            let line = json!({
                "row": "extent", "object": id, "copy": extent.copy, "volser": extent.volser.as_str(),
                "session": extent.session.to_string(), "connection": record.connection,
                "first_sequence": record.first_sequence, "first_lbn": record.first_lbn, "blocks": record.blocks,
                "offset": record.offset, "plain_len": record.plain_len, "stored_len": record.stored_len,
            });
            put(out, &line)?;
        }
        for entry in self.index(object.id)?.iter() {
            put(out, &entry_line(object.id, &entry?))?;
        }
        Ok(())
    }
}

fn entry_line(object: ObjectId, entry: &FileEntry) -> Value {
    json!({
        "row": "entry", "object": object.to_string(), "path": text(&entry.path), "kind": format!("{:?}", entry.kind),
        "flags": entry.flags.0, "mode": entry.mode, "uid": entry.uid, "gid": entry.gid, "size": entry.size,
        "mtime_ns": entry.mtime_ns, "change": entry.change, "crc": entry.crc, "connection": entry.connection,
        "offset": entry.offset, "member_len": entry.member_len, "link": text(&entry.link),
    })
}

/// Bytes as text where they are UTF-8, else as hex under `hex`.
fn text(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()}),
    }
}

fn put(out: &mut dyn Write, line: &Value) -> Result<(), CatalogError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull => CatalogError::DiskFull { what: "write the dump".to_owned() },
        _ => CatalogError::Io { what: "cannot write the dump".to_owned(), source },
    };
    serde_json::to_writer(&mut *out, line).map_err(|error| failed(error.into()))?;
    out.write_all(b"\n").map_err(failed)
}
