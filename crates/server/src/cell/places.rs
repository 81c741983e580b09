//! Objects and paths in them, as clients and users name them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use capstan_catalog::{Object, ObjectFilter};
use capstan_director::{DirectorError, Site, index_path};
use capstan_service::problem::Refusal;

use super::error::refused;

/// Digits of an id that name an object.
const ID_LEN_MIN: usize = 4;
/// The longest text that names an object and a path.
const TEXT_LEN_MAX: usize = 8 << 10;

/// Whose objects are meant.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    /// Those of this client; of any one of several if none is named.
    pub(super) client: Option<&'a str>,
    /// Whether those of a client may be named.
    pub(super) is_of: &'a dyn Fn(&str) -> bool,
}

fn unknown(whose: &Whose<'_>, text: &str) -> Refusal {
    let of = whose.client.map(|client| format!(" of client {client}")).unwrap_or_default();
    Refusal::not_found(format!(
        "Nothing{of} was backed up as {text}: `capstan client objects` at the machine, or `capstan objects` of a user, \
         lists what there is."
    ))
}

/// Sources, each with the clients that have it.
type Sources = HashMap<Vec<u8>, BTreeSet<String>>;

/// The sources of those who may be meant, and the ids of their objects.
fn known_of(site: &Site, whose: &Whose<'_>) -> Result<(Sources, Vec<String>), Refusal> {
    let filter = ObjectFilter { client: whose.client.map(str::to_owned), ..ObjectFilter::default() };
    let objects = site.catalog().objects(&filter).map_err(|error| refused(&error.into()))?;
    let (mut sources, mut ids) = (Sources::new(), Vec::new());
    for object in objects.into_iter().filter(|object| (whose.is_of)(&object.client)) {
        ids.push(object.id.to_string());
        sources.entry(object.source).or_default().insert(object.client);
    }
    Ok((sources, ids))
}

/// What objects may be named by.
pub(super) struct Names<'a> {
    site: &'a Site,
    whose: &'a Whose<'a>,
    at_ns: Option<i64>,
    sources: Sources,
    ids: Vec<String>,
}

impl<'a> Names<'a> {
    /// The names of those who may be meant, at a time.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub(super) fn new(site: &'a Site, whose: &'a Whose<'a>, at_ns: Option<i64>) -> Result<Self, Refusal> {
        let (sources, ids) = known_of(site, whose)?;
        Ok(Self { site, whose, at_ns, sources, ids })
    }

    /// The object that a name means: the latest of a source, or one by its id.
    fn object(&self, name: &str) -> Result<Option<Object>, Refusal> {
        let Some(clients) = self.sources.get(name.as_bytes()) else {
            return self.by_id(name);
        };
        let mut names = clients.iter();
        let (Some(client), None) = (names.next(), names.next()) else {
            let clients: Vec<_> = clients.iter().map(String::as_str).collect();
            return Err(Refusal::malformed(format!(
                "Several clients have {name} ({}): say of which it is meant (--of).",
                clients.join(", ")
            )));
        };
        self.latest_of(client, name)
    }

    /// The object of those who may be meant whose id begins or ends so.
    fn by_id(&self, digits: &str) -> Result<Option<Object>, Refusal> {
        if digits.len() < ID_LEN_MIN || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let digits = digits.to_ascii_lowercase();
        let mut found = self.ids.iter().filter(|id| id.starts_with(&digits) || id.ends_with(&digits));
        let Some(id) = found.next() else { return Ok(None) };
        if found.next().is_some() {
            return Err(Refusal::malformed(format!("Several objects have an id that begins or ends with {digits}.")));
        }
        match self.site.find_object(id, self.at_ns) {
            Ok(object) => Ok(Some(object).filter(|object| (self.whose.is_of)(&object.client))),
            Err(DirectorError::UnknownObject { .. } | DirectorError::AmbiguousSource { .. }) => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }

    /// The latest object of a source of a client. Others may have the same source.
    fn latest_of(&self, client: &str, name: &str) -> Result<Option<Object>, Refusal> {
        match self.site.clone().for_client(client).find_object(name, self.at_ns) {
            Ok(object) if object.client == client => Ok(Some(object)),
            // What others have by that name is nothing that was asked for.
            Ok(_) | Err(DirectorError::UnknownObject { .. } | DirectorError::AmbiguousSource { .. })
                if self.at_ns.is_some() =>
            {
                Err(Refusal::not_found(format!("Nothing of {name} had been backed up by that time.")))
            }
            Ok(_) | Err(DirectorError::AmbiguousSource { .. }) => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }
}

/// The object that a text names, and the path in it as it was typed: behind the last colon that leaves an object in
/// front of it, or one below a source.
pub(super) fn object_and_path(names: &Names<'_>, text: &str) -> Result<(Object, Option<Vec<u8>>), Refusal> {
    if text.len() > TEXT_LEN_MAX {
        return Err(Refusal::malformed("That is too long for an object and a path: name the object by its id."));
    }
    if let Some(object) = names.object(text)? {
        return Ok((object, None));
    }
    let colons = text.char_indices().filter(|&(_, c)| c == ':').map(|(at, _)| at).collect::<Vec<_>>();
    for at in colons.into_iter().rev() {
        let Some(object) = names.object(&text[..at])? else { continue };
        let typed = &text.as_bytes()[at + 1..];
        return Ok((object, (!index_path(typed).is_empty()).then(|| typed.to_vec())));
    }
    // A path below a source, as people type it.
    let object = latest_with(names, text)?;
    object.map(|object| (object, Some(text.as_bytes().to_vec()))).ok_or_else(|| unknown(names.whose, text))
}

/// The latest object of the sources above a path that has it: sources may lie in one another. Where none has it, that
/// of the nearest, which says so.
fn latest_with(names: &Names<'_>, path: &str) -> Result<Option<Object>, Refusal> {
    let (mut found, mut refusal): (Vec<Object>, Option<Refusal>) = (Vec::new(), None);
    for above in Path::new(OsStr::from_bytes(path.as_bytes())).ancestors().skip(1) {
        let Some(name) = above.to_str() else { continue };
        let clients = names.sources.get(name.as_bytes());
        let object = match found.first().map(|nearest| nearest.client.as_str()) {
            // Another machine's file of that name is another file.
            Some(client) if clients.is_none_or(|clients| !clients.contains(client)) => continue,
            Some(client) => names.latest_of(client, name),
            // Whose it is has to be said, whatever lies further up.
            None if clients.is_some_and(|clients| clients.len() > 1) => return names.object(name),
            None => names.object(name),
        };
        match object {
            Ok(object) => found.extend(object),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    let nearest = found.first().cloned();
    if let (None, Some(refusal)) = (&nearest, refusal) {
        return Err(refusal);
    }
    found.sort_by_key(|object| Reverse(object.started_ns));
    let has = |object: &Object| found.len() == 1 || names.site.paths_in(object, path.as_bytes()).is_ok();
    Ok(found.iter().find(|object| has(object)).cloned().or(nearest))
}
