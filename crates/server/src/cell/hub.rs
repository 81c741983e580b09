//! Orders on their way to peers, in memory.
//!
//! Each peer has a mailbox. An order stays there until the peer asks for those after it; a peer that asks has the
//! epoch of the numbers that it names, which is drawn at each start of the server.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_client::CellOrder;
use capstan_client::orders::{NumberedOrder, OrdersAnswer, OrdersQuery, PeerHello, with_host_of};
use capstan_keys::KeyError;
use capstan_keys::api::{PeerId, PeerKind, RequestId};
use thiserror::Error;
use tokio::sync::Notify;

/// Orders that a peer has not fetched, at most.
pub const ORDERS_MAX: usize = 1024;
/// How long after an answer a peer counts as connected: it asks again at once, or after half a minute if the server was
/// away. One whose connection ended while its question was open does not.
const CONNECTED_FOR: Duration = Duration::from_secs(40);
/// Connections of a peer that are remembered, beside the one that it asks over.
const EARLIER_MAX: usize = 4;
/// A peer that comes back to earlier connections twice within this time runs twice: each process asks more often.
const TWICE_FOR: Duration = Duration::from_secs(90);

/// A client takes no orders at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("client {client} is not connected: see that `capstan client run` runs there and can reach the server")]
pub struct NotConnected {
    /// The client.
    pub client: String,
}

/// A peer that is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedPeer {
    /// Who.
    pub peer: PeerId,
    /// The address that it comes from.
    pub from: SocketAddr,
    /// What it said of itself, if it has since the server began.
    pub hello: Option<PeerHello>,
}

/// The mailboxes of a cell. Clones share them.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    epoch: RequestId,
    began: Instant,
    mailboxes: Mutex<HashMap<PeerId, Mailbox>>,
}

struct Mailbox {
    from: SocketAddr,
    /// Where its connections before this one came from, the latest first.
    earlier: VecDeque<SocketAddr>,
    /// When it came back to one of those, the last two times.
    came_back: [Option<Instant>; 2],
    hello: Option<PeerHello>,
    /// The number of the latest order.
    last: u64,
    orders: VecDeque<NumberedOrder>,
    /// Questions that wait.
    open: usize,
    asked: Option<Instant>,
    /// When a question of it began or ended.
    heard: Instant,
    /// Whether it was revoked since it asked last.
    is_turned_away: bool,
    wakes: Arc<Notify>,
}

impl Mailbox {
    fn new(from: SocketAddr) -> Self {
        let (earlier, came_back, hello, orders, asked, wakes) = Default::default();
        let (last, open, heard, is_turned_away) = (0, 0, Instant::now(), false);
        Self { from, earlier, came_back, hello, last, orders, open, asked, heard, is_turned_away, wakes }
    }

    /// It asks over this connection. A process never comes back to one that it has replaced; two processes take turns.
    fn comes(&mut self, from: SocketAddr) {
        if from == self.from {
            return;
        }
        if self.earlier.contains(&from) {
            let [_, last] = self.came_back;
            self.came_back = [last, Some(Instant::now())];
        }
        self.earlier.retain(|earlier| *earlier != from);
        self.earlier.push_front(std::mem::replace(&mut self.from, from));
        self.earlier.truncate(EARLIER_MAX);
    }

    /// The addresses of two processes of it, the lower one first, if there are two. (Once, a port may be the same by
    /// chance.)
    fn twice(&self) -> Option<[IpAddr; 2]> {
        let is_recent = |at: &Option<Instant>| at.is_some_and(|at| at.elapsed() < TWICE_FOR);
        let mut both = [self.from.ip().to_canonical(), self.earlier.front()?.ip().to_canonical()];
        both.sort_unstable();
        self.came_back.iter().all(is_recent).then_some(both)
    }

    fn is_connected(&self) -> bool {
        let asks = self.open > 0 || self.asked.is_some_and(|asked| asked.elapsed() < CONNECTED_FOR);
        asks && !self.is_turned_away
    }
}

