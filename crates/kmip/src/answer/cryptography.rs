//! Encrypt, Decrypt, MAC, MAC Verify, Hash, RNG Retrieve and RNG Seed.

mod stream;

use std::borrow::Cow;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::batch::{Batch, uid_item};
use crate::cipher::{self, Aes, BLOCK_LEN, Gcm, TAG_LENS};
use crate::enumeration::{Algorithm, BlockCipherMode, HashingAlgorithm, KeyFormat, PaddingMethod, ResultReason, usage};
use crate::fields::{Computable, Fields, Required};
use crate::lifecycle::State;
use crate::object::{KeyMaterial, ManagedObject};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::view::Weight;

/// Most random bytes that one item gives.
const RANDOM_LEN_MAX: i32 = 4096;
/// Bytes of a nonce that is drawn for GCM, and the most that a client may give.
const GCM_NONCE_LEN: usize = 12;
const GCM_NONCE_LEN_MAX: usize = 1024;

/// Whether a key is to protect something new, or to process what was protected before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Protect,
    Process,
}

/// The symmetric key of an item, if it may be used so now.
fn key(
    batch: &mut Batch<'_>,
    payload: &Item,
    purpose: Use,
    usage_bit: i32,
) -> Result<(Arc<ManagedObject>, Arc<KeyMaterial>), Refused> {
    let object = batch.object(payload)?;
    let usable = object.block.as_ref().is_some_and(|block| {
        block.wrapping.is_none() && matches!(block.format, KeyFormat::Raw | KeyFormat::TransparentSymmetricKey)
    });
    if !usable || object.algorithm().is_none() {
        return Err(Refused::new(ResultReason::IllegalObjectType, "nothing is computed with this kind of object"));
    }
    if object.usage_mask() & usage_bit == 0 {
        return Err(Refused::new(
            ResultReason::IncompatibleCryptographicUsageMask,
            "the key's Cryptographic Usage Mask does not allow it",
        ));
    }
    let state = object.state(batch.now_s);
    match (purpose, state) {
        (_, State::Active) | (Use::Process, State::Deactivated | State::Compromised) => {}
        _ => return Err(not_now(format!("the key is {state:?}, and not used so"))),
    }
    if purpose == Use::Process && object.date("Process Start Date").is_some_and(|date| date > batch.now_s) {
        return Err(not_now("the key's Process Start Date has not come"));
    }
    if purpose == Use::Protect && object.date("Protect Stop Date").is_some_and(|date| date <= batch.now_s) {
        return Err(not_now("the key's Protect Stop Date is past"));
    }
    let material = batch.view.material(&object)?;
    Ok((object, material))
}

fn not_now(message: impl Into<Cow<'static, str>>) -> Refused {
    Refused::new(ResultReason::WrongKeyLifecycleState, message)
}

/// What a client says of how to compute: in the request, or else with the key.
struct Parameters<'a> {
    items: &'a [Item],
}

impl<'a> Parameters<'a> {
    fn of(payload: &'a Item, object: &'a ManagedObject) -> Result<Self, Refused> {
        let items = match payload.structure(Tag::CRYPTOGRAPHIC_PARAMETERS)? {
            Some(items) => items,
            None => match object.first("Cryptographic Parameters") {
                Some(Value::Structure(items)) => items.as_slice(),
                _ => &[],
            },
        };
        Ok(Self { items })
    }

    fn mode(&self) -> Result<BlockCipherMode, Refused> {
        let mode = self.items.computable(Tag::BLOCK_CIPHER_MODE, BlockCipherMode::from_number)?;
        mode.ok_or_else(|| Refused::field("neither the request nor the key gives a Block Cipher Mode"))
    }

    fn padding(&self) -> Result<PaddingMethod, Refused> {
        Ok(self.items.computable(Tag::PADDING_METHOD, PaddingMethod::from_number)?.unwrap_or(PaddingMethod::None))
    }

