//! Which keys an export holds, and in which order they leave: by volume, and those of a volume as they were issued.
//!
//! A cluster may have a million keys. They are counted, and picked out for a part, a slice at a time
//! ([`LOOKED_AT_ONCE`]), and opened while the state is free; a part goes on where the last one ended. Keys that are
//! destroyed meanwhile are left out, and so are those that were issued after the export was begun: nobody approved
//! them.

use capstan_format::KeyTag;
use capstan_keys::api::{ExportAt, ExportWhat, Problem, UnconfirmedKey};
use capstan_keys::{DataUnit, ExportedKey, KeyState, Permission};
use capstan_service::problem::Refusal;

use crate::desk::DeskError;
use crate::node::{LOOKED_AT_ONCE, Node, NodeError};
use crate::record::{IssuedRecord, is_unconfirmed};
use crate::state::View;

/// Keys that are named of all that are left out.
const NAMED_MAX: usize = 1000;

/// How many keys an export holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) keys: usize,
    /// Keys that were asked for and by policy never leave.
    pub(super) stay: usize,
    /// Keys that lost nodes gave out, and that nobody has confirmed: they may be some of those that were asked for.
    pub(super) unconfirmed: usize,
    /// When the last one that leaves was issued, by whichever node's clock that was: it may be ahead of this one's.
    pub(super) last_ns: i64,
}

/// Part of an export.
pub(super) struct Part {
    pub(super) keys: Vec<ExportedKey>,
    /// Where the next one begins; none after the last.
    pub(super) next: Option<ExportAt>,
}

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Leaves,
    Stays,
    /// Nobody has confirmed yet of which group it is.
    Unconfirmed,
    /// It was not asked for, or there is none any more.
    Elsewhere,
}

/// Which policy forbids an export as a whole. It looks at no more than the keys of one volume.
pub(super) fn check(view: View<'_>, what: &ExportWhat) -> Result<(), Refusal> {
    let realm = view.ledger().realm();
    match what {
        ExportWhat::All => Ok(()),
        ExportWhat::Group(group) => {
            let policy = realm.policy_of(group).map_err(refused)?;
            if policy.export == Permission::Forbidden {
                let detail =
                    format!("The keys of group {group} never leave the cluster: policy {} says so.", policy.name);
                return Err(Problem::new(403, "refused", "The rules forbid it", detail).into());
            }
            Ok(())
        }
        ExportWhat::Unit(volser) => {
            let unknown = || Refusal::not_found(format!("No key was ever issued for volume {volser}."));
            let unit = view.unit(volser).ok_or_else(unknown)?;
            let keys = unit.keys.iter().filter_map(|issued| view.ledger().key(&issued.tag)).filter(|key| exists(key));
            let may_leave = |key: &IssuedRecord| match is_unconfirmed(&key.issued.group) {
                true => {
                    let tag = key.stored.record.tag;
                    Err(capstan_keys::RuleRefusal::Unconfirmed { volser: volser.clone(), tag })
                }
                false => realm.check_export(&key.stored.record),
            };
            keys.map(may_leave).try_for_each(|allowed| allowed.map_err(refused))
        }
    }
}

/// Counts what leaves and what stays, or says that nothing could leave.
pub(super) fn count(node: &Node, what: &ExportWhat) -> Result<Counted, Refusal> {
    node.view(|view| check(view, what))?;
    let mut counted = Counted::default();
    let mut tally = |(fate, issued_ns): (Fate, i64)| match fate {
        Fate::Leaves => {
            counted.keys += 1;
            counted.last_ns = counted.last_ns.max(issued_ns);
        }
        Fate::Stays => counted.stay += 1,
        Fate::Unconfirmed => counted.unconfirmed += 1,
        Fate::Elsewhere => {}
    };
    match what {
        ExportWhat::Unit(volser) => {
            node.view(|view| {
                let keys = view.unit(volser).map(|unit| unit.keys.as_slice()).unwrap_or_default();
                let keys = keys.iter().filter_map(|issued| view.ledger().key(&issued.tag));
                keys.for_each(|key| tally((fate(view, what, key), key.issued.issued_ns)));
            });
        }
        ExportWhat::All | ExportWhat::Group(_) => {
            let look = |view: View<'_>, key: &IssuedRecord| (fate(view, what, key), key.issued.issued_ns);
            node.walk_keys(look, |slice| slice.into_iter().for_each(&mut tally));
        }
    }
    match counted {
        Counted { keys: 0, unconfirmed: 1.., .. } => Err(Refusal::conflict(format!(
            "There is no key that could leave: of {} that lost nodes gave out nobody has confirmed the group (`keyd keys list`, `keyd keys confirm`).",
            counted.unconfirmed
        ))),
        Counted { keys: 0, .. } => {
            Err(Refusal::conflict("There is no key that could leave: each was destroyed, or is kept by its policy."))
        }
        _ => Ok(counted),
    }
}

