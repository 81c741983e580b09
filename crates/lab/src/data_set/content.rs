//! Bytes that a dictionary coder shrinks as far as it is told.

use super::noise::Noise;
use super::shape::Ratio;

/// Length of a run of noise: long enough that its cost in a coder is its own bytes.
const NOISE_RUN: usize = 96;
/// What a coder spends to name a repeat, bytes. Found by measuring; the tests below hold it.
const REPEAT_COST: f64 = 6.5;
/// The same for a file with one repeat only: all of them look alike then.
const ONLY_REPEAT_COST: f64 = 3.0;
/// How far back a repeat reaches: so little that a block of any size keeps nearly all of its repeats to itself.
const REACH: usize = 3 << 10;

/// The shortest run of noise: what repeats it is then still found by a coder that looks for seven bytes.
const NOISE_MIN: usize = 8;

/// How runs of noise and repeats follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    /// Each as long as it is drawn, whatever is behind it. The presets have been so from the start, and measurements
    /// stand on their bytes; short files shrink less than they are asked to from 3:1 on.
    Drawn,
    /// As long as the length to be filled asks for, so that a file of one run shrinks as far as one of many.
    Fitted,
}

/// The bytes of one file.
#[derive(Debug)]
pub(super) struct Content {
    noise: Noise,
    runs: Runs,
    ratios: Ratios,
}

/// How far each MB of a file shrinks.
#[derive(Debug)]
pub(super) struct Ratios {
    draws: Noise,
    ratio: Ratio,
}

impl Iterator for Ratios {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        Some(match self.ratio {
            Ratio::EachFile(ratio) => ratio,
            Ratio::EachMb { from, to } => from + self.draws.unit() * (to - from),
        })
    }
}

impl Content {
    /// The bytes that follow from the seed of a set and a file's number in it.
    pub(super) fn new(seed: u64, number: u64, ratio: Ratio, runs: Runs) -> Self {
        let noise = Noise::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self { noise, runs, ratios: Self::ratios(seed, number, ratio) }
    }

    /// How far each MB of that file shrinks.
    pub(super) fn ratios(seed: u64, number: u64, ratio: Ratio) -> Ratios {
        Ratios { draws: Noise::new(!seed ^ number.wrapping_mul(0xe703_7ed1_a0b4_28db)), ratio }
    }

