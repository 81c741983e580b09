//! Sites from outside: what they keep, find again, mend and refuse, on virtual libraries.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod base;
mod by_hand;
mod catch_up;
mod consolidate;
mod copy_policy;
mod copy_terms;
mod cut_off;
mod damage;
mod expiry;
mod generations;
mod golden;
mod hostile_volume;
mod key_cluster;
mod libraries;
mod main_path;
mod meanwhile;
mod mover_elsewhere;
mod order;
mod over_network;
mod over_sockets;
mod overwriting;
mod place;
mod policies;
mod progress;
mod remembered;
mod repair;
mod restores_over_network;
mod retention_lock;
mod selection;
mod several_drives;
mod several_jobs;
mod several_keys;
mod shared_sessions;
mod unread;
