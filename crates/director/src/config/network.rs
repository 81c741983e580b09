//! Networks that clients are in: how many of their runs may be at work, and what crosses the network at most.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::IpNet;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::Config;
use super::bandwidth::Bandwidth;

/// What `[networks.NAME]` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// The addresses of its clients, as networks: `10.7.0.0/16`.
    pub addresses: Vec<IpNet>,
    /// Runs of its clients that are at work at the same time, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_at_once: Option<usize>,
    /// Bytes a second of all runs of its clients together, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bandwidth: Vec<String>,
}

impl NetworkConfig {
    /// How much all runs of its clients may take together; none for as much as can be.
    pub fn bandwidth(&self) -> Option<Bandwidth> {
        Bandwidth::parse(&self.bandwidth, &TimeZone::system()).ok().flatten()
    }
}

impl Config {
    /// The network that an address is in, by its name: the narrowest. `address` is as a peer is seen, with or without a
    /// port.
    pub fn network_of(&self, address: &str) -> Option<(&str, &NetworkConfig)> {
        let with_port = address.parse::<SocketAddr>().map(|address| address.ip());
        let address = with_port.or_else(|_| address.parse::<IpAddr>()).ok()?.to_canonical();
        let prefix = |network: &NetworkConfig| {
            network.addresses.iter().filter(|net| net.contains(&address)).map(IpNet::prefix_len).max()
        };
        let within = self.networks.iter().filter_map(|(name, network)| Some((prefix(network)?, name, network)));
        within.max_by_key(|(prefix, ..)| *prefix).map(|(_, name, network)| (name.as_str(), network))
    }

    /// What is wrong with networks, if anything is.
    pub(super) fn check_networks(&self) -> Result<(), String> {
        for (name, network) in &self.networks {
            if network.addresses.is_empty() {
                return Err(format!("networks.{name}.addresses names no network: write one as in \"10.7.0.0/16\""));
            }
            if network.runs_at_once == Some(0) {
                return Err(format!("networks.{name}.runs_at_once must be above 0"));
            }
            Bandwidth::parse(&network.bandwidth, &TimeZone::system())
                .map_err(|(_, reason)| format!("networks.{name}.bandwidth: {reason}"))?;
            let others = self.networks.iter().filter(|(other, _)| *other != name);
            let is_same = |net: &IpNet, other: &IpNet| net.trunc() == other.trunc();
            let twice =
                |net: &&IpNet| others.clone().any(|(_, other)| other.addresses.iter().any(|own| is_same(own, net)));
            if let Some(net) = network.addresses.iter().find(twice) {
                return Err(format!("networks.{name}.addresses: another network has {net}, too"));
            }
        }
        Ok(())
    }
}

/// What a network takes at most, and who shares that: each of its runs has the same part.
#[derive(Debug)]
pub struct NetworkRuns {
    bandwidth: Bandwidth,
    runs: AtomicU64,
}

impl NetworkRuns {
    /// A network with no run yet.
    pub fn new(bandwidth: Bandwidth) -> Arc<Self> {
        Arc::new(Self { bandwidth, runs: AtomicU64::new(0) })
    }

    /// What it takes at most.
    pub fn bandwidth(&self) -> &Bandwidth {
        &self.bandwidth
    }

    /// One more run, until what this gives is dropped.
    pub fn join(self: &Arc<Self>) -> NetworkShare {
        self.runs.fetch_add(1, Ordering::Relaxed);
        NetworkShare(Arc::clone(self))
    }
}

/// A run's share of its network.
#[derive(Debug)]
pub struct NetworkShare(Arc<NetworkRuns>);

impl NetworkShare {
    /// What the run may take at a time; none where nothing bounds its network then.
    pub fn at(&self, now: Timestamp) -> Option<u64> {
        let runs = self.0.runs.load(Ordering::Relaxed).max(1);
        self.0.bandwidth.at(now).map(|all| (all / runs).max(1))
    }
}

impl Drop for NetworkShare {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_client_is_in_the_narrowest_network_of_its_address() {
        let all = config(
            "[networks.branch]\naddresses = [\"10.7.0.0/16\", \"fd00:7::/32\"]\nruns_at_once = 2\n\
             [networks.lab]\naddresses = [\"10.7.3.0/24\"]\n",
        );
        all.check_networks().unwrap();
        let of = |address: &str| all.network_of(address).map(|(name, _)| name);
        assert_eq!((of("10.7.1.2:5700"), of("10.7.3.2:1"), of("10.8.0.1:1")), (Some("branch"), Some("lab"), None));
        assert_eq!((of("[fd00:7::9]:5700"), of("::ffff:10.7.3.9"), of("")), (Some("branch"), Some("lab"), None));
    }

    #[test]
    fn what_is_wrong_with_a_network_is_named() {
        let wrong = |text: &str| config(text).check_networks().unwrap_err();
        assert!(wrong("[networks.a]\n").contains("networks.a.addresses names no network"));
        assert!(wrong("[networks.a]\naddresses = [\"10.0.0.0/8\"]\nruns_at_once = 0").contains("above 0"));
        assert!(wrong("[networks.a]\naddresses = [\"10.0.0.0/8\"]\nbandwidth = [\"fast\"]").contains("a.bandwidth"));
        let twice = "[networks.a]\naddresses = [\"10.0.0.0/8\"]\n[networks.b]\naddresses = [\"10.3.0.0/8\"]";
        assert!(wrong(twice).contains("another network has 10.0.0.0/8"));
    }

    #[test]
    fn runs_share_what_their_network_takes() {
        let bandwidth = Bandwidth::parse(&["10M".to_owned()], &TimeZone::UTC).unwrap().unwrap();
        let runs = NetworkRuns::new(bandwidth);
        let (first, second) = (runs.join(), runs.join());
        assert_eq!(
            (first.at(Timestamp::UNIX_EPOCH), second.at(Timestamp::UNIX_EPOCH)),
            (Some(5_000_000), Some(5_000_000))
        );
        drop(second);
        assert_eq!(first.at(Timestamp::UNIX_EPOCH), Some(10_000_000));
    }
}
