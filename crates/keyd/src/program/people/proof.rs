//! `keyd audit`, `keyd exposure`, `keyd rekey-plan`.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use capstan_format::KeyTag;
use capstan_keys::Name;
use capstan_service::audit::{Anchor, verify};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::transfer::id_of;
use super::{Ask, log_of};

/// The audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Show the last records of a node's log
    Show {
        /// How many, to 1000
        #[arg(long, default_value_t = 100)]
        last: usize,
        #[command(flatten)]
        ask: Ask,
    },
    /// Say where the logs of all nodes stood, a line each: keep them elsewhere, for `keyd audit verify`
    Anchors(Ask),
    /// Check the log of a state directory, without a node
    Verify {
        /// The state directory
        #[arg(long)]
        state: PathBuf,
        /// What `keyd audit anchors` said
        #[arg(long, value_name = "FILE")]
        anchors: Option<PathBuf>,
        /// Answer in JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn audit(asked: Audit) -> anyhow::Result<()> {
    match asked {
        Audit::Show { last, ask } => {
            let items: Vec<Value> = ask.get(&format!("/v1/audit?last={last}"))?;
            ask.list(&items, &["sequence", "time", "who", "from", "act", "object", "result", "why"]);
            Ok(())
        }
        Audit::Anchors(ask) => {
            let items: Vec<Value> = ask.get("/v1/audit/anchors")?;
            items.iter().for_each(|anchor| println!("{anchor}"));
            Ok(())
        }
        Audit::Verify { state, anchors, json } => check(&state, anchors.as_deref(), json),
    }
}

fn check(state: &std::path::Path, anchors: Option<&std::path::Path>, json: bool) -> anyhow::Result<()> {
    let (name, files) = log_of(state)?;
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
            "Nothing vouches for it: whoever may write the file could have written it anew from its beginning. Get what the cluster knows of it \
             (`keyd audit anchors > FILE`), and give it with `--anchors FILE`."
        );
    }
    let finding = finding.unwrap_or_default();
    ensure!(finding.is_empty(), "the log is not as it was written: {finding}");
    Ok(())
}

/// Who or what is suspected.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Suspected {
    /// A drive, or whoever had its certificate
    #[arg(long, value_name = "NAME", required_unless_present_any = ["key", "kma", "export"],
        conflicts_with_all = ["key", "kma", "export"])]
    agent: Option<Name>,
    /// Since when, as 2031-01-01T00:00:00Z [default: for ever]
    #[arg(long, value_name = "TIME", requires = "agent")]
    since: Option<Timestamp>,
    /// A key that others may know
    #[arg(long, value_name = "TAG", conflicts_with_all = ["kma", "export"])]
    key: Option<KeyTag>,
    /// A node
    #[arg(long, value_name = "NAME", conflicts_with = "export")]
    kma: Option<Name>,
    /// An export whose file and passphrase others may have, as `keyd exports list` names it
    #[arg(long, value_name = "ID")]
    export: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn exposed(asked: &Suspected, path: &str) -> anyhow::Result<()> {
    let Suspected { agent, since, key, kma, export, ask } = asked;
    let question = [
        agent.as_ref().map(|name| format!("agent={name}")),
        since.map(|since| format!("since={since}")),
        key.map(|tag| format!("key={tag}")),
        kma.as_ref().map(|name| format!("kma={name}")),
        export.as_ref().map(|id| id_of(id).map(|id| format!("export={id}"))).transpose()?,
    ];
    let question: Vec<String> = question.into_iter().flatten().collect();
    let answer: Value = ask.get(&format!("{path}?{}", question.join("&")))?;
    let missing = answer["missing"].as_array().map(Vec::as_slice).unwrap_or_default();
    // What is missing is said beside the list and within the plan, which is kept.
    let beside = |mut said: Value| {
        for field in ["logs_read", "missing", "whole"] {
            said[field] = answer[field].clone();
        }
        said
    };
    if path == "/v1/rekey-plan" {
        ask.done(&beside(answer["plan"].clone()), answer["words"].as_str().unwrap_or_default())?;
    } else {
        if key.is_some() {
            for export in answer["plan"]["exports"].as_array().into_iter().flatten() {
                let said = |field: &str| export[field].as_str().unwrap_or_default().to_owned();
                eprintln!("export {} has it, which {} carried out on {}", said("id"), said("by"), said("made"));
            }
        }
        let units = answer["plan"]["steps"].as_array().cloned().unwrap_or_default();
        if ask.json {
            println!("{:#}", beside(json!({ "units": units })));
        } else {
            ask.list(&units, &["barcode", "remedy", "keys_in_all", "last_seen"]);
        }
        for lack in missing {
            eprintln!("missing: {}", lack["words"].as_str().unwrap_or_default());
        }
    }
    let of: Vec<_> = missing.iter().filter_map(|lack| lack["kma"].as_str()).collect();
    ensure!(
        answer["whole"].as_bool() == Some(true),
        "not everything that is exposed is listed: what is missing, of {}, stands above",
        of.join(", ")
    );
    Ok(())
}

pub(super) fn certificates(ask: &Ask) -> anyhow::Result<()> {
    let mut items: Vec<Value> = ask.get("/v1/destructions")?;
    for item in &mut items {
        let declared = item["declared"].as_array().into_iter().flatten().map(|said| said["copy"].clone());
        let declared: Value = declared.collect();
        item["said"] = if declared == json!([]) { Value::Null } else { declared };
        let of_item = item["declared"].as_array().into_iter().flatten();
        let met: Vec<_> = of_item.filter(|said| said["met_ns"].is_i64()).map(|said| said["copy"].clone()).collect();
        item["doubted"] = if met.is_empty() { Value::Null } else { met.into() };
        for (field, of) in [("destroyed", "destroyed_ns"), ("certified", "certified_ns")] {
            let time = item[of].as_i64().and_then(|ns| Timestamp::from_nanosecond(i128::from(ns)).ok());
            item[field] = json!(time.map(|time| format!("{time:.0}")));
        }
    }
    ask.list(&items, &["tag", "destroyed", "certified", "kmas", "said=SAID TO BE DESTROYED", "doubted=BUT IS NOT"]);
    Ok(())
}
