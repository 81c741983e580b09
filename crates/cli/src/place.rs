//! What people type where an object, or a path in one, is meant.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use capstan_catalog::{CatalogError, Object, ObjectFilter, ObjectStatus, Volume};
use capstan_director::{DirectorError, Site, index_path, meant_by};
use capstan_format::Volser;

use crate::failure::{Failure, director};
use crate::secrets::now_ns;
use crate::table::path_text;
use crate::units;
use crate::wording::{doubt_text, short};

/// How like a source a text must be to be taken for it: 1 is the same.
const LIKE: f64 = 0.85;

/// How many digits of an id name an object.
const ID_LEN_MIN: usize = 4;

/// What is said behind a pattern.
pub(crate) const MATCHED_NOTHING: &str = "matched nothing: without a slash it is a name, with one a path below the source, with one in front a path from the root";

/// The object that a text names; a source may be named from the working directory, as it was for the backup.
pub(crate) fn find_object(site: &Site, text: &str, at_ns: Option<i64>) -> Result<Object, DirectorError> {
    look_up(site, text, at_ns).map_err(|error| match error {
        DirectorError::UnknownObject { .. } => expired(site, text).unwrap_or_else(|| unknown(site, text)),
        other => other,
    })
}

/// That what a text names has expired, and how it is taken back, if it has.
fn expired(site: &Site, text: &str) -> Option<DirectorError> {
    let filter = ObjectFilter { status: Some(ObjectStatus::Expired), ..ObjectFilter::default() };
    let expired = site.catalog().objects(&filter).ok()?;
    let is_of_source = |object: &Object| object.source == text.as_bytes() && object.client == site.client();
    let named = expired.iter().find(|object| is_named_by_id(object, text) || is_of_source(object));
    named.map(|object| CatalogError::Expired(object.id).into())
}

/// Whether a text names an object by its id, or the beginning or end of that.
pub(crate) fn is_named_by_id(object: &Object, text: &str) -> bool {
    let (digits, id) = (text.to_ascii_lowercase(), object.id.to_string());
    digits.len() >= ID_LEN_MIN && (id.starts_with(&digits) || id.ends_with(&digits))
}

/// That no object matches a text, and the source that looks most like it.
pub(crate) fn unknown(site: &Site, text: &str) -> DirectorError {
    DirectorError::UnknownObject { wanted: text.to_owned(), like: most_like(text, sources(site)) }
}

/// All sources, as they are printed.
pub(crate) fn sources(site: &Site) -> BTreeSet<String> {
    // An answer that has no suggestion is an answer.
    let objects = site.catalog().objects(&ObjectFilter::default()).unwrap_or_default();
    objects.iter().map(|object| path_text(&object.source)).collect()
}

/// The name that looks most like a text, if one does.
pub(crate) fn most_like(text: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let likeness = |name: String| {
        // By the last component, too: `hmoe` for `/srv/home`.
        let (whole, last) = (strsim::jaro_winkler(text, &name), strsim::jaro_winkler(&last(text), &last(&name)));
        (whole.max(last), name)
    };
    let like = names.into_iter().map(likeness).max_by(|one, other| one.0.total_cmp(&other.0));
    like.filter(|(likeness, _)| *likeness >= LIKE).map(|(_, name)| name)
}

/// The command that looks for what was typed where an object is meant, and which may be the name of a file.
fn find_command(place: &OsStr) -> String {
    let text = place.to_string_lossy();
    let wanted = text.rsplit(':').next().filter(|path| !path.is_empty()).unwrap_or(&text);
    // A pattern with a slash is one of the whole path.
    let below = wanted.strip_prefix("./").unwrap_or(wanted).trim_end_matches('/');
    let wanted = if below.contains('/') && !below.starts_with('/') { format!("**/{below}") } else { below.to_owned() };
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@,=".contains(c);
    match wanted.chars().all(is_plain) && !wanted.starts_with('-') {
        true => format!("capstan find {wanted}"),
        false => format!("capstan find -- '{}'", wanted.replace('\'', r"'\''")),
    }
}

fn look_up(site: &Site, text: &str, at_ns: Option<i64>) -> Result<Object, DirectorError> {
    match site.find_object(text, at_ns) {
        Err(unknown @ DirectorError::UnknownObject { .. }) => {
            let absolute = std::path::absolute(text).ok();
            let absolute =
                absolute.and_then(|path| path.components().collect::<PathBuf>().into_os_string().into_string().ok());
            match absolute.map(|path| site.find_object(&path, at_ns)) {
                Some(found @ (Ok(_) | Err(DirectorError::AmbiguousSource { .. }))) => found,
                _ => Err(unknown),
            }
        }
        other => other,
    }
}

