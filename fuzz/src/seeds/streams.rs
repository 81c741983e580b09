//! Pax streams: of everything that there is, and of those that want out.

use capstan_format::EntryKind;
use capstan_format::pax::{self, DataExtent, Member};

use super::Seeds;

const PLAIN: Member<'_> = Member {
    path: b"file",
    kind: EntryKind::File,
    mode: 0o640,
    uid: 0,
    gid: 0,
    user: b"root",
    group: b"root",
    size: 0,
    mtime_ns: 1_700_000_000_000_000_000,
    link: b"",
    device: (0, 0),
    records: b"",
    extents: None,
};

fn put(stream: &mut Vec<u8>, member: &Member<'_>, content: &[u8]) {
    pax::encode(member, stream);
    stream.extend_from_slice(content);
    stream.resize(stream.len().next_multiple_of(pax::BLOCK_LEN), 0);
}

fn stream(members: &[(Member<'_>, &[u8])]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (member, content) in members {
        put(&mut stream, member, content);
    }
    stream
}

fn file<'a>(path: &'a [u8], content: &'a [u8]) -> (Member<'a>, &'a [u8]) {
    (Member { path, size: content.len() as u64, ..PLAIN }, content)
}

fn linked<'a>(kind: EntryKind, path: &'a [u8], link: &'a [u8]) -> (Member<'a>, &'a [u8]) {
    (Member { path, link, kind, ..PLAIN }, b"")
}

fn streams() -> Seeds {
    let directory = |path| (Member { path, kind: EntryKind::Directory, mode: 0o2750, ..PLAIN }, &b""[..]);
    let mut records = Vec::new();
    pax::put_attribute(&mut records, b"user.note", b"of value");
    pax::put_attribute(&mut records, b"user.odd=%name", b"");
    pax::put_attribute(
        &mut records,
        b"security.capability",
        &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    pax::put_record(&mut records, b"SCHILY.acl.access", b"user::rw-,user:1000:r--,group::r--,mask::r--,other::---");
    let attributes = Member { records: &records, size: 3, mode: 0o4755, uid: 1000, mtime_ns: -5, ..PLAIN };
    let extents = [DataExtent { offset: 4096, len: 3 }, DataExtent { offset: 1 << 33, len: 2 }];
    let sparse = Member { extents: Some(&extents), size: (1 << 33) + 512, ..PLAIN };
    let long = [b"a-directory-with-a-name/".repeat(12), b"file".to_vec()].concat();
    let device = |kind| (Member { path: b"device", kind, device: (1, 3), ..PLAIN }, &b""[..]);
    let mut ended = stream(&[file(b"a", b"a")]);
    ended.resize(ended.len() + 1024, 0);
    let mut gnu = stream(&[(Member { size: 9, ..PLAIN }, b"long/name"), file(b"x", b"y")]);
    gnu[156] = b'L';
    let mut global = stream(&[(Member { size: 11, ..PLAIN }, b"11 uid=123\n"), file(b"x", b"y")]);
    global[156] = b'g';
    vec![
        stream(&[directory(b"d"), directory(b"d/e"), file(b"d/e/f", b"content"), file(b"d/g", &[9; 1500])]),
        stream(&[(attributes, b"abc"), file("d/\u{e4}\u{ff}".as_bytes(), b"")]),
        stream(&[(sparse, b"abcde")]),
        stream(&[file(&long, b"x"), file(b"\xff\xfe", b"not UTF-8")]),
        stream(&[file(b"f", b"1"), linked(EntryKind::HardLink, b"h", b"f"), linked(EntryKind::Symlink, b"s", b"f")]),
        stream(&[device(EntryKind::CharDevice), device(EntryKind::BlockDevice), device(EntryKind::Fifo)]),
        ended,
        gnu,
        global,
    ]
}

/// Streams that want out, and what a furnished target has in it to help them.
fn attacks() -> Seeds {
    let (hard, soft) = (EntryKind::HardLink, EntryKind::Symlink);
    let directory = |path| (Member { path, kind: EntryKind::Directory, mode: 0, ..PLAIN }, &b""[..]);
    vec![
        stream(&[file(b"../canary/letter", b"mine")]),
        stream(&[file(b"a/../../canary/letter", b"mine")]),
        stream(&[linked(soft, b"x", b"../canary"), file(b"x/letter", b"mine"), file(b"x/new", b"mine")]),
        stream(&[linked(soft, b"x", b".."), directory(b"x/canary"), linked(soft, b"x/canary/alias", b"y")]),
        stream(&[linked(soft, b"x", b"../canary/letter"), file(b"x", b"mine")]),
        stream(&[linked(soft, b"x", b"../canary/letter"), linked(hard, b"y", b"x"), file(b"y", b"mine")]),
        stream(&[linked(hard, b"y", b"../canary/letter"), file(b"y", b"mine")]),
        stream(&[directory(b"x"), linked(soft, b"x", b"../canary"), directory(b"x")]),
        stream(&[file(b"out/letter", b"mine"), file(b"l", b"mine"), directory(b"out"), directory(b"out/sealed")]),
        stream(&[linked(hard, b"h", b"out/letter"), linked(hard, b"k", b"l"), file(b"k", b"mine"), directory(b".")]),
        stream(&[directory(b"."), directory(b".."), directory(b"s"), file(b"s/e/new", b"x"), file(b"d", b"x")]),
        stream(&[file(b"dangling", b"made"), file(b"f", b"new"), file(b"D/F", b"case"), file(b"d/F", b"case")]),
    ]
}

fn behind(settings: &[u8], seeds: &Seeds) -> Seeds {
    let put = |setting: u8| seeds.iter().map(move |seed| [&[setting][..], seed].concat());
    settings.iter().flat_map(|&setting| put(setting)).collect()
}

pub(super) fn pax_reader() -> Seeds {
    behind(&[0, 85, 255], &streams())
}

pub(super) fn extract() -> Seeds {
    [behind(&[0, 1 | 8, 2 | 16, 4 | 32], &streams()), behind(&[0, 2 | 4, 5 | 8, 6 | 16], &attacks())].concat()
}
