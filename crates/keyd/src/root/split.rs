//! Splitting a secret among holders (Shamir): any `threshold` shares give it, fewer tell nothing at all.
//!
//! The polynomials are those of the crate `blahaj`: one for each byte of the secret over GF(256), the secret as its
//! constant term, every other coefficient uniform in 0..=255 (its forerunner `sharks` drew from 1..=255,
//! RUSTSEC-2024-0398, so that shares told something of the secret; a test here looks at how shares are spread).
//! `vsss-rs` was rejected: verifiable sharing over prime fields wants curves, while whether shares fit together is told
//! here by the key wrap of what they open. The randomness is drawn beforehand from the one generator that everything
//! uses, and is zeroised.
//!
//! Limits: the field's tables are looked up by secret values, so another process on the same core may learn from the
//! cache while shares are put together, which is a moment at each unlocking.

use std::convert::Infallible;

use blahaj::{Share as Point, Sharks};
use capstan_keys::{KEY_LEN, KeyError, Secret, random};
use rand_core::{TryCryptoRng, TryRng};
use zeroize::{Zeroize, Zeroizing};

/// Most holders of one secret. More people than this are never found at night.
pub(crate) const HOLDERS_MAX: u8 = 32;
/// The crate draws 32 bits for each coefficient.
const DRAWN_LEN: usize = 4;

/// One split of one secret: shares of different splits do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SplitId(pub(crate) [u8; 16]);

/// One holder's part. No `Debug`, no `Clone`; zeroised.
pub(crate) struct Share {
    pub(crate) split: SplitId,
    /// Where the polynomials were evaluated: 1, 2, 3 ... in the order of the holders.
    pub(crate) index: u8,
    pub(crate) value: Secret,
}

/// How many random bytes a split takes.
pub(crate) fn randomness_len(threshold: u8) -> usize {
    usize::from(threshold).saturating_sub(1) * KEY_LEN * DRAWN_LEN
}

/// Splits `secret` into `holders` shares, any `threshold` of which give it back.
pub(crate) fn split(secret: &Secret, id: SplitId, threshold: u8, holders: u8) -> Result<Vec<Share>, KeyError> {
    let mut drawn = Zeroizing::new(vec![0; randomness_len(threshold)]);
    random(&mut drawn)?;
    split_with(secret, id, threshold, holders, drawn)
}

fn split_with(
    secret: &Secret,
    split: SplitId,
    threshold: u8,
    holders: u8,
    randomness: Zeroizing<Vec<u8>>,
) -> Result<Vec<Share>, KeyError> {
    debug_assert!((1..=holders).contains(&threshold) && holders <= HOLDERS_MAX);
    let mut drawn = Drawn { randomness, at: 0, missing: 0 };
    let points: Vec<Point> =
        Sharks(threshold).dealer_rng(secret.expose(), &mut drawn).take(usize::from(holders)).collect();
    if drawn.missing > 0 {
        let reason = "the splitting library draws more randomness than it was given";
        return Err(KeyError::Host { what: "splitting the root key".to_owned(), source: reason.into() });
    }
    let share = |point: Point| {
        let bytes = Zeroizing::new(Vec::from(&point));
        let value = Secret::filled(|value| {
            value.copy_from_slice(&bytes[1..]);
            Ok::<(), KeyError>(())
        })?;
        Ok(Share { split, index: bytes[0], value })
    };
    points.into_iter().map(share).collect()
}

/// Puts a secret together out of exactly as many shares as its threshold, of one split and with different indices: the
/// caller has seen to that. Shares that were altered give another secret, which only its use can show.
pub(crate) fn combine(shares: &[&Share]) -> Option<Secret> {
    let threshold = u8::try_from(shares.len()).ok().filter(|&count| count > 0)?;
    let mut points = Vec::with_capacity(shares.len());
    for share in shares {
        let mut bytes = Zeroizing::new([0; 1 + KEY_LEN]);
        bytes[0] = share.index;
        bytes[1..].copy_from_slice(share.value.expose());
        points.push(Point::try_from(&bytes[..]).ok()?);
    }
    let mut combined = Sharks(threshold).recover(&points).ok()?;
    let secret = Secret::filled(|secret| {
        secret.copy_from_slice(combined.get(..KEY_LEN).ok_or(())?);
        Ok::<(), ()>(())
    });
    combined.zeroize();
    secret.ok()
}

