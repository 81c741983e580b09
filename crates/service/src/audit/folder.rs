//! The files of a log: numbered by their first record, of bounded size, and the reserve.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::chain::{Link, read_line};
use super::{AuditError, LineHash, LogHead};
use crate::file_lock::lock;

/// Room that is given up for readings once the disk is full: some ten thousand records.
pub const RESERVE_LEN: u64 = 4 << 20;
const RESERVE: &str = "reserve";
const LOCK: &str = "lock";
/// Holds the number of the last record that is anchored.
const ANCHORED: &str = "anchored";
/// Digits of a record's number in a file's name: enough for a thousand records a second for thirty years.
const DIGITS: usize = 12;

/// Where a log lies on disk, as far as the writer is concerned. Tests put a small disk or a failing one here.
pub(super) trait Disk: Send {
    /// Appends to the last file and flushes it. After an error the file may hold a part.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Takes the last file back to a length that it had.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Begins another file.
    fn begin_file(&mut self, first_sequence: u64) -> io::Result<()>;
    /// Gives the reserve up, if it is there.
    fn give_reserve_up(&mut self) -> io::Result<()>;
    /// Lays the reserve in, if it is not there.
    fn lay_reserve_in(&mut self) -> io::Result<()>;
}

/// A folder of files.
pub(super) struct Folder {
    directory: PathBuf,
    file: File,
    /// Held locked as long as the log is open: two writers would make two chains of one.
    _lock: File,
}

/// A folder as it was found.
pub(super) struct Found {
    pub(super) folder: Folder,
    /// The length of its last file.
    pub(super) len: u64,
    /// The last record.
    pub(super) head: LogHead,
    /// What was torn off behind it: how many bytes, and their hash.
    pub(super) torn: Option<(u64, LineHash)>,
}

/// The files of a log, in the order of their records.
///
/// # Errors
/// The folder cannot be read.
pub fn log_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let stem = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jsonl"));
        if stem.is_some_and(|stem| stem.len() == DIGITS && stem.bytes().all(|byte| byte.is_ascii_digit())) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The last records of a log, at most so many. What is no record is passed over: [`super::verify`] finds it.
///
/// # Errors
/// The folder cannot be read.
pub fn last_records(directory: &Path, count: usize) -> io::Result<Vec<Value>> {
    let mut records = Vec::new();
    for file in log_files(directory)?.iter().rev() {
        let wanted = count - records.len();
        let mut last = VecDeque::new();
        for line in BufReader::new(File::open(file)?).lines() {
            last.push_back(line?);
            if last.len() > wanted {
                last.pop_front();
            }
        }
        let parsed = last.iter().filter_map(|line| serde_json::from_str(line).ok());
        records = parsed.chain(records).collect();
        if records.len() >= count {
            break;
        }
    }
    Ok(records)
}

impl Folder {
    /// Opens the log of a folder, or begins one. A torn end of the last file is cut off.
    pub(super) fn open(directory: &Path) -> Result<Found, AuditError> {
        let found = Self::open_patiently(directory, 1)?;
        found.cut_torn()?;
        Ok(found)
    }

