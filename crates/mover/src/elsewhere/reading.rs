//! Reads of a mover elsewhere, as whoever decides has them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::RemoteMover;
use super::remote::{DataDial, gone};
use super::words::{
    Expects, MoverCall, MoverLink, OWN, ReadAnswer, ReadCall, ReadCounts, ReadDone, ReadKind, ReadTold, other_answer,
    pack, unpack,
};
use crate::devices::remote::serve_read_host_until;
use crate::feed::{
    Feeds, NOT_ALL, ReadsElsewhere, RunRead, ToRead, UpToTheEnd, VerifiedElsewhere, VerifyCounters, WithFeeds, pool_for,
};
use crate::intake::ExpectedStreams;
use crate::network::{NetworkStream, connect, receive_pieces};
use crate::read::{ReadPlan, Wanted};
use crate::stretch::open_at_once;
use crate::throttle::Throttle;
use crate::{BetweenBlocks, JobToken, MountId, MoverError, Purpose, ReadHost, ReadReport, VolumePlace};

/// A read that a mover has begun.
struct Begun {
    /// What it says of it.
    link: MoverLink,
    /// Where it asks for volumes; none where it needs none.
    host: Option<Box<dyn NetworkStream>>,
    expects: Expects,
}

/// After this long without a word the mover hangs, or is gone.
const SAYS_WITHIN: Duration = Duration::from_secs(60);

/// Told how far a read is; whether it goes on, and how fast.
type OnProgress<'a> = dyn Fn(&ReadCounts) -> ReadAnswer + Sync + 'a;

impl RemoteMover {
    fn begin(&self, call: ReadCall, (wanted, plan): (&Wanted, &ReadPlan)) -> io::Result<Begun> {
        let asks = !matches!(call.kind, ReadKind::Between { .. });
        let mut link = self.call(MoverCall::Read(Box::new(call)), &pack(&(wanted, plan))?)?;
        link.0.set_timeout(Some(SAYS_WITHIN))?;
        let (expects, _): (Expects, _) = link.receive_within(0)?;
        link.0.set_timeout(None)?;
        let host = match asks {
            true => Some(self.call(MoverCall::Host { of: expects.hosts.clone(), number: 0 }, &[])?.0),
            false => None,
        };
        Ok(Begun { link, host, expects })
    }

    /// Takes what is read, and hands it on; a stream that does not come to its end is told why.
    fn take_pieces(&self, (token, restore): (&JobToken, u64), what: ToRead<'_>, feeds: &mut dyn Feeds) {
        let (streams, open) = (what.wanted.streams.len(), open_at_once(what.plan));
        let mut feeds = UpToTheEnd::of(feeds, what.plan.streams());
        let taken = JobToken::random().and_then(|process| {
            let purpose = Purpose::Pieces { restore };
            let mut link = connect(&DataDial(self), (token, &process), purpose)?;
            receive_pieces(&mut *link, streams, &pool_for(what.wanted, open), &mut feeds, what.stop)
        });
        // Also where it was stopped: whoever takes a stream must not take nothing for the whole.
        let reason = taken.map_or_else(|error| gone(&error).to_string(), |()| NOT_ALL.to_owned());
        feeds.fail(&reason);
    }
}

