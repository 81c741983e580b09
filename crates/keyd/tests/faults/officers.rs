//! Officers who destroy keys by quorum, through the API of people, while agents mount and nodes fail; and what may be
//! seen of these keys.
//!
//! Once a destruction was answered, no node gives the key out that says it is in touch with the majority, where it was
//! asked later by as long as a node takes itself to be in touch after the last word it heard. A node that says it is
//! cut off may give it out until it has heard. When everything is healed and knows everything, each node refuses it. A
//! destruction without an answer was done or not: nodes agree on it.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use capstan_format::KeyTag;
use capstan_keyd::node::NodeSettings;
use capstan_keys::api::{Decide, NamedKey, PendingListed, RequestId, RequestOutcome, Standing};
use capstan_keys::cluster::{ClusterClient, ClusterError, Repeat};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::agents::{Seen, Yard};
use super::cluster::Cluster;
use super::network::SITES;
use super::trouble::Seeded;

/// What officers know of a key that they wanted destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It may be destroyed: there was no answer.
    Perhaps,
    /// The answer came at that moment.
    Destroyed(Instant),
}

/// One who asks, and two who approve.
pub(crate) struct Officers {
    asks: ClusterClient,
    approve: [ClusterClient; 2],
}

impl Officers {
    /// Enrols them.
    pub(crate) fn of(cluster: &Cluster, addresses: &[String]) -> Self {
        let client = |user: &str| ClusterClient::open(&cluster.user(user), addresses, SITES[0]).unwrap();
        Self { asks: client("carl"), approve: ["q1", "q2"].map(client) }
    }

    /// Destroys keys until it is told to end.
    pub(crate) fn work(&self, yard: &Yard, mut random: Seeded) {
        while !yard.ends.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(200 + random.below(800)));
            let _open = yard.open.read().unwrap();
            let chosen = {
                let mut seen = yard.seen.lock().unwrap();
                let chosen = seen.any_key(&mut random);
                // From here on it may be gone.
                seen.fates.extend(chosen.map(|tag| (tag, Fate::Perhaps)));
                chosen
            };
            let Some(tag) = chosen else { continue };
            let destroyed = self.destroy(tag);
            let mut seen = yard.seen.lock().unwrap();
            match destroyed {
                Ok(Some(at)) => {
                    seen.fates.insert(tag, Fate::Destroyed(at));
                    seen.counts.destroyed += 1;
                }
                Ok(None) => seen
                    .wrong
                    .push(format!("key {tag} was to be destroyed by quorum, and its officers are told otherwise")),
                Err(ClusterError::AllGone(_) | ClusterError::Unanswered(_)) => seen.counts.unanswered += 1,
                Err(ClusterError::Refused(problem)) => drop(seen.refused(&problem)),
                Err(error) => seen.wrong.push(format!("key {tag} was to be destroyed: {error}")),
            }
        }
    }

    /// When it was answered that it is done.
    fn destroy(&self, tag: KeyTag) -> Result<Option<Instant>, ClusterError> {
        let RequestOutcome::Waits(requested) = ask(&self.asks, "/v1/keys/destroy", &NamedKey { key: tag })? else {
            return Ok(None);
        };
        let decide = Decide { digest: requested.digest };
        let path = format!("/v1/pending/{}/approve", requested.id);
        let _: PendingListed = ask(&self.approve[0], &path, &decide)?;
        let approved: PendingListed = ask(&self.approve[1], &path, &decide)?;
        Ok((approved.stage == "executed").then(Instant::now))
    }
}

fn ask<A: DeserializeOwned>(client: &ClusterClient, path: &str, question: &impl Serialize) -> Result<A, ClusterError> {
    client.post(path, question, &RequestId::random()?, Repeat::Never)
}

impl Seen {
    /// Some key that nobody wanted destroyed yet.
    fn any_key(&self, random: &mut Seeded) -> Option<KeyTag> {
        let mut left: Vec<_> = self.keys.keys().filter(|tag| !self.fates.contains_key(tag)).copied().collect();
        left.sort_unstable_by_key(|tag| tag.0);
        (!left.is_empty()).then(|| left.swap_remove(usize::try_from(random.below(left.len() as u64)).unwrap()))
    }

    /// A key was given out that was asked for at that moment.
    pub(crate) fn served(&mut self, tag: &KeyTag, asked: Instant, standing: Standing) {
        let Some(Fate::Destroyed(at)) = self.fates.get(tag) else { return };
        if asked < *at + NodeSettings::default().alone_after {
            return;
        }
        match standing {
            Standing::Current => {
                let late = asked.duration_since(*at);
                self.wrong.push(format!(
                    "key {tag} was destroyed, and {late:?} later given out by a node in touch with the majority"
                ));
            }
            Standing::CutOff => self.counts.unheard += 1,
        }
    }

    /// A node said that a key is destroyed.
    pub(crate) fn said_to_be_destroyed<'a>(&mut self, mut any_of: impl Iterator<Item = &'a KeyTag>, said: &str) {
        if !any_of.any(|tag| self.fates.contains_key(tag)) {
            self.wrong.push(format!("nobody wanted it destroyed: {said}"));
        }
    }
}
