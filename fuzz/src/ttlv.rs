//! What comes over the wire to the KMIP server, and the records that it keeps.

use capstan_kmip::{
    HEADER_LEN, Limits, ManagedObject, Material, MemoryStore, ObjectStore, Permitted, Requester, Tag, Value, answer,
    decode, encode, message_len,
};

const NOW_S: i64 = 1_790_000_000;

/// Any number of messages, one behind the other, as they come over one connection to a server with objects of its own.
/// What decodes must encode to the same bytes, every message must have a
/// response that decodes, and what is decided must fit what is there.
pub fn ttlv(data: &[u8]) {
    connection(data);
    if let Ok(object) = ManagedObject::decode(data) {
        assert_eq!(ManagedObject::decode(&object.encode()).ok(), Some(object));
    }
}

fn connection(mut data: &[u8]) {
    let mut objects = MemoryStore::new();
    let requester = Requester { domain: "fuzz".to_owned(), permitted: Permitted::All };
    while let Some(header) = data.first_chunk::<HEADER_LEN>() {
        // A server reads on by what the header says, and closes where it says nonsense: the rest is then one message.
        let len = message_len(header, &Limits::default()).unwrap_or(data.len()).min(data.len());
        let (message, rest) = data.split_at(len);
        data = rest;
        if let Ok(item) = decode(message, &Limits::default()) {
            assert_eq!(&*encode(&item), message, "decoded to something else");
        }
        let decided = answer(message, &requester, &objects, NOW_S);
        let response = decode(&decided.response, &Limits { len_max: usize::MAX, items_max: usize::MAX, depth_max: 99 })
            .expect("a response is valid");
        assert_eq!(response.tag, Tag::RESPONSE_MESSAGE);
        let header = response.child(Tag::RESPONSE_HEADER).expect("a response has a header");
        let count = response.items().iter().filter(|item| item.tag == Tag::BATCH_ITEM).count();
        let said = header.child(Tag::BATCH_COUNT).map(|count| &count.value);
        assert_eq!(said, Some(&Value::Integer(i32::try_from(count).expect("a batch is small"))));
        for changes in [&decided.changes, &decided.notes] {
            objects.apply(changes).expect("nothing else changes the objects");
            for change in changes {
                let object = change.object();
                assert_eq!(ManagedObject::decode(&object.encode()).ok().as_ref(), Some(&**object));
                if object.material() == Material::Gone {
                    let material = objects.material(&object.uid).expect("a store in memory always answers");
                    assert!(material.is_none(), "what is destroyed is gone");
                }
            }
        }
    }
}