impl Hub {
    pub(super) fn new() -> Result<Self, KeyError> {
        let (epoch, began, mailboxes) = (RequestId::random()?, Instant::now(), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { epoch, began, mailboxes }) })
    }

    /// Whether a client waits for orders, or was answered less than 40 s ago.
    pub fn is_connected(&self, client: &str) -> bool {
        peer_id(PeerKind::Client, client).is_some_and(|id| self.has(&id))
    }

    /// Folders below which users may have something restored to a client, as it said itself; none if it is not
    /// connected.
    pub fn restores_to(&self, client: &str) -> Option<Vec<String>> {
        let mailboxes = self.mailboxes();
        let mailbox = mailboxes.get(&peer_id(PeerKind::Client, client)?).filter(|mailbox| mailbox.is_connected())?;
        Some(mailbox.hello.as_ref()?.restore_to.clone())
    }

    /// Whether a client or a mover waits for orders, as [`Hub::is_connected`] says it of a client.
    pub(super) fn has(&self, peer: &PeerId) -> bool {
        self.mailboxes().get(peer).is_some_and(Mailbox::is_connected)
    }

    /// For how long a mover has not waited for orders, as far as this server can know; none if it does.
    pub(super) fn mover_away_for(&self, mover: &str) -> Option<Duration> {
        let mailboxes = self.mailboxes();
        let mailbox = peer_id(PeerKind::Mover, mover).and_then(|id| mailboxes.get(&id));
        match mailbox {
            Some(mailbox) if mailbox.is_connected() => None,
            mailbox => Some(mailbox.map_or(self.shared.began, |mailbox| mailbox.heard).elapsed()),
        }
    }

    /// Where clients reach a mover, host and port: what it announced, or the address that it comes from with the port
    /// that it named. None if it is not connected.
    pub fn mover_data(&self, name: &str) -> Option<String> {
        let mailboxes = self.mailboxes();
        let mailbox = mailboxes.get(&peer_id(PeerKind::Mover, name)?).filter(|mailbox| mailbox.is_connected())?;
        let place = mailbox.hello.as_ref()?.data.as_deref()?;
        // A listener of both families shows a mover of IPv4 as ::ffff:192.0.2.1.
        let from = SocketAddr::new(mailbox.from.ip().to_canonical(), mailbox.from.port());
        Some(with_host_of(place, &from.to_string()))
    }

    /// The peers that are connected, by kind and name.
    pub fn connected(&self) -> Vec<ConnectedPeer> {
        let mailboxes = self.mailboxes();
        let connected = mailboxes.iter().filter(|(_, mailbox)| mailbox.is_connected());
        let as_peer = |(peer, mailbox): (&PeerId, &Mailbox)| ConnectedPeer {
            peer: peer.clone(),
            from: mailbox.from,
            hello: mailbox.hello.clone(),
        };
        let mut peers: Vec<_> = connected.map(as_peer).collect();
        peers.sort_by(|one, other| one.peer.cmp(&other.peer));
        peers
    }

    /// The peers of which two processes ask, and what to do, a line each; up to its first `: ` it stays the same.
    pub(super) fn twice(&self) -> Vec<String> {
        let mailboxes = self.mailboxes();
        let as_line = |(PeerId { kind, name }, mailbox): (&PeerId, &Mailbox)| {
            let [one, other] = mailbox.twice()?;
            let from = if one == other { format!("both at {one}") } else { format!("at {one} and at {other}") };
            Some(format!(
                "{kind} {name} runs in two places under one identity: {from}. At the one that is a copy, join under \
                 another name (`capstan {kind} enrol NAME` here, `capstan {kind} join --replace` there), and restart \
                 `capstan {kind} run`. If nobody copied it, the identity was stolen: `capstan {kind} revoke {name}`"
            ))
        };
        let mut lines: Vec<_> = mailboxes.iter().filter_map(as_line).collect();
        lines.sort_unstable();
        lines
    }

    /// Sends an order to a client, and gives its number.
    ///
    /// # Errors
    /// [`NotConnected`] if the client is not connected, or does not fetch its orders.
    pub fn send(&self, client: &str, order: CellOrder) -> Result<u64, NotConnected> {
        let not_connected = || NotConnected { client: client.to_owned() };
        let id = peer_id(PeerKind::Client, client).ok_or_else(not_connected)?;
        let mut mailboxes = self.mailboxes();
        let connected = mailboxes.get_mut(&id).filter(|mailbox| mailbox.is_connected());
        let mailbox = connected.filter(|mailbox| mailbox.orders.len() < ORDERS_MAX).ok_or_else(not_connected)?;
        mailbox.last += 1;
        mailbox.orders.push_back(NumberedOrder { number: mailbox.last, order });
        mailbox.wakes.notify_waiters();
        Ok(mailbox.last)
    }

    /// Takes an order back by its number. Whether it was still here: then the client may have got it all the same, but
    /// has not asked for others since.
    pub fn take_back(&self, client: &str, order: u64) -> bool {
        let Some(id) = peer_id(PeerKind::Client, client) else { return false };
        let mut mailboxes = self.mailboxes();
        let Some(mailbox) = mailboxes.get_mut(&id) else { return false };
        let before = mailbox.orders.len();
        mailbox.orders.retain(|numbered| numbered.number != order);
        mailbox.orders.len() < before
    }

    /// The id of this start of the server.
    pub fn epoch(&self) -> String {
        self.shared.epoch.to_string()
    }

    /// What a peer says of itself.
    pub(super) fn hear(&self, peer: &PeerId, from: SocketAddr, hello: PeerHello) {
        let mut mailboxes = self.mailboxes();
        let mailbox = mailboxes.entry(peer.clone()).or_insert_with(|| Mailbox::new(from));
        mailbox.comes(from);
        mailbox.hello = Some(hello);
    }

    /// Begins a question of a peer; what it has by its own words is forgotten.
    pub(super) fn ask(&self, peer: &PeerId, from: SocketAddr, query: &OrdersQuery) -> Question {
        let is_of_now = query.epoch.as_deref() == Some(self.epoch().as_str());
        let mut mailboxes = self.mailboxes();
        let mailbox = mailboxes.entry(peer.clone()).or_insert_with(|| Mailbox::new(from));
        mailbox.comes(from);
        (mailbox.asked, mailbox.is_turned_away) = (Some(Instant::now()), false);
        (mailbox.open, mailbox.heard) = (mailbox.open + 1, Instant::now());
        if is_of_now {
            mailbox.orders.retain(|numbered| numbered.number > query.after);
        }
        let is_of_another_server = query.epoch.is_some() && !is_of_now;
        let (hub, peer, wakes) = (self.clone(), peer.clone(), Arc::clone(&mailbox.wakes));
        Question { hub, peer, wakes, is_of_another_server, is_answered: false }
    }

    /// Has the questions of a peer look whether it is still let in.
    pub(super) fn wake(&self, peer: &PeerId) {
        if let Some(mailbox) = self.mailboxes().get(peer) {
            mailbox.wakes.notify_waiters();
        }
    }

    /// The same for one that is not let in any more, and takes its orders away.
    pub(super) fn turn_away(&self, peer: &PeerId) {
        if let Some(mailbox) = self.mailboxes().get_mut(peer) {
            (mailbox.is_turned_away, mailbox.came_back) = (true, Default::default());
            mailbox.orders.clear();
            mailbox.wakes.notify_waiters();
        }
    }

    fn mailboxes(&self) -> MutexGuard<'_, HashMap<PeerId, Mailbox>> {
        self.shared.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn peer_id(kind: PeerKind, name: &str) -> Option<PeerId> {
    Some(PeerId { kind, name: name.parse().ok()? })
}

