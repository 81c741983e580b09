//! `keyd exposure`, `keyd rekey-plan`, `keyd certificates`.

use anyhow::ensure;
use capstan_format::KeyTag;
use capstan_keys::Name;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::transfer::id_of;

/// Who or what is suspected.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Suspected {
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

pub(crate) fn exposed(asked: &Suspected, path: &str) -> anyhow::Result<()> {
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

pub(crate) fn certificates(ask: &Ask) -> anyhow::Result<()> {
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
