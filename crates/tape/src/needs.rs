//! Which drive a volume needs: the drives of a library need not be alike.
//!
//! What a drive reads and writes is what its model does; whether it encrypts, it says itself. What is not known of a
//! drive or of a cartridge speaks against nothing.

use serde::{Deserialize, Serialize};

use crate::model::{Access, access_to, age_of, drives_for, encrypts, is_model};
use crate::{DriveDescription, DriveIdentity, UnfitDrive};

/// What is wanted of a drive for one volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveNeeds {
    /// The generation of the cartridge, where it is known.
    pub generation: Option<String>,
    /// Whether it is written.
    pub writes: bool,
    /// Whether what is on it, or is written to it, is encrypted.
    pub encrypts: bool,
    /// Models of which the drive must be one; none for any.
    pub models: Vec<String>,
}

/// How well the drives of a library suit a cartridge that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteFit {
    /// None of them writes it.
    None,
    /// Drives of a later generation write it.
    Older,
    /// It is of a drive's own generation, or nothing is known that speaks against it.
    Own,
}

/// What is known of a drive.
#[derive(Debug, Clone, Copy)]
struct Known<'a> {
    name: &'a str,
    model: &'a str,
    encrypts: bool,
}

impl DriveNeeds {
    /// Why a drive cannot be used, if it cannot. What it says of itself counts, and what its library says where that
    /// tells no model.
    pub fn refusal(&self, drive: &DriveIdentity, described: Option<&DriveDescription>) -> Option<UnfitDrive> {
        let class = described.and_then(|described| described.class.as_deref());
        let model = class.filter(|_| !is_model(&drive.model)).unwrap_or(&drive.model);
        self.refusal_of_known(Known { name: &drive.name, model, encrypts: drive.encrypts })
    }

    /// The same of a drive of which no more is known than what its library says.
    pub fn refusal_of(&self, number: usize, drive: &DriveDescription) -> Option<UnfitDrive> {
        let name = drive.path.as_ref().map_or_else(|| number.to_string(), |path| path.display().to_string());
        let model = drive.class.as_deref()?;
        self.refusal_of_known(Known { name: &name, model, encrypts: encrypts(model) })
    }

    fn refusal_of_known(&self, Known { name, model, encrypts: drive_encrypts }: Known<'_>) -> Option<UnfitDrive> {
        let (drive, model_name) = (name.to_owned(), format!("a drive of {model}"));
        if !self.models.is_empty() && !self.models.iter().any(|wanted| wanted == model) {
            return Some(UnfitDrive::OtherModel { drive, model: model_name, wanted: self.models.join(", ") });
        }
        if let Some(generation) = &self.generation {
            let generation = generation.clone();
            let instead = |least| drives_for(&generation, least);
            match access_to(model, &generation) {
                Access::None => {
                    let instead = instead(Access::ReadOnly);
                    return Some(UnfitDrive::Foreign { drive, model: model_name, instead, generation });
                }
                Access::ReadOnly if self.writes => {
                    let instead = instead(Access::ReadWrite);
                    return Some(UnfitDrive::ReadOnly { drive, model: model_name, instead, generation });
                }
                _ => {}
            }
        }
        // Nor is a cartridge encrypted that was made for drives which do not.
        let of_plain = self.generation.as_deref().is_some_and(|generation| !encrypts(generation));
        (self.encrypts && (!drive_encrypts || of_plain)).then_some(UnfitDrive::Plain { drive, model: model_name })
    }

    /// The order in which drives are tried that can be used: the lower first. Those of the cartridge's own generation
    /// come first, then the older ones; and plain drives where nothing is encrypted. So drives that can do more stay
    /// free for what needs them.
    pub fn turn_of(&self, drive: &DriveDescription) -> (bool, bool, usize) {
        let Some(model) = drive.class.as_deref() else { return (false, false, 0) };
        let is_other = self.generation.as_deref().is_some_and(|generation| generation != model);
        (is_other, !self.encrypts && encrypts(model), age_of(model))
    }

