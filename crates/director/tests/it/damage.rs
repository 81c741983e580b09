//! Every byte of a small volume flipped, one at a time, and every length it can be cut to: the exact data, or an error
//! that names the volume; never wrong data, never a panic. `tests/damage_sweep.py` does the same to the whole program,
//! and swaps and replays blocks besides.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use capstan_director::{Config, Level, Place, RestoreReport, Site};
use capstan_format::{Algorithm, ObjectId, Volser};
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;

use crate::place::{Bench, noise, small};

/// A prime, in continuous integration, where others are damaged each time.
const STEP: usize = 53;
const STEP_FULL: usize = 7;

/// A file, or a directory.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// What a damage did.
#[derive(Debug, Default)]
struct Tally {
    exact: u32,
    refused: u32,
    /// Damaged files of which a part was kept.
    kept: u32,
}

/// One state directory with one small object, and a hand on its first volume.
struct Patient {
    bench: Bench,
    site: Site,
    object: ObjectId,
    volser: Volser,
    cartridge: PathBuf,
    content: Vec<u8>,
    source: Tree,
    keeps_damaged: bool,
}

fn read_tree(top: &Path) -> Tree {
    let mut found = Tree::new();
    let mut left = vec![top.to_owned()];
    while let Some(at) = left.pop() {
        let Ok(entries) = fs::read_dir(&at) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.strip_prefix(top).unwrap().to_owned();
            if path.is_dir() {
                left.push(path);
                found.insert(name, None);
            } else {
                found.insert(name, Some(fs::read(&path).unwrap()));
            }
        }
    }
    found
}

impl Patient {
    /// Blocks of more than one file, and files of more than one block.
    fn new(encryption: Option<Algorithm>, copies: u8) -> Self {
        let mut config: Config = small();
        config.data.block_kib = 4;
        let bench = Bench::new(config);
        fs::create_dir(bench.source().join("empty")).unwrap();
        fs::write(bench.source().join("line"), "a line of text\n".repeat(3)).unwrap();
        fs::write(bench.source().join("noise"), noise(5, 9000)).unwrap();
        fs::write(bench.source().join("nothing"), "").unwrap();
        let site = bench.site();
        site.add_pool("small", encryption, None).unwrap();
        let mut request = bench.request(Level::Full);
        (request.pool, request.copies, request.connections) = ("small".to_owned(), copies, 1);
        bench.backup(&request).unwrap();
        let object = bench.objects()[0].id;
        let volser = site.catalog().copies(object).unwrap()[0].volumes[0].clone();
        let cartridge = bench.cartridge(volser.as_str());
        let content = fs::read(&cartridge).unwrap();
        let source = read_tree(&bench.source());
        Self { bench, site, object, volser, cartridge, content, source, keeps_damaged: false }
    }

    fn restore(&self, to: &Path) -> Result<RestoreReport, capstan_director::DirectorError> {
        let mut plan = self.site.plan_restore(&[Place { object: self.object, paths: Vec::new() }])?;
        plan.keep_damaged = self.keeps_damaged;
        self.site.restore(&plan, to, &ExtractOptions::default(), &RestoreWatch::default())
    }

