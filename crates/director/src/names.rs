//! Names of cartridges that are made here: A00001 and so on, each once.

use capstan_catalog::Catalog;
use capstan_format::Volser;

/// Where the catalog keeps the highest number that was given.
const LAST_NAME_FACT: &str = "last_cartridge";

/// The name with a number.
pub(crate) fn volser_of(number: u32) -> Option<Volser> {
    Volser::new(&format!("A{number:05}")).ok()
}

fn number_of(volser: &Volser) -> Option<u32> {
    let digits = volser.as_str().strip_prefix('A').filter(|digits| digits.len() == 5)?;
    digits.parse().ok()
}

/// The highest number that was given, 0 for none.
pub(crate) fn last_used(catalog: &Catalog) -> u32 {
    // A fact that cannot be read costs a look at the volumes, which are looked at in any case.
    let known = catalog.fact(LAST_NAME_FACT).ok().flatten().and_then(|text| text.parse().ok());
    known.unwrap_or(0)
}

/// Notes names that are in use, or were.
pub(crate) fn note_used<'v>(catalog: &mut Catalog, volsers: impl IntoIterator<Item = &'v Volser>) {
    let highest = volsers.into_iter().filter_map(number_of).max().unwrap_or(0);
    if highest > last_used(catalog) {
        // Without it the next one is made by what the catalog knows.
        let _ = catalog.put_fact(LAST_NAME_FACT, &highest.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_made_here_have_a_number() {
        let number = |text: &str| number_of(&Volser::new(text).expect("a barcode"));
        assert_eq!(
            (number("A00017"), number("A00017L9"), number("B00017"), number("A12")),
            (Some(17), None, None, None)
        );
        assert_eq!(volser_of(17).as_ref().map(Volser::as_str), Some("A00017"));
    }
}
