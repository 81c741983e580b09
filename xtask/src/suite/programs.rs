//! What cargo has built: the test programs, the tests in them, and what clippy said meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// The crate that it tests.
    pub(super) room: String,
    /// Its name: that of its file, or of its crate.
    pub(super) name: String,
    /// The file to start.
    pub(super) file: PathBuf,
    /// The folder that it runs in, as cargo has it run there.
    pub(super) folder: PathBuf,
}

/// The workspace, built.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) programs: Vec<Program>,
    /// Warnings of clippy and of the compiler, each once, as they are shown on a terminal.
    pub(super) warnings: BTreeSet<String>,
}

/// What cargo says of something that it has built, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Diagnostic {
    rendered: String,
}

/// Builds what is not built, and asks cargo for all of it: warnings of what was built before are repeated.
pub(super) fn built(mut cargo: Command) -> Result<Built> {
    cargo.args(["build", "--locked", "--workspace", "--all-targets", "--quiet"]);
    cargo.arg("--message-format=json-diagnostic-rendered-ansi");
    let output = cargo.stderr(Stdio::inherit()).output().context("start cargo")?;
    let mut built = Built::default();
    String::from_utf8_lossy(&output.stdout).lines().for_each(|line| built.take(line));
    ensure!(output.status.success(), "the workspace was not built\n{}", Vec::from_iter(built.warnings).concat());
    Ok(built)
}

impl Built {
    /// Takes in a line of cargo's.
    fn take(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Message>(line) else { return };
        match message.reason.as_str() {
            "compiler-message" => self.warnings.extend(message.message.map(|diagnostic| diagnostic.rendered)),
            "compiler-artifact" => self.programs.extend(program_of(message)),
            _ => {}
        }
    }
}

/// The test program that a message of cargo's tells of, if it does.
fn program_of(message: Message) -> Option<Program> {
    if !message.profile?.test {
        return None;
    }
    let folder = message.manifest_path.parent()?;
    Some(Program {
        room: folder.file_name()?.to_str()?.to_owned(),
        name: message.target?.name,
        file: message.executable?,
        folder: folder.to_owned(),
    })
}

impl Program {
    /// The names of its tests, those that are ignored too.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let shown = self.file.display();
        let asked = self.command().args(["--list", "--format", "terse"]).output();
        let asked = asked.with_context(|| format!("start {shown}"))?;
        ensure!(asked.status.success(), "{shown} --list: {}", String::from_utf8_lossy(&asked.stderr));
        let lines = String::from_utf8_lossy(&asked.stdout);
        Ok(lines.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// The program, as cargo starts it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder);
        command
    }
}

/// Tests by the module that they are in, at the top of their program; those in none are under the empty name.
pub(super) fn by_module(tests: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut modules = BTreeMap::<_, Vec<_>>::new();
    for test in tests {
        modules.entry(test.split_once("::").map_or("", |(module, _)| module)).or_default().push(test.as_str());
    }
    modules
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::path::Path;

    use super::*;

    #[test]
    fn a_test_program_is_known_by_what_cargo_says_of_it() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/catalog#capstan-catalog@0.1.0",
            "manifest_path":"/w/crates/catalog/Cargo.toml","target":{"kind":["test"],"name":"volumes"},
            "profile":{"opt_level":"0","test":true},"executable":"/w/target/debug/deps/volumes-1","fresh":true}"#;
        let mut built = Built::default();
        built.take(line);
        built.take(&line.replace("\"test\":true", "\"test\":false"));
        built.take(r#"{"reason":"build-finished","success":true}"#);
        let [program] = built.programs.as_slice() else { panic!("{:?}", built.programs) };
        assert_eq!((program.room.as_str(), program.name.as_str()), ("catalog", "volumes"));
        assert_eq!(program.folder, Path::new("/w/crates/catalog"));
    }

    #[test]
    fn a_warning_counts_once_however_often_its_code_is_compiled() {
        let line = r#"{"reason":"compiler-message","manifest_path":"/w/xtask/Cargo.toml","target":{"name":"xtask"},
            "message":{"level":"warning","message":"redundant clone","rendered":"warning: redundant clone\n"}}"#;
        let mut built = Built::default();
        built.take(line);
        built.take(line);
        assert_eq!(Vec::from_iter(built.warnings), ["warning: redundant clone\n"]);
    }

    /// Each test is in one module, so that a program whose modules have run has run whole.
    #[test]
    fn modules_share_out_every_test_of_a_program() {
        let program = Program {
            room: "xtask".into(),
            name: "xtask".into(),
            file: std::env::current_exe().unwrap(),
            folder: env!("CARGO_MANIFEST_DIR").into(),
        };
        let tests = program.tests().unwrap();
        let modules = by_module(&tests);
        assert!(modules.len() > 2, "{:?}", modules.keys());
        let mut shared: Vec<_> = modules.into_values().flatten().collect();
        shared.sort_unstable();
        let mut all: Vec<_> = tests.iter().map(String::as_str).collect();
        all.sort_unstable();
        assert_eq!(shared, all);
        let named = ["a::b", "c", "a::d", "ab::e"].map(str::to_owned);
        let [none, a, ab] = ["", "a", "ab"].map(|name| by_module(&named).remove(name).unwrap());
        assert_eq!((none, a, ab), (vec!["c"], vec!["a::b", "a::d"], vec!["ab::e"]));
    }
}
