//! A hostile client at the wire: it was told of a job and has the token, and sends what it likes.
//!
//! ```text
//! one connection after the other:  kind (1) | length (2) | bytes behind the hello
//! kind:  0 orders, else blocks of stream (kind - 1) modulo 16, on link (kind - 1) / 16
//! ```
//! Of the orders' bytes, what follows the first message comes once the blocks' connections have ended, as it does from
//! a client that answers.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use capstan_catalog::{Database, ObjectFilter};
use capstan_director::{BackupRequest, BackupWatch, Clock, Config, Events, InitOptions, Place, Site};
use capstan_keys::{Unlock, create_key_file};
use capstan_mover::{NetworkJobs, NetworkStream};
use serde_json::json;
use tempfile::TempDir;

use crate::input::Input;
use crate::scratch;

const CLOCK: Clock = || 1_790_000_000_000_000_000;
/// The client, and what is to be read there.
pub(crate) const CLIENT: &str = "tern";
pub(crate) const SOURCE: &str = "/srv";
/// The version of the protocol, and the numbers of the job's only reading and of a process.
const VERSION: u32 = 6;
const READING: u64 = 1;
const PROCESS: [u8; 32] = [5; 32];
/// Connections of one input.
const CONNECTIONS_MAX: usize = 8;
/// How long the job waits for its client, and the rest of the orders for the blocks.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often a connection of blocks is tried, and in between: the job expects it a moment after its orders.
const TRIES: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(1);
/// Backups of one library.
const BACKUPS_MAX: u32 = 100;

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

struct State {
    directory: TempDir,
    unlock: Unlock,
    backups: u32,
}

/// A backup whose client sends these bytes: it ends, and says nothing of another client.
pub fn client(data: &[u8]) {
    is_backed_up(data);
}

/// The same; whether the source was backed up.
pub(crate) fn is_backed_up(data: &[u8]) -> bool {
    STATE.with_borrow_mut(|state| {
        if state.as_ref().is_none_or(|state| state.backups >= BACKUPS_MAX) {
            *state = Some(State::new());
        }
        state.as_mut().is_some_and(|state| {
            state.backups += 1;
            state.back_up(data)
        })
    })
}

impl State {
    fn new() -> Self {
        let directory = scratch::directory();
        let mut config = Config::default();
        (config.library.drives, config.library.volume_mib, config.data.buffer_mib) = (1, 64, 8);
        let unlock = create_key_file(&directory.path().join("key")).expect("room for a key file");
        let options = InitOptions { config, encryption: None, database: Database::Sqlite };
        Site::init(&directory.path().join("state"), &options, Some(&unlock)).expect("a new state directory");
        Self { directory, unlock, backups: 0 }
    }

    fn back_up(&self, script: &[u8]) -> bool {
        let events: Events = Arc::new(|_| ());
        let site = Site::open(&self.directory.path().join("state"), Some(&self.unlock), CLOCK, events);
        let site = site.expect("the state directory was just made");
        let jobs = NetworkJobs::default();
        let job = jobs.open(CLIENT, PATIENCE).expect("random numbers");
        let token = job.token().0;
        let conversation = Conversation::of(script, &token);
        let report = thread::scope(|scope| {
            let (jobs, conversation) = (&jobs, &conversation);
            scope.spawn(move || conversation.hold(jobs));
            let of_client = site.clone().for_client(CLIENT).with_sources(Arc::new(job));
            // Whatever it comes to: it ends.
            let mut request = BackupRequest::of(vec![PathBuf::from(SOURCE)]);
            request.tree.may_be_empty = true;
            let report = of_client.backup(&request, &BackupWatch::default());
            // Nobody expects blocks any more.
            conversation.is_over.store(true, Ordering::Relaxed);
            report
        });
        let objects = site.catalog().objects(&ObjectFilter::default()).expect("the catalog can be listed");
        for object in objects {
            assert_eq!((object.client.as_str(), object.source.as_slice()), (CLIENT, SOURCE.as_bytes()));
            let _ = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]);
        }
        report.is_ok_and(|report| report.sources.iter().all(|source| source.report.is_ok()))
    }
}

/// What the client sends: for each connection, whose hello stands first.
struct Conversation {
    orders: Vec<Vec<u8>>,
    /// With the number of the stream.
    blocks: Vec<(u16, Vec<u8>)>,
    goes_on: Arc<Gate>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Conversation {
    fn of(script: &[u8], token: &[u8; 32]) -> Self {
        let (mut orders, mut blocks) = (Vec::new(), Vec::new());
        let mut input = Input::new(script);
        for _ in 0..CONNECTIONS_MAX {
            if input.is_empty() {
                break;
            }
            match input.byte() {
                0 => orders.push([&hello(token, &json!("Orders"))[..], input.counted()].concat()),
                kind => {
                    let (connection, link) = (u16::from(kind - 1) % 16, u16::from(kind - 1) / 16);
                    let purpose = json!({"Blocks": {"reading": READING, "connection": connection, "link": link}});
                    blocks.push((connection, [&hello(token, &purpose)[..], input.counted()].concat()));
                }
            }
        }
        Self { orders, blocks, goes_on: Arc::default(), is_over: AtomicBool::new(false) }
    }

    fn hold(&self, jobs: &NetworkJobs) {
        for bytes in &self.orders {
            // The hello, and the first message behind it.
            let first = message_len(bytes);
            let free = first + message_len(bytes.get(first..).unwrap_or_default());
            let _ = jobs.accept(CLIENT, Box::new(Sent::new(bytes, Some((free, Arc::clone(&self.goes_on))))));
        }
        for (_, bytes) in &self.blocks {
            for _ in 0..TRIES {
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
                match jobs.accept(CLIENT, Box::new(Sent::new(bytes, None))) {
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => thread::sleep(BETWEEN),
                    _ => break,
                }
            }
        }
        *self.goes_on.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.goes_on.1.notify_all();
    }
}

/// What a client says first.
fn hello(token: &[u8; 32], purpose: &serde_json::Value) -> Vec<u8> {
    let hello = json!({"version": VERSION, "token": token, "process": PROCESS, "purpose": purpose}).to_string();
    let mut bytes = (hello.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(hello.as_bytes());
    bytes
}

/// How long the message at the beginning says that it is, with its head.
pub(crate) fn message_len(bytes: &[u8]) -> usize {
    let len = |at: usize| {
        bytes.get(at..at + 4).map_or(0, |len| len.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte)))
    };
    8 + len(0) + len(4)
}

/// A connection on which these bytes came; what is written to it is gone.
struct Sent {
    bytes: Vec<u8>,
    at: usize,
    /// How many come at once; the others when the gate is open.
    held: Option<(usize, Arc<Gate>)>,
}

impl Sent {
    fn new(bytes: &[u8], held: Option<(usize, Arc<Gate>)>) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, held }
    }
}

impl Read for Sent {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some((free, gate)) = &self.held
            && self.at >= *free
        {
            let is_open = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(gate.1.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open));
            self.held = None;
        }
        let end = self.held.as_ref().map_or(self.bytes.len(), |(free, _)| self.bytes.len().min(*free));
        let len = into.len().min(end.saturating_sub(self.at));
        into[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NetworkStream for Sent {
    fn set_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}
