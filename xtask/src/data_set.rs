//! Seeded data sets, shaped like those of the published staging measurements.
//!
//! *Small*: files of 4 to 16 KB, 690 in a folder. *Typical*: files of 64 KB to 64 MB, 200 in a folder, lengths even on a
//! logarithmic scale. Both shrink to half, under a dictionary coder and at every scale from one 4 KB file to the whole set:
//! half of what looks like it should shrink does so by repeating earlier bytes of the same file, the rest is noise. (Bytes
//! of four bits' entropy each would halve under Huffman coding only; files cut from one text would shrink the more of them a
//! compressor or a deduplicating peer sees at once.)
//!
//! A file's bytes follow from the seed and its number alone, so threads make them in any order.

pub(crate) mod content;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::amount::{grouped, parse_bytes, shown_bytes, shown_rate, shown_time};
use content::{Content, Noise};

/// The shape of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Files of 4 to 16 KB
    Small,
    /// Files of 64 KB to 64 MB
    Typical,
}

impl Kind {
    /// Files in one folder: 5,084,604 in 7,380 and 3,927 in 20 in the published sets.
    fn files_in_folder(self) -> u64 {
        match self {
            Self::Small => 690,
            Self::Typical => 200,
        }
    }

    fn file_bytes(self, noise: &mut Noise) -> u64 {
        let unit = noise.unit();
        match self {
            Self::Small => 4096 + (unit * 12_289.0) as u64,
            Self::Typical => (65_536.0 * 1024_f64.powf(unit)) as u64,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Shape of the set
    #[arg(long)]
    kind: Kind,
    /// How many files
    #[arg(long, required_unless_present = "bytes")]
    files: Option<u64>,
    /// How many bytes, as 4G; the last file ends there
    #[arg(long, value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// What the set follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where; must not exist, or be empty
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let set = DataSet::plan(arguments.kind, arguments.files, arguments.bytes, arguments.seed);
    set.make(&arguments.folder)?;
    let (bytes, time) = (set.bytes(), started.elapsed());
    let files = grouped(set.file_count());
    println!("{files} files, {} in {}, {}", shown_bytes(bytes), shown_time(time), shown_rate(bytes, time));
    Ok(ExitCode::SUCCESS)
}

/// What a data set will hold.
#[derive(Debug)]
pub(crate) struct DataSet {
    kind: Kind,
    seed: u64,
    lengths: Vec<u32>,
}

impl DataSet {
    /// Chooses lengths until `files` or `bytes`, whichever is given and comes first, is full.
    pub(crate) fn plan(kind: Kind, files: Option<u64>, bytes: Option<u64>, seed: u64) -> Self {
        let mut noise = Noise::new(seed);
        let mut left = bytes.unwrap_or(u64::MAX);
        let mut lengths = Vec::new();
        while left > 0 && files.is_none_or(|files| (lengths.len() as u64) < files) {
            let length = kind.file_bytes(&mut noise).min(left);
            left -= length;
            lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
        }
        Self { kind, seed, lengths }
    }

    pub(crate) fn file_count(&self) -> u64 {
        self.lengths.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lengths.iter().map(|&length| u64::from(length)).sum()
    }

    /// A file's path below the folder of the set.
    pub(crate) fn file_path(&self, number: u64) -> PathBuf {
        PathBuf::from(format!("d{:05}/f{number:07}", number / self.kind.files_in_folder()))
    }

    /// The first file, from the middle on, that is about so long.
    pub(crate) fn number_of_length(&self, bytes: u32) -> Option<u64> {
        let middle = self.lengths.len() / 2;
        let near = |length: &u32| length.abs_diff(bytes) <= bytes / 20;
        let found = self.lengths[middle..].iter().position(near).unwrap_or(0);
        (!self.lengths.is_empty()).then_some((middle + found) as u64)
    }

    /// Writes the set with as many threads as there are cores.
    pub(crate) fn make(&self, folder: &Path) -> Result<()> {
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            bail!("{} is not empty; name another folder, or remove it first", folder.display());
        }
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let next_folder = AtomicU64::new(0);
        thread::scope(|scope| -> Result<()> {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(|| self.make_folders(folder, &next_folder))).collect();
            for thread in threads {
                thread.join().map_err(|_| anyhow::anyhow!("a thread that makes files died"))??;
            }
            Ok(())
        })
    }

    fn make_folders(&self, folder: &Path, next: &AtomicU64) -> Result<()> {
        let files = self.kind.files_in_folder();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let first = next.fetch_add(1, Ordering::Relaxed) * files;
            if first >= self.file_count() {
                return Ok(());
            }
            let path = folder.join(self.file_path(first));
            fs::create_dir(path.parent().context("a file lies in a folder")?)?;
            for number in first..(first + files).min(self.file_count()) {
                let path = folder.join(self.file_path(number));
                self.make_file(&path, number, &mut buffer).with_context(|| format!("write {}", path.display()))?;
            }
        }
    }

    fn make_file(&self, path: &Path, number: u64, buffer: &mut [u8]) -> Result<()> {
        let length = *self.lengths.get(usize::try_from(number)?).context("the number is one of the set's")?;
        let mut content = Content::new(self.seed, number);
        let mut left = usize::try_from(length)?;
        let mut file = File::create(path)?;
        while left > 0 {
            let part = left.min(buffer.len());
            content.fill(&mut buffer[..part]);
            file.write_all(&buffer[..part])?;
            left -= part;
        }
        ensure!(file.metadata()?.len() == u64::from(length), "the file is shorter than what was written to it");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn lengths_keep_to_their_kind() {
        let small = DataSet::plan(Kind::Small, Some(10_000), None, 1);
        assert!(small.lengths.iter().all(|length| (4096..=16_384).contains(length)));
        let mean = small.bytes() / small.file_count();
        assert!((10_000..10_500).contains(&mean), "mean of {mean}");

        let typical = DataSet::plan(Kind::Typical, None, Some(40 << 30), 1);
        assert_eq!(typical.bytes(), 40 << 30);
        let (last, others) = typical.lengths.split_last().unwrap();
        assert!(others.iter().all(|length| (64 << 10..=64 << 20).contains(length)));
        assert!(*last <= 64 << 20);
    }

    #[test]
    fn a_seed_gives_the_same_files_again() {
        let folder = tempfile::tempdir().unwrap();
        let set = DataSet::plan(Kind::Small, Some(1500), None, 7);
        for name in ["one", "two"] {
            set.make(&folder.path().join(name)).unwrap();
        }
        for number in [0, 689, 690, 1499] {
            let path = set.file_path(number);
            let one = fs::read(folder.path().join("one").join(&path)).unwrap();
            assert_eq!(one.len(), set.lengths[number as usize] as usize);
            assert_eq!(one, fs::read(folder.path().join("two").join(&path)).unwrap());
        }
        assert_eq!(fs::read_dir(folder.path().join("one")).unwrap().count(), 3);
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine"), "").unwrap();
        let error = DataSet::plan(Kind::Small, Some(1), None, 1).make(folder.path()).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
    }
}
