//! Drives with a volume in them, by the name that whoever decides knows each by.
//!
//! Whoever decides may be another process, so a drive is never handed to it: it gets a [`MountId`], and the data path
//! of this process takes the drive by that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_tape::Drive;

use crate::shared_drive::{DriveShare, SharedDrive};
use crate::{MountId, MoverError};

/// The drives of a mover that have a volume in them. Each is here, or with the one part of the data path that uses it,
/// or with several that read its volume by turns.
pub struct MountedDrives {
    last: AtomicU64,
    drives: Mutex<HashMap<MountId, Place>>,
}

/// Where a drive is.
enum Place {
    Here(Box<dyn Drive>),
    /// With whoever took it.
    InUse,
    /// With readers of its volume.
    Shared(Arc<SharedDrive>),
}

impl Default for MountedDrives {
    fn default() -> Self {
        // Whoever decides may still know mounts of a process before this one: none of these has such a number.
        let mut first = [0; 8];
        let drawn = rustix::rand::getrandom(&mut first[..6], rustix::rand::GetRandomFlags::empty());
        if drawn != Ok(6) {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            first = (since.as_nanos() as u64 >> 16).to_le_bytes();
        }
        Self { last: AtomicU64::new(u64::from_le_bytes(first)), drives: Mutex::default() }
    }
}

impl MountedDrives {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a drive under a new name.
    pub fn add(&self, drive: Box<dyn Drive>) -> MountId {
        let mount = MountId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        self.locked().insert(mount, Place::Here(drive));
        mount
    }

    /// Takes a drive into use; whoever takes it gives it back.
    ///
    /// # Errors
    /// [`MoverError::NotMounted`] if it was never mounted, was dismounted, or is in use.
    pub fn take(&self, mount: MountId) -> Result<Box<dyn Drive>, MoverError> {
        let mut drives = self.locked();
        let place = drives.get_mut(&mount).ok_or(MoverError::NotMounted { mount })?;
        match std::mem::replace(place, Place::InUse) {
            Place::Here(drive) => Ok(drive),
            used => {
                *place = used;
                Err(MoverError::NotMounted { mount })
            }
        }
    }

    /// Takes a part of a drive, beside others that read its volume.
    pub(crate) fn share(&self, mount: MountId) -> Result<DriveShare, MoverError> {
        let mut drives = self.locked();
        let place = drives.get_mut(&mount).ok_or(MoverError::NotMounted { mount })?;
        let shared = match std::mem::replace(place, Place::InUse) {
            Place::InUse => return Err(MoverError::NotMounted { mount }),
            Place::Here(drive) => SharedDrive::new(drive),
            Place::Shared(shared) => shared,
        };
        let share = shared.join();
        *place = Place::Shared(shared);
        Ok(share)
    }

    /// Gives a part back.
    pub(crate) fn end_share(&self, mount: MountId, share: DriveShare) {
        let mut drives = self.locked();
        let place =
            drives.get_mut(&mount).filter(|place| matches!(place, Place::Shared(shared) if share.is_of(shared)));
        if let (Some(drive), Some(place)) = (share.leave(), place) {
            *place = Place::Here(drive);
        }
    }

    /// Brings a drive back that was taken.
    pub fn give_back(&self, mount: MountId, drive: Box<dyn Drive>) {
        if let Some(place) = self.locked().get_mut(&mount) {
            *place = Place::Here(drive);
        }
    }

    /// Forgets a mount; its drive, unless somebody uses it.
    pub fn remove(&self, mount: MountId) -> Option<Box<dyn Drive>> {
        match self.locked().remove(&mount) {
            Some(Place::Here(drive)) => Some(drive),
            _ => None,
        }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<MountId, Place>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::NullDrive;

    use super::*;

    #[test]
    fn a_drive_is_with_one_user_at_a_time() {
        let drives = MountedDrives::new();
        let (one, other) = (drives.add(Box::new(NullDrive::new())), drives.add(Box::new(NullDrive::new())));
        assert_ne!(one, other);
        let taken = drives.take(one).unwrap();
        assert!(matches!(drives.take(one), Err(MoverError::NotMounted { mount }) if mount == one));
        drives.give_back(one, taken);
        drives.take(one).unwrap();
        assert!(drives.remove(one).is_none(), "its user has it");
        assert!(drives.remove(other).is_some());
        assert!(drives.take(other).is_err());
    }
}
