//! Nights of a server by a virtual clock: what is told, when, and what is not.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

const MINUTE: i64 = 60_000_000_000;
const HOUR: i64 = 60 * MINUTE;
const START: i64 = 1_800_000_000_000_000_000;

fn rule(again: &str) -> TellRule {
    TellRule { again: again.to_owned(), mail: vec!["ops@example.org".to_owned()], ..TellRule::default() }
}

fn rules(again: &str) -> BTreeMap<String, TellRule> {
    BTreeMap::from([("oncall".to_owned(), rule(again))])
}

fn failed(run: i64, policy: &str, at_ns: i64) -> TellFinding {
    let found = TellFinding::lasting(
        TellEvent::Failed,
        format!("run {run}"),
        format!("policy {policy} failed (3 attempts)"),
        "the source is on fire".to_owned(),
    );
    TellFinding { policy: policy.to_owned(), since_ns: Some(at_ns), lasts: false, ..found }
}

fn overdue(source: &str, since_ns: i64) -> TellFinding {
    let text = "back it up".to_owned();
    let found =
        TellFinding::lasting(TellEvent::Overdue, format!("overdue {source}"), format!("{source} is overdue"), text);
    TellFinding { since_ns: Some(since_ns), ..found }
}

/// A server that looks every minute, and whose messages all arrive.
struct Night {
    rules: BTreeMap<String, TellRule>,
    told: ToldMemory,
    now_ns: i64,
    sent: Vec<(i64, String)>,
    unsure: Vec<&'static str>,
}

impl Night {
    fn new(rules: BTreeMap<String, TellRule>) -> Self {
        Self { rules, told: ToldMemory::default(), now_ns: START, sent: Vec::new(), unsure: Vec::new() }
    }

    fn look(&mut self, lasting: Option<Vec<TellFinding>>, once: Vec<TellFinding>) -> Vec<TellMessage> {
        let found = Found { lasting, once, unsure: self.unsure.clone() };
        let messages = plan(&found, &self.told, &self.rules, self.now_ns);
        for message in &messages {
            self.told.arrived(message, self.now_ns);
            self.sent.push(((self.now_ns - START) / MINUTE, message.summary()));
        }
        for row in outdated(&found, &self.told, &self.rules, self.now_ns) {
            self.told.forget(&row);
        }
        messages
    }

    /// Looks every minute for so many.
    fn pass(
        &mut self,
        minutes: i64,
        lasting: &dyn Fn(i64) -> Vec<TellFinding>,
        once: &dyn Fn(i64) -> Vec<TellFinding>,
    ) {
        for _ in 0..minutes {
            let minute = (self.now_ns - START) / MINUTE;
            self.look(Some(lasting(minute)), once(minute));
            self.now_ns += MINUTE;
        }
    }

    /// Another server, which knows what the catalog has.
    fn restart(&mut self) {
        let rows: Vec<ToldRow> = self.told.rows.values().cloned().collect();
        let arrived: Vec<_> = self.told.arrived.clone().into_iter().collect();
        self.told = ToldMemory::of(rows, arrived);
    }
}

#[test]
fn a_run_that_failed_is_told_once_and_a_second_one_by_itself() {
    let mut night = Night::new(rules("1h"));
    let once = |minute: i64| {
        let mut all = vec![failed(7, "web", START)];
        all.extend((minute >= 90).then(|| failed(8, "web", START + 90 * MINUTE)));
        all
    };
    night.pass(300, &|_| Vec::new(), &once);
    night.restart();
    night.pass(300, &|_| Vec::new(), &once);
    let said = "policy web failed (3 attempts)".to_owned();
    assert_eq!(night.sent, [(0, said.clone()), (90, said)]);
}

#[test]
fn what_lasts_is_told_when_it_begins_again_after_a_day_and_when_it_is_over() {
    let mut night = Night::new(rules("24h"));
    let lasting = |minute: i64| match minute {
        10..3000 => vec![overdue("/home", START + 10 * MINUTE)],
        _ => Vec::new(),
    };
    night.pass(1000, &lasting, &|_| Vec::new());
    night.restart();
    night.pass(3000, &lasting, &|_| Vec::new());
    let said = "/home is overdue".to_owned();
    let day = 24 * 60;
    assert_eq!(
        night.sent,
        [(11, said.clone()), (11 + day, said.clone()), (11 + 2 * day, said.clone()), (3000, format!("over: {said}"))]
    );
    let mut never = Night::new(rules("never"));
    never.pass(3100, &lasting, &|_| Vec::new());
    assert_eq!(never.sent, [(11, said.clone()), (3000, format!("over: {said}"))]);
}

/// A backup that could not read the same three files each night would have been a mail each night.
#[test]
fn problems_are_told_once_however_long_they_last() {
    let mut night = Night::new(rules("24h"));
    let lasting = |minute: i64| match minute {
        10..9000 => vec![TellFinding { event: TellEvent::Problems, ..overdue("/home", START + 10 * MINUTE) }],
        _ => Vec::new(),
    };
    night.pass(9100, &lasting, &|_| Vec::new());
    let said = "/home is overdue".to_owned();
    assert_eq!(night.sent, [(11, said.clone()), (9000, format!("over: {said}"))]);
}

