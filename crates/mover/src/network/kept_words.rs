//! What clients and movers say to each other, as it was in each version.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;

use capstan_format::{ObjectId, ObjectKind};

use super::frame::{BlockHead, Grant, Head, OnLink};
use super::hello::{Hello, OLDEST, Purpose, VERSION, Welcome};
use super::orders::{
    FailedMembers, JobOrder, JobReport, OtherMover, PiecesFrom, ReadSource, RestoreOrder, RestoreStream,
    RestoredReport, RunScript,
};
use crate::JobToken;
use crate::kept_words::{Word, bytes_of, check};
use crate::source::{CutFile, SourceFound, SourceSpec, StreamInput, TreeOptions};

fn token() -> JobToken {
    JobToken([7; 32])
}

fn hello(purpose: Purpose) -> Hello {
    Hello { version: VERSION, token: token(), process: token(), purpose }
}

fn source(spec: SourceSpec) -> JobOrder {
    JobOrder::Read(Box::new(ReadSource {
        reading: 3,
        spec,
        object: ObjectId([1; 16]),
        first_connection: 0,
        connections: 4,
        began_ns: 1_800_000_000_000_000_000,
        chunk_len: 524_288,
        level: Some(1),
        has_baseline: true,
        to: Some(OtherMover { address: "rook:7503".to_owned(), token: token() }),
        cut: vec![CutFile {
            path: "srv/images/db.raw".into(),
            size: 1 << 40,
            mtime_ns: 1_700_000_000_000_000_000,
            change: 5,
            content: 1 << 34,
            crc: 6,
            header_len: 1_536,
            header_crc: 7,
            begins: (0, 512),
            so_far: (1 << 34) + 1_536,
            ends: (3, 1 << 33),
        }],
        marks: true,
    }))
}

fn script() -> RunScript {
    let told = vec![("CAPSTAN_JOB".to_owned(), "home".to_owned())];
    RunScript { script: "quiesce".to_owned(), told, can_be_stopped: true, then: None }
}

fn frame(name: &'static str, head: Head) -> Word {
    Word::of_bytes(
        name,
        |bytes| head.write(bytes),
        |text| Head::read(&mut bytes_of(text).as_slice()).map(drop).map_err(|error| error.to_string()),
    )
}

fn grant(name: &'static str, grant: Grant) -> Word {
    Word::of_bytes(
        name,
        |bytes| grant.write(bytes),
        |text| Grant::read(&mut bytes_of(text).as_slice()).map(drop).map_err(|error| error.to_string()),
    )
}

#[test]
fn the_words_of_each_version_are_understood() {
    let path = || PathBuf::from("/srv/a");
    let stream = || StreamInput { name: "dump".to_owned(), command: vec!["pg_dump".into()] };
    let head = Head::Block(BlockHead {
        compression: capstan_format::Compression::Zstd,
        last: true,
        closes: true,
        sequence: 1,
        offset: 2,
        valid_len: 3,
        plain_len: 4,
        stored_len: 5,
    });
    let restore = RestoreOrder {
        restore: 1,
        open: 2,
        planned: 3,
        streams: vec![RestoreStream { object: ObjectId([1; 16]), connection: 0, chunk_len: 4, members: 5, over: 1 }],
        from: None,
        more: false,
        names_own: true,
        beside: vec![PiecesFrom {
            restore: 2,
            open: 1,
            from: Some(OtherMover { address: "rook:7503".to_owned(), token: token() }),
        }],
        keep_damaged: false,
        names: Vec::new(),
        ways: Vec::new(),
    };
    let failed =
        vec![FailedMembers { stream: 0, offset: 512, reason: "gone".to_owned(), behind: 3, are_written: false }];
    let restored = RestoredReport { members: 1, bytes: 2, failed, fatal: None, extract: None };
    let on_link = OnLink { answered: 3, says_more: true, is_held_back: true };
    let found = SourceFound { kind: ObjectKind::Tree, real_path: Some(path()), is_image: false };
    let words = [
        Word::of("hello-orders", &hello(Purpose::Orders)),
        Word::of("hello-pieces", &hello(Purpose::Pieces { restore: 1 })),
        Word::of("hello-blocks", &hello(Purpose::Blocks { reading: 1, connection: 2, link: 3 })),
        Word::of("welcome-taken", &Welcome::Taken),
        Word::of("welcome-refused", &Welcome::Refused("no".to_owned())),
        Word::of("welcome-speaks", &Welcome::Speaks(VERSION)),
        Word::of("look", &JobOrder::Look(vec!["/srv/a".into()])),
        Word::of("text", &JobOrder::Text("/srv/a".into())),
        Word::of("run", &JobOrder::Run(RunScript { then: Some(Box::new(script())), ..script() })),
        Word::of("read-tree", &source(SourceSpec::Tree { path: path(), options: TreeOptions::default() })),
        Word::of("read-device", &source(SourceSpec::Device { path: path() })),
        Word::of("read-stream", &source(SourceSpec::Stream(stream()))),
        Word::of("restore", &JobOrder::Restore(Box::new(restore))),
        Word::of("there", &JobOrder::There),
        Word::of("rows", &JobOrder::Rows { more: true }),
        Word::of("go-on", &JobOrder::GoOn),
        Word::of("stop", &JobOrder::Stop),
        Word::of("end", &JobOrder::End),
        Word::of("found", &JobReport::Found(vec![Ok(found), Err(2)])),
        Word::of("text-is", &JobReport::Text(Ok("a".to_owned()))),
        Word::of("still-runs", &JobReport::StillRuns),
        Word::of("ran", &JobReport::Ran(Err("it ended with 1".to_owned()))),
        Word::of("progress", &JobReport::Progress(Box::default())),
        Word::of("missing", &JobReport::Missing),
        Word::of("there-is", &JobReport::There { is_left: true }),
        Word::of("restored", &JobReport::Restored(Box::new(restored))),
        Word::of("done", &JobReport::Done(Box::default())),
        Word::of("failed", &JobReport::Failed { reason: "no".to_owned(), is_stopped: true }),
        frame("frame-block", head),
        frame("frame-entries", Head::Entries { sequence: 1, len: 2 }),
        frame("frame-still-here", Head::StillHere),
        grant("frame-grant", Grant::Takes { received: 1, granted: 2, on_link: None }),
        grant("frame-link-grant", Grant::Takes { received: 1, granted: 2, on_link: Some(on_link) }),
        grant("frame-stop", Grant::Stop),
    ];
    check("clients", (OLDEST, VERSION), &words);
}
