//! A sink that keeps a connection's stream in memory, and what tests do with it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use capstan_format::{EntryFlags, EntryKind, FileEntry, crc32c};
use capstan_mover::{Progress, SourceReport, Stopped, StreamSink, TreeOptions, TreeSource};

/// Called when the stream is asked for space: the position, to do something to the source at that very moment.
type Hook = Box<dyn FnMut(u64) -> Result<(), Stopped> + Send>;

/// A stream in memory, given out in chunks of one length, as a real one is.
pub(crate) struct Collect {
    connection: u16,
    chunk: Vec<u8>,
    used: usize,
    hook: Hook,
    /// Everything taken so far.
    pub(crate) bytes: Vec<u8>,
    /// Members reported so far.
    pub(crate) entries: Vec<FileEntry>,
}

impl Collect {
    pub(crate) fn new(connection: u16, chunk_len: usize) -> Self {
        Self::with_hook(connection, chunk_len, |_| Ok(()))
    }

    pub(crate) fn with_hook(
        connection: u16,
        chunk_len: usize,
        hook: impl FnMut(u64) -> Result<(), Stopped> + Send + 'static,
    ) -> Self {
        // Whatever a source does not write itself must not pass for zeros.
        let chunk = vec![0xa5; chunk_len];
        Self { connection, chunk, used: 0, hook: Box::new(hook), bytes: Vec::new(), entries: Vec::new() }
    }
}

impl StreamSink for Collect {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        (self.hook)(self.bytes.len() as u64)?;
        if self.used == self.chunk.len() {
            self.used = 0;
            self.chunk.fill(0xa5);
        }
        Ok(&mut self.chunk[self.used..])
    }

    fn advance(&mut self, len: usize) {
        self.bytes.extend_from_slice(&self.chunk[self.used..self.used + len]);
        self.used += len;
    }

    fn position(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn connection(&self) -> u16 {
        self.connection
    }

    fn takes_fragments(&self) -> bool {
        true
    }

    fn left_of_chunk(&self) -> usize {
        self.chunk.len() - self.used
    }

    fn member(&mut self, entry: FileEntry) {
        if entry.connection == self.connection {
            assert_eq!(entry.offset + entry.member_len, self.position(), "reported when its last byte was taken");
        }
        self.entries.push(entry);
    }
}

/// Reads a tree on several connections; `chunk_len` is that of real blocks or a mean one.
pub(crate) fn read_tree(root: &Path, connections: u16, chunk_len: usize) -> (Vec<Collect>, SourceReport) {
    let tree = TreeSource::new(&[root.to_owned()], &TreeOptions::default()).unwrap();
    let mut sinks: Vec<_> = (0..connections).map(|number| Collect::new(number, chunk_len)).collect();
    let report = tree.run(&mut sinks, None, &Progress::new()).unwrap();
    (sinks, report)
}

