//! Files whose reading was cut off: the rest of one follows at the head of another stream.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use capstan_format::{FileEntry, Fragment, crc32c};
use capstan_mover::{CutFile, Progress, Stopped, StreamSink, TreeOptions, TreeSource};

use super::collect::{Collect, entry, read_tree};

const MIB: u64 = 1 << 20;
const CHUNK: usize = 256 << 10;

/// What a stream says of the file that it was cut off in.
fn cut_file(sink: &Collect) -> CutFile {
    let entry = sink.entries.last().unwrap();
    assert!(entry.is_fragment(), "{entry:?}");
    let fragment = Fragment::decode(&entry.link).unwrap();
    assert_eq!(entry.end() % CHUNK as u64, 0, "a mark is where a chunk ends");
    CutFile::of((entry, &fragment), (entry.connection, entry.offset), entry.member_len)
}

/// Reads a tree over one connection until the stream has so many bytes.
fn cut_off(root: &Path, at: u64) -> Collect {
    let tree = TreeSource::new(&[root.to_owned()], &TreeOptions::default()).unwrap();
    let mut sinks = [Collect::with_hook(0, CHUNK, move |position| if position < at { Ok(()) } else { Err(Stopped) })];
    tree.run(&mut sinks, None, &Progress::new()).unwrap_err();
    let [sink] = sinks;
    sink
}

fn go_on(root: &Path, cut: &[CutFile]) -> Vec<Collect> {
    let tree = TreeSource::new(&[root.to_owned()], &TreeOptions::default()).unwrap();
    let mut sinks: Vec<_> = (1..3).map(|number| Collect::new(number, CHUNK)).collect();
    tree.run_on(&mut sinks, (None, cut), &Progress::new()).unwrap();
    sinks
}

/// The bytes of a member that begins in the first stream and goes on at the head of another.
fn joined(first: &Collect, cut: &CutFile, sinks: &[Collect], entry: &FileEntry) -> Vec<u8> {
    let mut bytes = first.bytes[cut.begins.1 as usize..cut.ends.1 as usize].to_vec();
    let goes_on = |entry: &FileEntry| entry.is_fragment() && Fragment::decode(&entry.link).unwrap().continues.is_some();
    let [rest] = &sinks.iter().filter(|sink| sink.entries.iter().any(goes_on)).collect::<Vec<_>>()[..] else {
        panic!("one stream goes on")
    };
    let head = rest.entries.iter().rfind(|entry| goes_on(entry)).unwrap();
    assert_eq!(Fragment::decode(&head.link).unwrap().continues, Some(cut.ends));
    assert_eq!((head.connection, head.offset), (rest.connection(), 0));
    bytes.extend_from_slice(&rest.bytes[..head.end() as usize]);
    assert_eq!((entry.connection, entry.offset, entry.member_len), (0, cut.begins.1, bytes.len() as u64));
    bytes
}

fn noise(len: u64) -> Vec<u8> {
    let mut state = len | 1;
    let word = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(word).collect()
}

#[test]
fn the_member_is_the_same_whether_its_reading_was_cut_off_or_not() {
    let source = tempfile::tempdir().unwrap();
    for holes in [false, true] {
        let root = source.path().join(if holes { "sparse" } else { "solid" });
        fs::create_dir(&root).unwrap();
        let file = File::create(root.join("large")).unwrap();
        for at in [0, 20, 40] {
            file.write_all_at(&noise(if holes { 12 * MIB } else { 20 * MIB }), at * MIB).unwrap();
        }
        file.set_len(70 * MIB).unwrap();
        fs::write(root.join("small"), "small").unwrap();
        let (whole, _) = read_tree(&root, 1, CHUNK);
        let wanted = entry(&whole, "large");
        for at in [18, 34] {
            let first = cut_off(&root, at * MIB);
            let cut = cut_file(&first);
            let sinks = go_on(&root, std::slice::from_ref(&cut));
            let found = entry(&sinks, "large");
            assert_eq!(found.crc, wanted.crc);
            let member = &whole[0].bytes[wanted.offset as usize..wanted.end() as usize];
            assert_eq!(crc32c(&joined(&first, &cut, &sinks, &found)), crc32c(member));
            entry(&sinks, "small");
            let rest: u64 = sinks.iter().map(StreamSink::position).sum();
            assert!(rest < wanted.member_len - cut.so_far + MIB, "{rest} bytes were read");
        }
    }
}

#[test]
fn what_does_not_stand_as_it_did_is_read_from_its_beginning() {
    let source = tempfile::tempdir().unwrap();
    let large = source.path().join("large");
    fs::write(&large, noise(40 * MIB)).unwrap();
    let cut = cut_file(&cut_off(source.path(), 20 * MIB));
    let reads_whole = |cut: &CutFile| {
        let sinks = go_on(source.path(), std::slice::from_ref(cut));
        let found = entry(&sinks, "large");
        assert!(sinks.iter().all(|sink| {
            sink.entries
                .iter()
                .all(|entry| !entry.is_fragment() || Fragment::decode(&entry.link).unwrap().continues.is_none())
        }));
        found.connection > 0 && found.member_len > 40 * MIB
    };
    // Nobody says what is not so; whoever did would be believed no more than the file.
    assert!(reads_whole(&CutFile { header_crc: 1, ..cut.clone() }));
    assert!(reads_whole(&CutFile { size: cut.size - 1, ..cut.clone() }));
    assert!(reads_whole(&CutFile { mtime_ns: 0, ..cut.clone() }));
    fs::create_dir(source.path().join("x")).unwrap();
    let below = cut.path.to_str().unwrap();
    let above = below.strip_suffix("large").unwrap();
    for path in ["large", "", "/", "..", "../large", &format!("{above}./large"), &format!("{above}x/../large")] {
        assert!(reads_whole(&CutFile { path: path.into(), ..cut.clone() }), "{path}");
    }
    // Another name of it, which may be met first.
    fs::hard_link(&large, source.path().join("other")).unwrap();
    let sinks = go_on(source.path(), std::slice::from_ref(&cut));
    let kinds = ["large", "other"].map(|name| entry(&sinks, name).member_len > 40 * MIB);
    assert_ne!(kinds[0], kinds[1]);
    assert!(sinks.iter().flat_map(|sink| &sink.entries).all(|entry| !entry.is_fragment()), "it is not marked either");
}
