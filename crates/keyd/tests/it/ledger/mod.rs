//! The ledger and its replica, on etcd members that are stopped, killed and compacted, and in memory.

mod conform;
mod faults;
mod follow;
