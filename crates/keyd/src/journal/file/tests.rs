//! Journals and copies: every state that a loss of power leaves, failing disks, forks.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{self, Read, Seek, Write};

use super::*;

const TRIM_LEN_SMALL: u64 = 3000;

fn secret(byte: u8) -> Secret {
    Secret::filled(|bytes| {
        bytes.fill(byte);
        Ok::<(), ()>(())
    })
    .unwrap()
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn entry(number: u64, sealed_len: usize) -> JournalEntry {
    JournalEntry { kind: 1, path: format!("key/{number:032x}"), sealed: vec![number as u8; sealed_len] }
}

fn paths<'a>(pending: impl Iterator<Item = &'a PlacedEntry>) -> Vec<String> {
    pending.map(|recorded| recorded.entry.path.clone()).collect()
}

/// SplitMix64: a seed in the environment replays a run.
struct Random(u64);

impl Random {
    fn seeded(test: &str) -> Self {
        let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = std::env::var("CAPSTAN_SEED").ok().map_or_else(clock, |seed| seed.parse().unwrap());
        println!("{test}: CAPSTAN_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A disk in memory that remembers everything that a loss of power could leave of the last call.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    crashes: Vec<Vec<u8>>,
    fails: Option<ErrorKind>,
    /// No new file can be put in the place of the old one.
    keeps: Option<ErrorKind>,
    /// The old one cannot be overwritten, for there is no room.
    is_full: bool,
    /// How many bytes were read.
    read_len: usize,
}

impl Medium for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        for len in 0..=bytes.len() {
            self.crashes.push([&self.bytes[..], &bytes[..len]].concat());
        }
        // The file is as long as it is to be, and sectors of it did not arrive.
        let end = self.bytes.len() + bytes.len();
        for boundary in (self.bytes.len()..end).filter(|at| at.is_multiple_of(512)) {
            let mut zeros = [&self.bytes[..], &bytes[..boundary - self.bytes.len()]].concat();
            zeros.resize(end, 0);
            self.crashes.push(zeros);
        }
        if let Some(kind) = self.fails {
            self.bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(kind.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.bytes.truncate(len as usize);
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<Old, ReplaceError> {
        if let Some(kind) = self.keeps {
            return Err(ReplaceError::Unchanged(kind.into()));
        }
        self.bytes = bytes.to_vec();
        self.crashes.push(self.bytes.clone());
        Ok(if self.is_full { Old::Left } else { Old::Overwritten })
    }

    fn sweep(&mut self) -> io::Result<()> {
        if self.is_full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read_from(&mut self, at: u64, len_max: usize) -> io::Result<Vec<u8>> {
        let read: Vec<u8> = self.bytes[at as usize..].iter().copied().take(len_max).collect();
        self.read_len += read.len();
        Ok(read)
    }
}

fn in_memory(bytes: &[u8]) -> ChainFile<Memory> {
    let key = ChainKey::new(&name("kma1"), &secret(1));
    let (chain, header_len, len) = if bytes.is_empty() {
        (Chain::new(key), 0, 0)
    } else {
        let loaded = Chain::load(&key, bytes).unwrap();
        (loaded.chain, loaded.header_len, loaded.len)
    };
    let bytes = if bytes.is_empty() { chain.header() } else { bytes[..len].to_vec() };
    let header_len = if header_len == 0 { bytes.len() } else { header_len };
    let mut places = Places::behind_header(header_len as u64);
    places.add(&bytes[header_len..]);
    let (len, medium) = (bytes.len() as u64, Memory { bytes, ..Memory::default() });
    let path = PathBuf::from("own");
    ChainFile { medium, path, chain, places, len, old_left: false, is_late: false, state: State::Good }
}

fn believed(bytes: &[u8]) -> (u64, Vec<String>) {
    let loaded = Chain::load(&ChainKey::new(&name("kma1"), &secret(1)), bytes).unwrap();
    (loaded.chain.sequence, paths(loaded.chain.pending.iter()))
}

/// Entries, reconciliations and beginnings anew in a random order, and after each call every state that a loss of power
/// could have left: what was acknowledged is there, and of what was not, all or nothing. Now and then it goes on from
/// such a state.
#[test]
fn nothing_acknowledged_is_lost_and_nothing_half_is_believed() {
    let mut random = Random::seeded("nothing_acknowledged_is_lost");
    let (mut journal, mut states, mut trims, mut torn) = (in_memory(&[]), 0, 0, 0);
    for number in 0..120 {
        let before = (journal.chain.sequence, paths(journal.chain.pending.iter()));
        let len_before = journal.len;
        journal.medium.crashes.clear();
        match random.below(4) {
            0 => {
                let up_to = match random.below(2) {
                    0 => journal.chain.sequence,
                    _ => random.below(journal.chain.sequence + 1),
                };
                journal.reconciled(up_to, TRIM_LEN_SMALL).unwrap();
            }
            _ => drop(journal.append(entry(number, random.below(300) as usize)).unwrap()),
        }
        trims += u64::from(journal.len < len_before);
        let after = (journal.chain.sequence, paths(journal.chain.pending.iter()));
        assert_eq!(believed(&journal.medium.bytes), after);
        let crashes = std::mem::take(&mut journal.medium.crashes);
        for crash in &crashes {
            let left = believed(crash);
            assert!(left == before || left == after, "{left:?} is neither {before:?} nor {after:?}");
            states += 1;
        }
        if random.below(8) == 0 && !crashes.is_empty() {
            let crash = &crashes[random.below(crashes.len() as u64) as usize];
            journal = in_memory(crash);
            torn += u64::from(journal.len < crash.len() as u64);
        }
    }
    println!("{states} states, {trims} times begun anew, {torn} torn ends");
    assert!(states > 5000);
}

#[test]
fn a_disk_that_fails_gives_no_key_out() {
    let mut journal = in_memory(&[]);
    journal.append(entry(1, 10)).unwrap();
    journal.medium.fails = Some(ErrorKind::StorageFull);
    assert!(matches!(journal.append(entry(2, 10)), Err(JournalError::NotNoted { .. })));
    journal.medium.fails = None;
    assert_eq!(journal.append(entry(3, 10)).unwrap(), 2, "there is room again, and what failed took no number");
    assert_eq!(believed(&journal.medium.bytes).1, paths(journal.chain.pending.iter()));

    journal.medium.fails = Some(ErrorKind::Other);
    assert!(matches!(journal.append(entry(4, 10)), Err(JournalError::NotNoted { .. })));
    journal.medium.fails = None;
    assert!(
        matches!(journal.append(entry(5, 10)), Err(JournalError::Broken { .. })),
        "a failed flush is not asked again"
    );
    assert!(matches!(journal.append(entry(6, 70_000)), Err(JournalError::TooLarge { .. })));
}

#[test]
fn a_journal_is_there_again_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Journal::open(directory.path(), &name("kma1"), &secret(1));
    let (mut journal, start) = open().unwrap();
    assert_eq!(start, Start::New);
    for number in 1..=3 {
        assert_eq!(journal.append(entry(number, 40)).unwrap(), number);
    }
    journal.reconciled(2).unwrap();
    journal.reconciled(1).unwrap();
    assert!(matches!(open(), Err(JournalError::InUse { .. })), "one writer");
    drop(journal);
    // A crash in the next append, and one while the file was begun anew.
    let file = directory.path().join("own");
    let mut bytes = fs::read(&file).unwrap();
    bytes.extend_from_slice(&[7; 11]);
    fs::write(&file, &bytes).unwrap();
    fs::write(directory.path().join(".new-own"), b"half").unwrap();

    let (mut journal, start) = open().unwrap();
    assert_eq!(start, Start::Torn { bytes: 11 });
    assert_eq!(journal.pending().map(|recorded| recorded.sequence).collect::<Vec<_>>(), [3]);
    assert_eq!(journal.append(entry(4, 40)).unwrap(), 5);
    journal.file.reconciled(5, 0).unwrap();
    assert!(fs::metadata(&file).unwrap().len() < 200, "all is reconciled, and the file begins anew");
    drop(journal);
    let (mut journal, start) = open().unwrap();
    assert_eq!((start, journal.sequence(), journal.pending().count()), (Start::Whole, 6, 0));
    assert_eq!(journal.append(entry(5, 40)).unwrap(), 7);
    drop(journal);

    assert!(matches!(Journal::open(directory.path(), &name("kma1"), &secret(2)), Err(JournalError::Altered { .. })));
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(matches!(open(), Err(JournalError::Altered { .. })));
}

/// A journal was begun anew by a new file in its place, and only past a megabyte: the wrapped keys of the old one
/// stayed on the disk.
#[test]
fn what_is_reconciled_is_overwritten() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = || Journal::open(here.path(), &name("kma1"), &secret(1)).unwrap().0;
    let (file, old) = (here.path().join("own"), here.path().join(".old-own"));
    let is_blank = |file: &File| {
        let mut bytes = Vec::new();
        let mut file = file.try_clone().unwrap();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        !bytes.is_empty() && bytes.iter().all(|&byte| byte == 0)
    };
    let mut journal = open();
    journal.append(entry(1, 40)).unwrap();
    let (mut copy, _) = JournalCopy::open(there.path(), &name("kma1"), &secret(1)).unwrap();
    catch_up(&mut copy, &mut journal);
    let [replaced, other] = [&file, &there.path().join("copies/kma1")].map(|file| File::open(file).unwrap());
    assert!(!is_blank(&replaced) && !journal.is_wiped() && !copy.is_wiped());
    journal.reconciled(1).unwrap();
    assert!(is_blank(&replaced) && journal.is_wiped());
    assert_eq!(JournalCopy::all(there.path()).unwrap(), [name("kma1")]);
    copy.wipe().unwrap();
    assert!(is_blank(&other) && copy.is_wiped() && copy.pending().count() == 0);
    // It goes on where it ended.
    journal.append(entry(2, 40)).unwrap();
    catch_up(&mut copy, &mut journal);
    assert_eq!(paths(copy.pending()), paths(journal.pending()));

    // A crash after the new file had its name: the old one is found, and overwritten.
    drop(journal);
    fs::copy(&file, &old).unwrap();
    let left = File::open(&old).unwrap();
    let journal = open();
    assert!(is_blank(&left) && !old.exists());
    // And one before: there are two names of the one that counts.
    drop(journal);
    fs::hard_link(&file, &old).unwrap();
    let journal = open();
    assert_eq!(journal.pending().count(), 1);
    assert!(!old.exists());
}

/// The new file had its name, and the old one could not be overwritten for want of room: the journal took itself to be
/// the long one still, and what it sent to its peers from then on were bytes of other places.
#[test]
fn a_journal_that_began_anew_goes_on_whatever_becomes_of_its_old_bytes() {
    let (mut journal, mut copy) = (in_memory(&[]), in_memory(&[]));
    for number in 1..=3 {
        journal.append(entry(number, 100)).unwrap();
    }
    journal.medium.is_full = true;
    journal.reconciled(3, 0).unwrap();
    assert!(!journal.is_wiped(), "the old bytes are there");
    assert_eq!(journal.len, journal.medium.bytes.len() as u64);
    journal.append(entry(4, 100)).unwrap();
    assert_eq!(copy.accept(&journal.since(0).unwrap(), 0).unwrap(), 5);
    assert_eq!(paths(copy.chain.pending.iter()), paths(journal.chain.pending.iter()));
    journal.reconciled(5, 0).unwrap();
    assert!(!journal.is_wiped());
    journal.medium.is_full = false;
    journal.trim(0).unwrap();
    assert!(journal.is_wiped());
}

/// A quota that was used up, or a file system without a second name for a file, broke the journal at the first
/// reconciliation.
#[test]
fn a_journal_that_cannot_begin_anew_goes_on() {
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::Unsupported] {
        let mut journal = in_memory(&[]);
        journal.append(entry(1, 100)).unwrap();
        journal.medium.keeps = Some(kind);
        journal.reconciled(1, 0).unwrap();
        assert!(!journal.is_wiped());
        assert_eq!(journal.append(entry(2, 100)).unwrap(), 3, "{kind}");
        assert_eq!(believed(&journal.medium.bytes), (3, paths(journal.chain.pending.iter())));
        journal.medium.keeps = None;
        journal.reconciled(3, 0).unwrap();
        assert!(journal.is_wiped());
    }
}

#[test]
fn a_file_system_with_one_name_for_a_file_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old, new) = (folder.path().join("own"), folder.path().join(".old-own"), folder.path().join(".new-own"));
    let mut file = Disk::write_new(&path, b"long").unwrap();
    let mut replaced = File::open(&path).unwrap();
    file.write_all(b" and longer").unwrap();
    let mut disk = Disk { path: path.clone(), file };
    let refuses = |_: &Path, _: &Path| Err(ErrorKind::Unsupported.into());
    assert_eq!(disk.replace_by(b"short", refuses).unwrap(), Old::Overwritten);
    disk.append(b" and on").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"short and on");
    let mut bytes = Vec::new();
    replaced.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [0; 15]);
    assert!(!old.exists() && !new.exists());
    drop(disk);

    // A crash when the old file has lost its name and the new one has not got it: the old one counts.
    fs::remove_file(&path).unwrap();
    let open = || Journal::open(folder.path(), &name("kma1"), &secret(1)).unwrap();
    let (mut journal, _) = open();
    journal.append(entry(1, 40)).unwrap();
    drop(journal);
    fs::rename(&path, &old).unwrap();
    fs::write(&new, in_memory(&[]).medium.bytes).unwrap();
    let (journal, start) = open();
    assert_eq!((start, journal.pending().count()), (Start::Whole, 1));
    assert!(!old.exists() && !new.exists());
}

