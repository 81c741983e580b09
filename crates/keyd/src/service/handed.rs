//! What the audit logs of all nodes say was handed to whom.
//!
//! Issue records tell the first time alone; to whom a key was given again, to append or to read, stands in the log of
//! the node that gave it and nowhere else. So `GET /v1/handed` searches a node's log for another node, and whoever is
//! asked what a compromise exposes asks all of them. A log that was not read is named with what is not known for lack
//! of it: a list that is short for that reason must not look whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Found;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::{Extension, Json};
use capstan_format::KeyTag;
use capstan_keys::Name;
use capstan_keys::api::KeyTagText;
use capstan_keys::cluster::{ClusterError, Identity, NodeClient, Silence};
use capstan_service::audit::{AuditAction, log_files};
use capstan_service::identity::Peer;
use capstan_service::listener::RemoteAddress;
use capstan_service::problem::Refusal;
use futures_util::future::join_all;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::{NodeRoutes, RouteAccess};
use super::{Service, entry, peers};
use crate::exposure::{Handed, Lack, Unread};
use crate::node::Node;

/// Keys of one answer: some megabytes at most.
const KEYS_AT_ONCE: usize = 20_000;
/// How long a node is given for one answer, and for all: whoever asks waits ten seconds for theirs.
const PATIENCE: Duration = Duration::from_secs(4);
const PATIENCE_IN_ALL: Duration = Duration::from_secs(7);

const SEARCHED: AuditAction = AuditAction::named("log-searched");

/// The routes of nodes among themselves.
pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().get(
        "/v1/handed",
        (RouteAccess::Kma, "get which keys were handed out, by this node's audit log"),
        told,
    )
}

/// Which keys are asked for: those of an agent, or all.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(super) struct Wanted {
    /// To whom they were handed.
    pub(super) agent: Option<Name>,
    /// From when on.
    pub(super) since: Option<Timestamp>,
    /// Where the part before this one ended.
    after: Option<KeyTagText>,
}

impl Wanted {
    pub(super) fn of(agent: Option<Name>, since: Option<Timestamp>) -> Self {
        Self { agent, since, after: None }
    }

    fn path(&self) -> String {
        let Self { agent, since, after } = self;
        let parts = [
            agent.as_ref().map(|name| format!("agent={name}")),
            since.map(|since| format!("since={since}")),
            after.as_ref().map(|KeyTagText(tag)| format!("after={tag}")),
        ];
        format!("/v1/handed?{}", parts.into_iter().flatten().collect::<Vec<_>>().join("&"))
    }
}

/// A key, and when it was handed out first, as far as it was asked for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct HandedKey {
    key: KeyTagText,
    agent: Name,
    at: Timestamp,
}

/// What a node's log says, in the order of tags.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Told {
    keys: Vec<HandedKey>,
    /// What to ask after; none if this was the last part.
    next: Option<KeyTagText>,
    /// The number of the log's first record: what stood before it was taken away.
    begins_at: u64,
}

