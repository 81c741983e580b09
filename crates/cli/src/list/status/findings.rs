//! What the server tells people of: what `status` calls to attention.

use capstan_director::Site;
use capstan_server::tell::TellFindings;

use super::{Facts, attention, of_server};
use crate::failure::Failure;

/// First words of the keys of what is too old, or not, by the clock.
const BY_CLOCK: [&str; 4] = ["overdue", "expiry", "verify", "export"];

/// What a person should look at now, as the server tells it.
pub(crate) fn findings(site: &Site) -> Result<TellFindings, Failure> {
    let site = of_server(site)?;
    let facts = Facts::of(&site, None)?;
    let found = attention::all(&facts).into_iter().filter_map(|attention| attention.finding).collect();
    let unsure = facts.reading.doubt.map_or_else(Vec::new, |_| BY_CLOCK.to_vec());
    Ok(TellFindings { found, unsure })
}
