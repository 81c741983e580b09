//! What is to be told now: a function of what is so, what was told, the rules and the time.

use std::collections::{BTreeMap, HashMap, HashSet};

use capstan_catalog::ToldRow;
use capstan_director::{TellEvent, TellRule};

use super::finding::TellFinding;
use super::message::{ITEMS_MAX, TellItem, TellMessage};
use super::way::TellWay;

/// How long after a message the next one may follow by the same way of the same rule.
const PAUSE_NS: i64 = 600_000_000_000;
/// How long something that lasts has to be so until it is told: a client that connects a moment later, a drive that is
/// busy, are nobody's business.
const SETTLED_NS: i64 = 60_000_000_000;
/// How long it is remembered that something was told which happened once.
const REMEMBERED_NS: i64 = 30 * 24 * 3600 * 1_000_000_000;

/// What was found by a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// What lasts; `None` if that could not be found out, which is not the same as nothing.
    pub lasting: Option<Vec<TellFinding>>,
    /// What happened.
    pub once: Vec<TellFinding>,
    /// First words of the keys of what lasts and is not known for sure: of that nothing begins, and nothing is over.
    pub unsure: Vec<&'static str>,
}

impl Found {
    fn is_unsure(&self, key: &str) -> bool {
        key.split(' ').next().is_some_and(|first| self.unsure.contains(&first))
    }
}

/// Rule, way and key of something that was told.
type ToldKey = (String, String, String);

/// What was told before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToldMemory {
    rows: BTreeMap<ToldKey, ToldRow>,
    /// When a message arrived last, by rule and way, nanoseconds since 1970.
    arrived: HashMap<(String, String), i64>,
}

impl ToldMemory {
    /// As the catalog has it: what was told, and when a message arrived last by each rule and way.
    #[must_use]
    pub fn of(rows: Vec<ToldRow>, arrived: impl IntoIterator<Item = ((String, String), i64)>) -> Self {
        let key = |row: ToldRow| ((row.rule.clone(), row.way.clone(), row.key.clone()), row);
        Self { rows: rows.into_iter().map(key).collect(), arrived: arrived.into_iter().collect() }
    }

    /// Notes that a message arrived; gives what is to be put on record, and what of the record is over.
    pub fn arrived(&mut self, message: &TellMessage, now_ns: i64) -> (Vec<ToldRow>, Vec<ToldRow>) {
        let (rule, way) = (message.rule.clone(), message.way.name().to_owned());
        let (mut news, mut over) = (Vec::new(), Vec::new());
        for item in &message.items {
            let key = (rule.clone(), way.clone(), item.key.clone());
            if item.is_over {
                over.extend(self.rows.remove(&key));
                continue;
            }
            let row = ToldRow {
                rule: rule.clone(),
                way: way.clone(),
                key: item.key.clone(),
                event: item.event.clone(),
                subject: item.subject.clone(),
                policy: item.policy.clone(),
                client: item.client.clone(),
                since_ns: item.since_ns,
                told_ns: now_ns,
                lasts: item.lasts,
            };
            self.rows.insert(key, row.clone());
            news.push(row);
        }
        self.arrived.insert((rule, way), now_ns);
        (news, over)
    }

    /// Forgets a row.
    pub fn forget(&mut self, row: &ToldRow) {
        self.rows.remove(&(row.rule.clone(), row.way.clone(), row.key.clone()));
    }

    fn row(&self, rule: &str, way: TellWay, key: &str) -> Option<&ToldRow> {
        self.rows.get(&(rule.to_owned(), way.name().to_owned(), key.to_owned()))
    }

    fn is_paused(&self, rule: &str, way: TellWay, now_ns: i64) -> bool {
        let last = self.arrived.get(&(rule.to_owned(), way.name().to_owned()));
        // A clock that was ahead silences nobody.
        last.is_some_and(|last| *last <= now_ns && now_ns - last < PAUSE_NS)
    }
}

/// The messages that are to be sent now: at most one for each way of each rule.
#[must_use]
pub fn plan(found: &Found, told: &ToldMemory, rules: &BTreeMap<String, TellRule>, now_ns: i64) -> Vec<TellMessage> {
    let mut messages = Vec::new();
    for (name, rule) in rules {
        for way in TellWay::of(rule) {
            if told.is_paused(name, way, now_ns) {
                continue;
            }
            let mut items = news(found, told, (name, rule), way, now_ns);
            items.sort_by_cached_key(rank);
            items.extend(overs(found, told, (name, rule), way));
            // A mail says how many more there are, and `status` shows them. A program has the rest with the next one.
            if way != TellWay::Mail {
                items.truncate(ITEMS_MAX);
            }
            if !items.is_empty() {
                messages.push(TellMessage { rule: name.clone(), way, items });
            }
        }
    }
    messages
}

