//! Checkpoints: what makes a volume readable without a catalog, up to the last flush.
//!
//! A session is a run of blocks on one volume:
//! ```text
//! session header | data ... | catalog part ... | checkpoint | filemark | data ... | catalog part ... | checkpoint | filemark
//!      SessionRecord           CatalogPart       Checkpoint                                           closed: the trailer
//! ```
//! Each checkpoint names the one before it on the volume, so that a rebuild goes from the end of data to the label by
//! as many LOCATEs as there are checkpoints and reads nothing but catalog parts. A checkpoint with `closed` ends its
//! session and is its trailer. The catalog part holds what came since the checkpoint before: objects (as they stand
//! now), extents, parts and file entries; it is cut into blocks of kind 3, sequence 0, 1, 2 ..., each compressed by
//! itself.

use serde::{Deserialize, Serialize};

use crate::cursor::{Cursor, put_bytes, put_varint, put_varint_signed};
use crate::{FormatError, ObjectId, Volser};

const MAGIC: [u8; 8] = *b"CPCHECK1";
const TEXT_LEN_MAX: usize = 4096;
const SOURCE_LEN_MAX: usize = 1 << 16;
/// Added to what says on what an object stands, if it has tags.
const WITH_TAGS: u8 = 4;
/// Tags of an object, at most.
pub const TAGS_MAX: usize = 32;
/// Bytes of a tag, at most.
pub const TAG_LEN_MAX: usize = 128;

/// Payload of a session's first block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// When the session was begun, nanoseconds since 1970.
    pub started_ns: i64,
    /// The machine that runs the mover.
    pub host: String,
    /// Program and version that write.
    pub software: String,
}

impl SessionRecord {
    /// Signed varint time, then host and software, each a varint length and UTF-8.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint_signed(&mut out, self.started_ns);
        put_bytes(&mut out, self.host.as_bytes());
        put_bytes(&mut out, self.software.as_bytes());
        out
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// The payload is cut short, or a text in it is too long or not UTF-8.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new("session header", bytes);
        let started_ns = cursor.varint_signed()?;
        let host = cursor.text(TEXT_LEN_MAX)?;
        let software = cursor.text(TEXT_LEN_MAX)?;
        Ok(Self { started_ns, host, software })
    }
}

/// Payload of the last block before a filemark, 56 bytes:
/// ```text
///  0  8  magic "CPCHECK1"
///  8  8  number of this checkpoint in its session, from 1
/// 16  8  logical block number of the checkpoint before this on the volume, 0 if there is none
/// 24  8  logical block number of the catalog part's first block
/// 32  4  blocks of the catalog part
/// 36  4  1 if the session is closed, else 0
/// 40  8  bytes of the catalog part
/// 48  8  when, nanoseconds since 1970 (signed)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Number in its session, from 1.
    pub number: u64,
    /// Where the checkpoint before this stands, 0 if there is none.
    pub previous_lbn: u64,
    /// Where the catalog part begins.
    pub part_lbn: u64,
    /// Blocks of the catalog part.
    pub part_blocks: u32,
    /// Bytes of the catalog part before it was cut and compressed.
    pub part_len: u64,
    /// Whether this is the session's trailer.
    pub closed: bool,
    /// When it was written.
    pub written_ns: i64,
}

impl Checkpoint {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(56);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.previous_lbn.to_le_bytes());
        out.extend_from_slice(&self.part_lbn.to_le_bytes());
        out.extend_from_slice(&self.part_blocks.to_le_bytes());
        out.extend_from_slice(&u32::from(self.closed).to_le_bytes());
        out.extend_from_slice(&self.part_len.to_le_bytes());
        out.extend_from_slice(&self.written_ns.to_le_bytes());
        out
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if it does not begin as a checkpoint; else it is cut short, or a field has a value that
    /// no writer writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new("checkpoint", bytes);
        if cursor.array::<8>()? != MAGIC {
            return Err(FormatError::Magic { what: "checkpoint" });
        }
        let number = cursor.u64()?;
        let previous_lbn = cursor.u64()?;
        let part_lbn = cursor.u64()?;
        let part_blocks = cursor.u32()?;
        let closed = match cursor.u32()? {
            0 => false,
            1 => true,
            other => return Err(cursor.field("closed", &other)),
        };
        let part_len = cursor.u64()?;
        let written_ns = cursor.u64()?.cast_signed();
        Ok(Self { number, previous_lbn, part_lbn, part_blocks, part_len, closed, written_ns })
    }
}

/// What kind of source an object images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// Files and directories.
    Tree,
    /// A block device or an image, one member read in ranges.
    Device,
    /// Standard input, one member.
    Stream,
}

/// How far an object has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObjectState {
    /// It goes on, on this volume or another.
    Open,
    /// All of it is protected.
    Complete,
}

