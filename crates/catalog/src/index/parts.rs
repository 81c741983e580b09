//! What the paths of a row group have in them, as a bitmap: each four bytes in a row, and each whole name. A search for
//! paths that have a text in them passes over row groups that have none such, without reading them.
//!
//! A bit stands for many texts, so a bitmap says "none" or "perhaps". A `/` stands in front of every name and a zero
//! byte behind it, so that the beginning and the end of a name are texts, too.

use capstan_format::crc32c;

use super::segment::Segment;

/// Bytes of a text that a bit stands for.
const GRAM_LEN: usize = 4;
/// What stands behind a name; no name has it.
const NAME_END: u8 = 0;
/// The longest and the shortest bitmap, in bits; powers of two.
const BITS_MAX: usize = 1 << 21;
const BITS_MIN: usize = 1 << 9;
/// A bitmap is halved as long as no more than this share of the half is set, in percent.
const SET_PERCENT_MAX: usize = 45;
/// Bits of a whole name.
const BITS_OF_NAME: usize = 2;
/// What keeps names and texts apart: the same number means something else for each.
const OF_TEXT: u64 = 0;
const OF_NAME: u64 = 1 << 32;

/// What each path that is wanted has in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathParts {
    /// Texts that stand somewhere in it.
    texts: Vec<Vec<u8>>,
    /// Its name.
    name: Option<Vec<u8>>,
    /// What stands somewhere in its name.
    segment: Segment,
}

impl PathParts {
    /// This text stands somewhere in the path.
    #[must_use]
    pub fn with_text(mut self, text: &[u8]) -> Self {
        self.texts.push(text.to_vec());
        self
    }

    /// The name begins with this.
    #[must_use]
    pub fn with_beginning(self, text: &[u8]) -> Self {
        self.with_text(&[b"/", text].concat())
    }

    /// The name ends with this.
    #[must_use]
    pub fn with_end(self, text: &[u8]) -> Self {
        self.with_text(&[text, &[NAME_END]].concat())
    }

    /// The name is this.
    #[must_use]
    pub fn with_name(self, name: &[u8]) -> Self {
        let whole = self.with_text(&[b"/", name, &[NAME_END]].concat());
        let segment = name.iter().copied().map(Some).collect();
        Self { name: Some(name.to_vec()), segment, ..whole }
    }

    /// These bytes stand in a row somewhere in the name; `None` is any byte.
    #[must_use]
    pub fn with_segment(self, segment: Vec<Option<u8>>) -> Self {
        Self { segment, ..self }
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether a bitmap can say anything of them.
    pub(crate) fn can_be_missed(&self) -> bool {
        self.name.is_some() || self.texts.iter().any(|text| text.len() >= GRAM_LEN)
    }

    /// Whether a row group can have such a path.
    pub(crate) fn may_be_in(&self, bitmap: &[u8]) -> bool {
        let mask = bitmap.len() * 8 - 1;
        let has = |hash: u64| {
            let bit = hash as usize & mask;
            bitmap[bit / 8] & (1 << (bit % 8)) != 0
        };
        let grams = self.texts.iter().flat_map(|text| text.windows(GRAM_LEN));
        grams.map(hash_of_text).all(has) && self.name.iter().flat_map(|name| hashes_of_name(name)).all(has)
    }
}

/// Whether a bitmap has a length that one can have.
pub(crate) fn is_bitmap(bytes: &[u8]) -> bool {
    let bits = bytes.len().saturating_mul(8);
    bits.is_power_of_two() && (BITS_MIN..=BITS_MAX).contains(&bits)
}

/// Makes the bitmap of a row group.
pub(crate) struct PartsOfGroup {
    bits: Vec<u64>,
    /// The end of a directory and a name in it, and the same of the row before.
    text: Vec<u8>,
    before: Vec<u8>,
}

impl PartsOfGroup {
    pub(crate) fn new() -> Self {
        Self { bits: vec![0; BITS_MAX / 64], text: Vec::new(), before: Vec::new() }
    }

    /// A directory; the empty one for the top.
    pub(crate) fn add_dir(&mut self, dir: &[u8]) {
        for gram in dir.windows(GRAM_LEN) {
            set(&mut self.bits, hash_of_text(gram));
        }
    }

