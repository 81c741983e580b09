//! Which crate may depend on which: the drawing in docs/ARCHITECTURE.md as a table.
//!
//! A room uses rooms below it, never one beside it. What is not in the table is not allowed, so a new crate begins with
//! a line here and in the drawing. Tests obey the same table: a test that needs a room above lives there. Since every
//! edge is checked, what a room links through others is bounded by the table too.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Finding;

/// One crate and what it may use.
struct Room {
    name: &'static str,
    /// Rooms that it may use.
    below: &'static [&'static str],
    /// Crates from outside that would bring in what this room must not know, by the beginning of their name.
    banned: &'static [&'static str],
}

const TERMINAL: [&str; 3] = ["anyhow", "clap", "indicatif"];

const ROOMS: [Room; 18] = [
    Room {
        name: "capstan-format",
        below: &[],
        // Pure bytes: no I/O, no clock.
        banned: &["anyhow", "clap", "indicatif", "rustix", "libc", "jiff", "tempfile"],
    },
    Room { name: "capstan-tape", below: &["capstan-format"], banned: &TERMINAL },
    Room { name: "capstan-keys", below: &["capstan-format"], banned: &TERMINAL },
    Room { name: "capstan-catalog", below: &["capstan-format"], banned: &TERMINAL },
    Room {
        name: "capstan-mover",
        below: &["capstan-format", "capstan-tape"],
        // It moves blocks and reports them; what becomes of the report is the director's business.
        banned: &["anyhow", "clap", "indicatif", "rusqlite", "parquet", "argon2", "etcd", "kmip"],
    },
    Room {
        name: "capstan-director",
        below: &[
            "capstan-format",
            "capstan-tape",
            "capstan-keys",
            "capstan-catalog",
            "capstan-mover",
            "capstan-schedule",
        ],
        banned: &TERMINAL,
    },
    // Functions of time: it reads no clock, and so nothing of a machine.
    Room {
        name: "capstan-schedule",
        below: &[],
        banned: &["anyhow", "clap", "indicatif", "rustix", "libc", "tokio", "rusqlite"],
    },
    // A machine whose data is backed up: it has neither catalog nor drives, and serves nobody.
    Room {
        name: "capstan-client",
        below: &["capstan-format", "capstan-keys", "capstan-mover"],
        banned: &["anyhow", "clap", "indicatif", "tokio", "axum", "rusqlite", "parquet"],
    },
    // It decides when and what first; how a backup is made is for its worker to know.
    Room {
        name: "capstan-server",
        below: &[
            "capstan-keys",
            "capstan-catalog",
            "capstan-schedule",
            "capstan-mover",
            "capstan-director",
            "capstan-service",
            "capstan-client",
        ],
        banned: &["anyhow", "clap", "indicatif", "rusqlite", "parquet"],
    },
    Room { name: "capstan-lab", below: &["capstan-format", "capstan-tape", "capstan-mover"], banned: &TERMINAL },
    Room { name: "capstan-vtl", below: &["capstan-format", "capstan-tape", "capstan-keys"], banned: &TERMINAL },
    // A protocol: what lies behind it is for whoever serves it to say.
    Room { name: "capstan-kmip", below: &[], banned: &["anyhow", "clap", "indicatif", "tokio", "rusqlite", "rustls"] },
    // Peers and requests, whatever is asked for: no store and no ledger.
    Room {
        name: "capstan-service",
        below: &["capstan-format", "capstan-keys"],
        banned: &["anyhow", "clap", "indicatif", "rusqlite", "etcd", "kmip"],
    },
    // People before a terminal: it asks nodes, and has nothing of what a node is.
    Room {
        name: "capstan-officer",
        below: &["capstan-format", "capstan-keys"],
        banned: &["indicatif", "axum", "tokio", "rusqlite", "etcd", "kmip"],
    },
    // A node gives out keys and links no tape code.
    Room {
        name: "capstan-keyd",
        below: &["capstan-format", "capstan-keys", "capstan-kmip", "capstan-service", "capstan-officer"],
        banned: &["indicatif"],
    },
    Room {
        name: "capstan-cli",
        // It acts through the first six, and shows what they say in the words of the rooms below them.
        below: &[
            "capstan-server",
            "capstan-client",
            "capstan-director",
            "capstan-lab",
            "capstan-vtl",
            "capstan-officer",
            "capstan-catalog",
            "capstan-format",
            "capstan-keys",
            "capstan-mover",
            "capstan-tape",
        ],
        banned: &[],
    },
    Room {
        name: "capstan-fuzz",
        // Hostile bytes go in where a room takes bytes, and through the director where they go through all of them.
        below: &[
            "capstan-format",
            "capstan-tape",
            "capstan-keys",
            "capstan-catalog",
            "capstan-mover",
            "capstan-client",
            "capstan-director",
            "capstan-vtl",
            "capstan-kmip",
            "capstan-service",
            "capstan-keyd",
        ],
        banned: &TERMINAL,
    },
    // What compares and measures the product drives it from outside; only its data sets come from the laboratory.
    Room { name: "xtask", below: &["capstan-lab"], banned: &[] },
];

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// Where a crate of this work tree lies; nothing for one from a registry.
    path: Option<String>,
}

