//! Whatever happens to the files of a virtual cartridge: exact data or a typed error, and nothing else is lost.

mod flips;
mod forgeries;
mod survey;
mod truncations;
