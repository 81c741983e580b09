//! What comes to the interleaving thread: blocks, and what is to be known of objects and streams between them.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_format::{ObjectId, ObjectRecord};

use crate::MoverError;
use crate::block::Block;
use crate::meters::Meters;
use crate::queue::Sender;

/// All of it comes through one queue, so that an object's beginning always comes before its blocks.
pub(crate) enum Control {
    Block(Block),
    /// An object begins; what is written of it is counted for its job, too.
    Object {
        record: ObjectRecord,
        /// Connections of it that stand on volumes already, and the lengths of their streams.
        known: Vec<(u16, u64)>,
        job: Option<Arc<Meters>>,
    },
    /// A stream of an object begins.
    Opened {
        object: ObjectId,
    },
    /// A stream ends without a last block, in front of the block of this sequence.
    Cut {
        stream: u64,
        object: ObjectId,
        first_sequence: u32,
        sequence: u32,
    },
    /// No further stream of an object comes: it is whole then, or stays open as it is.
    ObjectEnd {
        object: ObjectId,
        whole: Option<Arc<WholeObject>>,
    },
    Close,
}

/// An object that is whole.
pub(crate) struct WholeObject {
    /// When it was.
    pub(crate) ended_ns: i64,
    /// Its connections in other drive sets, and the lengths of their streams.
    pub(crate) elsewhere: Vec<(u16, u64)>,
    /// Copies, from 0, of which a part in another drive set was not recorded: they stay open.
    pub(crate) lacking: BTreeSet<usize>,
}

/// The way to the interleaving thread.
#[derive(Clone)]
pub(crate) struct Controls(pub(crate) Sender<Control>);

impl Controls {
    pub(crate) fn send(&self, control: Control) -> Result<(), MoverError> {
        self.0.send(control).map_err(|_| MoverError::Stopped)
    }

    /// Tells that a stream ends in front of a block; where nobody hears it, nobody waits for that.
    pub(crate) fn cut(&self, stream: u64, object: ObjectId, first_sequence: u32, sequence: u32) {
        let _ = self.0.send(Control::Cut { stream, object, first_sequence, sequence });
    }
}
