//! Objects of like lifetime gather on volumes: what is on a volume comes to its end together, and the volume is free
//! soon after. One object that is kept for years, among those of a month, keeps a volume for years.
//!
//! The lifetime of an object is how long it is kept from when it was begun: its retention, or about as long as the keep
//! rule of its policy may keep one. A volume has those of all that lives on it: where runs of unlike lifetimes shared a
//! drive, what is like any of them adds nothing to its time.

/// How long something is kept, from when it is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lifetime(i64);

impl Lifetime {
    /// For ever.
    pub const ENDLESS: Self = Self(i64::MAX);

    /// So many nanoseconds.
    pub fn of_ns(ns: i64) -> Self {
        Self(ns.max(1))
    }

    /// How many times the longer is the shorter, rounded down.
    fn times(self, other: Self) -> i64 {
        self.0.max(other.0) / self.0.min(other.0)
    }

    /// Whether the longer is less than twice the shorter.
    pub fn is_like(self, other: Self) -> bool {
        self.times(other) < 2
    }
}

/// The lifetimes of what lives on a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifetimeSpan {
    /// The shortest.
    pub shortest: Lifetime,
    /// The longest.
    pub longest: Lifetime,
}

impl LifetimeSpan {
    /// All of one.
    pub fn of(lifetime: Lifetime) -> Self {
        Self { shortest: lifetime, longest: lifetime }
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self { shortest: self.shortest.min(other.shortest), longest: self.longest.max(other.longest) }
    }

    /// Whether they are unlike each other.
    pub(crate) fn is_mixed(self) -> bool {
        !self.shortest.is_like(self.longest)
    }

    /// 0 where a lifetime is like them, or between them; otherwise how many times the nearest is as long, or as short.
    pub(crate) fn apart(self, lifetime: Lifetime) -> i64 {
        let nearest = lifetime.clamp(self.shortest, self.longest);
        if nearest.is_like(lifetime) { 0 } else { nearest.times(lifetime) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    #[test]
    fn lifetimes_are_alike_up_to_twice() {
        let days = |days: i64| Lifetime::of_ns(days * DAY_NS);
        assert!(days(30).is_like(days(30)) && days(30).is_like(days(59)) && days(59).is_like(days(30)));
        assert!(!days(30).is_like(days(60)) && !days(365).is_like(days(30)));
        assert!(!Lifetime::ENDLESS.is_like(days(36_500)) && Lifetime::ENDLESS.is_like(Lifetime::ENDLESS));
        assert_eq!((days(30).times(days(365)), days(365).times(days(30))), (12, 12));
        // Nothing is divided by nothing.
        assert!(Lifetime::of_ns(0).is_like(Lifetime::of_ns(-5)));
    }

    #[test]
    fn what_is_like_anything_on_a_volume_is_like_the_volume() {
        let days = |days: i64| Lifetime::of_ns(days * DAY_NS);
        let mixed = LifetimeSpan::of(days(30)).with(LifetimeSpan::of(days(3650)));
        assert!(mixed.is_mixed() && !LifetimeSpan::of(days(30)).is_mixed());
        let apart: Vec<_> = [3, 20, 40, 365, 5000, 7300].map(|number| mixed.apart(days(number))).into();
        assert_eq!(apart, [10, 0, 0, 0, 0, 2]);
    }
}
