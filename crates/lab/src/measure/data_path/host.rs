//! What mounts the drives of a run.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_format::{Algorithm, CatalogPart, KeyTag, SessionId, Volser, VolumeHeader, VolumeId};
use capstan_mover::{
    Commit, CopyHost, FIRST_SESSION_LBN, HostError, MountId, Mounted, MountedDrives, VolumeEnd, write_label,
};
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveKey, KeySlotKind, MonotonicClock, NullDrive, PaceMeter, Paced,
};

use super::{CAPACITY_BYTES, DataPathTarget, now_ns};

/// What a catalog would know: what each checkpoint added, and on which volume.
pub(crate) type Kept = Vec<(Volser, CatalogPart)>;

/// A key for what is written and thrown away, and with it whatever a key could protect.
pub(crate) fn throwaway_key(algorithm: Algorithm) -> DriveKey {
    DriveKey { tag: KeyTag([1; 16]), algorithm, key: [2; 32] }
}

/// What names of a copy's cartridges begin with.
pub(super) fn copy_begins(copy: u32) -> String {
    format!("LAB{copy}")
}

/// Mounts drives of its own, and records nothing but what somebody wants to read again.
pub(super) struct Host {
    pub(super) target: DataPathTarget,
    pub(super) scratch: PathBuf,
    pub(super) copy: u32,
    pub(super) block_len_max: u32,
    pub(super) drive_ratio: f64,
    pub(super) mounts: u32,
    pub(super) drives: Arc<MountedDrives>,
    pub(super) meter: Arc<Mutex<Option<PaceMeter>>>,
    pub(super) kept: Option<Arc<Mutex<Kept>>>,
}

impl Host {
    fn label(&mut self, drive: &mut dyn Drive, volser: &Volser) -> Result<(), HostError> {
        if let DataPathTarget::Virtual { encryption: Some(algorithm), .. } = self.target {
            drive.set_key(Some(throwaway_key(algorithm)))?;
        }
        let header = VolumeHeader {
            volume: VolumeId(1),
            volser: volser.clone(),
            labelled_ns: now_ns(),
            pool: "laboratory".to_owned(),
            block_len_max: self.block_len_max,
            recycled: 0,
        };
        Ok(write_label(drive, &header)?)
    }
}

impl CopyHost for Host {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        self.mounts += 1;
        let volser = Volser::new(&format!("{}{:02}", copy_begins(self.copy), self.mounts))?;
        let mut drive: Box<dyn Drive> = match &self.target {
            DataPathTarget::Null => Box::new(NullDrive::new()),
            DataPathTarget::Virtual { pace, .. } => {
                let path = self.scratch.join(format!("{volser}.tape"));
                CartridgeSpec {
                    volser: volser.clone(),
                    capacity_bytes: CAPACITY_BYTES,
                    early_warning_bytes: 256 << 20,
                    generation: "virtual".to_owned(),
                }
                .create(&path)?;
                let inner = CartridgeDrive::new("lab", path, KeySlotKind::Fitted);
                match pace {
                    None => Box::new(inner),
                    Some(model) => {
                        let paced = Paced::new(inner, (**model).clone(), MonotonicClock::start());
                        let paced = paced.compressing(self.drive_ratio);
                        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
                        meter.get_or_insert(paced.meter());
                        Box::new(paced)
                    }
                }
            }
        };
        drive.load()?;
        self.label(drive.as_mut(), &volser)?;
        let (mount, append_lbn) = (self.drives.add(drive), FIRST_SESSION_LBN);
        Ok(Mounted { mount, volser, volume: VolumeId(1), append_lbn, session: SessionId(0) })
    }

    fn committed(&mut self, commit: &Commit) -> Result<(), HostError> {
        if let Some(kept) = &self.kept {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push((commit.volser.clone(), commit.part.clone()));
        }
        Ok(())
    }

    fn release(&mut self, mount: MountId, _volser: &Volser, _end: VolumeEnd) {
        // It was flushed; whatever is wrong with it now is thrown away with it.
        let _ = self.drives.remove(mount).map(|mut drive| drive.unload());
    }

    fn now_ns(&self) -> i64 {
        now_ns()
    }
}