/// A question for orders, while it is open.
pub(super) struct Question {
    hub: Hub,
    peer: PeerId,
    wakes: Arc<Notify>,
    is_of_another_server: bool,
    is_answered: bool,
}

impl Question {
    /// Ends when something has changed since this was called.
    pub(super) fn change(&self) -> impl Future<Output = ()> + Send + use<> {
        Arc::clone(&self.wakes).notified_owned()
    }

    /// The orders that the peer has not got.
    pub(super) fn answer(&self) -> OrdersAnswer {
        let mailboxes = self.hub.mailboxes();
        let orders = mailboxes.get(&self.peer).map(|mailbox| mailbox.orders.iter().cloned().collect());
        OrdersAnswer { epoch: self.hub.epoch(), orders: orders.unwrap_or_default() }
    }

    /// Whether it was meant for a server before this one. The peer said its hello to that one, and says it again once
    /// it hears which server this is; until then it is not connected.
    pub(super) fn is_of_another_server(&self) -> bool {
        self.is_of_another_server
    }

    /// The answer is on its way.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(mailbox) = self.hub.mailboxes().get_mut(&self.peer) {
            mailbox.open = mailbox.open.saturating_sub(1);
            mailbox.heard = Instant::now();
            mailbox.asked = self.is_answered.then_some(mailbox.heard);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_client::JobId;