impl ReadsElsewhere for RemoteMover {
    fn read(&self, what: ToRead<'_>, host: &mut dyn ReadHost, with_feeds: &WithFeeds<'_>) -> ReadReport {
        let kind = ReadKind::Send { client: OWN.to_owned() };
        let call = ReadCall { owner: self.owner(), kind, between: None, rate: None };
        let begun = self.begin(call, (&what.wanted.to_send(what.plan), what.plan)).and_then(|begun| match begun {
            Begun { link, host: Some(asks), expects: Expects { pieces: Some((token, restore)), .. } } => {
                Ok((link, asks, token, restore))
            }
            _ => Err(other_answer()),
        });
        let (link, asks, token, restore) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let reason = gone(&error).to_string();
                with_feeds(&mut |feeds| {
                    UpToTheEnd::of(feeds, what.plan.streams()).fail(&reason);
                });
                return ReadReport::default();
            }
        };
        let progress = |counts: &ReadCounts| {
            what.meters.follow(counts.load);
            goes_on(what.stop)
        };
        thread::scope(|scope| {
            scope.spawn(|| with_feeds(&mut |feeds| self.take_pieces((&token, restore), what, feeds)));
            hear_and_serve(link, &progress, host, asks).ok().and_then(|done| done.read).unwrap_or_default()
        })
    }

    fn verify(
        &self,
        what: ToRead<'_>,
        host: &mut dyn ReadHost,
        mut between: Option<&mut BetweenBlocks>,
        counters: VerifyCounters<'_>,
    ) -> VerifiedElsewhere {
        let form = between.as_ref().map(|between| between.to_form());
        let call = ReadCall { owner: self.owner(), kind: ReadKind::Verify, between: form, rate: None };
        let begun = self.begin(call, (what.wanted, what.plan));
        let broken = |error: io::Error| VerifiedElsewhere {
            broken: Some(gone(&error).to_string()),
            ..VerifiedElsewhere::default()
        };
        let (link, asks) = match begun {
            Ok(Begun { link, host: Some(asks), .. }) => (link, asks),
            Ok(_) => return broken(other_answer()),
            Err(error) => return broken(error),
        };
        let before = [counters.members, counters.bytes, counters.taken].map(|counter| counter.load(Ordering::Relaxed));
        let progress = |counts: &ReadCounts| {
            what.meters.follow(counts.load);
            counters.members.store(before[0] + counts.members, Ordering::Relaxed);
            counters.bytes.store(before[1] + counts.bytes, Ordering::Relaxed);
            counters.taken.store(before[2] + counts.taken, Ordering::Relaxed);
            goes_on(what.stop)
        };
        match hear_and_serve(link, &progress, host, asks) {
            Err(error) => broken(error),
            Ok(ReadDone { read, failed, between: form, broken }) => {
                if let (Some(between), Some(form)) = (&mut between, form) {
                    between.follow(form);
                }
                VerifiedElsewhere { read: read.unwrap_or_default(), failed, broken }
            }
        }
    }

    fn send<'a>(
        &'a self,
        what: ToRead<'a>,
        client: &str,
        throttle: Throttle,
    ) -> Result<(ExpectedStreams, RunRead<'a>), MoverError> {
        let lost = |error: io::Error| gone(&error);
        let address = self.data_address().map_err(lost)?;
        let kind = ReadKind::Send { client: client.to_owned() };
        let call = ReadCall { owner: self.owner(), kind, between: None, rate: throttle.rate() };
        let Begun { link, host, expects } =
            self.begin(call, (&what.wanted.to_send(what.plan), what.plan)).map_err(lost)?;
        let (Some(asks), Some((token, reading))) = (host, expects.pieces) else { return Err(lost(other_answer())) };
        let expected = ExpectedStreams { address, token, reading, number: reading };
        let run = move |host: &mut dyn ReadHost| {
            let progress = |counts: &ReadCounts| {
                what.meters.follow(counts.load);
                match (goes_on(what.stop), throttle.rate()) {
                    (ReadAnswer::GoOn, Some(rate)) if self.holds_to_rates() => ReadAnswer::GoOnAt(rate),
                    (answer, _) => answer,
                }
            };
            // What a client did not come for it says itself.
            hear_and_serve(link, &progress, host, asks).ok().map(|done| done.read.unwrap_or_default())
        };
        Ok((expected, Box::new(run)))
    }

    fn read_between(
        &self,
        mount: MountId,
        place: &VolumePlace,
        between: &mut BetweenBlocks,
        end_lbn: u64,
    ) -> Result<(), MoverError> {
        let lost = |error: io::Error| gone(&error);
        let kind = ReadKind::Between { mount, place: place.clone(), end_lbn };
        let call = ReadCall { owner: self.owner(), kind, between: Some(between.to_form()), rate: None };
        let begun = self.begin(call, (&Wanted::default(), &ReadPlan::default())).map_err(lost)?;
        let stop = Arc::clone(between.stop());
        let done = hear(begun.link, &|_| goes_on(&stop)).map_err(lost)?;
        if let Some(reason) = done.broken {
            return Err(MoverError::Elsewhere { reason });
        }
        between.follow(done.between.ok_or_else(other_answer).map_err(lost)?);
        Ok(())
    }
}

fn goes_on(stop: &AtomicBool) -> ReadAnswer {
    if stop.load(Ordering::Relaxed) { ReadAnswer::Stop } else { ReadAnswer::GoOn }
}

/// Hears how a read goes, to its end, and mounts volumes for it meanwhile, in this thread.
fn hear_and_serve(
    link: MoverLink,
    progress: &OnProgress<'_>,
    host: &mut dyn ReadHost,
    asks: Box<dyn NetworkStream>,
) -> io::Result<ReadDone> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let told = scope.spawn(|| {
            let told = hear(link, progress);
            is_over.store(true, Ordering::Relaxed);
            told
        });
        // A connection that broke is told on the other one.
        let _ = serve_read_host_until(host, asks, &is_over);
        told.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Hears how a read goes, to its end.
fn hear(mut link: MoverLink, progress: &OnProgress<'_>) -> io::Result<ReadDone> {
    // It says something several times a second.
    link.0.set_timeout(Some(SAYS_WITHIN))?;
    loop {
        match link.receive()? {
            (ReadTold::Progress(counts), _) => {
                link.send(&progress(&counts), &[])?;
            }
            (ReadTold::Done(counts), packed) => {
                progress(&counts);
                return unpack(&packed);
            }
        }
    }
}
