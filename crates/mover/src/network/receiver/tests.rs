//! What one end of a stream's links does, by itself and as its client may make it do.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::Write;
use std::os::unix::net::UnixStream;

use capstan_format::{EntryEncoder, EntryFlags, EntryKind};

use super::*;
use crate::StreamSink;
use crate::control::{Control, Controls};
use crate::entries_room::EntriesRoom;
use crate::pack::PackOptions;
use crate::pool::BlockPool;
use crate::queue::{Receiver, Sender, queue};

/// A receiver, the blocks that it has handed on, and what it has said of its stream.
fn receiver() -> (Arc<BlockReceiver>, Arc<Mutex<Vec<u32>>>, Receiver<Control>) {
    let (pool, handed) = (BlockPool::new(8, 1024), Arc::new(Mutex::new(Vec::new())));
    let (controls, said) = queue(usize::MAX);
    let to = Arc::clone(&handed);
    let out: crate::pack::PackedTo = Arc::new(move |block: Block| {
        to.lock().unwrap().push(block.place.sequence);
        Ok(())
    });
    (receiver_of(pool, out, controls), handed, said)
}

/// The receiver of a whole stream, which hands on so.
pub(in crate::network) fn receiver_of(
    pool: BlockPool,
    out: crate::pack::PackedTo,
    controls: Sender<Control>,
) -> Arc<BlockReceiver> {
    let packer = Packer::storing(&pool, Arc::clone(&out));
    let set = SetIn { blocks: blocks_in(pool, out, controls), packer };
    Arc::new(BlockReceiver::new(&set, ObjectId([1; 16]), StreamStart::whole(0), false))
}

fn blocks_in(pool: BlockPool, out: crate::pack::PackedTo, controls: Sender<Control>) -> BlocksIn {
    BlocksIn {
        pool,
        out,
        controls: Controls(controls),
        stop: Arc::default(),
        streams: Arc::default(),
        receivers: Arc::default(),
        reserved: Arc::default(),
        entries: EntriesRoom::beside(0),
        pack: PackOptions::Store,
        throttle: None,
    }
}

fn brought(receiver: &Arc<BlockReceiver>) -> Option<Connection> {
    receiver.connection_here(&Arc::default())
}

fn write(connection: &mut Connection) -> Result<(), Stopped> {
    connection.space()?;
    connection.advance(100);
    connection.flush()
}

/// The blocks in front of which streams were cut.
fn cuts(mut said: Receiver<Control>) -> Vec<u32> {
    let cut = |control| if let Control::Cut { sequence, .. } = control { Some(sequence) } else { None };
    std::iter::from_fn(|| said.try_next()).filter_map(cut).collect()
}

#[test]
fn what_a_source_here_hands_on_behind_the_end_of_its_stream_does_not_come() {
    let (receiver, handed, said) = receiver();
    let mut connection = brought(&receiver).unwrap();
    assert!(brought(&receiver).is_none(), "a stream is brought once");
    write(&mut connection).unwrap();
    write(&mut connection).unwrap();
    receiver.end();
    assert!(write(&mut connection).is_err());
    drop(connection);
    assert_eq!((handed.lock().unwrap().clone(), cuts(said), receiver.is_whole()), (vec![0, 1], vec![2], false));
}

#[test]
fn a_stream_that_a_source_here_finishes_is_whole_and_one_that_it_drops_is_cut_once() {
    let (receiver, handed, said) = receiver();
    let mut connection = brought(&receiver).unwrap();
    write(&mut connection).unwrap();
    connection.finish().unwrap();
    receiver.end();
    assert_eq!((handed.lock().unwrap().clone(), cuts(said), receiver.is_whole()), (vec![0, 1], vec![], true));

    let (receiver, handed, said) = self::receiver();
    let mut connection = brought(&receiver).unwrap();
    write(&mut connection).unwrap();
    drop(connection);
    receiver.end();
    assert_eq!((handed.lock().unwrap().clone(), cuts(said), receiver.is_whole()), (vec![0], vec![1], false));
    assert!(brought(&receiver).is_none());

    // What stops its job stops the stream, though its reader was not told yet.
    let (receiver, handed, _) = self::receiver();
    let mut connection = brought(&receiver).unwrap();
    receiver.session.stop.store(true, Ordering::Relaxed);
    assert!(write(&mut connection).is_err() && handed.lock().unwrap().is_empty());
}

