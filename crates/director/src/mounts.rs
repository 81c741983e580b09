//! What drives of this process said of the volumes in them: one state, shared by every job that mounts. Who has which
//! volume stands in the catalog ([`crate::hold`]).
//!
//! Each lock is held for one look or one change, and never together with another.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use capstan_format::{KeyTag, Volser};

use crate::shared::locked;
use crate::shared_volumes::SharedVolumes;
use crate::{Event, Events};

/// What drives said of volumes.
#[derive(Default)]
pub(crate) struct Mounts {
    /// Volumes that their drives call worn or damaged, and the words for it.
    pub(crate) worn: Mutex<Vec<(Volser, String)>>,
    /// TapeAlert flags that were up before a volume came into its drive: they are about the one before, or the drive.
    pub(crate) left_alerts: Mutex<Vec<(Volser, u16)>>,
    /// Keys that blocks named and that could not be had, until somebody asks.
    pub(crate) missed_keys: Mutex<Vec<(Volser, KeyTag)>>,
    /// Libraries that did not answer.
    pub(crate) silent: SilentLibraries,
    /// Volumes that restores read together.
    pub(crate) shared: SharedVolumes,
    /// Expired volumes that could not be made blank.
    pub(crate) stubborn: StubbornVolumes,
}

/// For so long a volume that could not be made blank is left alone.
const LEFT_ALONE_FOR: Duration = Duration::from_secs(3600);

/// Expired volumes that could not be made blank when their disk needed room: each is told of once, and left alone for a
/// while.
#[derive(Default)]
pub(crate) struct StubbornVolumes(Mutex<HashMap<Volser, (Instant, String)>>);

impl StubbornVolumes {
    /// Whether a volume could not be made blank a while ago.
    pub(crate) fn has(&self, volser: &Volser) -> bool {
        locked(&self.0).get(volser).is_some_and(|(since, _)| since.elapsed() < LEFT_ALONE_FOR)
    }

    /// Notes that a volume could not be made blank; whether that is news.
    pub(crate) fn note(&self, volser: &Volser, reason: &str) -> bool {
        let before = locked(&self.0).insert(volser.clone(), (Instant::now(), reason.to_owned()));
        before.is_none_or(|(_, known)| known != reason)
    }
}

/// For so long a library that did not answer is not asked again: with its mover away, each question takes seconds.
const NOT_ASKED_FOR: Duration = Duration::from_secs(5);

/// Libraries that did not answer, until they do: each is told of once.
#[derive(Default)]
pub(crate) struct SilentLibraries(Mutex<HashMap<String, Silence>>);

/// Since when a library does not answer, and whether somebody was told.
struct Silence {
    since: Instant,
    is_told: bool,
}

impl SilentLibraries {
    /// Whether a library did not answer a moment ago.
    pub(crate) fn is_silent(&self, library: &str) -> bool {
        locked(&self.0).get(library).is_some_and(|silence| silence.since.elapsed() < NOT_ASKED_FOR)
    }

    /// Notes how a library answered.
    pub(crate) fn note(&self, library: &str, answered: bool) {
        let mut silent = locked(&self.0);
        if answered {
            silent.remove(library);
            return;
        }
        let is_told = silent.get(library).is_some_and(|before| before.is_told);
        silent.insert(library.to_owned(), Silence { since: Instant::now(), is_told });
    }

    /// Says that a library did not answer, unless that was said.
    pub(crate) fn tell(&self, library: &str, reason: &str, events: &Events) {
        let is_new = match locked(&self.0).get_mut(library) {
            Some(silence) => !std::mem::replace(&mut silence.is_told, true),
            None => false,
        };
        if is_new {
            let message = format!("library {library} cannot be asked, so its volumes count as absent: {reason}");
            events(Event::Notice { message });
        }
    }
}
