//! Writing an index file: rows in order in, row groups out.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId, crc32c};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::columns::{
    Column, Effort, GROUP_ROWS, GROUP_TEXT_MAX, LAYOUT, MemberEnds, OBJECT_KEY, PARTS_KEY, padded_content, properties,
    schema,
};
use super::parts::PartsOfGroup;
use crate::order::split;
use crate::{CatalogError, Counts};

type RowGroup<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

/// Takes entries in order, at most one of each path, and writes the file.
///
/// Encoding and compression run in a thread of their own, one row group behind, beside the sorting that feeds it.
pub(crate) struct IndexWriter {
    what: String,
    groups: Option<SyncSender<Rows>>,
    thread: Option<JoinHandle<Result<()>>>,
    group_rows: usize,
    rows: Rows,
    counts: Counts,
}

impl IndexWriter {
    /// A writer into an empty file; `what` names the file in errors.
    pub(crate) fn new(
        file: File,
        what: String,
        object: ObjectId,
        effort: Effort,
    ) -> std::result::Result<Self, CatalogError> {
        let (groups, incoming) = sync_channel::<Rows>(0);
        let thread = std::thread::Builder::new().name("index".to_owned()).spawn(move || {
            let mut writer = SerializedFileWriter::new(BufWriter::new(file), schema()?, Arc::new(properties(effort)?))?;
            writer.append_key_value_metadata(KeyValue::new(LAYOUT.0.to_owned(), LAYOUT.1.to_owned()));
            writer.append_key_value_metadata(KeyValue::new(OBJECT_KEY.to_owned(), object.to_string()));
            let mut bitmaps = Vec::new();
            for rows in incoming {
                // What lives as long as its reader is read once.
                bitmaps.extend((effort == Effort::Kept).then(|| rows.parts()));
                Rows::write(rows, &mut writer)?;
            }
            put_parts(&mut writer, &bitmaps)?;
            writer.close()?;
            Ok(())
        });
        let thread = thread.map_err(|source| CatalogError::Io {
            what: "cannot start a thread to write an index".to_owned(),
            source,
        })?;
        let (rows, counts) = (Rows::default(), Counts::default());
        Ok(Self { what, groups: Some(groups), thread: Some(thread), group_rows: GROUP_ROWS, rows, counts })
    }

    /// With row groups so small that a test has many.
    #[cfg(test)]
    pub(crate) fn with_group_rows(mut self, group_rows: usize) -> Self {
        self.group_rows = group_rows;
        self
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: &FileEntry) -> std::result::Result<(), CatalogError> {
        self.counts.add(entry);
        self.rows.push(entry);
        if self.rows.len() == self.group_rows || self.rows.text_len() >= GROUP_TEXT_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is left and the footer; the file is not yet synced.
    pub(crate) fn finish(mut self) -> std::result::Result<Counts, CatalogError> {
        if self.rows.len() > 0 {
            self.flush()?;
        }
        self.join()?;
        Ok(self.counts)
    }

    fn flush(&mut self) -> std::result::Result<(), CatalogError> {
        let rows = std::mem::take(&mut self.rows);
        let taken = self.groups.as_ref().is_some_and(|groups| groups.send(rows).is_ok());
        // The thread takes no more when it has failed, and then it says why.
        if taken { Ok(()) } else { self.join() }
    }

    /// Waits for the thread to end.
    fn join(&mut self) -> std::result::Result<(), CatalogError> {
        self.groups = None;
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        let panicked = || Err(ParquetError::General("the writing thread panicked".to_owned()));
        ended.unwrap_or_else(|_| panicked()).map_err(|error| write_error(&self.what, error))
    }
}

impl Drop for IndexWriter {
    /// A writer that is given up leaves no thread behind that still writes to its file.
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// Writes the bitmaps behind the row groups, and says in the footer where they are.
fn put_parts(writer: &mut SerializedFileWriter<BufWriter<File>>, bitmaps: &[Vec<u8>]) -> Result<()> {
    let mut places = String::new();
    for bitmap in bitmaps {
        let _ = writeln!(places, "{} {} {}", writer.bytes_written(), bitmap.len(), crc32c(bitmap));
        writer.write_all(bitmap)?;
    }
    if !places.is_empty() {
        writer.append_key_value_metadata(KeyValue::new(PARTS_KEY.to_owned(), places));
    }
    Ok(())
}

fn write_error(what: &str, error: ParquetError) -> CatalogError {
    let source = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(source) => *source,
            Err(inner) => std::io::Error::other(inner),
        },
        other => std::io::Error::other(other),
    };
    CatalogError::io("write", std::path::Path::new(what), source)
}

/// The rows of one row group, by column.
#[derive(Default)]
struct Rows {
    /// Directories one after another, each once for its run of rows, and where each row's directory lies.
    dirs: Vec<u8>,
    dir_spans: Vec<(usize, usize)>,
    names: Vec<u8>,
    name_ends: Vec<usize>,
    links: Vec<u8>,
    link_ends: Vec<usize>,
    link_levels: Vec<i16>,
    kind: Vec<i32>,
    flags: Vec<i32>,
    mode: Vec<i32>,
    uid: Vec<i32>,
    gid: Vec<i32>,
    size: Vec<i64>,
    mtime: Vec<i64>,
    change: Vec<i32>,
    crc: Vec<i32>,
    crc_levels: Vec<i16>,
    connection: Vec<i32>,
    gap: Vec<i64>,
    surplus: Vec<i64>,
    ends: MemberEnds,
}

