//! No circles between the modules of a room: imports go one way, a parent and what lies below it excepted.
//!
//! Each crate's modules are read from its sources, and every path that names another module (`use` and inline paths
//! alike) is followed through re-exports to the module that defines the item. What a macro's arguments name is not
//! seen, nor is the use of a method whose `impl` stands in another module. Tests (`cfg(test)`) may import what they
//! like.
//!
//! A folder counts as one thing beside its neighbours: if `a` imports `b::x` and `b::y` imports `a`, then `a` and `b`
//! are a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use petgraph::algo::{greedy_feedback_arc_set, tarjan_scc};
use petgraph::graphmap::DiGraphMap;
use petgraph::stable_graph::StableDiGraph;
use petgraph::visit::EdgeRef;
use syn::visit::{self, Visit};

use super::Finding;

/// How many re-exports one path is followed through.
const RE_EXPORTS_MAX: usize = 16;

/// Every crate of the work tree.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for room in rooms(root)? {
        for main in ["lib.rs", "main.rs"] {
            let file = room.join("src").join(main);
            if file.exists() {
                let modules = Modules::read(&file)?;
                let place = room.strip_prefix(root).unwrap_or(&room).display().to_string();
                findings.extend(modules.circles().into_iter().map(|circle| Finding::fails(&place, circle)));
            }
        }
    }
    Ok(findings)
}

fn rooms(root: &Path) -> Result<Vec<PathBuf>> {
    let mut rooms = vec![root.join("fuzz"), root.join("xtask")];
    for entry in fs::read_dir(root.join("crates")).context("read crates")? {
        rooms.push(entry?.path());
    }
    rooms.sort();
    Ok(rooms)
}

/// Between neighbours: which file of one names which of the other.
type Arrows<'a> = BTreeMap<(&'a str, &'a str), Vec<(usize, usize)>>;

/// One file of a crate.
#[derive(Debug, Default)]
struct Module {
    /// Its names from the crate's root on.
    path: Vec<String>,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Items that are defined here.
    items: BTreeSet<String>,
    /// Names that a `use` brings in here, private ones too, since modules below may name them; with the whole path.
    imports: BTreeMap<String, Vec<String>>,
    /// What `use path::*` names.
    globs: Vec<Vec<String>>,
    /// Every path that is written here, as it is written.
    mentions: BTreeSet<Vec<String>>,
}

/// All modules of one crate, the root first.
#[derive(Debug, Default)]
struct Modules {
    all: Vec<Module>,
}

impl Modules {
    fn read(main: &Path) -> Result<Self> {
        let mut modules = Self::default();
        let folder = main.parent().context("a source file lies in a folder")?;
        modules.read_file(main, folder, &[], None)?;
        Ok(modules)
    }

