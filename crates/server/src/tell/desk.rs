//! The server's part: hears what happens, looks every minute, has messages sent, and notes what arrived.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use capstan_catalog::{CatalogError, TellingRow, ToldRow};
use capstan_director::{Site, TellEvent};

use super::error::TellError;
use super::finding::{TellFinding, TellFindings, run_findings};
use super::message::TellMessage;
use super::plan::{Found, ToldMemory, outdated, plan};
use super::sender::{TellPatience, TellSender};
use super::way::TellWay;

/// Troubles that wait to be told; of more, the newest are left out.
pub const TROUBLES_MAX: usize = 100;
/// How long a trouble is remembered after it was said: as long as one that could not be told is worth to be told.
const TROUBLES_TOLD_FOR_NS: i64 = 24 * 3600 * 1_000_000_000;
/// How often all is looked at.
const LOOKS_EVERY: Duration = Duration::from_secs(60);
/// How often it is looked whether there is anything to do.
const TURNS_EVERY: Duration = Duration::from_millis(250);
/// How long a server that stops waits for messages on their way, so that what arrives is noted.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// Ended runs among which those that failed are looked for.
const RUNS_LOOKED_AT: u32 = 1_000;

/// What the server knows and can do.
pub(crate) struct TellFrom<'a> {
    /// What a person should look at now.
    pub(crate) findings: &'a dyn Fn() -> Result<TellFindings, String>,
    /// What has troubled others since it was asked last.
    pub(crate) troubles: &'a dyn Fn() -> Vec<String>,
    /// Variables of the environment that commands must not learn.
    pub(crate) secrets: Vec<String>,
    /// Says trouble.
    pub(crate) say: &'a dyn Fn(String),
}

/// Where the server's loop drops what it says. It never waits.
#[derive(Default)]
pub(crate) struct TellDesk {
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// Troubles, with the time when each was said last.
    troubles: VecDeque<(String, i64)>,
    /// Whether there is something to be told before the next look.
    is_news: bool,
}

impl TellDesk {
    /// Hears that a run has failed or was missed: the catalog has it.
    pub(crate) fn hear_of_run(&self) {
        locked(&self.heard).is_news = true;
    }

    /// Hears of trouble.
    pub(crate) fn hear_of_trouble(&self, reason: &str, now_ns: i64) {
        let mut heard = locked(&self.heard);
        heard.is_news = true;
        heard.troubles.retain(|(_, at_ns)| *at_ns > now_ns.saturating_sub(TROUBLES_TOLD_FOR_NS));
        if let Some(known) = heard.troubles.iter_mut().find(|(known, _)| known == reason) {
            known.1 = now_ns;
        } else if heard.troubles.len() < TROUBLES_MAX {
            heard.troubles.push_back((reason.to_owned(), now_ns));
        }
    }

    /// Tells people until it is over. A site without rules has nobody to tell.
    pub(crate) fn serve(&self, site: &Site, from: TellFrom<'_>, is_over: &dyn Fn() -> bool) {
        if site.config().tell.is_empty() {
            return;
        }
        let (done, came) = channel();
        let sender = TellSender {
            host: site.client().to_owned(),
            mail: site.config().mail.clone(),
            patience: TellPatience::default(),
            secrets: from.secrets.clone(),
        };
        let mut turn = Turn {
            site,
            from,
            sender: Arc::new(sender),
            stop: Arc::default(),
            done,
            came,
            told: None,
            first_found: HashMap::new(),
            on_their_way: HashSet::new(),
            unwritten: VecDeque::new(),
            said: HashMap::new(),
        };
        let mut looked: Option<Instant> = None;
        while !is_over() {
            turn.take_in();
            for reason in (turn.from.troubles)() {
                self.hear_of_trouble(&reason, site.now_ns());
            }
            let is_time = looked.is_none_or(|at| at.elapsed() >= LOOKS_EVERY);
            let (is_news, troubles) = {
                let mut heard = locked(&self.heard);
                (std::mem::take(&mut heard.is_news), heard.troubles.clone())
            };
            if is_time {
                looked = Some(Instant::now());
            }
            if is_time || is_news {
                turn.look(&troubles, is_time);
            }
            thread::sleep(TURNS_EVERY);
        }
        turn.end();
    }
}

/// Rule and way.
type Channel = (String, TellWay);

struct Turn<'a> {
    site: &'a Site,
    from: TellFrom<'a>,
    sender: Arc<TellSender>,
    stop: Arc<AtomicBool>,
    done: Sender<(TellMessage, Result<(), TellError>)>,
    came: Receiver<(TellMessage, Result<(), TellError>)>,
    /// What was told; `None` until the catalog said it once.
    told: Option<ToldMemory>,
    /// When what lasts was found first.
    first_found: HashMap<String, i64>,
    /// A receiver that is slow has one message on its way, and no second one waits for it.
    on_their_way: HashSet<Channel>,
    /// What could not be written into the catalog yet: a row for each channel at most, and what was told.
    unwritten: VecDeque<(Option<TellingRow>, Vec<ToldRow>, Vec<ToldRow>)>,
    /// The problem of each channel that was said last.
    said: HashMap<Channel, String>,
}