#[test]
fn what_lasts_less_than_a_minute_is_told_to_nobody_and_neither_is_its_end() {
    let mut night = Night::new(rules("24h"));
    let lasting = |minute: i64| match minute % 7 {
        0 => vec![overdue("/home", START + minute * MINUTE)],
        _ => Vec::new(),
    };
    night.pass(100, &lasting, &|_| Vec::new());
    assert_eq!(night.sent, []);
}

/// Each of a hundred failures was a mail of its own.
#[test]
fn a_bad_night_is_a_few_messages() {
    let mut night = Night::new(rules("24h"));
    let once = |minute: i64| (0..=minute.min(99)).map(|run| failed(run, "web", START + run * MINUTE)).collect();
    night.pass(480, &|_| Vec::new(), &once);
    let first = "first policy web failed (3 attempts)";
    let mut wanted = vec![(0, "policy web failed (3 attempts)".to_owned())];
    wanted.extend((1..10).map(|ten| (10 * ten, format!("10 things, {first}"))));
    wanted.push((100, format!("9 things, {first}")));
    assert_eq!(night.sent, wanted);
}

#[test]
fn a_digest_has_the_gravest_first_and_says_how_many() {
    let mut night = Night::new(rules("24h"));
    let since = START - HOUR;
    let messages =
        night.look(Some(vec![overdue("/home", since), overdue("/etc", since - 1)]), vec![failed(7, "web", START)]);
    let [message] = messages.as_slice() else { panic!("one message, not {messages:?}") };
    let keys: Vec<_> = message.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["run 7", "overdue /etc", "overdue /home"]);
    assert_eq!(message.subject("tern"), "capstan tern: 3 things, first policy web failed (3 attempts)");
    assert_eq!(message.events(), "failed,overdue");
    let text = message.text("tern");
    assert!(text.contains("1. policy web failed (3 attempts)\nAt ") && text.contains("\nthe source is on fire\n"));
    assert!(text.contains("2. /etc is overdue\nSince "), "{text}");
    night.now_ns += HOUR;
    let over = night.look(Some(Vec::new()), vec![failed(7, "web", START)]);
    assert_eq!(over[0].subject("tern"), "capstan tern: 2 things are over: /etc is overdue");
    let json = over[0].json("tern");
    assert_eq!((&json["host"], &json["events"][0]["is_over"]), (&"tern".into(), &true.into()));
    assert_eq!((&json["events"][1]["subject"], &json["events"][1]["policy"]), (&"/home is overdue".into(), &().into()));
}

/// A path with a line break in it would have added a line to the header of the mail.
#[test]
fn what_is_told_is_a_line_whatever_a_path_has_in_it() {
    let mut night = Night::new(rules("24h"));
    let mut finding = failed(7, "web", START);
    finding.subject = "/srv/a\r\nBcc: other@example.org".to_owned();
    finding.text = "bad\u{1b}[2J\n.\n".repeat(1000);
    let message = night.look(None, vec![finding]).remove(0);
    assert_eq!(message.subject("te\nrn"), "capstan te rn: /srv/a  Bcc: other@example.org");
    let text = message.text("tern");
    assert!(!text.contains(['\u{1b}', '\r']) && !text.contains("\n.\n") && text.len() < 4000, "{text:?}");
}

/// After a night without a network a webhook had megabytes in one message, which many receivers refuse for good.
#[test]
fn programs_get_the_gravest_first_and_the_rest_with_the_next_message() {
    let webhook = TellRule { webhook: "https://hooks.example.org/x".to_owned(), mail: Vec::new(), ..rule("24h") };
    let mut night = Night::new(BTreeMap::from([("hook".to_owned(), webhook)]));
    let runs = i64::try_from(ITEMS_MAX).unwrap() + 20;
    let once = || (0..runs).map(|run| failed(run, "web", START + run)).collect::<Vec<_>>();
    let lasting = || Some(vec![overdue("/home", START - HOUR)]);
    let first = night.look(lasting(), once()).remove(0);
    assert_eq!(first.json("tern")["events"].as_array().unwrap().len(), ITEMS_MAX);
    assert_eq!((first.items[0].key.as_str(), first.items[99].key.as_str()), ("run 0", "run 99"));
    night.now_ns += HOUR;
    let second = night.look(lasting(), once()).remove(0);
    assert_eq!((second.items[0].key.as_str(), second.items.len()), ("run 100", 21));
    assert_eq!(second.items[20].key, "overdue /home");
}