    /// The same, and tries so often to get the lock. What is torn is still there.
    pub(super) fn open_patiently(directory: &Path, tries: u32) -> Result<Found, AuditError> {
        let unusable = |error| AuditError::Unusable { directory: directory.to_owned(), source: Arc::new(error) };
        if !directory.exists() {
            fs::create_dir_all(directory).map_err(unusable)?;
            own_as(directory, directory.parent());
        }
        let mut locks = (0..tries).map(|_| lock(&directory.join(LOCK)));
        let locked = locks.find_map(Result::transpose).transpose().map_err(unusable)?;
        let Some(lock) = locked else {
            return Err(AuditError::InUse { directory: directory.to_owned() });
        };
        own_as(&directory.join(LOCK), Some(directory));
        let files = log_files(directory).map_err(unusable)?;
        let anchored = anchored(directory)?;
        let Some((last, earlier)) = files.split_last() else {
            // Numbers that were anchored are not given again, where the files were put away.
            let head = LogHead { sequence: anchored, ..LogHead::NONE };
            let file = create(directory, anchored + 1).map_err(unusable)?;
            let folder = Self { directory: directory.to_owned(), file, _lock: lock };
            return Ok(Found { folder, len: 0, head, torn: None });
        };
        let mut end = End::of(last).map_err(unusable)?;
        // A crash between the creation of a file and its first record leaves it empty.
        if end.head.is_none()
            && let Some(before) = earlier.last()
        {
            let before = End::of(before).map_err(unusable)?;
            if before.torn.is_some() {
                return Err(AuditError::Altered { what: "a file is torn, and another one follows".to_owned() });
            }
            end = End { head: before.head, broken: end.broken.or(before.broken), ..end };
        }
        if let Some(what) = end.broken {
            return Err(AuditError::Altered { what });
        }
        let sequence = end.head.map_or(0, |head| head.sequence);
        if sequence < anchored {
            let what = format!(
                "it ends with record {sequence}, and record {anchored} was anchored: what stood behind was cut off"
            );
            return Err(AuditError::Altered { what });
        }
        let file = OpenOptions::new().append(true).open(last).map_err(unusable)?;
        // Earlier programs left them for everybody to read.
        for path in files.iter() {
            if fs::metadata(path).map_err(unusable)?.permissions().mode() & 0o777 != 0o600 {
                fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(unusable)?;
            }
        }
        let folder = Self { directory: directory.to_owned(), file, _lock: lock };
        Ok(Found { folder, len: end.len, head: end.head.unwrap_or(LogHead::NONE), torn: end.torn })
    }
}

impl Found {
    /// Cuts off what a crash left behind the last record.
    pub(super) fn cut_torn(&self) -> Result<(), AuditError> {
        let Folder { directory, file, .. } = &self.folder;
        let unusable = |error| AuditError::Unusable { directory: directory.clone(), source: Arc::new(error) };
        match self.torn {
            Some(_) => file.set_len(self.len).and_then(|()| file.sync_all()).map_err(unusable),
            None => Ok(()),
        }
    }

    /// Whether the log holds a record that was kept apart. Where there is no file at all, the numbers go on behind it.
    pub(super) fn check_holds(&mut self, directory: &Path, kept: LogHead) -> Result<(), AuditError> {
        let unusable = |error| AuditError::Unusable { directory: directory.to_owned(), source: Arc::new(error) };
        if self.head == kept {
            return Ok(());
        }
        if self.head.sequence == 0 && self.len == 0 && self.torn.is_none() {
            let first = log_files(directory).map_err(unusable)?;
            // The file that was begun for record 1 is named anew.
            first.iter().try_for_each(fs::remove_file).map_err(unusable)?;
            self.folder.file = create(directory, kept.sequence + 1).map_err(unusable)?;
            self.head = LogHead { sequence: kept.sequence, ..LogHead::NONE };
            return Ok(());
        }
        let altered = |what: String| Err(AuditError::Altered { what });
        if self.head.sequence < kept.sequence {
            let (last, anchored) = (self.head.sequence, kept.sequence);
            return altered(format!(
                "it ends with record {last}, and record {anchored} was anchored: what stood behind was cut off"
            ));
        }
        match hash_of(directory, kept.sequence).map_err(unusable)? {
            Some(hash) if hash != kept.hash => {
                altered(format!("record {} is not the one that was anchored: it was written anew", kept.sequence))
            }
            // A file that was put away says nothing.
            _ => Ok(()),
        }
    }
}

/// The hash of a record, if it is there.
fn hash_of(directory: &Path, sequence: u64) -> io::Result<Option<LineHash>> {
    for path in log_files(directory)? {
        let mut file = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        loop {
            read_line(&mut file, &mut line)?;
            match Link::read(&line) {
                Some(link) if link.sequence == sequence => return Ok(Some(LineHash::of(&line))),
                Some(link) if link.sequence < sequence => {}
                _ => break,
            }
        }
    }
    Ok(None)
}

impl Disk for Folder {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.file.sync_all()
    }

    fn begin_file(&mut self, first_sequence: u64) -> io::Result<()> {
        self.file = create(&self.directory, first_sequence)?;
        Ok(())
    }

    fn give_reserve_up(&mut self) -> io::Result<()> {
        match fs::remove_file(self.directory.join(RESERVE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(&self.directory)?.sync_all(),
        }
    }

    fn lay_reserve_in(&mut self) -> io::Result<()> {
        let path = self.directory.join(RESERVE);
        if fs::metadata(&path).is_ok_and(|reserve| reserve.len() == RESERVE_LEN) {
            return Ok(());
        }
        let laid_in = (|| {
            let mut reserve = File::create(&path)?;
            own_as(&path, Some(&self.directory));
            // Written, not only claimed: a hole is no room.
            let zeros = [0; 64 << 10];
            (0..RESERVE_LEN / zeros.len() as u64).try_for_each(|_| reserve.write_all(&zeros))?;
            reserve.sync_all()
        })();
        if laid_in.is_err() {
            let _ = fs::remove_file(&path);
        }
        laid_in
    }
}

