//! Ways by which rules tell people, and those by which nothing has arrived for long: the others tell of them. And
//! policies that rules name and nobody knows: of those, such a rule never tells.

use std::collections::{BTreeMap, BTreeSet};

use capstan_catalog::TellingRow;
use capstan_director::{Site, SourceRow, TellEvent, TellRule};
use capstan_server::tell::TellWay;

use super::attention::Attention;
use super::queue::Queued;
use crate::failure::{Failure, director};
use crate::place::most_like;
use crate::units;

/// A receiver that is away for less is nobody's business.
const FAILING_FOR_NS: i64 = 3600 * 1_000_000_000;

/// A way of a rule.
pub(super) struct RuleWay {
    pub(super) rule: String,
    pub(super) way: TellWay,
    /// Since when nothing has arrived, nanoseconds since 1970, and why the last message did not, if that is long ago.
    pub(super) failing: Option<(i64, String)>,
}

/// A policy that a rule names, and nobody knows.
struct UnknownPolicy {
    rule: String,
    policy: String,
    /// What may have been meant.
    like: Option<String>,
}

/// All ways of all rules.
pub(super) struct Ways {
    pub(super) all: Vec<RuleWay>,
    unknown: Vec<UnknownPolicy>,
}

impl Ways {
    pub(super) fn of(site: &Site, queued: &Queued, sources: &[SourceRow]) -> Result<Self, Failure> {
        let tellings = site.catalog().tellings().map_err(director)?;
        let rules = site.config().tell.iter();
        let ways = rules.flat_map(|(rule, settings)| TellWay::of(settings).map(move |way| (rule, way)));
        let of_way = ways.map(|(rule, way)| {
            let last = tellings.iter().find(|telling| telling.rule == *rule && telling.way == way.name());
            RuleWay { rule: rule.clone(), way, failing: last.and_then(failing) }
        });
        // Backups may be overdue of a policy that is gone, or that was only ever named on a command line.
        let of_backups = sources.iter().filter_map(|row| Some(&row.last.as_ref()?.policy));
        let known = queued.policies.iter().chain(site.config().jobs.keys()).chain(of_backups);
        Ok(Self { all: of_way.collect(), unknown: unknown(&site.config().tell, &known.cloned().collect()) })
    }

    /// What a person should look at.
    pub(super) fn lines(&self, lines: &mut Vec<Attention>) {
        for UnknownPolicy { rule, policy, like } in &self.unknown {
            let like = like.as_ref().map(|like| format!(" (did you mean {like}?)")).unwrap_or_default();
            let subject = format!("rule {rule} names policy {policy}, which does not exist");
            let text = format!(
                "{subject}{like}, and tells nothing of it: correct `policies` under [tell.{rule}] in capstan.toml and \
                 restart the server, or apply the policy"
            );
            lines.push(Attention::told(TellEvent::Trouble, format!("rule {rule} {policy}"), subject, text));
        }
        for RuleWay { rule, way, failing } in &self.all {
            let Some((since_ns, problem)) = failing else { continue };
            let way = way.name();
            let subject = format!("rule {rule} tells nobody by {way}");
            let since = units::time(*since_ns);
            let text = format!(
                "{subject}: nothing has arrived since {since}: {problem}. `capstan server tell --test {rule}` tries it now"
            );
            lines.push(Attention::told(TellEvent::Trouble, format!("telling {rule} {way}"), subject, text));
        }
    }
}

fn unknown(rules: &BTreeMap<String, TellRule>, known: &BTreeSet<String>) -> Vec<UnknownPolicy> {
    let named = rules.iter().flat_map(|(rule, settings)| settings.policies.iter().map(move |policy| (rule, policy)));
    let of = |(rule, policy): (&String, &String)| {
        let like = most_like(policy, known.iter().cloned());
        UnknownPolicy { rule: rule.clone(), policy: policy.clone(), like }
    };
    named.filter(|(_, policy)| !known.contains(*policy)).map(of).collect()
}

fn failing(last: &TellingRow) -> Option<(i64, String)> {
    // One that failed once, with nothing to say since, was not tried again.
    let since_ns = last.failing_ns.filter(|since_ns| last.tried_ns.saturating_sub(*since_ns) > FAILING_FOR_NS)?;
    Some((since_ns, last.problem.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mail server had refused everything for days, and only the server's own messages said so.
    #[test]
    fn a_way_by_which_nothing_arrives_for_an_hour_is_told() {
        let hours = |hours: i64| hours * FAILING_FOR_NS;
        let last = TellingRow {
            rule: "oncall".to_owned(),
            way: "mail".to_owned(),
            subject: "2 things".to_owned(),
            tried_ns: hours(5) + 1,
            arrived_ns: None,
            problem: "no route".to_owned(),
            failing_ns: Some(hours(4)),
        };
        let once = TellingRow { tried_ns: hours(4), ..last.clone() };
        assert_eq!(failing(&once), None, "nothing was to be told since");
        let failing = failing(&last);
        assert_eq!(failing, Some((hours(4), "no route".to_owned())));
        let of_rule = |failing| RuleWay { rule: "oncall".to_owned(), way: TellWay::Mail, failing };
        let mut found = Vec::new();
        Ways { all: vec![of_rule(failing), of_rule(None)], unknown: Vec::new() }.lines(&mut found);
        let [line] = found.as_slice() else { panic!("{} lines", found.len()) };
        let finding = line.finding.as_ref().expect("it is told");
        assert_eq!((finding.event, finding.key.as_str()), (TellEvent::Trouble, "telling oncall mail"));
        assert!(line.text.starts_with("rule oncall tells nobody by mail: nothing has arrived since "), "{}", line.text);
    }

    /// A rule whose policy was mistyped was never used, and nothing said so.
    #[test]
    fn a_policy_that_only_a_rule_names_is_told() {
        let policies = ["web", "nightyl"].map(str::to_owned).into();
        let rules = BTreeMap::from([("oncall".to_owned(), TellRule { policies, ..TellRule::default() })]);
        let known = BTreeSet::from(["web", "nightly"].map(str::to_owned));
        let mut found = Vec::new();
        Ways { all: Vec::new(), unknown: unknown(&rules, &known) }.lines(&mut found);
        let [line] = found.as_slice() else { panic!("{} lines", found.len()) };
        let finding = line.finding.as_ref().expect("it is told");
        assert_eq!((finding.event, finding.key.as_str()), (TellEvent::Trouble, "rule oncall nightyl"));
        let begins =
            "rule oncall names policy nightyl, which does not exist (did you mean nightly?), and tells nothing";
        assert!(line.text.starts_with(begins), "{}", line.text);
    }
}
