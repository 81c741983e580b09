//! Golden volumes are only added to: what an old release wrote is the proof that a new one still reads it.
//!
//! The reference is the last release's tag. Before the first release nothing is in anybody's hands, and nothing is
//! frozen.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Finding;

const GOLDEN: &str = "testdata/format-v*/**";

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    if !root.join(".git").exists() {
        return Ok(vec![Finding::warns(
            "testdata",
            "this is no git work tree, so changes to golden volumes go unseen",
        )]);
    }
    let Some(release) = last_release(root)? else { return Ok(Vec::new()) };
    let changes = git(root, &["diff", "--name-status", "--no-renames", "--diff-filter=a", &release, "--", GOLDEN])?;
    let changed = changes.lines().filter_map(|line| line.split_once('\t'));
    let finding =
        |(_, path)| Finding::fails(path, format!("differs from release {release}; golden volumes are only added to"));
    Ok(changed.map(finding).collect())
}

/// The latest tag of a release before this commit.
fn last_release(root: &Path) -> Result<Option<String>> {
    let tags = git(root, &["tag", "--list", "v[0-9]*", "--merged", "HEAD", "--sort=-version:refname"])?;
    Ok(tags.lines().next().map(str::to_owned))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().context("run git")?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn commit(root: &Path) {
        git(root, &["add", "--all"]).unwrap();
        git(root, &["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "-m", "change"]).unwrap();
    }

    #[test]
    fn a_golden_volume_may_be_added_and_never_changed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        git(root, &["init", "--quiet"]).unwrap();
        let golden = root.join("testdata/format-v1");
        std::fs::create_dir_all(&golden).unwrap();
        std::fs::write(golden.join("one.tape"), "before the release").unwrap();
        commit(root);
        std::fs::write(golden.join("one.tape"), "released").unwrap();
        std::fs::write(golden.join("two.tape"), "released").unwrap();
        assert_eq!(check(root).unwrap(), [], "nothing is frozen before a release");
        commit(root);
        git(root, &["tag", "v0.1.0"]).unwrap();

        std::fs::write(golden.join("three.tape"), "added").unwrap();
        std::fs::write(root.join("testdata/other"), "elsewhere").unwrap();
        commit(root);
        assert_eq!(check(root).unwrap(), [], "additions are welcome");

        std::fs::write(golden.join("one.tape"), "changed").unwrap();
        std::fs::remove_file(golden.join("two.tape")).unwrap();
        let places: Vec<_> = check(root).unwrap().into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["testdata/format-v1/one.tape", "testdata/format-v1/two.tape"]);
    }
}
