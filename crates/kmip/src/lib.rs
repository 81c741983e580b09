//! The Key Management Interoperability Protocol (OASIS KMIP 1.0 to 2.1): messages, managed objects, operations.
//!
//! Protocol and decisions alone: no socket, no TLS, no thread, no clock. A server reads a message's length with
//! [`message_len`], hands the bytes to [`answer`], commits the [`RequestDecision`], and sends the response.
//!
//! ```text
//!  ttlv        bytes <-> items, within limits                          enumeration   the standard's numbers
//!  codec       how 1.x and 2.x write the same attributes       version       which are spoken
//!  answer      one request over one view of the objects                lifecycle     states, as one table
//!  object      attributes (a table), record at rest, material          cipher        AES modes, key wrap, HMAC
//!  store       what a decision reads, what it wants changed            index         objects in memory, found by terms
//! ```
//! What is done, what is refused and for which reason, and how clients are set up: `docs/KMIP.md`.
//!
//! Limits: a request of 1 MiB, 12 deep, with 20,000 items and 256 batch items; a response of 4 MiB; an object of 16 KiB
//! with 256 attributes in 40 KiB; 5,000 Unique Identifiers in the answer to a Locate.
//!
//! ```
//! use capstan_kmip::{MemoryStore, Permitted, Requester, answer};
//!
//! let mut objects = MemoryStore::new();
//! let library = Requester { domain: "library".to_owned(), permitted: Permitted::All };
//! // Discover Versions, as a client of KMIP 1.2 asks: its header, one batch item, an empty payload.
//! let request = hex("42007801000000604200770100000038420069010000002042006a0200000004000000010000000042006b02000000\
//!     0400000002000000004200 0d0200000004000000010000000042000f010000001842005c05000000040000001e000000004200790100000000");
//! let decided = answer(&request, &library, &objects, 1_790_000_000);
//! objects.apply(&decided.changes)?; // a conflict: answer once more
//! assert_eq!(decided.acts[0].outcome, Ok(()));
//! # fn hex(text: &str) -> Vec<u8> {
//! #     let digits: Vec<u8> = text.bytes().filter_map(|digit| char::from(digit).to_digit(16)).map(|digit| digit as u8).collect();
//! #     digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
//! # }
//! # Ok::<(), capstan_kmip::Conflict>(())
//! ```

mod answer;
mod cipher;
mod codec;
mod enumeration;
mod fields;
mod index;
mod lifecycle;
mod object;
mod refusal;
mod store;
mod term;
mod ttlv;
mod version;
mod view;

pub use answer::{BATCH_COUNT_MAX, Permitted, RequestDecision, Requester, answer, refuse};
pub use enumeration::{ObjectType, Operation, ResultReason};
pub use index::{Conflict, MemoryStore, ObjectIndex};
pub use lifecycle::{LifecycleEvent, Material, State};
pub use object::{Attribute, KeyMaterial, ManagedObject, RECORD_LEN_MAX, RecordError};
pub use store::{AuditedAct, MaterialUnavailable, ObjectChange, ObjectStore, Stored};
pub use term::Term;
pub use ttlv::{Bytes, HEADER_LEN, Item, Limits, Malformed, Tag, Value, decode, encode, message_len};
pub use version::{VERSIONS, Version};
