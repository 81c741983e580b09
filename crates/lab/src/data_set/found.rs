//! How far a set shrinks, found by shrinking a part of it as the virtual drives do.
//!
//! What was asked for is one thing, what a coder makes of it another: a file of a few bytes has nothing to repeat. So
//! blocks are drawn from the set that was made, read back, and compressed: files one behind the other, as a stream
//! brings them to a block.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::content::Content;
use super::noise::Noise;
use super::{DataSet, DataSetError, MB, host};

/// Bytes of a block: what a backup puts in one if nothing else is set.
const BLOCK_BYTES: u64 = 512 << 10;
/// Most blocks, which is a sample of 16 MB that takes a tenth of a second. A smaller set is compressed as a whole.
const BLOCKS_MAX: u64 = 32;
/// Most files in a block: opening more would take longer than it tells.
const FILES_MAX: u64 = 1000;
/// How the virtual drives compress.
const LEVEL: i32 = 1;

/// How far a part of a set was to shrink, and did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shrunk {
    /// What that part was made to shrink by: 2 for 2:1.
    pub asked: f64,
    /// By what it did.
    pub found: f64,
    /// Bytes of that part.
    pub bytes: u64,
}

impl Shrunk {
    /// How far the one is from the other, as a share of what was asked.
    pub fn error(&self) -> f64 {
        self.found / self.asked - 1.0
    }
}

impl DataSet {
    /// Compresses blocks of a set that was made, which ones follow from its seed.
    ///
    /// # Errors
    /// A file of the set cannot be read.
    pub fn shrink(&self, folder: &Path) -> Result<Shrunk, DataSetError> {
        let starts = self.block_starts();
        let mut next = starts.iter().copied().peekable();
        let (mut bytes, mut asked, mut found) = (0, 0.0, 0);
        let mut before = 0;
        for number in 0..self.file_count() {
            let behind = before + self.length(number);
            while let Some(start) = next.next_if(|&start| start < behind) {
                let (block, asked_of_block) = self.read_block(folder, number, start - before)?;
                // A block that does not shrink is stored as it is.
                found += zstd::bulk::compress(&block, LEVEL).map_or(block.len(), |less| less.len().min(block.len()));
                bytes += block.len() as u64;
                asked += asked_of_block;
            }
            before = behind;
        }
        Ok(Shrunk { asked: bytes as f64 / asked, found: bytes as f64 / found as f64, bytes })
    }

    /// Where blocks begin in the set, its files taken one behind the other; in order.
    fn block_starts(&self) -> Vec<u64> {
        let bytes = self.bytes();
        if bytes <= BLOCK_BYTES * BLOCKS_MAX {
            return (0..bytes.div_ceil(BLOCK_BYTES)).map(|block| block * BLOCK_BYTES).collect();
        }
        let mut noise = Noise::new(self.seed ^ 0x5bd1_e995);
        let mut starts: Vec<_> = (0..BLOCKS_MAX).map(|_| noise.next() % (bytes - BLOCK_BYTES)).collect();
        starts.sort_unstable();
        starts
    }

    /// A block that begins so many bytes behind the beginning of a file, and the bytes that it is to shrink to.
    fn read_block(&self, folder: &Path, first: u64, skipped: u64) -> Result<(Vec<u8>, f64), DataSetError> {
        let mut block = Vec::new();
        let mut asked = 0.0;
        let mut skipped = skipped;
        for number in (first..self.file_count()).take(FILES_MAX as usize) {
            let part = (self.length(number) - skipped).min(BLOCK_BYTES - block.len() as u64);
            let path = folder.join(self.file_path(number));
            let mut file = File::open(&path).map_err(host("read", &path))?;
            let read = file.seek(SeekFrom::Start(skipped));
            let read = read.and_then(|_| file.take(part).read_to_end(&mut block));
            read.map_err(host("read", &path))?;
            asked += self.asked_bytes(number, skipped, skipped + part);
            skipped = 0;
            if block.len() as u64 >= BLOCK_BYTES {
                break;
            }
        }
        Ok((block, asked))
    }

    /// What a part of a file is to shrink to, bytes.
    fn asked_bytes(&self, number: u64, from: u64, to: u64) -> f64 {
        let mut ratios = Content::ratios(self.seed, number, self.ratio).skip((from / MB) as usize);
        let mut asked = 0.0;
        let mut at = from;
        while at < to {
            let end = (at / MB + 1) * MB;
            asked += (end.min(to) - at) as f64 / ratios.next().unwrap_or(1.0);
            at = end;
        }
        asked
    }
}