    /// Reads a file and those of the modules that it declares, which lie in `folder`.
    fn read_file(&mut self, file: &Path, folder: &Path, path: &[String], parent: Option<usize>) -> Result<usize> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let (number, declared) =
            self.add(&text, path.to_vec(), parent).with_context(|| format!("{}", file.display()))?;
        for name in declared {
            let below = folder.join(&name);
            let beside = folder.join(format!("{name}.rs"));
            let file = if beside.exists() { beside } else { below.join("mod.rs") };
            let path: Vec<_> = path.iter().chain([&name]).cloned().collect();
            let child = self.read_file(&file, &below, &path, Some(number))?;
            self.all[number].children.insert(name, child);
        }
        Ok(number)
    }

    /// Takes in one file's text; returns its number and the names of the modules that it declares.
    fn add(&mut self, text: &str, path: Vec<String>, parent: Option<usize>) -> Result<(usize, Vec<String>)> {
        let file = syn::parse_file(text).context("is no Rust")?;
        let mut reading = Reading { module: Module { path, parent, ..Module::default() }, declared: Vec::new() };
        reading.visit_file(&file);
        self.all.push(reading.module);
        Ok((self.all.len() - 1, reading.declared))
    }

    /// The module that defines what a path in `from` names; nothing for another crate's.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.all[from].parent?,
            name => self.step(from, name, depth)?,
        };
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at = self.all[at].parent?;
            } else if name != "self" {
                match self.step(at, name, depth) {
                    Some(next) => at = next,
                    None if self.all[at].items.contains(name) => return Some(at),
                    None => return None,
                }
            }
            rest = after;
        }
        Some(at)
    }

    /// Where `name` leads from a module: to a child, or by an import to where it is defined.
    fn step(&self, at: usize, name: &str, depth: usize) -> Option<usize> {
        let module = &self.all[at];
        if let Some(child) = module.children.get(name) {
            return Some(*child);
        }
        if depth == 0 || module.items.contains(name) {
            return None;
        }
        if let Some(path) = module.imports.get(name) {
            // `use name::...` of another crate would otherwise lead to itself.
            return if path.first().is_some_and(|first| first == name) {
                None
            } else {
                self.resolve(at, path, depth - 1)
            };
        }
        let mut targets = module.globs.iter().filter_map(|glob| self.resolve(at, glob, depth - 1));
        targets.find(|target| *target != at && (self.all[*target].items.contains(name)))
    }

    /// Which modules each module names, ancestors and descendants apart.
    fn edges(&self) -> BTreeSet<(usize, usize)> {
        let mut edges = BTreeSet::new();
        for (from, module) in self.all.iter().enumerate() {
            for path in &module.mentions {
                if let Some(to) = self.resolve(from, path, RE_EXPORTS_MAX)
                    && !self.is_below(from, to)
                    && !self.is_below(to, from)
                {
                    edges.insert((from, to));
                }
            }
        }
        edges
    }

    fn is_below(&self, module: usize, above: usize) -> bool {
        self.all[module].path.starts_with(&self.all[above].path)
    }

    /// A line for each set of neighbours that import each other in a circle.
    fn circles(&self) -> Vec<String> {
        // Neighbours by their common parent's path; between them, which file names which.
        let mut levels: BTreeMap<&[String], Arrows<'_>> = BTreeMap::new();
        for (from, to) in self.edges() {
            let (a, b) = (&self.all[from].path, &self.all[to].path);
            let common = a.iter().zip(b).take_while(|(one, other)| one == other).count();
            let level = levels.entry(&a[..common]).or_default();
            level.entry((&a[common], &b[common])).or_default().push((from, to));
        }
        let mut circles = Vec::new();
        for (parent, edges) in &levels {
            let graph: DiGraphMap<&str, ()> = edges.keys().copied().collect();
            for mut circle in tarjan_scc(&graph).into_iter().filter(|found| found.len() > 1) {
                circle.sort_unstable();
                circles.push(self.told(parent, &circle, edges));
            }
        }
        circles
    }

    /// Names a circle, and of its imports a small set without which there were none.
    fn told(&self, parent: &[String], circle: &[&str], edges: &Arrows<'_>) -> String {
        let prefix = parent.iter().map(|name| format!("{name}::")).collect::<String>();
        let within = edges.keys().filter(|(from, to)| circle.contains(from) && circle.contains(to));
        let graph: StableDiGraph<(), ()> = {
            let number = |name| circle.iter().position(|other| *other == name).unwrap_or_default() as u32;
            StableDiGraph::from_edges(within.map(|(from, to)| (number(*from), number(*to))))
        };
        let cuts = greedy_feedback_arc_set(&graph)
            .flat_map(|cut| &edges[&(circle[cut.source().index()], circle[cut.target().index()])]);
        let cuts = cuts.map(|(from, to)| format!("\n    {} -> {}", self.all[*from].name(), self.all[*to].name()));
        format!(
            "modules import each other in a circle: {prefix}{{{}}}; move what is shared below them. Cut, for instance:{}",
            circle.join(", "),
            cuts.collect::<String>()
        )
    }
}

