//! Copies that are migrated only where their disk needs room: the oldest first, and no more than it takes.
//!
//! A copy gives no room back by itself: a volume does, once all copies on it are forgotten. So copies are chosen one
//! after the other until enough volumes hold nothing any more, and those that end no volume stay.

use std::collections::{HashMap, HashSet};

use capstan_catalog::Volume;
use capstan_format::{ObjectId, Volser};

use super::copies::{ForgottenCopy, leave_what_is_claimed_elsewhere};
use crate::DirectorError;
use crate::room::is_expired;
use crate::site::Site;

/// The folders of a file library on a disk that is taken above its high mark.
#[derive(Debug, Clone)]
pub struct FullFolders {
    /// Bytes that its volumes should give back.
    pub wanted_bytes: u64,
    /// The volumes in them, and how many bytes each holds.
    pub volumes: Vec<(Volser, u64)>,
}

impl Site {
    /// Disks of file libraries that are filled above their mark, and what their volumes hold.
    pub(super) fn full_folders(&self) -> Result<Vec<FullFolders>, DirectorError> {
        let full = self.full_disks()?.into_iter().map(|disk| {
            // What has expired already gives its room back without any migration, if it can.
            let gives = |volume: &&Volume| is_expired(volume) && !self.mounts.stubborn.has(&volume.volser);
            let expired = disk.volumes.iter().filter(gives).map(|volume| volume.written).sum();
            FullFolders {
                wanted_bytes: disk.wanted_bytes.saturating_sub(expired),
                volumes: disk.volumes.into_iter().map(|volume| (volume.volser, volume.written)).collect(),
            }
        });
        Ok(full.collect())
    }
}

/// What volumes hold: the copies of which something is on each.
type OnVolumes = [(Volser, Vec<(ObjectId, u8)>)];

/// Leaves those copies of the policies that `is_for_room` names which need not go. `copies` come in the order of their
/// objects, the latest first; `goes` says of a copy whether it goes anyway.
pub(super) fn leave_where_there_is_room(
    copies: &mut Vec<ForgottenCopy>,
    (folders, on_volumes): (&[FullFolders], &OnVolumes),
    is_for_room: impl Fn(&ForgottenCopy) -> bool,
    goes: impl Fn(&(ObjectId, u8)) -> bool,
) {
    let place = |copy: &ForgottenCopy| (copy.object.id, copy.copy);
    let waiting: Vec<(ObjectId, u8)> = copies.iter().filter(|copy| is_for_room(copy)).map(place).collect();
    if waiting.is_empty() {
        return;
    }
    let anyway: HashSet<(ObjectId, u8)> = copies.iter().filter(|copy| !is_for_room(copy)).map(place).collect();
    // How many copies each volume still holds, and the volumes of each copy that waits.
    let mut left: HashMap<&Volser, usize> = HashMap::new();
    let mut volumes_of: HashMap<(ObjectId, u8), Vec<&Volser>> = HashMap::new();
    for (volser, held) in on_volumes {
        let stays = held.iter().filter(|copy| !goes(copy) && !anyway.contains(copy));
        left.insert(volser, stays.count());
        for copy in held {
            volumes_of.entry(*copy).or_default().push(volser);
        }
    }
    let mut needed: Vec<(u64, HashMap<&Volser, u64>)> = Vec::new();
    for folder in folders {
        let volumes: HashMap<&Volser, u64> = folder.volumes.iter().map(|(volser, bytes)| (volser, *bytes)).collect();
        // What goes anyway gives room back, too.
        let freed = volumes.iter().filter(|(volser, _)| left.get(*volser) == Some(&0));
        let wanted = folder.wanted_bytes.saturating_sub(freed.map(|(_, bytes)| bytes).sum());
        needed.push((wanted, volumes));
    }
    let (mut chosen, mut emptied) = (Vec::new(), HashSet::new());
    for copy in waiting.iter().rev() {
        let volumes = volumes_of.get(copy).map_or(&[][..], Vec::as_slice);
        let helps =
            |volser: &&Volser| needed.iter().any(|(wanted, volumes)| *wanted > 0 && volumes.contains_key(*volser));
        if !volumes.iter().any(helps) {
            continue;
        }
        chosen.push(*copy);
        for volser in volumes {
            let Some(count) = left.get_mut(volser) else { continue };
            *count = count.saturating_sub(1);
            if *count == 0 {
                emptied.insert(*volser);
                for (wanted, volumes) in &mut needed {
                    *wanted = wanted.saturating_sub(volumes.get(volser).copied().unwrap_or_default());
                }
            }
        }
    }
    let ends_a_volume = |copy: &&(ObjectId, u8)| {
        volumes_of.get(copy).is_some_and(|volumes| volumes.iter().any(|volser| emptied.contains(volser)))
    };
    let go: HashSet<(ObjectId, u8)> = chosen.iter().filter(ends_a_volume).copied().collect();
    // What stays on disk keeps what it is based on there.
    leave_what_is_claimed_elsewhere(copies, |copy| !is_for_room(copy) || go.contains(&place(copy)), &[]);
}
