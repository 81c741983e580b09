//! The files of a package, in a folder, with modes that depend on nobody's umask.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A tree that grows until its modes are set.
#[derive(Debug)]
pub(super) struct Tree {
    top: PathBuf,
    /// Modes that are not those of usual files and folders.
    modes: RefCell<BTreeMap<PathBuf, u32>>,
}

impl Tree {
    /// An empty one, in a folder that does not exist yet.
    pub(super) fn new(top: &Path) -> Result<Self> {
        fs::create_dir(top).with_context(|| format!("make {}", top.display()))?;
        Ok(Self { top: top.to_owned(), modes: RefCell::default() })
    }

    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// Makes a folder of the package, if it is not there; gives where it is.
    pub(super) fn folder(&self, path: &str, mode: u32) -> Result<PathBuf> {
        let folder = self.top.join(path);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        self.modes.borrow_mut().insert(folder.clone(), mode);
        Ok(folder)
    }

    /// Where a file of the package goes, whose folder is made.
    pub(super) fn place(&self, path: &str, mode: u32) -> Result<PathBuf> {
        let file = self.top.join(path);
        fs::create_dir_all(file.parent().context("a file lies in a folder")?)?;
        self.modes.borrow_mut().insert(file.clone(), mode);
        Ok(file)
    }

    /// Copies a file of the work tree, which nobody executes.
    pub(super) fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.place(to, 0o644)?;
        fs::copy(from, to).map(|_| ()).with_context(|| format!("copy {}", from.display()))
    }

    /// Gives every file and folder its mode: what has none of its own can be read by everybody.
    pub(super) fn set_modes(&self) -> Result<()> {
        let modes = self.modes.borrow();
        self.each(&mut |path, is_folder| {
            let usual = if is_folder { 0o755 } else { 0o644 };
            let mode = modes.get(path).copied().unwrap_or(usual);
            fs::set_permissions(path, Permissions::from_mode(mode)).with_context(|| path.display().to_string())
        })
    }

    /// What the files take, in KiB, each rounded up.
    pub(super) fn kib(&self) -> Result<u64> {
        let mut kib = 0;
        self.each(&mut |path, _| {
            kib += fs::symlink_metadata(path)?.len().div_ceil(1024);
            Ok(())
        })?;
        Ok(kib)
    }

    /// The files below a folder of the package, as they are called where it is installed, by name.
    pub(super) fn files_in(&self, folder: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        self.each(&mut |path, is_folder| {
            let name = path.strip_prefix(&self.top)?;
            if !is_folder && name.starts_with(folder) {
                found.push(format!("/{}", name.display()));
            }
            Ok(())
        })?;
        found.sort();
        Ok(found)
    }

    fn each(&self, visit: &mut dyn FnMut(&Path, bool) -> Result<()>) -> Result<()> {
        let mut folders = vec![self.top.clone()];
        while let Some(folder) = folders.pop() {
            visit(&folder, true)?;
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else {
                    visit(&entry.path(), false)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn modes_are_those_that_were_said_and_files_are_listed_by_name() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = Tree::new(&scratch.path().join("a")).unwrap();
        tree.folder("var/lib/a", 0o700).unwrap();
        for (name, mode) in [("usr/bin/a", 0o755), ("etc/b", 0o644), ("etc/a", 0o644)] {
            fs::write(tree.place(name, mode).unwrap(), [0; 1025]).unwrap();
        }
        tree.set_modes().unwrap();
        let mode = |name: &str| fs::metadata(tree.top().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(["", "var/lib", "var/lib/a", "usr/bin/a", "etc/a"].map(mode), [0o755, 0o755, 0o700, 0o755, 0o644]);
        assert_eq!(tree.files_in("etc").unwrap(), ["/etc/a", "/etc/b"]);
        assert!(tree.kib().unwrap() >= 6);
    }
}
