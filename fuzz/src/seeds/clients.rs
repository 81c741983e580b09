//! What a client sends in a backup of a few files: a real one, over connections that keep what was written.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_catalog::Database;
use capstan_director::{BackupRequest, BackupWatch, Config, InitOptions, Site};
use capstan_keys::create_key_file;
use capstan_mover::{ClientEnd, ClientRules, Dial, NetworkJobs, NetworkStream, serve_job};

use super::Seeds;
use crate::client::{CLIENT, message_len};

/// What was sent on each connection.
type Kept = Arc<Mutex<Vec<Arc<Mutex<Vec<u8>>>>>>;

/// Opens connections to the jobs of this process.
struct Recorder {
    jobs: NetworkJobs,
    kept: Kept,
}

struct Recorded {
    stream: UnixStream,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Dial for Recorder {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        let (here, there) = UnixStream::pair()?;
        let jobs = self.jobs.clone();
        std::thread::spawn(move || drop(jobs.accept(CLIENT, Box::new(there))));
        let sent: Arc<Mutex<Vec<u8>>> = Arc::default();
        self.kept.lock().unwrap().push(Arc::clone(&sent));
        Ok(Box::new(Recorded { stream: here, sent }))
    }
}

impl Read for Recorded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes)?;
        self.sent.lock().unwrap().extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl NetworkStream for Recorded {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }
}

struct Anything;

impl ClientRules for Anything {
    fn allows(&self, _: &Path) -> bool {
        true
    }

    fn script(&self, _: &str) -> Option<Vec<OsString>> {
        None
    }
}

/// One conversation, as the target takes it.
fn conversation(source: &Path) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    (config.library.drives, config.data.buffer_mib) = (1, 8);
    let unlock = create_key_file(&directory.path().join("key")).unwrap();
    let state = directory.path().join("state");
    Site::init(&state, &InitOptions { config, encryption: None, database: Database::Sqlite }, Some(&unlock)).unwrap();
    let site = Site::open(&state, Some(&unlock), || 1_790_000_000_000_000_000, Arc::new(|_| ())).unwrap();
    let recorder = Recorder { jobs: NetworkJobs::default(), kept: Kept::default() };
    let job = recorder.jobs.open(CLIENT, Duration::from_secs(60)).unwrap();
    let token = job.token().clone();
    std::thread::scope(|scope| {
        let recorder = &recorder;
        scope.spawn(move || {
            let (links, rules, restores, stop) = (1, &Anything, None, Arc::new(AtomicBool::new(false)));
            serve_job(&ClientEnd { dial: recorder, token, links, rules, restores, stop }).unwrap();
        });
        let of_client = site.for_client(CLIENT).with_sources(Arc::new(job));
        let request = BackupRequest::of(vec![source.to_owned()]);
        let report = of_client.backup(&request, &BackupWatch::default()).unwrap();
        assert!(report.sources[0].report.is_ok(), "{report:?}");
    });
    let mut seed = Vec::new();
    for sent in recorder.kept.lock().unwrap().iter() {
        let sent = sent.lock().unwrap();
        let (hello, rest) = sent.split_at(message_len(&sent));
        let is_orders = String::from_utf8_lossy(hello).contains("\"Orders\"");
        seed.push(u8::from(!is_orders));
        seed.extend_from_slice(&(rest.len() as u16).to_le_bytes());
        seed.extend_from_slice(rest);
    }
    seed
}

pub(super) fn conversations() -> Seeds {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("letter"), "dear Ada\n".repeat(50)).unwrap();
    std::fs::create_dir(source.path().join("empty")).unwrap();
    let few = conversation(source.path());
    let none = conversation(&source.path().join("empty"));
    // Nothing but orders, orders twice, and blocks of nobody.
    vec![few.clone(), none.clone(), [&none[..], &few].concat(), vec![0, 0, 0], vec![1, 0, 0]]
}
