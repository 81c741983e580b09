//! Volumes in drives that several restores of this process read at the same time.
//!
//! Whoever is first has a volume mounted, and others wait until it is; the last one puts it back. Who reads which block
//! when is decided where the drive is.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use capstan_mover::VolumePlace;

use crate::DirectorError;
use crate::shared::locked;

/// How often whoever waits looks whether it is to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// What is known of the volumes that restores share.
#[derive(Default)]
pub(crate) struct SharedVolumes {
    all: Mutex<HashMap<VolumePlace, Shared>>,
    changed: Condvar,
}

enum Shared {
    /// Somebody mounts it.
    BeingMounted,
    /// It is in a drive, as long as somebody reads it.
    InDrive(Weak<AnyVolume>),
}

/// A volume in a drive, whatever the mounter keeps of it: that is above this.
type AnyVolume = dyn Any + Send + Sync;

fn living<V: Any + Send + Sync>(volume: &Weak<AnyVolume>) -> Option<Arc<V>> {
    volume.upgrade().and_then(|volume| volume.downcast().ok())
}

/// A volume that somebody wants to read.
pub(crate) enum Wanted<'a, V> {
    /// It is in a drive.
    InDrive(Arc<V>),
    /// Whoever wants it has it mounted.
    ToMount(Mounting<'a>),
}

/// The right to have a volume mounted. Dropped, it passes to whoever waits.
pub(crate) struct Mounting<'a> {
    shared: &'a SharedVolumes,
    place: VolumePlace,
}

impl SharedVolumes {
    /// A volume that is in a drive now.
    pub(crate) fn in_drive<V: Any + Send + Sync>(&self, place: &VolumePlace) -> Option<Arc<V>> {
        match locked(&self.all).get(place) {
            Some(Shared::InDrive(volume)) => living(volume),
            _ => None,
        }
    }

    /// A volume, once nobody else mounts it. Whoever waits for that may have no other volume; `told` is called first.
    pub(crate) fn wanted<V: Any + Send + Sync>(
        &self,
        place: &VolumePlace,
        is_to_stop: impl Fn() -> bool,
        told: impl FnOnce(),
    ) -> Result<Wanted<'_, V>, DirectorError> {
        let mut told = Some(told);
        let mut all = locked(&self.all);
        loop {
            match all.get(place) {
                Some(Shared::InDrive(volume)) => {
                    if let Some(volume) = living(volume) {
                        drop(all);
                        told.into_iter().for_each(|told| told());
                        return Ok(Wanted::InDrive(volume));
                    }
                }
                Some(Shared::BeingMounted) => {
                    if let Some(told) = told.take() {
                        drop(all);
                        told();
                        all = locked(&self.all);
                        continue;
                    }
                    if is_to_stop() {
                        return Err(DirectorError::Interrupted);
                    }
                    all = self.changed.wait_timeout(all, LOOKS).unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                None => {}
            }
            all.insert(place.clone(), Shared::BeingMounted);
            return Ok(Wanted::ToMount(Mounting { shared: self, place: place.clone() }));
        }
    }
}

impl Mounting<'_> {
    /// It is in a drive.
    pub(crate) fn came_in<V: Any + Send + Sync>(self, volume: V) -> Arc<V> {
        let volume = Arc::new(volume);
        let known: Arc<AnyVolume> = Arc::<V>::clone(&volume);
        locked(&self.shared.all).insert(self.place.clone(), Shared::InDrive(Arc::downgrade(&known)));
        drop(known);
        volume
    }
}

impl Drop for Mounting<'_> {
    fn drop(&mut self) {
        let mut all = locked(&self.shared.all);
        if matches!(all.get(&self.place), Some(Shared::BeingMounted)) {
            all.remove(&self.place);
        }
        drop(all);
        self.shared.changed.notify_all();
    }
}
