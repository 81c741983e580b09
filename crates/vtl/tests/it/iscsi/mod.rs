//! The iSCSI target from outside: our initiator, and tools that nobody here wrote.

mod access;
mod data;
mod device;
mod disk;
mod faults;
mod limits;
mod tools;