/// What need not be remembered any more: what rules told that are gone, or do not tell it now, and what happened long
/// ago.
#[must_use]
pub fn outdated(found: &Found, told: &ToldMemory, rules: &BTreeMap<String, TellRule>, now_ns: i64) -> Vec<ToldRow> {
    let known: HashSet<&str> = found.once.iter().map(|finding| finding.key.as_str()).collect();
    let is_outdated = |row: &&ToldRow| {
        let rule = rules.get(&row.rule);
        let is_wanted = rule.is_some_and(|rule| {
            TellWay::of(rule).any(|way| way.name() == row.way)
                && event_of(row).is_none_or(|event| rule.wants(event, &row.policy))
        });
        let is_old = !row.lasts && row.told_ns < now_ns.saturating_sub(REMEMBERED_NS);
        !is_wanted || is_old && !known.contains(row.key.as_str())
    };
    told.rows.values().filter(is_outdated).cloned().collect()
}

fn news(found: &Found, told: &ToldMemory, (name, rule): (&str, &TellRule), way: TellWay, now_ns: i64) -> Vec<TellItem> {
    let again = |row: &ToldRow| rule.again_ns().is_some_and(|again| now_ns.saturating_sub(row.told_ns) >= again);
    let lasting = found.lasting.iter().flatten();
    let wanted = lasting.chain(&found.once).filter(|finding| rule.wants(finding.event, &finding.policy));
    wanted
        .filter_map(|finding| {
            let row = told.row(name, way, &finding.key);
            let found_ns = finding.since_ns.unwrap_or(now_ns);
            let is_due = match row {
                None if finding.lasts => {
                    now_ns.saturating_sub(found_ns) >= SETTLED_NS && !found.is_unsure(&finding.key)
                }
                None => true,
                // Nobody reads each morning of the same three files.
                Some(row) if finding.lasts => finding.event != TellEvent::Problems && again(row),
                // The same trouble came once more; a run never does.
                Some(row) => finding.event == TellEvent::Trouble && found_ns > row.told_ns && again(row),
            };
            let since_ns = row.filter(|_| finding.lasts).map_or(found_ns, |row| row.since_ns);
            is_due.then(|| item(finding, since_ns))
        })
        .collect()
}

/// What was told, lasted, and is found no more.
fn overs(found: &Found, told: &ToldMemory, (name, rule): (&str, &TellRule), way: TellWay) -> Vec<TellItem> {
    let Some(lasting) = &found.lasting else { return Vec::new() };
    let is_so: HashSet<&str> = lasting.iter().map(|finding| finding.key.as_str()).collect();
    let of_way = told.rows.values().filter(|row| row.rule == *name && row.way == way.name());
    let is_over = |row: &&ToldRow| {
        let is_wanted = event_of(row).is_some_and(|event| rule.wants(event, &row.policy));
        row.lasts && is_wanted && !is_so.contains(row.key.as_str()) && !found.is_unsure(&row.key)
    };
    let over = |row: &ToldRow| TellItem {
        event: row.event.clone(),
        key: row.key.clone(),
        subject: row.subject.clone(),
        text: String::new(),
        policy: row.policy.clone(),
        client: row.client.clone(),
        run: None,
        since_ns: row.since_ns,
        lasts: true,
        is_over: true,
    };
    of_way.filter(is_over).map(over).collect()
}

fn item(finding: &TellFinding, since_ns: i64) -> TellItem {
    TellItem {
        event: finding.event.name().to_owned(),
        key: finding.key.clone(),
        subject: finding.subject.clone(),
        text: finding.text.clone(),
        policy: finding.policy.clone(),
        client: finding.client.clone(),
        run: finding.run,
        since_ns,
        lasts: finding.lasts,
        is_over: false,
    }
}

/// Failed runs first, then in the order of the settings' list; of one event the oldest first.
fn rank(item: &TellItem) -> (Option<TellEvent>, i64, String) {
    (TellEvent::ALL.into_iter().find(|event| event.name() == item.event), item.since_ns, item.key.clone())
}

fn event_of(row: &ToldRow) -> Option<TellEvent> {
    TellEvent::ALL.into_iter().find(|event| event.name() == row.event)
}

#[cfg(test)]
mod tests;
