//! What the OASIS cases do not ask: batches that fail, other people's objects, wrapped keys, limits, conflicts.

use capstan_kmip::{
    Item, KeyMaterial, ManagedObject, Material, MaterialUnavailable, ObjectChange, ObjectIndex, ObjectStore,
    ObjectType, Operation, Permitted, ResultReason, State, Stored, Tag, Term, Value, answer, decode, encode, refuse,
};

use crate::client::{Client, NOW_S, Options, attribute, custom, name, of, payload, uid};

fn aes(attributes: Vec<Item>) -> Vec<Item> {
    let mut all = vec![
        attribute("Cryptographic Algorithm", Value::Enumeration(3)),
        attribute("Cryptographic Length", Value::Integer(256)),
    ];
    if !attributes.iter().any(|item| format!("{item:?}").contains("Usage Mask")) {
        all.push(attribute("Cryptographic Usage Mask", Value::Integer(0x0c)));
    }
    all.extend(attributes);
    vec![Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey), Item::structure(Tag::TEMPLATE_ATTRIBUTE, all)]
}

fn key_bytes(payload: &Item) -> Vec<u8> {
    let block = of(payload, &[Tag::SYMMETRIC_KEY, Tag::KEY_BLOCK, Tag::KEY_VALUE]);
    match &block.value {
        Value::ByteString(wrapped) => wrapped.expose().to_vec(),
        _ => match &of(block, &[Tag::KEY_MATERIAL]).value {
            Value::ByteString(bytes) => bytes.expose().to_vec(),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn a_library_gets_a_key_that_it_never_activates() {
    let mut client = Client::new();
    let namespace = |data: &str| {
        let items =
            vec![Item::text(Tag::APPLICATION_NAMESPACE, "LIBRARY-LTO"), Item::text(Tag::APPLICATION_DATA, data)];
        attribute("Application Specific Information", Value::Structure(items))
    };
    let mut attributes = vec![namespace("00A1")];
    attributes.extend((0..40).map(|number| custom(&format!("x-Vendor{number}"), "value")));
    let created = client.one(Operation::Create, aes(attributes)).unwrap();
    let first = client.one(Operation::Get, vec![uid(&created)]).unwrap();
    // Years later, by another drive.
    client.now_s += 10 * 365 * 86_400;
    let results = client.batch(
        Options::default(),
        vec![
            (Operation::Locate, vec![namespace("00A1")]),
            (Operation::Get, vec![]),
            (Operation::GetAttributes, vec![]),
        ],
    );
    assert_eq!(key_bytes(results[1].as_ref().unwrap()), key_bytes(&first));
    let shown = format!("{:?}", results[2]);
    assert!(shown.contains("x-Vendor39") && shown.contains("State"));
    assert_eq!(client.state(&created), State::PreActive);
}

#[test]
fn a_batch_that_fails_goes_on_stops_or_is_taken_back() {
    let batch = || {
        vec![
            (Operation::Create, aes(vec![name("one")])),
            (Operation::Get, vec![Item::text(Tag::UNIQUE_IDENTIFIER, "nothing")]),
            (Operation::Create, aes(vec![name("two")])),
        ]
    };
    // Continue, Stop, Undo: how many answers there are, and how many objects are left.
    for (on_error, answers, left) in [(Some(1), 3, 2), (Some(2), 2, 1), (None, 2, 1), (Some(3), 2, 0)] {
        let mut client = Client::new();
        let results = client.batch(Options { on_error, ..Options::default() }, batch());
        assert_eq!((results.len(), client.objects.index().len()), (answers, left), "{on_error:?}");
        assert_eq!(results[1].as_ref().unwrap_err().reason, Some(ResultReason::ItemNotFound.into()));
        let undone = results[0].as_ref().err().map(|error| error.status);
        assert_eq!(undone, (left == 0).then_some(3), "Operation Undone");
    }
}

#[test]
fn an_item_that_fails_leaves_nothing_behind() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![name("one")])).unwrap();
    // Re-key takes the name off the old key before it finds that the attributes are wrong.
    let wrong = Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![attribute("State", Value::Enumeration(2))]);
    let results = client.batch(
        Options { on_error: Some(1), ..Options::default() },
        vec![(Operation::ReKey, vec![uid(&created), wrong]), (Operation::Locate, vec![name("one")])],
    );
    assert_eq!(results[0].as_ref().unwrap_err().reason, Some(ResultReason::InvalidField.into()));
    assert_eq!(uid(results[1].as_ref().unwrap()), uid(&created));
}

