//! One row group of an index file, decoded: the names first, directories and the rest when they are asked for.

use std::io::Read;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use capstan_format::{EntryFlags, EntryKind, FileEntry};
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::columns::{Column, MemberEnds, padded_content};
use super::segment::SegmentSearch;
use super::text::Texts;
use crate::CatalogError;
use crate::order::{Key, join_into};

/// How many rows behind one are looked at one by one.
const NEAR: usize = 8;

/// A row group whose bytes were checked.
pub(crate) struct Group {
    names: Names,
    dirs: OnceLock<Dirs>,
    rest: OnceLock<Rest>,
    source: GroupSource,
}

/// The path of the row that was looked at last, for the next one.
#[derive(Default)]
pub(crate) struct LastPath {
    path: Vec<u8>,
    /// How much of it is the directory, with its slash; and its run of rows, if there was a row.
    dir_len: usize,
    run: Option<usize>,
}

/// Where a row group is decoded from.
pub(crate) struct GroupSource {
    /// The file's name, for errors.
    pub(crate) what: Arc<str>,
    pub(crate) metadata: Arc<ParquetMetaData>,
    pub(crate) number: usize,
    /// The bytes of the row group and where in the file they begin.
    pub(crate) bytes: Bytes,
    pub(crate) start: u64,
}

/// The names of the rows, one behind the other.
struct Names {
    texts: Vec<u8>,
    ends: Vec<u32>,
}

/// Their directories.
struct Dirs {
    texts: Vec<u8>,
    /// For each run of rows in one directory: its first row, and where the directory ends in `texts`.
    runs: Vec<(u32, u32)>,
}

/// Every other column.
struct Rest {
    rows: Vec<Row>,
    links: Vec<(u32, Box<[u8]>)>,
}

#[derive(Clone, Copy)]
struct Row {
    size: u64,
    mtime_ns: i64,
    offset: u64,
    member_len: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    change: u32,
    crc: u32,
    connection: u16,
    kind: EntryKind,
    flags: EntryFlags,
}

impl Group {
    /// Decodes the names.
    pub(crate) fn decode(source: GroupSource) -> Result<Self, CatalogError> {
        let names = source.guarded(Names::decode)?;
        Ok(Self { names, dirs: OnceLock::new(), rest: OnceLock::new(), source })
    }

    pub(crate) fn rows(&self) -> usize {
        self.names.ends.len()
    }

    /// Writes a row's path into `path`.
    pub(crate) fn path_into(&self, row: usize, path: &mut Vec<u8>) -> Result<(), CatalogError> {
        let (dir, name) = self.key(row)?;
        join_into(path, dir, name);
        Ok(())
    }

    /// The same for whoever goes through rows in their order: of a run of rows in one directory, only the name is
    /// written anew.
    pub(crate) fn path_behind<'p>(&self, row: usize, last: &'p mut LastPath) -> Result<&'p [u8], CatalogError> {
        let dirs = self.dirs()?;
        let is_in_run = |run: usize| {
            let next = dirs.runs.get(run + 1).map_or(usize::MAX, |&(first, _)| first as usize);
            dirs.runs.get(run).is_some_and(|&(first, _)| first as usize <= row) && row < next
        };
        if !last.run.is_some_and(is_in_run) {
            let run = match last.run.map(|run| run + 1).filter(|run| is_in_run(*run)) {
                Some(next) => next,
                None => dirs.run_of(row),
            };
            join_into(&mut last.path, dirs.of_run(run), b"");
            (last.run, last.dir_len) = (Some(run), last.path.len());
        }
        last.path.truncate(last.dir_len);
        last.path.extend_from_slice(self.name(row));
        Ok(&last.path)
    }

    /// The first row whose key is not before `key`.
    pub(crate) fn lower_bound(&self, key: &Key) -> Result<usize, CatalogError> {
        let key = (key.0.as_slice(), key.1.as_slice());
        let (mut low, mut high) = (0, self.rows());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle)? < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The first row from `row` on whose name has a segment in it; the number of rows, if there is none.
    pub(crate) fn next_with(&self, row: usize, search: &SegmentSearch) -> usize {
        let Names { texts, ends } = &self.names;
        let (mut row, mut from) = (row, self.names.begin(row));
        while let Some(at) = search.next_in(texts, from) {
            // It is in this row or one of the next, or far away.
            let near = ends[row..].iter().take(NEAR).position(|&end| end as usize > at);
            row += near.unwrap_or_else(|| ends[row..].partition_point(|&end| end as usize <= at));
            if search.is_at(texts, at, self.names.begin(row)..ends[row] as usize) {
                return row;
            }
            from = at + 1;
        }
        self.rows()
    }

    /// The entry of a row.
    pub(crate) fn entry(&self, row: usize) -> Result<FileEntry, CatalogError> {
        let rest = match self.rest.get() {
            Some(rest) => rest,
            None => {
                let rest = self.source.guarded(|source| Rest::decode(source, self.rows()))?;
                self.rest.get_or_init(|| rest)
            }
        };
        let mut path = Vec::new();
        self.path_into(row, &mut path)?;
        let Row { size, mtime_ns, offset, member_len, mode, uid, gid, change, crc, connection, kind, flags } =
            rest.rows[row];
        let link = match rest.links.binary_search_by_key(&row, |(row, _)| *row as usize) {
            Ok(at) => rest.links[at].1.to_vec(),
            Err(_) => Vec::new(),
        };
        Ok(FileEntry {
            path,
            kind,
            flags,
            mode,
            uid,
            gid,
            size,
            mtime_ns,
            change,
            crc,
            connection,
            offset,
            member_len,
            link,
        })
    }

    fn key(&self, row: usize) -> Result<(&[u8], &[u8]), CatalogError> {
        let dirs = self.dirs()?;
        Ok((dirs.of_run(dirs.run_of(row)), self.name(row)))
    }

    fn name(&self, row: usize) -> &[u8] {
        let names = &self.names;
        &names.texts[names.begin(row)..names.ends[row] as usize]
    }

    fn dirs(&self) -> Result<&Dirs, CatalogError> {
        if let Some(dirs) = self.dirs.get() {
            return Ok(dirs);
        }
        let dirs = self.source.guarded(Dirs::decode)?;
        Ok(self.dirs.get_or_init(|| dirs))
    }
}