/// Reads the workspace and compares it with the table.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root).output().context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let mut findings: Vec<Finding> = metadata.packages.iter().flat_map(edges_not_drawn).collect();
    findings.extend(manifests(root)?);
    Ok(findings)
}

fn edges_not_drawn(package: &Package) -> Vec<Finding> {
    let place = &package.name;
    let Some(room) = ROOMS.iter().find(|room| room.name == package.name) else {
        let text =
            "is no room that the architecture draws; add it to docs/ARCHITECTURE.md and to xtask/src/tidy/rooms.rs";
        return vec![Finding::fails(place, text)];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        if dependency.path.is_some() && !room.below.contains(&name) {
            findings
                .push(Finding::fails(place, format!("must not use {name}: docs/ARCHITECTURE.md draws no such arrow")));
        }
        if dependency.path.is_none() && room.banned.iter().any(|banned| name.starts_with(banned)) {
            findings.push(Finding::fails(place, format!("must not use {name}: that belongs in another room")));
        }
    }
    findings
}

/// Every crate takes its lints and its dependencies from the workspace, and docs/DEPENDENCIES.md knows each of these.
fn manifests(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("read {name}"));
    let known = read("docs/DEPENDENCIES.md")?;
    for name in names_in_table(&read("Cargo.toml")?, "[workspace.dependencies]") {
        if !name.starts_with("capstan-") && !known.contains(&format!("`{name}`")) {
            findings.push(Finding::fails(
                "docs/DEPENDENCIES.md",
                format!("says nothing of {name}: why it, and what was second?"),
            ));
        }
    }
    let mut members = vec!["fuzz/Cargo.toml".to_owned(), "xtask/Cargo.toml".to_owned()];
    for entry in std::fs::read_dir(root.join("crates"))? {
        members.push(format!("crates/{}/Cargo.toml", entry?.file_name().to_string_lossy()));
    }
    for member in members {
        findings.extend(manifest(&member, &read(&member)?));
    }
    Ok(findings)
}

fn manifest(place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.contains("[lints]\nworkspace = true") {
        findings.push(Finding::fails(place, "does not take the workspace's lints: add [lints] workspace = true"));
    }
    for table in ["[dependencies]", "[dev-dependencies]", "[build-dependencies]"] {
        for line in lines_in_table(text, table) {
            if !line.contains("workspace = true") {
                findings.push(Finding::fails(
                    place,
                    format!("{line:?}: versions stand in the workspace's Cargo.toml alone"),
                ));
            }
        }
    }
    findings
}

/// The lines of one table of a manifest, without comments. Our manifests keep one dependency a line.
fn lines_in_table<'a>(text: &'a str, table: &'a str) -> impl Iterator<Item = &'a str> {
    let after = text.lines().skip_while(move |line| *line != table).skip(1);
    after.take_while(|line| !line.starts_with('[')).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn names_in_table<'a>(text: &'a str, table: &'a str) -> impl Iterator<Item = &'a str> {
    lines_in_table(text, table).filter_map(|line| line.split([' ', '.', '=']).next())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency =
            |&(name, path): &(&str, Option<&str>)| Dependency { name: name.into(), path: path.map(Into::into) };
        Package { name: name.into(), dependencies: dependencies.iter().map(dependency).collect() }
    }

    #[test]
    fn drawn_edges_pass() {
        let mover = [("capstan-format", Some("/format")), ("capstan-tape", Some("/tape")), ("rustix", None)];
        assert_eq!(edges_not_drawn(&package("capstan-mover", &mover)), []);
    }

    #[test]
    fn edges_beside_and_upwards_fail() {
        for (room, other) in [
            ("capstan-mover", "capstan-catalog"),
            ("capstan-mover", "capstan-keys"),
            ("capstan-keys", "capstan-tape"),
            ("capstan-tape", "capstan-keys"),
            ("capstan-format", "capstan-tape"),
            ("capstan-catalog", "capstan-mover"),
            ("capstan-cli", "capstan-kmip"),
            ("xtask", "capstan-format"),
        ] {
            let findings = edges_not_drawn(&package(room, &[(other, Some("/other"))]));
            assert_eq!(findings.len(), 1, "{room} -> {other}");
        }
    }

    #[test]
    fn banned_crates_and_unknown_rooms_fail() {
        assert_eq!(edges_not_drawn(&package("capstan-mover", &[("rusqlite", None)])).len(), 1);
        assert_eq!(edges_not_drawn(&package("capstan-format", &[("rustix", None)])).len(), 1);
        assert_eq!(edges_not_drawn(&package("capstan-common", &[])).len(), 1);
    }

    #[test]
    fn a_manifest_takes_lints_and_versions_from_the_workspace() {
        let good = "[lints]\nworkspace = true\n\n[dependencies]\n# why\nrustix.workspace = true\n";
        assert_eq!(manifest("good", good), []);
        assert_eq!(manifest("bad", "[dependencies]\nrustix = \"1\"\n").len(), 2);
    }

    #[test]
    fn names_of_dependencies_are_found() {
        let text = "[workspace.dependencies]\n# one\na-b = \"1\"\nc = { version = \"2\" }\n\nd.workspace = true\n[profile.dev]\ne = 1\n";
        assert_eq!(names_in_table(text, "[workspace.dependencies]").collect::<Vec<_>>(), ["a-b", "c", "d"]);
    }
}
