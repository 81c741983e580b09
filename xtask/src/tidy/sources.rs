//! Habits of the source files: length, module docs, reasons for exceptions, and what names a file must not have.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;

/// From here on a file is looked at twice.
const LINES_TO_WARN: usize = 400;
/// From here on it is two files.
const LINES_TO_FAIL: usize = 800;

/// Columns of code, comments and prose alike.
const WIDTH_MAX: usize = 120;

/// Documents that a program writes.
const GENERATED: [&str; 3] = ["JSON.md", "MODEL.md", "PERFORMANCE.md"];

/// Names that say nothing of what lies in a file.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "misc", "types", "helper", "helpers", "manager"];

/// Ways to I/O and to the clock, closed to the crate that is pure bytes.
const IMPURE: [&str; 6] = ["std::fs", "std::net", "std::time", "std::thread", "std::process", "std::env"];

/// Every source file under the folders that hold them.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "fuzz", "tests"] {
        collect(&root.join(folder), &mut files)?;
    }
    documents(&root.join("docs"), &mut files)?;
    files.extend(["README.md", "CHANGELOG.md"].map(|name| root.join(name)));
    files.sort();
    let mut findings = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let place = file.strip_prefix(root).unwrap_or(&file);
        findings.extend(check_file(place, &text));
    }
    Ok(findings)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if !matches!(entry.file_name().to_str(), Some("target" | "corpus" | "artifacts" | "__pycache__")) {
                collect(&path, files)?;
            }
        } else if matches!(path.extension().and_then(|end| end.to_str()), Some("rs" | "sh" | "py")) {
            files.push(path);
        }
    }
    Ok(())
}

/// The pages of a folder that people write.
fn documents(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".md") && !GENERATED.contains(&name) {
            files.push(path);
        }
    }
    Ok(())
}

fn check_file(path: &Path, text: &str) -> Vec<Finding> {
    let place = path.display().to_string();
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    let mut findings = Vec::new();
    let prose_begins_with = [("rs", "//"), ("md", "")];
    if let Some((_, marker)) = prose_begins_with.iter().find(|(of, _)| *of == end) {
        let wide = wide_lines(text, marker).map(|number| {
            let text =
                format!("wider than {WIDTH_MAX} columns; prose is no wider than code, drawings stand in a fence");
            Finding::fails(format!("{place}:{number}"), text)
        });
        findings.extend(wide);
    }
    if end == "md" {
        return findings;
    }
    let lines = text.lines().count();
    if lines > LINES_TO_FAIL {
        findings.push(Finding::fails(&place, format!("{lines} lines; by {LINES_TO_FAIL} a file is two")));
    } else if lines > LINES_TO_WARN {
        findings.push(Finding::warns(&place, format!("{lines} lines; a file has one noun and about {LINES_TO_WARN}")));
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if EMPTY_NAMES.contains(&stem) {
        findings.push(Finding::fails(&place, format!("{stem:?} says nothing; name the file after what it holds")));
    }
    if path.extension().is_some_and(|end| end == "rs") {
        findings.extend(check_rust(path, &place, text));
    }
    findings
}

/// The numbers of lines of prose, which begin with `marker`, that are too wide. Tables, and what stands in a fence, may
/// be.
fn wide_lines<'a>(text: &'a str, marker: &'a str) -> impl Iterator<Item = usize> + 'a {
    let mut in_fence = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let prose = line.trim_start().strip_prefix(marker)?.trim_start_matches(['/', '!']).trim_start();
        let is_fence = prose.starts_with("```");
        in_fence ^= is_fence;
        let is_wide = line.chars().count() > WIDTH_MAX;
        (is_wide && !in_fence && !is_fence && !prose.starts_with('|')).then_some(number)
    })
}

fn check_rust(path: &Path, place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !begins_with_module_doc(text) {
        findings.push(Finding::fails(place, "no module doc; begin with one sentence saying what this is (//!)"));
    }
    for (number, _) in (1..).zip(text.lines()).filter(|(_, line)| line.starts_with("pub use capstan_")) {
        let text = "re-exports another room's words; whoever needs them names that room";
        findings.push(Finding::fails(format!("{place}:{number}"), text));
    }
    for (number, attribute) in attributes(text) {
        let place = format!("{place}:{number}");
        if attribute == "#[ignore]" {
            findings.push(Finding::fails(&place, "an ignored test says why: #[ignore = \"...\"]"));
        }
        let exception =
            ["allow(", "expect("].iter().any(|word| attribute.trim_start_matches(['#', '!', '[']).starts_with(word));
        let exception = exception || (attribute.contains("cfg_attr(") && attribute.contains("allow("));
        if exception && !attribute.contains("reason") {
            findings.push(Finding::fails(&place, "an exception carries its reason: #[allow(..., reason = \"...\")]"));
        }
    }
    if path.starts_with("crates/format/src") {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in (1..).zip(product.lines()) {
            if let Some(way) = IMPURE.iter().find(|way| line.contains(**way)) {
                findings.push(Finding::fails(
                    format!("{place}:{number}"),
                    format!("{way}: format is pure bytes, no I/O, no clock"),
                ));
            }
        }
    }
    findings
}

