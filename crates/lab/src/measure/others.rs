//! What other programs had of the processors while something was measured.

use std::fs;

use super::processor_s;

/// The processors' time so far, seconds of all of them together.
#[derive(Debug, Clone, Copy)]
pub struct OtherLoad {
    all_s: f64,
    idle_s: f64,
    own_s: f64,
}

impl OtherLoad {
    /// As it is now; none where the kernel does not say.
    pub fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        Self::parse(&text, processor_s())
    }

    /// Of the first line of `/proc/stat`: user, nice, system, idle, iowait, interrupts, steal; in hundredths of a
    /// second.
    fn parse(text: &str, own_s: f64) -> Option<Self> {
        const TICKS_PER_S: f64 = 100.0;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let [_, _, _, idle, wait, ..] = ticks[..] else { return None };
        let all: f64 = ticks.iter().sum();
        Some(Self { all_s: all / TICKS_PER_S, idle_s: (idle + wait) / TICKS_PER_S, own_s })
    }

    /// The share of all processors that others had since then; what a host took from this machine is theirs, too.
    pub fn share_since(&self, before: &Self) -> f64 {
        let all_s = self.all_s - before.all_s;
        let busy_s = all_s - (self.idle_s - before.idle_s) - (self.own_s - before.own_s);
        if all_s > 0.0 { (busy_s / all_s).clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn others_have_what_is_neither_idle_nor_ours() {
        let before = OtherLoad::parse("cpu  100 0 100 1000 0 0 0 0 0 0\ncpu0 1 1 1 1\n", 1.0).unwrap();
        let after = OtherLoad::parse("cpu  400 0 300 1400 100 0 0 0 0 0\n", 3.0).unwrap();
        // 10 s went by on all processors: 5 idle or waiting, 2 ours.
        assert!((after.share_since(&before) - 0.3).abs() < 1e-9);
        assert_eq!(before.share_since(&before), 0.0);
        assert!(OtherLoad::parse("intr 1\n", 0.0).is_none() && OtherLoad::parse("cpu 1 2\n", 0.0).is_none());
        assert!(OtherLoad::now().is_some());
    }
}