impl Dirs {
    /// The run of rows in one directory that a row is of.
    fn run_of(&self, row: usize) -> usize {
        self.runs.partition_point(|&(first, _)| first as usize <= row) - 1
    }

    fn of_run(&self, run: usize) -> &[u8] {
        let from = if run == 0 { 0 } else { self.runs[run - 1].1 as usize };
        &self.texts[from..self.runs[run].1 as usize]
    }

    fn decode(source: &GroupSource) -> Result<Self, ParquetError> {
        let (page, rows) = (source.page(Column::Dir)?, source.rows()?);
        let mut dirs = Self { texts: Vec::new(), runs: Vec::new() };
        let (mut row, mut from) = (0, 0);
        let decoded = Texts::decode(&page, rows).and_then(|texts| {
            texts.for_each(|shared, rest| {
                if row == 0 || shared != dirs.texts.len() - from || !rest.is_empty() {
                    from = extend(&mut dirs.texts, from, shared, rest)?;
                    dirs.runs.push((row, u32::try_from(dirs.texts.len()).ok()?));
                }
                row += 1;
                Some(())
            })
        });
        decoded.ok_or_else(|| wrong("the directories of a row group cannot be decoded"))?;
        Ok(dirs)
    }
}

impl Names {
    /// Where the name of a row begins.
    fn begin(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    fn decode(source: &GroupSource) -> Result<Self, ParquetError> {
        let (page, rows) = (source.page(Column::Name)?, source.rows()?);
        let mut names = Self { texts: Vec::new(), ends: Vec::new() };
        let mut from = 0;
        let decoded = Texts::decode(&page, rows).and_then(|texts| {
            names.texts.reserve_exact(texts.len()?);
            names.ends.reserve_exact(rows);
            texts.for_each(|shared, rest| {
                from = extend(&mut names.texts, from, shared, rest)?;
                names.ends.push(u32::try_from(names.texts.len()).ok()?);
                Some(())
            })
        });
        decoded.ok_or_else(|| wrong("the names of a row group cannot be decoded"))?;
        Ok(names)
    }
}

/// Appends a text that shares its first bytes with the last one, which begins at `last`; gives where it begins.
fn extend(texts: &mut Vec<u8>, last: usize, shared: usize, rest: &[u8]) -> Option<usize> {
    let from = texts.len();
    if shared > from - last {
        return None;
    }
    texts.extend_from_within(last..last + shared);
    texts.extend_from_slice(rest);
    Some(from)
}

fn wrong(reason: &str) -> ParquetError {
    ParquetError::General(reason.to_owned())
}

impl Rest {
    fn decode(source: &GroupSource, rows: usize) -> Result<Self, ParquetError> {
        let int = |column| source.column::<Int32Type>(column, rows);
        let long = |column| source.column::<Int64Type>(column, rows).map(|(values, _)| values);
        let (kind, flags, mode) = (int(Column::Kind)?.0, int(Column::Flags)?.0, int(Column::Mode)?.0);
        let (uid, gid, change) = (int(Column::Uid)?.0, int(Column::Gid)?.0, int(Column::Change)?.0);
        let (connection, (crc, crc_levels)) = (int(Column::Connection)?.0, int(Column::Crc)?);
        let (size, mtime) = (long(Column::Size)?, long(Column::Mtime)?);
        let (gap, surplus) = (long(Column::Gap)?, long(Column::Surplus)?);
        let (link_values, link_levels) = source.column::<ByteArrayType>(Column::Link, rows)?;
        let mut crc = crc.into_iter();
        let mut ends = MemberEnds::default();
        let mut decoded = Vec::with_capacity(rows);
        for row in 0..rows {
            let kind = u8::try_from(kind[row]).ok().and_then(EntryKind::from_code);
            let kind = kind.ok_or_else(|| wrong("a kind has an impossible value"))?;
            let flags = u8::try_from(flags[row]).map_err(|_| wrong("flags have an impossible value"))?;
            let flags = EntryFlags(flags);
            let connection =
                u16::try_from(connection[row]).map_err(|_| wrong("a connection has an impossible value"))?;
            let size = size[row].cast_unsigned();
            let member_len = padded_content(kind, flags, size).wrapping_add(surplus[row].cast_unsigned());
            let end = ends.of(connection);
            let offset = end.wrapping_add(gap[row].cast_unsigned());
            *end = offset.wrapping_add(member_len);
            let crc = if crc_levels[row] == 0 { 0 } else { crc.next().unwrap_or_default().cast_unsigned() };
            decoded.push(Row {
                size,
                mtime_ns: mtime[row],
                offset,
                member_len,
                mode: mode[row].cast_unsigned(),
                uid: uid[row].cast_unsigned(),
                gid: gid[row].cast_unsigned(),
                change: change[row].cast_unsigned(),
                crc,
                connection,
                kind,
                flags,
            });
        }
        let linked = link_levels.iter().enumerate().filter(|&(_, &level)| level == 1);
        let links = linked.zip(&link_values).map(|((row, _), link)| (row as u32, link.data().into())).collect();
        Ok(Self { rows: decoded, links })
    }
}

impl GroupSource {
    /// Runs a decoder, and turns both its error and a panic of the Parquet library into the error for a damaged file.
    fn guarded<T>(&self, decode: impl FnOnce(&Self) -> Result<T, ParquetError>) -> Result<T, CatalogError> {
        match catch_unwind(AssertUnwindSafe(|| decode(self))) {
            Ok(Ok(decoded)) => Ok(decoded),
            Ok(Err(error)) => Err(CatalogError::corrupt(&self.what, format!("row group {}: {error}", self.number))),
            Err(_) => Err(CatalogError::corrupt(&self.what, format!("row group {} cannot be decoded", self.number))),
        }
    }

