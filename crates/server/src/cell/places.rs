//! Objects and paths in them, as clients and users name them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use capstan_catalog::Object;
use capstan_director::{DirectorError, Site, index_path};
use capstan_service::problem::Refusal;

use super::error::in_words;

/// Whose objects are meant.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    /// Those of this client; of any one of several if none is named.
    pub(super) client: Option<&'a str>,
    /// Whether those of a client may be named.
    pub(super) is_of: &'a dyn Fn(&str) -> bool,
}

pub(super) fn refused(error: &DirectorError) -> Refusal {
    let text = format!("{}.", in_words(error));
    match error {
        DirectorError::Catalog(_) => Refusal::unready(text),
        _ => Refusal::malformed(text),
    }
}

fn unknown(whose: &Whose<'_>, text: &str) -> Refusal {
    let of = whose.client.map(|client| format!(" of client {client}")).unwrap_or_default();
    Refusal::not_found(format!(
        "Nothing{of} was backed up as {text}: `capstan client objects` at the machine, or `capstan objects` of a user, \
         lists what there is."
    ))
}

/// The object that a name means: the latest of a source, or one by its id.
fn object(site: &Site, whose: &Whose<'_>, name: &str, at_ns: Option<i64>) -> Result<Option<Object>, Refusal> {
    let mut clients = match whose.client {
        Some(client) => vec![client.to_owned()],
        None => site.clients_of(name.as_bytes()).map_err(|error| refused(&error))?,
    };
    clients.retain(|client| (whose.is_of)(client));
    if let [_, _, ..] = clients[..] {
        return Err(Refusal::malformed(format!(
            "Several clients have {name}: say of which it is meant (--of). It is there of {}.",
            clients.join(", ")
        )));
    }
    // Others may have the same source.
    let site = match clients.pop() {
        Some(client) => site.clone().for_client(&client),
        None => site.clone(),
    };
    Ok(site.find_object(name, at_ns).ok().filter(|object| (whose.is_of)(&object.client)))
}

/// The object that a text names, and the path in it as it was typed: behind the last colon that leaves an object in
/// front of it, or one below a source.
pub(super) fn object_and_path(
    site: &Site,
    whose: &Whose<'_>,
    text: &str,
    at_ns: Option<i64>,
) -> Result<(Object, Option<Vec<u8>>), Refusal> {
    if let Some(object) = object(site, whose, text, at_ns)? {
        return Ok((object, None));
    }
    let colons = text.char_indices().filter(|&(_, c)| c == ':').map(|(at, _)| at).collect::<Vec<_>>();
    for at in colons.into_iter().rev() {
        let Some(object) = object(site, whose, &text[..at], at_ns)? else { continue };
        let typed = &text.as_bytes()[at + 1..];
        return Ok((object, (!index_path(typed).is_empty()).then(|| typed.to_vec())));
    }
    // A path below a source, as people type it.
    for above in Path::new(OsStr::from_bytes(text.as_bytes())).ancestors().skip(1) {
        let Some(name) = above.to_str() else { continue };
        let Some(object) = object(site, whose, name, at_ns)? else { continue };
        return Ok((object, Some(text.as_bytes().to_vec())));
    }
    Err(unknown(whose, text))
}