async fn told(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    Extension(from): Extension<RemoteAddress>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Told>, Refusal> {
    peers::asked_by_node(&service, &peer)?;
    if wanted.after.is_none() {
        let noted = entry(&peer, from, SEARCHED).reading();
        service.note(wanted.agent.iter().fold(noted, |noted, agent| noted.of("agent", agent))).await?;
    }
    let directory = service.audit_directory.clone();
    let searched = tokio::task::spawn_blocking(move || Searched::of(&directory, &wanted)).await;
    let Searched { first, begins_at } = searched.map_err(|_| Refusal::failed())?.map_err(|error| unreadable(&error))?;
    let mut keys = first.into_iter().map(|(tag, (agent, at))| HandedKey { key: KeyTagText(tag), agent, at });
    let part: Vec<_> = keys.by_ref().take(KEYS_AT_ONCE).collect();
    let next = keys.next().and_then(|_| part.last()).map(|last| last.key);
    Ok(Json(Told { keys: part, next, begins_at }))
}

fn unreadable(error: &io::Error) -> Refusal {
    tracing::error!(%error, "the audit log cannot be read");
    Refusal::failed()
}

/// A log that was searched.
struct Searched {
    /// Each key, with whom it was handed to first, and when.
    first: BTreeMap<KeyTag, (Name, Timestamp)>,
    begins_at: u64,
}

impl Searched {
    fn of(directory: &Path, wanted: &Wanted) -> io::Result<Self> {
        let files = log_files(directory)?;
        let begins_at = files.first().and_then(|file| file.file_stem()?.to_str()?.parse().ok()).unwrap_or(1);
        let mut first: BTreeMap<KeyTag, (Name, Timestamp)> = BTreeMap::new();
        for file in files {
            for line in BufReader::new(File::open(file)?).lines() {
                let line = line?;
                // Most records are none of these, and JSON costs.
                if !line.contains("\"act\":\"key-to-") {
                    continue;
                }
                let Some((tag, agent, at)) = serde_json::from_str(&line).ok().as_ref().and_then(of_record) else {
                    continue;
                };
                let is_wanted = wanted.agent.as_ref().is_none_or(|wanted| agent == *wanted)
                    && wanted.since.is_none_or(|since| at >= since)
                    && wanted.after.is_none_or(|KeyTagText(after)| tag > after);
                if !is_wanted {
                    continue;
                }
                match first.entry(tag) {
                    Found::Vacant(place) => drop(place.insert((agent, at))),
                    Found::Occupied(mut known) if known.get().1 > at => drop(known.insert((agent, at))),
                    Found::Occupied(_) => {}
                }
            }
        }
        Ok(Self { first, begins_at })
    }
}

/// A record of the audit log, as far as it says that a key was handed out.
#[derive(Deserialize)]
struct Noted {
    time: Timestamp,
    who: String,
    act: String,
    #[serde(default)]
    object: String,
    result: String,
}

fn of_record(noted: &Noted) -> Option<(KeyTag, Name, Timestamp)> {
    let was_handed = noted.act.starts_with("key-to-") && noted.result == "done";
    let tag = noted.object.strip_prefix("key/").filter(|_| was_handed)?.parse().ok()?;
    Some((tag, noted.who.strip_prefix("agent/")?.parse().ok()?, noted.time))
}

/// What is known of all logs that were to be read.
#[derive(Default)]
pub(super) struct Logs {
    pub(super) handed: Vec<Handed>,
    /// The nodes whose logs were read.
    pub(super) read: Vec<Name>,
    pub(super) unread: Vec<Unread>,
}

impl Logs {
    fn take(&mut self, kma: Name, told: Result<Searched, Lack>) {
        match told {
            Ok(Searched { first, begins_at }) => {
                let at_ns = |at: Timestamp| i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX);
                let handed = first.into_iter();
                self.handed.extend(handed.map(|(tag, (agent, at))| {
                    let kma = kma.clone();
                    Handed { tag, agent, kma, at_ns: at_ns(at) }
                }));
                if begins_at > 1 {
                    self.unread.push(Unread { kma: kma.clone(), lack: Lack::Shortened { begins_at } });
                }
                self.read.push(kma);
            }
            Err(lack) => self.unread.push(Unread { kma, lack }),
        }
    }
}

/// Searches the logs of these nodes, this one's and others', all at once.
pub(super) async fn search(
    service: &Arc<Service>,
    node: &Node,
    kmas: impl IntoIterator<Item = Name>,
    wanted: &Wanted,
) -> Logs {
    let kmas: Vec<_> = kmas.into_iter().collect();
    let searched = kmas.iter().map(|kma| async move {
        if kma == service.name() {
            let (directory, wanted) = (service.audit_directory.clone(), wanted.clone());
            let own = tokio::task::spawn_blocking(move || Searched::of(&directory, &wanted)).await;
            return own.map_err(|error| Lack::away(&error))?.map_err(|error| Lack::away(&error));
        }
        let address = node.view(|view| view.ledger().kmas().get(kma).map(|record| record.address.clone()));
        let Some(address) = address else { return Err(Lack::Removed) };
        let (identity, wanted) = (service.opening.identity.clone(), wanted.clone());
        let asked = tokio::task::spawn_blocking(move || asked(&identity, &address, wanted)).await;
        asked.map_err(|error| Lack::away(&error))?
    });
    let searched = join_all(searched).await;
    let mut logs = Logs::default();
    kmas.into_iter().zip(searched).for_each(|(kma, told)| logs.take(kma, told));
    logs
}