#[test]
fn a_response_too_large_does_nothing() {
    let mut client = Client::new();
    let options = Options { response_len_max: Some(150), ..Options::default() };
    let results = client.batch(options, vec![(Operation::Create, aes(vec![]))]);
    assert_eq!(results[0].as_ref().unwrap_err().reason, Some(ResultReason::ResponseTooLarge.into()));
    assert!(client.objects.index().is_empty());
}

/// A batch of 256 that each ask for all attributes of an object with large ones.
#[test]
fn a_response_has_a_limit_whatever_is_asked() {
    let mut client = Client::new();
    let large = (0..30).map(|number| custom(&format!("x-{number}"), &"v".repeat(1000)));
    let created = client.one(Operation::Create, aes(large.collect())).unwrap();
    for on_error in [None, Some(1), Some(3)] {
        let items = vec![(Operation::GetAttributes, vec![uid(&created)]); 256];
        let results = client.batch(Options { on_error, ..Options::default() }, items);
        let last = results.last().unwrap().as_ref().unwrap_err();
        assert_eq!(last.reason, Some(ResultReason::ResponseTooLarge.into()));
    }
}

#[test]
fn asynchronous_requests_are_refused() {
    let mut client = Client::new();
    let results = client
        .batch(Options { asynchronous: Some(true), ..Options::default() }, vec![(Operation::Create, aes(vec![]))]);
    assert_eq!(results[0].as_ref().unwrap_err().reason, Some(ResultReason::OperationNotSupported.into()));
}

#[test]
fn other_domains_objects_are_not_there() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![name("mine")])).unwrap();
    client.requester.domain = "another".to_owned();
    let asked = [Operation::Get, Operation::GetAttributes, Operation::Activate, Operation::Destroy];
    for operation in asked {
        assert_eq!(
            client.one(operation, vec![uid(&created)]).unwrap_err().reason,
            Some(ResultReason::ItemNotFound.into())
        );
    }
    assert!(client.one(Operation::Locate, vec![name("mine")]).unwrap().items().is_empty());
    // The same name in another domain is another name.
    client.one(Operation::Create, aes(vec![name("mine")])).unwrap();
}

#[test]
fn a_role_does_what_it_may() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![])).unwrap();
    client.requester.permitted = Permitted::Only(vec![Operation::Get]);
    client.one(Operation::Get, vec![uid(&created)]).unwrap();
    let refused = client.one(Operation::Destroy, vec![uid(&created)]).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::PermissionDenied.into()));
}

