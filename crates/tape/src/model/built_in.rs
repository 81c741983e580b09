//! The models that come with the program.

use std::sync::OnceLock;

use super::spec::{Access, DriveModel, ModelError, bare};

const FILES: [(&str, &str); 19] = [
    ("T9840C", include_str!("../../models/T9840C.toml")),
    ("T9840D", include_str!("../../models/T9840D.toml")),
    ("T10000A", include_str!("../../models/T10000A.toml")),
    ("T10000B", include_str!("../../models/T10000B.toml")),
    ("T10000C", include_str!("../../models/T10000C.toml")),
    ("T10000D", include_str!("../../models/T10000D.toml")),
    ("SDLT-220", include_str!("../../models/SDLT-220.toml")),
    ("LTO-3", include_str!("../../models/LTO-3.toml")),
    ("LTO-4", include_str!("../../models/LTO-4.toml")),
    ("LTO-5", include_str!("../../models/LTO-5.toml")),
    ("LTO-6", include_str!("../../models/LTO-6.toml")),
    ("LTO-7", include_str!("../../models/LTO-7.toml")),
    ("LTO-8", include_str!("../../models/LTO-8.toml")),
    ("LTO-9", include_str!("../../models/LTO-9.toml")),
    ("LTO-10", include_str!("../../models/LTO-10.toml")),
    ("TS1140", include_str!("../../models/TS1140.toml")),
    ("TS1155", include_str!("../../models/TS1155.toml")),
    ("TS1160", include_str!("../../models/TS1160.toml")),
    ("TS1170", include_str!("../../models/TS1170.toml")),
];

/// Names of the models that come with the program.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The model of that name, whatever its case and with or without hyphens.
///
/// # Errors
/// [`ModelError::Unknown`], which names those that there are.
pub fn built_in(name: &str) -> Result<DriveModel, ModelError> {
    let found = FILES.iter().find(|(known, _)| bare(known) == bare(name));
    let unknown =
        || ModelError::Unknown { name: name.to_owned(), there: built_in_names().collect::<Vec<_>>().join(", ") };
    DriveModel::from_toml(found.ok_or_else(unknown)?.1)
}

/// The models that come with the program, in the order of [`FILES`]: the older of a family first.
fn models() -> &'static [DriveModel] {
    static MODELS: OnceLock<Vec<DriveModel>> = OnceLock::new();
    MODELS.get_or_init(|| FILES.iter().filter_map(|(_, text)| DriveModel::from_toml(text).ok()).collect())
}

fn model_named(name: &str) -> Option<&'static DriveModel> {
    models().iter().find(|model| bare(&model.name) == bare(name))
}

/// What a drive of this model can do with cartridges of a generation; all, if the model is not known.
pub(crate) fn access_to(model: &str, generation: &str) -> Access {
    model_named(model).map_or(Access::ReadWrite, |model| model.access(generation))
}

/// Whether a drive of this model encrypts; it does, if the model is not known.
pub(crate) fn encrypts(model: &str) -> bool {
    model_named(model).is_none_or(|model| model.cipher.is_some())
}

/// How old a model is: the later ones of a family have higher numbers.
pub(crate) fn age_of(model: &str) -> usize {
    models().iter().position(|known| bare(&known.name) == bare(model)).unwrap_or(usize::MAX)
}

/// Whether drives of this name are known.
pub(crate) fn is_model(name: &str) -> bool {
    model_named(name).is_some()
}

/// The drives that can do with cartridges of this generation at least that, in words: `a drive of LTO-8 or LTO-9`.
pub(crate) fn drives_for(generation: &str, least: Access) -> String {
    let able = |model: &&DriveModel| model.access(generation) >= least;
    let names: Vec<&str> = models().iter().filter(able).map(|model| model.name.as_str()).collect();
    match names.split_last() {
        None => "another cartridge, for no drive that is known can".to_owned(),
        Some((only, [])) => format!("a drive of {only}"),
        Some((last, others)) => format!("a drive of {} or {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn every_model_is_whole_and_has_the_name_of_its_file() {
        for name in built_in_names() {
            assert_eq!(built_in(name).unwrap().name, name);
        }
        assert_eq!(built_in("lto9").unwrap().name, "LTO-9");
    }

    #[test]
    fn drives_are_named_by_what_they_can_do_with_a_generation() {
        assert_eq!(drives_for("LTO-8", Access::ReadWrite), "a drive of LTO-8 or LTO-9");
        assert_eq!(drives_for("LTO-6", Access::ReadOnly), "a drive of LTO-6 or LTO-7");
        assert_eq!(drives_for("T10000A", Access::ReadOnly), "a drive of T10000A, T10000B, T10000C or T10000D");
        assert_eq!(drives_for("lto10", Access::ReadWrite), "a drive of LTO-10");
        assert_eq!(drives_for("LTO-M8", Access::ReadOnly), "a drive of LTO-8", "LTO-9 does not even read it");
        assert_eq!(drives_for("QIC-150", Access::ReadOnly), "another cartridge, for no drive that is known can");
        assert_eq!(built_in("LTO-6").unwrap().access("LTO-4"), Access::ReadOnly);
        assert_eq!(built_in("TS1160").unwrap().access("virtual"), Access::ReadWrite);
    }

    #[test]
    fn a_model_that_cannot_be_is_refused_with_its_figure() {
        let text = FILES[0].1.replace("native_mb_per_s = { value = 30", "native_mb_per_s = { value = -30");
        let told = DriveModel::from_toml(&text).unwrap_err().to_string();
        assert_eq!(told, "T9840C: native_mb_per_s is -30, and must be more than 0");
        let told = built_in("LTO-1").unwrap_err().to_string();
        assert!(told.starts_with("no model of a drive is named LTO-1; there are T9840C,"), "{told}");
        let text = FILES[2].1.replace("backhitch_s = { value = 4.0, sourced", "backhitch_s = { value = 4.0, heard");
        assert!(DriveModel::from_toml(&text).unwrap_err().to_string().contains("heard"));
    }
}