/// The keys that lost nodes gave out, and that may belong to what was asked for: the first that nobody has confirmed,
/// how many those are, and how many no volume has named yet. Of a data unit those alone are counted that it is known to
/// have.
pub(super) fn left_out(view: View<'_>, what: &ExportWhat) -> (Vec<UnconfirmedKey>, usize, usize) {
    let unconfirmed = view.ledger().unconfirmed().filter_map(|tag| view.ledger().key(tag));
    let may_belong = |key: &&IssuedRecord| fate(view, what, key) == Fate::Unconfirmed;
    let unconfirmed: Vec<_> = unconfirmed.filter(may_belong).collect();
    let named = |key: &&IssuedRecord| UnconfirmedKey { volume: key.volser().clone(), key: key.stored.record.tag };
    let recovered = match what {
        ExportWhat::All | ExportWhat::Group(_) => view.ledger().recovered().count(),
        ExportWhat::Unit(_) => 0,
    };
    (unconfirmed.iter().take(NAMED_MAX).map(named).collect(), unconfirmed.len(), recovered)
}

/// The keys behind a place, opened, so many at most; those that were issued up to a time.
pub(super) fn part(
    node: &Node,
    what: &ExportWhat,
    after: Option<ExportAt>,
    until_ns: i64,
    keys_max: usize,
) -> Result<Part, Refusal> {
    let mut picked: Vec<IssuedRecord> = Vec::new();
    let mut last = after;
    let mut more = true;
    while more && picked.len() < keys_max {
        let seen = node.view(|view| slice(view, what, last.as_ref(), until_ns, keys_max - picked.len()));
        picked.extend(seen.keys);
        more = seen.more;
        last = seen.last.or(last);
    }
    let opened = picked.into_iter().map(|key| {
        let opened = node.open(&key)?;
        Ok(ExportedKey { record: key.stored.record, key: opened })
    });
    let keys = opened.collect::<Result<Vec<_>, Refusal>>()?;
    Ok(Part { keys, next: last.filter(|_| more) })
}

/// What was seen while the state was held once.
struct Slice {
    keys: Vec<IssuedRecord>,
    last: Option<ExportAt>,
    more: bool,
}

fn slice(view: View<'_>, what: &ExportWhat, after: Option<&ExportAt>, until_ns: i64, keys_max: usize) -> Slice {
    let realm = view.ledger().realm();
    let begun = after.and_then(|after| realm.unit(&after.volume));
    let only = match what {
        ExportWhat::Unit(volser) => Some(volser),
        ExportWhat::All | ExportWhat::Group(_) => None,
    };
    let rest: Box<dyn Iterator<Item = &DataUnit>> = match only {
        Some(volser) if begun.is_none() => Box::new(realm.unit(volser).into_iter()),
        Some(_) => Box::new(std::iter::empty()),
        None => Box::new(realm.units_after(after.map(|after| &after.volume))),
    };
    let mut seen = Slice { keys: Vec::new(), last: None, more: false };
    let mut looked = 0;
    for unit in begun.into_iter().chain(rest) {
        let skip = after.filter(|after| after.volume == unit.volser).map(|after| after.key);
        for tag in in_order(unit, skip) {
            if looked == LOOKED_AT_ONCE || seen.keys.len() == keys_max {
                seen.more = true;
                return seen;
            }
            looked += 1;
            seen.last = Some(ExportAt { volume: unit.volser.clone(), key: tag });
            let Some(key) = view.ledger().key(&tag) else { continue };
            if fate(view, what, key) == Fate::Leaves && key.issued.issued_ns <= until_ns {
                seen.keys.push(key.clone());
            }
        }
    }
    seen
}

/// The keys of a volume as they were issued, behind one of them.
fn in_order(unit: &DataUnit, after: Option<KeyTag>) -> Vec<KeyTag> {
    let mut keys: Vec<_> = unit.keys.iter().map(|key| (key.issued_ns, key.tag)).collect();
    keys.sort();
    let from = after.and_then(|after| keys.iter().position(|(_, tag)| *tag == after)).map_or(0, |at| at + 1);
    keys.split_off(from).into_iter().map(|(_, tag)| tag).collect()
}

fn fate(view: View<'_>, what: &ExportWhat, key: &IssuedRecord) -> Fate {
    // Of which group it is nobody knows: it may be of the one that was asked for.
    if is_unconfirmed(&key.issued.group)
        && exists(key)
        && !matches!(what, ExportWhat::Unit(unit) if unit != key.volser())
    {
        return Fate::Unconfirmed;
    }
    match is_asked_for(what, key) && exists(key) {
        false => Fate::Elsewhere,
        true if may_leave(view, what, key) => Fate::Leaves,
        true => Fate::Stays,
    }
}

