//! Virtual cartridges: tapes that are files, and the drive that reads and writes them.
//!
//! One data file `NAME.tape` holds everything; `NAME.index` beside it only makes a LOCATE quick and is made again when
//! it is missing or wrong. `docs/FORMAT.md` has the layout in words.
//! ```text
//! 0          2048       4096
//! | memory   | memory   | header block | header block | header | header block | ...
//!   copy 1     copy 2     lbn 0          lbn 1          filemark  lbn 3
//! ```
//! A log of records was chosen over a block device of fixed slots because a tape is one: a write cuts off what lies
//! behind it, and the end of data is the end of the file. Nothing but the memory is ever written in place.
//!
//! The drive behaves as a real one does. Encryption is its own affair: the host gives and gets plain blocks. Order of
//! work when writing begins at the beginning of tape: the memory, with a life drawn at random, first and synchronised;
//! then the old records are cut off. They are void from the moment the memory is on disk.
//!
//! What is appended is gathered and written behind the host's back, as in a drive's buffer ([`write_behind`]): a
//! failure is a deferred one, and what counts is what a synchronous flush confirmed.
//!
//! Locks: the data file is locked (`flock`) from load to unload, so a cartridge is in one drive at a time, whatever
//! processes there are.

mod direct;
mod drive;
mod index;
mod key_slot;
mod memory;
mod random;
mod read_ahead;
mod record;
mod records;
mod spec;
mod volume;
mod write_behind;

pub use drive::{CartridgeDrive, KeySlotKind};
pub use memory::Tab;
pub use spec::CartridgeSpec;

pub(crate) use volume::draw_life;
