//! How much room there is where tests write: what fails on a full disk fails in many ways.

use std::path::Path;

use crate::amount::shown_bytes;

/// With less than this a place counts as full.
const FULL: u64 = 1 << 30;

/// What is free at places, in words; where that cannot be told, nothing.
pub(super) fn free(places: &[&Path]) -> String {
    let words =
        places.iter().filter_map(|place| Some(format!("{} at {}", shown_bytes(bytes(place)?), place.display())));
    words.collect::<Vec<_>>().join(", ")
}

/// Those of the places that are full.
pub(super) fn full<'a>(places: &[&'a Path]) -> Vec<&'a Path> {
    places.iter().copied().filter(|place| bytes(place).is_some_and(|free| free < FULL)).collect()
}

fn bytes(place: &Path) -> Option<u64> {
    rustix::fs::statvfs(place).ok().map(|about| about.f_bavail * about.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_has_no_room_that_could_be_told() {
        let (root, absent) = (Path::new("/"), Path::new("/no/such/place"));
        assert!(free(&[root, absent]).ends_with(" at /"), "{}", free(&[root, absent]));
        assert_eq!((free(&[absent]), full(&[absent])), (String::new(), Vec::new()));
    }
}
