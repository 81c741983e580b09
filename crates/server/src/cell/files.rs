//! Files of objects: a client looks at its own, a user at those of the clients that may be restored.
//!
//! A search goes on for [`SEARCH_TIME`] at a time, and whoever asks comes again for the rest; [`AT_ONCE`] are answered
//! at the same time, so that backups have the processors. Each reads by a connection of its own to the catalog.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use capstan_catalog::Object;
use capstan_client::files::{FileRow, FileVersions, FilesAnswer, FindFiles, ListFiles, ROWS_MAX, place_of, place_text};
use capstan_director::{FileSearch, FoundFile, SearchPlace, Searched, Site, index_path, path_pattern};
use capstan_service::problem::Refusal;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::CellError;
use super::blocking::blocking;
use super::error::refusal_of;
use super::places::{Whose, object_and_path, refused};
use super::users::{CellAct, CellActs, ClientsOf};

/// How long one answer is searched for.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// How many answers are worked on at the same time.
const AT_ONCE: usize = 2;
/// How long a question waits for its turn: less than whoever asks waits for an answer.
const TURN_WAIT: Duration = Duration::from_secs(20);
/// Paths between two looks at the time.
const LOOKED_BETWEEN: u32 = 64;
/// Bytes of paths in one answer, about.
const PATHS_MAX: usize = 512 << 10;

/// Questions about files take turns.
pub(super) struct FileTurns(Semaphore);

impl Default for FileTurns {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

impl FileTurns {
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        match timeout(TURN_WAIT, self.0.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Refusal::unready("Others look for files now: ask again in a minute.")),
        }
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
        turns: &FileTurns,
        site: &Site,
        answer: impl FnOnce(&Files<'_>) -> Result<FilesAnswer, Refusal> + Send + 'static,
    ) -> Result<FilesAnswer, Refusal> {
        let _turn = turns.turn().await?;
        let site = site.clone();
        blocking(move || self.look(&site, answer)).await
    }

    fn look(
        &self,
        site: &Site,
        answer: impl FnOnce(&Files<'_>) -> Result<FilesAnswer, Refusal>,
    ) -> Result<FilesAnswer, Refusal> {
        let site = site.with_own_catalog().map_err(|error| refused(&error))?;
        let named;
        let (client, clients) = match self {
            Self::Client(client) => {
                named = [client.clone()];
                (Some(client.as_str()), ClientsOf::Named(&named))
            }
            Self::User { acts, of } => {
                let clients = acts.finds_files(of.as_deref()).map_err(|error| refusal_of(&error))?;
                (of.as_deref(), clients)
            }
        };
        let is_of = |name: &str| match (client, clients) {
            (Some(client), _) => name == client,
            (None, ClientsOf::Everybody) => true,
            (None, ClientsOf::Named(clients)) => clients.iter().any(|named| named == name),
            (None, ClientsOf::Nobody) => false,
        };
        let whose = Whose { client, is_of: &is_of };
        answer(&Files { site, whose, names_clients: matches!(self, Self::User { .. }) })
    }
}

impl CellActs {
    /// Of which clients they may look at files; of the one that they name, if they name one.
    ///
    /// # Errors
    /// [`CellError::Denied`] or [`CellError::NotNamedFor`].
    fn finds_files(&self, of: Option<&str>) -> Result<ClientsOf<'_>, CellError> {
        self.permitted(CellAct::FindFiles)?;
        if let Some(client) = of {
            self.permitted_of(CellAct::FindFiles, client)?;
        }
        Ok(self.rights().of_whom(CellAct::FindFiles))
    }
}

/// The files that somebody may look at.
pub(super) struct Files<'a> {
    site: Site,
    whose: Whose<'a>,
    /// Whether rows say of which client they are.
    names_clients: bool,
}

