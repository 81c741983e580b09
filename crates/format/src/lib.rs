//! Everything that outlives us on tape: ids, labels, block headers, file entries, checkpoints, pax headers.
//!
//! Pure bytes: no input or output, no clock, no randomness. A value is encoded to bytes and decoded from bytes;
//! whoever calls decides where the bytes go. All integers are little-endian, all lengths are checked before they
//! are believed, and a decoder returns a [`FormatError`], whatever it is fed. `docs/FORMAT.md` is the same layout in
//! words, precise enough to write a reader in another language; the golden volumes in `testdata/` hold it in bytes.
//!
//! ```
//! use capstan_format::{Volser, vol1_decode, vol1_encode};
//! let volser = Volser::new("A00001").unwrap();
//! let label = vol1_encode(&volser);
//! assert_eq!(&label[..10], b"VOL1A00001");
//! assert_eq!(vol1_decode(&label).unwrap(), volser);
//! ```

mod block;
mod checkpoint;
mod checksum;
mod cursor;
mod entry;
mod envelope;
mod error;
mod ids;
mod label;
pub mod pax;

pub use block::{BLOCK_HEADER_LEN, BlockHeader, BlockKind, Compression};
pub use checkpoint::{
    CatalogPart, Checkpoint, ExtentRecord, ObjectKind, ObjectRecord, ObjectState, PartRecord, SessionRecord,
    TAG_LEN_MAX, TAGS_MAX, is_tag,
};
pub use checksum::{crc32c, crc32c_append, crc32c_append_zeros, crc32c_combine};
pub use cursor::Cursor;
pub use entry::{EntryDecoder, EntryEncoder, EntryFlags, EntryKind, FileEntry, Fragment, PATH_LEN_STORED_MAX};
pub use envelope::{Algorithm, ENVELOPE_LEN, ENVELOPE_PREFIX_LEN, Envelope, MOUNT_SALT_LEN, TAG_LEN};
pub use error::FormatError;
pub use ids::{KeyTag, MediumSerial, ObjectId, SessionId, Volser, VolumeId};
pub use label::{FORMAT_VERSION, VOL1_LEN, VolumeHeader, vol1_decode, vol1_encode};
