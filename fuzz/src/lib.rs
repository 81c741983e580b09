//! What hostile bytes are fed to: one function a parser, for the fuzzer and for the tests.
//!
//! Each target takes any bytes at all and panics where a promise is broken: not only where the product panics, also
//! where it accepts what it should not, decodes one thing and encodes another, reads the same bytes in two ways, or
//! writes where it must not. An error is a good answer.
//!
//! ```text
//! cargo-fuzz --> fuzz_targets/NAME.rs --.
//!                                       +--> NAME(data) --> format, tape, keys, keyd, mover, director, vtl, kmip
//! cargo test --> corpus/NAME/* ---------'
//! ```
//! Checksums would keep a fuzzer at the door, so a target runs its input twice where one stands in the way: as it is,
//! and with the checksums made right (`mend`). The corpus that the fuzzer found is kept in `fuzz/corpus/` and replayed
//! by `cargo test` on a stable compiler without cargo-fuzz; `./x fuzz` goes on from there.
//!
//! Files lie in memory (`/dev/shm`) where there is any; nothing is left behind.
//!
//! ```
//! capstan_fuzz::label(b"VOL1A00001");
//! ```

mod backup;
mod block;
mod cartridge;
mod client;
mod commands;
mod enrolment;
mod extract;
mod input;
mod iscsi;
mod key_store;
mod label;
mod mend;
mod pax_reader;
mod rebuild;
mod replay;
mod scratch;
mod script;
#[cfg(test)]
mod seeds;
mod session_trailer;
mod ttlv;
mod volume;

pub use backup::backup;
pub use block::block;
pub use cartridge::cartridge;
pub use client::client;
pub use commands::commands;
pub use enrolment::enrolment;
pub use extract::extract;
pub use iscsi::iscsi;
pub use key_store::key_store;
pub use label::label;
pub use pax_reader::pax_reader;
pub use rebuild::rebuild;
pub use replay::replay;
pub use session_trailer::session_trailer;
pub use ttlv::ttlv;
pub use volume::volume;
