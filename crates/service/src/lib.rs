//! What a process that serves many peers is made of, whatever it serves: a node of the key cluster today, the server
//! next.
//!
//! ```text
//!  listener   accept, limits, TLS --> who it is --> HTTP --> routes                    metrics   requests, connections
//!  identity   certificates of a cluster's authority, asked again on each request       health    /healthz, /readyz
//!  enrolment  a passphrase is exchanged for a certificate; renewal                     rate_limit, housekeeping
//!  openapi    routes, who may call them, and the document of both                      problem   errors as problem+json
//!  roles      the table of acts and roles
//!  audit      who did what, in a chain that shows what was done to it                  time, clock, file_lock, shutdown
//! ```
//! The room knows peers and requests. It does not know what is asked for: the program gives it an [`axum::Router`], a
//! rule of access and the metrics of its own. Rejected: `tower-http`, which limits a request and not a connection, so
//! ten thousand connections that send nothing, or a peer that reads nothing, would stay.
//!
//! **Budget:** 6,000 lines of source. A piece moves here when a second program needs it, not before.
//!
//! ```
//! use axum::response::IntoResponse;
//! use capstan_service::problem::Refusal;
//!
//! let answer = Refusal::not_found("There is no job of that name.").into_response();
//! assert_eq!(answer.status(), 404);
//! assert_eq!(answer.headers()["content-type"], "application/problem+json");
//! ```

pub mod audit;
pub mod clock;
pub mod enrolment;
pub mod file_lock;
pub mod health;
pub mod housekeeping;
pub mod identity;
pub mod listener;
pub mod metrics;
pub mod openapi;
pub mod problem;
pub mod rate_limit;
pub mod roles;
pub mod shutdown;
pub mod time;