/// The catalog refused it with the whole checkpoint: every job of the session failed, and its volume was suspect.
#[test]
fn an_entry_that_a_catalog_would_refuse_ends_the_connection_that_brings_it() {
    let (receiver, _, _) = receiver();
    let taken = |path: &str, size: u64| {
        let entry = FileEntry {
            path: path.as_bytes().to_vec(),
            kind: EntryKind::File,
            flags: EntryFlags::default(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            size,
            mtime_ns: 0,
            change: 0,
            crc: 0,
            connection: 0,
            offset: 0,
            member_len: 1024,
            link: Vec::new(),
        };
        let mut encoder = EntryEncoder::new();
        encoder.push(&entry);
        let packed = encoder.finish();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.write_all(&packed).unwrap();
        let mut pending = Pending::new();
        receiver.state().granted = 1;
        receiver.state().links.insert(0, 0);
        let here = LinkHere { of: LinkOf { number: 0, of_several: true }, connection: 0, answered: 0 };
        receiver
            .take_entries(&mut far, &here, (0, packed.len() as u32), &mut pending)
            .map(|()| pending.entries.len())
            .map_err(|error| error.to_string())
    };
    assert_eq!(taken("home/ada/letter", 1 << 40), Ok(1));
    for path in ["", "/home", "home/", "a\0b"] {
        assert!(taken(path, 1).unwrap_err().contains("is no path of a member"), "{path:?}");
    }
    assert!(taken("home", 1 << 63).unwrap_err().contains("reaches further than any stream"));
}

/// One end of a link of a stream, as its client has it.
fn linked(receiver: &Arc<BlockReceiver>, number: u16) -> UnixStream {
    let (near, mut far) = UnixStream::pair().unwrap();
    let receiver = Arc::clone(receiver);
    thread::spawn(move || receiver.receive(&mut far, LinkOf { number, of_several: true }).map(drop));
    near
}

fn head(sequence: u32, last: bool) -> Head {
    Head::Block(BlockHead {
        compression: Compression::None,
        last,
        closes: last,
        sequence,
        offset: u64::from(sequence) * 1024,
        valid_len: u64::from(sequence + 1) * 1024,
        plain_len: 1024,
        stored_len: 1024,
    })
}

/// How many blocks may be sent, once the mover has answered so many frames of a link.
fn granted(link: &mut UnixStream, frames: u32) -> u32 {
    loop {
        let Grant::Takes { granted, on_link: Some(on_link), .. } = Grant::read(link).unwrap() else {
            panic!("it takes more")
        };
        if on_link.answered == frames {
            return granted;
        }
    }
}

/// It took all of the session's buffers, and everybody else waited for a link that stood.
#[test]
fn a_stream_keeps_to_its_share_while_one_of_its_links_stands() {
    let (receiver, handed, _) = receiver();
    let (mut stands, mut goes) = (linked(&receiver, 0), linked(&receiver, 1));
    let mut may = granted(&mut stands, 0).max(granted(&mut goes, 0));
    head(0, false).write(&mut stands).unwrap();
    stands.write_all(&[1; 100]).unwrap();
    let (mut next, mut frames) = (1, 0);
    while next < may {
        head(next, false).write(&mut goes).unwrap();
        goes.write_all(&[2; 1024]).unwrap();
        (next, frames) = (next + 1, frames + 1);
        may = may.max(granted(&mut goes, frames));
    }
    assert!(next <= 4 && receiver.session.pool.free() >= 4, "{next} blocks of a pool of 8");
    assert!(handed.lock().unwrap().is_empty(), "the first is not here");
    // The link breaks, and another one brings the block.
    drop(stands);
    let mut stands = linked(&receiver, 0);
    granted(&mut stands, 0);
    head(0, false).write(&mut stands).unwrap();
    stands.write_all(&[1; 1024]).unwrap();
    granted(&mut stands, 1);
    // One that has come comes again.
    head(1, false).write(&mut stands).unwrap();
    stands.write_all(&[3; 1024]).unwrap();
    granted(&mut stands, 2);
    head(next, true).write(&mut goes).unwrap();
    goes.write_all(&[2; 1024]).unwrap();
    granted(&mut goes, frames + 1);
    assert_eq!(*handed.lock().unwrap(), (0..=next).collect::<Vec<_>>());
    assert!(receiver.is_whole() && receiver.state().reserved.is_empty());
}

/// Waits until something is so of a receiver.
fn wait_until(receiver: &BlockReceiver, is_so: impl Fn(&Received) -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so(&receiver.state()) {
        assert!(Instant::now() < until, "it never is");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A client that opened its link again and again, in the middle of a block each time, took all buffers of the session.
#[test]
fn links_that_are_replaced_in_the_middle_of_a_block_hold_few_buffers() {
    let (receiver, handed, _) = receiver();
    let mut links = Vec::new();
    let refused = loop {
        let mut link = linked(&receiver, 0);
        if Grant::read(&mut link).is_err() {
            break links.len();
        }
        head(0, false).write(&mut link).unwrap();
        link.write_all(&[1]).unwrap();
        links.push(link);
        let hold = links.len();
        assert!(hold <= 8, "each was let in");
        wait_until(&receiver, |state| state.holding.len() == hold && state.arriving.len() == 1);
    };
    assert!(refused == REPLACED_MAX + 2 && receiver.session.pool.free() >= 2, "{} free", receiver.session.pool.free());
    // The next byte of one that was replaced gives its buffer back, and then a link is let in again.
    links[0].write_all(&[1]).unwrap();
    wait_until(&receiver, |state| state.holding.len() == refused - 1);
    let mut link = linked(&receiver, 0);
    granted(&mut link, 0);
    head(0, true).write(&mut link).unwrap();
    link.write_all(&[2; 1024]).unwrap();
    granted(&mut link, 1);
    assert_eq!((handed.lock().unwrap().clone(), receiver.is_whole()), (vec![0], true));
}

/// Each objection became two minutes of tries, and then a network that was down.
#[test]
fn what_a_client_does_against_the_protocol_is_kept() {
    let (receiver, _, _) = receiver();
    let mut link = linked(&receiver, 0);
    granted(&mut link, 0);
    drop(link);
    wait_until(&receiver, |state| state.links.is_empty());
    assert_eq!(receiver.fault(), None, "a link that breaks is none");
    let mut link = linked(&receiver, 0);
    let may = granted(&mut link, 0);
    head(may, false).write(&mut link).unwrap();
    wait_until(&receiver, |state| state.fault.is_some());
    assert_eq!(receiver.fault().as_deref(), Some("a block came that was not granted"));
}

/// A walk that meets nothing new, or a program that prints nothing, may last for hours.
#[test]
fn a_session_does_not_wait_for_a_source_here_whose_stream_is_over() {
    let pool = BlockPool::new(8, 1024);
    let out: crate::pack::PackedTo = Arc::new(|_: Block| Ok(()));
    let (packer, workers) = Packer::start(PackOptions::Zstd(1), 1, &pool, Arc::clone(&out), Arc::default()).unwrap();
    let (controls, _said) = queue(usize::MAX);
    let set = SetIn { blocks: blocks_in(pool, out, controls), packer };
    let receiver = Arc::new(BlockReceiver::new(&set, ObjectId([1; 16]), StreamStart::whole(0), false));
    drop(set);
    let mut connection = brought(&receiver).unwrap();
    write(&mut connection).unwrap();
    receiver.end();
    // With the source's connection still there.
    workers.join();
    assert!(write(&mut connection).is_err());
}
