//! The log on disk: many at once, files, starts after every cut, what is no crash.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::PathBuf;

use super::super::{Anchor, AuditAction, AuditActor, AuditFinding, AuditOrigin, AuditOutcome, log_files, verify};
use super::*;

fn kma() -> Name {
    "kma1".parse().unwrap()
}

fn entry(number: u64) -> AuditEntry {
    let from = AuditOrigin::Address("192.0.2.7:5123".parse().unwrap());
    AuditEntry::new(AuditActor::peer("user", "anna".parse().unwrap()), from, AuditAction::named("add-policy"))
        .of("policy", &"yearly".parse::<Name>().unwrap())
        .with("number", number)
}

fn check(directory: &Path, anchors: &[Anchor]) -> super::super::AuditReport {
    verify(&kma(), &log_files(directory).unwrap(), anchors).unwrap()
}

#[test]
fn lines_are_as_documented() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    log.note_blocking(entry(7).came_to(AuditOutcome::Refused { why: "no".into() }), 1_790_000_000_000_000_000).unwrap();
    log.close();
    let text = fs::read_to_string(directory.path().join("000000000001.jsonl")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let zeros = "0".repeat(64);
    assert_eq!(
        lines[0],
        format!(
            r#"{{"sequence":1,"time":"1970-01-01T00:00:00.000000000Z","kma":"kma1","who":"itself","from":"here","act":"log-opened","result":"done","before":"{zeros}"}}"#
        )
    );
    let before = super::super::LineHash::of(format!("{}\n", lines[0]).as_bytes());
    assert_eq!(
        lines[1],
        format!(
            r#"{{"sequence":2,"time":"2026-09-21T14:13:20.000000000Z","kma":"kma1","who":"user/anna","from":"192.0.2.7:5123","act":"add-policy","object":"policy/yearly","result":"refused","why":"no","facts":{{"number":"7"}},"before":"{before}"}}"#
        )
    );
}

/// Many at once share flushes; each is there, in one chain, across files.
#[test]
fn what_many_note_at_once_is_one_chain_over_many_files() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open_with(directory.path(), &kma(), 20_000, 0).unwrap();
    thread::scope(|scope| {
        for one in 0..8 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..50 {
                    let head = log.note_blocking(entry(one * 100 + number), 5).unwrap();
                    assert!(log.head().sequence >= head.sequence);
                }
            });
        }
    });
    let head = log.close();
    assert_eq!(head.sequence, 401);
    assert!(log_files(directory.path()).unwrap().len() > 3);
    let report = check(directory.path(), &[Anchor { kma: kma(), head, at_ns: 0 }]);
    assert_eq!((report.finding, report.first, report.last, report.anchored_to), (None, 1, head, 401));

    let log = AuditLog::open_with(directory.path(), &kma(), 20_000, 0).unwrap();
    assert_eq!(log.close().sequence, 402, "the chain goes on after a start");
    assert_eq!(check(directory.path(), &[]).finding, None);
}

#[test]
fn a_runtime_notes_too() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    assert_eq!(runtime.block_on(log.note(entry(1), 1)).unwrap(), log.head());
    assert_eq!(log.close().sequence, 2);
}

/// A log cut at every byte, as a crash does it: it opens, holds every record that is whole, says what was torn off, and
/// is one chain.
#[test]
fn a_log_cut_at_any_byte_goes_on() {
    let whole = tempfile::tempdir().unwrap();
    let log = AuditLog::open(whole.path(), &kma(), 0).unwrap();
    log.note_blocking(entry(1), 1).unwrap();
    log.close();
    let bytes = fs::read(whole.path().join("000000000001.jsonl")).unwrap();
    // One folder for all, for its reserve is laid in but once.
    let directory = tempfile::tempdir().unwrap();
    let lens = 0..=bytes.len();
    let with_zeros = lens.clone().step_by(13).map(|len| (len, 700));
    for (len, zeros) in lens.map(|len| (len, 0)).chain(with_zeros) {
        let file: PathBuf = directory.path().join("000000000001.jsonl");
        // Some file systems leave zeros where the file grew and its bytes did not arrive.
        fs::write(&file, [&bytes[..len], &vec![0; zeros]].concat()).unwrap();
        let whole_len = bytes[..len].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let records = bytes[..len].iter().filter(|&&byte| byte == b'\n').count() as u64;
        let torn = len - whole_len + zeros;

        let before = check(directory.path(), &[]);
        assert_eq!((before.finding, before.torn_bytes), (None, torn as u64));
        let mut found = Folder::open(directory.path()).unwrap();
        assert_eq!((found.head.sequence, found.len), (records, whole_len as u64), "cut at {len}");
        let torn_off = found.torn.take();
        assert_eq!(torn_off.map_or(0, |(len, _)| len), torn as u64);
        let mut writer = Writer::new(found, directory.path().to_owned(), kma(), 1 << 20);
        writer.note_start(torn_off, 9).unwrap();
        let after = fs::read(&file).unwrap();
        assert!(after.starts_with(&bytes[..whole_len]));
        let said = String::from_utf8(after).unwrap().contains(&format!("\"torn-bytes\":\"{torn}\""));
        assert_eq!(said, torn > 0);
        let report = check(directory.path(), &[]);
        assert_eq!((report.finding, report.last.sequence, report.torn_bytes), (None, records + 1, 0));
    }
}

/// An altered log is no crash: nothing more is written to it.
#[test]
fn an_altered_log_is_not_written_any_further() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    log.note_blocking(entry(1), 1).unwrap();
    log.note_blocking(entry(2), 1).unwrap();
    log.close();
    let file = directory.path().join("000000000001.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    for altered in
        [text.replace("\"number\":\"1\"", "\"number\":\"3\""), text.replacen('{', "", 1), format!("{text}x\n")]
    {
        fs::write(&file, altered).unwrap();
        assert!(matches!(AuditLog::open(directory.path(), &kma(), 0), Err(AuditError::Altered { .. })));
    }
    fs::write(&file, text).unwrap();
    assert!(AuditLog::open(directory.path(), &kma(), 0).is_ok());
}

