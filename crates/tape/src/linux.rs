//! Drives and libraries as the Linux kernel offers them.

pub mod scan;
pub mod sg;
pub mod st;
