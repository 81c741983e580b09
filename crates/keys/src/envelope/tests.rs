//! Wrapping, unwrapping, and what must not unwrap.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn secret(bytes: [u8; 32]) -> Secret {
    Secret::filled(|secret| {
        *secret = bytes;
        Ok::<(), ()>(())
    })
    .ok()
    .unwrap()
}

/// RFC 5649 section 4.1, written from the RFC for this test alone.
fn wrap_by_the_book<C: BlockCipherEncrypt + KeyInit>(kek: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let cipher = C::new_from_slice(kek).unwrap();
    let mut initial = hex("A65959A6");
    initial.extend_from_slice(&u32::try_from(plaintext.len()).unwrap().to_be_bytes());
    let mut padded = plaintext.to_vec();
    padded.resize(plaintext.len().next_multiple_of(8), 0);
    let encrypt = |left: &[u8], right: &[u8]| {
        let mut block = Array::<u8, C::BlockSize>::try_from(&[left, right].concat()[..]).unwrap();
        cipher.encrypt_block(&mut block);
        block.to_vec()
    };
    if padded.len() == 8 {
        return encrypt(&initial, &padded);
    }
    let mut registers: Vec<Vec<u8>> = padded.chunks(8).map(<[u8]>::to_vec).collect();
    let count = registers.len();
    let mut integrity = initial;
    for round in 0..6 {
        for (index, register) in registers.iter_mut().enumerate() {
            let block = encrypt(&integrity, register);
            let step = (count * round + index + 1) as u64;
            integrity = (u64::from_be_bytes(block[..8].try_into().unwrap()) ^ step).to_be_bytes().to_vec();
            *register = block[8..].to_vec();
        }
    }
    [integrity, registers.concat()].concat()
}

/// The vectors of RFC 5649 section 6 are for AES-192, which the library in use does not offer for key wrap: they prove
/// the implementation by the book, and that proves the library for AES-256.
#[test]
fn rfc_5649_vectors() {
    let kek = hex("5840df6e29b02af1 ab493b705bf16ea1 ae8338f4dcc176a8");
    let key = hex("c37b7e6492584340 bed1220780894115 5068f738");
    let wrapped = hex("138bdeaa9b8fa7fc 61f97742e72248ee 5ae6ae5360d1ae6a 5f54f373fa543b6a");
    assert_eq!(wrap_by_the_book::<aes::Aes192>(&kek, &key), wrapped);
    let (key, wrapped) = (hex("466f7250617369"), hex("afbeb0f07dfbf541 9200f2ccb50bb24f"));
    assert_eq!(wrap_by_the_book::<aes::Aes192>(&kek, &key), wrapped);
}

proptest! {
    #[test]
    fn the_library_wraps_by_the_book(kek: [u8; 32], key: [u8; 32]) {
        let kek = secret(kek);
        let wrapped = wrap(&kek, &key).unwrap();
        prop_assert_eq!(wrap_by_the_book::<aes::Aes256>(kek.expose(), &key), wrapped.to_vec());
        let again = unwrap(&kek, &wrapped).unwrap();
        prop_assert_eq!(again.expose(), &key);
    }

    #[test]
    fn an_altered_byte_or_another_wrapping_key_is_seen(
        kek: [u8; 32], key: [u8; 32], at in 0..WRAPPED_LEN, flip in 1..=255u8, kek_at in 0..32usize,
    ) {
        let wrapped = wrap(&secret(kek), &key).unwrap();
        let mut altered = wrapped;
        altered[at] ^= flip;
        prop_assert!(unwrap(&secret(kek), &altered).is_none());
        let mut other = kek;
        other[kek_at] ^= flip;
        prop_assert!(unwrap(&secret(other), &wrapped).is_none());
    }
}

/// A key of another length, wrapped correctly, is not taken for one of ours.
#[test]
fn a_wrapped_key_of_another_length_is_refused() {
    let kek = [7; 32];
    let wrapped: WrappedKey = wrap_by_the_book::<aes::Aes256>(&kek, &[1; 31]).try_into().unwrap();
    assert!(unwrap(&secret(kek), &wrapped).is_none());
}

/// HMAC-SHA-256 and HKDF-SHA-256 as other programs compute them (values from Python's `hmac` and `hashlib`).
#[test]
fn tag_and_derivation_are_the_documented_ones() {
    let key: [u8; 32] = std::array::from_fn(|index| index as u8);
    assert_eq!(tag_of(&key).to_string(), "7ef4145e4e5acad65f5d05e5aa285379");
    let derived = derive(&key, b"salt", "capstan test").unwrap();
    assert_eq!(derived.expose()[..], hex("b832003a9c34628d705358c996f47599c7b20f5cff022bd601486c7507505cd3")[..]);
}

/// The cipher used above decrypts what it encrypts; else the comparison would compare two unknowns.
#[test]
fn aes_is_aes() {
    let key = hex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    let cipher = aes::Aes256::new_from_slice(&key).unwrap();
    let mut block = Array::try_from(&hex("00112233445566778899aabbccddeeff")[..]).unwrap();
    cipher.encrypt_block(&mut block);
    assert_eq!(block.to_vec(), hex("8ea2b7ca516745bfeafc49904b496089"), "FIPS 197 appendix C.3");
    cipher.decrypt_block(&mut block);
    assert_eq!(block.to_vec(), hex("00112233445566778899aabbccddeeff"));
}
