//! Following etcd: a watch, and beside it a question to the majority twice a second.
//!
//! ```text
//! watch   ----7----8-------------9----------|       W = the last commit that it brought
//! beat    ?--------------->R     ?--->R             R = the last commit that the majority has
//!                          R <= W: "current, as of when it was asked"
//! ```
//! Why etcd's own progress reports do not serve: those that one asks for are given without asking the majority, and in
//! 3.4.23 even before events that are older (etcd issue 15220); those that come by themselves come every ten minutes,
//! and from a member that is cut off as well. So the majority is asked with a linearizable read for its last commit.
//! That is compared with what the watch brought, which is why **the watch is over all keys of etcd**: each commit that
//! counts up the revision brings an event, also where it concerns none of our records.
//!
//! The watch and its questions stay with one member. When it does not answer, the watch ends, and whoever follows asks
//! for another one, which begins with the next member.

use std::collections::VecDeque;
use std::time::Duration;

use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::time::Instant;

use super::blame::Failure;
use super::fragments::{Assembly, Part};
use super::members::{Member, Members, nobody};
use super::{ANSWER_BYTES_MAX, EtcdLedger, EtcdTiming};
use crate::ledger::{Change, LedgerError, Watched};

/// How often the node's own member is tried while another one is watched.
const HOME_EVERY: Duration = Duration::from_secs(10);

/// The stream that [`Ledger::watch`](crate::ledger::Ledger::watch) promises.
pub(super) fn watch<'a>(
    members: &'a Members,
    root: &'a str,
    timing: &'a EtcdTiming,
    after: i64,
) -> BoxStream<'a, Result<Watched, LedgerError>> {
    stream::try_unfold(None, move |watching: Option<Watching<'a>>| async move {
        let mut watching = match watching {
            Some(watching) => watching,
            None => Watching::begin(members, root, timing, after).await?,
        };
        let watched = watching.next().await.inspect_err(|error| {
            if !matches!(error, LedgerError::Compacted { .. }) {
                members.note_failure(watching.member);
            }
        })?;
        Ok(Some((watched, Some(watching))))
    })
    .boxed()
}

/// An answer of the majority: its last commit.
struct Beat {
    asked: Instant,
    /// What the watch had brought then: the majority has that at least.
    known: i64,
    last: Result<i64, Failure>,
}

/// One watch under way.
struct Watching<'a> {
    members: &'a Members,
    member: &'a Member,
    root: &'a str,
    timing: &'a EtcdTiming,
    after: i64,
    stream: WatchStream,
    assembly: Assembly,
    beat: BoxFuture<'a, Beat>,
    /// What the majority has and the watch has not brought yet.
    awaited: Option<(i64, Instant)>,
    /// When the watch last brought anything, or nothing was awaited.
    heard: Instant,
    home_tried: Instant,
    ready: VecDeque<Watched>,
}

impl<'a> Watching<'a> {
    async fn begin(
        members: &'a Members,
        root: &'a str,
        timing: &'a EtcdTiming,
        after: i64,
    ) -> Result<Self, LedgerError> {
        let options = WatchOptions::new().with_all_keys().with_start_revision(after + 1).with_fragment();
        let mut refused = None;
        for (member, share) in members.in_order(Instant::now() + timing.answer) {
            let mut client = member.client().watch_client().max_decoding_message_size(ANSWER_BYTES_MAX);
            match member.ask(share, client.watch("", Some(options.clone()))).await {
                Ok(stream) => {
                    let now = Instant::now();
                    return Ok(Self {
                        members,
                        member,
                        root,
                        timing,
                        after,
                        stream,
                        assembly: Assembly::after(after),
                        beat: beat(member, root, timing, after, Duration::ZERO),
                        awaited: None,
                        heard: now,
                        home_tried: now,
                        ready: VecDeque::new(),
                    });
                }
                Err(failure) => {
                    members.note_failure(member);
                    refused = Some(failure.of_read());
                }
            }
        }
        Err(refused.unwrap_or_else(nobody))
    }

