//! The desk as readers see it: volumes that the catalog knows, with their keys, and in which order to read from each.

use capstan_format::Volser;
use capstan_mover::{HostError, ReadHost, Stretch, VolumePlace};
use capstan_tape::{Drive, with_causes};

use super::{Desk, locked};
use crate::order::{Chosen, Filled, ReadOrder, choose};
use crate::{DirectorError, Event};

/// Mounts volumes for a read plan.
pub(crate) struct ReadDesk {
    desk: Desk,
    numbers: Vec<(Volser, u32)>,
    /// Volumes of which a key is not there, each key once, and why: what is read says so in words only.
    pub(crate) without_key: Vec<(Volser, DirectorError)>,
    /// In which order volumes were read, where there was a choice.
    pub(crate) orders: Vec<ReadOrder>,
}

impl ReadDesk {
    pub(crate) fn new(desk: Desk) -> Self {
        Self { desk, numbers: Vec::new(), without_key: Vec::new(), orders: Vec::new() }
    }

    /// Why something was not read: the key that is not there, if it is that.
    pub(crate) fn why_not(mut self, reason: String) -> DirectorError {
        match self.without_key.is_empty() {
            true => DirectorError::Output { reason },
            false => self.without_key.swap_remove(0).1,
        }
    }
}

impl ReadHost for ReadDesk {
    fn mount(&mut self, place: &VolumePlace) -> Result<Box<dyn Drive>, HostError> {
        let volume = match self.desk.mount_to_read(&place.volser, place.volume) {
            Err(error @ (DirectorError::Keys(_) | DirectorError::KeysLocked)) => {
                let text = with_causes(&error);
                if self.without_key.iter().all(|(volser, _)| *volser != place.volser) {
                    self.without_key.push((place.volser.clone(), error));
                }
                return Err(text.into());
            }
            other => other?,
        };
        let now_ns = self.desk.now_ns();
        let counted = locked(&self.desk.catalog).update_volume(&place.volser, |known| {
            known.mounts += 1;
            known.read_ns = Some(now_ns);
        });
        if let Err(error) = counted {
            // Statistics: a catalog that cannot be written (its disk is full, say) does not make a volume unreadable.
            let message = format!("that volume {} was read could not be noted: {error}", place.volser);
            (self.desk.events)(Event::Notice { message });
        }
        self.numbers.push((place.volser.clone(), volume.number));
        Ok(volume.drive)
    }

    fn order(&mut self, drive: &mut dyn Drive, place: &VolumePlace, stretches: &[Stretch]) -> Vec<usize> {
        // Without what the catalog knows there is no model's order, and the drive's all the same.
        let known = locked(&self.desk.catalog).volume(&place.volser).ok().flatten();
        let filled = known.map(|known| Filled { end_lbn: known.end_of_data_lbn, bytes: known.written });
        let Chosen { order, told, notice } = choose(drive, &place.volser, filled.unwrap_or_default(), stretches);
        if let Some(message) = notice {
            (self.desk.events)(Event::Notice { message });
        }
        (self.desk.events)(Event::Ordered { order: told.clone() });
        self.orders.push(told);
        order
    }

    fn release(&mut self, drive: Box<dyn Drive>, place: &VolumePlace) {
        for (volser, error) in self.desk.take_missed(&place.volser) {
            if self
                .without_key
                .iter()
                .all(|(other, known)| *other != volser || with_causes(known) != with_causes(&error))
            {
                self.without_key.push((volser, error));
            }
        }
        let Some(at) = self.numbers.iter().position(|(volser, _)| *volser == place.volser) else { return };
        let (volser, number) = self.numbers.swap_remove(at);
        if let Err(error) = self.desk.dismount(drive, number, &volser) {
            (self.desk.events)(Event::Notice { message: format!("volume {volser} could not be put back: {error}") });
        }
    }
}