impl Files<'_> {
    fn row(&self, object: &Object, row: FileRow) -> FileRow {
        let client = self.names_clients.then(|| object.client.clone());
        FileRow { object: Some(object.id.to_string()), client, ..row }
    }

    /// Files that are looked for, as many as are found in [`SEARCH_TIME`].
    pub(super) fn find(&self, asked: &FindFiles) -> Result<FilesAnswer, Refusal> {
        let matches = path_pattern(&asked.glob).map_err(|error| refused(&error))?;
        let searched = match &asked.object {
            Some(text) => {
                let (object, path) = object_and_path(&self.site, &self.whose, text, None)?;
                if path.is_some() {
                    return Err(Refusal::malformed("A search is in a whole object: name it without a path."));
                }
                Searched::Object(object.id)
            }
            None if asked.latest => Searched::Latest,
            None => Searched::Versions,
        };
        let after = match asked.after.as_deref().map(place_of) {
            None => None,
            Some(Some((object, path))) => Some(SearchPlace { object, path }),
            Some(None) => return Err(no_place()),
        };
        let (began, looked, is_over) = (Instant::now(), AtomicU32::new(0), AtomicBool::new(false));
        // What is behind the time is given to `found` whatever it is, which stops there.
        let wanted = |path: &[u8]| {
            let is_look = looked.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOKED_BETWEEN);
            if is_look && began.elapsed() > SEARCH_TIME {
                is_over.store(true, Ordering::Relaxed);
            }
            is_over.load(Ordering::Relaxed) || matches(path)
        };
        let search = FileSearch { wanted: &wanted, searched, is_of: self.whose.is_of, after };
        let (mut answer, mut bytes) = (FilesAnswer::default(), 0);
        let damaged = self.site.search_files(&search, &mut |object, file| {
            if matches(&file.entry.path) && asked.takes(&file.entry) {
                bytes += file.entry.path.len();
                answer.rows.push(self.row(object, FileRow::new(&file.entry, file.is_lost)));
            }
            if is_over.load(Ordering::Relaxed) || answer.rows.len() >= ROWS_MAX || bytes > PATHS_MAX {
                answer.next = Some(place_text(object.id, &file.entry.path));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        answer.damaged = damaged.map_err(|error| refused(&error))?.iter().map(ToString::to_string).collect();
        Ok(answer)
    }

    /// What stands in a directory.
    pub(super) fn list(&self, asked: &ListFiles) -> Result<FilesAnswer, Refusal> {
        let (object, path, after) = match asked.after.as_deref().map(place_of) {
            // The object of the first part, whatever the latest is meanwhile.
            Some(Some((id, after))) => {
                let (_, typed) = object_and_path(&self.site, &self.whose, &asked.place, asked.at_ns)?;
                let (object, _) = object_and_path(&self.site, &self.whose, &id.to_string(), None)?;
                (object, typed, Some(after))
            }
            Some(None) => return Err(no_place()),
            None => {
                let (object, typed) = object_and_path(&self.site, &self.whose, &asked.place, asked.at_ns)?;
                (object, typed, None)
            }
        };
        let path = match path {
            Some(typed) => self.site.path_in(&object, &typed).map_err(|error| refused(&error))?,
            None => index_path(&object.source),
        };
        let entries = self.site.list_files(&object, &path, asked.recursive, after.as_deref());
        let (mut answer, mut bytes) = (FilesAnswer::default(), 0);
        for file in entries.map_err(|error| refused(&error))? {
            let file = file.map_err(|error| refused(&error))?;
            bytes += file.entry.path.len();
            answer.rows.push(FileRow::new(&file.entry, file.is_lost));
            if answer.rows.len() >= ROWS_MAX || bytes > PATHS_MAX {
                answer.next = Some(place_text(object.id, &file.entry.path));
                break;
            }
        }
        Ok(answer)
    }

    /// The objects that have a path, the latest first and [`ROWS_MAX`] at most.
    pub(super) fn versions(&self, asked: &FileVersions) -> Result<FilesAnswer, Refusal> {
        let path = index_path(asked.path.as_bytes());
        let mut rows = Vec::new();
        let mut found = |object: &Object, file: FoundFile| {
            if rows.len() < ROWS_MAX {
                let level = if object.base.is_some() { "incr" } else { "full" };
                let row = FileRow::new(&file.entry, file.is_lost);
                let row = FileRow { backed_up_ns: Some(object.started_ns), level: Some(level.into()), ..row };
                rows.push(self.row(object, row));
            }
        };
        let damaged = self.site.file_versions(&path, self.whose.is_of, &mut found).map_err(|error| refused(&error))?;
        Ok(FilesAnswer { rows, next: None, damaged: damaged.iter().map(ToString::to_string).collect() })
    }
}

fn no_place() -> Refusal {
    Refusal::malformed("`after` is no place that an answer has named: give its `next`.")
}