    fn tag_len(&self) -> Result<usize, Refused> {
        let len = self.items.integer(Tag::TAG_LENGTH)?.unwrap_or(16);
        // The profile's cases want this reason, of all there are.
        usize::try_from(len)
            .ok()
            .filter(|len| TAG_LENS.contains(len))
            .ok_or_else(|| Refused::new(ResultReason::GeneralFailure, "GCM has tags of 4, 8, or 12 to 16 bytes"))
    }

    /// Whether an IV is drawn where none is given: clients of 1.4 say nothing of it, and read it in the answer.
    fn random_iv(&self) -> Result<bool, Refused> {
        Ok(self.items.boolean(Tag::RANDOM_IV)?.unwrap_or(true))
    }
}

fn aes<'a>(object: &ManagedObject, material: &'a KeyMaterial) -> Result<Aes<'a>, Refused> {
    match object.algorithm() {
        Some(Algorithm::Aes) => Aes::new(material.expose()),
        _ => Err(Refused::feature("data are encrypted with AES alone here")),
    }
}

fn missing_iv() -> Refused {
    Refused::message("IV/Counter/Nonce is missing")
}

fn block_iv(iv: &[u8]) -> Result<[u8; BLOCK_LEN], Refused> {
    iv.try_into().map_err(|_| Refused::field("the IV/Counter/Nonce of this mode has 16 bytes"))
}

fn draw(len: usize) -> Result<Vec<u8>, Refused> {
    let mut bytes = vec![0; len];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Refused::new(ResultReason::CryptographicFailure, "the random generator failed"))?;
    Ok(bytes)
}

pub(crate) fn encrypt(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let (object, material) = key(batch, payload, Use::Protect, usage::ENCRYPT)?;
    let parameters = Parameters::of(payload, &object)?;
    let mode = parameters.mode()?;
    let aes = aes(&object, &material)?;
    let data = payload.bytes(Tag::DATA)?.required(Tag::DATA)?;
    count_use(batch, &object, data.len())?;
    if stream::asked(payload)? {
        let tag_len = parameters.tag_len()?;
        return match mode {
            BlockCipherMode::Gcm => stream::encrypt(&object, &material, payload, data, tag_len),
            _ => Err(Refused::feature("data are encrypted in parts with GCM alone here")),
        };
    }
    let drawn = match (payload.bytes(Tag::IV_COUNTER_NONCE)?, mode) {
        (None, BlockCipherMode::Cbc | BlockCipherMode::Ctr) if parameters.random_iv()? => Some(draw(BLOCK_LEN)?),
        (None, BlockCipherMode::Gcm) if parameters.random_iv()? => Some(draw(GCM_NONCE_LEN)?),
        _ => None,
    };
    let iv = payload.bytes(Tag::IV_COUNTER_NONCE)?.or(drawn.as_deref()).ok_or_else(missing_iv);
    let padded = match parameters.padding()? {
        PaddingMethod::Pkcs5 if matches!(mode, BlockCipherMode::Ecb | BlockCipherMode::Cbc) => cipher::pad(data),
        _ => Zeroizing::new(data.to_vec()),
    };
    let mut data = padded;
    let mut tag = None;
    match mode {
        BlockCipherMode::Ecb => aes.ecb_encrypt(&mut data)?,
        BlockCipherMode::Cbc => aes.cbc_encrypt(block_iv(iv?)?, &mut data)?,
        BlockCipherMode::Ctr => aes.ctr(block_iv(iv?)?, &mut data)?,
        BlockCipherMode::Gcm => {
            let tag_len = parameters.tag_len()?;
            let mut gcm = gcm(aes, iv?, payload)?;
            gcm.encrypt(&mut data)?;
            tag = Some(gcm.tag()?[..tag_len].to_vec());
        }
        BlockCipherMode::NistKeyWrap | BlockCipherMode::AesKeyWrapPadding => {
            return Err(Refused::feature("data are not encrypted in a mode that wraps keys"));
        }
    }
    let mut response = vec![uid_item(&object.uid), Item::bytes(Tag::DATA, data.as_slice())];
    response.extend(drawn.map(|iv| Item::bytes(Tag::IV_COUNTER_NONCE, iv)));
    response.extend(tag.map(|tag| Item::bytes(Tag::AUTHENTICATED_ENCRYPTION_TAG, tag)));
    Ok(response)
}