impl Turn<'_> {
    /// Looks, and has sent what is to be told.
    fn look(&mut self, troubles: &VecDeque<(String, i64)>, all: bool) {
        let now_ns = self.site.now_ns();
        if self.told.is_none() {
            self.told = self.read_told().ok();
        }
        // Without the memory of what was told everything would be told again.
        if self.told.is_none() {
            return;
        }
        let mut once: Vec<_> = troubles.iter().map(|(reason, at_ns)| trouble(reason, *at_ns)).collect();
        let (mut lasting, mut unsure) = (None, Vec::new());
        let done = self.site.catalog().done_runs(RUNS_LOOKED_AT);
        if let Ok(done) = done {
            once.extend(run_findings(&done, self.site.client(), now_ns));
            if all {
                // A fault there is no reason to tell nothing at all.
                let found = catch_unwind(AssertUnwindSafe(|| (self.from.findings)())).unwrap_or_else(|_| {
                    Err("what is to be told cannot be found out because of a bug. Please report it".to_owned())
                });
                match found {
                    Ok(TellFindings { mut found, unsure: of_look }) => {
                        unsure = of_look;
                        self.since(&mut found, now_ns);
                        let (lasts, happened): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.lasts);
                        once.extend(happened);
                        lasting = Some(lasts);
                    }
                    Err(reason) => once.push(trouble(&reason, now_ns)),
                }
            }
        }
        let found = Found { lasting, once, unsure };
        let rules = &self.site.config().tell;
        let Some(told) = &mut self.told else { return };
        if all && found.lasting.is_some() {
            let outdated = outdated(&found, told, rules, now_ns);
            outdated.iter().for_each(|row| told.forget(row));
            if !outdated.is_empty() {
                self.unwritten.push_back((None, Vec::new(), outdated));
            }
        }
        for message in plan(&found, told, rules, now_ns) {
            self.send(message);
        }
        self.write();
    }

    /// Gives what lasts the time when it was found first.
    fn since(&mut self, found: &mut [TellFinding], now_ns: i64) {
        let keys: HashSet<&str> = found.iter().map(|finding| finding.key.as_str()).collect();
        self.first_found.retain(|key, _| keys.contains(key.as_str()));
        for finding in found.iter_mut().filter(|finding| finding.since_ns.is_none()) {
            finding.since_ns = Some(*self.first_found.entry(finding.key.clone()).or_insert(now_ns));
        }
    }

    fn send(&mut self, message: TellMessage) {
        let channel = (message.rule.clone(), message.way);
        let Some(rule) = self.site.config().tell.get(&message.rule).cloned() else { return };
        if !self.on_their_way.insert(channel.clone()) {
            return;
        }
        let (sender, done, stop) = (Arc::clone(&self.sender), self.done.clone(), Arc::clone(&self.stop));
        let name = format!("tell {}", message.rule);
        // Nobody waits for it: a receiver that hangs must not keep a server from its end.
        let begun = thread::Builder::new().name(name).spawn(move || {
            let sent = sender.send(&rule, &message, &stop);
            let _ = done.send((message, sent));
        });
        if begun.is_err() {
            self.on_their_way.remove(&channel);
        }
    }

    /// Takes in what came of messages.
    fn take_in(&mut self) {
        while let Ok((message, sent)) = self.came.try_recv() {
            self.took(&message, sent);
        }
    }

    fn took(&mut self, message: &TellMessage, sent: Result<(), TellError>) {
        let channel = (message.rule.clone(), message.way);
        self.on_their_way.remove(&channel);
        let now_ns = self.site.now_ns();
        let (mut news, mut over) = (Vec::new(), Vec::new());
        let problem = match sent {
            Ok(()) => {
                if let Some(told) = &mut self.told {
                    (news, over) = told.arrived(message, now_ns);
                }
                String::new()
            }
            Err(TellError::Stopped) => return,
            Err(error) => error.to_string(),
        };
        if !problem.is_empty() && self.said.get(&channel) != Some(&problem) {
            let reason = format!(
                "rule {} could not tell: {problem}. It is tried again; `capstan server tell --test {}` tries it now",
                message.rule, message.rule
            );
            (self.from.say)(reason);
        }
        let arrived_ns = problem.is_empty().then_some(now_ns);
        let telling = TellingRow {
            rule: message.rule.clone(),
            way: message.way.name().to_owned(),
            subject: message.summary(),
            tried_ns: now_ns,
            arrived_ns,
            problem: problem.clone(),
            failing_ns: (!problem.is_empty()).then_some(now_ns),
        };
        self.said.insert(channel, problem);
        // Of messages that did not arrive the last one counts.
        self.unwritten.retain(|(other, news, over)| {
            let is_same = other.as_ref().is_some_and(|other| other.rule == telling.rule && other.way == telling.way);
            !is_same || !news.is_empty() || !over.is_empty()
        });
        self.unwritten.push_back((Some(telling), news, over));
        self.write();
    }

    /// Writes what is to be remembered; what cannot be written is kept, and written later.
    fn write(&mut self) {
        while let Some((telling, news, over)) = self.unwritten.front() {
            let written = self.site.catalog().note_telling(telling.as_ref(), news, over);
            if written.is_err() {
                return;
            }
            self.unwritten.pop_front();
        }
    }

    fn read_told(&self) -> Result<ToldMemory, CatalogError> {
        let catalog = self.site.catalog();
        let (rows, tellings) = (catalog.told()?, catalog.tellings()?);
        let arrived = tellings.into_iter().filter_map(|row| Some(((row.rule, row.way), row.arrived_ns?)));
        Ok(ToldMemory::of(rows, arrived))
    }

    /// Waits a moment for what is on its way.
    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + LAST_WAIT;
        while !self.on_their_way.is_empty() {
            let Ok((message, sent)) = self.came.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                break;
            };
            self.took(&message, sent);
        }
        self.write();
    }
}

fn trouble(reason: &str, at_ns: i64) -> TellFinding {
    let subject = format!("the server has trouble: {reason}");
    let text = format!("{reason}. To look further: `capstan status`, and the server's own messages");
    let found = TellFinding::lasting(TellEvent::Trouble, format!("trouble {reason}"), subject, text);
    TellFinding { since_ns: Some(at_ns), lasts: false, ..found }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
