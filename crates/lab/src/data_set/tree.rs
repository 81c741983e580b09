//! Where the files of a set lie, and what they are called.
//!
//! Files are in the folders of the last level only, so many in each. A tree of more than one level numbers these
//! folders in the base of its fan-out: a digit is a folder's number in the one above. A name tells a file's or a
//! folder's number, whatever else it is made of, so that no two meet, not even where a file system folds case or
//! composes characters.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::noise::Noise;
use super::shape::{Names, Shape};

/// The longest name that Linux takes, bytes.
const NAME_MAX: usize = 255;

/// Letters with and without marks, composed and not, of scripts from either side, wide ones, and one that is four bytes
/// and more.
const LETTERS: [&str; 24] = [
    "a",
    "Z",
    "ß",
    "é",
    "e\u{301}",
    "ı",
    "Ω",
    "ж",
    "Й",
    "ש",
    "ن",
    "ك",
    "क",
    "ก",
    "あ",
    "ん",
    "漢",
    "字",
    "한",
    "𝔘",
    "🎞",
    "🧑\u{200d}🚀",
    "\u{202e}",
    "\u{a0}",
];

/// Which thing has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    File,
    Folder,
}

/// The tree of a set.
#[derive(Debug)]
pub(super) struct Tree {
    names: Names,
    seed: u64,
    files: u64,
    files_in_folder: u64,
    /// Folders in a folder, and how many levels that makes.
    fan_out: u64,
    levels: u32,
}

impl Tree {
    pub(super) fn new(shape: &Shape, files: u64) -> Self {
        let files_in_folder = shape.files_in_folder();
        let folders = files.div_ceil(files_in_folder);
        let fan_out = shape.folders_per_folder.unwrap_or(u64::MAX);
        let levels = (1..u64::BITS).find(|&levels| fan_out.saturating_pow(levels) >= folders).unwrap_or(u64::BITS);
        Self { names: shape.names, seed: shape.seed, files, files_in_folder, fan_out, levels }
    }

    /// How many folders have files in them.
    pub(super) fn folders(&self) -> u64 {
        self.files.div_ceil(self.files_in_folder)
    }

    /// How many folders there are, those between included.
    pub(super) fn all_folders(&self) -> u64 {
        let levels = (0..self.levels).map(|above| self.folders().div_ceil(self.fan_out.saturating_pow(above)));
        levels.sum()
    }

    /// Numbers of the files in a folder.
    pub(super) fn files_of(&self, folder: u64) -> Range<u64> {
        let first = folder * self.files_in_folder;
        first..first.saturating_add(self.files_in_folder).min(self.files)
    }

    pub(super) fn folder_path(&self, number: u64) -> PathBuf {
        let mut path = PathBuf::new();
        for above in (0..self.levels).rev() {
            // Which of the folders of its level it is, and which of those in the one above.
            let of_level = number / self.fan_out.saturating_pow(above);
            path.push(self.name(Thing::Folder, of_level % self.fan_out, of_level ^ (u64::from(above) << 56)));
        }
        path
    }

    pub(super) fn file_path(&self, number: u64) -> PathBuf {
        self.folder_path(number / self.files_in_folder).join(self.name(Thing::File, number, number))
    }

    /// No path below the folder of the set has more bytes.
    pub(super) fn longest_path(&self) -> usize {
        let name = if self.names == Names::Plain { 16 } else { NAME_MAX };
        (name + 1) * (self.levels as usize + 1)
    }

    /// A name that tells `number`, made of what follows from `draw`.
    fn name(&self, thing: Thing, number: u64, draw: u64) -> OsString {
        let plain = match thing {
            Thing::File => format!("f{number:07}"),
            Thing::Folder => format!("d{number:05}"),
        };
        let mut noise = Noise::new(self.seed ^ draw.wrapping_mul(0xa076_1d64_78bd_642f) ^ thing as u64);
        match self.names {
            Names::Plain => plain.into(),
            Names::Long => long(plain, &mut noise).into(),
            Names::Unicode => unicode(plain, &mut noise).into(),
            Names::Hostile => OsString::from_vec(hostile(&plain, number, &mut noise)),
        }
    }
}

/// From 200 bytes on, so that every name is long.
fn long(mut name: String, noise: &mut Noise) -> String {
    let len = 200 + noise.next() as usize % (NAME_MAX - 200 + 1);
    name.push('-');
    while name.len() < len {
        name.push(char::from(b'a' + (noise.next() % 26) as u8));
    }
    name
}

fn unicode(mut name: String, noise: &mut Noise) -> String {
    let len = name.len() + 8 + noise.next() as usize % (NAME_MAX - name.len() - 7);
    name.push(' ');
    loop {
        let letter = LETTERS[noise.next() as usize % LETTERS.len()];
        if name.len() + letter.len() > len {
            return name;
        }
        name.push_str(letter);
    }
}