/// Up to which record other nodes have the anchor of the log of this folder; 0 if there is none.
fn anchored(directory: &Path) -> Result<u64, AuditError> {
    let path = directory.join(ANCHORED);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let unread = || AuditError::Altered { what: format!("{} does not say a record's number", path.display()) };
            text.trim().parse().map_err(|_| unread())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(AuditError::Unusable { directory: directory.to_owned(), source: Arc::new(error) }),
    }
}

/// Notes up to which record the log is anchored: a log that is found shorter was cut.
pub(super) fn note_anchored(directory: &Path, sequence: u64) -> io::Result<()> {
    let new = directory.join(format!("{ANCHORED}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{sequence}")?;
    file.sync_all()?;
    fs::rename(&new, directory.join(ANCHORED))?;
    File::open(directory)?.sync_all()
}

/// Gives a file or folder to whoever has the folder around it: root may write the log of a process that is not root.
fn own_as(path: &Path, folder: Option<&Path>) {
    let owner = folder.and_then(|folder| fs::metadata(folder).ok());
    let own = fs::metadata(path).ok();
    if let (Some(owner), Some(own)) = (owner, own)
        && (owner.uid(), owner.gid()) != (own.uid(), own.gid())
    {
        // Whoever may not do it is not root, and the owner already.
        let _ = std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid()));
    }
}

/// Makes the file of the records from `first_sequence` on. One that a crash left without any is taken over.
fn create(directory: &Path, first_sequence: u64) -> io::Result<File> {
    let path = directory.join(format!("{first_sequence:0DIGITS$}.jsonl"));
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    own_as(&path, Some(directory));
    File::open(directory)?.sync_all()?;
    match file.metadata()?.len() {
        0 => Ok(file),
        _ => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file of these records is there already")),
    }
}

/// How a file ends.
struct End {
    /// The length of its whole records.
    len: u64,
    head: Option<LogHead>,
    torn: Option<(u64, LineHash)>,
    broken: Option<String>,
}

impl End {
    fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut file = BufReader::new(File::open(path)?);
        let mut end = Self { len: 0, head: None, torn: None, broken: None };
        let mut line = Vec::new();
        loop {
            read_line(&mut file, &mut line)?;
            if line.is_empty() {
                return Ok(end);
            }
            let link = Link::read(&line);
            let follows = link.as_ref().is_some_and(|link| match end.head {
                Some(head) => link.sequence == head.sequence + 1 && link.before == head.hash.to_string(),
                None => name.trim_end_matches(".jsonl").parse() == Ok(link.sequence),
            });
            if let (Some(link), true) = (link, follows) {
                end.len += line.len() as u64;
                end.head = Some(LogHead { sequence: link.sequence, hash: LineHash::of(&line) });
                continue;
            }
            match torn(&line, &mut file)? {
                Some(torn) => end.torn = Some(torn),
                None => {
                    let after = end.head.map_or(0, |head| head.sequence);
                    end.broken = Some(format!("in {name} the line after record {after} does not continue it"));
                }
            }
            return Ok(end);
        }
    }
}

/// What a crash leaves of lines that were being written: the beginning of one, or zeros where the file grew and its
/// bytes did not arrive. Anything that goes on with whole lines is none.
pub(super) fn torn(line: &[u8], rest: &mut impl BufRead) -> io::Result<Option<(u64, LineHash)>> {
    let mut bytes = line.to_vec();
    let mut part = Vec::new();
    loop {
        read_line(rest, &mut part)?;
        if part.is_empty() {
            break;
        }
        if part.iter().any(|&byte| byte != 0) || bytes.len() > 64 << 20 {
            return Ok(None);
        }
        bytes.extend_from_slice(&part);
    }
    let whole = bytes.ends_with(b"\n");
    Ok((!whole).then(|| (bytes.len() as u64, LineHash::of(&bytes))))
}
