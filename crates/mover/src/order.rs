//! In which order stretches of a volume are read: as its drive recommends, else by the geometry of its generation, else
//! front to back.
//!
//! The drive knows where on the tape its blocks lie, and is asked first. A drive that has no opinion, or takes no list
//! as long, has a model perhaps: that reckons in bytes from the beginning of tape, and blocks are taken to be all of
//! their mean length, which on a volume of one block size they nearly are. A cartridge in memory or in a file has no
//! geometry, and is read by position.
//!
//! Whatever the order, what is given back is the same ([`crate::split_at_gaps`] says why), so no answer is wrong,
//! only slower; what it is thought to take, and what front to back would have taken, is told with it.

use capstan_format::Volser;
use capstan_tape::model::{
    Afterwards, DriveModel, Restore, StartPosition, TapeExtent, built_in, front_to_back, in_order, plan_restore,
};
use capstan_tape::{Drive, Medium, with_causes};
use serde::{Deserialize, Serialize};

use crate::Stretch;

/// Whose order it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderedBy {
    /// The drive was asked, and said.
    Drive,
    /// The geometry of the model of this name.
    Model(String),
    /// Front to back: nothing better is known.
    Position,
}

/// Seconds in which the tape is under way and nothing is read that is wanted, by the geometry of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Positioning {
    /// In the order that is taken.
    pub taken_s: f64,
    /// Front to back.
    pub front_to_back_s: f64,
}

/// The order in which one volume is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadOrder {
    /// The volume.
    pub volser: Volser,
    /// Whose it is.
    pub by: OrderedBy,
    /// How many stretches there were to order.
    pub stretches: usize,
    /// What it takes, where a model is known.
    pub positioning: Option<Positioning>,
}

/// An order, and why it is not the drive's, if that is worth a word.
pub(crate) struct Chosen {
    pub(crate) order: Vec<usize>,
    pub(crate) told: ReadOrder,
    pub(crate) notice: Option<String>,
}

/// How far a volume is written, as far as is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Number of the block behind the last.
    pub end_lbn: u64,
    /// Bytes on it.
    pub bytes: u64,
}

/// Chooses the order of stretches, which are sorted by position, of the volume in this drive.
pub(crate) fn choose(drive: &mut dyn Drive, volser: &Volser, filled: Filled, stretches: &[Stretch]) -> Chosen {
    let list: Vec<(u64, u64)> = stretches.iter().map(|stretch| (stretch.first_lbn, stretch.last_lbn)).collect();
    let course = course_of(drive, filled, stretches);
    let name = drive.identity().name;
    let (recommended, notice) = match drive.recommended_order(&list) {
        Ok(recommended) => (recommended, None),
        // Whatever is wrong with the drive, reading tells in its own words. An order is a courtesy.
        Err(error) => {
            let why = with_causes(&error);
            (None, Some(format!("drive {name} was asked in which order to read {volser}, and did not say: {why}")))
        }
    };
    let (order, by) = match (recommended, &course) {
        (Some(order), _) => (order, OrderedBy::Drive),
        (None, Some(course)) => (course.plan(), OrderedBy::Model(course.model.name.clone())),
        (None, None) => ((0..stretches.len()).collect(), OrderedBy::Position),
    };
    let positioning = course.as_ref().map(|course| course.positioning(&order));
    Chosen { told: ReadOrder { volser: volser.clone(), by, stretches: stretches.len(), positioning }, order, notice }
}

/// A tape's way, in bytes of its model.
struct Course {
    model: DriveModel,
    extents: Vec<TapeExtent>,
    standing: StartPosition,
}

/// The course of the volume in the drive, if a model of either is known.
fn course_of(drive: &mut dyn Drive, filled: Filled, stretches: &[Stretch]) -> Option<Course> {
    let name = drive.identity().model;
    // Cartridges in files may be of a generation for the sake of the rules about those; they have no length of tape.
    if name == "virtual" {
        return None;
    }
    let medium = drive.medium().ok()?;
    let of_medium = medium.generation.as_deref().and_then(|name| built_in(name).ok());
    let mut model = of_medium.or_else(|| built_in(&name).ok())?;
    if medium.capacity_bytes > 0 {
        model.capacity_gb.value = medium.capacity_bytes as f64 / 1e9;
    }
    let mean = block_len_mean(&medium, filled)?;
    let byte = |lbn: u64| (lbn as f64 * mean) as u64;
    let extent = |stretch: &Stretch| {
        let (begin, end) = (byte(stretch.first_lbn), byte(stretch.last_lbn.saturating_add(1)));
        TapeExtent { begin, len: end - begin }
    };
    let at = drive.position().map_or(0, |position| position.lbn);
    Some(Course { model, extents: stretches.iter().map(extent).collect(), standing: StartPosition::At(byte(at)) })
}

/// Bytes of tape for each block: by what the medium says is used, else by what the catalog has written.
fn block_len_mean(medium: &Medium, filled: Filled) -> Option<f64> {
    let used = medium.capacity_bytes.saturating_sub(medium.remaining_bytes);
    let bytes = if used > 0 { used } else { filled.bytes };
    (bytes > 0 && filled.end_lbn > 0).then(|| bytes as f64 / filled.end_lbn as f64)
}

impl Course {
    fn restore(&self) -> Restore<'_> {
        let (standing, afterwards) = (self.standing, Afterwards::Unload);
        Restore { extents: &self.extents, ratio: 1.0, target_mb_per_s: None, standing, afterwards }
    }

    fn plan(&self) -> Vec<usize> {
        plan_restore(&self.model, &self.restore()).steps.iter().map(|step| step.extent).collect()
    }

    fn positioning(&self, order: &[usize]) -> Positioning {
        Positioning {
            taken_s: in_order(&self.model, &self.restore(), order).positioning_s(),
            front_to_back_s: front_to_back(&self.model, &self.restore()).positioning_s(),
        }
    }
}