/// Each kind of trouble in turn, so that a small set has them all.
fn hostile(plain: &str, number: u64, noise: &mut Noise) -> Vec<u8> {
    let text = match number % 12 {
        0 => format!("-rf {plain}"),
        1 => format!("{plain}\nsecond line\n"),
        2 => format!("  {plain}  "),
        3 => return [plain.as_bytes(), b" \xff\xfe\x80\xc3"].concat(),
        4 => format!("{plain}'\"`touch owned`$(touch owned);&|<>"),
        5 => format!("{plain}\x1b[2J\x07\t\r\x7f"),
        6 => format!("--{plain}=*?[a-z]{{b,c}}"),
        7 => return fill(plain, noise),
        8 => format!("...{plain}..."),
        9 => format!("\\{plain}\\n%s%n%00"),
        10 => format!("~{plain}\u{202e}txt.#!"),
        _ => format!("@{plain}:C:{plain},v!{{}}"),
    };
    text.into_bytes()
}

/// As many bytes as a name has, of all that it may have.
fn fill(plain: &str, noise: &mut Noise) -> Vec<u8> {
    let mut name = plain.as_bytes().to_vec();
    // No digit follows the number, so that no other number is read there.
    name.push(b' ');
    while name.len() < NAME_MAX {
        let byte = noise.next() as u8;
        if byte != 0 && byte != b'/' {
            name.push(byte);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Component;

    use super::super::shape::FileLengths;
    use super::*;

    fn tree(names: Names, files: u64, files_per_folder: u64, folders_per_folder: Option<u64>) -> Tree {
        let shape = Shape::of_files(FileLengths::Small, files, 3);
        let shape = Shape { names, files_per_folder: Some(files_per_folder), folders_per_folder, ..shape };
        Tree::new(&shape, files)
    }

    #[test]
    fn no_two_paths_are_one_and_none_is_too_long() {
        for names in [Names::Plain, Names::Long, Names::Unicode, Names::Hostile] {
            for fan_out in [None, Some(3)] {
                let tree = tree(names, 5000, 7, fan_out);
                let paths: HashSet<PathBuf> = (0..5000).map(|number| tree.file_path(number)).collect();
                assert_eq!(paths.len(), 5000, "{names:?}");
                for path in &paths {
                    assert!(path.as_os_str().len() <= tree.longest_path(), "{names:?}: {path:?}");
                    for part in path.components() {
                        let Component::Normal(name) = part else { panic!("{names:?}: {part:?} of {path:?}") };
                        assert!(name.len() <= NAME_MAX && !name.as_bytes().contains(&0), "{names:?}: {name:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_what_they_are_called() {
        let bytes_of = |names| -> Vec<Vec<u8>> {
            let tree = tree(names, 1000, 1000, None);
            let names = (0..1000).map(|number| tree.file_path(number));
            names.map(|path| path.file_name().unwrap_or_default().as_bytes().to_vec()).collect()
        };
        let long = bytes_of(Names::Long);
        assert!(long.iter().all(|name| name.len() >= 200) && long.iter().any(|name| name.len() == NAME_MAX));
        let unicode = bytes_of(Names::Unicode);
        assert!(unicode.iter().all(|name| std::str::from_utf8(name).is_ok_and(|name| !name.is_ascii())));
        assert!(unicode.iter().any(|name| name.len() > 250));
        let hostile = bytes_of(Names::Hostile);
        let has = |what: &dyn Fn(&[u8]) -> bool| hostile.iter().any(|name| what(name));
        assert!(has(&|name| name.starts_with(b"-")) && has(&|name| name.starts_with(b"--")));
        assert!(has(&|name| name.starts_with(b" ") && name.ends_with(b" ")) && has(&|name| name.contains(&b'\n')));
        assert!(has(&|name| std::str::from_utf8(name).is_err()) && has(&|name| name.contains(&0x1b)));
        assert!(has(&|name| name.len() == NAME_MAX));
    }

    #[test]
    fn a_tree_has_as_many_levels_as_its_fan_out_takes() {
        let flat = tree(Names::Plain, 1000, 10, None);
        assert_eq!(flat.file_path(999), PathBuf::from("d00099/f0000999"));
        assert_eq!((flat.folders(), flat.all_folders()), (100, 100));
        let deep = tree(Names::Plain, 1000, 10, Some(4));
        // 99 is 1203 in base 4.
        assert_eq!(deep.file_path(999), PathBuf::from("d00001/d00002/d00000/d00003/f0000999"));
        assert_eq!((deep.folders(), deep.all_folders()), (100, 100 + 25 + 7 + 2));
        let mut parents: HashSet<PathBuf> = HashSet::new();
        for folder in 0..100 {
            parents.extend(deep.folder_path(folder).ancestors().map(PathBuf::from));
        }
        // All folders, and the one of the set.
        assert_eq!(parents.len() as u64, deep.all_folders() + 1);
        assert_eq!(deep.files_of(99), 990..1000);
    }
}
