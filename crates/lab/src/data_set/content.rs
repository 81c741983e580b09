//! Bytes that a dictionary coder shrinks as far as it is told.

/// A small fast generator (xorshift64*, Vigna 2014); good noise for data sets, and nothing else.
#[derive(Debug, Clone)]
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        // One round of splitmix64, so that neighbouring seeds share nothing; zero is the one state that stays.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((state ^ (state >> 31)).max(1))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Evenly in 0..1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Length of a run of noise: long enough that its cost in a coder is its own bytes.
const NOISE_RUN: usize = 96;
/// What a coder spends to name a repeat, bytes. Found by measuring; the tests below hold it.
const REPEAT_COST: f64 = 6.5;
/// How far back a repeat reaches: so little that a block of any size keeps nearly all of its repeats to itself.
const REACH: usize = 3 << 10;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) struct Content {
    noise: Noise,
    /// Mean length of a repeat: what a run of noise needs behind it so that both together shrink as far as they are to.
    repeat_run: usize,
}

impl Content {
    /// The bytes that follow from the seed of a set and a file's number in it, and shrink to one part in `ratio`.
    pub(crate) fn new(seed: u64, number: u64, ratio: f64) -> Self {
        let noise = Noise::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let repeat_run = ((NOISE_RUN as f64 + REPEAT_COST) * ratio - NOISE_RUN as f64).round() as usize;
        Self { noise, repeat_run: if ratio <= 1.0 { 0 } else { repeat_run } }
    }

    /// Fills the buffer with the next bytes. Repeats stay within one buffer.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        let mut at = 0;
        while at < buffer.len() {
            let draw = self.noise.next();
            at = self.noise(buffer, at, NOISE_RUN / 2 + draw as usize % NOISE_RUN);
            if self.repeat_run == 0 {
                continue;
            }
            let length = (self.repeat_run / 2 + (draw >> 16) as usize % self.repeat_run).min(buffer.len() - at);
            at = Self::repeat(buffer, at, length, draw >> 32);
        }
    }

    /// Copies earlier bytes. A repeat longer than what there is behind it goes on with itself, as dictionary coders allow.
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
        Content::new(1, number, 2.0).fill(&mut bytes);
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
        for wanted in [1.0, 1.5, 2.0, 3.0, 5.0, 10.0] {
            let mut bytes = vec![0; 1 << 20];
            Content::new(5, 9, wanted).fill(&mut bytes);
            let found = ratio(&bytes);
            println!("{wanted}: {found:.3}");
            assert!((found / wanted - 1.0).abs() < 0.08, "{found:.3}:1, not {wanted}:1");
        }
    }

    #[test]
    fn files_have_nothing_in_common() {
        let (one, two) = (file(1, 16 << 10), file(2, 16 << 10));
        let known: std::collections::HashSet<&[u8]> = one.windows(16).collect();
        assert!(!two.windows(16).any(|window| known.contains(window)));
    }
}
