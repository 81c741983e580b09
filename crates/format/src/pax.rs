//! Pax members: headers written and read.

mod attribute;
mod encode;

pub use attribute::{put_attribute, put_record};
pub use encode::{BLOCK_LEN, DataExtent, Member, encode, padding};