    use super::*;

    fn stop(job: u8) -> CellOrder {
        CellOrder::Stop { job: JobId([job; 16]) }
    }

    fn jobs(answer: &OrdersAnswer) -> Vec<u8> {
        answer.orders.iter().map(|numbered| numbered.order.job().0[0]).collect()
    }

    #[test]
    fn an_order_stays_until_the_client_asks_for_those_after_it() {
        let (hub, from) = (Hub::new().unwrap(), "127.0.0.1:1".parse().unwrap());
        let tern: PeerId = "client/tern".parse().unwrap();
        assert_eq!(hub.send("tern", stop(1)), Err(NotConnected { client: "tern".to_owned() }));
        let question = hub.ask(&tern, from, &OrdersQuery::default());
        assert!(hub.is_connected("tern") && !hub.is_connected("plover"));
        assert_eq!((hub.send("tern", stop(1)), hub.send("tern", stop(2))), (Ok(1), Ok(2)));
        assert_eq!(jobs(&question.answer()), [1, 2]);
        question.answered();
        assert!(hub.is_connected("tern"), "it asked a moment ago");
        let of_other = OrdersQuery { after: 7, epoch: Some("another".to_owned()) };
        assert_eq!(jobs(&hub.ask(&tern, from, &of_other).answer()), [1, 2], "numbers of another server say nothing");
        let next = OrdersQuery { after: 1, epoch: Some(hub.epoch()) };
        assert_eq!(jobs(&hub.ask(&tern, from, &next).answer()), [2]);
        assert!(hub.take_back("tern", 2) && !hub.take_back("tern", 2));
        assert!(!hub.is_connected("tern"), "its connection ended while its question was open");
        let _question = hub.ask(&tern, from, &next);
        // A mover of the same name is somebody else.
        let mover = hub.ask(&"mover/tern".parse().unwrap(), from, &OrdersQuery::default());
        hub.send("tern", stop(3)).unwrap();
        assert!(jobs(&mover.answer()).is_empty());
    }

