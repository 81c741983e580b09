//! Keeping the memory of a whole process to itself.
//!
//! Root key and cluster key lie in locked pages of their own. What is derived from them for use does not: the key
//! schedules of ciphers belong to the cryptographic library, and keys on their way to a drive pass through buffers of
//! TLS. So a node closes the two ways by which memory gets out as a whole: core dumps (and debuggers of other users),
//! and swap.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Takes this process out of core dumps and out of the swap, for good: called once, before the first secret is there.
///
/// Errors: the system refuses, mostly the locking, for want of `LimitMEMLOCK=infinity` in the unit or of CAP_IPC_LOCK.
/// The node works without it; then its swap has to be encrypted, and the operator is to be told that.
pub fn keep_memory_private() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // Under a limit, locked memory would make a later allocation fail, the 64 MiB of Argon2id first.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    if let Some(bytes) = getrlimit(Resource::Memlock).current {
        let reason = format!("memory that may be locked is limited to {bytes} bytes: set LimitMEMLOCK=infinity");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::process::Command;

    use super::*;

    const INNER: &str = "CAPSTAN_TEST_PRIVATE";

    /// In a process of its own, since there is no way back. Where pages may not be locked, the error is what is tested.
    #[test]
    fn a_process_keeps_its_memory_private() {
        if std::env::var_os(INNER).is_none() {
            let inner = Command::new(std::env::current_exe().unwrap())
                .args(["root::process::tests::a_process_keeps_its_memory_private", "--exact", "--nocapture"])
                .env(INNER, "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&[inner.stdout, inner.stderr].concat()).into_owned();
            assert!(inner.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let outcome = keep_memory_private();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{core}");
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        match outcome {
            Ok(()) => {
                let page = vec![1u8; 1 << 20];
                let status = std::fs::read_to_string("/proc/self/status").unwrap();
                let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
                let locked_kib: u64 = locked.split_whitespace().next().unwrap().parse().unwrap();
                assert!(locked_kib > page.len() as u64 / 1024, "{locked}");
            }
            Err(error) => println!("this system does not let it lock its memory: {error}"),
        }
    }
}
