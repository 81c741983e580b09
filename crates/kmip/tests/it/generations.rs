//! One object, seen by clients of KMIP 1.x and 2.x: it is the same, each in the words of its version.

use capstan_kmip::{Item, ObjectType, Operation, ResultReason, Tag, Value};

use crate::client::{Client, Failure, attribute, custom, name, of, uid};

fn speak(client: &mut Client, major: i32, minor: i32) {
    (client.major, client.minor) = (major, minor);
}

fn attributes(more: Vec<Item>) -> Vec<Item> {
    let mut items = vec![
        Item::enumeration(Tag::CRYPTOGRAPHIC_ALGORITHM, 3u32),
        Item::integer(Tag::CRYPTOGRAPHIC_LENGTH, 256),
        Item::integer(Tag::CRYPTOGRAPHIC_USAGE_MASK, 0x0c),
    ];
    items.extend(more);
    vec![Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey), Item::structure(Tag::ATTRIBUTES, items)]
}

fn of_vendor(vendor: &str, name: &str, value: &str) -> Item {
    let items = vec![
        Item::text(Tag::VENDOR_IDENTIFICATION, vendor),
        Item::text(Tag::ATTRIBUTE_NAME, name),
        Item::text(Tag::ATTRIBUTE_VALUE, value),
    ];
    Item::structure(Tag::ATTRIBUTE, items)
}

fn all(client: &mut Client, object: &Item) -> Vec<Item> {
    client.one(Operation::GetAttributes, vec![uid(object)]).unwrap().items().to_vec()
}

fn reason(result: Result<Item, Failure>) -> Option<ResultReason> {
    result.unwrap_err().reason.and_then(ResultReason::from_number)
}

#[test]
fn what_1_x_made_2_x_finds_and_the_other_way_round() {
    let mut client = Client::new();
    let template = Item::structure(
        Tag::TEMPLATE_ATTRIBUTE,
        vec![
            attribute("Cryptographic Algorithm", Value::Enumeration(3)),
            attribute("Cryptographic Length", Value::Integer(256)),
            attribute("Cryptographic Usage Mask", Value::Integer(0x0c)),
            custom("x-Barcode", "A00001L9"),
        ],
    );
    let kind = Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey);
    let older = client.one(Operation::Create, vec![kind, template]).unwrap();
    speak(&mut client, 2, 1);
    let wanted = vec![of_vendor("x", "Barcode", "A00002L9"), of_vendor("tape.example", "Pool", "daily")];
    let newer = client.one(Operation::Create, attributes(wanted)).unwrap();

    // 2.1 knows the one of 1.4 by its vendor's attribute.
    let barcode = Item::structure(Tag::ATTRIBUTES, vec![of_vendor("x", "Barcode", "A00001L9")]);
    assert_eq!(uid(&client.one(Operation::Locate, vec![barcode]).unwrap()), uid(&older));
    let pool = Item::structure(Tag::ATTRIBUTES, vec![of_vendor("tape.example", "Pool", "daily")]);
    assert_eq!(uid(&client.one(Operation::Locate, vec![pool]).unwrap()), uid(&newer));
    let shown = all(&mut client, &newer);
    let shown = of(&Item::structure(Tag::RESPONSE_PAYLOAD, shown), &[Tag::ATTRIBUTES]).clone();
    assert!(shown.items().contains(&of_vendor("tape.example", "Pool", "daily")));
    assert!(shown.child(Tag::SHORT_UNIQUE_IDENTIFIER).is_some() && shown.child(Tag::KEY_FORMAT_TYPE).is_some());

    // 1.4 knows the one of 2.1 by its x- attribute, and nothing of what only 2.x has.
    speak(&mut client, 1, 4);
    assert_eq!(uid(&client.one(Operation::Locate, vec![custom("x-Barcode", "A00002L9")]).unwrap()), uid(&newer));
    let shown = format!("{:?}", all(&mut client, &newer));
    assert!(shown.contains("x-Barcode") && !shown.contains("Pool") && !shown.contains("Key Format Type"), "{shown}");
}

