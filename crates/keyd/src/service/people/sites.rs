//! Sites: where nodes stand, so that a key is stored at two of them before it is given out.
//!
//! A node that is added or moved names a site that is known: a misspelt one would count as another place, and keys
//! would be taken to be safe that are in one. Known is what somebody added (`site/NAME`), and where nodes stand
//! already: clusters from before there were such records have those alone. A node never makes a site by itself;
//! founding makes that of the first node.

use std::collections::BTreeMap;

use axum::Json;
use capstan_keys::Name;
use capstan_keys::api::{AddSite, DescribeSite, SiteListed};
use capstan_service::problem::{Input, Refusal};
use jiff::Timestamp;

use super::super::access::NodeRoutes;
use super::super::site_record::SiteRecord;
use super::{Of, Person, broken, time};
use crate::authority::Act;
use crate::desk::Decided;
use crate::path::Path;
use crate::record::KmaRecord;
use crate::state::View;

/// Longest description: a line that a list can show.
const DESCRIPTION_LEN_MAX: usize = 200;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/sites", Act::ListSites, list)
        .post("/v1/sites", Act::ChangeSites, add)
        .post("/v1/sites/{name}/describe", Act::ChangeSites, describe)
        .post("/v1/sites/{name}/remove", Act::ChangeSites, remove)
}

/// All sites that are known, by name.
fn known(view: View<'_>) -> Result<BTreeMap<String, SiteListed>, Refusal> {
    let mut sites = BTreeMap::new();
    for (path, bytes) in view.ledger().others("site/") {
        let record: SiteRecord = serde_json::from_slice(bytes).map_err(|error| broken(&error))?;
        let name = path.trim_start_matches("site/").to_owned();
        let (description, added) = (record.description, Some(time(record.added_ns)));
        sites.insert(name.clone(), SiteListed { name, description, added, kmas: Vec::new() });
    }
    for (kma, KmaRecord { site, .. }) in view.ledger().kmas().iter().filter(|(_, record)| !record.site.is_empty()) {
        let unrecorded =
            || SiteListed { name: site.clone(), description: String::new(), added: None, kmas: Vec::new() };
        sites.entry(site.clone()).or_insert_with(unrecorded).kmas.push(kma.clone());
    }
    Ok(sites)
}

/// Whether a node may stand there; and on which record that rests, so that the site is not removed meanwhile.
pub(super) fn check(view: View<'_>, site: &str) -> Result<Option<Path>, Refusal> {
    let known = known(view)?;
    match known.get(site) {
        _ if site.is_empty() => Ok(None),
        Some(found) => Ok(found.added.map(|_| SiteRecord::path(site))),
        None => {
            let names: Vec<_> = known.keys().map(String::as_str).collect();
            let there = match names[..] {
                [] => "there is none yet".to_owned(),
                _ => format!("there are: {}", names.join(", ")),
            };
            Err(Refusal::conflict(format!("There is no site {site:?}; {there}. `keyd sites add` makes one.")))
        }
    }
}

async fn list(person: Person) -> Result<Json<Vec<SiteListed>>, Refusal> {
    person.looks(Act::ListSites, |view, _| Ok(Json(known(view)?.into_values().collect()))).await
}

async fn add(person: Person, Input(asked): Input<AddSite>) -> Result<Json<SiteListed>, Refusal> {
    person.permitted(Act::ChangeSites).await?;
    let AddSite { name, description } = asked;
    let record = SiteRecord { description: checked(description)?, added_ns: person.node.now_ns() };
    change(&person, &name, "add", |view| {
        if view.ledger().other(&SiteRecord::path(name.as_str()).to_string()).is_some() {
            return Err(Refusal::conflict(format!("There is a site {name} already.")));
        }
        put(&name, &record)
    })
    .await?;
    shown(&person, &name)
}

async fn describe(
    person: Person,
    Of(name): Of<Name>,
    Input(asked): Input<DescribeSite>,
) -> Result<Json<SiteListed>, Refusal> {
    person.permitted(Act::ChangeSites).await?;
    let description = checked(asked.description)?;
    change(&person, &name, "describe", |view| {
        let sites = known(view)?;
        let site = sites.get(name.as_str()).ok_or_else(|| missing(&name))?;
        let added_ns = site.added.map(Timestamp::as_nanosecond).and_then(|added| i64::try_from(added).ok());
        let added_ns = added_ns.unwrap_or_else(|| person.node.now_ns());
        put(&name, &SiteRecord { description: description.clone(), added_ns })
    })
    .await?;
    shown(&person, &name)
}

async fn remove(person: Person, Of(name): Of<Name>) -> Result<Json<SiteListed>, Refusal> {
    person.permitted(Act::ChangeSites).await?;
    let mut removed = None;
    change(&person, &name, "remove", |view| {
        let site = known(view)?.remove(name.as_str()).ok_or_else(|| missing(&name))?;
        let joining = view.ledger().others("joining/").filter_map(|(path, bytes)| {
            let record: KmaRecord = serde_json::from_slice(bytes).ok()?;
            let kma = path.trim_start_matches("joining/").to_owned();
            // What was approved of a node that has joined says no more where it stands.
            let has_joined = view.ledger().kmas().keys().any(|joined| joined.as_str() == kma);
            (record.site == name.as_str() && !has_joined).then_some(kma)
        });
        let there: Vec<_> = site.kmas.iter().map(ToString::to_string).chain(joining).collect();
        if !there.is_empty() {
            return Err(Refusal::conflict(format!(
                "At site {name} there are nodes ({}): move or remove them first (`keyd kmas move`, `keyd kmas remove`).",
                there.join(", ")
            )));
        }
        removed = Some(site);
        Ok(Decided::records(Vec::new(), vec![SiteRecord::path(name.as_str())]))
    })
    .await?;
    removed.map(Json).ok_or_else(Refusal::failed)
}

async fn change(
    person: &Person,
    site: &Name,
    how: &'static str,
    decide: impl FnMut(View<'_>) -> Result<Decided, Refusal> + Send,
) -> Result<(), Refusal> {
    let noted = person.entry(Act::ChangeSites).of("site", site).with("change", how);
    person.does(noted, person.change(decide)).await
}

fn put(site: &Name, record: &SiteRecord) -> Result<Decided, Refusal> {
    let bytes = serde_json::to_vec(record).map_err(|error| broken(&error))?;
    Ok(Decided::records(vec![(SiteRecord::path(site.as_str()), bytes)], Vec::new()))
}

fn shown(person: &Person, name: &Name) -> Result<Json<SiteListed>, Refusal> {
    person.node.view(|view| known(view)?.remove(name.as_str()).map(Json).ok_or_else(Refusal::failed))
}

fn checked(description: String) -> Result<String, Refusal> {
    let is_line = description.len() <= DESCRIPTION_LEN_MAX && !description.chars().any(char::is_control);
    let malformed = || Refusal::malformed(format!("A description is one line of at most {DESCRIPTION_LEN_MAX} bytes."));
    is_line.then_some(description).ok_or_else(malformed)
}

fn missing(site: &Name) -> Refusal {
    Refusal::not_found(format!("There is no site {site}: `keyd sites list` names those there are."))
}
