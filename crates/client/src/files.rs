//! What a server is asked about the files of objects, by a client about its own and by users: words on both sides.
//!
//! Answers come in parts of [`ROWS_MAX`] rows at most. Whoever wants more asks again with the `next` of the part before
//! as `after`. Backups that have not ended are not looked into, and nothing is asked that is longer than
//! [`ASKED_BYTES_MAX`].

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use capstan_format::{EntryFlags, EntryKind, FileEntry};
use capstan_mover::moves_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows of one part of an answer.
pub const ROWS_MAX: usize = 2000;
/// Bytes of a question: of a place, and of an `after` that has the longest of paths.
pub const ASKED_BYTES_MAX: usize = 64 << 10;

/// A path, as it can be handed back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShownPath {
    /// The path. Where its bytes are not UTF-8 those that are not are shown as `\xNN`, and `path_base64` has all of
    /// them.
    path: String,
    /// The bytes of a path that is not UTF-8; else left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
}

impl ShownPath {
    /// The path itself.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self.path_base64.as_ref().and_then(|text| STANDARD.decode(text).ok()) {
            Some(bytes) => Cow::Owned(bytes),
            None => Cow::Borrowed(self.path.as_bytes()),
        }
    }
}

impl From<&[u8]> for ShownPath {
    fn from(bytes: &[u8]) -> Self {
        let (path, path_base64) = text_and_bytes(bytes);
        Self { path, path_base64 }
    }
}

impl From<&Vec<u8>> for ShownPath {
    fn from(bytes: &Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

/// Bytes as text, and by themselves if they are not UTF-8.
pub fn text_and_bytes(bytes: &[u8]) -> (String, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (path_text(bytes), Some(STANDARD.encode(bytes))),
    }
}

/// Bytes of a path as text: what is not UTF-8, would move a terminal's cursor or turn the direction of what follows is
/// escaped.
pub fn path_text(path: &[u8]) -> String {
    let mut out = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || moves_text(c) { out.extend(c.escape_default()) } else { out.push(c) }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

/// Words that may quote names, as a terminal may show them: what would move its cursor or turn the direction of what
/// follows is escaped. What [`path_text`] gave stays as it is.
pub fn words_text(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for c in words.chars() {
        if moves_text(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// A path of an object: a line of `ls`, `find` and `versions`. `OBJECT:PATH` hands it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileRow {
    /// The path, without a leading slash.
    #[serde(flatten)]
    pub path: ShownPath,
    /// The object that has it; left out by `ls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The client that the object is of; left out by `ls`, and to a client of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// When that object was begun, nanoseconds since 1970; `versions` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backed_up_ns: Option<i64>,
    /// `full` or `incr`, of that object; `versions` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Cow<'static, str>>,
    /// `file`, `directory`, `symlink`, `hardlink`, `fifo`, `char-device`, `block-device`, or `deleted`: the source no
    /// longer has it.
    pub kind: Cow<'static, str>,
    /// With commas between them: `grew`, `shrank`, `changed` (while it was read), `vanished`, `sparse`, `unreadable`,
    /// `lacks-attributes` (not all of them could be read; the next backup tries again), `lost` (no copy has all of it
    /// any more).
    pub flags: String,
    /// Permission bits, octal.
    pub mode: String,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The file that a hard link is another name of; left out for all else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<ShownPath>,
    /// Bytes of content, holes included.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// CRC32C of the content, hexadecimal; 0 where there is none.
    pub crc32c: String,
    /// The stream that holds the member (docs/FORMAT.md).
    pub connection: u16,
    /// Where the member begins in that stream.
    pub offset: u64,
    /// Bytes of the member; 0 where nothing is stored.
    pub member_len: u64,
}

impl FileRow {
    /// What is known of a file; `is_lost` if no copy has all of it any more.
    pub fn new(entry: &FileEntry, is_lost: bool) -> Self {
        Self {
            path: (&entry.path).into(),
            object: None,
            client: None,
            backed_up_ns: None,
            level: None,
            kind: kind_name(entry.kind).into(),
            flags: flags_text(entry, is_lost),
            mode: format!("{:04o}", entry.mode),
            uid: entry.uid,
            gid: entry.gid,
            link: (entry.kind == EntryKind::HardLink).then(|| (&entry.link).into()),
            size: entry.size,
            mtime_ns: entry.mtime_ns,
            crc32c: format!("{:08x}", entry.crc),
            connection: entry.connection,
            offset: entry.offset,
            member_len: entry.member_len,
        }
    }
}

/// The flags of an entry, and `lost` where damage took it in every copy.
fn flags_text(entry: &FileEntry, is_lost: bool) -> String {
    const NAMES: [(EntryFlags, &str); 7] = [
        (EntryFlags::GREW, "grew"),
        (EntryFlags::SHRANK, "shrank"),
        (EntryFlags::VANISHED, "vanished"),
        (EntryFlags::CHANGED, "changed"),
        (EntryFlags::SPARSE, "sparse"),
        (EntryFlags::UNREADABLE, "unreadable"),
        (EntryFlags::LACKS_ATTRIBUTES, "lacks-attributes"),
    ];
    let set = NAMES.iter().filter(|(flag, _)| entry.flags.contains(*flag));
    set.map(|(_, name)| *name).chain(is_lost.then_some("lost")).collect::<Vec<_>>().join(",")
}

fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::HardLink => "hardlink",
        EntryKind::Fifo => "fifo",
        EntryKind::CharDevice => "char-device",
        EntryKind::BlockDevice => "block-device",
        EntryKind::Deleted => "deleted",
    }
}

/// What may be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileType {
    /// Regular files, under each of their names.
    File,
    /// Directories.
    Directory,
    /// Symbolic links.
    Symlink,
    /// Fifos.
    Fifo,
    /// Block and character devices.
    Device,
    /// Paths that an incremental recorded as deleted.
    Deleted,
}

impl From<EntryKind> for FileType {
    fn from(kind: EntryKind) -> Self {
        match kind {
            EntryKind::File | EntryKind::HardLink => Self::File,
            EntryKind::Directory => Self::Directory,
            EntryKind::Symlink => Self::Symlink,
            EntryKind::Fifo => Self::Fifo,
            EntryKind::CharDevice | EntryKind::BlockDevice => Self::Device,
            EntryKind::Deleted => Self::Deleted,
        }
    }
}

/// Sizes that are looked for, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SizeRange {
    /// More than this.
    Above(u64),
    /// Less than this.
    Below(u64),
    /// This.
    Just(u64),
}

