//! How often something is tried: from one place so often, from all together so often, and never with a lock at the end.
//!
//! Made for enrolments. A passphrase of 100 bits is not guessed, at whatever rate. So nothing is gained by locking an
//! enrolment after some tries, and it was lost by it: whoever reached the port and knew a name locked it within a
//! second. What is to be kept is the process, which computes and commits for each try. A place is an address, of IPv6
//! its network of 64 bits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Places that are remembered, at some ten bytes each.
const PLACES_MAX: usize = 10_000;

/// What is taken at once, and how long each further try waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// So many at once.
    pub at_once: u32,
    /// One more after so long.
    pub every: Duration,
}

/// Until when what was tried is worked off; far enough ahead of now, the next one waits.
#[derive(Debug, Clone, Copy)]
struct Until(Instant);

impl Until {
    /// How long the next try waits.
    fn wait(self, burst: Burst, now: Instant) -> Duration {
        let ahead = self.0.saturating_duration_since(now);
        ahead.saturating_sub(burst.every * (burst.at_once - 1))
    }

    fn after_another(self, burst: Burst, now: Instant) -> Self {
        Self(self.0.max(now) + burst.every)
    }
}

/// Who may try something, by where they come from.
#[derive(Debug)]
pub struct AddressRateLimiter {
    of_one: Burst,
    of_all: Burst,
    places: HashMap<IpAddr, Until>,
    all: Option<Until>,
}

impl AddressRateLimiter {
    /// So many tries from one place, and so many from all.
    pub fn new(of_one: Burst, of_all: Burst) -> Self {
        Self { of_one, of_all, places: HashMap::new(), all: None }
    }

    /// A try from there has succeeded, and does not count.
    pub fn succeeded(&mut self, from: IpAddr) {
        if let Some(until) = self.places.get_mut(&place(from)) {
            until.0 = until.0.checked_sub(self.of_one.every).unwrap_or(until.0);
        }
    }

    /// Whether another try from there is taken now.
    ///
    /// # Errors
    /// It is not, and how long it waits.
    pub fn next(&mut self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let place = place(from);
        let of_place = self.places.get(&place).copied().unwrap_or(Until(now));
        let all = self.all.unwrap_or(Until(now));
        let wait = of_place.wait(self.of_one, now).max(all.wait(self.of_all, now));
        if !wait.is_zero() {
            return Err(wait);
        }
        if self.places.len() >= PLACES_MAX {
            self.places.retain(|_, until| until.0 > now);
        }
        if self.places.len() < PLACES_MAX {
            self.places.insert(place, of_place.after_another(self.of_one, now));
        }
        self.all = Some(all.after_another(self.of_all, now));
        Ok(())
    }
}

/// The place of an address: whoever has one address of a network of IPv6 has all of it.
pub(crate) fn place(from: IpAddr) -> IpAddr {
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

    fn limiter() -> AddressRateLimiter {
        let of_one = Burst { at_once: 20, every: Duration::from_secs(5) };
        AddressRateLimiter::new(of_one, Burst { at_once: 100, every: Duration::from_millis(50) })
    }

    fn from(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Five tries from anywhere locked an enrolment for good.
    #[test]
    fn who_tries_often_waits_and_holds_up_nobody_else() {
        let (mut limiter, now) = (limiter(), Instant::now());
        let noisy = from("192.0.2.1");
        let heard = (0..1000).filter(|_| limiter.next(noisy, now).is_ok()).count();
        assert_eq!(heard, 20);
        assert_eq!(limiter.next(noisy, now), Err(Duration::from_secs(5)));
        assert_eq!(limiter.next(from("192.0.2.2"), now), Ok(()));
        assert_eq!(limiter.next(noisy, now + Duration::from_secs(5)), Ok(()));
        assert!(limiter.next(noisy, now + Duration::from_secs(6)).is_err());
        limiter.succeeded(noisy);
        assert_eq!(limiter.next(noisy, now + Duration::from_secs(6)), Ok(()), "who is let in does not wait");
        let now = now + Duration::from_secs(6);
        // Addresses of one network are one place; there are more of them than can be counted.
        let heard = (0..100).filter(|n| limiter.next(from(&format!("2001:db8::{n}")), now).is_ok()).count();
        assert_eq!(heard, 20);
        assert_eq!(limiter.next(from("2001:db8:0:1::1"), now), Ok(()));
        assert!(limiter.next(from("::ffff:192.0.2.1"), now).is_err(), "the same, as a socket of both kinds has it");
    }

    #[test]
    fn a_crowd_is_heard_so_often_and_forgotten() {
        let (mut limiter, now) = (limiter(), Instant::now());
        let crowd = |limiter: &mut AddressRateLimiter, now| {
            let places = (0..50_000_u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
            places.filter(|place| limiter.next(*place, now).is_ok()).count()
        };
        assert_eq!(crowd(&mut limiter, now), 100);
        assert_eq!(crowd(&mut limiter, now + Duration::from_secs(1)), 20);
        let mut then = now;
        for _ in 0..20_000 {
            then += Duration::from_secs(1);
            let _ = crowd_of_one(&mut limiter, then);
        }
        assert!(limiter.places.len() <= PLACES_MAX);
        assert_eq!(crowd(&mut limiter, then + Duration::from_secs(60)), 100);
    }

    fn crowd_of_one(limiter: &mut AddressRateLimiter, now: Instant) -> Result<(), Duration> {
        let n = limiter.places.len() as u32;
        limiter.next(IpAddr::from((0x0b00_0000 + n).to_be_bytes()), now)
    }
}