#[test]
fn wrapped_keys_unwrap() {
    use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrap, KeyWrapPadded};
    let mut client = Client::new();
    let active = || attribute("Activation Date", Value::DateTime(NOW_S - 1));
    let wrapping_use = attribute("Cryptographic Usage Mask", Value::Integer(0x10));
    let kek = client.one(Operation::Create, aes(vec![active(), wrapping_use])).unwrap();
    let kek_bytes = key_bytes(&client.one(Operation::Get, vec![uid(&kek)]).unwrap());
    let created = client.one(Operation::Create, aes(vec![custom("x-Barcode", "A00001L9")])).unwrap();
    let clear = key_bytes(&client.one(Operation::Get, vec![uid(&created)]).unwrap());
    let wrapped = |client: &mut Client, mode: u32, encoding: u32, attributes: &[&str]| {
        let parameters =
            Item::structure(Tag::CRYPTOGRAPHIC_PARAMETERS, vec![Item::enumeration(Tag::BLOCK_CIPHER_MODE, mode)]);
        let mut specification = vec![
            Item::enumeration(Tag::WRAPPING_METHOD, 1u32),
            Item::structure(Tag::ENCRYPTION_KEY_INFORMATION, vec![uid(&kek), parameters]),
        ];
        specification.extend(attributes.iter().map(|name| Item::text(Tag::ATTRIBUTE_NAME, *name)));
        specification.push(Item::enumeration(Tag::ENCODING_OPTION, encoding));
        let specification = Item::structure(Tag::KEY_WRAPPING_SPECIFICATION, specification);
        key_bytes(&client.one(Operation::Get, vec![uid(&created), specification]).unwrap())
    };
    let unwrapping = || AesKek::new(&AES_256, &kek_bytes).unwrap();
    let mut room = [0; 512];
    let bytes = wrapped(&mut client, 0x0d, 1, &[]);
    assert_eq!(*unwrapping().unwrap(&bytes, &mut room).unwrap(), clear);
    let bytes = wrapped(&mut client, 0x0c, 1, &[]);
    assert_eq!(*unwrapping().unwrap_with_padding(&bytes, &mut room).unwrap(), clear);
    let bytes = wrapped(&mut client, 0x0d, 2, &["x-Barcode"]);
    let value = decode(unwrapping().unwrap(&bytes, &mut room).unwrap(), &Default::default()).unwrap();
    assert_eq!(of(&value, &[Tag::KEY_MATERIAL]).value, Value::ByteString(clear.into()));
    assert_eq!(value.child(Tag::ATTRIBUTE), Some(&custom("x-Barcode", "A00001L9")));
}

#[test]
fn sensitive_keys_leave_wrapped_alone_and_stay_sensitive() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![attribute("Sensitive", Value::Boolean(true))])).unwrap();
    assert_eq!(
        client.one(Operation::Get, vec![uid(&created)]).unwrap_err().reason,
        Some(ResultReason::Sensitive.into())
    );
    let less = vec![uid(&created), attribute("Sensitive", Value::Boolean(false))];
    let refused = client.one(Operation::ModifyAttribute, less).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::PermissionDenied.into()));
}

#[test]
fn what_is_destroyed_is_gone_and_its_name_is_free() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![name("one")])).unwrap();
    let taken = client.one(Operation::Create, aes(vec![name("one")])).unwrap_err();
    assert_eq!(taken.reason, Some(ResultReason::InvalidField.into()));
    client.one(Operation::Destroy, vec![uid(&created)]).unwrap();
    let Value::TextString(text) = uid(&created).value else { unreachable!() };
    assert!(client.objects.material(&text).unwrap().is_none());
    assert_eq!(
        client.one(Operation::Get, vec![uid(&created)]).unwrap_err().reason,
        Some(ResultReason::ItemNotFound.into())
    );
    assert_eq!(client.state(&created), State::Destroyed);
    client.one(Operation::Create, aes(vec![name("one")])).unwrap();
}

/// A client that made objects of 36 KB of attributes and destroyed them had filled the ledger all the same.
#[test]
fn little_is_left_of_what_is_destroyed() {
    let mut client = Client::new();
    let mut attributes = vec![name("one"), custom("x-Barcode", "A00001L9")];
    attributes.extend((0..30).map(|number| custom(&format!("x-Junk{number}"), &"x".repeat(1000))));
    let created = client.one(Operation::Create, aes(attributes)).unwrap();
    let Value::TextString(text) = uid(&created).value else { unreachable!() };
    let len = |client: &Client| client.objects.index().find(&text).unwrap().object.encode().len();
    assert!(len(&client) > 30_000);
    client.one(Operation::Destroy, vec![uid(&created)]).unwrap();
    assert!(len(&client) <= 2048, "{} bytes are left", len(&client));
    let left = format!("{:?}", client.one(Operation::GetAttributes, vec![uid(&created)]).unwrap());
    for kept in ["Destroy Date", "Digest", "x-Barcode", "Cryptographic Length"] {
        assert!(left.contains(kept), "{kept}: {left}");
    }
}