impl Module {
    fn name(&self) -> String {
        self.path.join("::")
    }
}

/// Collects what one file says.
struct Reading {
    module: Module,
    declared: Vec<String>,
}

impl Reading {
    fn import(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Name(name) => self.imported(name.ident.to_string(), name.ident.to_string(), before),
            syn::UseTree::Rename(rename) => {
                self.imported(rename.ident.to_string(), rename.rename.to_string(), before);
            }
            syn::UseTree::Glob(_) => {
                self.module.globs.push(before.clone());
                self.module.mentions.insert(before.clone());
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before);
                }
            }
        }
    }

    fn imported(&mut self, name: String, local: String, before: &[String]) {
        let (path, local) = if name == "self" {
            (before.to_vec(), before.last().cloned().unwrap_or(local))
        } else {
            (before.iter().cloned().chain([name]).collect::<Vec<_>>(), local)
        };
        self.module.mentions.insert(path.clone());
        self.module.imports.insert(local, path);
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reading {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes_of(item)) {
            return;
        }
        let name = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            syn::Item::Mod(item) if item.content.is_some() => Some(&item.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        self.module.items.extend(name.map(ToString::to_string));
        match item {
            syn::Item::Mod(module) if module.content.is_none() => self.declared.push(module.ident.to_string()),
            syn::Item::Use(item) => self.import(&item.tree, &mut Vec::new()),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.module.mentions.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    /// The circles of a crate of these files.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Modules::read(&folder.path().join("lib.rs")).unwrap().circles()
    }

    #[track_caller]
    fn assert_circle(files: &[(&str, &str)], names: &str) {
        let found = circles(files);
        assert!(found.len() == 1 && found[0].contains(&format!("circle: {names};")), "{names}: {found:?}");
    }

    #[test]
    fn imports_one_way_pass_and_parents_may_know_their_children() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a.rs", "mod inner; use crate::b::B; pub struct A(B, inner::I);"),
            ("a/inner.rs", "use super::A; use crate::b::B; pub struct I(Option<Box<A>>, B);"),
            ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
        ];
        assert_eq!(circles(&files), [""; 0]);
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        let a = ("a.rs", "use crate::b::B; pub struct A; pub fn f(_: B) {}");
        for b in [
            "use crate::a::A; pub struct B(A);",
            "use super::a::{self, f}; pub struct B;",
            "pub struct B(crate::a::A);",
            "pub struct B; impl B { fn g() { crate::a::f(B) } }",
            "use crate::A; pub struct B(A);",
            "use crate::a::*; pub struct B(A);",
            "pub struct B; fn g() { use crate::Renamed; }",
        ] {
            assert_circle(&[("lib.rs", "mod a; mod b; pub use a::{A, A as Renamed};"), a, ("b.rs", b)], "{a, b}");
        }
    }

    #[test]
    fn a_folder_is_one_thing_beside_its_neighbours() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::x::X; pub struct A;"),
            ("b.rs", "pub mod x; mod y;"),
            ("b/x.rs", "pub struct X;"),
            ("b/y.rs", "use crate::a::A;"),
        ];
        assert_circle(&files, "{a, b}");
    }

    #[test]
    fn circles_within_a_folder_are_named_with_it() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a.rs", "pub mod x; pub mod y; pub mod z;"),
            ("a/x.rs", "use super::y::Y; pub struct X;"),
            ("a/y.rs", "use super::z::Z; pub struct Y;"),
            ("a/z/mod.rs", "use super::x::X; pub struct Z;"),
        ];
        assert_circle(&files, "a::{x, y, z}");
    }

    #[test]
    fn other_crates_are_no_neighbours() {
        let files = [
            ("lib.rs", "mod io; mod b;"),
            ("io.rs", "use crate::b::B; pub struct Error(B);"),
            ("b.rs", "use std::io; pub struct B(io::Error, std::io::ErrorKind);"),
        ];
        assert_eq!(circles(&files), [""; 0]);
    }
}
