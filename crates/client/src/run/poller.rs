//! Asks the server for orders, one question after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use capstan_keys::cluster::Identity;
use capstan_keys::random;

use super::MemberNotice;
use crate::orders::{HelloAnswer, OrdersAnswer, PeerHello, with_host_of};
use crate::renewal::renew;
use crate::server_link::ServerLink;
use crate::{CellOrder, ClientError, MemberState};

/// How long a client or mover waits before it looks for a server that is away, at first and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often a certificate that cannot be renewed is tried again: a third of its time is left, and the server makes out
/// another one each time, whether it can be kept here or not.
const RENEWS_AGAIN: Duration = Duration::from_secs(60 * 60);
/// An answer without orders that comes sooner than this is none that was waited for.
const ANSWER_SOON: Duration = Duration::from_millis(500);
/// How often it is looked whether the process has stopped.
const LOOKS: Duration = Duration::from_millis(200);

/// What the poller hears.
pub(super) enum Heard {
    Order(CellOrder),
    Notice(MemberNotice),
    Ended(ClientError),
}

/// Whoever heard it is gone.
struct Over;

pub(super) struct Poller {
    state: MemberState,
    identity: Identity,
    addresses: Vec<String>,
    hello: PeerHello,
    now_ns: fn() -> i64,
    hears: SyncSender<Heard>,
    is_over: Arc<AtomicBool>,
    link: Option<ServerLink>,
    /// Which of the addresses is asked.
    at: usize,
    epoch: Option<String>,
    after: u64,
    is_lost: bool,
    renewal_tried: Option<Instant>,
}

impl Poller {
    pub(super) fn new(
        state: &MemberState,
        hello: PeerHello,
        now_ns: fn() -> i64,
        hears: SyncSender<Heard>,
        is_over: Arc<AtomicBool>,
    ) -> Result<Self, ClientError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (version, host) = (env!("CARGO_PKG_VERSION").to_owned(), host.trim().to_owned());
        let hello = PeerHello { version, host, ..hello };
        let (identity, addresses, state) = (state.identity()?, state.addresses()?, state.clone());
        Ok(Self {
            state,
            identity,
            addresses,
            hello,
            now_ns,
            hears,
            is_over,
            link: None,
            at: 0,
            epoch: None,
            after: 0,
            is_lost: false,
            renewal_tried: None,
        })
    }

    /// Asks until the process has stopped, or may ask no more.
    pub(super) fn poll(mut self) {
        let mut pause = PAUSE_FIRST;
        loop {
            let asked = Instant::now();
            let passed_on = match self.turn() {
                Ok(orders) => {
                    pause = PAUSE_FIRST;
                    let none = orders.is_empty();
                    let told = orders.into_iter().try_for_each(|order| self.tell(Heard::Order(order)));
                    match told {
                        Ok(()) if none && asked.elapsed() < ANSWER_SOON => self.wait(PAUSE_FIRST),
                        told => told,
                    }
                }
                Err(ClientError::Away { address, reason, .. }) => {
                    self.link = None;
                    self.at = (self.at + 1) % self.addresses.len();
                    let told = self.lost(format!("{address}: {reason}"));
                    let waited = told.and_then(|()| self.wait(with_jitter(pause)));
                    pause = (pause * 2).min(PAUSE_MAX);
                    waited
                }
                Err(error) => {
                    // Whoever hears it hears no more.
                    let _ = self.tell(Heard::Ended(error));
                    Err(Over)
                }
            };
            if passed_on.is_err() || self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn tell(&self, heard: Heard) -> Result<(), Over> {
        self.hears.send(heard).map_err(|_| Over)
    }

    fn notice(&self, notice: MemberNotice) -> Result<(), Over> {
        self.tell(Heard::Notice(notice))
    }

    /// Says once that the server is lost.
    fn lost(&mut self, reason: String) -> Result<(), Over> {
        if std::mem::replace(&mut self.is_lost, true) {
            return Ok(());
        }
        self.notice(MemberNotice::Lost { reason })
    }

    fn wait(&self, pause: Duration) -> Result<(), Over> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if self.is_over.load(Ordering::Relaxed) {
                return Err(Over);
            }
            thread::sleep(LOOKS.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// One question.
    fn turn(&mut self) -> Result<Vec<CellOrder>, ClientError> {
        let certificate = self.identity.certificate();
        if (self.now_ns)() >= certificate.not_after_ns {
            return Err(ClientError::ended(certificate));
        }
        let link = match self.link.take() {
            Some(link) => link,
            None => self.connect()?,
        };
        let link = self.renewed(link)?;
        let answered: OrdersAnswer = link.get(&self.question())?;
        // A server that has started anew has not heard the hello, even if its connection never seemed to break.
        self.link = (self.epoch.as_ref() == Some(&answered.epoch)).then_some(link);
        self.is_of(answered.epoch);
        let new: Vec<_> = answered.orders.into_iter().filter(|order| order.number > self.after).collect();
        self.after = new.iter().map(|order| order.number).fold(self.after, u64::max);
        let address = &self.addresses[self.at];
        Ok(new.into_iter().map(|order| order.order.at(address)).collect())
    }

    /// Knows which start of the server it is: numbers of orders begin anew with each.
    fn is_of(&mut self, epoch: String) {
        if self.epoch.as_ref() != Some(&epoch) {
            (self.epoch, self.after) = (Some(epoch), 0);
        }
    }

    fn question(&self) -> String {
        match &self.epoch {
            Some(epoch) => format!("/v1/orders?after={}&epoch={epoch}", self.after),
            None => "/v1/orders".to_owned(),
        }
    }

    fn connect(&mut self) -> Result<ServerLink, ClientError> {
        let address = self.addresses[self.at].clone();
        let link = ServerLink::new(&self.identity, &address)?;
        let answer: HelloAnswer = link.post("/v1/hello", &self.hello)?;
        self.is_of(answer.epoch);
        self.is_lost = false;
        let data = (answer.data_port != 0).then(|| with_host_of(&format!(":{}", answer.data_port), &address));
        // Whoever is gone hears nothing; the next turn finds that out.
        let _ = self.notice(MemberNotice::Connected { address, data });
        Ok(link)
    }

    /// Renews the certificate from two thirds of its time on. A failure is told once an hour, and is none yet.
    fn renewed(&mut self, link: ServerLink) -> Result<ServerLink, ClientError> {
        let is_due = (self.now_ns)() >= self.identity.certificate().renewal_due_ns();
        if !is_due || self.renewal_tried.is_some_and(|tried| tried.elapsed() < RENEWS_AGAIN) {
            return Ok(link);
        }
        self.renewal_tried = Some(Instant::now());
        match renew(&link, &self.state, (self.now_ns)()) {
            Ok(identity) => {
                let until_ns = identity.certificate().not_after_ns;
                self.identity = identity;
                let _ = self.notice(MemberNotice::Renewed { until_ns });
                ServerLink::new(&self.identity, &self.addresses[self.at])
            }
            Err(error @ (ClientError::Revoked { .. } | ClientError::Away { .. })) => Err(error),
            Err(error) => {
                let reason = format!("the certificate cannot be renewed, and is tried again in an hour: {error}");
                let _ = self.notice(MemberNotice::Trouble { reason });
                Ok(link)
            }
        }
    }
}

/// Between three quarters and five quarters of a pause, so that all that lost a server do not all come back at
/// once.
fn with_jitter(pause: Duration) -> Duration {
    let mut byte = [128];
    // Without random numbers all wait the same.
    let _ = random(&mut byte);
    pause * 3 / 4 + pause * u32::from(byte[0]) / 512
}