/// Brings a copy up to where the journal stands, a segment at a time.
fn catch_up(copy: &mut JournalCopy, journal: &mut Journal) {
    while copy.sequence() < journal.sequence() {
        let (before, segment) = (copy.sequence(), journal.since(copy.sequence()).unwrap());
        assert!(copy.accept(&segment).unwrap() > before);
    }
}

#[test]
fn a_copy_takes_what_continues_it() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut journal, _) = Journal::open(here.path(), &name("kma1"), &secret(1)).unwrap();
    let open_copy = || JournalCopy::open(there.path(), &name("kma1"), &secret(1)).unwrap();
    let (mut copy, _) = open_copy();
    for number in 1..=40 {
        journal.append(entry(number, 60_000)).unwrap();
    }
    catch_up(&mut copy, &mut journal);
    assert_eq!(paths(copy.pending()), paths(journal.pending()));
    // What comes twice is taken once.
    let segment = journal.since(38).unwrap();
    assert_eq!(copy.accept(&segment).unwrap(), 40);
    journal.reconciled(39).unwrap();
    catch_up(&mut copy, &mut journal);
    drop(copy);
    let (mut copy, start) = open_copy();
    assert_eq!((start, paths(copy.pending())), (Start::Whole, paths(journal.pending())));

    // The journal begins anew while the copy is away: what it missed is reconciled.
    journal.append(entry(41, 10)).unwrap();
    journal.reconciled(journal.sequence()).unwrap();
    assert!(fs::metadata(here.path().join("own")).unwrap().len() < 200);
    journal.append(entry(42, 10)).unwrap();
    catch_up(&mut copy, &mut journal);
    assert_eq!((copy.sequence(), paths(copy.pending())), (journal.sequence(), paths(journal.pending())));
}

