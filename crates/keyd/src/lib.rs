//! A node of the key-management cluster (KMA).
//!
//! ```text
//!  authority/  roles, quorum queue: who may do what                            authority_record  the CA's certificate and wrapped key
//!  service/    the process: routes, KMIP, metrics, what runs beside them
//!  desk/       key lifecycle: the rules of `capstan_keys` over the ledger      journal/   what a node that is cut off has issued
//!  replica/    the sealed local copy that agents are always answered from      root/      root key: PKCS#11 or a quorum
//!  kmip/       objects of KMIP clients
//!  ledger/     sealed records by path, compare-and-set: etcd
//! ```
#![allow(clippy::missing_errors_doc, reason = "the parts of one program, called by it and its tests alone")]

pub mod authority;
pub mod authority_record;
pub mod backup;
pub mod desk;
pub mod destruction;
pub mod exposure;
pub mod family;
pub mod journal;
pub mod kmip;
pub mod ledger;
mod mark;
pub mod node;
pub mod path;
pub mod program;
pub mod record;
pub mod replica;
pub mod root;
pub mod seal;
mod seeded;
pub mod service;
pub mod state;
