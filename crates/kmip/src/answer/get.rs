//! Get: the object itself, in the clear of the connection or wrapped under another key.

use std::sync::Arc;

use super::attributes::shown;
use super::batch::{Batch, uid_item};
use crate::cipher::{WrapMode, wrap};
use crate::enumeration::{Algorithm, BlockCipherMode, KeyFormat, ObjectType, ResultReason, usage};
use crate::fields::{Computable, Fields, Required};
use crate::lifecycle::{Material, State};
use crate::object::{KeyBlock, KeyMaterial, ManagedObject};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value, encode};
use crate::view::Weight;

pub(crate) fn get(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    if payload.child(Tag::KEY_COMPRESSION_TYPE).is_some() {
        return Err(Refused::new(ResultReason::KeyCompressionTypeNotSupported, "no key is compressed here"));
    }
    let wanted_format = match payload.number(Tag::KEY_FORMAT_TYPE)? {
        None => None,
        Some(number) => Some(KeyFormat::from_number(number).ok_or_else(no_such_format)?),
    };
    let wrapping = payload.child(Tag::KEY_WRAPPING_SPECIFICATION);
    let unwrapped = payload.number(Tag::KEY_WRAP_TYPE)? == Some(NOT_WRAPPED);
    let mut response = vec![Item::enumeration(Tag::OBJECT_TYPE, object.object_type), uid_item(&object.uid)];
    response.push(match object.object_type {
        ObjectType::Template if object.material() == Material::Gone => {
            return Err(Refused::new(
                ResultReason::ObjectDestroyed,
                "the template was destroyed: only its attributes are left",
            ));
        }
        ObjectType::Template => Item::structure(Tag::TEMPLATE, object.template.clone()),
        ObjectType::OpaqueObject => {
            let material = batch.view.material(&object)?;
            let data_type = Item::enumeration(Tag::OPAQUE_DATA_TYPE, object.subtype.unwrap_or(0));
            let value = Item::bytes(Tag::OPAQUE_DATA_VALUE, material.expose());
            Item::structure(Tag::OPAQUE_OBJECT, vec![data_type, value])
        }
        _ => {
            let material = batch.view.material(&object)?;
            let block = key_block(batch, &object, &material, wanted_format, (wrapping, unwrapped))?;
            match object.object_type {
                ObjectType::SecretData => {
                    let kind = Item::enumeration(Tag::SECRET_DATA_TYPE, object.subtype.unwrap_or(0));
                    Item::structure(Tag::SECRET_DATA, vec![kind, block])
                }
                _ => Item::structure(Tag::SYMMETRIC_KEY, vec![block]),
            }
        }
    });
    if object.flag("Fresh") {
        let mut read = ManagedObject::clone(&object);
        read.set("Fresh", Value::Boolean(false));
        batch.view.replace(read, Weight::Noted);
    }
    batch.placeholder = Some(object.uid.clone());
    Ok(response)
}

fn no_such_format() -> Refused {
    Refused::new(ResultReason::KeyFormatTypeNotSupported, "the key cannot be given in this Key Format Type")
}

fn key_block(
    batch: &mut Batch<'_>,
    object: &Arc<ManagedObject>,
    material: &KeyMaterial,
    wanted: Option<KeyFormat>,
    (wrapping, unwrapped): (Option<&Item>, bool),
) -> Result<Item, Refused> {
    let block = object.block.as_ref().ok_or_else(no_such_format)?;
    if !object.flag("Extractable") {
        return Err(Refused::new(ResultReason::NotExtractable, "the object does not leave this server"));
    }
    if let Some(stored) = &block.wrapping {
        if unwrapped {
            return Err(Refused::new(
                ResultReason::KeyWrapTypeNotSupported,
                "the key was registered wrapped, and is not unwrapped here",
            ));
        }
        if wrapping.is_some() {
            return Err(Refused::new(
                ResultReason::KeyWrapTypeNotSupported,
                "the key was registered wrapped, and is not wrapped again",
            ));
        }
        if wanted.is_some_and(|wanted| wanted != block.format) {
            return Err(no_such_format());
        }
        return Ok(finish(block, block.format, Item::bytes(Tag::KEY_VALUE, material.expose()), Some(stored.clone())));
    }
    let format = wanted.unwrap_or(block.format);
    let key_material = match (block.format, format) {
        (KeyFormat::Raw | KeyFormat::TransparentSymmetricKey, KeyFormat::TransparentSymmetricKey) => {
            Item::structure(Tag::KEY_MATERIAL, vec![Item::bytes(Tag::KEY, material.expose())])
        }
        (KeyFormat::Raw | KeyFormat::TransparentSymmetricKey, KeyFormat::Raw)
        | (KeyFormat::Opaque, KeyFormat::Opaque) => Item::bytes(Tag::KEY_MATERIAL, material.expose()),
        _ => return Err(no_such_format()),
    };
    match wrapping {
        None if object.flag("Sensitive") => {
            Err(Refused::new(ResultReason::Sensitive, "the object is given only wrapped: name a key to wrap it under"))
        }
        None => Ok(finish(block, format, Item::structure(Tag::KEY_VALUE, vec![key_material]), None)),
        Some(specification) => {
            let (value, data) = wrapped(batch, object, key_material, specification)?;
            Ok(finish(block, format, value, Some(data)))
        }
    }
}