    /// The drive that is tried first of those that can be used and are not among `taken`, as far as its library tells.
    pub fn drive_among(&self, drives: &[DriveDescription], taken: &[usize]) -> Option<usize> {
        let is_free = |number: &usize| !taken.contains(number) && self.refusal_of(*number, &drives[*number]).is_none();
        (0..drives.len()).filter(is_free).min_by_key(|&number| self.turn_of(&drives[number]))
    }

    /// How well drives suit a cartridge that is to be written.
    pub fn write_fit(&self, drives: &[DriveDescription]) -> WriteFit {
        let fit = |drive: &DriveDescription| match (drive.class.as_deref(), self.generation.as_deref()) {
            (None, _) if !self.models.is_empty() => WriteFit::None,
            _ if self.refusal_of(0, drive).is_some() => WriteFit::None,
            (Some(model), Some(generation)) if model != generation && is_model(generation) => WriteFit::Older,
            _ => WriteFit::Own,
        };
        // Of drives of which nothing is known, nothing is concluded.
        drives.iter().map(fit).max().unwrap_or(WriteFit::Own)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn drive(class: Option<&str>) -> DriveDescription {
        DriveDescription { model: None, class: class.map(str::to_owned), serial: None, path: None }
    }

    fn needs(generation: &str, writes: bool, encrypts: bool) -> DriveNeeds {
        DriveNeeds { generation: Some(generation.to_owned()), writes, encrypts, models: Vec::new() }
    }

    #[test]
    fn a_drive_is_refused_for_what_it_cannot_do_with_the_cartridge() {
        let refused = |needs: &DriveNeeds, model: &str, encrypts: bool| {
            let drive = DriveIdentity { name: "/dev/sg1".to_owned(), model: model.to_owned(), encrypts };
            needs.refusal(&drive, None).map(|refusal| refusal.to_string()).unwrap_or_default()
        };
        assert_eq!(
            refused(&needs("LTO-6", false, false), "LTO-8", true),
            "drive /dev/sg1, a drive of LTO-8, cannot use a cartridge of LTO-6: take a drive of LTO-6 or LTO-7"
        );
        assert_eq!(
            refused(&needs("LTO-5", true, false), "LTO-7", true),
            "drive /dev/sg1, a drive of LTO-7, only reads cartridges of LTO-5: to write this one take a drive of LTO-5 \
             or LTO-6"
        );
        assert_eq!(
            refused(&needs("LTO-4", false, true), "LTO-4", false),
            "drive /dev/sg1, a drive of LTO-4, does not encrypt this cartridge, and it is encrypted, or is to be: take a \
             drive that encrypts, and a cartridge of LTO-4 or later"
        );
        let of_unit = DriveNeeds { models: vec!["LTO-9".to_owned()], ..needs("LTO-8", true, false) };
        assert_eq!(
            refused(&of_unit, "LTO-8", true),
            "drive /dev/sg1, a drive of LTO-8, is none of those that the storage unit has: LTO-9"
        );
        for (needs, model, encrypts) in [
            (needs("LTO-5", false, false), "LTO-7", false),
            (needs("LTO-8", true, true), "LTO-9", true),
            (needs("LTO-8", true, false), "virtual", false),
            (needs("virtual", true, false), "LTO-9", false),
            (DriveNeeds::default(), "LTO-9", false),
            (of_unit, "LTO-9", true),
        ] {
            assert_eq!(refused(&needs, model, encrypts), "", "{needs:?} {model}");
        }
    }

    #[test]
    fn what_a_library_says_of_its_drives_is_enough_to_pass_one_over() {
        let refused = |needs: DriveNeeds, class| needs.refusal_of(3, &drive(class)).map(|refusal| refusal.to_string());
        assert!(refused(needs("LTO-6", false, false), Some("LTO-9")).unwrap().starts_with("drive 3, a drive of LTO-9"));
        assert!(refused(needs("LTO-3", true, true), Some("LTO-3")).unwrap().contains("does not encrypt"));
        assert_eq!(refused(needs("LTO-4", true, true), Some("LTO-4")), None);
        assert!(refused(needs("LTO-3", true, true), Some("LTO-4")).is_some(), "a cartridge of before there was that");
        assert_eq!(refused(needs("LTO-6", true, true), None), None, "nothing is known of it");
    }

    #[test]
    fn drives_that_can_do_more_stay_free() {
        let order = |needs: DriveNeeds, classes: &[&'static str]| {
            let mut classes = classes.to_vec();
            classes.sort_by_key(|class| needs.turn_of(&drive(Some(class))));
            classes
        };
        assert_eq!(order(needs("LTO-8", true, false), &["LTO-9", "LTO-8"]), ["LTO-8", "LTO-9"]);
        assert_eq!(order(needs("LTO-5", false, false), &["LTO-7", "LTO-6"]), ["LTO-6", "LTO-7"]);
        assert_eq!(order(needs("LTO-3", true, false), &["LTO-4", "LTO-3"]), ["LTO-3", "LTO-4"]);
        let unknown = DriveNeeds::default();
        assert_eq!(order(unknown.clone(), &["LTO-4", "LTO-3"]), ["LTO-3", "LTO-4"], "a plain one for what is plain");
        assert_eq!(order(DriveNeeds { encrypts: true, ..unknown }, &["LTO-9", "LTO-8"]), ["LTO-8", "LTO-9"]);
    }

    #[test]
    fn each_cartridge_has_a_drive_of_its_own() {
        let drives = [drive(Some("LTO-9")), drive(Some("LTO-8")), drive(None)];
        let of = |generation, taken: &[usize]| needs(generation, true, true).drive_among(&drives, taken);
        assert_eq!((of("LTO-9", &[]), of("LTO-8", &[])), (Some(2), Some(2)), "one that tells nothing is tried first");
        assert_eq!((of("LTO-8", &[2]), of("LTO-8", &[1, 2])), (Some(1), Some(0)));
        assert_eq!((of("LTO-9", &[2]), of("LTO-9", &[0, 2]), of("LTO-6", &[2])), (Some(0), None, None));
    }

    #[test]
    fn a_cartridge_suits_the_best_of_the_drives() {
        let fit = |classes: &[Option<&str>], models: &[&str], generation: Option<&str>| {
            let drives: Vec<_> = classes.iter().map(|class| drive(*class)).collect();
            let models: Vec<_> = models.iter().map(|&model| model.to_owned()).collect();
            DriveNeeds { generation: generation.map(str::to_owned), writes: true, encrypts: false, models }
                .write_fit(&drives)
        };
        let mixed = [Some("LTO-9"), Some("LTO-7")];
        assert_eq!(fit(&mixed, &[], Some("LTO-9")), WriteFit::Own);
        assert_eq!(fit(&mixed, &[], Some("LTO-8")), WriteFit::Older);
        assert_eq!(fit(&mixed, &[], Some("LTO-7")), WriteFit::Own);
        assert_eq!(fit(&mixed, &["LTO-9"], Some("LTO-7")), WriteFit::None);
        assert_eq!(fit(&mixed, &[], Some("LTO-5")), WriteFit::None, "it is only read");
        assert_eq!(fit(&mixed, &[], None), WriteFit::Own);
        assert_eq!(fit(&[None], &[], Some("LTO-5")), WriteFit::Own);
        assert_eq!(fit(&[None], &["LTO-9"], None), WriteFit::None, "nobody knows that it is one");
        assert_eq!(fit(&[], &[], Some("LTO-5")), WriteFit::Own);
        let encrypted = |generation: &str| DriveNeeds { encrypts: true, ..needs(generation, true, true) };
        let old = [drive(Some("LTO-3")), drive(Some("LTO-4"))];
        assert_eq!(encrypted("LTO-4").write_fit(&old), WriteFit::Own);
        assert_eq!(encrypted("LTO-3").write_fit(&old), WriteFit::None);
    }

    #[test]
    fn what_a_drive_says_of_itself_counts_before_what_its_library_said() {
        let replaced = DriveIdentity { name: "/dev/sg1".to_owned(), model: "LTO-9".to_owned(), encrypts: true };
        assert!(needs("LTO-9", true, false).refusal(&replaced, Some(&drive(Some("LTO-8")))).is_none());
        let untold = DriveIdentity { model: "virtual".to_owned(), ..replaced };
        assert!(needs("LTO-9", true, false).refusal(&untold, Some(&drive(Some("LTO-8")))).is_some());
    }
}