/// The streams end to end, as a tar archive.
pub(crate) fn archive(sinks: &[Collect]) -> Vec<u8> {
    let mut archive: Vec<u8> = sinks.iter().flat_map(|sink| sink.bytes.iter().copied()).collect();
    assert_eq!(archive.len() % 512, 0);
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// All entries of members by path.
pub(crate) fn entries(sinks: &[Collect]) -> Vec<FileEntry> {
    let members = sinks.iter().flat_map(|sink| sink.entries.iter().filter(|entry| !entry.is_fragment()));
    let mut entries: Vec<FileEntry> = members.cloned().collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// The entry whose path ends with a name.
pub(crate) fn entry(sinks: &[Collect], name: &str) -> FileEntry {
    let mut found = entries(sinks);
    found.retain(|entry| entry.path.ends_with(name.as_bytes()));
    assert_eq!(found.len(), 1, "one entry ends with {name}: {found:?}");
    found.remove(0)
}

/// Checks each entry against the bytes that it points to, read with a tar reader that is not ours; one member each.
pub(crate) fn check_entries(sinks: &[Collect]) {
    for sink in sinks {
        let mut end = 0;
        for entry in sink.entries.iter().filter(|entry| entry.member_len > 0 && !entry.is_fragment()) {
            let name = entry.path.escape_ascii().to_string();
            assert_eq!(entry.offset, end, "members lie one behind the other: {name}");
            end = entry.offset + entry.member_len;
            let member = &sink.bytes[entry.offset as usize..end as usize];
            let mut archive = tar::Archive::new(member);
            let mut found = archive.entries().unwrap();
            let mut file = found.next().unwrap().unwrap();
            let mut content = Vec::new();
            file.read_to_end(&mut content).unwrap();
            let path = file.path_bytes().into_owned();
            let path = path.strip_suffix(b"/").unwrap_or(&path);
            if entry.flags.contains(EntryFlags::SPARSE) {
                assert!(path.starts_with(b"GNUSparseFile.0/"), "{name}");
            } else {
                assert_eq!(path, entry.path, "{name}");
                let expected = if entry.kind == EntryKind::File { entry.size } else { 0 };
                assert_eq!((content.len() as u64, crc32c(&content)), (expected, entry.crc), "{name}");
            }
            let link = file.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
            if entry.kind == EntryKind::HardLink {
                assert_eq!(link, entry.link, "{name}");
            }
            let header = file.header();
            assert_eq!(header.mode().unwrap(), entry.mode, "{name}");
            drop(file);
            assert!(found.next().is_none(), "{name}");
        }
        assert_eq!(end, sink.position(), "entries cover the stream");
    }
}

/// Runs a program with bytes on its input; fails unless it succeeds without a word on standard error.
pub(crate) fn feed<I: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = I>, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // The program may close its input once it saw the end of the archive.
    let _ = writer.join().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && words.is_empty(), "{program}: {} {words}", output.status);
    output.stdout
}

/// Runs a program; fails unless it succeeds.
pub(crate) fn run<I: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = I>) -> Vec<u8> {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Extracts an archive with GNU tar, with everything that it can restore. Where the streams of several connections are
/// laid end to end, more may follow for a directory that GNU tar takes for done, so it is told to leave times to the
/// end.
pub(crate) fn extract(archive: &[u8], directory: &Path) {
    extract_with(&["--delay-directory-restore"], archive, directory);
}

/// Extracts the archive of a single connection with GNU tar, as anyone would.
pub(crate) fn extract_plain(archive: &[u8], directory: &Path) {
    extract_with(&[], archive, directory);
}

fn extract_with(more: &[&str], archive: &[u8], directory: &Path) {
    let options = ["-x", "-p", "-f", "-", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"];
    // GNU tar says that it does not know `hdrcharset`, and reads such names right nevertheless.
    let quiet = ["--warning=no-unknown-keyword", "--warning=no-timestamp"];
    let options = options.iter().chain(&quiet).chain(more).chain(&["-C"]);
    feed("tar", options.map(OsStr::new).chain([directory.as_os_str()]), archive);
}

/// Extracts an archive with bsdtar.
pub(crate) fn extract_bsdtar(archive: &[u8], directory: &Path) {
    let options = ["-x", "-p", "-f", "-", "--xattrs", "--acls", "--numeric-owner", "-C"];
    feed("bsdtar", options.iter().map(OsStr::new).chain([directory.as_os_str()]), archive);
}

/// What rsync would change in a restored tree to make it like the original, metadata and content; empty if it is.
pub(crate) fn differences(original: &Path, restored: &Path) -> String {
    let options = ["-aHAXnic", "--delete", "--devices", "--specials", "--numeric-ids", "--modify-window=-1"];
    let paths = [original.join(""), restored.join("")];
    let arguments = options.iter().map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str()));
    String::from_utf8_lossy(&run("rsync", arguments)).into_owned()
}

/// Where a path lies below a directory that an archive was extracted to.
pub(crate) fn below(directory: &Path, path: &Path) -> std::path::PathBuf {
    directory.join(path.strip_prefix("/").unwrap())
}

/// Whether the tests run as root, as tests of owners and devices must.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
