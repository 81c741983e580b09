//! What is still to be walked, shared by the connections.
//!
//! One stack under one lock: a connection takes the newest piece of work and puts what it finds on top, so that one
//! connection alone walks depth first and the stack stays as short as the tree is deep. The lock is taken a few times
//! for each directory and once for each batch of files; no other lock is taken under it.
//!
//! A directory that waits keeps its parent open, because it is opened relative to it. Where a deep tree would hold more
//! than a share of the descriptors that the process may have, a parent is closed, and found again from its source by
//! single steps when its turn comes.

use std::ops::{Deref, Range};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::listing::{Listing, Names, Rest};
use super::metadata::FileMetadata;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) fd: OwnedFd,
    /// Its path in the object.
    pub(crate) path: Vec<u8>,
    /// As it was described when it was opened.
    pub(crate) metadata: FileMetadata,
    /// Number of the source that it lies in.
    pub(crate) source: usize,
    open: Arc<AtomicUsize>,
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What it takes to open a directory again, and to say that it could not be.
#[derive(Debug)]
pub(crate) struct ClosedDirectory {
    /// The source's number.
    pub(crate) source: usize,
    /// The path in the object.
    pub(crate) path: Vec<u8>,
    /// As it was described when it was open.
    pub(crate) metadata: FileMetadata,
}

/// A directory whose children wait.
#[derive(Debug, Clone)]
pub(crate) enum Parent {
    /// Open.
    Open(Arc<Directory>),
    /// Closed to save a descriptor.
    Closed(Arc<ClosedDirectory>),
}

/// A piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// A source, by number.
    Source(usize),
    /// A directory, by its parent and the number of its name.
    Child(Parent, Arc<Names>, usize),
    /// Some of a directory's names that are not directories.
    Files(Arc<Directory>, Arc<Names>, Range<usize>),
    /// The rest of a long directory.
    Rest(Arc<Directory>),
}

enum Item {
    Source(usize),
    Children { parent: Parent, names: Arc<Names>, next: usize },
    Files { directory: Arc<Directory>, names: Arc<Names>, next: usize },
    Rest(Arc<Directory>),
}

struct State {
    items: Vec<Item>,
    busy: usize,
    stopped: bool,
}

/// The stack.
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    open: Arc<AtomicUsize>,
    open_max: usize,
}

impl Queue {
    /// A stack of all sources, the first on top. `open_max` is the number of directories that may stay open.
    pub(crate) fn new(sources: usize, open_max: usize) -> Self {
        let items = (0..sources).rev().map(Item::Source).collect();
        Self {
            state: Mutex::new(State { items, busy: 0, stopped: false }),
            changed: Condvar::new(),
            open: Arc::new(AtomicUsize::new(0)),
            open_max,
        }
    }

    /// Counts an open directory.
    pub(crate) fn directory(
        &self,
        fd: OwnedFd,
        path: Vec<u8>,
        metadata: FileMetadata,
        source: usize,
    ) -> Arc<Directory> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(Directory { fd, path, metadata, source, open: Arc::clone(&self.open) })
    }

    /// Waits for the next piece of work, of at most so many files; `None` when all is done or the walk was stopped.
    pub(crate) fn take(&self, files_max: usize) -> Option<Taken<'_>> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.pop(files_max) {
                return Some(Taken { queue: self, work });
            }
            if state.stopped || state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next piece of work if there is one at once.
    pub(crate) fn try_take(&self, files_max: usize) -> Option<Taken<'_>> {
        let work = self.lock().pop(files_max)?;
        Some(Taken { queue: self, work })
    }

    /// Puts what was found in a directory on top: its files, below them its children, below them the rest of its
    /// listing.
    pub(crate) fn put(&self, directory: &Arc<Directory>, found: Listing, rest: Rest) {
        let mut state = self.lock();
        if rest == Rest::More {
            state.items.push(Item::Rest(Arc::clone(directory)));
        }
        if found.directories.len() > 0 {
            let parent = if self.open.load(Ordering::Relaxed) > self.open_max {
                let (source, path, metadata) = (directory.source, directory.path.clone(), directory.metadata);
                Parent::Closed(Arc::new(ClosedDirectory { source, path, metadata }))
            } else {
                Parent::Open(Arc::clone(directory))
            };
            state.items.push(Item::Children { parent, names: Arc::new(found.directories), next: 0 });
        }
        if found.files.len() > 0 {
            let names = Arc::new(found.files);
            state.items.push(Item::Files { directory: Arc::clone(directory), names, next: 0 });
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Files were taken that may be given back: the walk is not over until [`Queue::let_go`].
    pub(crate) fn hold(&self) {
        self.lock().busy += 1;
    }

    /// What was held is kept, or was given back.
    pub(crate) fn let_go(&self) {
        let mut state = self.lock();
        state.busy -= 1;
        let over = state.busy == 0 && state.items.is_empty();
        drop(state);
        if over {
            self.changed.notify_all();
        }
    }

    /// Gives names back that were taken, for any connection to take.
    pub(crate) fn give_back(&self, directory: Arc<Directory>, names: Names) {
        self.lock().items.push(Item::Files { directory, names: Arc::new(names), next: 0 });
        self.changed.notify_all();
    }

    /// Ends the walk for all connections.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Whether the walk was stopped.
    pub(crate) fn stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pop(&mut self, files_max: usize) -> Option<Work> {
        if self.stopped {
            return None;
        }
        let (work, exhausted) = match self.items.last_mut()? {
            Item::Source(number) => (Work::Source(*number), true),
            Item::Rest(directory) => (Work::Rest(Arc::clone(directory)), true),
            Item::Children { parent, names, next } => {
                let child = *next;
                *next += 1;
                (Work::Child(parent.clone(), Arc::clone(names), child), *next == names.len())
            }
            Item::Files { directory, names, next } => {
                let from = *next;
                *next = names.len().min(from + files_max.max(1));
                (Work::Files(Arc::clone(directory), Arc::clone(names), from..*next), *next == names.len())
            }
        };
        if exhausted {
            self.items.pop();
        }
        self.busy += 1;
        Some(work)
    }
}

/// Work that was taken and may yet put more on the stack: the walk is not over while one of these lives.
pub(crate) struct Taken<'a> {
    queue: &'a Queue,
    work: Work,
}

impl Deref for Taken<'_> {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.queue.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A connection took the 32 files of a directory and gave those back that were too many. The others had found
    /// nothing by then, and had ended: it read all of them alone.
    #[test]
    fn nobody_ends_while_files_are_held_that_may_be_given_back() {
        let queue = Queue::new(0, 10);
        let fd = OwnedFd::from(File::open(".").expect("the folder of the test"));
        let metadata = FileMetadata::new(&rustix::fs::fstat(&fd).expect("what it is"));
        let directory = queue.directory(fd, b"srv".to_vec(), metadata, 0);
        let mut names = Names::default();
        names.push_back(c"a");
        queue.give_back(Arc::clone(&directory), names);
        let taken = queue.take(32).expect("a file");
        queue.hold();
        drop(taken);
        thread::scope(|scope| {
            let other = scope.spawn(|| queue.take(32).is_some_and(|taken| matches!(*taken, Work::Files(..))));
            thread::sleep(Duration::from_millis(20));
            let mut names = Names::default();
            names.push_back(c"a");
            queue.give_back(directory, names);
            queue.let_go();
            assert!(other.join().expect("it takes"), "it waited for what came back");
        });
        assert!(queue.take(32).is_none(), "and then all is done");
    }
}
