//! Who waits for a drive outside the queue says so in the catalog: while somebody does, no run joins a session, which
//! would keep its drive for longer.

use std::sync::Mutex;

use capstan_catalog::{Catalog, CatalogError, MAIN_LIBRARY};

use crate::shared::locked;

/// The catalog's fact for a library: since when, and when last.
fn waits_fact(library: &str) -> String {
    if library == MAIN_LIBRARY { "drives waited for".to_owned() } else { format!("drives waited for: {library}") }
}

/// Who waits says so as often as this, and is taken to wait for twice as long.
const SAID_EVERY_NS: i64 = 10_000_000_000;

/// Since when somebody waits for a drive of a library, nanoseconds since 1970.
pub(crate) fn waited_since_ns(catalog: &Catalog, library: &str, now_ns: i64) -> Result<Option<i64>, CatalogError> {
    Ok(catalog.fact(&waits_fact(library))?.and_then(|text| still_waits(&text, now_ns)))
}

fn still_waits(text: &str, now_ns: i64) -> Option<i64> {
    let (since, last) = text.split_once(' ')?;
    let (since, last): (i64, i64) = (since.parse().ok()?, last.parse().ok()?);
    (last..last.saturating_add(2 * SAID_EVERY_NS)).contains(&now_ns).then_some(since)
}

/// Says that somebody waits. Where it cannot be said, the drive is waited for all the same.
pub(crate) fn note_wait(catalog: &Mutex<Catalog>, library: &str, now_ns: i64) {
    let (mut catalog, fact) = (locked(catalog), waits_fact(library));
    let Ok(before) = catalog.fact(&fact) else { return };
    let before = before.unwrap_or_default();
    let since = still_waits(&before, now_ns);
    let said_ns = before.split_once(' ').and_then(|(_, last)| last.parse::<i64>().ok());
    if since.is_some() && said_ns.is_some_and(|said_ns| now_ns - said_ns < SAID_EVERY_NS) {
        return;
    }
    let _ = catalog.put_fact(&fact, &format!("{} {now_ns}", since.unwrap_or(now_ns)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_holds_for_as_long_as_it_is_said() {
        let text = "5 20000000000";
        assert_eq!(still_waits(text, 20_000_000_000), Some(5));
        assert_eq!(still_waits(text, 39_999_999_999), Some(5));
        assert_eq!((still_waits(text, 40_000_000_000), still_waits(text, 7)), (None, None));
        assert_eq!((still_waits("", 7), still_waits("now then", 7)), (None, None));
    }
}
