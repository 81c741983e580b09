//! Disks that are full or fail, as the log's thread sees them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::super::chain::Link;
use super::super::{AuditActor, AuditOrigin};
use super::*;

/// A disk with so much room, of which the reserve takes a part.
struct Small {
    room: u64,
    reserve_len: u64,
    reserve: u64,
    files: Vec<Vec<u8>>,
    /// The flush that fails, counted down.
    fails_in: Option<u32>,
}

impl Small {
    fn left(&self) -> u64 {
        let used: usize = self.files.iter().map(Vec::len).sum();
        self.room.saturating_sub(self.reserve + used as u64)
    }

    fn lines(&self) -> Vec<Link> {
        let text = self.files.concat();
        text.split_inclusive(|&byte| byte == b'\n').map(|line| Link::read(line).unwrap()).collect()
    }
}

impl Disk for Small {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A full disk takes a part, and says so late.
        let taken = bytes.len().min(self.left() as usize);
        self.files.last_mut().unwrap().extend_from_slice(&bytes[..taken]);
        if let Some(flushes) = &mut self.fails_in {
            if *flushes == 0 {
                return Err(io::Error::other("the flush failed"));
            }
            *flushes -= 1;
        }
        if taken < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.files.last_mut().unwrap().truncate(len as usize);
        Ok(())
    }

    fn begin_file(&mut self, _: u64) -> io::Result<()> {
        self.files.push(Vec::new());
        Ok(())
    }

    fn give_reserve_up(&mut self) -> io::Result<()> {
        self.reserve = 0;
        Ok(())
    }

    fn lay_reserve_in(&mut self) -> io::Result<()> {
        let room = self.left() + self.reserve;
        self.reserve = if room >= self.reserve_len { self.reserve_len } else { 0 };
        if self.reserve > 0 { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
    }
}

fn writer(room: u64, fails_in: Option<u32>) -> Writer<Small> {
    let disk = Small { room, reserve_len: 1500, reserve: 0, files: vec![Vec::new()], fails_in };
    let (directory, kma) = (PathBuf::from("/audit"), "kma1".parse().unwrap());
    let (head, state) = (LogHead::NONE, State::Good);
    Writer { disk, directory, kma, head, len: 0, file_len_max: 1 << 20, state, refused: 0 }
}

fn change() -> Timed {
    (
        AuditEntry::new(
            AuditActor::peer("user", "anna".parse().unwrap()),
            AuditOrigin::Here,
            AuditAction::named("add-policy"),
        ),
        1,
    )
}

fn reading() -> Timed {
    (
        AuditEntry::new(
            AuditActor::peer("agent", "d1".parse().unwrap()),
            AuditOrigin::Here,
            AuditAction::named("key-for-reading"),
        )
        .reading(),
        1,
    )
}

#[test]
fn on_a_full_disk_keys_are_read_and_nothing_is_changed() {
    let mut writer = writer(4000, None);
    writer.note_start(None, 0).unwrap();
    let mut changes = 0;
    while writer.commit(&[change()])[0].is_ok() {
        changes += 1;
    }
    assert!(changes > 3, "{changes}");
    // What did not fit left nothing behind.
    assert_eq!(writer.disk.lines().len(), 1 + changes);

    // A batch of both: the reading goes through, out of the reserve; the change does not, though there would be room
    // now.
    let noted = writer.commit(&[change(), reading()]);
    assert!(matches!(noted[0], Err(AuditError::DiskFull { .. })), "{noted:?}");
    assert!(noted[1].is_ok(), "{noted:?}");
    assert!(writer.commit(&[change()])[0].is_err());
    let mut readings = 1;
    while writer.commit(&[reading()])[0].is_ok() {
        readings += 1;
        assert!(readings < 100);
    }
    assert!(readings > 3, "{readings}");
    assert!(matches!(writer.commit(&[reading()])[0], Err(AuditError::DiskFull { .. })));

    // Room again: changes are taken, and the log says what was not.
    writer.disk.room = 20_000;
    assert!(writer.commit(&[change()])[0].is_ok());
    let lines = writer.disk.lines();
    assert_eq!(lines.len(), 1 + changes + readings + 2);
    assert_eq!(lines[lines.len() - 2].act, "log-was-full");
    // The change and the reading that ended the loops, and three more changes and readings in between.
    assert_eq!(lines[lines.len() - 2].facts["refused"], "5");
    assert!(writer.disk.reserve > 0, "the reserve is there again");
    assert!(writer.commit(&[change()])[0].is_ok());
    assert_eq!(writer.disk.lines().last().unwrap().act, "add-policy", "it is said once");
}

/// A flush that failed says nothing of what is on disk, and a second one that succeeds does not either.
#[test]
fn after_a_failed_flush_nothing_is_noted_any_more() {
    let mut writer = writer(1 << 20, Some(2));
    writer.note_start(None, 0).unwrap();
    assert!(writer.commit(&[change()])[0].is_ok());
    for entry in [change(), reading(), change()] {
        assert!(matches!(writer.commit(&[entry])[0], Err(AuditError::Broken { .. })));
    }
    assert_eq!(writer.disk.lines().len(), 2);
}

#[test]
fn a_node_without_room_for_the_reserve_still_gives_keys_for_reading() {
    let mut writer = writer(1400, None);
    writer.note_start(None, 0).unwrap();
    assert!(matches!(writer.commit(&[change()])[0], Err(AuditError::DiskFull { .. })));
    assert!(writer.commit(&[reading()])[0].is_ok());
}

#[test]
fn a_record_that_is_too_long_is_refused_by_itself() {
    let mut writer = writer(1 << 20, None);
    let (mut entry, at_ns) = change();
    let names: Vec<&'static str> = (0..300).map(|at| &*format!("fact{at}").leak()).collect();
    for name in names {
        entry = entry.with(name, "a text of the program that is as long as many texts of the program together");
    }
    let noted = writer.commit(&[change(), (entry, at_ns), change()]);
    assert!(noted[0].is_ok() && noted[2].is_ok(), "{noted:?}");
    assert!(matches!(noted[1], Err(AuditError::TooLong { .. })), "{noted:?}");
    assert_eq!(writer.disk.lines().len(), 2);
}
