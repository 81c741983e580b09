//! What stands between the data of a volume: session headers, catalog parts, checkpoints and their filemarks. And data
//! that another volume holds as well, which nothing that is read needs.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::{BlockKind, ObjectId, Volser};
use capstan_tape::with_causes;
use serde::{Deserialize, Serialize};

use crate::{BadBlocks, Damage, FoundBlock, VolumePlace, VolumeReader, add_bad_block};

/// Blocks of a volume that are no object's, in the order of the tape, which are read on the way past them.
pub struct BetweenBlocks {
    place: VolumePlace,
    left: VecDeque<Range<u64>>,
    stop: Arc<AtomicBool>,
    /// The block before the next one was a checkpoint, or could not be read: a filemark may stand behind it.
    checkpoint_at: Option<u64>,
    /// Blocks and filemarks that were read.
    pub blocks: u64,
    /// Those that could not be read.
    pub lost: Vec<Damage>,
    /// Those of them that the medium is at fault for.
    pub bad: Vec<BadBlocks>,
}

/// The same as it crosses to the mover that reads, and back.
#[derive(Serialize, Deserialize)]
pub(crate) struct BetweenForm {
    place: VolumePlace,
    left: VecDeque<Range<u64>>,
    checkpoint_at: Option<u64>,
    blocks: u64,
    lost: Vec<Damage>,
    bad: Vec<BadBlocks>,
}

impl BetweenForm {
    /// As it is where it is read.
    pub(crate) fn into_blocks(self, stop: &Arc<AtomicBool>) -> BetweenBlocks {
        let Self { place, left, checkpoint_at, blocks, lost, bad } = self;
        BetweenBlocks { place, left, stop: Arc::clone(stop), checkpoint_at, blocks, lost, bad }
    }
}

impl BetweenBlocks {
    pub(crate) fn to_form(&self) -> BetweenForm {
        BetweenForm {
            place: self.place.clone(),
            left: self.left.clone(),
            checkpoint_at: self.checkpoint_at,
            blocks: self.blocks,
            lost: self.lost.clone(),
            bad: self.bad.clone(),
        }
    }

    pub(crate) fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Takes over how far another process has come with it.
    pub(crate) fn follow(&mut self, form: BetweenForm) {
        *self = form.into_blocks(&self.stop);
    }

    /// These blocks of a volume, in the order of the tape.
    pub fn new(place: VolumePlace, blocks: impl IntoIterator<Item = Range<u64>>, stop: &Arc<AtomicBool>) -> Self {
        let (stop, left) = (Arc::clone(stop), blocks.into_iter().collect());
        Self { place, left, stop, checkpoint_at: None, blocks: 0, lost: Vec::new(), bad: Vec::new() }
    }

    /// The volume.
    pub fn volser(&self) -> &Volser {
        &self.place.volser
    }

    /// Takes blocks along that nobody else will read.
    pub fn add(&mut self, blocks: Range<u64>) {
        let at = self.left.partition_point(|range| range.start < blocks.start);
        self.left.insert(at, blocks);
    }

    /// Reads those that stand in front of `lbn` and were not read yet.
    pub fn read_up_to(&mut self, reader: &mut VolumeReader<'_>, lbn: u64) {
        if *reader.volser() != self.place.volser {
            return;
        }
        while let Some(range) = self.left.front_mut().filter(|range| range.start < lbn) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let at = range.start;
            range.start += 1;
            if range.is_empty() {
                self.left.pop_front();
            }
            self.read(reader, at);
        }
    }

    fn read(&mut self, reader: &mut VolumeReader<'_>, lbn: u64) {
        self.blocks += 1;
        let behind_checkpoint = lbn.checked_sub(1).is_some_and(|before| self.checkpoint_at == Some(before));
        match reader.find(lbn) {
            Ok(FoundBlock::Block(header)) => {
                self.checkpoint_at = (header.kind == BlockKind::Checkpoint).then_some(lbn);
            }
            Ok(FoundBlock::Filemark) if behind_checkpoint => {}
            Ok(FoundBlock::Filemark) => self.damaged(lbn, "a filemark stands where a block should be".to_owned(), true),
            Err(error) => {
                self.checkpoint_at = Some(lbn);
                self.damaged(lbn, with_causes(&error), error.blames_medium());
            }
        }
    }

    fn damaged(&mut self, lbn: u64, reason: String, of_medium: bool) {
        let volser = self.place.volser.clone();
        if of_medium {
            add_bad_block(&mut self.bad, &self.place, lbn, &reason);
        }
        let object = ObjectId([0; 16]);
        self.lost.push(Damage { volser, lbn: Some(lbn), object, connection: 0, offset: 0, reason, of_medium });
    }
}
