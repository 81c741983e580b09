//! The licences of other people's code in a program: most of them want their text to go wherever the code goes.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::said;

/// What cargo says of all crates.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Crate {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// Nothing for ours.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

/// Nothing for what is linked; `dev` for tests, `build` for what runs while something is built.
#[derive(Debug, Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Metadata {
    /// Asks cargo.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let platform = format!("{}-unknown-linux-gnu", env::consts::ARCH);
        cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform]);
        serde_json::from_str(&said(cargo.current_dir(root))?).context("read cargo metadata")
    }

    /// The licences of what a crate of ours is linked with: each text once, below the crates that have it.
    pub(super) fn licences(&self, of: &str) -> Result<String> {
        let linked = self.linked(of);
        let mut texts = BTreeMap::<String, Vec<String>>::new();
        for other in self.packages.iter().filter(|other| other.source.is_some() && linked.contains(&other.id)) {
            let licence = other.license.as_deref().unwrap_or("see its text");
            let title = format!("{} {} ({licence})", other.name, other.version);
            for text in texts_in(other.manifest_path.parent().context("a manifest lies in a folder")?)? {
                texts.entry(text).or_default().push(title.clone());
            }
        }
        let shown = texts.iter().map(|(text, crates)| format!("{}\n\n{}\n", crates.join("\n"), text.trim_end()));
        let rule = format!("\n{}\n\n", "=".repeat(80));
        Ok(shown.collect::<Vec<_>>().join(&rule))
    }

    /// The crates that are linked into the programs of one, itself among them.
    fn linked(&self, name: &str) -> BTreeSet<&String> {
        let nodes: BTreeMap<_, _> = self.resolve.nodes.iter().map(|node| (&node.id, node)).collect();
        let mut open: Vec<_> = self.packages.iter().filter(|one| one.name == name).map(|one| &one.id).collect();
        let mut found = BTreeSet::new();
        while let Some(id) = open.pop() {
            if found.insert(id) {
                let edges = nodes.get(id).into_iter().flat_map(|node| &node.deps);
                let edges = edges.filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none()));
                open.extend(edges.map(|edge| &edge.pkg));
            }
        }
        found
    }
}

/// What a crate says of its licence.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_licence =
            ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"].iter().any(|word| name.starts_with(word));
        if is_licence && path.is_file() {
            texts.push(String::from_utf8_lossy(&fs::read(&path)?).into_owned());
        }
    }
    texts.sort();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn what_is_linked_counts_and_what_only_builds_or_tests_does_not() {
        let edge = |id: &str, kind: &str| format!(r#"{{"pkg": "{id}", "dep_kinds": [{{"kind": {kind}}}]}}"#);
        let of_ours = [edge("b", "null"), edge("c", "\"build\""), edge("d", "\"dev\"")].join(", ");
        let text = format!(
            r#"{{"packages": [{{"id": "a", "name": "ours", "version": "1", "manifest_path": "/a/Cargo.toml"}}],
            "resolve": {{"nodes": [{{"id": "a", "deps": [{of_ours}]}}, {{"id": "b", "deps": [{}]}}]}}}}"#,
            edge("e", "null")
        );
        let metadata: Metadata = serde_json::from_str(&text).unwrap();
        assert_eq!(Vec::from_iter(metadata.linked("ours")), ["a", "b", "e"]);
    }
}
