//! Which node is asked first: pure, with the time as an argument.

use std::time::{Duration, Instant};

use crate::api::{KmaMember, KmaState};

/// How long a node that was silent is left alone at first; it doubles up to [`REST_MAX`].
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(30);

/// A node, as it is to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: Option<String>,
    pub(super) address: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    candidate: Candidate,
    standing: Standing,
    health: Health,
    /// Its address is one of the settings, which stays whatever nodes say.
    given: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// A person has named it, and asks it before any other.
    Named,
    OwnSite,
    OtherSite,
    /// It is up and would only say that it cannot serve.
    Locked,
    /// An address that was given and no node calls its own: the way in, and the way back where nodes give addresses
    /// that cannot be reached from here.
    Given,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Silent { failures: u32, look_at: Instant },
}

/// Which of the nodes that are well come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Preference {
    /// Those of a site, by turns; an empty one prefers none.
    Site(String),
    /// Those that were named: whoever names a node wants to hear it, and what it has just been told it knows.
    Named,
}

/// The nodes that are known, and how they did.
pub(super) struct Roster {
    preference: Preference,
    nodes: Vec<Node>,
    turn: usize,
}

impl Roster {
    pub(super) fn new(addresses: &[String], preference: Preference, turn: usize) -> Self {
        let given = |address: &String| Node {
            candidate: Candidate { name: None, address: address.clone() },
            standing: Standing::Given,
            health: Health::Well,
            given: true,
        };
        Self { preference, nodes: addresses.iter().map(given).collect(), turn }
    }

    fn standing(&self, member: &KmaMember, given: bool) -> Standing {
        match &self.preference {
            _ if member.state == KmaState::Locked => Standing::Locked,
            Preference::Named if given => Standing::Named,
            Preference::Site(site) if !site.is_empty() && member.site != *site => Standing::OtherSite,
            Preference::Named | Preference::Site(_) => Standing::OwnSite,
        }
    }

    /// Takes a list of members in place of the last one; what is known of the health of their addresses is kept.
    pub(super) fn learn(&mut self, members: &[KmaMember]) {
        if members.is_empty() {
            return;
        }
        let mut old = std::mem::take(&mut self.nodes);
        for member in members {
            let before = old.iter().position(|node| node.candidate.address == member.address);
            let before = before.map(|at| old.swap_remove(at));
            let given = before.as_ref().is_some_and(|node| node.given);
            self.nodes.push(Node {
                candidate: Candidate { name: Some(member.name.clone()), address: member.address.clone() },
                standing: self.standing(member, given),
                given,
                health: before.map_or(Health::Well, |node| node.health),
            });
        }
        let standing = match self.preference {
            Preference::Named => Standing::Named,
            Preference::Site(_) => Standing::Given,
        };
        let given = old.into_iter().filter(|node| node.given);
        self.nodes.extend(given.map(|node| Node {
            candidate: Candidate { name: None, ..node.candidate },
            standing,
            ..node
        }));
    }

    /// Nodes that say of themselves that they are locked; of others they say nothing.
    pub(super) fn are_locked(&mut self, members: &[KmaMember]) {
        for member in members {
            self.each(&member.address, |node| node.standing = Standing::Locked);
        }
    }

    /// All nodes in the order to be asked in: those that are well before those that were silent, own site first; among
    /// equals each call begins with another one, so that load is spread.
    pub(super) fn order(&mut self) -> Vec<Candidate> {
        self.turn = self.turn.wrapping_add(1);
        let rank = |node: &Node| match node.health {
            Health::Well => (0, node.standing, 0),
            Health::Silent { failures, .. } => (1, node.standing, failures),
        };
        let mut order: Vec<_> = self.nodes.iter().collect();
        order.sort_by_key(|node| rank(node));
        let equal = order.chunk_by_mut(|one, other| rank(one) == rank(other));
        for group in equal {
            let by = self.turn % group.len();
            group.rotate_left(by);
        }
        order.into_iter().map(|node| node.candidate.clone()).collect()
    }

    pub(super) fn answered(&mut self, address: &str) {
        self.each(address, |node| node.health = Health::Well);
    }

    pub(super) fn was_silent(&mut self, address: &str, now: Instant) {
        self.each(address, |node| {
            let failures = match node.health {
                Health::Well => 1,
                Health::Silent { failures, .. } => failures.saturating_add(1),
            };
            let rest = REST_MIN.saturating_mul(1 << (failures - 1).min(5)).min(REST_MAX);
            node.health = Health::Silent { failures, look_at: now + rest };
        });
    }

    /// The silent nodes that it is time to look at.
    pub(super) fn to_look_at(&self, now: Instant) -> Vec<Candidate> {
        let due = |node: &&Node| matches!(node.health, Health::Silent { look_at, .. } if look_at <= now);
        self.nodes.iter().filter(due).map(|node| node.candidate.clone()).collect()
    }

