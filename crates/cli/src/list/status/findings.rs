//! What the server tells people of: what `status` calls to attention.

use capstan_director::Site;
use capstan_server::tell::TellFindings;

use super::{Facts, attention, of_server};
use crate::failure::Failure;

/// First words of the keys of what is too old, or not, by the clock.
const BY_CLOCK: [&str; 4] = ["overdue", "expiry", "verify", "export"];
/// That of volumes to be inserted: a restore that waits for one looks every minute whether it is there, and does not
/// wait meanwhile.
const BY_TRIAL: &str = "insert";

/// What a person should look at now, as the server tells it.
pub(crate) fn findings(site: &Site) -> Result<TellFindings, Failure> {
    let site = of_server(site)?;
    let facts = Facts::of(&site, None)?;
    let found = attention::all(&facts).into_iter().filter_map(|attention| attention.finding).collect();
    Ok(TellFindings { found, unsure: unsure(facts.reading.doubt.is_some(), facts.queued.tries_restore) })
}

fn unsure(clock_in_doubt: bool, tries_restore: bool) -> Vec<&'static str> {
    let by_clock = if clock_in_doubt { &BY_CLOCK[..] } else { &[] };
    by_clock.iter().copied().chain(tries_restore.then_some(BY_TRIAL)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a restore looked for its volume once more, the volume was not waited for, and was told to be there.
    #[test]
    fn a_volume_that_a_restore_looks_for_is_not_there_by_that() {
        assert_eq!(unsure(false, false), Vec::<&str>::new());
        assert_eq!(unsure(false, true), ["insert"]);
        assert_eq!(unsure(true, true), ["overdue", "expiry", "verify", "export", "insert"]);
    }
}