    /// The next thing to say.
    async fn next(&mut self) -> Result<Watched, LedgerError> {
        loop {
            if let Some(watched) = self.ready.pop_front() {
                return Ok(watched);
            }
            tokio::select! {
                answer = self.stream.message() => {
                    let answer = answer.map_err(|error| Failure::answered(&format!("{:?}", self.member), error).of_read())?;
                    let answer = answer.ok_or_else(|| LedgerError::Unreachable {
                        source: format!("member {:?} ended the watch", self.member).into(),
                    })?;
                    self.take_answer(&answer)?;
                }
                answer = &mut self.beat => self.take_beat(answer).await?,
            }
            self.settle();
        }
    }

    fn take_answer(&mut self, answer: &WatchResponse) -> Result<(), LedgerError> {
        if answer.compact_revision() != 0 {
            return Err(LedgerError::Compacted { from: self.after + 1 });
        }
        if answer.canceled() {
            return Err(LedgerError::Unreachable {
                source: format!("member {:?} gave the watch up: {}", self.member, answer.cancel_reason()).into(),
            });
        }
        let part = if answer.0.fragment { Part::Fragment } else { Part::Last };
        let events: Vec<_> = answer.events().iter().map(|event| self.change_of(event)).collect::<Result<_, _>>()?;
        self.heard = Instant::now();
        self.ready.extend(self.assembly.add(events, part)?.map(Watched::Changes));
        Ok(())
    }

    fn change_of(&self, event: &etcd_client::Event) -> Result<(i64, Option<Change>), LedgerError> {
        let found = event.kv().ok_or_else(|| LedgerError::Protocol { what: "an event of no record".to_owned() })?;
        let revision = found.mod_revision();
        let change = if event.0.r#type == EventType::Put as i32 {
            EtcdLedger::entry_of(self.root, found)?.map(Change::Put)
        } else if event.0.r#type == EventType::Delete as i32 {
            EtcdLedger::path_of(self.root, found.key())?.map(|path| Change::Removed { path, revision })
        } else {
            return Err(LedgerError::Protocol { what: format!("an event of kind {}", event.0.r#type) });
        };
        Ok((revision, change))
    }

    async fn take_beat(&mut self, answer: Beat) -> Result<(), LedgerError> {
        let Beat { asked, known, last } = answer;
        let last = last.map_err(Failure::of_read)?;
        if last < known {
            return Err(LedgerError::WentBack { known, found: last });
        }
        if self.awaited.is_none() {
            self.heard = Instant::now();
            self.awaited = Some((last, asked));
        } else if self.heard.elapsed() > self.timing.silence {
            // Neither etcd nor the network says when a watch is lost in a member; this does.
            return Err(LedgerError::Unreachable {
                source: format!("member {:?} has commit {last} and does not bring it", self.member).into(),
            });
        }
        self.try_home().await;
        self.beat = beat(self.member, self.root, self.timing, self.assembly.whole(), self.timing.beat);
        Ok(())
    }

    /// Says that the copy is current once everything that was awaited has come.
    fn settle(&mut self) {
        let whole = self.assembly.whole();
        if let Some((_, asked)) = self.awaited.take_if(|(last, _)| *last <= whole) {
            self.ready.push_back(Watched::Current { revision: whole, asked });
        }
    }

    /// Lets the node's own member be asked first again if it answers.
    async fn try_home(&mut self) {
        let Some(home) = self.members.absent_home() else { return };
        if self.home_tried.elapsed() < HOME_EVERY {
            return;
        }
        self.home_tried = Instant::now();
        if home.last_commit(Instant::now() + self.timing.beat, self.root.trim_end_matches('/')).await.is_ok() {
            self.members.come_home();
        }
    }
}

/// Asks the majority for its last commit, after a pause.
fn beat<'a>(
    member: &'a Member,
    root: &'a str,
    timing: &'a EtcdTiming,
    known: i64,
    pause: Duration,
) -> BoxFuture<'a, Beat> {
    Box::pin(async move {
        tokio::time::sleep(pause).await;
        let asked = Instant::now();
        let last = member.last_commit(asked + timing.answer, root.trim_end_matches('/')).await;
        Beat { asked, known, last }
    })
}
