//! A mover in another process: whoever decides has it as if its drives were here.
//!
//! ```text
//!  whoever decides                                        the mover's process
//!  RemoteMover, a Devices   ---- orders ---------------->   ServedMover: LocalDevices
//!    keys that blocks name  <--- asks for keys ----------
//!  Session, Intake          ---- objects, streams ------>   a session
//!    AppendHost             <--- RemoteCopyHost ---------     each of its copies
//!  read_streams             ---- what is wanted -------->   a read, or a verification
//!    ReadMounter            <--- RemoteReadHost ---------
//!    pieces of streams      <=== blocks =================
//!                                                         ^
//!  a client                 ==== blocks =================='    straight to the mover, by a token
//! ```
//! **Who dials.** The mover dials whoever decides, and keeps connections open that nobody uses yet. Whoever decides
//! takes one when it needs one ([`Connect`]), and says first what it is for. One connection carries one call at a time.
//!
//! **Who has what.** A process that decides has a name drawn at random, the owner of the mounts that it orders. They
//! are its own as long as one of its connections is there; then they are let go of. A session ends with its connection:
//! what its copies have not reported is not recorded, and the next session goes on behind what is.
//!
//! **Data** of clients goes between them and the mover. What this process itself reads or writes crosses connections of
//! its own, by the same protocol ([`crate::NetworkJobs`]).
//!
//! What protects connections (TLS, identities) is for whoever opens them.

#[cfg(test)]
mod kept_words;
mod path;
mod reading;
mod remote;
mod sending;
mod served;
mod served_read;
mod served_session;
mod session;
mod words;

pub use path::MoverAt;
pub use remote::{Connect, RemoteMover};
pub use served::{OwnersKeys, ServedMover};
