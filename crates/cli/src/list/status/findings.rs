//! What the server tells people of: what `status` calls to attention.

use std::sync::Arc;

use capstan_director::Site;
use capstan_server::tell::TellFindings;

use super::{Facts, attention};
use crate::failure::Failure;

/// First words of the keys of what is too old, or not, by the clock.
const BY_CLOCK: [&str; 4] = ["overdue", "expiry", "verify", "export"];

/// What a person should look at now, as the server tells it.
pub(crate) fn findings(site: &Site) -> Result<TellFindings, Failure> {
    // A server runs for long: its site knows the jobs and policies of when it was opened.
    let site = site.with_own_catalog()?.beside(Arc::new(|_| {}))?;
    let facts = Facts::of(&site, None)?;
    let found = attention::all(&facts).into_iter().filter_map(|attention| attention.finding).collect();
    let unsure = facts.reading.doubt.map_or_else(Vec::new, |_| BY_CLOCK.to_vec());
    Ok(TellFindings { found, unsure })
}
