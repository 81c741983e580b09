//! `keyd status`: how a node is, for a person who looks at it.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use super::arguments::Status;

pub(super) fn status(asked: &Status) -> anyhow::Result<()> {
    let status: Value = asked.asking.client()?.get("/v1/status")?;
    if asked.json {
        println!("{status:#}");
    } else {
        print!("{}", told(&status));
    }
    Ok(())
}

/// A line for each thing to know, and what to do where something is to be done.
fn told(status: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, said: String| {
        let _ = writeln!(text, "{name:<9}{said}");
    };
    let words = |value: &Value| match value {
        // What a node says must not draw on the terminal.
        Value::String(text) => text.chars().filter(|character| !character.is_control()).collect(),
        other => other.to_string(),
    };
    let site = match status["site"].as_str() {
        None | Some("") => String::new(),
        Some(_) => format!(" at {}", words(&status["site"])),
    };
    line(
        "node",
        format!(
            "{}{site}, epoch {} of cluster {}",
            words(&status["name"]),
            words(&status["epoch"]),
            words(&status["cluster"])
        ),
    );
    line("lock", lock(&status["lock"]));
    if let Some(said) = status.get("locked_by") {
        line("LOCKED", format!("by {}: its holders open it, and nothing else", words(said)));
    }
    match status["unlocks_itself"].as_str() {
        Some("quorum") => line("start", "it unlocks itself, as the quorum allows; in touch with the majority alone".to_owned()),
        Some("pin-file") => line(
            "START",
            "it unlocks itself with a PIN in a file (keyd.toml): who has its machine and its token has the keys; no quorum was asked"
                .to_owned(),
        ),
        _ => {}
    }
    for (name, field) in [("REMOVED", "removed"), ("MOVED", "moved")] {
        if let Some(said) = status.get(field) {
            line(name, words(said));
        }
    }
    if let (Some(level), said) = (status["room"]["level"].as_str(), &status["room"]["says"]) {
        line(if level == "plenty" { "room" } else { "ROOM" }, words(said));
    }
    let Some(pool) = status["pool"].as_object() else { return text };
    line("ledger", standing(status));
    let counted = |name: &str| pool.get(name).map_or_else(|| "?".to_owned(), &words);
    let low = match pool.get("low").and_then(Value::as_bool) {
        Some(true) => ". LOW: see that another node holds them, or make a backup if this is the only one",
        _ => "",
    };
    let (ready, reserve, waiting) = (counted("ready"), counted("reserve"), counted("waiting"));
    line(
        "pool",
        format!("{ready} keys ready, {reserve} more for when it is cut off, {waiting} not stored twice yet{low}"),
    );
    line("keys", format!("{} of {} data units", words(&status["keys"]), words(&status["units"])));
    if let Some(count @ 1..) = status["unconfirmed_keys"].as_u64() {
        let what = "of lost nodes wait until a compliance officer confirms their group: `keyd keys list --group unconfirmed-keys`";
        line("KEYS", format!("{count} {what}"));
    }
    if let Some(count @ 1..) = status["recovered_keys"].as_u64() {
        line("recovered", format!(" {count} keys of lost nodes that no volume has named yet: `keyd keys recovered`"));
    }
    let pending = match status["journal_pending"].as_u64() {
        Some(0) => "nothing to reconcile".to_owned(),
        _ => format!("{} acts wait for the majority", words(&status["journal_pending"])),
    };
    line("journal", pending);
    match status["doubts"].as_array() {
        Some(doubts) if !doubts.is_empty() => {
            doubts.iter().for_each(|doubt| line("DOUBT", words(doubt)));
        }
        _ => line("doubts", "none".to_owned()),
    }
    text
}

fn lock(lock: &Value) -> String {
    match (lock["state"].as_str(), lock["needed"].as_u64(), lock["given"].as_array()) {
        (Some("unlocked"), ..) => "unlocked".to_owned(),
        (_, Some(needed), Some(given)) => {
            format!("LOCKED: {} of {needed} shares are there; `keyd unlock` gives another", given.len())
        }
        _ => "LOCKED: `keyd unlock` opens it".to_owned(),
    }
}

fn standing(status: &Value) -> String {
    let since = status["standing"]["cut_off_since_ns"].as_i64();
    match since.map(|since| Timestamp::from_nanosecond(i128::from(since))) {
        None => format!("with the majority, at revision {}", status["applied"]),
        Some(Ok(since)) => format!("CUT OFF since {since:.0}: see that most members of etcd run and are reached"),
        Some(Err(_)) => "CUT OFF: see that most members of etcd run and are reached".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_tells_what_is_to_be_done() {
        let locked = json!({
            "name": "kma1", "site": "north", "epoch": 1, "cluster": "ab",
            "lock": {"state": "locked", "needed": 2, "given": ["ann"]}
        });
        assert_eq!(
            told(&locked),
            "node     kma1 at north, epoch 1 of cluster ab\n\
             lock     LOCKED: 1 of 2 shares are there; `keyd unlock` gives another\n"
        );
        let open = json!({
            "name": "kma1\u{1b}[2J", "site": "", "epoch": 2, "cluster": "ab", "lock": {"state": "unlocked"},
            "standing": {"cut_off_since_ns": 1_700_000_000_000_000_000_i64}, "applied": 7, "keys": 3, "units": 2, "unconfirmed_keys": 6, "recovered_keys": 0,
            "pool": {"ready": 0, "reserve": 1, "waiting": 9, "low": true}, "journal_pending": 4, "doubts": ["one", "two"],
            "removed": "on a day", "unlocks_itself": "pin-file",
            "room": {"level": "reserved", "says": "the ledger is nearly full"}
        });
        let told = told(&open);
        assert!(told.starts_with("node     kma1[2J, epoch 2"), "{told}");
        for words in [
            "REMOVED  on a day\n",
            "START    it unlocks itself with a PIN in a file",
            "CUT OFF since 2023-11-14T22:13:20Z",
            "LOW",
            "ROOM     the ledger is nearly full\n",
            "4 acts wait",
            "KEYS     6 of lost nodes wait until",
            "DOUBT    one\nDOUBT    two\n",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
    }
}
