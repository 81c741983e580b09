//! Which process did something, in words by which another process sees whether it still lives.
//!
//! A number alone is not enough: the system gives it again. So the words are the boot of the machine, the number, and
//! when the process was started, in ticks since that boot. A process of another machine is not seen, and does not live
//! as far as this one knows.

use std::fs;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// This process.
pub(crate) fn this() -> String {
    let pid = std::process::id();
    format!("{} {pid} {}", boot(), started(pid).unwrap_or_default())
}

/// Whether a process lives.
pub(crate) fn lives(words: &str) -> bool {
    let mut words = words.split(' ');
    let (Some(on), Some(pid), Some(since)) = (words.next(), words.next(), words.next()) else { return false };
    let (Ok(pid), Ok(since)) = (pid.parse(), since.parse::<u64>()) else { return false };
    on == boot() && started(pid) == Some(since)
}

/// The number of a process.
pub fn number_of(words: &str) -> Option<u32> {
    words.split(' ').nth(1)?.parse().ok()
}

fn boot() -> String {
    fs::read_to_string(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
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
        other.kill().unwrap();
        // Ended, and nobody has asked how.
        while started(other.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(!lives(&words));
        other.wait().unwrap();
        assert!(!lives("") && !lives("a b c"));
    }
}