    fn each(&mut self, address: &str, change: impl Fn(&mut Node)) {
        self.nodes.iter_mut().filter(|node| node.candidate.address == address).for_each(change);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeSet;

    use super::*;

    fn member(name: &str, site: &str, state: KmaState) -> KmaMember {
        KmaMember { name: name.to_owned(), site: site.to_owned(), address: format!("{name}:1"), state }
    }

    fn roster(site: &str) -> Roster {
        let mut roster = Roster::new(&["door:1".to_owned()], Preference::Site(site.to_owned()), 0);
        let here = ["a", "b"].map(|name| member(name, "here", KmaState::Serving));
        let there = ["c", "d"].map(|name| member(name, "there", KmaState::Unknown));
        roster.learn(&[&here[..], &there[..], &[member("e", "here", KmaState::Locked)]].concat());
        roster
    }

    fn names(order: &[Candidate]) -> Vec<&str> {
        order.iter().map(|candidate| candidate.address.trim_end_matches(":1")).collect()
    }

    #[test]
    fn own_site_comes_first_and_load_is_spread() {
        let mut roster = roster("here");
        let mut first = BTreeSet::new();
        for _ in 0..4 {
            let order = roster.order();
            let names = names(&order);
            first.insert(names[0].to_owned());
            assert_eq!(BTreeSet::from_iter(&names[..2]), BTreeSet::from([&"a", &"b"]));
            assert_eq!(BTreeSet::from_iter(&names[2..4]), BTreeSet::from([&"c", &"d"]));
            assert_eq!(names[4..], ["e", "door"]);
        }
        assert_eq!(first.len(), 2, "one node got all the load");
    }

    #[test]
    fn without_a_site_all_are_equal() {
        let mut roster = roster("");
        let first: BTreeSet<_> = (0..8).map(|_| roster.order()[0].address.clone()).collect();
        assert_eq!(first.len(), 4);
    }

    #[test]
    fn a_node_that_was_named_comes_first_while_it_is_well() {
        let named = ["b:1", "door:1"].map(str::to_owned);
        let mut roster = Roster::new(&named, Preference::Named, 0);
        let member = |name| member(name, "here", KmaState::Serving);
        roster.learn(&["a", "b", "c"].map(member));
        for _ in 0..4 {
            let order = roster.order();
            let names = names(&order);
            assert_eq!(BTreeSet::from_iter(&names[..2]), BTreeSet::from([&"b", &"door"]));
            assert_eq!(names.len(), 4, "{names:?}");
        }
        roster.was_silent("b:1", Instant::now());
        roster.was_silent("door:1", Instant::now());
        assert_eq!(BTreeSet::from_iter(&names(&roster.order())[..2]), BTreeSet::from([&"a", &"c"]));
    }

    #[test]
    fn who_was_silent_is_asked_last_and_looked_at_later() {
        let (mut roster, now) = (roster("here"), Instant::now());
        roster.was_silent("a:1", now);
        assert_eq!(names(&roster.order())[0], "b");
        assert_eq!(names(&roster.order()).last(), Some(&"a"));
        assert!(roster.to_look_at(now).is_empty());
        assert_eq!(names(&roster.to_look_at(now + REST_MIN)), ["a"]);
        // It rests longer each time, and never for good.
        for _ in 0..40 {
            roster.was_silent("a:1", now);
        }
        assert!(roster.to_look_at(now + REST_MAX - Duration::from_millis(1)).is_empty());
        assert_eq!(names(&roster.to_look_at(now + REST_MAX)), ["a"]);
        roster.answered("a:1");
        assert!(names(&roster.order())[..2].contains(&"a"));
        assert!(roster.to_look_at(now + REST_MAX).is_empty());
    }

    #[test]
    fn a_new_list_keeps_what_is_known_and_the_way_in() {
        let (mut roster, now) = (roster("here"), Instant::now());
        roster.was_silent("a:1", now);
        roster.learn(&[member("a", "here", KmaState::Serving), member("f", "here", KmaState::Serving)]);
        assert_eq!(names(&roster.order()), ["f", "door", "a"]);
        // The address that was given is the way in, also where it was a member's meanwhile.
        roster.learn(&[member("door", "here", KmaState::Serving), member("f", "here", KmaState::Serving)]);
        roster.learn(&[member("f", "here", KmaState::Serving)]);
        assert_eq!(names(&roster.order()), ["f", "door"]);
        roster.learn(&[member("a", "here", KmaState::Serving), member("f", "here", KmaState::Serving)]);
        roster.was_silent("a:1", now);
        // An empty list would leave nobody to ask.
        roster.learn(&[]);
        assert_eq!(roster.order().len(), 3);
    }
}
