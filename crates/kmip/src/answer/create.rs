//! Create and Register: new objects.

use aws_lc_rs::cipher;

use super::batch::{Batch, uid_item};
use super::template;
use crate::codec::{Codec, read_of_template};
use crate::enumeration::{Algorithm, HashingAlgorithm, KeyFormat, ObjectType, ResultReason};
use crate::fields::{Fields, Required};
use crate::lifecycle::State;
use crate::object::{KeyBlock, KeyMaterial, ManagedObject, PROTECTION_STORAGE_MASK, RECORD_LEN_MAX, has_life};
use crate::refusal::Refused;
use crate::ttlv::{Bytes, Item, Tag, Value};

/// Longest material, in bytes: with its record it has to fit into one of the ledger, of 64 KiB.
pub(crate) const MATERIAL_LEN_MAX: usize = 16 << 10;

pub(crate) fn create(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let kind = payload.known(Tag::OBJECT_TYPE, ObjectType::from_number)?.required(Tag::OBJECT_TYPE)?;
    if kind != ObjectType::SymmetricKey {
        return Err(Refused::field("only symmetric keys are created; secret data and opaque objects are registered"));
    }
    storable(payload)?;
    let attributes = template::attributes(batch, payload)?;
    if attributes.iter().any(|given| given.name == "Random Number Generator") {
        let why = "the key is drawn here, and its Random Number Generator said by the server";
        return Err(Refused::new(ResultReason::ReadOnlyAttribute, why));
    }
    let mut object = blank(batch, kind)?;
    template::give(batch, &mut object, &attributes)?;
    let missing = |what: &str| Refused::new(ResultReason::MissingData, format!("{what} is missing"));
    let Some(Value::Enumeration(algorithm)) = object.first("Cryptographic Algorithm").cloned() else {
        return Err(missing("Cryptographic Algorithm"));
    };
    let Some(Value::Integer(length_bits)) = object.first("Cryptographic Length").cloned() else {
        return Err(missing("Cryptographic Length"));
    };
    if object.first("Cryptographic Usage Mask").is_none() {
        return Err(missing("Cryptographic Usage Mask"));
    }
    let format = match object.first("Key Format Type") {
        None => KeyFormat::Raw,
        Some(Value::Enumeration(format)) => KeyFormat::from_number(*format)
            .filter(|format| *format != KeyFormat::Opaque)
            .ok_or_else(|| Refused::new(ResultReason::KeyFormatTypeNotSupported, "keys are made raw or transparent"))?,
        Some(_) => return Err(Refused::message("Key Format Type is of another type")),
    };
    let material = generate(algorithm, length_bits)?;
    let (algorithm, length_bits) = (Some(algorithm), Some(length_bits));
    object.block = Some(KeyBlock { format, algorithm, length_bits, wrapping: None });
    object.set("Original Creation Date", Value::DateTime(batch.now_s));
    object.set("Random Number Generator", generator(Tag::RANDOM_NUMBER_GENERATOR).value);
    object.set("Fresh", Value::Boolean(true));
    let uid = finish(batch, object, Some(material))?;
    Ok(vec![Item::enumeration(Tag::OBJECT_TYPE, kind), uid_item(&uid)])
}

/// Refuses to keep an object where the client does not want it: each mask that it gives is a place that it would have.
pub(crate) fn storable(payload: &Item) -> Result<(), Refused> {
    let Some(masks) = payload.structure(Tag::PROTECTION_STORAGE_MASKS)? else { return Ok(()) };
    let here = |item: &Item| matches!(item.value, Value::Integer(mask) if mask & !PROTECTION_STORAGE_MASK == 0);
    if masks.is_empty() || masks.iter().any(here) {
        return Ok(());
    }
    Err(Refused::new(ResultReason::ProtectionStorageUnavailable, "keys are kept in software here, and nowhere else"))
}

