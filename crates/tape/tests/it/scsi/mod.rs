//! Drives and libraries behind SCSI, where they fail: by transports that answer what a script says.
//!
//! What they do when nothing fails is tried against the virtual library, whose drives are the other side of the same
//! words.

mod changer;
mod keys;
mod library;
mod scan;
mod script;
mod tape;
mod writes;