#[test]
fn a_copy_takes_nothing_else() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut journal, _) = Journal::open(here.path(), &name("kma1"), &secret(1)).unwrap();
    let (mut copy, _) = JournalCopy::open(there.path(), &name("kma1"), &secret(1)).unwrap();
    for number in 1..=3 {
        journal.append(entry(number, 20)).unwrap();
    }
    let segment = journal.since(0).unwrap();
    for (at, bit) in (0..segment.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut altered = segment.clone();
        altered[at] ^= 1 << bit;
        assert!(copy.accept(&altered).is_err(), "byte {at}, bit {bit}");
    }
    for len in 0..segment.len() {
        // A part that ends with a record is a segment, too, and nothing else is.
        if let Ok(sequence) = copy.accept(&segment[..len]) {
            assert_eq!(copy.pending().count() as u64, sequence);
        }
    }
    assert_eq!(copy.sequence(), 2);
    // The first records are missing.
    let (mut empty, _) = JournalCopy::open(here.path(), &name("kma1"), &secret(1)).unwrap();
    let error = empty.accept(&journal.since(1).unwrap());
    assert!(matches!(error, Err(JournalError::Forked { sequence: 2, .. })), "{error:?}");
    let (mut others, _) = JournalCopy::open(there.path(), &name("kma2"), &secret(1)).unwrap();
    assert!(matches!(others.accept(&segment), Err(JournalError::Malformed { .. })));
}