/// An object as a checkpoint describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// Its id.
    pub object: ObjectId,
    /// What it images: an absolute path, or the name of a stream.
    pub source: Vec<u8>,
    /// The machine the source is on.
    pub client: String,
    /// The policy that asked for it.
    pub policy: String,
    /// Tree, device or stream.
    pub kind: ObjectKind,
    /// Open or complete.
    pub state: ObjectState,
    /// The object whose state this one continues, for an incremental.
    pub base: Option<ObjectId>,
    /// Which copy of the object this volume holds, from 1.
    pub copy: u8,
    /// Payload bytes of every block but a connection's last.
    pub chunk_len: u32,
    /// When it was begun, nanoseconds since 1970.
    pub started_ns: i64,
    /// When it ended; 0 while it is open.
    pub ended_ns: i64,
    /// When it may be forgotten; 0 for never.
    pub expires_ns: i64,
    /// Whether nobody may have it forgotten before.
    #[serde(default)]
    pub is_locked: bool,
    /// The object whose state it holds in full, for one that was made of that and of what that stands on. It has no
    /// base; what is based on that object may stand on this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidates: Option<ObjectId>,
    /// Words by which it is found, given when it is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// How much of one connection's stream is whole: it ends behind a complete member, or a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRecord {
    /// The object.
    pub object: ObjectId,
    /// The connection.
    pub connection: u16,
    /// Bytes of the stream up to the end of its last complete member, or of the fragment behind that.
    pub valid_len: u64,
}

/// Consecutive blocks of one connection of one object on this volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRecord {
    /// The object.
    pub object: ObjectId,
    /// The connection.
    pub connection: u16,
    /// Sequence of the first block.
    pub first_sequence: u32,
    /// Where the first block stands.
    pub first_lbn: u64,
    /// How many blocks.
    pub blocks: u32,
    /// Offset of the first block in the connection's stream; every block but the last holds `chunk_len` bytes of it.
    pub offset: u64,
    /// Bytes of the stream in this extent.
    pub plain_len: u64,
    /// Bytes on the volume, block headers included.
    pub stored_len: u64,
}

/// What a checkpoint adds to the catalog.
///
/// Encoded as: varint count and objects; varint count and parts; varint count and extents; varint count and runs of
/// entries; varint length (0 for none) and volser of the volume the session goes on to.
/// ```text
/// object  id (16) | source | client | policy | u8 kind 1 tree 2 device 3 stream | u8 state 1 open 2 complete |
///         u8 stands 0 alone 1 on a base 2 for another, and 4 more with tags |
///         base, or the object that it stands for (16; not if alone) | varint count and tags (only with tags) |
///         u8 copy | varint chunk length | signed varints started, ended, expires
/// part    object (16) | varint connection | varint valid length
/// extent  object (16) | varints connection, first sequence, first block, blocks, offset, plain length, stored length
/// run     object (16) | bytes of packed entries (see entries)
/// ```
/// `source`, `client`, `policy`, tags and the packed entries are each a varint length and as many bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogPart {
    /// Objects touched, as they stand now.
    pub objects: Vec<ObjectRecord>,
    /// Streams that grew.
    pub parts: Vec<PartRecord>,
    /// Extents since the last checkpoint.
    pub extents: Vec<ExtentRecord>,
    /// Entries since the last checkpoint, packed; see [`crate::EntryEncoder`].
    pub entries: Vec<(ObjectId, Vec<u8>)>,
    /// Volume that the session goes on to, where it is known; with [`Checkpoint::closed`].
    pub continued_on: Option<Volser>,
}

impl CatalogPart {
    /// The bytes that are cut into blocks.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.objects.len() as u64);
        for object in &self.objects {
            put_object(&mut out, object);
        }
        put_varint(&mut out, self.parts.len() as u64);
        for part in &self.parts {
            out.extend_from_slice(&part.object.0);
            put_varint(&mut out, u64::from(part.connection));
            put_varint(&mut out, part.valid_len);
        }
        put_varint(&mut out, self.extents.len() as u64);
        for extent in &self.extents {
            out.extend_from_slice(&extent.object.0);
            put_varint(&mut out, u64::from(extent.connection));
            put_varint(&mut out, u64::from(extent.first_sequence));
            put_varint(&mut out, extent.first_lbn);
            put_varint(&mut out, u64::from(extent.blocks));
            put_varint(&mut out, extent.offset);
            put_varint(&mut out, extent.plain_len);
            put_varint(&mut out, extent.stored_len);
        }
        put_varint(&mut out, self.entries.len() as u64);
        for (object, run) in &self.entries {
            out.extend_from_slice(&object.0);
            put_bytes(&mut out, run);
        }
        put_bytes(&mut out, self.continued_on.as_ref().map_or("", Volser::as_str).as_bytes());
        out
    }

    /// Decodes a whole part; the runs of entries stay packed.
    ///
    /// # Errors
    /// The part is cut short or goes on behind its end, or a field has a value that no writer writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new("catalog part", bytes);
        let mut part = Self::default();
        for _ in 0..cursor.varint()? {
            part.objects.push(take_object(&mut cursor)?);
        }
        for _ in 0..cursor.varint()? {
            let object = ObjectId(cursor.array()?);
            let connection = take_connection(&mut cursor)?;
            part.parts.push(PartRecord { object, connection, valid_len: cursor.varint()? });
        }
        for _ in 0..cursor.varint()? {
            part.extents.push(ExtentRecord {
                object: ObjectId(cursor.array()?),
                connection: take_connection(&mut cursor)?,
                first_sequence: cursor.varint_u32()?,
                first_lbn: cursor.varint()?,
                blocks: cursor.varint_u32()?,
                offset: cursor.varint()?,
                plain_len: cursor.varint()?,
                stored_len: cursor.varint()?,
            });
        }
        for _ in 0..cursor.varint()? {
            let object = ObjectId(cursor.array()?);
            part.entries.push((object, cursor.bytes(bytes.len())?.to_vec()));
        }
        let continued_on = cursor.text(8)?;
        if !continued_on.is_empty() {
            part.continued_on = Some(Volser::new(&continued_on)?);
        }
        if !cursor.is_empty() {
            return Err(cursor.field("bytes behind the end", &(bytes.len() - cursor.position())));
        }
        Ok(part)
    }
}