impl SizeRange {
    /// Whether a size is one of them.
    pub fn holds(self, size: u64) -> bool {
        match self {
            Self::Above(than) => size > than,
            Self::Below(than) => size < than,
            Self::Just(this) => size == this,
        }
    }
}

/// Files that are looked for: by pattern, type, size and time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FindFiles {
    /// A pattern of the path, or of the file's name if it has no slash.
    pub glob: String,
    /// Only in this object: its id, or the beginning or end of it, or a source for its latest object.
    #[serde(default)]
    pub object: Option<String>,
    /// Only the latest state of each source, not each version.
    #[serde(default)]
    pub latest: bool,
    /// Only what was modified at this time or later, nanoseconds since 1970.
    #[serde(default)]
    pub since_ns: Option<i64>,
    /// Only what is of these types; of all if none is named.
    #[serde(default)]
    pub types: Vec<FileType>,
    /// Only files of such a size.
    #[serde(default)]
    pub size: Option<SizeRange>,
    /// Behind what an earlier answer gave: its `next`.
    #[serde(default)]
    pub after: Option<String>,
}

impl FindFiles {
    /// Whether an entry whose path is wanted is.
    pub fn takes(&self, entry: &FileEntry) -> bool {
        let type_of = FileType::from(entry.kind);
        let is_of_type = self.types.is_empty() || self.types.contains(&type_of);
        let is_of_size = self.size.is_none_or(|size| type_of == FileType::File && size.holds(entry.size));
        let is_of_time = self.since_ns.is_none_or(|since_ns| entry.mtime_ns >= since_ns);
        is_of_type && is_of_size && is_of_time
    }
}

/// What stands in a directory, or what is known of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListFiles {
    /// An object or source, with a path behind a colon; or a path below a source.
    pub place: String,
    /// The state at this time, nanoseconds since 1970; the latest without it.
    #[serde(default)]
    pub at_ns: Option<i64>,
    /// All that is below, too.
    #[serde(default)]
    pub recursive: bool,
    /// Behind what an earlier answer gave: its `next`.
    #[serde(default)]
    pub after: Option<String>,
}

/// Which objects have a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileVersions {
    /// The path, from the root.
    pub path: String,
    /// Behind what an earlier answer gave: its `next`.
    #[serde(default)]
    pub after: Option<String>,
}

/// Files, as far as they go into one answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesAnswer {
    /// The files.
    pub rows: Vec<FileRow>,
    /// Where the next answer goes on (`after`), as the server writes it; none if this is all. It may be there though no
    /// row is: files are looked for during seconds only.
    #[serde(default)]
    pub next: Option<String>,
    /// Objects whose lists of files are damaged or gone, or whose bases are, and were not looked into.
    #[serde(default)]
    pub damaged: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn paths_are_handed_back_as_they_are() {
        for bytes in [&b"srv/web"[..], b"caf\xc3\xa9", b"odd\xff\\name", b"a\nb", b""] {
            let text = serde_json::to_string(&ShownPath::from(bytes)).unwrap();
            let back: ShownPath = serde_json::from_str(&text).unwrap();
            assert_eq!(back.bytes(), bytes, "{text}");
        }
    }

    /// U+202E was printed as it is, and a list showed the names behind it backwards.
    #[test]
    fn paths_cannot_turn_the_direction_of_text() {
        assert_eq!(path_text("a\u{202e}txt.exe\u{2066}\u{200f}".as_bytes()), "a\\u{202e}txt.exe\\u{2066}\\u{200f}");
        assert_eq!(path_text("\u{5e9}\u{5dc}".as_bytes()), "\u{5e9}\u{5dc}", "what is written so is shown so");
    }

    #[test]
    fn words_that_quote_names_move_no_cursor() {
        let path = path_text(b"a\\b\x1b[2J\n");
        assert_eq!(
            words_text(&format!("{path}: caf\u{e9}\x1b[2J\u{202e}\n")),
            format!("{path}: caf\u{e9}\\u{{1b}}[2J\\u{{202e}}\\n")
        );
        assert!(!path.contains(['\x1b', '\n']));
    }

    #[test]
    fn paths_cannot_move_the_cursor() {
        assert_eq!(path_text(b"a\x1b[2Jb\xffc\xc3\xa9"), "a\\u{1b}[2Jb\\xffcé");
    }

    #[test]
    fn sizes_are_above_below_or_just() {
        assert!(SizeRange::Above(4).holds(5) && !SizeRange::Above(4).holds(4) && SizeRange::Below(4).holds(3));
    }
}
