//! A sink that keeps a connection's stream in memory, and what tests do with it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use capstan_format::FileEntry;
use capstan_mover::{Stopped, StreamSink};

/// A stream in memory, given out in chunks of one length, as a real one is.
pub(crate) struct Collect {
    connection: u16,
    chunk: Vec<u8>,
    used: usize,
    /// Everything taken so far.
    pub(crate) bytes: Vec<u8>,
    /// Members reported so far.
    pub(crate) entries: Vec<FileEntry>,
    /// Bytes after which the run is stopped.
    pub(crate) stop_after: u64,
}

impl Collect {
    pub(crate) fn new(connection: u16, chunk_len: usize) -> Self {
        // Whatever a source does not write itself must not pass for zeros.
        let chunk = vec![0xa5; chunk_len];
        Self { connection, chunk, used: 0, bytes: Vec::new(), entries: Vec::new(), stop_after: u64::MAX }
    }
}

impl StreamSink for Collect {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        if self.position() >= self.stop_after {
            return Err(Stopped);
        }
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

    fn member(&mut self, entry: FileEntry) {
        assert_eq!(entry.connection, self.connection);
        assert_eq!(entry.offset + entry.member_len, self.position(), "reported when its last byte was taken");
        self.entries.push(entry);
    }
}

/// The streams end to end, as a tar archive.
pub(crate) fn archive(sinks: &[Collect]) -> Vec<u8> {
    let mut archive: Vec<u8> = sinks.iter().flat_map(|sink| sink.bytes.iter().copied()).collect();
    assert_eq!(archive.len() % 512, 0);
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// All entries by path.
pub(crate) fn entries(sinks: &[Collect]) -> Vec<FileEntry> {
    let mut entries: Vec<FileEntry> = sinks.iter().flat_map(|sink| sink.entries.iter().cloned()).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
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

/// Extracts an archive with GNU tar, with everything that it can restore.
pub(crate) fn extract(archive: &[u8], directory: &Path) {
    let options = ["-x", "-p", "-f", "-", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-C"];
    feed("tar", options.iter().map(OsStr::new).chain([directory.as_os_str()]), archive);
}
