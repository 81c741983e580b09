//! The name of a public type means one thing: no two rooms, and no two modules of a room, define one of the same name.
//!
//! Whoever reads `Extent` in one room and `Extent` in the next one takes them for the same thing, and a file that needs
//! both must rename one. Structs, enums, unions, traits and type aliases count that are `pub`; what is `pub(crate)` or
//! private is a matter of its room. A type that belongs to a trait (`type Target` of `Deref`) is not a name of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::{self, Visit};

use super::Finding;

/// Names that several rooms may have: they are always read with their room's name, as in the standard library.
const OWN_IN_EACH_ROOM: [&str; 2] = ["Error", "Result"];

/// Every room's sources.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut defined = Defined::default();
    for entry in fs::read_dir(root.join("crates")).context("read crates")? {
        defined.read_folder(root, &entry?.path().join("src"))?;
    }
    Ok(defined.findings())
}

/// Where public types are defined, by their names.
#[derive(Debug, Default)]
struct Defined {
    names: BTreeMap<String, Vec<String>>,
}

impl Defined {
    fn read_folder(&mut self, root: &Path, folder: &Path) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.read_folder(root, &path)?;
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                let place = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                self.read(place, &text)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, place: String, text: &str) -> Result<()> {
        let file = syn::parse_file(text).with_context(|| format!("{place} is no Rust"))?;
        FileNames { place, defined: self }.visit_file(&file);
        Ok(())
    }

    fn findings(&self) -> Vec<Finding> {
        let doubled = self.names.iter().filter(|(_, places)| places.len() > 1);
        let doubled = doubled.filter(|(name, _)| !OWN_IN_EACH_ROOM.contains(&name.as_str()));
        let text = |name, places: &[String]| {
            format!("`{name}` is also a public type in {}; a name means one thing, rename one", places.join(", "))
        };
        doubled.map(|(name, places)| Finding::fails(&places[0], text(name, &places[1..]))).collect()
    }
}

/// Collects the names of one file.
struct FileNames<'a> {
    place: String,
    defined: &'a mut Defined,
}

impl FileNames<'_> {
    fn define(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.defined.names.entry(name.to_string()).or_default().push(self.place.clone());
        }
    }
}

impl<'ast> Visit<'ast> for FileNames<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Enum(item) => self.define(&item.vis, &item.ident),
            syn::Item::Struct(item) => self.define(&item.vis, &item.ident),
            syn::Item::Trait(item) => self.define(&item.vis, &item.ident),
            syn::Item::Type(item) => self.define(&item.vis, &item.ident),
            syn::Item::Union(item) => self.define(&item.vis, &item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut defined = Defined::default();
        for (place, text) in files {
            defined.read((*place).to_owned(), text).unwrap();
        }
        defined.findings().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_defined_once() {
        let text = "pub struct Extent;\nimpl Deref for Extent { type Target = u8; }\n";
        assert_eq!(found(&[("tape.rs", text), ("mover.rs", "pub struct Run;\nuse tape::Extent;\n")]), [""; 0]);
        let two = found(&[("tape.rs", text), ("catalog.rs", "mod inner { pub trait Extent {} }\n")]);
        assert!(two.len() == 1 && two[0].contains("error: tape.rs: `Extent`"), "{two:?}");
        assert!(two[0].contains("in catalog.rs;"), "{two:?}");
        for kind in ["enum Extent {}", "union Extent { a: u8 }", "type Extent = u8;"] {
            assert_eq!(found(&[("tape.rs", text), ("catalog.rs", &format!("pub {kind}"))]).len(), 1, "{kind}");
        }
    }

    #[test]
    fn what_a_room_keeps_to_itself_does_not_count() {
        let own = "pub struct Extent;";
        for other in ["struct Extent;", "pub(crate) struct Extent;", "pub fn extent() { struct Extent; }"] {
            assert_eq!(found(&[("a.rs", own), ("b.rs", other)]), [""; 0], "{other}");
        }
        assert_eq!(found(&[("a.rs", "pub enum Error {}"), ("b.rs", "pub enum Error {}")]), [""; 0]);
    }
}
