//! Pax streams: the decoder, and the reader over it that restore, verify and `cat` share.

use std::io::{self, BufRead, BufReader, Write};

use capstan_format::EntryKind;
use capstan_format::crc32c_append;
use capstan_format::pax::{self, DecodedMember, Member, Sparse};
use capstan_mover::extract::{CopyError, MemberReader, Piece, StreamError};

use crate::input::Input;
use crate::mend;

/// Most bytes that are copied out of one member: holes are long and cost nothing in the stream.
const COPIED_MAX: u64 = 1 << 20;

/// A stream of any bytes (behind a first one that says how it is cut into buffers): read to its end, whole and in
/// pieces, with the content and without, it is the same stream.
pub fn pax_reader(data: &[u8]) {
    let mut input = Input::new(data);
    let cut = usize::from(input.byte()) * 3 + 1;
    let stream = input.rest();
    read(stream, cut);
    let mut mended = stream.to_vec();
    mend::pax_headers(&mut mended);
    read(&mended, cut);
}

fn read(stream: &[u8], cut: usize) {
    let whole = walk(stream, Content::Read);
    let in_pieces = walk(BufReader::with_capacity(cut, stream), Content::Read);
    assert_eq!(whole, in_pieces, "the same bytes in buffers of {cut}");
    let passed_over = walk(stream, Content::Skip);
    assert!(passed_over.members.len() >= whole.members.len(), "members are lost where content is passed over");
    for (read, passed) in whole.members.iter().zip(&passed_over.members) {
        assert_eq!((&read.header, read.offset, read.headers_len), (&passed.header, passed.offset, passed.headers_len));
        encode_again(&read.header);
    }
    copy(stream);
}

#[derive(Clone, Copy, PartialEq)]
enum Content {
    Read,
    Skip,
}

#[derive(Debug, PartialEq)]
struct Seen {
    header: DecodedMember,
    offset: u64,
    headers_len: u64,
    crc: u32,
}

#[derive(Debug, PartialEq)]
struct Walk {
    members: Vec<Seen>,
    end: Result<u64, String>,
}

fn walk(source: impl BufRead, content: Content) -> Walk {
    let mut reader = MemberReader::new(source);
    let mut members = Vec::new();
    loop {
        match next(&mut reader, content) {
            Ok(Some(seen)) => members.push(seen),
            Ok(None) => return Walk { members, end: Ok(reader.offset()) },
            Err(error) => return Walk { members, end: Err(words(&error)) },
        }
    }
}

fn next(reader: &mut MemberReader<impl BufRead>, wanted: Content) -> Result<Option<Seen>, StreamError> {
    let Some((head, mut content)) = reader.next()? else { return Ok(None) };
    assert!(head.member_len() >= head.headers_len && head.headers_len >= pax::BLOCK_LEN as u64);
    let (mut crc, mut end) = (0, 0);
    if wanted == Content::Read {
        while let Some(piece) = content.next_piece()? {
            let (offset, len) = match piece {
                Piece::Data { offset, bytes } => {
                    crc = crc32c_append(crc, bytes);
                    (offset, bytes.len() as u64)
                }
                Piece::Hole { offset, len } | Piece::Missing { offset, len } => (offset, len),
            };
            assert!(offset == end && len > 0, "pieces ascend without gaps");
            end += len;
        }
        assert_eq!(end, head.header.size, "the pieces are the whole file");
    }
    Ok(Some(Seen { header: head.header.clone(), offset: head.offset, headers_len: head.headers_len, crc }))
}

/// Where a reader notices the end of a stream depends on how much it was given; that it does, does not.
fn words(error: &StreamError) -> String {
    match error {
        StreamError::Truncated { .. } => "truncated".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A member that was decoded, as our own encoder writes it, is decoded as the same. Names that no file system has are
/// left out.
fn encode_again(header: &DecodedMember) {
    let nameless = |name: &[u8]| name.is_empty() || name.contains(&0);
    let linked = matches!(header.kind, EntryKind::Symlink | EntryKind::HardLink);
    let slashed = header.path.starts_with(b"/") || header.path.ends_with(b"/");
    if header.sparse == Sparse::Mapped || nameless(&header.path) || slashed || linked && nameless(&header.link) {
        return;
    }
    let mut encoded = Vec::new();
    let member = Member {
        path: &header.path,
        kind: header.kind,
        mode: header.mode,
        uid: header.uid,
        gid: header.gid,
        user: b"",
        group: b"",
        size: header.size,
        mtime_ns: header.mtime_ns,
        link: &header.link,
        device: (header.device_major, header.device_minor),
        records: b"",
        extents: None,
    };
    pax::encode(&member, &mut encoded);
    let mut reader = MemberReader::new(&encoded[..]);
    let decoded = reader.next().expect("our own header is read").expect("our own header is there");
    let again = &decoded.0.header;
    assert_eq!((&again.path, again.kind, again.mode), (&header.path, header.kind, header.mode));
    assert_eq!((again.uid, again.gid, again.mtime_ns), (header.uid, header.gid, header.mtime_ns));
    if header.kind == EntryKind::File {
        assert_eq!(again.size, header.size);
    }
    if linked {
        assert_eq!(again.link, header.link);
    }
    if matches!(header.kind, EntryKind::CharDevice | EntryKind::BlockDevice) {
        assert_eq!((again.device_major, again.device_minor), (header.device_major, header.device_minor));
    }
}

/// An output that is full after so many bytes.
struct Full(u64);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = (bytes.len() as u64).min(self.0);
        self.0 -= len;
        if len == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(len as usize) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn copy(stream: &[u8]) {
    let mut reader = MemberReader::new(stream);
    while let Ok(Some((head, mut content))) = reader.next() {
        let size = head.header.size;
        match content.copy_to(&mut Full(COPIED_MAX)) {
            Ok(written) => assert_eq!(written, size),
            Err(CopyError::Output(_)) => assert!(size > COPIED_MAX, "an output with room is no failure"),
            Err(CopyError::Stream(_)) => return,
        }
    }
}
