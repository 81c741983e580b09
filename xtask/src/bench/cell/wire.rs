//! Measures a client's backup to a mover over TLS, to nowhere, beside bare TLS sockets: `examples/wire` of the server.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench::measure::Stage;

/// The rate of the backup, of that of as many bare sockets; of each round.
pub(super) struct Wire {
    /// That send one piece over and over.
    pub(super) of_sockets: Vec<f64>,
    /// That send the same files.
    pub(super) of_files: Vec<f64>,
}

pub(super) fn wire(root: &Path, stage: &Stage, rounds: usize) -> Result<Wire> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(root).args(["build", "--quiet", "--release", "--locked"]);
    build.args(["--package", "capstan-server", "--example", "wire"]);
    let status = build.status().with_context(|| format!("run {build:?}"))?;
    ensure!(status.success(), "{build:?}: {status}");
    let program = env::current_exe()?.with_file_name("examples").join("wire");
    let printed = stage.run(&format!("{} $TYPICAL {rounds} 2", program.display()))?;
    let mut ratios = Wire { of_sockets: Vec::new(), of_files: Vec::new() };
    for line in printed.lines() {
        let row: Value = serde_json::from_str(line)?;
        let number = |key: &str| row[key].as_u64().with_context(|| format!("{key} in {row}"));
        let rate = |bytes: u64, ns: u64| bytes as f64 * 1e3 / ns as f64;
        let bytes = number("bytes")?;
        let (backup, bare) = (rate(bytes, number("backup_ns")?), rate(bytes, number("bare_ns")?));
        let files = rate(number("file_bytes")?, number("files_ns")?);
        println!("to nowhere {backup:.0} MB/s, bare sockets {bare:.0} MB/s, with the files {files:.0} MB/s");
        ratios.of_sockets.push(backup / bare);
        ratios.of_files.push(backup / files);
    }
    Ok(ratios)
}
