//! etcd members that stop, die and come back in the middle of work.
