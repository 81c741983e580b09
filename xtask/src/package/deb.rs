//! From a tree of files to a `.deb`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::contents::Package;
use super::said;
use super::tree::Tree;

/// What is the same for all packages of one build.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) version: String,
    /// As dpkg names it: `amd64`.
    pub(super) architecture: String,
    /// Seconds since 1970: no file is younger.
    pub(super) epoch: String,
    pub(super) compression: Compression,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Compression {
    Fast,
    /// The smallest that every dpkg reads.
    Small,
}

/// What dpkg runs before and after it puts files there and takes them away.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes the package's file, `NAME_VERSION_ARCHITECTURE.deb`; gives where it is.
pub(super) fn build(package: &Package, root: &Path, tree: &Tree, facts: &Facts, out: &Path) -> Result<PathBuf> {
    let name = package.name;
    let texts = root.join("packaging");
    let control =
        fs::read_to_string(texts.join(format!("{name}.control"))).with_context(|| format!("{name}.control"))?;
    let mut files = vec![("control", filled_in(&control, facts, &libraries(package, tree)?, tree.kib()?)?, 0o644)];
    let settings = tree.files_in("etc")?;
    if !settings.is_empty() {
        files.push(("conffiles", settings.join("\n") + "\n", 0o644));
    }
    for script in SCRIPTS {
        let text =
            fs::read_to_string(texts.join(format!("{name}.{script}"))).with_context(|| format!("{name}.{script}"))?;
        files.push((script, text, 0o755));
    }
    let about = tree.folder("DEBIAN", 0o755)?;
    fs::set_permissions(&about, Permissions::from_mode(0o755))?;
    for (file, text, mode) in files {
        let path = about.join(file);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    let file = out.join(format!("{name}_{}_{}.deb", facts.version, facts.architecture));
    let how: &[&str] = match facts.compression {
        Compression::Fast => &["-Zzstd", "-z1"],
        Compression::Small => &["-Zxz"],
    };
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--root-owner-group").args(how).arg("--build").arg(tree.top()).arg(&file);
    said(dpkg.env("SOURCE_DATE_EPOCH", &facts.epoch))?;
    Ok(file)
}

/// The text of a package, whose blanks are `${version}`, `${architecture}`, `${libraries}` and `${installed-size}`.
fn filled_in(control: &str, facts: &Facts, libraries: &str, kib: u64) -> Result<String> {
    let text = control
        .replace("${version}", &facts.version)
        .replace("${architecture}", &facts.architecture)
        .replace("${libraries}", libraries)
        .replace("${installed-size}", &kib.to_string());
    ensure!(!text.contains("${"), "a blank of this is unknown:\n{text}");
    Ok(text)
}

/// The packages that have the libraries which the program was linked with, and the versions from which on they do.
fn libraries(package: &Package, tree: &Tree) -> Result<String> {
    // It wants to stand where a source package is.
    let source = tempfile::tempdir()?;
    fs::create_dir(source.path().join("debian"))?;
    let about = format!("Source: {0}\n\nPackage: {0}\nArchitecture: any\n", package.name);
    fs::write(source.path().join("debian/control"), about)?;
    let program = tree.top().join("usr/bin").join(package.program);
    let line = said(Command::new("dpkg-shlibdeps").arg("-O").arg("-e").arg(program).current_dir(source.path()))?;
    let libraries = line.trim().strip_prefix("shlibs:Depends=").map(str::to_owned);
    libraries.with_context(|| format!("dpkg-shlibdeps tells no libraries of {}: {line}", package.program))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn blanks_are_filled_in_and_none_is_left() {
        let (version, architecture) = ("1.2.3".to_owned(), "arm64".to_owned());
        let facts = Facts { version, architecture, epoch: String::new(), compression: Compression::Fast };
        let text =
            "Version: ${version}\nArchitecture: ${architecture}\nDepends: ${libraries}\nSize: ${installed-size}\n";
        let expected = "Version: 1.2.3\nArchitecture: arm64\nDepends: libc6 (>= 2.34)\nSize: 7\n";
        assert_eq!(filled_in(text, &facts, "libc6 (>= 2.34)", 7).unwrap(), expected);
        assert!(filled_in("Name: ${name}\n", &facts, "", 0).is_err());
    }
}
