//! The test programs that cargo has built.

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

/// What cargo says of something that it has built, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Every test program of the workspace. Builds what is not built.
pub(super) fn test_programs(mut cargo: Command) -> Result<Vec<Program>> {
    cargo.args(["test", "--locked", "--workspace", "--no-run", "--quiet", "--message-format", "json"]);
    let built = cargo.stderr(Stdio::inherit()).output().context("start cargo")?;
    ensure!(built.status.success(), "the test programs were not built");
    let lines = String::from_utf8_lossy(&built.stdout);
    Ok(lines.lines().filter_map(program_of).collect())
}

/// The test program that a line of cargo's tells of, if it does.
fn program_of(line: &str) -> Option<Program> {
    let message: Message = serde_json::from_str(line).ok()?;
    if message.reason != "compiler-artifact" || !message.profile?.test {
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
        let program = program_of(line).unwrap();
        assert_eq!((program.room.as_str(), program.name.as_str()), ("catalog", "volumes"));
        assert_eq!(program.folder, Path::new("/w/crates/catalog"));
        assert_eq!(program_of(&line.replace("\"test\":true", "\"test\":false")), None);
        assert_eq!(program_of(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
