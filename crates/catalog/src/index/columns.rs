//! The columns of an index file and how each is written. `docs/CATALOG.md` says the same for those who read it
//! elsewhere.
//!
//! Two columns are derived, because what they stand for can nearly be foretold: where a member begins (behind the
//! member before it on its connection) and how long it is (a header and the content, padded to 512). Both are then a
//! few constants over and over and cost next to nothing.

use std::sync::Arc;

use capstan_format::{EntryFlags, EntryKind};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

/// Rows of a row group: what is decompressed to list a directory, and what a zstd frame of names learns from.
///
/// Measured on a `/usr` of 154,000 entries: 64 Ki rows cost 0.2 bytes a row more, 256 Ki 0.2 less and twice the time of
/// a listing.
pub(crate) const GROUP_ROWS: usize = 128 * 1024;

/// Bytes of names and links in a row group, should they be very long; a page has to stay below 2 GiB.
pub(crate) const GROUP_TEXT_MAX: usize = 64 << 20;

/// Key in the footer of the version of the columns, and the version.
pub(crate) const LAYOUT: (&str, &str) = ("capstan.index", "1");
/// Key in the footer of where the bitmap of each row group lies ([`super::parts`]): offset, length and CRC32C of each,
/// with spaces between them, a row group a line. Files of versions before have none.
pub(crate) const PARTS_KEY: &str = "capstan.parts";
/// Key in the footer of the object's id.
pub(crate) const OBJECT_KEY: &str = "capstan.object";

/// A column's place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Column {
    Dir,
    Name,
    Kind,
    Flags,
    Mode,
    Uid,
    Gid,
    Size,
    Mtime,
    Change,
    Crc,
    Connection,
    Gap,
    Surplus,
    Link,
}

struct Layout {
    column: Column,
    name: &'static str,
    physical: Physical,
    logical: Option<LogicalType>,
    repetition: Repetition,
    /// `None` is a dictionary.
    encoding: Option<Encoding>,
    level: i32,
}

fn layout() -> Vec<Layout> {
    use Column::{Change, Connection, Crc, Dir, Flags, Gap, Gid, Kind, Link, Mode, Mtime, Name, Size, Surplus, Uid};
    let column = |column, name, physical, logical, encoding, level| {
        let optional = matches!(column, Crc | Link);
        let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Layout { column, name, physical, logical, repetition, encoding, level }
    };
    let unsigned = |bits| Some(LogicalType::integer(bits, false));
    let (text, int, long) = (Physical::BYTE_ARRAY, Physical::INT32, Physical::INT64);
    let split = Some(Encoding::BYTE_STREAM_SPLIT);
    vec![
        column(Dir, "dir", text, None, Some(Encoding::DELTA_BYTE_ARRAY), 6),
        column(Name, "name", text, None, Some(Encoding::DELTA_BYTE_ARRAY), 6),
        column(Kind, "kind", int, unsigned(8), None, 3),
        column(Flags, "flags", int, unsigned(8), None, 3),
        column(Mode, "mode", int, unsigned(32), None, 3),
        column(Uid, "uid", int, unsigned(32), None, 3),
        column(Gid, "gid", int, unsigned(32), None, 3),
        column(Size, "size", long, unsigned(64), split, 3),
        column(Mtime, "mtime", long, Some(LogicalType::timestamp(true, TimeUnit::NANOS)), Some(Encoding::PLAIN), 6),
        column(Change, "change", int, unsigned(32), split, 3),
        column(Crc, "crc", int, unsigned(32), split, 1),
        column(Connection, "connection", int, unsigned(16), None, 3),
        column(Gap, "gap", long, None, None, 3),
        column(Surplus, "surplus", long, None, None, 3),
        column(Link, "link", text, None, Some(Encoding::DELTA_LENGTH_BYTE_ARRAY), 3),
    ]
}

/// The file's schema.
pub(crate) fn schema() -> Result<TypePtr> {
    let mut fields = Vec::new();
    for (at, column) in layout().into_iter().enumerate() {
        debug_assert_eq!(at, column.column as usize);
        let field = Type::primitive_type_builder(column.name, column.physical)
            .with_repetition(column.repetition)
            .with_logical_type(column.logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder("capstan_index").with_fields(fields).build()?))
}

/// How hard a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For a file that is kept.
    Kept,
    /// For a file that lives as long as its reader.
    Passing,
}

/// How each column is encoded and compressed. Levels of 9, and 12 for names, make a file a fiftieth smaller, and take
/// half as long again.
pub(crate) fn properties(effort: Effort) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_created_by("capstan".to_owned())
        .set_max_row_group_row_count(None)
        // One page a column and row group: the row group is the unit of reading, and zstd sees all of it.
        .set_data_page_row_count_limit(usize::MAX)
        .set_data_page_size_limit(usize::MAX)
        .set_dictionary_page_size_limit(64 << 20)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_statistics_truncate_length(None);
    for column in layout() {
        let level = if effort == Effort::Kept { column.level } else { 1 };
        let path = ColumnPath::from(column.name);
        builder = builder
            .set_column_compression(path.clone(), Compression::ZSTD(ZstdLevel::try_new(level)?))
            .set_column_dictionary_enabled(path.clone(), column.encoding.is_none());
        if let Some(encoding) = column.encoding {
            builder = builder.set_column_encoding(path.clone(), encoding);
        }
        if matches!(column.column, Column::Dir | Column::Name) {
            builder = builder.set_column_statistics_enabled(path, EnabledStatistics::Chunk);
        }
    }
    Ok(builder.build())
}

/// What a member's length is thought to be without its headers: its content, padded to whole tar blocks.
pub(crate) fn padded_content(kind: EntryKind, flags: EntryFlags, size: u64) -> u64 {
    let nothing = EntryFlags::VANISHED.0 | EntryFlags::UNREADABLE.0;
    if kind != EntryKind::File || flags.0 & nothing != 0 {
        return 0;
    }
    size.wrapping_add(511) & !511
}

/// Where the next member of each connection is thought to begin: behind the one before, in the order of rows.
///
/// Starts anew with each row group, so that a row group can be decoded by itself.
#[derive(Debug, Default)]
pub(crate) struct MemberEnds {
    ends: Vec<(u16, u64)>,
}

impl MemberEnds {
    /// The place kept for a connection; 0 before its first member.
    pub(crate) fn of(&mut self, connection: u16) -> &mut u64 {
        let at = match self.ends.binary_search_by_key(&connection, |&(connection, _)| connection) {
            Ok(at) => at,
            Err(at) => {
                self.ends.insert(at, (connection, 0));
                at
            }
        };
        &mut self.ends[at].1
    }
}
