//! Ways by which rules tell people, and those by which nothing has arrived for long: the others tell of them.

use capstan_catalog::TellingRow;
use capstan_director::{Site, TellEvent};
use capstan_server::tell::TellWay;

use super::attention::Attention;
use crate::failure::{Failure, director};
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

/// All ways of all rules.
pub(super) struct Ways(pub(super) Vec<RuleWay>);

impl Ways {
    pub(super) fn of(site: &Site) -> Result<Self, Failure> {
        let tellings = site.catalog().tellings().map_err(director)?;
        let rules = site.config().tell.iter();
        let ways = rules.flat_map(|(rule, settings)| TellWay::of(settings).map(move |way| (rule, way)));
        let of_way = ways.map(|(rule, way)| {
            let last = tellings.iter().find(|telling| telling.rule == *rule && telling.way == way.name());
            RuleWay { rule: rule.clone(), way, failing: last.and_then(failing) }
        });
        Ok(Self(of_way.collect()))
    }

    /// What a person should look at.
    pub(super) fn lines(&self, lines: &mut Vec<Attention>) {
        for RuleWay { rule, way, failing } in &self.0 {
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
        Ways(vec![of_rule(failing), of_rule(None)]).lines(&mut found);
        let [line] = found.as_slice() else { panic!("{} lines", found.len()) };
        let finding = line.finding.as_ref().expect("it is told");
        assert_eq!((finding.event, finding.key.as_str()), (TellEvent::Trouble, "telling oncall mail"));
        assert!(line.text.starts_with("rule oncall tells nobody by mail: nothing has arrived since "), "{}", line.text);
    }
}