#[test]
fn rekeying_passes_the_name_on_and_links_both() {
    let mut client = Client::new();
    let old = client.one(Operation::Create, aes(vec![name("backup"), custom("x-Pool", "daily")])).unwrap();
    client.one(Operation::Activate, vec![uid(&old)]).unwrap();
    let offset = Item::new(Tag::OFFSET, Value::Interval(0));
    let new = client.one(Operation::ReKey, vec![uid(&old), offset]).unwrap();
    assert_ne!(uid(&old), uid(&new));
    assert_eq!(uid(&client.one(Operation::Locate, vec![name("backup")]).unwrap()), uid(&new));
    assert_eq!((client.state(&old), client.state(&new)), (State::Active, State::Active));
    let shown = client.one(Operation::GetAttributes, vec![uid(&new)]).unwrap();
    assert!(shown.items().contains(&custom("x-Pool", "daily")));
    let [one, other] = [&old, &new].map(|key| key_bytes(&client.one(Operation::Get, vec![uid(key)]).unwrap()));
    assert_ne!(one, other);
}

/// The old names were lost where a new one was given, and a key without an Offset was Pre-Active whatever its dates.
#[test]
fn rekeying_keeps_the_names_and_copies_the_dates() {
    let mut client = Client::new();
    let old = client.one(Operation::Create, aes(vec![name("one"), name("two")])).unwrap();
    client.one(Operation::Activate, vec![uid(&old)]).unwrap();
    client.now_s += 60;
    let given = Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![name("three")]);
    let new = client.one(Operation::ReKey, vec![uid(&old), given]).unwrap();
    for text in ["one", "two", "three"] {
        assert_eq!(uid(&client.one(Operation::Locate, vec![name(text)]).unwrap()), uid(&new), "{text}");
    }
    assert_eq!(client.state(&new), State::Active);
}

/// It told the mask that the key has and went on, so that nothing of a batch with Undo was taken back.
#[test]
fn a_check_for_a_use_that_is_missing_fails_in_2_1() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![])).unwrap();
    let derive = Item::integer(Tag::CRYPTOGRAPHIC_USAGE_MASK, 0x200);
    let checked = client.one(Operation::Check, vec![uid(&created), derive.clone()]).unwrap();
    assert!(checked.child(Tag::CRYPTOGRAPHIC_USAGE_MASK).is_some(), "1.4 is told what the key may");
    (client.major, client.minor) = (2, 1);
    let refused = client.one(Operation::Check, vec![uid(&created), derive]).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::IncompatibleCryptographicUsageMask.into()));
}

#[test]
fn a_template_that_was_destroyed_is_not_got() {
    let mut client = Client::new();
    let template = vec![
        Item::enumeration(Tag::OBJECT_TYPE, ObjectType::Template),
        Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![name("daily")]),
        Item::structure(Tag::TEMPLATE, vec![custom("x-Pool", "daily")]),
    ];
    let template = client.one(Operation::Register, template).unwrap();
    client.one(Operation::Get, vec![uid(&template)]).unwrap();
    client.one(Operation::Destroy, vec![uid(&template)]).unwrap();
    let refused = client.one(Operation::Get, vec![uid(&template)]).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::ItemNotFound.into()));
}

#[test]
fn one_attribute_name_twice_is_an_invalid_message() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![])).unwrap();
    let twice = vec![uid(&created), Item::text(Tag::ATTRIBUTE_NAME, "State"), Item::text(Tag::ATTRIBUTE_NAME, "State")];
    let refused = client.one(Operation::GetAttributes, twice).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::InvalidMessage.into()));
}

/// A template of 1.0 has its Name within; a request's own `x-` attribute took the place of the template's.
#[test]
fn a_template_is_named_within_it_and_its_own_attributes_are_kept_beside_the_requests() {
    let mut client = Client::new();
    (client.major, client.minor) = (1, 0);
    let template = vec![
        Item::enumeration(Tag::OBJECT_TYPE, ObjectType::Template),
        Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![]),
        Item::structure(Tag::TEMPLATE, vec![name("drives"), custom("x-Pool", "daily")]),
    ];
    client.one(Operation::Register, template).unwrap();
    let [_, Item { tag: _, value: Value::Structure(mut items) }] = <[Item; 2]>::try_from(aes(vec![])).unwrap() else {
        unreachable!()
    };
    let Value::Structure(mut named) = name("drives").value else { unreachable!() };
    let Value::Structure(drives) = named.remove(1).value else { unreachable!() };
    items.insert(0, Item::structure(Tag::NAME, drives));
    items.push(custom("x-Pool", "weekly"));
    for _ in 0..2 {
        let asked = vec![
            Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey),
            Item::structure(Tag::TEMPLATE_ATTRIBUTE, items.clone()),
        ];
        let created = client.one(Operation::Create, asked).unwrap();
        let shown = format!("{:?}", client.one(Operation::GetAttributes, vec![uid(&created)]).unwrap());
        assert!(shown.contains("daily") && shown.contains("weekly") && !shown.contains("drives"), "{shown}");
    }
}

