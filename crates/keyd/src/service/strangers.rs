//! How often enrolments are tried: from one place so often, from all together so often, and never with a lock at the
//! end.
//!
//! A passphrase of 100 bits is not guessed, at whatever rate. So nothing is gained by locking an enrolment after some
//! tries, and it was lost by it: whoever reached the port and knew a name locked it within a second. What is to be kept
//! is the node, which computes and commits for each try. A place is an address, of IPv6 its network of 64 bits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Tries from one place at once that come to nothing, and how long each further one waits: a whole rack may enrol from
/// behind one address.
const OF_ONE: Share = Share { at_once: 20, every: Duration::from_secs(5) };
/// Tries from all places.
const OF_ALL: Share = Share { at_once: 100, every: Duration::from_millis(50) };
/// Places that are remembered, at some ten bytes each.
const PLACES_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Share {
    at_once: u32,
    every: Duration,
}

/// Until when what was tried is worked off; far enough ahead of now, the next one waits.
#[derive(Debug, Clone, Copy)]
struct Until(Instant);

impl Until {
    /// How long the next try waits.
    fn wait(self, share: Share, now: Instant) -> Duration {
        let ahead = self.0.saturating_duration_since(now);
        ahead.saturating_sub(share.every * (share.at_once - 1))
    }

    fn after_another(self, share: Share, now: Instant) -> Self {
        Self(self.0.max(now) + share.every)
    }
}

/// What strangers have tried at this node.
#[derive(Default)]
pub(super) struct Strangers {
    places: HashMap<IpAddr, Until>,
    all: Option<Until>,
}

impl Strangers {
    /// A try from there has led to a certificate, and does not count.
    pub(super) fn proved(&mut self, from: IpAddr) {
        if let Some(until) = self.places.get_mut(&place(from)) {
            until.0 = until.0.checked_sub(OF_ONE.every).unwrap_or(until.0);
        }
    }

    /// Whether another try from there is heard now, or how long it waits.
    pub(super) fn next(&mut self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let place = place(from);
        let of_place = self.places.get(&place).copied().unwrap_or(Until(now));
        let all = self.all.unwrap_or(Until(now));
        let wait = of_place.wait(OF_ONE, now).max(all.wait(OF_ALL, now));
        if !wait.is_zero() {
            return Err(wait);
        }
        if self.places.len() >= PLACES_MAX {
            self.places.retain(|_, until| until.0 > now);
        }
        if self.places.len() < PLACES_MAX {
            self.places.insert(place, of_place.after_another(OF_ONE, now));
        }
        self.all = Some(all.after_another(OF_ALL, now));
        Ok(())
    }
}

fn place(from: IpAddr) -> IpAddr {
    match from {
        IpAddr::V4(_) => from,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Five tries from anywhere locked an enrolment for good.
    #[test]
    fn who_tries_often_waits_and_holds_up_nobody_else() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let noisy = from("192.0.2.1");
        let heard = (0..1000).filter(|_| strangers.next(noisy, now).is_ok()).count();
        assert_eq!(heard, 20);
        assert_eq!(strangers.next(noisy, now), Err(Duration::from_secs(5)));
        assert_eq!(strangers.next(from("192.0.2.2"), now), Ok(()));
        assert_eq!(strangers.next(noisy, now + Duration::from_secs(5)), Ok(()));
        assert!(strangers.next(noisy, now + Duration::from_secs(6)).is_err());
        strangers.proved(noisy);
        assert_eq!(strangers.next(noisy, now + Duration::from_secs(6)), Ok(()), "who is let in does not wait");
        let now = now + Duration::from_secs(6);
        // Addresses of one network are one place; there are more of them than can be counted.
        let heard = (0..100).filter(|n| strangers.next(from(&format!("2001:db8::{n}")), now).is_ok()).count();
        assert_eq!(heard, 20);
        assert_eq!(strangers.next(from("2001:db8:0:1::1"), now), Ok(()));
        assert!(strangers.next(from("::ffff:192.0.2.1"), now).is_err(), "the same, as a socket of both kinds has it");
    }

    #[test]
    fn a_crowd_is_heard_so_often_and_forgotten() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let crowd = |strangers: &mut Strangers, now| {
            let places = (0..50_000_u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
            places.filter(|place| strangers.next(*place, now).is_ok()).count()
        };
        assert_eq!(crowd(&mut strangers, now), 100);
        assert_eq!(crowd(&mut strangers, now + Duration::from_secs(1)), 20);
        let mut then = now;
        for _ in 0..20_000 {
            then += Duration::from_secs(1);
            let _ = crowd_of_one(&mut strangers, then);
        }
        assert!(strangers.places.len() <= PLACES_MAX);
        assert_eq!(crowd(&mut strangers, then + Duration::from_secs(60)), 100);
    }

    fn crowd_of_one(strangers: &mut Strangers, now: Instant) -> Result<(), Duration> {
        let n = strangers.places.len() as u32;
        strangers.next(IpAddr::from((0x0b00_0000 + n).to_be_bytes()), now)
    }
}
