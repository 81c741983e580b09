//! `keyd audit`: what the nodes' logs say, and whether a log is as it was written.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use capstan_officer::AuditShown;
use capstan_service::audit::{Anchor, log_files, verify};
use clap::Subcommand;
use serde_json::json;

use crate::service::StateDirectory;

/// The audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    #[command(flatten)]
    Shown(AuditShown),
    /// Check the log of a state directory, without a node
    Verify {
        /// The state directory
        #[arg(long)]
        state: PathBuf,
        /// File with the anchors that `keyd audit anchors` printed
        #[arg(long, value_name = "FILE")]
        anchors: Option<PathBuf>,
        /// Answer in JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn audit(asked: Audit) -> anyhow::Result<()> {
    match asked {
        Audit::Shown(shown) => shown.run(),
        Audit::Verify { state, anchors, json } => check(&state, anchors.as_deref(), json),
    }
}

fn check(state: &Path, anchors: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let (directory, settings) = StateDirectory::open(state)?;
    let (name, files) = (settings.name, log_files(&directory.audit())?);
    let anchors = match anchors {
        None => Vec::new(),
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
            let read = |line: &str| Anchor::from_json(line).with_context(|| format!("{line:?} is no anchor"));
            text.lines().filter(|line| !line.trim().is_empty()).map(read).collect::<anyhow::Result<_>>()?
        }
    };
    let report = verify(&name, &files, &anchors).context("the log cannot be read")?;
    let (first, last, anchored_to) = (report.first, report.last.sequence, report.anchored_to);
    let finding = report.finding.as_ref().map(ToString::to_string);
    if json {
        let hash = report.last.hash.to_string();
        let said = json!({
            "kma": name, "first": first, "last": last, "hash": hash, "anchored_to": anchored_to,
            "torn_bytes": report.torn_bytes, "witnessed": report.witnessed.len(), "finding": finding,
        });
        println!("{said:#}");
    } else {
        println!(
            "log of node {name}: records {first} to {last} are whole; an anchor vouches up to record {anchored_to}"
        );
    }
    if anchored_to == 0 {
        eprintln!(
            "No anchor confirms this log: anybody who can write the file could have rewritten it from its beginning. \
             Get the anchors from the cluster (`keyd audit anchors > FILE`), and check again with `--anchors FILE`."
        );
    }
    let finding = finding.unwrap_or_default();
    ensure!(finding.is_empty(), "the log is not as it was written: {finding}");
    Ok(())
}