    /// Fills the buffer with the next MB, or with what there is of it. Repeats stay within one buffer.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) {
        let ratio = self.ratios.next().unwrap_or(1.0);
        match self.runs {
            Runs::Drawn => self.fill_drawn(buffer, ratio),
            Runs::Fitted => self.fill_fitted(buffer, ratio),
        }
    }

    fn fill_drawn(&mut self, buffer: &mut [u8], ratio: f64) {
        // Mean length of a repeat: what a run of noise needs behind it so that both together shrink as far as they are
        // to.
        let repeat_run = ((NOISE_RUN as f64 + REPEAT_COST) * ratio - NOISE_RUN as f64).round() as usize;
        let repeat_run = if ratio <= 1.0 { 0 } else { repeat_run };
        let mut at = 0;
        while at < buffer.len() {
            let draw = self.noise.next();
            at = self.noise(buffer, at, NOISE_RUN / 2 + draw as usize % NOISE_RUN);
            if repeat_run == 0 {
                continue;
            }
            let length = (repeat_run / 2 + (draw >> 16) as usize % repeat_run).min(buffer.len() - at);
            at = Self::repeat(buffer, at, length, draw >> 32);
        }
    }

    /// As many runs of noise as of repeats, all pairs of a length; only the border within a pair is drawn.
    fn fill_fitted(&mut self, buffer: &mut [u8], ratio: f64) {
        let length = buffer.len() as f64;
        let pairs = (length / ((NOISE_RUN as f64 + REPEAT_COST) * ratio)).round().max(1.0);
        let cost = if pairs > 1.0 { REPEAT_COST } else { ONLY_REPEAT_COST };
        let noise_run = (length / pairs / ratio - cost).round().max(NOISE_MIN as f64) as usize;
        // Drawn about its mean, and no further than the repeat behind it takes up.
        let sway = ((length / pairs) as usize).saturating_sub(noise_run).min(noise_run) / 2;
        for pair in 1..=pairs as usize {
            let at = ((pair - 1) as f64 / pairs * length) as usize;
            let end = (pair as f64 / pairs * length) as usize;
            let draw = self.noise.next();
            let drawn = if ratio <= 1.0 { end - at } else { noise_run - sway + draw as usize % (2 * sway + 1) };
            let border = self.noise(&mut buffer[..end], at, drawn.max(NOISE_MIN));
            Self::repeat(&mut buffer[..end], border, end - border, draw >> 32);
        }
    }

    /// Copies earlier bytes. A repeat longer than what there is behind it goes on with itself, as dictionary coders
    /// allow.
    fn repeat(buffer: &mut [u8], at: usize, length: usize, draw: u64) -> usize {
        let end = at + length;
        let reach = at.saturating_sub(length).min(REACH);
        let from = at.saturating_sub(length) - draw as usize % (reach + 1);
        let distance = at - from;
        let mut to = at;
        while to < end {
            let part = (end - to).min(distance);
            buffer.copy_within(to - distance..to - distance + part, to);
            to += part;
        }
        end
    }

    fn noise(&mut self, buffer: &mut [u8], at: usize, length: usize) -> usize {
        let end = (at + length).min(buffer.len());
        for word in buffer[at..end].chunks_mut(8) {
            let bytes = self.noise.next().to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn ratio(bytes: &[u8]) -> f64 {
        let compressed = zstd::bulk::compress(bytes, 1).unwrap();
        assert_eq!(zstd::bulk::decompress(&compressed, bytes.len()).unwrap(), bytes);
        bytes.len() as f64 / compressed.len() as f64
    }

    fn file(number: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Content::new(1, number, Ratio::EachFile(2.0), Runs::Drawn).fill(&mut bytes);
        bytes
    }

    #[track_caller]
    fn assert_halves(what: &str, bytes: &[u8]) {
        let ratio = ratio(bytes);
        println!("{what}: {ratio:.3}");
        assert!((1.9..=2.1).contains(&ratio), "{what}: {ratio:.3}, not 2:1");
    }

    #[test]
    fn zstd_halves_it_at_every_scale() {
        assert_halves("a large file", &file(0, 1 << 20));
        for length in [256 << 10, 64 << 10] {
            assert_halves("a block of a large file", &file(0, 1 << 20)[300_000..300_000 + length]);
        }
        let small: Vec<u8> = (0..100).flat_map(|number| file(number, 4096 + number as usize * 120)).collect();
        assert_halves("many small files in one stream", &small);
    }

    #[test]
    fn small_files_halve_each_by_itself() {
        for length in [4 << 10, 10 << 10, 16 << 10] {
            let ratios: Vec<f64> = (0..200).map(|number| ratio(&file(number, length))).collect();
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            println!("{length}: {mean:.3}");
            assert!((1.9..=2.1).contains(&mean), "files of {length} bytes: {mean:.3}, not 2:1");
        }
    }

    #[test]
    fn zstd_shrinks_it_as_far_as_it_was_told() {
        for runs in [Runs::Drawn, Runs::Fitted] {
            for wanted in [1.0, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0] {
                let mut bytes = vec![0; 1 << 20];
                Content::new(5, 9, Ratio::EachFile(wanted), runs).fill(&mut bytes);
                let found = ratio(&bytes);
                println!("{runs:?} {wanted}: {found:.3}");
                assert!((found / wanted - 1.0).abs() < 0.08, "{runs:?}: {found:.3}:1, not {wanted}:1");
            }
        }
    }

    #[test]
    fn fitted_runs_shrink_short_files_as_far() {
        for length in [256, 512, 1000, 4 << 10, 16 << 10, 100_000] {
            for wanted in [1.0, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0] {
                let mut all = Vec::new();
                for number in 0..(512 << 10) / length {
                    let mut bytes = vec![0; length];
                    Content::new(5, number as u64, Ratio::EachFile(wanted), Runs::Fitted).fill(&mut bytes);
                    all.extend(bytes);
                }
                let found = ratio(&all);
                println!("{length} {wanted}: {found:.3}, {:+.1} %", (found / wanted - 1.0) * 100.0);
                assert!((found / wanted - 1.0).abs() < 0.08, "{length}: {found:.3}:1, not {wanted}:1");
            }
        }
    }

    #[test]
    fn each_mb_shrinks_by_a_ratio_of_its_own() {
        let wanted = Ratio::EachMb { from: 1.0, to: 10.0 };
        let mut content = Content::new(5, 9, wanted, Runs::Fitted);
        let asked: Vec<f64> = Content::ratios(5, 9, wanted).take(12).collect();
        assert!(asked.iter().any(|ratio| *ratio < 3.0) && asked.iter().any(|ratio| *ratio > 7.0), "{asked:?}");
        for asked in asked {
            let mut bytes = vec![0; 1 << 20];
            content.fill(&mut bytes);
            let found = ratio(&bytes);
            assert!((found / asked - 1.0).abs() < 0.08, "{found:.3}:1, not {asked:.3}:1");
        }
    }

    #[test]
    fn files_have_nothing_in_common() {
        let (one, two) = (file(1, 16 << 10), file(2, 16 << 10));
        let known: std::collections::HashSet<&[u8]> = one.windows(16).collect();
        assert!(!two.windows(16).any(|window| known.contains(window)));
    }
}
