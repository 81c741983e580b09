//! What whoever decides and a mover elsewhere say to each other, as it was in each version.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use capstan_format::{Algorithm, KeyTag, ObjectId, ObjectKind, ObjectRecord, ObjectState, SessionRecord, Volser};

use super::words::{
    AskKey, Expects, IntakeTerms, KeyAnswer, MoverCall, OLDEST, Opened, Opening, ReadAnswer, ReadCall, ReadCounts,
    ReadDone, ReadKind, ReadTold, SessionCall, SessionOrder, SessionReport, VERSION,
};
use crate::devices::KeyWanted;
use crate::devices::remote::words_in_tests;
use crate::intake::StreamStart;
use crate::kept_words::{Word, check};
use crate::meters::MeterCounts;
use crate::{CheckpointBounds, ExtentBounds, JobToken, PackOptions, SessionOptions};

fn token() -> JobToken {
    JobToken([7; 32])
}

fn opening(call: MoverCall) -> Opening {
    Opening { version: VERSION, call }
}

fn session() -> SessionCall {
    SessionCall {
        owner: token(),
        options: SessionOptions {
            chunk_len: 524_288,
            pool_bytes: 1 << 27,
            pack: PackOptions::Zstd(1),
            pack_workers: 2,
            first_copy: 1,
            connections: 8,
            extents: ExtentBounds { worthwhile: 1, longest: 2 },
            checkpoints: CheckpointBounds { bytes: 1, every: Duration::from_secs(60), entry_bytes: 2 },
            ended_within: Some(Duration::from_secs(1)),
            mounts_for_blocks: true,
            drive_sets: 1,
        },
        record: SessionRecord { started_ns: 1, host: "rook".to_owned(), software: "capstan".to_owned() },
        copies: 1,
    }
}

fn object() -> ObjectRecord {
    ObjectRecord {
        object: ObjectId([1; 16]),
        source: b"/srv".to_vec(),
        client: "tern".to_owned(),
        policy: "home".to_owned(),
        kind: ObjectKind::Tree,
        state: ObjectState::Open,
        base: None,
        copy: 1,
        chunk_len: 524_288,
        started_ns: 1,
        ended_ns: 0,
        expires_ns: 0,
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    }
}

#[test]
fn the_words_of_each_version_are_understood() {
    let wanted = KeyWanted {
        tag: KeyTag([2; 16]),
        volser: Volser::new("A00001").unwrap(),
        cartridge: None,
        drive: Some("d1".to_owned()),
    };
    let kind = ReadKind::Send { client: "tern".to_owned() };
    let read = ReadCall { owner: token(), kind, between: None, rate: Some(4_000) };
    let order = |order: &SessionOrder, name| Word::of(name, order);
    let streams = vec![StreamStart { connection: 1, sequence: 2, offset: 3 }];
    let expect = SessionOrder::Expect { intake: 1, client: "tern".to_owned(), object: ObjectId([1; 16]), streams };
    let consolidated = ObjectRecord { consolidates: Some(ObjectId([2; 16])), ..object() };
    let tagged = ObjectRecord { tags: vec!["release=1.2".to_owned(), "nightly".to_owned()], ..object() };
    let terms = vec![IntakeTerms { intake: 1, stops: false, rate: Some(4_000) }];
    let counts = MeterCounts::default;
    let mut words = vec![
        Word::of("call-devices", &opening(MoverCall::Devices { owner: token() })),
        Word::of("call-keys", &opening(MoverCall::Keys { owner: token() })),
        Word::of("call-session", &opening(MoverCall::Session(Box::new(session())))),
        Word::of("call-read", &opening(MoverCall::Read(Box::new(read)))),
        Word::of("call-host", &opening(MoverCall::Host { of: token(), number: 1 })),
        Word::of("call-data", &opening(MoverCall::Data)),
        Word::of("opened-taken", &Opened::Taken),
        Word::of("opened-refused", &Opened::Refused("no".to_owned())),
        Word::of("opened-speaks", &Opened::Speaks(VERSION)),
        Word::of("ask-key", &AskKey::from(&wanted)),
        Word::of("key", &KeyAnswer::Key(Algorithm::Aes256Gcm)),
        Word::of("no-key", &KeyAnswer::None("no".to_owned())),
        Word::of("expects", &Expects { hosts: token(), pieces: Some((token(), 1)) }),
        order(&SessionOrder::Intake, "intake"),
        order(&SessionOrder::IntakeEnds(1), "intake-ends"),
        order(&SessionOrder::Begin(1, Box::new(object()), vec![(1, 2)]), "begin"),
        order(&SessionOrder::Begin(1, Box::new(consolidated), Vec::new()), "begin-consolidated"),
        order(&SessionOrder::Begin(1, Box::new(tagged), Vec::new()), "begin-tagged"),
        order(&SessionOrder::End(1, ObjectId([1; 16]), Some(2)), "end"),
        order(&expect, "expect"),
        order(&SessionOrder::HaveCome(1), "have-come"),
        order(&SessionOrder::Watch(terms, vec![1]), "watch"),
        order(&SessionOrder::Close, "close"),
        Word::of("session-done", &SessionReport::Done),
        Word::of("session-stopped", &SessionReport::Stopped),
        Word::of("session-failed", &SessionReport::Failed("no".to_owned())),
        Word::of("session-intake", &SessionReport::Intake(1)),
        Word::of("session-expected", &SessionReport::Expected { token: token(), reading: 1, number: 2 }),
        Word::of("session-came", &SessionReport::Came(true)),
        Word::of("session-watched", &SessionReport::Watched { session: counts(), intakes: vec![(1, counts())] }),
        Word::of("read-goes-on", &ReadAnswer::GoOn),
        Word::of("read-goes-on-at", &ReadAnswer::GoOnAt(4_000)),
        Word::of("read-stops", &ReadAnswer::Stop),
        Word::of("read-progress", &ReadTold::Progress(ReadCounts::default())),
        Word::of("read-done", &ReadTold::Done(ReadCounts::default())),
        Word::of("read-met", &ReadDone::default()),
    ];
    words.extend(words_in_tests());
    check("movers", (OLDEST, VERSION), &words);
}