    #[test]
    fn a_mover_is_reached_where_it_announced_or_comes_from() {
        let (hub, heron): (_, PeerId) = (Hub::new().unwrap(), "mover/heron".parse().unwrap());
        let hello = |data: Option<&str>| PeerHello { data: data.map(str::to_owned), ..PeerHello::default() };
        hub.hear(&heron, "192.0.2.1:40000".parse().unwrap(), hello(Some(":5703")));
        assert_eq!(hub.mover_data("heron"), None, "it does not wait for orders");
        for (from, data, reached) in [
            ("192.0.2.1:40000", Some(":5703"), Some("192.0.2.1:5703")),
            ("[::ffff:192.0.2.1]:40000", Some(":5703"), Some("192.0.2.1:5703")),
            ("[2001:db8::1]:40000", Some(":5703"), Some("[2001:db8::1]:5703")),
            ("192.0.2.1:40000", Some("tape1:7003"), Some("tape1:7003")),
            ("192.0.2.1:40000", None, None),
        ] {
            let from = from.parse().unwrap();
            let _question = hub.ask(&heron, from, &OrdersQuery::default());
            hub.hear(&heron, from, hello(data));
            assert_eq!(hub.mover_data("heron").as_deref(), reached, "{from} {data:?}");
            assert_eq!(hub.mover_data("tern"), None);
        }
        let question = hub.ask(&heron, "192.0.2.1:40000".parse().unwrap(), &OrdersQuery::default());
        assert_eq!(hub.mover_away_for("heron"), None);
        drop(question);
        let (heron_away, tern_away) = (hub.mover_away_for("heron").unwrap(), hub.mover_away_for("tern").unwrap());
        assert!(heron_away < tern_away, "one was there until now, and one never came");
        let _question = hub.ask(&heron, "192.0.2.1:40000".parse().unwrap(), &OrdersQuery::default());
        hub.turn_away(&heron);
        assert_eq!(hub.mover_data("heron"), None, "it was revoked");
    }

    /// A mover came back to a server that had started anew, over a connection that never seemed to break. For half a
    /// minute it passed for connected, and each run failed for want of its address.
    #[test]
    fn a_peer_that_asks_the_server_before_this_one_is_not_there_yet() {
        let (hub, tern): (_, PeerId) = (Hub::new().unwrap(), "client/tern".parse().unwrap());
        let from = "192.0.2.1:1".parse().unwrap();
        let ask = |epoch: Option<String>| hub.ask(&tern, from, &OrdersQuery { epoch, after: 0 });
        assert!(!ask(Some(hub.epoch())).is_of_another_server() && !ask(None).is_of_another_server());
        let question = ask(Some("before".to_owned()));
        assert!(question.is_of_another_server());
        drop(question);
        assert!(!hub.is_connected("tern"));
    }

    /// A virtual machine was copied with its client, and the server took both for one.
    #[test]
    fn a_peer_that_comes_back_to_earlier_connections_runs_twice() {
        let tern: PeerId = "client/tern".parse().unwrap();
        let twice = |froms: &[&str]| {
            let hub = Hub::new().unwrap();
            for from in froms {
                drop(hub.ask(&tern, from.parse().unwrap(), &OrdersQuery::default()));
            }
            hub.twice()
        };
        let (one, other, third) = ("192.0.2.1:1", "192.0.2.7:1", "192.0.2.3:1");
        for alone in [&[one, one, other, other, third][..], &[one, other, third, "192.0.2.1:2", "192.0.2.7:2"]] {
            assert!(twice(alone).is_empty(), "one process that connects anew: {alone:?}");
        }
        assert!(twice(&[one, other, one, one]).is_empty(), "a port that came again");
        let said = "client tern runs in two places under one identity: at 192.0.2.1 and at 192.0.2.7. At the one";
        for both in [&[one, other, one, other][..], &[other, one, other, one, other]] {
            let lines = twice(both);
            assert!(lines.len() == 1 && lines[0].starts_with(said), "{lines:?}");
        }
        assert!(twice(&[one, other, third, one, other])[0].contains("at 192.0.2.1 and at 192.0.2.7"), "three of them");
        assert!(twice(&[one, "192.0.2.1:2", one, "192.0.2.1:2"])[0].contains(": both at 192.0.2.1. "));
    }

    #[test]
    fn a_client_that_fetches_nothing_gets_no_more() {
        let (hub, from) = (Hub::new().unwrap(), "127.0.0.1:1".parse().unwrap());
        let _question = hub.ask(&"client/tern".parse().unwrap(), from, &OrdersQuery::default());
        let sent = (0..2 * ORDERS_MAX).filter(|_| hub.send("tern", stop(1)).is_ok()).count();
        assert_eq!(sent, ORDERS_MAX);
    }
}