/// Clients of 1.4 that say nothing of Random IV and give none were refused; a mode that there is not was told as a
/// wrong field.
#[test]
fn an_iv_is_drawn_unless_it_is_said_not_to_be_and_what_is_not_computed_is_no_feature() {
    let mut client = Client::new();
    let active = attribute("Activation Date", Value::DateTime(NOW_S - 1));
    let key = client.one(Operation::Create, aes(vec![active])).unwrap();
    let encrypt = |client: &mut Client, parameters: Vec<Item>| {
        let parameters = Item::structure(Tag::CRYPTOGRAPHIC_PARAMETERS, parameters);
        client.one(Operation::Encrypt, vec![uid(&key), parameters, Item::bytes(Tag::DATA, [7; 16].as_slice())])
    };
    for (mode, len) in [(1u32, 16), (6, 16), (9, 12)] {
        let mode = || Item::enumeration(Tag::BLOCK_CIPHER_MODE, mode);
        let sealed = encrypt(&mut client, vec![mode()]).unwrap();
        let Value::ByteString(iv) = &of(&sealed, &[Tag::IV_COUNTER_NONCE]).value else { panic!("{sealed:?}") };
        assert_eq!(iv.expose().len(), len);
        let refused = encrypt(&mut client, vec![mode(), Item::new(Tag::RANDOM_IV, Value::Boolean(false))]).unwrap_err();
        assert_eq!(refused.reason, Some(ResultReason::InvalidMessage.into()));
    }
    let refused = encrypt(&mut client, vec![Item::enumeration(Tag::BLOCK_CIPHER_MODE, 5u32)]).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::FeatureNotSupported.into()));
}

#[test]
fn limits_are_added_and_changed_while_nothing_is_used() {
    let mut client = Client::new();
    let active = attribute("Activation Date", Value::DateTime(NOW_S - 1));
    let key = client.one(Operation::Create, aes(vec![active])).unwrap();
    let limits = |total: i64| {
        let limits = vec![
            Item::new(Tag::USAGE_LIMITS_TOTAL, Value::LongInteger(total)),
            Item::new(Tag::USAGE_LIMITS_COUNT, Value::LongInteger(total * 9)),
            Item::enumeration(Tag::USAGE_LIMITS_UNIT, 1u32),
        ];
        attribute("Usage Limits", Value::Structure(limits))
    };
    client.one(Operation::AddAttribute, vec![uid(&key), limits(10)]).unwrap();
    client.one(Operation::ModifyAttribute, vec![uid(&key), limits(20)]).unwrap();
    let mode = Item::enumeration(Tag::BLOCK_CIPHER_MODE, 2u32);
    let parameters = Item::structure(Tag::CRYPTOGRAPHIC_PARAMETERS, vec![mode]);
    let used = vec![uid(&key), parameters, Item::bytes(Tag::DATA, [7; 16].as_slice())];
    client.one(Operation::Encrypt, used.clone()).unwrap();
    let refused = client.one(Operation::Encrypt, used).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::PermissionDenied.into()), "20 bytes, and not 180, are the limit");
    let refused = client.one(Operation::ModifyAttribute, vec![uid(&key), limits(30)]).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::PermissionDenied.into()));
}