#[test]
fn a_look_that_failed_ends_nothing() {
    let mut night = Night::new(rules("24h"));
    night.pass(1, &|_| vec![overdue("/home", START - HOUR)], &|_| Vec::new());
    night.now_ns += HOUR;
    assert_eq!(night.look(None, Vec::new()), []);
    assert_eq!(night.look(Some(vec![overdue("/home", START - HOUR)]), Vec::new()), []);
    assert_eq!(night.look(Some(Vec::new()), Vec::new()).len(), 1);
}

/// When every backup had failed for weeks the clock was in doubt, and all that was overdue was told to be over.
#[test]
fn what_is_not_known_for_sure_is_not_over_and_does_not_begin() {
    let mut night = Night::new(rules("24h"));
    let away =
        TellFinding { event: TellEvent::ClientAway, key: "client tern".to_owned(), ..overdue("/x", START - HOUR) };
    night.look(Some(vec![overdue("/home", START - HOUR), away]), Vec::new());
    night.unsure = vec!["overdue"];
    night.now_ns += HOUR;
    let messages = night.look(Some(vec![overdue("/etc", START)]), Vec::new());
    let [message] = messages.as_slice() else { panic!("one message, not {messages:?}") };
    let keys: Vec<_> = message.items.iter().map(|item| (item.key.as_str(), item.is_over)).collect();
    assert_eq!(keys, [("client tern", true)]);
    // Once it is known again, what had been told is over.
    night.unsure.clear();
    night.now_ns += HOUR;
    let messages = night.look(Some(vec![overdue("/etc", START)]), Vec::new());
    let keys: Vec<_> = messages[0].items.iter().map(|item| (item.key.as_str(), item.is_over)).collect();
    assert_eq!(keys, [("overdue /etc", false), ("overdue /home", true)]);
}

#[test]
fn a_rule_tells_what_it_names_and_each_way_what_it_has_not_told() {
    let mut all = rules("24h");
    let command = vec!["/bin/page".to_owned()];
    let (events, policies) = (vec![TellEvent::Failed], vec!["web".to_owned()]);
    all.insert("web".to_owned(), TellRule { events, policies, command, ..rule("24h") });
    let found = Found {
        lasting: Some(vec![overdue("/home", START - HOUR)]),
        once: vec![failed(1, "db", START), failed(2, "web", START)],
        unsure: Vec::new(),
    };
    let mut told = ToldMemory::default();
    let of = |messages: &[TellMessage]| -> Vec<(String, TellWay, usize)> {
        messages.iter().map(|one| (one.rule.clone(), one.way, one.items.len())).collect()
    };
    let messages = plan(&found, &told, &all, START);
    let (oncall, web) = ("oncall".to_owned(), "web".to_owned());
    assert_eq!(
        of(&messages),
        [(oncall, TellWay::Mail, 3), (web.clone(), TellWay::Mail, 1), (web.clone(), TellWay::Command, 1)]
    );
    // The mails do not arrive; the command has run.
    told.arrived(&messages[2], START);
    assert_eq!(of(&plan(&found, &told, &all, START + HOUR))[1..], [(web, TellWay::Mail, 1)]);
}

#[test]
fn what_a_rule_does_not_tell_any_more_is_forgotten_and_not_over() {
    let mut night = Night::new(rules("24h"));
    night.pass(1, &|_| vec![overdue("/home", START - HOUR)], &|_| Vec::new());
    night.rules.get_mut("oncall").unwrap().events = vec![TellEvent::Failed];
    night.now_ns += HOUR;
    assert_eq!(night.look(Some(Vec::new()), Vec::new()), []);
    assert_eq!(night.told.rows.len(), 0);
    // What happened once is forgotten after a month, unless it is found still.
    night.look(Some(Vec::new()), vec![failed(7, "web", START)]);
    night.now_ns += 31 * 24 * HOUR;
    assert_eq!(night.look(Some(Vec::new()), vec![failed(7, "web", START)]), []);
    assert_eq!(night.told.rows.len(), 1);
    assert_eq!(night.look(Some(Vec::new()), Vec::new()), []);
    assert_eq!(night.told.rows.len(), 0);
}

#[test]
fn trouble_that_comes_again_is_told_again_after_a_day() {
    let mut night = Night::new(rules("24h"));
    let trouble = |at_ns: i64| {
        let found = failed(0, "", at_ns);
        TellFinding { event: TellEvent::Trouble, key: "trouble x".to_owned(), ..found }
    };
    let hour = |minute: i64| START + minute / 60 * HOUR;
    night.pass(25 * 60, &|_| Vec::new(), &|minute| vec![trouble(hour(minute))]);
    let at: Vec<_> = night.sent.iter().map(|(minute, _)| *minute).collect();
    assert_eq!(at, [0, 24 * 60]);
}

#[test]
fn a_clock_that_was_ahead_silences_nobody() {
    let mut night = Night::new(rules("24h"));
    night.now_ns = START + 1000 * HOUR;
    night.look(Some(Vec::new()), vec![failed(7, "web", START)]);
    night.now_ns = START;
    assert_eq!(night.look(Some(Vec::new()), vec![failed(8, "web", START)]).len(), 1);
}
