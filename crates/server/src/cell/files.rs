//! Files of objects: a client looks at its own, a user at those of the clients that may be restored.
//!
//! An answer is worked on for [`SEARCH_TIME`], and whoever asks comes again for the rest. [`AT_ONCE`] are worked on at
//! the same time, and one of each who asks, so that backups have the processors and nobody keeps others waiting. Each
//! reads by a connection of its own to the catalog.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use capstan_catalog::{Object, ObjectFilter};
use capstan_client::files::{ASKED_BYTES_MAX, FileRow, FileVersions, FilesAnswer, FindFiles, ListFiles, ROWS_MAX};
use capstan_director::{
    DirectorError, FileSearch, FoundFile, PathPattern, SearchCursor, Searched, SearchedFor, Site, index_path,
    path_pattern,
};
use capstan_service::problem::Refusal;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::blocking::blocking;
use super::error::{refusal_of, refused};
use super::places::{Names, Whose, object_and_path};
use super::users::{CellAct, CellActs};

/// How long one answer is searched for, and how many paths it looks at however long that takes.
const SEARCH_TIME: Duration = Duration::from_secs(2);
const LOOKED_AT_LEAST: u32 = 4096;
/// Paths between two looks at the time.
const LOOKED_BETWEEN: u32 = 64;
/// How many answers are worked on at the same time.
const AT_ONCE: usize = 2;
/// How long a question waits for its turn: less than whoever asks waits for an answer.
const TURN_WAIT: Duration = Duration::from_secs(20);
/// Bytes of an answer, about: less than whoever asks takes.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Questions about files take turns, and those for lists of objects.
pub(super) struct FileTurns {
    all: Arc<Semaphore>,
    of_each: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for FileTurns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), of_each: Mutex::default() }
    }
}