#[test]
fn a_registered_key_keeps_its_generator_and_one_registered_wrapped_is_not_got_unwrapped() {
    let mut client = Client::new();
    let generator =
        || attribute("Random Number Generator", Value::Structure(vec![Item::enumeration(Tag::RNG_ALGORITHM, 1u32)]));
    let refused = client.one(Operation::Create, aes(vec![generator()])).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::InvalidField.into()), "that of a key that is drawn here is known");
    let information = Item::structure(
        Tag::ENCRYPTION_KEY_INFORMATION,
        vec![Item::text(Tag::UNIQUE_IDENTIFIER, "of the client's own")],
    );
    let wrapping =
        Item::structure(Tag::KEY_WRAPPING_DATA, vec![Item::enumeration(Tag::WRAPPING_METHOD, 1u32), information]);
    let block = vec![
        Item::enumeration(Tag::KEY_FORMAT_TYPE, 1u32),
        Item::bytes(Tag::KEY_VALUE, [9; 40].as_slice()),
        Item::enumeration(Tag::CRYPTOGRAPHIC_ALGORITHM, 3u32),
        Item::integer(Tag::CRYPTOGRAPHIC_LENGTH, 256),
        wrapping,
    ];
    let registered = vec![
        Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey),
        Item::structure(
            Tag::TEMPLATE_ATTRIBUTE,
            vec![generator(), attribute("Cryptographic Usage Mask", Value::Integer(0x0c))],
        ),
        Item::structure(Tag::SYMMETRIC_KEY, vec![Item::structure(Tag::KEY_BLOCK, block)]),
    ];
    let registered = client.one(Operation::Register, registered).unwrap();
    let shown = client.one(Operation::GetAttributes, vec![uid(&registered)]).unwrap();
    assert!(shown.items().contains(&generator()), "{shown:?}");
    client.one(Operation::Get, vec![uid(&registered), Item::enumeration(Tag::KEY_WRAP_TYPE, 2u32)]).unwrap();
    let unwrapped = vec![uid(&registered), Item::enumeration(Tag::KEY_WRAP_TYPE, 1u32)];
    let refused = client.one(Operation::Get, unwrapped).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::IllegalOperation.into()));
}

#[test]
fn a_conflict_is_noticed_and_decided_again() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![])).unwrap();
    let request = client.request(Options::default(), vec![(Operation::Activate, vec![uid(&created)])]);
    let [first, second] = [(); 2].map(|()| answer(&request, &client.requester, &client.objects, NOW_S));
    client.objects.apply(&first.changes).unwrap();
    client.objects.apply(&second.changes).unwrap_err();
    let again = answer(&request, &client.requester, &client.objects, NOW_S);
    assert_eq!(again.acts[0].outcome, Err(ResultReason::PermissionDenied));
    assert!(again.changes.is_empty());
}

#[test]
fn reading_changes_nothing_that_must_be_committed() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![])).unwrap();
    let request = client.request(Options::default(), vec![(Operation::Get, vec![uid(&created)])]);
    let decided = answer(&request, &client.requester, &client.objects, NOW_S);
    assert!(decided.changes.is_empty(), "a node that is cut off gives keys");
    assert!(matches!(decided.notes.as_slice(), [ObjectChange::Replace { .. }]), "that it is no longer fresh");
}

#[test]
fn older_clients_are_told_of_what_their_version_has() {
    let mut client = Client::new();
    client.minor = 0;
    let created = client.one(Operation::Create, aes(vec![])).unwrap();
    let shown = format!("{:?}", client.one(Operation::GetAttributes, vec![uid(&created)]).unwrap());
    assert!(shown.contains("Initial Date") && !shown.contains("Fresh") && !shown.contains("Sensitive"));
    let query = vec![Item::enumeration(Tag::QUERY_FUNCTION, 1u32)];
    let told = client.one(Operation::Query, query).unwrap();
    assert!(!told.items().contains(&Item::enumeration(Tag::OPERATION, Operation::Encrypt)));
    let refused = client.one(Operation::DiscoverVersions, vec![]).unwrap_err();
    assert_eq!(refused.reason, Some(ResultReason::OperationNotSupported.into()));
    client.minor = 9;
    assert_eq!(client.one(Operation::Query, vec![]).unwrap_err().reason, Some(ResultReason::InvalidMessage.into()));
}