fn is_asked_for(what: &ExportWhat, key: &IssuedRecord) -> bool {
    match what {
        ExportWhat::All => true,
        ExportWhat::Group(group) => key.issued.group == *group,
        ExportWhat::Unit(volser) => *key.volser() == *volser,
    }
}

/// Whether a key is one that was asked for and that its policy lets go.
pub(super) fn may_leave(view: View<'_>, what: &ExportWhat, key: &IssuedRecord) -> bool {
    let policy = view.ledger().realm().policy_of(&key.issued.group);
    is_asked_for(what, key) && policy.is_ok_and(|policy| policy.export == Permission::Allowed)
}

fn exists(key: &IssuedRecord) -> bool {
    !matches!(key.stored.record.state, KeyState::Generated | KeyState::Destroyed)
}

pub(super) fn refused(error: impl Into<DeskError>) -> Refusal {
    NodeError::from(error.into()).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::{Algorithm, Volser};
    use capstan_keys::{IssuedKey, KeyRecord, KeyUse, Name, StoredKey};

    use super::*;
    use crate::path::Path;
    use crate::record::KeyOrigin;
    use crate::state::{LedgerState, Mark};

    /// Three volumes that were begun often, and one on which more was written than is looked at while the state is held
    /// once.
    const KEYS_OF: [usize; 4] = [3, LOOKED_AT_ONCE + 40, 1, 2];

    fn volser(number: usize) -> Volser {
        Volser::new(&format!("V{number}")).unwrap()
    }

    fn put(state: &mut LedgerState, tag: KeyTag, volser: Volser, issued_ns: i64, key_state: KeyState) {
        let destroyed_ns = (key_state == KeyState::Destroyed).then_some(9);
        let record = KeyRecord {
            tag,
            volser,
            algorithm: Algorithm::Aes256Gcm,
            state: key_state,
            created_ns: 1,
            activated_ns: None,
            retired_ns: None,
            destroyed_ns,
            imported_ns: None,
        };
        let wrapped = destroyed_ns.is_none().then_some([1; 40]);
        let issued = IssuedKey { tag, group: Name::default(), issued_for: KeyUse::Begin, issued_ns, dropped_ns: None };
        let origin = KeyOrigin { request: [0; 16], agent: Name::default(), kma: Name::default() };
        let record = IssuedRecord { stored: StoredKey { record, wrapped }, issued, origin };
        state.put(&Path::Key(tag).to_string(), Mark { revision: 1, change: 1 }, &record.encode()).unwrap();
    }

    /// Keys by volume as they were issued, which is not the order of their tags.
    fn state() -> (LedgerState, Vec<KeyTag>) {
        let (mut state, mut order) = (LedgerState::default(), Vec::new());
        for (number, count) in KEYS_OF.into_iter().enumerate() {
            for at in 0..count {
                let tag = KeyTag([[number as u8; 8], ((count - at) as u64).to_be_bytes()].concat().try_into().unwrap());
                put(&mut state, tag, volser(number), at as i64, KeyState::ProcessOnly);
                order.push(tag);
            }
        }
        put(&mut state, KeyTag([0xee; 16]), volser(0), 1, KeyState::Destroyed);
        put(&mut state, KeyTag([0xef; 16]), volser(2), 1000, KeyState::ProcessOnly);
        (state, order)
    }

    fn all(state: &LedgerState, what: &ExportWhat, keys_max: usize) -> Vec<KeyTag> {
        let (mut keys, mut last) = (Vec::new(), None);
        loop {
            let seen = slice(View::of(state), what, last.as_ref(), 999, keys_max);
            assert!(seen.keys.len() <= keys_max.min(LOOKED_AT_ONCE), "the state is held for {} keys", seen.keys.len());
            keys.extend(seen.keys.iter().map(|key| key.stored.record.tag));
            last = seen.last.or(last);
            if !seen.more {
                return keys;
            }
        }
    }

    /// An export of everything looked at every key while it held the state, and everybody waited behind it.
    #[test]
    fn what_leaves_is_looked_at_in_slices_and_each_key_leaves_once() {
        let (state, order) = state();
        for keys_max in [1, 2, 7, LOOKED_AT_ONCE, usize::MAX] {
            assert_eq!(all(&state, &ExportWhat::All, keys_max), order, "{keys_max} at a time");
            assert_eq!(all(&state, &ExportWhat::Group(Name::default()), keys_max), order);
            assert_eq!(all(&state, &ExportWhat::Group("other".parse().unwrap()), keys_max), []);
            let [from, to] = [KEYS_OF[0], KEYS_OF[0] + KEYS_OF[1]];
            assert_eq!(all(&state, &ExportWhat::Unit(volser(1)), keys_max), order[from..to]);
        }
    }
}
