//! Reading the fields of a structure by tag and type.

use crate::enumeration::ResultReason;
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};

macro_rules! optional {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($bind:ident) -> $kind:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            fn $name(&self, tag: Tag) -> Result<Option<$kind>, Refused> {
                match self.child(tag).map(|item| &item.value) {
                    None => Ok(None),
                    Some(Value::$variant($bind)) => Ok(Some($value)),
                    Some(_) => Err(Refused::message(format!("{tag} is of another type"))),
                }
            }
        )*
    };
}

/// The fields of a structure: absent is `None`, of another type is an invalid message.
pub(crate) trait Fields {
    fn child(&self, tag: Tag) -> Option<&Item>;

    optional! {
        integer: Integer(value) -> i32 = *value;
        long: LongInteger(value) -> i64 = *value;
        number: Enumeration(value) -> u32 = *value;
        boolean: Boolean(value) -> bool = *value;
        date: DateTime(value) -> i64 = *value;
        interval: Interval(value) -> u32 = *value;
        text: TextString(value) -> &str = value.as_str();
        bytes: ByteString(value) -> &[u8] = value.expose();
        structure: Structure(value) -> &[Item] = value.as_slice();
    }

    /// An enumeration of which some values are known here.
    fn known<T>(&self, tag: Tag, from: fn(u32) -> Option<T>) -> Result<Option<T>, Refused> {
        let Some(number) = self.number(tag)? else { return Ok(None) };
        let known = from(number).ok_or_else(|| Refused::field(format!("{tag} {number:#x} is not supported")))?;
        Ok(Some(known))
    }
}

/// What is asked to be computed with: a value that is not known here is a feature that there is not.
pub(crate) trait Computable {
    fn computable<T>(&self, tag: Tag, from: fn(u32) -> Option<T>) -> Result<Option<T>, Refused>;
}

impl<F: Fields + ?Sized> Computable for F {
    fn computable<T>(&self, tag: Tag, from: fn(u32) -> Option<T>) -> Result<Option<T>, Refused> {
        let Some(number) = self.number(tag)? else { return Ok(None) };
        let known = from(number).ok_or_else(|| Refused::feature(format!("{tag} {number:#x} is not computed here")))?;
        Ok(Some(known))
    }
}

impl Fields for Item {
    fn child(&self, tag: Tag) -> Option<&Item> {
        Self::child(self, tag)
    }
}

impl Fields for [Item] {
    fn child(&self, tag: Tag) -> Option<&Item> {
        self.iter().find(|item| item.tag == tag)
    }
}

/// A field that must be there.
pub(crate) trait Required<T> {
    fn required(self, tag: Tag) -> Result<T, Refused>;
}

impl<T> Required<T> for Option<T> {
    fn required(self, tag: Tag) -> Result<T, Refused> {
        self.ok_or_else(|| Refused::new(ResultReason::InvalidMessage, format!("{tag} is missing")))
    }
}