    fn rows(&self) -> Result<usize, ParquetError> {
        let rows = self.metadata.row_group(self.number).num_rows();
        u32::try_from(rows).map(|rows| rows as usize).map_err(|_| wrong("a row group has an impossible number of rows"))
    }

    /// The one page of a column of texts, decompressed.
    fn page(&self, column: Column) -> Result<Bytes, ParquetError> {
        match self.pages(column)?.get_next_page()? {
            Some(Page::DataPage { buf, encoding: Encoding::DELTA_BYTE_ARRAY, .. }) => Ok(buf),
            _ => Err(wrong("a column of texts is encoded in an unknown way")),
        }
    }

    fn pages(&self, column: Column) -> Result<Box<dyn PageReader>, ParquetError> {
        let chunk = self.metadata.row_group(self.number).column(column as usize);
        let bytes = GroupBytes { bytes: self.bytes.clone(), start: self.start };
        Ok(Box::new(SerializedPageReader::new(Arc::new(bytes), chunk, self.rows()?, None)?))
    }

    /// All values of a column, and one level for each row of an optional one.
    fn column<T: DataType>(&self, column: Column, rows: usize) -> Result<(Vec<T::T>, Vec<i16>), ParquetError> {
        let pages = self.pages(column)?;
        let description = self.metadata.row_group(self.number).column(column as usize).column_descr_ptr();
        let optional = description.max_def_level() > 0;
        let mut reader = ColumnReaderImpl::<T>::new(description, pages);
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let wanted = if optional { Some(&mut levels) } else { None };
        let (records, found, _) = reader.read_records(rows, wanted, None, &mut values)?;
        let expected = if optional { levels.iter().filter(|&&level| level == 1).count() } else { rows };
        if records != rows || found != expected || values.len() != expected {
            return Err(wrong("a column has another number of rows than its row group"));
        }
        Ok((values, levels))
    }
}

/// The bytes of one row group as the Parquet library wants them: a file of which only this part can be read.
struct GroupBytes {
    bytes: Bytes,
    start: u64,
}

impl GroupBytes {
    fn range(&self, start: u64, length: Option<usize>) -> Result<Range<usize>, ParquetError> {
        let from = start.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let from = from.filter(|&from| from <= self.bytes.len());
        let from = from.ok_or_else(|| wrong("a page lies outside its row group"))?;
        let to = length.map_or(Some(self.bytes.len()), |length| from.checked_add(length));
        let to = to.filter(|&to| to <= self.bytes.len());
        let to = to.ok_or_else(|| wrong("a page ends outside its row group"))?;
        Ok(from..to)
    }
}

impl Length for GroupBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for GroupBytes {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let range = self.range(start, None)?;
        Ok(Box::new(std::io::Cursor::new(self.bytes.slice(range))))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        Ok(self.bytes.slice(self.range(start, Some(length))?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_page_outside_the_row_group_is_refused() {
        let bytes = GroupBytes { bytes: Bytes::from_static(&[1, 2, 3]), start: 10 };
        assert_eq!(bytes.range(11, Some(2)).unwrap(), 1..3);
        for (start, length) in [(9, Some(1)), (14, None), (11, Some(3)), (11, Some(usize::MAX)), (0, None)] {
            assert!(bytes.range(start, length).is_err(), "{start} {length:?}");
        }
    }
}
