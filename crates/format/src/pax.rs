//! Pax members: headers written and read.

mod attribute;
mod decode;
mod encode;

pub use attribute::{put_attribute, put_record};
pub use decode::{DecodedMember, EXTENDED_LEN_MAX, MemberDecoder, SPARSE_EXTENTS_MAX, Sparse, SparseDecoder, Step};
pub use encode::{BLOCK_LEN, DataExtent, Member, encode, padding};