/// Draws a key.
pub(crate) fn generate(algorithm: u32, length_bits: i32) -> Result<KeyMaterial, Refused> {
    let wrong = || Refused::field("no key of this Cryptographic Algorithm and Cryptographic Length is created here");
    let algorithm = Algorithm::from_number(algorithm).ok_or_else(wrong)?;
    let len = match (algorithm, length_bits) {
        (Algorithm::Aes, 128 | 192 | 256) => length_bits / 8,
        // Of each 8 bits of a DES key one is parity, which the length does not count.
        (Algorithm::TripleDes, 112 | 168) => length_bits / 7,
        (
            Algorithm::HmacSha1
            | Algorithm::HmacSha224
            | Algorithm::HmacSha256
            | Algorithm::HmacSha384
            | Algorithm::HmacSha512,
            112..=1024,
        ) if length_bits % 8 == 0 => length_bits / 8,
        _ => return Err(wrong()),
    };
    let failed = || Refused::new(ResultReason::CryptographicFailure, "the random generator failed");
    let material = KeyMaterial::random(usize::try_from(len).map_err(|_| wrong())?).ok_or_else(failed)?;
    Ok(match algorithm {
        Algorithm::TripleDes => material.changed(|byte| (byte & 0xfe) | u8::from((byte >> 1).count_ones() % 2 == 0)),
        _ => material,
    })
}

/// The random generator: CTR_DRBG with AES-256, which the cryptographic library runs.
pub(crate) fn generator(tag: Tag) -> Item {
    const DRBG: u32 = 3;
    const CTR: u32 = 5;
    let bits = i32::try_from(cipher::AES_256_KEY_LEN * 8).unwrap_or(256);
    Item::structure(
        tag,
        vec![
            Item::enumeration(Tag::RNG_ALGORITHM, DRBG),
            Item::enumeration(Tag::CRYPTOGRAPHIC_ALGORITHM, Algorithm::Aes),
            Item::integer(Tag::CRYPTOGRAPHIC_LENGTH, bits),
            Item::enumeration(Tag::DRBG_ALGORITHM, CTR),
        ],
    )
}

pub(crate) fn register(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let kind = payload.known(Tag::OBJECT_TYPE, ObjectType::from_number)?.required(Tag::OBJECT_TYPE)?;
    let tag = match kind {
        ObjectType::SymmetricKey => Tag::SYMMETRIC_KEY,
        ObjectType::SecretData => Tag::SECRET_DATA,
        ObjectType::OpaqueObject => Tag::OPAQUE_OBJECT,
        ObjectType::Template => Tag::TEMPLATE,
        ObjectType::Certificate
        | ObjectType::PublicKey
        | ObjectType::PrivateKey
        | ObjectType::SplitKey
        | ObjectType::PgpKey => {
            return Err(Refused::field(
                "symmetric keys, secret data, opaque objects and templates are kept here, no others",
            ));
        }
    };
    let content = payload.child(tag).required(tag)?;
    storable(payload)?;
    let attributes = template::attributes(batch, payload)?;
    let mut object = blank(batch, kind)?;
    template::give(batch, &mut object, &attributes)?;
    let material = match kind {
        ObjectType::Template if batch.codec == Codec::Two => {
            return Err(Refused::field("KMIP 2.x has no templates: give the attributes with the object"));
        }
        ObjectType::Template => {
            let has_name = object.first("Name").is_some();
            for item in content.items().iter().filter(|item| item.tag == Tag::ATTRIBUTE) {
                let given = read_of_template(item)?;
                // Clients of 1.0 name a template within it.
                if given.name == "Name" && !has_name {
                    template::give(batch, &mut object, &[given])?;
                }
            }
            object.template = content.items().to_vec();
            None
        }
        ObjectType::OpaqueObject => {
            object.subtype = Some(content.number(Tag::OPAQUE_DATA_TYPE)?.required(Tag::OPAQUE_DATA_TYPE)?);
            let data = content.bytes(Tag::OPAQUE_DATA_VALUE)?.required(Tag::OPAQUE_DATA_VALUE)?;
            Some(KeyMaterial::new(data))
        }
        _ => {
            if kind == ObjectType::SecretData {
                object.subtype = Some(content.number(Tag::SECRET_DATA_TYPE)?.required(Tag::SECRET_DATA_TYPE)?);
            }
            let block = content.child(Tag::KEY_BLOCK).required(Tag::KEY_BLOCK)?;
            Some(key_block(&mut object, block)?)
        }
    };
    if has_life(kind) {
        object.set("Fresh", Value::Boolean(false));
    }
    let uid = finish(batch, object, material)?;
    Ok(vec![uid_item(&uid)])
}