/// `OBJECT[:PATH]`, cut at the last colon that leaves an object in front of it. A path is bytes, and need not be UTF-8;
/// it is given back as it was typed, and left out if it names no component.
fn split(site: &Site, place: &OsStr, at_ns: Option<i64>) -> Result<(Object, Option<Vec<u8>>), Failure> {
    let place = place.as_bytes();
    let find = |name| match str::from_utf8(name).ok().map(|name| look_up(site, name, at_ns)) {
        Some(Ok(object)) => Ok(Some(object)),
        Some(Err(error @ DirectorError::AmbiguousSource { .. })) => Err(error),
        Some(Err(_)) | None => Ok(None),
    };
    // A source may have colons in its name, so the longest object that exists wins.
    if let Some(object) = find(place)? {
        return Ok((object, None));
    }
    let colons = || place.iter().enumerate().filter(|&(_, &byte)| byte == b':').map(|(at, _)| at);
    for at in colons().rev() {
        if let Some(object) = find(&place[..at])? {
            let typed = &place[at + 1..];
            return Ok((object, (!index_path(typed).is_empty()).then(|| typed.to_vec())));
        }
    }
    let wanted = &place[..colons().next().unwrap_or(place.len())];
    Ok((find_object(site, &String::from_utf8_lossy(wanted), at_ns)?, None))
}

/// `OBJECT[:PATH]` as of a time, if one is given; the path as it was typed.
pub(crate) fn place_at(site: &Site, place: &OsStr, at: Option<&str>) -> Result<(Object, Option<Vec<u8>>), Failure> {
    let at_ns = at.map(|text| units::parse_time(text, now_ns())).transpose().map_err(Failure::Usage)?;
    let found = split(site, place, at_ns).map_err(|failure| match (split(site, place, None), at) {
        (Ok((later, _)), Some(at)) => Failure::Other(format!(
            "nothing of {} had been backed up by {at}: the first backup of it began {}, the latest {}, and `capstan objects` lists all",
            place.display(),
            units::time(first_begun(site, &later)),
            units::time(later.started_ns)
        )),
        (_, _) => match &failure {
            Failure::Director(error @ DirectorError::UnknownObject { .. }) => {
                match below_a_source(site, place) {
                    Some(below) => Failure::Other(format!("a path below a source is written behind a colon: {below}")),
                    None => {
                        let find = find_command(place);
                        Failure::Other(format!("{error}. If it is the name of a file, `{find}` looks for it"))
                    }
                }
            }
            _ => failure,
        },
    })?;
    if let Some(at_ns) = at_ns {
        say_undated(site, &found.0, at_ns)?;
    }
    Ok(found)
}

/// `SOURCE:PATH` for what was typed as a path without the colon, if a source lies above it.
fn below_a_source(site: &Site, place: &OsStr) -> Option<String> {
    let typed = std::path::absolute(place).ok()?;
    let typed = typed.to_str()?;
    let rest_of = |source: &String| Some(typed.strip_prefix(source.as_str())?.strip_prefix('/')?.to_owned());
    let above = sources(site).into_iter().filter(|source| rest_of(source).is_some()).max_by_key(String::len)?;
    let rest = rest_of(&above)?;
    Some(format!("{above}:{rest}"))
}

/// That something of a client was backed up.
pub(crate) fn check_client(site: &Site, client: &str) -> Result<(), Failure> {
    let filter = ObjectFilter { client: Some(client.to_owned()), ..ObjectFilter::default() };
    match site.catalog().objects(&filter).map_err(director)?.is_empty() {
        false => Ok(()),
        true => {
            Err(Failure::Other(format!("nothing of a client {client} was backed up: `capstan objects` lists what was")))
        }
    }
}

/// That an object is of the client that was named.
pub(crate) fn check_of(object: &Object, client: &str, typed: &OsStr) -> Result<(), Failure> {
    match object.client == client {
        true => Ok(()),
        false => Err(Failure::Other(format!(
            "nothing of client {client} was backed up as {}: `capstan objects --host {client}` lists what there is",
            path_text(typed.as_bytes())
        ))),
    }
}

/// When the first backup of the same source began.
fn first_begun(site: &Site, object: &Object) -> i64 {
    let (source, client) = (Some(object.source.clone()), Some(object.client.clone()));
    let all = site.catalog().objects(&ObjectFilter { source, client, ..ObjectFilter::default() }).unwrap_or_default();
    all.iter().map(|object| object.started_ns).min().unwrap_or(object.started_ns)
}

/// Says which objects of the same source may be meant as well, because nobody knows whether they were made by then.
fn say_undated(site: &Site, chosen: &Object, at_ns: i64) -> Result<(), Failure> {
    if let Some(text) = doubt_text(&site.timeline()?.reading()) {
        eprintln!("capstan: {text}");
    }
    for (object, begun) in site.undated_at(chosen, at_ns)? {
        eprintln!(
            "capstan: object {} of {} was made between {} and {}, while the clock was in doubt: name it by its id if it is the one you want",
            short(&object),
            path_text(&object.source),
            units::time(begun.from_ns.max(0)),
            units::time(begun.by_ns)
        );
    }
    Ok(())
}

/// The volume that a text names, if it names one.
pub(crate) fn find_volume(site: &Site, text: &str) -> Result<Option<(Volser, Volume)>, Failure> {
    let Ok(volser) = Volser::new(text) else { return Ok(None) };
    let found = site.catalog().volume(&volser).map_err(director)?;
    Ok(found.map(|volume| (volser, volume)))
}

/// The object that a text names, where a volume could have been named too.
pub(crate) fn object_or_volume(site: &Site, text: &str) -> Result<Object, Failure> {
    find_object(site, text, None).map_err(|error| match error {
        DirectorError::UnknownObject { wanted, like } => Failure::Other(format!(
            "no object or volume matches {wanted:?}{}: `capstan objects` and `capstan volumes` list them",
            meant_by(like.as_deref())
        )),
        other => other.into(),
    })
}