    /// Restores from the damaged volume, and judges what came of it.
    fn suffer(&self, what: &str, damaged: &[u8], twin: bool, tally: &mut Tally) {
        fs::write(&self.cartridge, damaged).unwrap();
        // What is on record as damaged would be passed over: each damage is met as if it were the first.
        self.bench.sql("DELETE FROM damage");
        let to = self.bench.path("restored");
        let _ = fs::remove_dir_all(&to);
        let ended = self.restore(&to);
        let found = read_tree(&to.join(self.bench.source().strip_prefix("/").unwrap()));
        for (name, content) in found.iter().filter_map(|(name, content)| Some((name, content.as_ref()?))) {
            if let Some(whole) = name.to_str().and_then(|name| name.strip_suffix(".damaged")) {
                tally.kept += 1;
                self.check_kept(what, whole, content);
                continue;
            }
            // A file is right, or was begun and not finished.
            let wanted =
                self.source.get(name).and_then(Option::as_ref).unwrap_or_else(|| panic!("{what}: made {name:?}"));
            assert!(wanted.starts_with(content), "{what}: wrong data in {name:?}");
        }
        let reasons = match &ended {
            Ok(report) if report.is_whole() => {
                assert_eq!(found, self.source, "{what}: said to be whole");
                tally.exact += 1;
                return;
            }
            Ok(report) => {
                for file in &report.failed {
                    let path = String::from_utf8_lossy(&file.path);
                    assert!(
                        self.source.keys().any(|name| path.ends_with(name.to_str().unwrap()))
                            || path.ends_with("source")
                    );
                }
                let lost = report.lost.iter().map(|damage| format!("{damage:?}"));
                lost.chain(report.failed.iter().map(|file| file.reason.clone())).collect::<Vec<_>>().join("\n")
            }
            Err(error) => error.to_string(),
        };
        assert!(!twin, "{what}: the other copy is whole: {reasons}");
        assert!(reasons.contains(self.volser.as_str()), "{what}: the volume is not named: {reasons}");
        tally.refused += 1;
    }

    /// What is kept of a damaged file is what it was, or zeros.
    fn check_kept(&self, what: &str, name: &str, content: &[u8]) {
        assert!(self.keeps_damaged, "{what}: nobody asked for a part of {name:?}");
        let wanted = self.source[Path::new(name)].as_ref().unwrap();
        assert_eq!(content.len(), wanted.len(), "{what}: length of {name:?}");
        assert!(content != wanted, "{what}: {name:?} is whole");
        assert!(content.iter().any(|byte| *byte != 0), "{what}: nothing of {name:?}");
        let is_right = content.iter().zip(wanted).all(|(is, was)| is == was || *is == 0);
        assert!(is_right, "{what}: wrong data in what is kept of {name:?}");
    }

    /// Every byte and every length; `step` takes fewer, from the first on.
    fn sweep(&self, (step, first): (usize, usize), twin: bool) -> Tally {
        let mut tally = Tally::default();
        let mut damaged = self.content.clone();
        for at in (first..self.content.len()).step_by(step) {
            let bit = 1 << (at / step % 8);
            damaged[at] ^= bit;
            self.suffer(&format!("bit {bit:#x} of byte {at}"), &damaged, twin, &mut tally);
            damaged[at] ^= bit;
        }
        for len in (first..self.content.len()).step_by(step) {
            self.suffer(&format!("cut to {len}"), &self.content[..len], twin, &mut tally);
        }
        self.suffer("as it was", &self.content, twin, &mut tally);
        println!("{} bytes, every {step}: {tally:?}", self.content.len());
        assert!(tally.exact > 0);
        tally
    }
}

/// How far it is from byte to byte that is damaged (1, which takes minutes, with `CAPSTAN_EVERY=1`), and the first.
fn step() -> (usize, usize) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let usual = if std::env::var_os("CAPSTAN_FULL").is_some() { STEP_FULL } else { STEP };
    let step = number("CAPSTAN_EVERY").unwrap_or(usual);
    let seed = number("CAPSTAN_SEED").unwrap_or_else(|| std::process::id() as usize);
    println!("to replay: CAPSTAN_EVERY={step} CAPSTAN_SEED={seed}");
    (step, seed % step)
}

#[test]
fn every_damage_to_an_encrypted_volume_is_seen() {
    assert!(Patient::new(Some(Algorithm::Aes256Gcm), 1).sweep(step(), false).refused > 0);
}

#[test]
fn every_damage_to_a_plain_volume_is_seen() {
    assert!(Patient::new(None, 1).sweep(step(), false).refused > 0);
}

#[test]
fn what_is_kept_of_a_damaged_file_is_right_or_zeros() {
    let (step, first) = step();
    let patient = Patient { keeps_damaged: true, ..Patient::new(None, 1) };
    let tally = patient.sweep((step * 4, first), false);
    assert!(tally.kept > 0 && tally.refused > 0, "{tally:?}");
}

#[test]
fn the_exact_data_come_from_the_twin_whatever_happens_to_a_volume() {
    assert_eq!(Patient::new(Some(Algorithm::Aes256Gcm), 2).sweep(step(), true).refused, 0);
}