#[test]
fn a_log_has_one_writer() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    assert!(matches!(AuditLog::open(directory.path(), &kma(), 0), Err(AuditError::InUse { .. })));
    log.close();
    assert!(AuditLog::open(directory.path(), &kma(), 0).is_ok());
}

/// A crash between the creation of a file and its first record.
#[test]
fn an_empty_last_file_goes_on_where_the_one_before_ended() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    log.note_blocking(entry(1), 1).unwrap();
    log.close();
    fs::write(directory.path().join("000000000003.jsonl"), "").unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    assert_eq!(log.close().sequence, 3);
    let report = check(directory.path(), &[]);
    assert_eq!((report.finding, report.last.sequence), (None, 3));
}

#[test]
fn nodes_bear_witness_of_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    let head = LogHead { sequence: 12, hash: super::super::LineHash([0xab; 32]) };
    let seen = Anchor { kma: "kma2".parse().unwrap(), head, at_ns: 0 };
    log.note_blocking(AuditEntry::witnessed(&seen), 1).unwrap();
    log.note_blocking(AuditEntry::own(AuditAction::named("pool-filled")), 1).unwrap();
    log.close();
    let report = check(directory.path(), std::slice::from_ref(&seen));
    assert_eq!((report.finding, report.witnessed), (None::<AuditFinding>, vec![seen]));
}

/// A log that was cut below its anchor was a warning, and its numbers were given again. It is as grave as a byte that
/// was changed.
#[test]
fn a_log_that_was_cut_below_its_anchor_is_not_written_any_further() {
    let directory = tempfile::tempdir().unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    for number in 1..9 {
        log.note_blocking(entry(number), 0).unwrap();
    }
    let head = log.head();
    log.anchored(head.sequence).unwrap();
    log.note_blocking(entry(9), 0).unwrap();
    log.close();
    let file = directory.path().join("000000000001.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let lines = |count| text.split_inclusive('\n').take(count).collect::<String>();

    // What was never anchored may be lost by a crash.
    fs::write(&file, lines(9)).unwrap();
    AuditLog::open(directory.path(), &kma(), 0).unwrap().close();
    fs::write(&file, lines(8)).unwrap();
    let error = AuditLog::open(directory.path(), &kma(), 0).err().unwrap();
    assert!(matches!(error, AuditError::Altered { .. }), "{error}");
    assert!(error.to_string().contains("record 9 was anchored"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), lines(8), "nothing was written");

    // As the error advises: its files are kept elsewhere, and no number is given a second time.
    fs::rename(&file, directory.path().join("evidence")).unwrap();
    let log = AuditLog::open(directory.path(), &kma(), 0).unwrap();
    assert_eq!(log.head().sequence, 10);
    log.close();
    let report = check(directory.path(), &[]);
    assert_eq!((report.first, report.last.sequence, report.finding), (10, 10, None));
}

/// Where a log stood, kept in memory.
#[derive(Default)]
struct Memory(Mutex<Option<LogHead>>);

impl KeptHead for Memory {
    type Error = AuditError;

    fn head(&self) -> Result<Option<LogHead>, AuditError> {
        Ok(*self.0.lock().unwrap())
    }

    fn keep(&self, head: LogHead) -> Result<(), AuditError> {
        *self.0.lock().unwrap() = Some(head);
        Ok(())
    }
}

/// What may be at the end of a log that was noted in turns, and whether one more act is noted behind it.
#[test]
fn a_log_of_several_processes_goes_on_behind_what_was_kept_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = (directory.path(), directory.path().join("000000000001.jsonl"));
    let kept = Memory::default();
    let note = |number| note_once(path, &kma(), entry(number), 5, &kept);
    let is_altered = |number| matches!(note(number), Err(AuditError::Altered { .. }));
    thread::scope(|scope| {
        for one in 0..4 {
            let note = &note;
            scope.spawn(move || (0..5).for_each(|number| assert!(note(one * 10 + number).is_ok())));
        }
    });
    assert_eq!(note(1).unwrap().sequence, 21);
    let whole = fs::read(&file).unwrap();
    assert_eq!(check(path, &[]).finding, None);
    // A crash left something behind the last record, or died before that was kept.
    fs::write(&file, [&whole[..], b"{\"sequ"].concat()).unwrap();
    assert_eq!(note(2).unwrap().sequence, 23, "one record says what was torn off");
    kept.keep(LogHead {
        sequence: 21,
        hash: super::super::LineHash::of(whole.split_inclusive(|b| *b == b'\n').next_back().unwrap()),
    })
    .unwrap();
    assert_eq!(note(3).unwrap().sequence, 24);
    let good = fs::read(&file).unwrap();
    let end = good.len();
    // A last record that lost a byte is not taken for a crash, nor cut off; one that was written anew is not believed.
    for altered in [good[..end - 1].to_vec(), good[..end - 400].to_vec(), [&good[..end - 8], b"0000\"}}\n"].concat()] {
        fs::write(&file, &altered).unwrap();
        assert!(is_altered(4));
        assert_eq!(fs::read(&file).unwrap(), altered, "it is left as it is");
    }
    fs::write(&file, &good).unwrap();
    assert_eq!(note(5).unwrap().sequence, 25);
    // All of it gone: the numbers go on.
    fs::remove_file(&file).unwrap();
    assert_eq!(note(6).unwrap().sequence, 26);
    let report = check(path, &[]);
    assert_eq!((report.first, report.finding), (26, None));
}