/// A node is brought back from an old copy of its disk. What it assigned since is with its peer.
#[test]
fn a_node_from_an_old_copy_is_told_apart() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = || Journal::open(here.path(), &name("kma1"), &secret(1)).unwrap().0;
    let (mut copy, _) = JournalCopy::open(there.path(), &name("kma1"), &secret(1)).unwrap();
    let mut journal = open();
    journal.append(entry(1, 20)).unwrap();
    let old = fs::read(here.path().join("own")).unwrap();
    journal.append(entry(2, 20)).unwrap();
    journal.append(entry(3, 20)).unwrap();
    catch_up(&mut copy, &mut journal);
    drop(journal);
    fs::write(here.path().join("own"), &old).unwrap();

    let mut journal = open();
    let error = journal.since(copy.sequence());
    assert!(matches!(error, Err(JournalError::PeerKnowsMore { own: 1, peer: 3, .. })), "{error:?}");
    assert_eq!(journal.take_back(&copy.since(journal.sequence()).unwrap()).unwrap(), 3);
    assert_eq!(paths(journal.pending()), paths(copy.pending()));
    journal.append(entry(4, 20)).unwrap();
    catch_up(&mut copy, &mut journal);
    drop(journal);

    // It did not ask, and assigned: its chain is another one.
    fs::write(here.path().join("own"), &old).unwrap();
    let mut journal = open();
    for number in 5..=8 {
        journal.append(entry(number, 20)).unwrap();
    }
    let error = copy.accept(&journal.since(copy.sequence()).unwrap());
    assert!(matches!(error, Err(JournalError::Forked { sequence: 5, .. })), "{error:?}");
    let error = journal.take_back(&copy.since(0).unwrap());
    assert!(matches!(error, Err(JournalError::Forked { sequence: 2, .. })), "{error:?}");
    assert_eq!(paths(copy.pending()).len(), 4);
}

