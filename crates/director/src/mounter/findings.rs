//! What reading finds, put on record: damaged blocks, volumes that cannot be read, verifications.

use capstan_catalog::{DamagedBlocks, Verified};
use capstan_format::Volser;
use capstan_mover::{BadBlocks, VolumePlace};
use capstan_tape::with_causes;

use super::{Mounter, locked};
use crate::Event;

impl Mounter {
    /// Records what reading found bad, and volumes that could not be read at all. A catalog that cannot be written is
    /// told, and keeps nobody from what was read.
    pub(crate) fn note_bad(&self, bad: &[BadBlocks], unreadable: &[(VolumePlace, String)], found_by: &str) {
        let mut by_volume: Vec<(VolumePlace, Vec<DamagedBlocks>)> = Vec::new();
        for block in bad {
            let place = VolumePlace { volser: block.volser.clone(), volume: block.volume };
            match by_volume.iter_mut().find(|(known, _)| *known == place) {
                Some((_, found)) => found.push(damaged(block)),
                None => by_volume.push((place, vec![damaged(block)])),
            }
        }
        for (place, reason) in unreadable {
            let known = locked(&self.catalog).volume(&place.volser).ok().flatten();
            let blocks = known.map_or(0, |known| known.end_of_data_lbn);
            by_volume.push((place.clone(), vec![DamagedBlocks { first_lbn: 0, blocks, reason: reason.clone() }]));
        }
        for (place, found) in by_volume {
            let volser = &place.volser;
            let recorded = locked(&self.catalog).record_damage(volser, place.volume, &found, found_by, self.now_ns());
            match recorded {
                Ok(blocks) => self.tell_new_damage(volser, blocks),
                Err(error) => {
                    let message = format!(
                        "volume {volser} has damaged blocks, and that could not be noted: {}",
                        with_causes(&error)
                    );
                    (self.events)(Event::Notice { message });
                }
            }
        }
    }

    /// Puts on record that a volume, or what it holds of an object, was read in full, and what was found bad. A catalog
    /// that cannot be written is told: what was read is as good or as bad all the same.
    pub(crate) fn record_verified(&self, place: &VolumePlace, verified: Verified<'_>, bad: &[BadBlocks]) {
        let (volser, now_ns) = (&place.volser, self.now_ns());
        let found: Vec<_> = bad.iter().map(damaged).collect();
        match locked(&self.catalog).record_verification(volser, place.volume, verified, &found, now_ns) {
            Ok(new) => self.tell_new_damage(volser, new),
            Err(error) => {
                let message = format!("that volume {volser} was verified could not be noted: {}", with_causes(&error));
                (self.events)(Event::Notice { message });
            }
        }
    }

    fn tell_new_damage(&self, volser: &Volser, blocks: u64) {
        if blocks > 0 {
            let message = format!(
                "volume {volser}: {} cannot be read. This is on record, and the volume takes no more data: `capstan repair` copies what \
                 {} held from another copy, where there is one",
                blocks_text(blocks),
                if blocks == 1 { "it" } else { "they" }
            );
            (self.events)(Event::Notice { message });
        }
    }
}

fn damaged(bad: &BadBlocks) -> DamagedBlocks {
    DamagedBlocks { first_lbn: bad.first_lbn, blocks: bad.blocks, reason: bad.reason.clone() }
}

fn blocks_text(blocks: u64) -> String {
    if blocks == 1 { "1 block".to_owned() } else { format!("{blocks} blocks") }
}
