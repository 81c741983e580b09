//! Adjust Attribute: a number one up, one down, or turned round, without the client knowing it (KMIP 2.1, section
//! 6.1.3).

use super::attributes::{modified, several};
use super::batch::Batch;
use crate::codec::{Given, Instance};
use crate::enumeration::{AdjustmentType, ResultReason};
use crate::fields::{Fields, Required};
use crate::object::named;
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};

pub(crate) fn adjust(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let name = batch.codec.names(payload)?.into_iter().next().required(Tag::ATTRIBUTE_REFERENCE)?;
    let kind = payload.known(Tag::ADJUSTMENT_TYPE, AdjustmentType::from_number)?.required(Tag::ADJUSTMENT_TYPE)?;
    let rule = named(&name)
        .ok_or_else(|| Refused::new(ResultReason::UnsupportedAttribute, "there is no attribute of this name"))?;
    let values: Vec<&Value> = object.all(&name).map(|attribute| &attribute.value).collect();
    let value = match values.as_slice() {
        [value] => adjusted(value, kind, payload.child(Tag::ADJUSTMENT_VALUE).map(|item| &item.value))?,
        [] => return Err(Refused::new(ResultReason::AttributeNotFound, "the object does not have this attribute")),
        _ => return Err(several(&name)),
    };
    modified(batch, &object, &Instance::Only, &Given { name, value, rule })
}

/// The value that another becomes. Without an amount it is one.
fn adjusted(value: &Value, kind: AdjustmentType, amount: Option<&Value>) -> Result<Value, Refused> {
    let no_number = || Refused::new(ResultReason::InvalidDataType, "only numbers, dates and booleans are adjusted");
    let out_of_range = || Refused::new(ResultReason::NumericRange, "the attribute would leave the range of its type");
    let amount = match amount {
        None => 1,
        Some(Value::Integer(amount)) => i64::from(*amount),
        Some(Value::LongInteger(amount)) => *amount,
        Some(Value::Interval(amount)) => i64::from(*amount),
        Some(_) => return Err(no_number()),
    };
    let number = |number: i64| {
        match kind {
            AdjustmentType::Increment => number.checked_add(amount),
            AdjustmentType::Decrement => number.checked_sub(amount),
            AdjustmentType::Negate => number.checked_neg(),
        }
        .ok_or_else(out_of_range)
    };
    match (value, kind) {
        (Value::Boolean(truth), AdjustmentType::Negate) => Ok(Value::Boolean(!truth)),
        (Value::Integer(old), _) => {
            i32::try_from(number(i64::from(*old))?).map(Value::Integer).map_err(|_| out_of_range())
        }
        (Value::LongInteger(old), _) => number(*old).map(Value::LongInteger),
        (Value::Interval(old), AdjustmentType::Increment | AdjustmentType::Decrement) => {
            u32::try_from(number(i64::from(*old))?).map(Value::Interval).map_err(|_| out_of_range())
        }
        (Value::DateTime(old), AdjustmentType::Increment | AdjustmentType::Decrement) => {
            number(*old).map(Value::DateTime)
        }
        _ => Err(no_number()),
    }
}