/// A node that lost its disk gave keys out before it could ask anybody. What a peer has goes on beyond that, and took
/// its place without a word: the keys would have been given out once more.
#[test]
fn what_was_noted_since_does_not_give_way_to_a_copy() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut before = Journal::open(there.path(), &name("kma1"), &secret(1)).unwrap().0;
    for number in 1..=3 {
        before.append(entry(number, 20)).unwrap();
    }
    before.reconciled(3).unwrap();
    before.append(entry(4, 20)).unwrap();
    let segment = before.since(3).unwrap();

    let mut journal = Journal::open(here.path(), &name("kma1"), &secret(1)).unwrap().0;
    journal.append(entry(9, 20)).unwrap();
    let error = journal.take_back(&segment);
    assert!(matches!(error, Err(JournalError::Forked { sequence: 1, .. })), "{error:?}");
    assert_eq!(journal.pending().len(), 1);
    journal.reconciled(1).unwrap();
    assert_eq!(journal.take_back(&segment).unwrap(), before.sequence());
}

/// For each entry that a peer was sent, the whole file was read.
#[test]
fn what_a_peer_misses_is_read_and_nothing_else() {
    let (mut journal, mut copy, mut sent) = (in_memory(&[]), in_memory(&[]), 0);
    for number in 0..200 {
        journal.append(entry(number, 100)).unwrap();
        journal.medium.crashes.clear();
        let segment = journal.since(copy.chain.sequence).unwrap();
        sent += segment.len();
        copy.accept(&segment, u64::MAX).unwrap();
        copy.medium.crashes.clear();
        if number % 7 == 0 {
            journal.reconciled(number, u64::MAX).unwrap();
        }
    }
    assert_eq!((journal.medium.read_len, copy.medium.read_len), (sent, 0));
    assert!(sent < 2 * journal.len as usize + 200 * journal.places.header().end as usize, "{sent}");
    assert_eq!((believed(&copy.medium.bytes).0, copy.chain.sequence), (228, 228));
    assert_eq!(paths(copy.chain.pending.iter()), believed(&copy.medium.bytes).1);
}