#[test]
fn located_by_any_attribute_and_page_by_page() {
    let mut client = Client::new();
    for number in 0..10 {
        client.now_s = NOW_S + number;
        client.one(Operation::Create, aes(vec![custom("x-Pool", ["even", "odd"][number as usize % 2])])).unwrap();
    }
    let mut count = |criteria: Vec<Item>| {
        let found = client.one(Operation::Locate, criteria).unwrap();
        found.items().iter().filter(|item| item.tag == Tag::UNIQUE_IDENTIFIER).count()
    };
    let initial = |offset| attribute("Initial Date", Value::DateTime(NOW_S + offset));
    let kind = |kind: ObjectType| attribute("Object Type", Value::Enumeration(kind.into()));
    assert_eq!(count(vec![]), 10);
    assert_eq!(count(vec![custom("x-Pool", "odd")]), 5);
    assert_eq!(count(vec![custom("x-Pool", "none")]), 0);
    assert_eq!(count(vec![custom("x-Pool", "odd"), initial(2), initial(7)]), 3);
    assert_eq!(count(vec![initial(3)]), 1);
    assert_eq!(count(vec![kind(ObjectType::SecretData)]), 0);
    assert_eq!(count(vec![kind(ObjectType::SymmetricKey), attribute("State", Value::Enumeration(1))]), 10);
    assert_eq!(count(vec![attribute("State", Value::Enumeration(2))]), 0);
    assert_eq!(count(vec![attribute("Cryptographic Usage Mask", Value::Integer(4))]), 10);
    assert_eq!(count(vec![attribute("Cryptographic Usage Mask", Value::Integer(6))]), 0);
    assert_eq!(count(vec![Item::integer(Tag::STORAGE_STATUS_MASK, 2)]), 0);
    assert_eq!(count(vec![Item::integer(Tag::MAXIMUM_ITEMS, 4), Item::integer(Tag::OFFSET_ITEMS, 8)]), 2);
    assert_eq!(count(vec![Item::integer(Tag::OFFSET_ITEMS, 10)]), 0);
}

#[test]
fn templates_give_what_a_request_does_not() {
    let mut client = Client::new();
    let template = Item::structure(
        Tag::TEMPLATE,
        vec![
            attribute("Cryptographic Algorithm", Value::Enumeration(3)),
            attribute("Cryptographic Length", Value::Integer(128)),
            attribute("Cryptographic Usage Mask", Value::Integer(4)),
        ],
    );
    let named = Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![name("short keys")]);
    let kind = Item::enumeration(Tag::OBJECT_TYPE, ObjectType::Template);
    client.one(Operation::Register, vec![kind, named, template]).unwrap();
    let reference = Item::structure(
        Tag::NAME,
        vec![Item::text(Tag::NAME_VALUE, "short keys"), Item::enumeration(Tag::NAME_TYPE, 1u32)],
    );
    let mask = attribute("Cryptographic Usage Mask", Value::Integer(0x0c));
    let attributes = Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![reference, mask.clone()]);
    let kind = Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey);
    let created = client.one(Operation::Create, vec![kind, attributes]).unwrap();
    assert_eq!(key_bytes(&client.one(Operation::Get, vec![uid(&created)]).unwrap()).len(), 16);
    let shown = client.one(Operation::GetAttributes, vec![uid(&created)]).unwrap();
    assert!(shown.items().contains(&mask), "the request's own goes before the template's");
}

/// Counts what a search looks at.
struct Counted<'a>(&'a ObjectIndex, std::cell::Cell<usize>);

impl ObjectStore for Counted<'_> {
    fn find(&self, uid: &str) -> Option<Stored> {
        self.0.find(uid).cloned()
    }

    fn material(&self, _: &str) -> Result<Option<std::sync::Arc<KeyMaterial>>, MaterialUnavailable> {
        Ok(None)
    }

    fn visit(&self, domain: &str, terms: &[Term], visitor: &mut dyn FnMut(&Stored)) {
        self.0.visit(domain, terms, &mut |stored| {
            self.1.set(self.1.get() + 1);
            visitor(stored);
        });
    }
}

