//! Names of files and words of commands as they cross a connection: text, or bytes where they are none. Nothing says of
//! which platform they are.
//!
//! For fields, as `#[serde(with = "crate::os_text")]`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::{self, DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name on its way.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum OsName {
    Text(String),
    Bytes(Vec<u8>),
}

/// Takes either without keeping anything else meanwhile: a hostile name needs no more memory than it is long.
impl<'de> Deserialize<'de> for OsName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl<'de> Visitor<'de> for Name {
            type Value = OsName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, as text or as bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OsName, E> {
                Ok(OsName::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<OsName, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = sequence.next_element()? {
                    bytes.push(byte);
                }
                Ok(OsName::Bytes(bytes))
            }
        }

        deserializer.deserialize_any(Name)
    }
}

/// What crosses in another form than it has here.
pub(crate) trait Crosses: Sized {
    type Form: Serialize + DeserializeOwned;

    fn form(&self) -> Self::Form;
    fn of_form(form: Self::Form) -> Self;
}

impl Crosses for OsString {
    type Form = OsName;

    fn form(&self) -> OsName {
        match self.to_str() {
            Some(text) => OsName::Text(text.to_owned()),
            None => OsName::Bytes(self.as_bytes().to_vec()),
        }
    }

    fn of_form(form: OsName) -> Self {
        match form {
            OsName::Text(text) => text.into(),
            OsName::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

impl Crosses for PathBuf {
    type Form = OsName;

    fn form(&self) -> OsName {
        self.as_os_str().to_owned().form()
    }

    fn of_form(form: OsName) -> Self {
        OsString::of_form(form).into()
    }
}

impl<T: Crosses> Crosses for Option<T> {
    type Form = Option<T::Form>;

    fn form(&self) -> Self::Form {
        self.as_ref().map(T::form)
    }

    fn of_form(form: Self::Form) -> Self {
        form.map(T::of_form)
    }
}

impl<T: Crosses> Crosses for Vec<T> {
    type Form = Vec<T::Form>;

    fn form(&self) -> Self::Form {
        self.iter().map(T::form).collect()
    }

    fn of_form(form: Self::Form) -> Self {
        form.into_iter().map(T::of_form).collect()
    }
}

/// A name, and something about it.
impl<T: Crosses, A: Clone + Serialize + DeserializeOwned> Crosses for (T, A) {
    type Form = (T::Form, A);

    fn form(&self) -> Self::Form {
        (self.0.form(), self.1.clone())
    }

    fn of_form((form, about): Self::Form) -> Self {
        (T::of_form(form), about)
    }
}

pub(crate) fn serialize<T: Crosses, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.form().serialize(serializer)
}

pub(crate) fn deserialize<'de, T: Crosses, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::Form::deserialize(deserializer).map(T::of_form)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn names_cross_as_text_if_they_are_text() {
        let text = |name: &OsString| serde_json::to_string(&name.form()).unwrap();
        let back = |text: &str| OsString::of_form(serde_json::from_str(text).unwrap());
        for (name, crossing) in [
            (OsString::from("/srv/caf\u{e9}"), "\"/srv/caf\u{e9}\"".to_owned()),
            (OsString::from_vec(b"/srv/\xff".to_vec()), "[47,115,114,118,47,255]".to_owned()),
            (OsString::new(), "\"\"".to_owned()),
        ] {
            assert_eq!(text(&name), crossing);
            assert_eq!(back(&crossing), name);
        }
        assert!(serde_json::from_str::<OsName>("[256]").is_err() && serde_json::from_str::<OsName>("{}").is_err());
    }
}