fn gcm<'a>(aes: Aes<'a>, nonce: &[u8], payload: &Item) -> Result<Gcm<'a>, Refused> {
    if nonce.is_empty() || nonce.len() > GCM_NONCE_LEN_MAX {
        return Err(Refused::field(format!("GCM has nonces of 1 to {GCM_NONCE_LEN_MAX} bytes here")));
    }
    Gcm::new(aes, nonce, payload.bytes(Tag::AUTHENTICATED_ENCRYPTION_ADDITIONAL_DATA)?.unwrap_or_default())
}

pub(crate) fn decrypt(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let (object, material) = key(batch, payload, Use::Process, usage::DECRYPT)?;
    let parameters = Parameters::of(payload, &object)?;
    let mode = parameters.mode()?;
    let aes = aes(&object, &material)?;
    if stream::asked(payload)? {
        return Err(Refused::feature("data are decrypted in one piece: parts would leave before their tag is seen"));
    }
    let mut data = Zeroizing::new(payload.bytes(Tag::DATA)?.required(Tag::DATA)?.to_vec());
    let iv = payload.bytes(Tag::IV_COUNTER_NONCE)?.ok_or_else(missing_iv);
    match mode {
        BlockCipherMode::Ecb => aes.ecb_decrypt(&mut data)?,
        BlockCipherMode::Cbc => aes.cbc_decrypt(block_iv(iv?)?, &mut data)?,
        BlockCipherMode::Ctr => aes.ctr(block_iv(iv?)?, &mut data)?,
        BlockCipherMode::Gcm => {
            let tag_len = parameters.tag_len()?;
            let tag = payload.bytes(Tag::AUTHENTICATED_ENCRYPTION_TAG)?;
            let tag = tag.required(Tag::AUTHENTICATED_ENCRYPTION_TAG)?;
            if tag.len() != tag_len {
                return Err(Refused::field("the tag has another length than the Tag Length says"));
            }
            gcm(aes, iv?, payload)?.decrypt(&mut data, tag)?;
        }
        BlockCipherMode::NistKeyWrap | BlockCipherMode::AesKeyWrapPadding => {
            return Err(Refused::feature("data are not decrypted in a mode that wraps keys"));
        }
    }
    let data = match parameters.padding()? {
        PaddingMethod::Pkcs5 if matches!(mode, BlockCipherMode::Ecb | BlockCipherMode::Cbc) => cipher::unpad(data)?,
        _ => data,
    };
    Ok(vec![uid_item(&object.uid), Item::bytes(Tag::DATA, data.as_slice())])
}

/// The value of Usage Limits.
pub(crate) fn usage_limits(total: i64, count: i64, unit: u32) -> Value {
    Value::Structure(vec![
        Item::new(Tag::USAGE_LIMITS_TOTAL, Value::LongInteger(total)),
        Item::new(Tag::USAGE_LIMITS_COUNT, Value::LongInteger(count)),
        Item::enumeration(Tag::USAGE_LIMITS_UNIT, unit),
    ])
}

/// Takes a use off the key's limits, if it has some.
fn count_use(batch: &mut Batch<'_>, object: &ManagedObject, len: usize) -> Result<(), Refused> {
    const UNIT_BYTE: u32 = 1;
    let Some(Value::Structure(limits)) = object.first("Usage Limits") else { return Ok(()) };
    let limits = limits.as_slice();
    let total = limits.long(Tag::USAGE_LIMITS_TOTAL)?.unwrap_or(0);
    let count = limits.long(Tag::USAGE_LIMITS_COUNT)?.unwrap_or(0);
    let unit = limits.number(Tag::USAGE_LIMITS_UNIT)?.unwrap_or(UNIT_BYTE);
    let used = if unit == UNIT_BYTE { i64::try_from(len).unwrap_or(i64::MAX) } else { 1 };
    let left = count.checked_sub(used).filter(|left| *left >= 0);
    let left = left.ok_or_else(|| Refused::denied("the key's Usage Limits are used up"))?;
    let mut counted = object.clone();
    counted.set("Usage Limits", usage_limits(total, left, unit));
    batch.view.replace(counted, Weight::Needed);
    Ok(())
}

