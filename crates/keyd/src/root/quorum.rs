//! A root key under a quorum: any `threshold` of its holders open it, each with a passphrase of their own.
//!
//! ```text
//!  0   1  threshold: how many shares it takes
//!  1   1  number of holders, 1 to 32
//!  2  40  root key, wrapped under HKDF(split secret, salt = cluster id, `capstan keyd quorum v1`)
//! 42      each holder, in the order of their indices 1, 2, 3 ...:
//!         16  split id
//!         12  Argon2id: memory in KiB, iterations, lanes
//!         16  salt
//!         40  share, wrapped under HKDF(Argon2id(passphrase), salt = split id,
//!             `capstan keyd share v1 CLUSTER NAME INDEX/HOLDERS THRESHOLD`)
//!          1  length of the name
//!          n  name
//! ```
//! Key wrap is AES with padding (RFC 5649). What is split is not the root key itself but a secret that wraps it, new
//! with each split: so a quorum is changed without changing the root key, the root key never leaves its locked page for
//! the splitting library, and the wrap is the check value: shares that do not fit together open nothing. A share's own
//! wrap tells a wrong passphrase at once and by name, and binds the share to its holder, its place and its quorum.

use capstan_format::{Cursor, FormatError};
use capstan_keys::{
    Argon2Cost, KeyError, Name, RootKey, SALT_LEN, Secret, WRAPPED_LEN, WrappedKey, passphrase_key, random, unwrap,
    wrap,
};
use zeroize::Zeroizing;

use super::RootError;
use super::split::{self, HOLDERS_MAX, SplitId};
use capstan_keys::api::ClusterId;

/// A holder to be: who, and the passphrase that they typed. It holds a secret: no `Debug`, no `Clone`.
pub struct Holder {
    /// Who.
    pub name: Name,
    /// What opens their share, known to them alone.
    pub passphrase: Zeroizing<String>,
}

/// A quorum to be.
pub struct Quorum {
    /// How many of the holders it takes.
    pub threshold: u8,
    /// The holders.
    pub holders: Vec<Holder>,
    /// What a guess of a passphrase costs.
    pub cost: Argon2Cost,
}

impl Quorum {
    /// Whether these holders can be a quorum of which it takes so many; how many they are.
    pub(crate) fn check(threshold: u8, holders: &[&Name]) -> Result<u8, RootError> {
        let impossible = |reason| Err(RootError::ImpossibleQuorum { threshold, holders: holders.len(), reason });
        let Some(count) = u8::try_from(holders.len()).ok().filter(|&count| count <= HOLDERS_MAX) else {
            return impossible("there are at most 32");
        };
        if !(1..=count).contains(&threshold) {
            return impossible("it takes at least one of them and at most all");
        }
        if (0..holders.len()).any(|at| holders[..at].contains(&holders[at])) {
            return impossible("two of them have the same name");
        }
        Ok(count)
    }
}

/// The share of one holder, opened. No `Debug`, no `Clone`; zeroised.
pub struct Share {
    pub(super) holder: Name,
    pub(super) share: split::Share,
}

impl Share {
    /// Whose it is.
    pub fn holder(&self) -> &Name {
        &self.holder
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SealedShare {
    split: SplitId,
    cost: Argon2Cost,
    salt: [u8; SALT_LEN],
    wrapped: WrappedKey,
    holder: Name,
}

/// A root key under a quorum, as it lies in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuorumSealed {
    threshold: u8,
    root: WrappedKey,
    shares: Vec<SealedShare>,
}

impl QuorumSealed {
    /// Puts a root key under a quorum.
    pub(crate) fn seal(root: &RootKey, cluster: ClusterId, quorum: &Quorum) -> Result<Self, RootError> {
        let Quorum { threshold, holders, cost } = quorum;
        let count = Quorum::check(*threshold, &holders.iter().map(|holder| &holder.name).collect::<Vec<_>>())?;

        let secret = Secret::random()?;
        let mut id = SplitId([0; 16]);
        random(&mut id.0)?;
        let mut shares = Vec::with_capacity(holders.len());
        for (holder, share) in holders.iter().zip(split::split(&secret, id, *threshold, count)?) {
            let mut salt = [0; SALT_LEN];
            random(&mut salt)?;
            let opening = passphrase_key(&holder.passphrase, *cost, &salt)?;
            let place = Place { cluster, index: share.index, holders: count, threshold: *threshold };
            let wrapped = wrap(&place.wrapping(&opening, id, &holder.name)?, share.value.expose())?;
            shares.push(SealedShare { split: id, cost: *cost, salt, wrapped, holder: holder.name.clone() });
        }
        Ok(Self { threshold: *threshold, root: root.wrap(&root_wrapping(&secret, cluster)?)?, shares })
    }