/// Whether the first thing in a file, inner attributes apart, is its doc.
fn begins_with_module_doc(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("#!["));
    lines.next().is_some_and(|line| line.starts_with("//!") && line.len() > 4)
}

/// Attributes that begin a line, each with its line's number and, when it spans several, joined.
fn attributes(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let mut attribute = line.trim().to_owned();
        if !attribute.starts_with("#[") && !attribute.starts_with("#![") {
            continue;
        }
        while attribute.matches('[').count() > attribute.matches(']').count() {
            let Some((_, next)) = lines.next() else { break };
            attribute.push(' ');
            attribute.push_str(next.trim());
        }
        found.push((number, attribute));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        check_file(Path::new(path), text).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn assert_one(path: &str, text: &str, words: &str) {
        let texts = texts(path, text);
        assert!(texts.len() == 1 && texts[0].contains(words), "{words:?} is not what was found: {texts:?}");
    }

    #[test]
    fn a_room_re_exports_no_neighbour() {
        let found = |text: &str| check_file(Path::new("a.rs"), text).len();
        assert_eq!(found("//! A.\nuse capstan_tape::Drive;\npub use own::Word;\n"), 0);
        assert_eq!(found("//! A.\npub use capstan_tape::Drive;\n"), 1);
    }

    #[test]
    fn a_tidy_file_passes() {
        let text = "#![no_std]\n//! Labels.\n#[allow(dead_code, reason = \"read by C\")]\nfn f() {}\n#[ignore = \"needs a drive\"]\n";
        assert_eq!(texts("crates/tape/src/label.rs", text), [""; 0]);
    }

    #[test]
    fn length_is_bounded() {
        let lines = |count: usize| format!("//! Much.\n{}", "x();\n".repeat(count - 1));
        assert_eq!(texts("a.rs", &lines(400)), [""; 0]);
        assert_one("a.rs", &lines(401), "warning: a.rs: 401 lines");
        assert_one("a.rs", &lines(800), "warning: a.rs: 800 lines");
        assert_one("a.rs", &lines(801), "error: a.rs: 801 lines");
        assert_one("tests/sweep.py", &lines(801), "error");
    }

    #[test]
    fn prose_is_no_wider_than_code() {
        let (wide, drawing) = ("words ".repeat(21), "-".repeat(130));
        assert_one("a.rs", &format!("//! A.\n// {wide}\n"), "a.rs:2: wider");
        assert_one("docs/A.md", &format!("# A\n\n{wide}\n"), "docs/A.md:3: wider");
        let text = format!("//! A.\n//! ```text\n//! {drawing}\n//! ```\n//! | {wide} |\nlet a = \"{wide}\";\n");
        assert_eq!(texts("a.rs", &text), [""; 0]);
        assert_eq!(texts("docs/A.md", &format!("```\n{drawing}\n```\n| {wide} |\n")), [""; 0]);
    }

    #[test]
    fn each_habit_is_missed_when_it_is_missing() {
        assert_one("a.rs", "fn f() {}\n", "module doc");
        assert_one("a.rs", "//!\nfn f() {}\n", "module doc");
        assert_one("a.rs", "//! A.\n    #[ignore]\n", "a.rs:2: an ignored test");
        assert_one("a.rs", "//! A.\n#[allow(dead_code)]\n", "its reason");
        assert_one("a.rs", "//! A.\n#![expect(\n    dead_code,\n)]\n", "a.rs:2: an exception");
        assert_one("a.rs", "//! A.\n#[cfg_attr(test, allow(dead_code))]\n", "its reason");
        assert_one("util.rs", "//! A.\n", "says nothing");
    }

    #[test]
    fn format_touches_neither_disk_nor_clock() {
        let text = "//! A.\nuse std::time::Instant;\n#[cfg(test)]\nuse std::fs;\n";
        assert_one("crates/format/src/label.rs", text, "label.rs:2: std::time");
        assert_eq!(texts("crates/tape/src/label.rs", text), [""; 0]);
    }
}