/// The HMAC that the parameters name, or that the key is for.
fn mac_algorithm(payload: &Item, object: &ManagedObject) -> Result<Algorithm, Refused> {
    let parameters = Parameters::of(payload, object)?;
    let named = parameters.items.computable(Tag::CRYPTOGRAPHIC_ALGORITHM, Algorithm::from_number)?;
    named.or(object.algorithm()).ok_or_else(no_hmac)
}

fn no_hmac() -> Refused {
    Refused::feature("a MAC is an HMAC here: name one as the Cryptographic Algorithm")
}

pub(crate) fn mac(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let (object, material) = key(batch, payload, Use::Protect, usage::MAC_GENERATE)?;
    whole(payload)?;
    let algorithm = mac_algorithm(payload, &object)?;
    let data = payload.bytes(Tag::DATA)?.required(Tag::DATA)?;
    count_use(batch, &object, data.len())?;
    let mac = cipher::mac(algorithm, material.expose(), data).ok_or_else(no_hmac)?;
    Ok(vec![uid_item(&object.uid), Item::bytes(Tag::MAC_DATA, mac)])
}

pub(crate) fn mac_verify(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    const VALID: u32 = 1;
    const INVALID: u32 = 2;
    let (object, material) = key(batch, payload, Use::Process, usage::MAC_VERIFY)?;
    whole(payload)?;
    let algorithm = mac_algorithm(payload, &object)?;
    let data = payload.bytes(Tag::DATA)?.required(Tag::DATA)?;
    let mac = payload.bytes(Tag::MAC_DATA)?.required(Tag::MAC_DATA)?;
    let same = cipher::mac_verify(algorithm, material.expose(), data, mac).ok_or_else(no_hmac)?;
    let verdict = if same { VALID } else { INVALID };
    Ok(vec![uid_item(&object.uid), Item::enumeration(Tag::VALIDITY_INDICATOR, verdict)])
}

pub(crate) fn hash(_: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    whole(payload)?;
    let parameters = payload.structure(Tag::CRYPTOGRAPHIC_PARAMETERS)?.required(Tag::CRYPTOGRAPHIC_PARAMETERS)?;
    let algorithm = parameters.computable(Tag::HASHING_ALGORITHM, HashingAlgorithm::from_number)?;
    let algorithm = algorithm.required(Tag::HASHING_ALGORITHM)?;
    let data = payload.bytes(Tag::DATA)?.required(Tag::DATA)?;
    Ok(vec![Item::bytes(Tag::DATA, cipher::hash(algorithm, data))])
}

fn whole(payload: &Item) -> Result<(), Refused> {
    if stream::asked(payload)? { Err(Refused::feature("this is done in one piece here")) } else { Ok(()) }
}

pub(crate) fn rng_retrieve(_: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let len = payload.integer(Tag::DATA_LENGTH)?.required(Tag::DATA_LENGTH)?;
    if !(1..=RANDOM_LEN_MAX).contains(&len) {
        return Err(Refused::field(format!("1 to {RANDOM_LEN_MAX} random bytes are given at a time")));
    }
    Ok(vec![Item::bytes(Tag::DATA, draw(usize::try_from(len).unwrap_or(0))?)])
}

/// A client's seed is refused politely: the generator seeds itself, and takes nothing from strangers.
pub(crate) fn rng_seed(_: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    payload.bytes(Tag::DATA)?.required(Tag::DATA)?;
    Ok(vec![Item::integer(Tag::DATA_LENGTH, 0)])
}