    pub(crate) fn threshold(&self) -> u8 {
        self.threshold
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Name> {
        self.shares.iter().map(|share| &share.holder)
    }

    /// Opens the share of one holder: some tenths of a second.
    pub(crate) fn open_share(
        &self,
        cluster: ClusterId,
        holder: &Name,
        passphrase: &Zeroizing<String>,
    ) -> Result<Share, RootError> {
        let found = (1u8..).zip(&self.shares).find(|(_, share)| share.holder == *holder);
        let Some((index, sealed)) = found else {
            let holders = names(self.holders());
            return Err(RootError::NoSuchHolder { holder: holder.clone(), holders });
        };
        let opening = passphrase_key(passphrase, sealed.cost, &sealed.salt)?;
        let place = Place { cluster, index, holders: self.shares.len() as u8, threshold: self.threshold };
        let value = unwrap(&place.wrapping(&opening, sealed.split, holder)?, &sealed.wrapped)
            .ok_or_else(|| RootError::WrongPassphrase { holder: holder.clone() })?;
        Ok(Share { holder: holder.clone(), share: split::Share { split: sealed.split, index, value } })
    }

    /// The root key out of enough shares.
    pub(crate) fn open<'a>(
        &self,
        cluster: ClusterId,
        shares: impl IntoIterator<Item = &'a Share>,
    ) -> Result<RootKey, RootError> {
        let mut chosen: Vec<&Share> = Vec::new();
        for share in shares {
            if self.shares.iter().all(|sealed| sealed.split != share.share.split) {
                return Err(RootError::OtherSplit { holder: share.holder.clone() });
            }
            if chosen.iter().all(|earlier| earlier.share.index != share.share.index) {
                chosen.push(share);
            }
        }
        if chosen.len() < usize::from(self.threshold) {
            return Err(RootError::NotEnoughShares { given: chosen.len(), needed: self.threshold });
        }
        chosen.truncate(usize::from(self.threshold));
        let do_not_fit = || RootError::SharesDoNotFit { holders: names(chosen.iter().map(|share| &share.holder)) };
        let points: Vec<_> = chosen.iter().map(|share| &share.share).collect();
        let secret = split::combine(&points).ok_or_else(do_not_fit)?;
        RootKey::unwrap(&root_wrapping(&secret, cluster)?, &self.root)?.ok_or_else(do_not_fit)
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.threshold);
        bytes.push(self.shares.len() as u8);
        bytes.extend_from_slice(&self.root);
        for SealedShare { split, cost, salt, wrapped, holder } in &self.shares {
            bytes.extend_from_slice(&split.0);
            for parameter in [cost.memory_kib, cost.iterations, cost.lanes] {
                bytes.extend_from_slice(&parameter.to_le_bytes());
            }
            bytes.extend_from_slice(salt);
            bytes.extend_from_slice(wrapped);
            bytes.push(holder.as_str().len() as u8);
            bytes.extend_from_slice(holder.as_str().as_bytes());
        }
    }

    pub(crate) fn decode(fields: &mut Cursor<'_>) -> Result<Self, FormatError> {
        let (threshold, count) = (fields.u8()?, fields.u8()?);
        if !(1..=HOLDERS_MAX).contains(&count) {
            return Err(fields.field("number of holders", &count));
        }
        if !(1..=count).contains(&threshold) {
            return Err(fields.field("threshold", &threshold));
        }
        let root = fields.array::<WRAPPED_LEN>()?;
        let mut shares: Vec<SealedShare> = Vec::new();
        for _ in 0..count {
            let split = SplitId(fields.array()?);
            let cost = Argon2Cost { memory_kib: fields.u32()?, iterations: fields.u32()?, lanes: fields.u32()? };
            cost.within_limits().map_err(|error| fields.field("Argon2 parameters", &error))?;
            let (salt, wrapped, len) = (fields.array()?, fields.array()?, fields.u8()?);
            let name = str::from_utf8(fields.take(usize::from(len))?).unwrap_or_default();
            let holder: Name = name.parse().map_err(|error| fields.field("name of a holder", &error))?;
            if shares.iter().any(|earlier| earlier.holder == holder) {
                return Err(fields.field("holder that is there twice", &holder));
            }
            if shares.iter().any(|earlier| earlier.split != split) {
                return Err(fields.field("share of another split, that of", &holder));
            }
            shares.push(SealedShare { split, cost, salt, wrapped, holder });
        }
        Ok(Self { threshold, root, shares })
    }
}

/// What a share is bound to.
struct Place {
    cluster: ClusterId,
    index: u8,
    holders: u8,
    threshold: u8,
}

impl Place {
    fn wrapping(&self, opening: &Secret, split: SplitId, holder: &Name) -> Result<Secret, KeyError> {
        let Self { cluster, index, holders, threshold } = self;
        let purpose = format!("capstan keyd share v1 {cluster} {holder} {index}/{holders} {threshold}");
        capstan_keys::derive(opening.expose(), &split.0, &purpose)
    }
}

fn root_wrapping(secret: &Secret, cluster: ClusterId) -> Result<Secret, KeyError> {
    capstan_keys::derive(secret.expose(), &cluster.0, "capstan keyd quorum v1")
}

fn names<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    names.map(Name::as_str).collect::<Vec<_>>().join(", ")
}