impl Rows {
    fn len(&self) -> usize {
        self.dir_spans.len()
    }

    fn text_len(&self) -> usize {
        self.dirs.len() + self.names.len() + self.links.len()
    }

    /// The bitmap of what the paths have in them.
    fn parts(&self) -> Vec<u8> {
        let (mut parts, mut from, mut last) = (PartsOfGroup::new(), 0, None);
        for (&span, &end) in self.dir_spans.iter().zip(&self.name_ends) {
            let dir = &self.dirs[span.0..span.1];
            if last.replace(span) != Some(span) {
                parts.add_dir(dir);
            }
            parts.add_name(dir, &self.names[from..end]);
            from = end;
        }
        parts.finish()
    }

    fn push(&mut self, entry: &FileEntry) {
        let (dir, name) = split(&entry.path);
        let span = match self.dir_spans.last() {
            Some(&(from, to)) if self.dirs[from..to] == *dir => (from, to),
            _ => {
                let from = self.dirs.len();
                self.dirs.extend_from_slice(dir);
                (from, self.dirs.len())
            }
        };
        self.dir_spans.push(span);
        self.names.extend_from_slice(name);
        self.name_ends.push(self.names.len());
        let linked = entry.kind == EntryKind::HardLink;
        self.link_levels.push(i16::from(linked));
        if linked {
            self.links.extend_from_slice(&entry.link);
            self.link_ends.push(self.links.len());
        }
        self.kind.push(i32::from(entry.kind.code()));
        self.flags.push(i32::from(entry.flags.0));
        self.mode.push(entry.mode.cast_signed());
        self.uid.push(entry.uid.cast_signed());
        self.gid.push(entry.gid.cast_signed());
        self.size.push(entry.size.cast_signed());
        self.mtime.push(entry.mtime_ns);
        self.change.push(entry.change.cast_signed());
        self.crc_levels.push(i16::from(entry.crc != 0));
        if entry.crc != 0 {
            self.crc.push(entry.crc.cast_signed());
        }
        self.connection.push(i32::from(entry.connection));
        let end = self.ends.of(entry.connection);
        self.gap.push(entry.offset.wrapping_sub(*end).cast_signed());
        *end = entry.offset.wrapping_add(entry.member_len);
        let padded = padded_content(entry.kind, EntryFlags(entry.flags.0), entry.size);
        self.surplus.push(entry.member_len.wrapping_sub(padded).cast_signed());
    }

    fn write(self, writer: &mut SerializedFileWriter<BufWriter<File>>) -> Result<()> {
        let dirs = ByteArray::from(self.dirs);
        let dirs: Vec<_> = self.dir_spans.iter().map(|&(from, to)| dirs.slice(from, to - from)).collect();
        let names = pieces(self.names, &self.name_ends);
        let links = pieces(self.links, &self.link_ends);
        let mut group = writer.next_row_group()?;
        put::<ByteArrayType>(&mut group, Column::Dir, &dirs, None)?;
        put::<ByteArrayType>(&mut group, Column::Name, &names, None)?;
        put::<Int32Type>(&mut group, Column::Kind, &self.kind, None)?;
        put::<Int32Type>(&mut group, Column::Flags, &self.flags, None)?;
        put::<Int32Type>(&mut group, Column::Mode, &self.mode, None)?;
        put::<Int32Type>(&mut group, Column::Uid, &self.uid, None)?;
        put::<Int32Type>(&mut group, Column::Gid, &self.gid, None)?;
        put::<Int64Type>(&mut group, Column::Size, &self.size, None)?;
        put::<Int64Type>(&mut group, Column::Mtime, &self.mtime, None)?;
        put::<Int32Type>(&mut group, Column::Change, &self.change, None)?;
        put::<Int32Type>(&mut group, Column::Crc, &self.crc, Some(&self.crc_levels))?;
        put::<Int32Type>(&mut group, Column::Connection, &self.connection, None)?;
        put::<Int64Type>(&mut group, Column::Gap, &self.gap, None)?;
        put::<Int64Type>(&mut group, Column::Surplus, &self.surplus, None)?;
        put::<ByteArrayType>(&mut group, Column::Link, &links, Some(&self.link_levels))?;
        group.close()?;
        Ok(())
    }
}

fn pieces(bytes: Vec<u8>, ends: &[usize]) -> Vec<ByteArray> {
    let bytes = ByteArray::from(bytes);
    let mut from = 0;
    let piece = |&to: &usize| {
        let piece = bytes.slice(from, to - from);
        from = to;
        piece
    };
    ends.iter().map(piece).collect()
}

/// Writes the next column of a row group; columns come in the order of the schema.
fn put<T: DataType>(group: &mut RowGroup<'_>, column: Column, values: &[T::T], levels: Option<&[i16]>) -> Result<()> {
    let mut writer = group
        .next_column()?
        .ok_or_else(|| ParquetError::General(format!("the schema ends before column {column:?}")))?;
    writer.typed::<T>().write_batch(values, levels, None)?;
    writer.close()
}