impl FileTurns {
    /// Waits for a turn. It lasts until what is returned is dropped.
    pub(super) async fn turn(&self, who: &str) -> Result<[OwnedSemaphorePermit; 2], Refusal> {
        let own = {
            let mut of_each = self.of_each.lock().unwrap_or_else(PoisonError::into_inner);
            of_each.retain(|_, own| Arc::strong_count(own) > 1);
            Arc::clone(of_each.entry(who.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let both = async { Some([own.acquire_owned().await.ok()?, Arc::clone(&self.all).acquire_owned().await.ok()?]) };
        match timeout(TURN_WAIT, both).await {
            Ok(Some(turn)) => Ok(turn),
            _ => Err(Refusal::unready(
                "The server works on as many questions of this kind as it may already: ask again in a minute.",
            )),
        }
    }
}

/// A question about files.
pub(super) trait FilesQuestion: Serialize + Send + 'static {
    fn answer(&self, files: &Files<'_>) -> Result<FilesAnswer, Refusal>;
}

impl FilesQuestion for FindFiles {
    fn answer(&self, files: &Files<'_>) -> Result<FilesAnswer, Refusal> {
        files.find(self)
    }
}

impl FilesQuestion for ListFiles {
    fn answer(&self, files: &Files<'_>) -> Result<FilesAnswer, Refusal> {
        files.list(self)
    }
}

impl FilesQuestion for FileVersions {
    fn answer(&self, files: &Files<'_>) -> Result<FilesAnswer, Refusal> {
        files.versions(self)
    }
}

/// Whose files somebody asks about.
pub(super) enum Asking {
    /// A client, its own.
    Client(String),
    /// A user, those of one client or of all that the user may see.
    User { acts: Arc<CellActs>, of: Option<String> },
}

impl Asking {
    /// Answers a question, in its turn.
    pub(super) async fn answered(
        self,
        (turns, site): (&FileTurns, &Site),
        asked: impl FilesQuestion,
    ) -> Result<FilesAnswer, Refusal> {
        if serde_json::to_vec(&asked).map_or(usize::MAX, |asked| asked.len()) > ASKED_BYTES_MAX {
            return Err(Refusal::malformed("That is too long for a question about files: name the object by its id."));
        }
        let who = match &self {
            Self::Client(client) => format!("client/{client}"),
            Self::User { acts, .. } => format!("user/{}", acts.name()),
        };
        let turn = turns.turn(&who).await?;
        let site = site.clone();
        blocking(move || {
            // Whoever asked may have gone: the turn ends with the work.
            let _turn = turn;
            self.look(&site, &asked)
        })
        .await
    }

    fn look(&self, site: &Site, asked: &impl FilesQuestion) -> Result<FilesAnswer, Refusal> {
        let site = site.with_own_catalog().map_err(|error| refused(&error))?;
        let (client, acts) = match self {
            Self::Client(client) => (Some(client.as_str()), None),
            Self::User { acts, of: None } => (None, Some(acts)),
            Self::User { acts, of: Some(client) } => {
                acts.permitted_of(CellAct::FindFiles, client).map_err(|error| refusal_of(&error))?;
                (Some(client.as_str()), Some(acts))
            }
        };
        let is_of = |name: &str| match (client, acts) {
            (Some(client), _) => name == client,
            (None, Some(acts)) => acts.rights().may_of(CellAct::FindFiles, name),
            (None, None) => false,
        };
        let names_clients = acts.is_some();
        let whose = Whose { client, is_of: &is_of };
        let files = Files { site, whose, names_clients, deadline: Deadline::default() };
        let answer = asked.answer(&files)?;
        let is_empty = answer.rows.is_empty() && answer.next.is_none() && answer.damaged.is_empty();
        // A name that was mistyped has no files either.
        if let (Some(client), true, true) = (client, names_clients, is_empty) {
            let of_client = ObjectFilter { client: Some(client.to_owned()), ..ObjectFilter::default() };
            if files.site.catalog().objects(&of_client).map_err(|error| refused(&error.into()))?.is_empty() {
                return Err(Refusal::not_found(format!(
                    "Nothing of client {client} is backed up: `capstan objects` lists what there is of whom."
                )));
            }
        }
        Ok(answer)
    }
}

/// When an answer is to end. Its time counts from the first path that is looked at.
#[derive(Default)]
struct Deadline {
    began: OnceLock<Instant>,
    looked: AtomicU32,
    is_over: AtomicBool,
}

impl Deadline {
    /// Whether no more is to be looked at.
    fn ends(&self) -> bool {
        if self.began.get_or_init(Instant::now).elapsed() > SEARCH_TIME {
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.is_over.load(Ordering::Relaxed)
    }

    /// Counts one more path; whether no more are to be looked at.
    fn counts_one(&self) -> bool {
        let looked = self.looked.fetch_add(1, Ordering::Relaxed);
        let is_look = looked == 0 || looked >= LOOKED_AT_LEAST && looked.is_multiple_of(LOOKED_BETWEEN);
        if is_look { self.ends() } else { self.is_over.load(Ordering::Relaxed) }
    }
}

/// Where an answer stopped, as it is sent.
#[derive(Serialize, Deserialize)]
struct CursorForm {
    object: String,
    client: String,
    source: Vec<u8>,
    path: Option<Vec<u8>>,
}

fn cursor_text(cursor: SearchCursor) -> Option<String> {
    let SearchCursor { object, client, source, path } = cursor;
    serde_json::to_string(&CursorForm { object: object.to_string(), client, source, path }).ok()
}

fn cursor_of(text: Option<&str>) -> Result<Option<SearchCursor>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let no_cursor = || Refusal::malformed("`after` is nothing that an answer has said: give its `next`.");
    let form: CursorForm = serde_json::from_str(text).map_err(|_| no_cursor())?;
    let object = form.object.parse().map_err(|_| no_cursor())?;
    Ok(Some(SearchCursor { object, client: form.client, source: form.source, path: form.path }))
}

/// Rows as they come, until there are enough for one answer.
#[derive(Default)]
struct Part {
    rows: Vec<FileRow>,
    bytes: usize,
}

impl Part {
    fn add(&mut self, row: FileRow) {
        self.bytes += serde_json::to_vec(&row).map_or(0, |row| row.len());
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.bytes >= ANSWER_BYTES_MAX
    }
}

/// The files that somebody may look at.
pub(super) struct Files<'a> {
    site: Site,
    whose: Whose<'a>,
    /// Whether rows say of which client they are.
    names_clients: bool,
    deadline: Deadline,
}

/// A row of a file that was found in an object.
#[must_use]
pub fn found_row(object: &Object, file: &FoundFile) -> FileRow {
    let (id, client) = (Some(object.id.to_string()), Some(object.client.clone()));
    FileRow { object: id, client, ..FileRow::new(&file.entry, file.is_lost) }
}

/// The same as a version of its path.
#[must_use]
pub fn version_row(object: &Object, file: &FoundFile) -> FileRow {
    let level = if object.base.is_some() { "incr" } else { "full" };
    FileRow { backed_up_ns: Some(object.started_ns), level: Some(level.into()), ..found_row(object, file) }
}

impl Files<'_> {
    /// A row for whoever asks: a client is not told its own name.
    fn told(&self, row: FileRow) -> FileRow {
        FileRow { client: row.client.filter(|_| self.names_clients), ..row }
    }

    /// Files that are looked for, as many as are found in time.
    fn find(&self, asked: &FindFiles) -> Result<FilesAnswer, Refusal> {
        let PathPattern { matches, parts } = path_pattern(&asked.glob).map_err(|error| refused(&error))?;
        let after = cursor_of(asked.after.as_deref())?;
        let searched = match (&asked.object, &after) {
            // The object of the first part, whatever the latest is meanwhile.
            (Some(_), Some(after)) => Searched::Object(after.object),
            (Some(text), None) => {
                let (object, path) = object_and_path(&self.names(None)?, text)?;
                if path.is_some() {
                    return Err(Refusal::malformed("A search is in a whole object: name it without a path."));
                }
                Searched::Object(object.id)
            }
            (None, _) if asked.latest => Searched::Latest,
            (None, _) => Searched::Versions,
        };
        // What comes when the time is over is given to `add` whatever it is, which stops there.
        let deadline = &self.deadline;
        let wanted = |path: &[u8]| deadline.counts_one() || matches(path);
        let add = |part: &mut Part, object: &Object, file: &FoundFile| {
            if matches(&file.entry.path) && asked.takes(&file.entry) {
                part.add(self.told(found_row(object, file)));
            }
        };
        self.search(SearchedFor::Matching(&wanted, &parts), searched, after, add)
    }

    /// The objects that have a path, the latest first.
    fn versions(&self, asked: &FileVersions) -> Result<FilesAnswer, Refusal> {
        let (path, after) = (index_path(asked.path.as_bytes()), cursor_of(asked.after.as_deref())?);
        let add = |part: &mut Part, object: &Object, file: &FoundFile| {
            part.add(self.told(version_row(object, file)));
        };
        self.search(SearchedFor::Path(&path), Searched::Versions, after, add)
    }

    fn search(
        &self,
        wanted: SearchedFor<'_>,
        searched: Searched,
        after: Option<SearchCursor>,
        add: impl Fn(&mut Part, &Object, &FoundFile),
    ) -> Result<FilesAnswer, Refusal> {
        let Whose { client, is_of } = self.whose;
        let deadline = &self.deadline;
        let is_over = || deadline.ends();
        // Backups have the other processors; and what is searched ahead would use up the time of what is answered.
        let threads = 1;
        let search =
            FileSearch { wanted, searched, client, is_of, with_open: false, after, is_over: &is_over, threads };
        let mut part = Part::default();
        let end = self.site.search_files(&search, &mut |object, file| {
            add(&mut part, object, &file);
            let stops = part.is_full() || self.deadline.is_over.load(Ordering::Relaxed);
            if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let end = end.map_err(|error| refused(&error))?;
        let damaged = end.damaged.iter().map(ToString::to_string).collect();
        Ok(FilesAnswer { rows: part.rows, next: end.next.and_then(cursor_text), damaged })
    }

    /// What objects may be named by.
    fn names(&self, at_ns: Option<i64>) -> Result<Names<'_>, Refusal> {
        Names::new(&self.site, &self.whose, at_ns)
    }

    /// What stands in a directory.
    fn list(&self, asked: &ListFiles) -> Result<FilesAnswer, Refusal> {
        let (mut object, typed) = object_and_path(&self.names(asked.at_ns)?, &asked.place)?;
        let after = cursor_of(asked.after.as_deref())?;
        if let Some(after) = &after {
            // The object of the first part, whatever the latest is meanwhile.
            (object, _) = object_and_path(&self.names(None)?, &after.object.to_string())?;
        }
        let path = match typed {
            Some(typed) => self.site.path_in(&object, &typed).map_err(|error| unlisted(&error))?,
            None => index_path(&object.source),
        };
        let behind = after.and_then(|after| after.path);
        let entries = self.site.list_files(&object, &path, asked.recursive, behind.as_deref());
        let (mut part, mut next) = (Part::default(), None);
        for file in entries.map_err(|error| unlisted(&error))? {
            let file = file.map_err(|error| unlisted(&error))?;
            part.add(FileRow::new(&file.entry, file.is_lost));
            if part.is_full() {
                let (client, source) = (object.client.clone(), object.source.clone());
                next = Some(SearchCursor { object: object.id, client, source, path: Some(file.entry.path) });
                break;
            }
        }
        Ok(FilesAnswer { rows: part.rows, next: next.and_then(cursor_text), damaged: Vec::new() })
    }
}

/// Why an object's files cannot be listed.
fn unlisted(error: &DirectorError) -> Refusal {
    match error {
        DirectorError::Catalog(catalog) => match catalog.damaged_index() {
            Some(object) => Refusal::conflict(format!(
                "The list of files of object {object} is damaged or gone: whoever runs the server gets it back with \
                 `capstan rebuild {object}`."
            )),
            None => refused(error),
        },
        _ => refused(error),
    }
}
