//! Where members and nodes live: each place in a network of its own where the machine allows it, so that links can be
//! cut one way or both; else all of them on loopback, where nothing is cut.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Sites of the cluster's nodes, by place.
pub(crate) const SITES: [&str; 3] = ["one", "one", "two"];
pub(crate) const PLACES: usize = SITES.len();

/// What listens at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    EtcdPeers,
    EtcdClients,
    Members,
    Strangers,
}

const DOORS: [Door; 4] = [Door::EtcdPeers, Door::EtcdClients, Door::Members, Door::Strangers];

pub(crate) enum Network {
    /// Network namespaces on a bridge. People and agents are on the bridge too, and reach every place whatever is cut.
    Namespaces {
        /// Names of bridge, links and namespaces begin with it.
        prefix: String,
        /// The first three bytes of the addresses.
        subnet: String,
    },
    /// Ports, one for each door of each place.
    Loopback(Vec<u16>),
}

/// How many numbers are tried: others may have theirs, and one that was killed left its own behind.
const TRIES: u32 = 5;

impl Network {
    pub(crate) fn new() -> Self {
        for _ in 0..TRIES {
            // Several of one process are apart, and have their own.
            let number = random();
            let prefix = format!("cap{}", number % 1_000_000);
            if !ip(&["link", "add", &prefix, "type", "bridge"]) {
                continue;
            }
            let subnet = format!("10.{}.{}", 200 + number / 256 % 50, number % 256);
            let network = Self::Namespaces { prefix, subnet };
            if network.raise() {
                return network;
            }
        }
        let any = std::iter::repeat_with(|| 12_768 + u16::try_from(random() % 20_000).unwrap());
        // From below those that the system gives to connections that go out: a server keeps its own while it is down.
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let ports: BTreeSet<u16> = any.filter(is_free).take(PLACES * DOORS.len() * 2).collect();
        // Said where nobody catches it: the rounds that follow show less.
        let _ = writeln!(
            std::io::stderr(),
            "faults: no network namespaces can be made here, so no link is cut: they take root and `ip`"
        );
        Self::Loopback(ports.into_iter().take(PLACES * DOORS.len()).collect())
    }

    fn raise(&self) -> bool {
        let Self::Namespaces { prefix, subnet } = self else { return true };
        let places = || {
            (0..PLACES).all(|place| {
                let (namespace, link) = (format!("{prefix}n{place}"), format!("{prefix}l{place}"));
                ip(&["netns", "add", &namespace])
                    && ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &namespace])
                    && ip(&["link", "set", &link, "master", prefix, "up"])
                    && ip(&["-n", &namespace, "address", "add", &format!("{subnet}.{}/24", place + 10), "dev", "eth0"])
                    && ip(&["-n", &namespace, "link", "set", "eth0", "up"])
                    && ip(&["-n", &namespace, "link", "set", "lo", "up"])
            })
        };
        ip(&["address", "add", &format!("{subnet}.1/24"), "dev", prefix])
            && ip(&["link", "set", prefix, "up"])
            && places()
    }

    /// Whether links can be cut.
    pub(crate) fn can_cut(&self) -> bool {
        matches!(self, Self::Namespaces { .. })
    }

    /// Host and port.
    pub(crate) fn address(&self, place: usize, door: Door) -> String {
        let at = DOORS.iter().position(|other| *other == door).unwrap();
        match self {
            Self::Namespaces { subnet, .. } => format!("{subnet}.{}:{}", place + 10, 7001 + at),
            Self::Loopback(ports) => format!("127.0.0.1:{}", ports[place * DOORS.len() + at]),
        }
    }

    /// A program that runs at a place.
    pub(crate) fn command(&self, place: usize, program: &str) -> Command {
        match self {
            Self::Namespaces { prefix, .. } => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &format!("{prefix}n{place}"), program]);
                command
            }
            Self::Loopback(_) => Command::new(program),
        }
    }

    /// Drops what `from` sends to `to`. What comes the other way arrives, and its answers do not.
    pub(crate) fn cut(&self, from: usize, to: usize) {
        self.route("replace", from, to);
    }

    pub(crate) fn mend(&self, from: usize, to: usize) {
        self.route("delete", from, to);
    }

    fn route(&self, what: &str, from: usize, to: usize) {
        if let Self::Namespaces { prefix, subnet } = self {
            let to = format!("{subnet}.{}/32", to + 10);
            ip(&["-n", &format!("{prefix}n{from}"), "route", what, "blackhole", &to]);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let Self::Namespaces { prefix, .. } = self else { return };
        for place in 0..PLACES {
            ip(&["link", "del", &format!("{prefix}l{place}")]);
            ip(&["netns", "del", &format!("{prefix}n{place}")]);
        }
        ip(&["link", "del", prefix]);
    }
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn ip(arguments: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Two of one process took the same names once: each took down the other's, and no link was ever cut.
#[test]
fn networks_of_one_process_are_apart() {
    let networks = [(); 3].map(|()| Network::new());
    let [first, ..] = &networks;
    assert!(networks.iter().all(|network| network.can_cut() == first.can_cut()));
    let addresses: BTreeSet<_> = networks.iter().map(|network| network.address(0, Door::Members)).collect();
    assert_eq!(addresses.len(), networks.len());
}
