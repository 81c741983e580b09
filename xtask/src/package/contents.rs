//! What goes into each package, and where to.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::licences::Metadata;
use super::said;
use super::tree::Tree;

/// A package, which has one program.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    /// The crate that it is made from.
    room: &'static str,
    /// Files of the work tree, and where they go. A place that ends with `/` is a folder.
    files: &'static [(&'static str, &'static str)],
    /// Empty folders that only root may enter.
    private: &'static [&'static str],
}

const UNITS: &str = "usr/lib/systemd/system/";

/// Two packages, since a key node stands apart from the machines that it gives keys to, and they are upgraded
/// differently: a server may be restarted at any time, and a node is locked until its holders unlock it.
pub(super) const PACKAGES: &[Package] = &[
    Package {
        name: "capstan",
        program: "capstan",
        room: "capstan-cli",
        files: &[
            ("packaging/capstan-server.service", UNITS),
            ("packaging/capstan-client.service", UNITS),
            ("packaging/capstan-mover.service", UNITS),
            ("packaging/capstan-backup@.service", UNITS),
            ("packaging/capstan-backup@.timer", UNITS),
            ("packaging/needrestart-capstan.conf", "etc/needrestart/conf.d/capstan.conf"),
            ("crates/server/alerts.yml", "usr/share/doc/capstan/examples/"),
            ("crates/server/dashboard.json", "usr/share/doc/capstan/examples/"),
        ],
        private: &["etc/capstan", "var/lib/capstan"],
    },
    Package {
        name: "capstan-keyd",
        program: "keyd",
        room: "capstan-keyd",
        files: &[
            ("packaging/keyd.service", UNITS),
            ("packaging/keyd.sysusers", "usr/lib/sysusers.d/keyd.conf"),
            ("packaging/keyd.tmpfiles", "usr/lib/tmpfiles.d/keyd.conf"),
            ("packaging/needrestart.conf", "etc/needrestart/conf.d/capstan-keyd.conf"),
            ("packaging/etcd.service", "usr/share/doc/capstan-keyd/examples/"),
            ("packaging/keyd-token.conf", "usr/share/doc/capstan-keyd/examples/"),
            ("crates/keyd/alerts.yml", "usr/share/doc/capstan-keyd/examples/"),
        ],
        private: &[],
    },
];

/// Makes the tree of a package's files in a folder that does not exist yet.
pub(super) fn tree(package: &Package, root: &Path, programs: &Path, crates: &Metadata, folder: &Path) -> Result<Tree> {
    let tree = Tree::new(folder)?;
    let built = programs.join(package.program);
    let program = tree.place(&format!("usr/bin/{}", package.program), 0o755)?;
    said(Command::new("strip").arg("-o").arg(&program).arg(&built))?;
    for (from, to) in package.files {
        let name = from.rsplit('/').next().unwrap_or(from);
        let to = if to.ends_with('/') { format!("{to}{name}") } else { (*to).to_owned() };
        tree.copy(&root.join(from), &to)?;
    }
    for folder in package.private {
        tree.folder(folder, 0o700)?;
    }
    manual(package, &tree, &program)?;
    completions(package, &tree, &program)?;
    documents(package, root, crates, &tree)?;
    tree.set_modes()?;
    Ok(tree)
}

/// A page for each command.
fn manual(package: &Package, tree: &Tree, program: &Path) -> Result<()> {
    let folder = tree.folder("usr/share/man/man1", 0o755)?;
    said(Command::new(program).args(["man", "--dir"]).arg(&folder)).with_context(|| package.program.to_owned())?;
    compress(&folder, &["1"])
}

fn completions(package: &Package, tree: &Tree, program: &Path) -> Result<()> {
    let name = package.program;
    for (shell, to) in [
        ("bash", format!("usr/share/bash-completion/completions/{name}")),
        ("zsh", format!("usr/share/zsh/vendor-completions/_{name}")),
        ("fish", format!("usr/share/fish/vendor_completions.d/{name}.fish")),
    ] {
        let text = said(Command::new(program).args(["completions", shell]))?;
        fs::write(tree.place(&to, 0o644)?, text)?;
    }
    Ok(())
}

/// Our licence, those of others, what changed, and the pages of `docs`.
fn documents(package: &Package, root: &Path, crates: &Metadata, tree: &Tree) -> Result<()> {
    let place = format!("usr/share/doc/{}", package.name);
    tree.copy(&root.join("packaging/copyright"), &format!("{place}/copyright"))?;
    tree.copy(&root.join("CHANGELOG.md"), &format!("{place}/changelog"))?;
    fs::write(tree.place(&format!("{place}/licences"), 0o644)?, crates.licences(package.room)?)?;
    compress(&tree.folder(&place, 0o755)?, &["changelog", "licences"])?;
    if package.name == "capstan" {
        for entry in fs::read_dir(root.join("docs"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            tree.copy(&root.join("docs").join(&name), &format!("{place}/docs/{name}"))?;
        }
    }
    Ok(())
}

/// Compresses the files of a folder whose names end so, without names and times in them.
fn compress(folder: &Path, ends: &[&str]) -> Result<()> {
    let mut gzip = Command::new("gzip");
    gzip.args(["--best", "--no-name"]);
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if ends.iter().any(|end| path.to_string_lossy().ends_with(end)) {
            gzip.arg(path);
        }
    }
    said(&mut gzip).map(|_| ())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn every_file_that_a_package_names_is_there_and_every_file_is_in_a_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let packed: Vec<_> = PACKAGES.iter().flat_map(|package| package.files).map(|(from, _)| *from).collect();
        for file in &packed {
            assert!(root.join(file).is_file(), "{file}");
        }
        let texts = ["control", "postinst", "prerm", "postrm"];
        for entry in fs::read_dir(root.join("packaging")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let own = PACKAGES.iter().flat_map(|package| texts.map(|end| format!("{}.{end}", package.name)));
            let known = ["Containerfile", "copyright"].contains(&name.as_str())
                || packed.contains(&format!("packaging/{name}").as_str())
                || own.into_iter().any(|own| own == name);
            assert!(known, "packaging/{name} is in no package");
        }
    }
}
