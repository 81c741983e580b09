//! The control plane of a cell: machines enrol at the server, dial it over mutual TLS, and wait for orders.
//!
//! ```text
//!  client, mover, user enrol --> enrolments (catalog) --.
//!                                                   v
//!  machine -- passphrase --> enrolment listener --> CellRegistrar --> certificate, a row of peers (catalog)
//!  machine == mutual TLS ==> members' listener --> Gate: does its row stand, not revoked? --> hello, orders, renewal
//!                                                                                              ^
//!  user == mutual TLS ==> the same listener --> users: roles, audit log, and what the user asked for         |
//!  whoever runs a job -- CellOrder ------------------------------------------------------------ Hub (memory)
//! ```
//! - **The authority is the cell's own.** It lies in `STATE/cell`, is made when it is needed first, and signs the
//!   server's certificate anew at each start.
//! - **Who is let in stands in the catalog**, and is looked at every few seconds, at each enrolment, and on each
//!   request from memory. A revoked peer is refused on connections that are open, too.
//! - **Orders live in memory.** A server that starts anew knows none, and its epoch says so; a job whose server ended
//!   has ended too.
//! - **Two listeners, on a runtime of their own,** beside the threads of [`crate::serve()`]: whatever peers do, runs of
//!   policies go on. The catalog is asked in blocking tasks.
//!
//! Locks: the site's catalog, then what is known of peers; the hub's lock is taken by itself, and none of them is held
//! across a wait. Limits: those of the listeners, [`ORDERS_MAX`] orders that a peer has not fetched, and so many tries
//! to enrol from one address.
//!
//! State budget: a row for each certificate until 30 days after its end, a row for each name that an enrolment was ever
//! opened for, and for each peer up to 64 KiB of memory, but about one as a rule.

mod access;
mod addresses;
mod authority;
mod blocking;
mod data;
mod enrolments;
pub(crate) mod error;
mod files;
mod hub;
mod known;
mod mover_listener;
mod movers;
mod own_object;
mod places;
mod registrar;
mod relay;
mod restore_plan;
mod restores;
mod routes;
mod served;
mod tasks;
mod user_routes;
pub mod users;

pub use addresses::CellAddresses;
pub use data::{DataDoor, DataListener, PeerStream};
pub use enrolments::{
    CellPeer, CellPeerState, OpenedEnrolment, cell_members, client_of_servers_name, enrol_member, enrolment_address,
    revoke_member,
};
pub use error::CellError;
pub use files::{found_row, version_row};
pub use hub::{ConnectedPeer, Hub, NotConnected, ORDERS_MAX};
pub use mover_listener::MoverListener;
pub use movers::MoverConnections;
pub use registrar::{CellHost, CellNotice};
pub use routes::openapi;
pub use served::ServedCell;