/// Reads a Key Block into the object, and gives its material.
fn key_block(object: &mut ManagedObject, item: &Item) -> Result<KeyMaterial, Refused> {
    if item.child(Tag::KEY_COMPRESSION_TYPE).is_some() {
        return Err(Refused::new(ResultReason::KeyCompressionTypeNotSupported, "no key is compressed here"));
    }
    let format = item.number(Tag::KEY_FORMAT_TYPE)?.required(Tag::KEY_FORMAT_TYPE)?;
    let format = KeyFormat::from_number(format).ok_or_else(|| {
        Refused::new(ResultReason::KeyFormatTypeNotSupported, "keys are raw, opaque or transparent symmetric here")
    })?;
    let value = item.child(Tag::KEY_VALUE).required(Tag::KEY_VALUE)?;
    let wrapping = item.child(Tag::KEY_WRAPPING_DATA).cloned();
    let material = match (&wrapping, &value.value) {
        (Some(_), Value::ByteString(wrapped)) => KeyMaterial::new(wrapped.expose()),
        (Some(_), _) => return Err(Refused::message("a wrapped Key Value is a byte string")),
        (None, Value::Structure(fields)) => {
            let material = fields.as_slice().child(Tag::KEY_MATERIAL).required(Tag::KEY_MATERIAL)?;
            let bytes = match (format, &material.value) {
                (KeyFormat::TransparentSymmetricKey, Value::Structure(_)) => {
                    material.bytes(Tag::KEY)?.required(Tag::KEY)?
                }
                (KeyFormat::Raw | KeyFormat::Opaque, Value::ByteString(bytes)) => bytes.expose(),
                _ => return Err(Refused::message("the Key Material is not as the Key Format Type says")),
            };
            KeyMaterial::new(bytes)
        }
        (None, _) => return Err(Refused::message("a Key Value that is not wrapped is a structure")),
    };
    let given = match object.first("Cryptographic Algorithm") {
        Some(Value::Enumeration(algorithm)) => Some(*algorithm),
        _ => None,
    };
    let given_bits = match object.first("Cryptographic Length") {
        Some(Value::Integer(bits)) => Some(*bits),
        _ => None,
    };
    let algorithm = agreed(Tag::CRYPTOGRAPHIC_ALGORITHM, given, item.number(Tag::CRYPTOGRAPHIC_ALGORITHM)?)?;
    let length_bits = agreed(Tag::CRYPTOGRAPHIC_LENGTH, given_bits, item.integer(Tag::CRYPTOGRAPHIC_LENGTH)?)?;
    if object.object_type == ObjectType::SymmetricKey {
        let algorithm = algorithm.required(Tag::CRYPTOGRAPHIC_ALGORITHM)?;
        let bits = length_bits.required(Tag::CRYPTOGRAPHIC_LENGTH)?;
        let material_bits = i32::try_from(material.expose().len() * 8).unwrap_or(i32::MAX);
        let of_des = Algorithm::from_number(algorithm) == Some(Algorithm::TripleDes);
        let fits = material_bits == bits || (of_des && material_bits / 8 * 7 == bits);
        if wrapping.is_none() && format != KeyFormat::Opaque && !fits {
            return Err(Refused::field(format!("the key has {material_bits} bits, and is said to have {bits}")));
        }
    }
    object.block = Some(KeyBlock { format, algorithm, length_bits, wrapping });
    if let Some(algorithm) = algorithm {
        object.set("Cryptographic Algorithm", Value::Enumeration(algorithm));
    }
    if let Some(bits) = length_bits {
        object.set("Cryptographic Length", Value::Integer(bits));
    }
    Ok(material)
}

/// What the attribute and the Key Block both say, or the one that says anything.
fn agreed<T: PartialEq>(tag: Tag, attribute: Option<T>, block: Option<T>) -> Result<Option<T>, Refused> {
    match (attribute, block) {
        (Some(attribute), Some(block)) if attribute != block => {
            Err(Refused::field(format!("the attribute and the Key Block give a different {tag}")))
        }
        (attribute, block) => Ok(attribute.or(block)),
    }
}

/// A new object without anything.
pub(crate) fn blank(batch: &mut Batch<'_>, object_type: ObjectType) -> Result<ManagedObject, Refused> {
    Ok(ManagedObject {
        uid: batch.new_uid()?,
        domain: batch.view.domain().to_owned(),
        object_type,
        written_state: State::PreActive,
        block: None,
        subtype: None,
        template: Vec::new(),
        attributes: Vec::new(),
    })
}