#[test]
fn a_search_by_name_or_namespace_looks_at_what_it_finds_alone() {
    let mut client = Client::new();
    let information = |number: u32| {
        let items = vec![
            Item::text(Tag::APPLICATION_NAMESPACE, "LIBRARY-LTO"),
            Item::text(Tag::APPLICATION_DATA, format!("{number:08X}")),
        ];
        attribute("Application Specific Information", Value::Structure(items))
    };
    for number in 0..1000 {
        client.one(Operation::Create, aes(vec![name(&format!("key {number}")), information(number)])).unwrap();
    }
    for criterion in [name("key 700"), information(700)] {
        let criteria = vec![attribute("Object Type", Value::Enumeration(2)), criterion];
        let request = client.request(Options::default(), vec![(Operation::Locate, criteria)]);
        let counted = Counted(client.objects.index(), std::cell::Cell::new(0));
        let decided = answer(&request, &client.requester, &counted, NOW_S);
        let response = format!("{:?}", decode(&decided.response, &Default::default()).unwrap());
        assert!(response.contains("UniqueIdentifier"));
        assert_eq!(counted.1.get(), 1);
    }
}

#[test]
fn records_keep_everything() {
    let mut client = Client::new();
    let created = client.one(Operation::Create, aes(vec![name("one"), custom("x-a", "b")])).unwrap();
    client.one(Operation::Activate, vec![uid(&created)]).unwrap();
    let Value::TextString(text) = uid(&created).value else { unreachable!() };
    let stored = client.objects.find(&text).unwrap().object;
    assert_eq!(ManagedObject::decode(&stored.encode()).unwrap(), *stored);
    assert_eq!((stored.state(NOW_S), stored.material()), (State::Active, Material::Kept));
}

#[test]
fn bytes_that_are_no_request_are_answered() {
    let client = Client::new();
    let response = |bytes: &[u8]| {
        let decided = answer(bytes, &client.requester, &client.objects, NOW_S);
        assert!(decided.changes.is_empty());
        assert_eq!(decided.acts[0].outcome, Err(ResultReason::InvalidMessage));
        decode(&decided.response, &Default::default()).unwrap()
    };
    response(b"");
    response(b"GET / HTTP/1.1\r\n\r\n");
    response(&encode(&Item::structure(Tag::REQUEST_MESSAGE, vec![])));
    response(&encode(&payload(vec![])));
}

/// A server that is locked, cut off, or does not know the certificate says so to each item, in the version that it was
/// asked in.
#[test]
fn a_server_that_cannot_refuses_every_item() {
    let item = |id: u8| {
        let id = Item::new(Tag::UNIQUE_BATCH_ITEM_ID, Value::ByteString(vec![id].into()));
        let operation = Item::enumeration(Tag::OPERATION, Operation::Create);
        Item::structure(Tag::BATCH_ITEM, vec![operation, id, Item::structure(Tag::REQUEST_PAYLOAD, vec![])])
    };
    let number = Item::integer;
    let version = vec![number(Tag::PROTOCOL_VERSION_MAJOR, 1), number(Tag::PROTOCOL_VERSION_MINOR, 2)];
    let version = Item::structure(Tag::PROTOCOL_VERSION, version);
    let header = Item::structure(Tag::REQUEST_HEADER, vec![version.clone(), number(Tag::BATCH_COUNT, 2)]);
    let request = encode(&Item::structure(Tag::REQUEST_MESSAGE, vec![header, item(1), item(2)]));
    let decided = refuse(&request, ResultReason::GeneralFailure, "unlock the node", NOW_S);
    assert_eq!((decided.acts.len(), decided.changes.len()), (2, 0));
    assert!(decided.acts.iter().all(|act| act.outcome == Err(ResultReason::GeneralFailure)));
    let response = decode(&decided.response, &capstan_kmip::Limits::default()).unwrap();
    assert_eq!(of(&response, &[Tag::RESPONSE_HEADER, Tag::PROTOCOL_VERSION]), &version);
    let text = format!("{response:?}");
    assert_eq!(text.matches("unlock the node").count(), 2, "{text}");

    let noise = refuse(b"GET / HTTP/1.1", ResultReason::GeneralFailure, "unlock the node", NOW_S);
    assert_eq!(noise.acts.len(), 1);
}