fn take_connection(cursor: &mut Cursor<'_>) -> Result<u16, FormatError> {
    let value = cursor.varint()?;
    u16::try_from(value).map_err(|_| cursor.field("connection", &value))
}

fn put_object(out: &mut Vec<u8>, object: &ObjectRecord) {
    out.extend_from_slice(&object.object.0);
    put_bytes(out, &object.source);
    put_bytes(out, object.client.as_bytes());
    put_bytes(out, object.policy.as_bytes());
    out.push(match object.kind {
        ObjectKind::Tree => 1,
        ObjectKind::Device => 2,
        ObjectKind::Stream => 3,
    });
    out.push(match (object.state, object.is_locked) {
        (ObjectState::Open, false) => 1,
        (ObjectState::Complete, false) => 2,
        (ObjectState::Open, true) => 3,
        (ObjectState::Complete, true) => 4,
    });
    let (stands, other) = match (object.base, object.consolidates) {
        (Some(base), _) => (1, Some(base)),
        (None, Some(other)) => (2, Some(other)),
        (None, None) => (0, None),
    };
    out.push(if object.tags.is_empty() { stands } else { stands + WITH_TAGS });
    out.extend(other.iter().flat_map(|other| other.0));
    if !object.tags.is_empty() {
        put_varint(out, object.tags.len() as u64);
        object.tags.iter().for_each(|tag| put_bytes(out, tag.as_bytes()));
    }
    out.push(object.copy);
    put_varint(out, u64::from(object.chunk_len));
    put_varint_signed(out, object.started_ns);
    put_varint_signed(out, object.ended_ns);
    put_varint_signed(out, object.expires_ns);
}

fn take_tags(cursor: &mut Cursor<'_>) -> Result<Vec<String>, FormatError> {
    let count = cursor.varint()?;
    if count == 0 || count > TAGS_MAX as u64 {
        return Err(cursor.field("tags", &count));
    }
    let tag = |_| {
        let tag = cursor.text(TAG_LEN_MAX)?;
        if is_tag(&tag) { Ok(tag) } else { Err(cursor.field("tag", &tag)) }
    };
    (0..count).map(tag).collect()
}

/// Whether a text can be a tag: it is not empty, not too long, and has no control characters.
pub fn is_tag(text: &str) -> bool {
    !text.is_empty() && text.len() <= TAG_LEN_MAX && !text.chars().any(char::is_control)
}

fn take_object(cursor: &mut Cursor<'_>) -> Result<ObjectRecord, FormatError> {
    let object = ObjectId(cursor.array()?);
    let source = cursor.bytes(SOURCE_LEN_MAX)?.to_vec();
    let client = cursor.text(TEXT_LEN_MAX)?;
    let policy = cursor.text(TEXT_LEN_MAX)?;
    let kind = match cursor.u8()? {
        1 => ObjectKind::Tree,
        2 => ObjectKind::Device,
        3 => ObjectKind::Stream,
        other => return Err(cursor.field("object kind", &other)),
    };
    let (state, is_locked) = match cursor.u8()? {
        1 => (ObjectState::Open, false),
        2 => (ObjectState::Complete, false),
        3 => (ObjectState::Open, true),
        4 => (ObjectState::Complete, true),
        other => return Err(cursor.field("object state", &other)),
    };
    let stands = cursor.u8()?;
    let (base, consolidates) = match stands % WITH_TAGS {
        _ if stands >= 2 * WITH_TAGS => return Err(cursor.field("stands", &stands)),
        0 => (None, None),
        1 => (Some(ObjectId(cursor.array()?)), None),
        2 => (None, Some(ObjectId(cursor.array()?))),
        _ => return Err(cursor.field("stands", &stands)),
    };
    let tags = if stands >= WITH_TAGS { take_tags(cursor)? } else { Vec::new() };
    let copy = cursor.u8()?;
    let chunk_len = cursor.varint_u32()?;
    let started_ns = cursor.varint_signed()?;
    let ended_ns = cursor.varint_signed()?;
    let expires_ns = cursor.varint_signed()?;
    Ok(ObjectRecord {
        object,
        source,
        client,
        policy,
        kind,
        state,
        base,
        copy,
        chunk_len,
        started_ns,
        ended_ns,
        expires_ns,
        is_locked,
        consolidates,
        tags,
    })
}