/// Randomness that was drawn beforehand, as the generator that the library asks for.
struct Drawn {
    randomness: Zeroizing<Vec<u8>>,
    at: usize,
    /// How many bytes were asked for beyond it; what was made of them is thrown away.
    missing: usize,
}

impl TryRng for Drawn {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        match self.randomness.get(self.at..self.at + bytes.len()) {
            Some(drawn) => bytes.copy_from_slice(drawn),
            None => self.missing += bytes.len(),
        }
        self.at = self.randomness.len().min(self.at + bytes.len());
        Ok(())
    }
}

impl TryCryptoRng for Drawn {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const ID: SplitId = SplitId([4; 16]);

    fn secret(byte: u8) -> Secret {
        Secret::filled(|bytes| {
            bytes.fill(byte);
            Ok::<(), ()>(())
        })
        .unwrap()
    }

    /// Every choice of shares, for every small quorum: as many as the threshold give the secret.
    #[test]
    fn any_threshold_of_the_shares_gives_the_secret() {
        for holders in 1..=6u8 {
            for threshold in 1..=holders {
                let secret = Secret::random().unwrap();
                let shares = split(&secret, ID, threshold, holders).unwrap();
                assert_eq!(
                    shares.iter().map(|share| share.index).collect::<Vec<_>>(),
                    (1..=holders).collect::<Vec<_>>()
                );
                for choice in 1u32..1 << holders {
                    let chosen: Vec<_> = shares.iter().filter(|share| choice & 1 << (share.index - 1) != 0).collect();
                    let fits = combine(&chosen).unwrap().expose() == secret.expose();
                    assert_eq!(
                        fits,
                        chosen.len() >= usize::from(threshold),
                        "{threshold} of {holders}, chosen {choice:b}"
                    );
                }
            }
        }
    }

    /// An implementation of its own, in its plainest form: multiplication bit by bit, division by search.
    #[test]
    fn shares_are_points_of_polynomials_over_the_field() {
        fn times(mut a: u8, mut b: u8) -> u8 {
            let mut product = 0u8;
            while b > 0 {
                if b & 1 == 1 {
                    product ^= a;
                }
                a = a << 1 ^ if a & 0x80 == 0 { 0 } else { 0x1d };
                b >>= 1;
            }
            product
        }
        let randomness: Vec<u8> = (0..randomness_len(3)).map(|at| (at * 7 + 3) as u8).collect();
        let secret = Secret::random().unwrap();
        let shares = split_with(&secret, ID, 3, 5, Zeroizing::new(randomness.clone())).unwrap();
        for (byte, drawn) in randomness.chunks(2 * DRAWN_LEN).enumerate() {
            // Coefficients come from the highest power down, each from the low byte of 32 bits.
            let (square, linear) = (drawn[0], drawn[DRAWN_LEN]);
            for share in &shares {
                let x = share.index;
                let expected = times(times(square, x), x) ^ times(linear, x) ^ secret.expose()[byte];
                assert_eq!(share.value.expose()[byte], expected, "byte {byte} of share {x}");
            }
        }
    }

    #[test]
    fn a_library_that_draws_more_is_found_out() {
        let short = Zeroizing::new(vec![1; randomness_len(3) - 1]);
        assert!(split_with(&secret(1), ID, 3, 5, short).is_err());
    }

    /// The fault of `sharks`, the forerunner of the library: coefficients were never zero, so that a share could never
    /// equal the secret and each share ruled values of the secret out. Here a single share of a fixed secret takes each
    /// of the 256 values alike: chi-squared with 255 degrees of freedom is above 400 once in a thousand million runs;
    /// without one of the values it is above 500.
    #[test]
    fn a_share_tells_nothing_of_the_secret() {
        const SPLITS: usize = 4000;
        for (threshold, byte) in [(2, 0x00), (2, 0xff), (3, 0x5a)] {
            for index in [0, 2] {
                let mut counts = [0u32; 256];
                for _ in 0..SPLITS {
                    let shares = split(&secret(byte), ID, threshold, 3).unwrap();
                    shares[index].value.expose().iter().for_each(|&value| counts[usize::from(value)] += 1);
                }
                let expected = (SPLITS * KEY_LEN) as f64 / 256.0;
                let chi: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
                println!("{threshold} of 3, secret {byte:02x}, share {index}: chi-squared {chi:.1}");
                assert!(chi < 400.0, "shares are not uniform: {chi}");
            }
        }
    }
}
