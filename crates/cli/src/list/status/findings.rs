//! What the server tells people of: what `status` calls to attention.

use std::sync::Arc;

use capstan_director::Site;
use capstan_server::tell::TellFinding;

use super::{Facts, attention};
use crate::failure::Failure;

/// What a person should look at now, as the server tells it.
pub(crate) fn findings(site: &Site) -> Result<Vec<TellFinding>, Failure> {
    // A server runs for long: its site knows the jobs and policies of when it was opened.
    let site = site.with_own_catalog()?.beside(Arc::new(|_| {}))?;
    let facts = Facts::of(&site, None)?;
    Ok(attention::all(&facts).into_iter().filter_map(|attention| attention.finding).collect())
}