    /// A name in a directory.
    pub(crate) fn add_name(&mut self, dir: &[u8], name: &[u8]) {
        std::mem::swap(&mut self.text, &mut self.before);
        self.text.clear();
        self.text.extend_from_slice(&dir[dir.len().saturating_sub(GRAM_LEN - 1)..]);
        self.text.push(b'/');
        self.text.extend_from_slice(name);
        self.text.push(NAME_END);
        // Names come in order: much of one stood in the row before, too.
        let known = self.text.iter().zip(&self.before).take_while(|(byte, before)| byte == before).count();
        for gram in self.text[(known + 1).saturating_sub(GRAM_LEN)..].windows(GRAM_LEN) {
            set(&mut self.bits, hash_of_text(gram));
        }
        hashes_of_name(name).into_iter().for_each(|hash| set(&mut self.bits, hash));
    }

    /// The bitmap, as short as it can be.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut bits = self.bits;
        while bits.len() * 64 > BITS_MIN {
            let (low, high) = bits.split_at(bits.len() / 2);
            let half: Vec<u64> = low.iter().zip(high).map(|(low, high)| low | high).collect();
            let set: usize = half.iter().map(|word| word.count_ones() as usize).sum();
            if set * 100 > half.len() * 64 * SET_PERCENT_MAX {
                break;
            }
            bits = half;
        }
        bits.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn set(bits: &mut [u64], hash: u64) {
    let bit = hash as usize & (BITS_MAX - 1);
    bits[bit / 64] |= 1 << (bit % 64);
}

fn hash_of_text(gram: &[u8]) -> u64 {
    let [a, b, c, d] = [gram[0], gram[1], gram[2], gram[3]];
    mixed(OF_TEXT | u64::from(u32::from_le_bytes([a, b, c, d])))
}

fn hashes_of_name(name: &[u8]) -> [u64; BITS_OF_NAME] {
    let first = mixed(OF_NAME | u64::from(crc32c(name)));
    [first, mixed(first)]
}

/// A number whose lower bits depend on all bits of this one (the finalizer of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitmap_of(paths: &[&str]) -> Vec<u8> {
        let mut parts = PartsOfGroup::new();
        for path in paths {
            let (dir, name) = crate::order::split(path.as_bytes());
            parts.add_dir(dir);
            parts.add_name(dir, name);
        }
        let bitmap = parts.finish();
        assert!(is_bitmap(&bitmap));
        bitmap
    }

    #[test]
    fn whatever_a_path_has_in_it_is_found() {
        let paths =
            ["srv/web/index.html", "srv/web/a", "top", "srv/photos/2019/IMG_20190704.jpg", "x/\u{00e9}t\u{00e9}"];
        let bitmap = bitmap_of(&paths);
        for path in paths.map(str::as_bytes) {
            let none = PathParts::default;
            for from in 0..path.len() {
                for to in from + 1..=path.len() {
                    assert!(none().with_text(&path[from..to]).may_be_in(&bitmap));
                }
            }
            let (_, name) = crate::order::split(path);
            assert!(none().with_name(name).may_be_in(&bitmap));
            for at in 0..=name.len() {
                assert!(none().with_beginning(&name[..at]).may_be_in(&bitmap));
                assert!(none().with_end(&name[at..]).may_be_in(&bitmap));
            }
        }
    }

    #[test]
    fn what_no_path_has_in_it_is_nearly_never_found() {
        let paths: Vec<String> = (0..20_000).map(|number| format!("srv/{}/file-{number}.txt", number % 50)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let bitmap = bitmap_of(&paths);
        let found =
            |parts: &dyn Fn(u32) -> PathParts| (0..1000).filter(|number| parts(*number).may_be_in(&bitmap)).count();
        // Made of texts that others have, each with its own end.
        let names = found(&|number| PathParts::default().with_name(format!("file-{}.txt", number + 30_000).as_bytes()));
        assert!(names < 150, "{names} of 1000 names");
        let ends = found(&|number| PathParts::default().with_end(format!("{number:03}.conf").as_bytes()));
        let beginnings = found(&|number| PathParts::default().with_beginning(format!("IMG_{number}").as_bytes()));
        assert!(ends < 30 && beginnings < 30, "{ends} and {beginnings} of 1000");
        assert!(bitmap.len() <= paths.len() * 2, "{} bytes", bitmap.len());
    }
}