fn finish(block: &KeyBlock, format: KeyFormat, value: Item, wrapping: Option<Item>) -> Item {
    let mut items = vec![Item::enumeration(Tag::KEY_FORMAT_TYPE, format), value];
    items.extend(block.algorithm.map(|algorithm| Item::enumeration(Tag::CRYPTOGRAPHIC_ALGORITHM, algorithm)));
    items.extend(block.length_bits.map(|bits| Item::integer(Tag::CRYPTOGRAPHIC_LENGTH, bits)));
    items.extend(wrapping);
    Item::structure(Tag::KEY_BLOCK, items)
}

/// Key Wrap Type: in the clear.
const NOT_WRAPPED: u32 = 1;
const METHOD_ENCRYPT: u32 = 1;
const NO_ENCODING: u32 = 1;
const TTLV_ENCODING: u32 = 2;

/// The wrapped Key Value, and the Key Wrapping Data that says how it was wrapped.
fn wrapped(
    batch: &mut Batch<'_>,
    object: &ManagedObject,
    key_material: Item,
    specification: &Item,
) -> Result<(Item, Item), Refused> {
    let method = specification.number(Tag::WRAPPING_METHOD)?.required(Tag::WRAPPING_METHOD)?;
    if method != METHOD_ENCRYPT || specification.child(Tag::MAC_SIGNATURE_KEY_INFORMATION).is_some() {
        return Err(Refused::feature("keys are wrapped by encryption alone here"));
    }
    let information = specification.child(Tag::ENCRYPTION_KEY_INFORMATION).required(Tag::ENCRYPTION_KEY_INFORMATION)?;
    let uid = batch.uid(information.child(Tag::UNIQUE_IDENTIFIER).required(Tag::UNIQUE_IDENTIFIER)?)?;
    let wrapping =
        batch.view.find(&uid).map_err(|refused| Refused::new(ResultReason::WrappingObjectNotFound, refused.message))?;
    batch.uids.push(uid);
    if wrapping.algorithm() != Some(Algorithm::Aes)
        || wrapping.block.as_ref().is_some_and(|block| block.wrapping.is_some())
    {
        return Err(Refused::new(ResultReason::IllegalObjectType, "keys are wrapped under AES keys alone here"));
    }
    if wrapping.usage_mask() & usage::WRAP_KEY == 0 {
        return Err(Refused::new(
            ResultReason::IncompatibleCryptographicUsageMask,
            "the wrapping key's Cryptographic Usage Mask does not have Wrap Key",
        ));
    }
    if wrapping.state(batch.now_s) != State::Active {
        return Err(Refused::new(ResultReason::WrongKeyLifecycleState, "the wrapping key is not active"));
    }
    let own = wrapping.first("Cryptographic Parameters");
    let mode = match information.child(Tag::CRYPTOGRAPHIC_PARAMETERS) {
        Some(parameters) => parameters.computable(Tag::BLOCK_CIPHER_MODE, BlockCipherMode::from_number)?,
        None => match own {
            Some(Value::Structure(own)) => {
                own.as_slice().computable(Tag::BLOCK_CIPHER_MODE, BlockCipherMode::from_number)?
            }
            _ => None,
        },
    };
    let mode = match mode {
        None | Some(BlockCipherMode::NistKeyWrap) => WrapMode::NistKeyWrap,
        Some(BlockCipherMode::AesKeyWrapPadding) => WrapMode::Padded,
        Some(_) => return Err(Refused::feature("keys are wrapped by NIST Key Wrap or AES Key Wrap Padding here")),
    };
    let plain = match (specification.number(Tag::ENCODING_OPTION)?, &key_material.value) {
        (Some(NO_ENCODING), Value::ByteString(bytes)) => zeroize::Zeroizing::new(bytes.expose().to_vec()),
        (None | Some(TTLV_ENCODING), _) => {
            let mut value = vec![key_material];
            let names = batch.codec.names(specification)?;
            if !names.is_empty() {
                let shown = shown(batch, object);
                let asked = names.iter().flat_map(|name| shown.iter().filter(move |attribute| attribute.name == *name));
                value.extend(batch.codec.show(asked));
            }
            encode(&Item::structure(Tag::KEY_VALUE, value))
        }
        _ => return Err(Refused::new(ResultReason::EncodingOptionError, "a transparent key is wrapped TTLV-encoded")),
    };
    let wrapping_key = batch.view.material(&wrapping)?;
    let value = wrap(wrapping_key.expose(), &plain, mode)?;
    let mut data = vec![Item::enumeration(Tag::WRAPPING_METHOD, method), information.clone()];
    data.extend(specification.child(Tag::ENCODING_OPTION).cloned());
    Ok((Item::bytes(Tag::KEY_VALUE, value), Item::structure(Tag::KEY_WRAPPING_DATA, data)))
}