#[test]
fn a_refusal_is_told_in_the_words_of_the_version() {
    let mut client = Client::new();
    speak(&mut client, 2, 1);
    let sensitive = Item::new(Tag::SENSITIVE, Value::Boolean(true));
    let created = client.one(Operation::Create, attributes(vec![sensitive])).unwrap();
    client.one(Operation::Activate, vec![uid(&created)]).unwrap();
    let told = |client: &mut Client, operation| reason(client.one(operation, vec![uid(&created)]));
    assert_eq!(told(&mut client, Operation::Destroy), Some(ResultReason::WrongKeyLifecycleState));
    assert_eq!(told(&mut client, Operation::Get), Some(ResultReason::Sensitive));
    speak(&mut client, 1, 4);
    assert_eq!(told(&mut client, Operation::Destroy), Some(ResultReason::PermissionDenied));
    assert_eq!(told(&mut client, Operation::Get), Some(ResultReason::Sensitive));
    assert_eq!(told(&mut client, Operation::Ping), Some(ResultReason::OperationNotSupported));
    speak(&mut client, 1, 0);
    assert_eq!(told(&mut client, Operation::Get), Some(ResultReason::PermissionDenied), "1.0 has no Sensitive");
    // What each generation has alone, the other does not take for its own.
    let rename = vec![uid(&created), attribute("Quantum Safe", Value::Boolean(true))];
    assert_eq!(reason(client.one(Operation::AddAttribute, rename)), Some(ResultReason::InvalidField));
    speak(&mut client, 2, 0);
    assert_eq!(told(&mut client, Operation::Ping), Some(ResultReason::OperationNotSupported), "2.1 has it");
    let old = Item::structure(Tag::NEW_ATTRIBUTE, vec![Item::text(Tag::OPERATION_POLICY_NAME, "default")]);
    let old = client.one(Operation::AddAttribute, vec![uid(&created), old]);
    assert_eq!(reason(old), Some(ResultReason::UnsupportedAttribute));
    speak(&mut client, 3, 0);
    assert_eq!(told(&mut client, Operation::Get), Some(ResultReason::UnsupportedProtocolVersion));
    speak(&mut client, 1, 9);
    assert_eq!(told(&mut client, Operation::Get), Some(ResultReason::InvalidMessage));
}

/// Quantum Safe was kept like a comment, also with keys that are not.
#[test]
fn what_must_be_quantum_safe_is_or_is_refused() {
    let mut client = Client::new();
    speak(&mut client, 2, 1);
    let required = || Item::new(Tag::QUANTUM_SAFE, Value::Boolean(true));
    let of = |algorithm: u32, bits: i32, more: Vec<Item>| {
        let mut wanted = attributes(more);
        let Value::Structure(items) = &mut wanted[1].value else { panic!("attributes are a structure") };
        items[0] = Item::enumeration(Tag::CRYPTOGRAPHIC_ALGORITHM, algorithm);
        items[1] = Item::integer(Tag::CRYPTOGRAPHIC_LENGTH, bits);
        wanted
    };
    let (aes, triple_des, hmac_sha1, hmac_sha256) = (3, 2, 7, 9);
    for (algorithm, bits) in [(aes, 128), (triple_des, 168), (hmac_sha1, 512), (hmac_sha256, 128)] {
        let made = client.one(Operation::Create, of(algorithm, bits, vec![required()]));
        assert_eq!(reason(made), Some(ResultReason::InvalidAttributeValue), "{algorithm} of {bits}");
    }
    for algorithm in [aes, hmac_sha256] {
        client.one(Operation::Create, of(algorithm, 256, vec![required()])).unwrap();
    }
    let found = Item::structure(Tag::ATTRIBUTES, vec![required()]);
    let found = client.one(Operation::Locate, vec![found]).unwrap();
    assert_eq!(found.items().iter().filter(|item| item.tag == Tag::UNIQUE_IDENTIFIER).count(), 2);

    // Nothing is known of secret data, whatever its attributes say.
    let block = vec![
        Item::enumeration(Tag::KEY_FORMAT_TYPE, 1u32),
        Item::structure(Tag::KEY_VALUE, vec![Item::bytes(Tag::KEY_MATERIAL, [7; 32].as_slice())]),
    ];
    let secret = vec![Item::enumeration(Tag::SECRET_DATA_TYPE, 1u32), Item::structure(Tag::KEY_BLOCK, block)];
    let mut wanted = of(aes, 256, vec![required()]);
    wanted[0] = Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SecretData);
    wanted.push(Item::structure(Tag::SECRET_DATA, secret));
    assert_eq!(reason(client.one(Operation::Register, wanted)), Some(ResultReason::InvalidAttributeValue));

    // A key of 128 bits does not become one that is, whatever a client says of it.
    let not_required = Item::new(Tag::QUANTUM_SAFE, Value::Boolean(false));
    let short = client.one(Operation::Create, of(aes, 128, vec![not_required])).unwrap();
    let set = Item::structure(Tag::NEW_ATTRIBUTE, vec![required()]);
    for operation in [Operation::ModifyAttribute, Operation::SetAttribute] {
        let changed = client.one(operation, vec![uid(&short), set.clone()]);
        assert_eq!(reason(changed), Some(ResultReason::InvalidAttributeValue), "{operation:?}");
    }
}

/// 2.x has no templates: one that is there says so, and none is made.
#[test]
fn templates_are_for_1_x_alone() {
    let mut client = Client::new();
    speak(&mut client, 2, 1);
    let kind = Item::enumeration(Tag::OBJECT_TYPE, ObjectType::Template);
    let template = Item::structure(Tag::TEMPLATE, vec![name("short keys")]);
    let registered = client.one(Operation::Register, vec![kind, template]);
    assert_eq!(reason(registered), Some(ResultReason::InvalidField));
    let told = client.one(Operation::Query, vec![Item::enumeration(Tag::QUERY_FUNCTION, 2u32)]).unwrap();
    assert!(!told.items().contains(&Item::enumeration(Tag::OBJECT_TYPE, ObjectType::Template)));
}
