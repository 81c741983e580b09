//! What people ask of a key-management cluster: the commands, their questions to a node, and how the answers are said.
//!
//! `keyd` has these commands beside those that need a node's own machine; `capstan keys` hands words on to them
//! ([`Question`]). A person proves who they are with the certificate that `keyd enrol` made; nothing here decides what
//! they may do, which is the node's business.
//!
//! ```text
//!  question/  the words of another program         commands/  the families: peers/ users/ keys/ transfer/ exposure/
//!  audit/ backups/  what a node says of them       ask/ asking/  whom to ask, and how an answer is said: table/
//!  secrets/ file/  passphrases, files made once    outcome/  how it ended
//! ```

mod ask;
mod asking;
mod audit;
mod backups;
mod commands;
mod exposure;
mod file;
mod keys;
mod outcome;
mod peers;
mod program;
mod question;
mod secrets;
mod span;
mod table;
mod transfer;
mod users;

pub use ask::Ask;
pub use asking::Asking;
pub use audit::AuditShown;
pub use backups::BackupsKnown;
pub use commands::People;
pub use file::{create, sync_folder};
pub use outcome::{Completeness, Sealing, said};
pub use question::Question;
pub use secrets::{new_passphrase, passphrase};
pub use transfer::{Approved, EXPORT_KEYS, IMPORT_KEYS, id_of};