/// Gives a new object the attributes that the server sets, and puts it in place.
pub(crate) fn finish(
    batch: &mut Batch<'_>,
    mut object: ManagedObject,
    material: Option<KeyMaterial>,
) -> Result<String, Refused> {
    for (name, own) in [("Key Format Type", object.key_format_type()), ("Opaque Data Type", object.opaque_data_type())]
    {
        if object.first(name).is_some_and(|wanted| Some(wanted) != own.map(Value::Enumeration).as_ref()) {
            return Err(Refused::field(format!("the object has another {name} than its attribute says")));
        }
        // It is computed from the object.
        object.remove(name);
    }
    object.set("Initial Date", Value::DateTime(batch.now_s));
    object.set("Last Change Date", Value::DateTime(batch.now_s));
    if let Some(material) = &material {
        if material.expose().len() > MATERIAL_LEN_MAX {
            return Err(Refused::field(format!("an object has at most {MATERIAL_LEN_MAX} bytes here")));
        }
        let format = object.block.as_ref().map(|block| block.format);
        let mut digest = vec![
            Item::enumeration(Tag::HASHING_ALGORITHM, HashingAlgorithm::Sha256),
            Item::bytes(Tag::DIGEST_VALUE, Bytes::from(material.sha256())),
        ];
        digest.extend(format.map(|format| Item::enumeration(Tag::KEY_FORMAT_TYPE, format)));
        object.set("Digest", Value::Structure(digest));
    }
    if has_life(object.object_type) {
        let sensitive = object.flag("Sensitive");
        let extractable = object.first("Extractable") != Some(&Value::Boolean(false));
        object.set("Sensitive", Value::Boolean(sensitive));
        object.set("Always Sensitive", Value::Boolean(sensitive));
        object.set("Extractable", Value::Boolean(extractable));
        object.set("Never Extractable", Value::Boolean(!extractable));
    }
    if let Some(Value::Structure(limits)) = object.first("Usage Limits") {
        let total = limits.as_slice().long(Tag::USAGE_LIMITS_TOTAL)?.required(Tag::USAGE_LIMITS_TOTAL)?;
        let unit = limits.as_slice().number(Tag::USAGE_LIMITS_UNIT)?.required(Tag::USAGE_LIMITS_UNIT)?;
        object.set("Usage Limits", super::cryptography::usage_limits(total, total, unit));
    }
    quantum_safe_if_required(&object)?;
    fits(&object)?;
    // It stays in memory for as long as the object is known.
    object.attributes.shrink_to_fit();
    let uid = object.uid.clone();
    batch.view.insert(object, material);
    batch.placeholder = Some(uid.clone());
    Ok(uid)
}

/// Fewest bits of a symmetric key that is quantum safe: a search by Grover's algorithm takes the square root of the
/// tries.
const QUANTUM_SAFE_BITS: i32 = 256;

/// Refuses an object marked Quantum Safe unless it is known to be: of secret data and opaque objects nothing is known
/// here.
pub(crate) fn quantum_safe_if_required(object: &ManagedObject) -> Result<(), Refused> {
    if !object.flag("Quantum Safe") {
        return Ok(());
    }
    let algorithm = match object.first("Cryptographic Algorithm") {
        Some(Value::Enumeration(number)) => Algorithm::from_number(*number),
        _ => None,
    };
    let is_key = object.object_type == ObjectType::SymmetricKey;
    let safe = match (algorithm, object.first("Cryptographic Length")) {
        (
            Some(Algorithm::Aes | Algorithm::HmacSha256 | Algorithm::HmacSha384 | Algorithm::HmacSha512),
            Some(Value::Integer(bits)),
        ) => is_key && *bits >= QUANTUM_SAFE_BITS,
        _ => false,
    };
    if safe {
        return Ok(());
    }
    let why = "Quantum Safe is accepted only for AES and HMAC-SHA-256 or longer, with keys of at least 256 bits";
    Err(Refused::new(ResultReason::InvalidAttributeValue, why))
}

/// Refuses an object that has grown too large to be stored.
pub(crate) fn fits(object: &ManagedObject) -> Result<(), Refused> {
    if object.attributes.len() > template::ATTRIBUTES_MAX || object.encode().len() > RECORD_LEN_MAX {
        return Err(Refused::field("the object's attributes are too many or too large to be stored"));
    }
    Ok(())
}
