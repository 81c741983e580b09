//! Which process did something, in words by which another process sees whether it still lives.
//!
//! A number alone is not enough: the system gives it again. So the words are the boot of the machine, the number, and
//! when the process was started, in ticks since that boot; then the machine and the namespace of process numbers (a
//! container has its own). A process of another machine or namespace is not seen. One of this machine before its last
//! boot has ended. Machines that were copied have one id, so the name of the host is part of it.

use std::fs;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

const MACHINE: &str = "/etc/machine-id";
const NUMBERS: &str = "/proc/self/ns/pid";

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Lives,
    Ended,
    /// It is of another machine or namespace.
    Unseen,
}

/// This process.
pub(crate) fn this() -> String {
    of(std::process::id())
}

/// A process of this namespace.
pub(crate) fn of(pid: u32) -> String {
    format!("{} {pid} {} {} {}", boot(), started(pid).unwrap_or_default(), machine(), numbers())
}

/// Whether a process lives, as far as it can be seen.
pub(crate) fn life(words: &str) -> Life {
    let mut words = words.split(' ');
    let mut next = || words.next().unwrap_or_default();
    let (on, pid, since, machine_of, numbers_of) = (next(), next(), next(), next(), next());
    if on.is_empty() || boot().is_empty() {
        return Life::Unseen;
    }
    if on == boot() {
        let (Ok(pid), Ok(since)) = (pid.parse(), since.parse::<u64>()) else { return Life::Unseen };
        // Versions before this one wrote no namespace.
        return match numbers_of.is_empty() || numbers_of == numbers() {
            true if started(pid) == Some(since) => Life::Lives,
            true => Life::Ended,
            false => Life::Unseen,
        };
    }
    match machine_of == machine() && !machine_of.is_empty() {
        true => Life::Ended,
        false => Life::Unseen,
    }
}

/// Whether a process lives and is seen to.
pub(crate) fn lives(words: &str) -> bool {
    life(words) == Life::Lives
}

/// The number of a process.
pub fn number_of(words: &str) -> Option<u32> {
    words.split(' ').nth(1)?.parse().ok()
}

fn boot() -> String {
    fs::read_to_string(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The machine; empty where it has no id.
fn machine() -> String {
    let id = fs::read_to_string(MACHINE).unwrap_or_default();
    match id.trim() {
        "" => String::new(),
        id => format!("{id}/{}", rustix::system::uname().nodename().to_string_lossy().replace(' ', "_")),
    }
}

/// The namespace of process numbers.
fn numbers() -> String {
    fs::read_link(NUMBERS).map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// When a process was started, in ticks since the boot; `None` for one that has ended, whether or not its parent has
/// asked how.
fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses, and may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Behind the state, which is field 3, this is field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_process_lives_until_it_ends() {
        assert!(lives(&this()));
        assert_eq!(number_of(&this()), Some(std::process::id()));
        let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let words = format!("{} {} {}", boot(), other.id(), started(other.id()).unwrap());
        assert!(lives(&words));
        // Another process of the same number, started at another time, is another one.
        assert!(!lives(&format!("{} {} 1", boot(), other.id())));
        assert!(!lives(&format!("elsewhere {} {}", other.id(), started(other.id()).unwrap())));
        assert_eq!(life(&of(other.id())), Life::Lives);
        let (now, started_at) = (of(other.id()), started(other.id()).unwrap());
        other.kill().unwrap();
        // Ended, and nobody has asked how.
        while started(other.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(!lives(&words));
        other.wait().unwrap();
        assert!(!lives("") && !lives("a b c"));
        assert_eq!(life(&now), Life::Ended);
        let (number, machine) = (other.id(), machine());
        let elsewhere = format!("{} {number} {started_at} {machine} pid:[1]", boot());
        assert_eq!(life(&elsewhere), Life::Unseen, "a container's numbers are its own");
        let before = format!("another-boot {number} {started_at} {machine} {}", numbers());
        let expected = if machine.is_empty() { Life::Unseen } else { Life::Ended };
        assert_eq!(life(&before), expected);
        let copied = format!("another-boot {number} {started_at} {} {}", machine.replace('/', "/not-"), numbers());
        assert_eq!(life(&copied), Life::Unseen, "a copied machine has the same id");
        assert_eq!(life("another-boot 1 2 another-machine pid:[1]"), Life::Unseen);
        assert_eq!(life(""), Life::Unseen);
    }
}