/// Asks a node for all parts.
fn asked(identity: &Path, address: &str, mut wanted: Wanted) -> Result<Searched, Lack> {
    let began = Instant::now();
    let identity = Identity::load(identity).map_err(|error| Lack::away(&error))?;
    let client = NodeClient::new(&identity, address, PATIENCE).map_err(|error| Lack::away(&error))?;
    let mut first = BTreeMap::new();
    loop {
        let told: Told = client.get(&wanted.path()).map_err(|error| lack(&error))?;
        first.extend(told.keys.into_iter().map(|HandedKey { key: KeyTagText(tag), agent, at }| (tag, (agent, at))));
        // A part that does not go on would be asked for again for ever.
        let goes_on = told.next.filter(|KeyTagText(next)| wanted.after.is_none_or(|KeyTagText(after)| *next > after));
        match (told.next, goes_on) {
            (None, _) => return Ok(Searched { first, begins_at: told.begins_at }),
            (Some(_), None) => return Err(Lack::Away("it answered what cannot be read".to_owned())),
            _ if began.elapsed() > PATIENCE_IN_ALL => return Err(Lack::Away("it is too slow".to_owned())),
            (Some(_), next) => wanted.after = next,
        }
    }
}

fn lack(error: &ClusterError) -> Lack {
    match error {
        ClusterError::AllGone(gone) => match gone.first().map(|gone| (&gone.silence, gone)) {
            Some((Silence::Unready(problem), _)) if problem.is("locked") => Lack::Locked,
            Some((_, gone)) => Lack::Away(gone.to_string()),
            None => Lack::away(error),
        },
        other => Lack::away(other),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::fs;

    use super::*;

    fn line(time: &str, who: &str, act: &str, tag: u8, result: &str) -> String {
        let tag = KeyTag([tag; 16]);
        format!(r#"{{"time":"{time}","who":"{who}","act":"{act}","object":"key/{tag}","result":"{result}"}}"#)
    }

    /// Refusals stand in the log beside what was given: a key that an agent was refused is not one that it knows.
    #[test]
    fn the_first_time_of_what_was_given_is_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = ("2031-01-01T00:00:00Z", "2031-01-02T00:00:00Z");
        let lines = [
            line(two, "agent/d1", "key-to-read", 1, "done"),
            line(one, "agent/d1", "key-to-append", 1, "done"),
            line(two, "agent/d1", "key-to-read", 2, "refused"),
            line(two, "agent/d2", "key-to-read", 3, "done"),
            line(two, "agent/d1", "key-activated", 4, "done"),
            line(two, "user/d1", "key-to-read", 5, "done"),
            "torn".to_owned(),
        ];
        fs::write(folder.path().join("000000000007.jsonl"), lines.join("\n")).unwrap();
        let found = |agent: Option<&str>, since: Option<&str>| {
            let wanted = Wanted::of(agent.map(|name| name.parse().unwrap()), since.map(|since| since.parse().unwrap()));
            let Searched { first, begins_at } = Searched::of(folder.path(), &wanted).unwrap();
            assert_eq!(begins_at, 7);
            first.into_iter().map(|(tag, (_, at))| (tag.0[0], at.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(found(Some("d1"), None), [(1, one.to_owned())]);
        assert_eq!(found(Some("d1"), Some(two)), [(1, two.to_owned())]);
        assert_eq!(found(None, None), [(1, one.to_owned()), (3, two.to_owned())]);
    }
}
