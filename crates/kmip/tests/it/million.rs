//! A million objects in memory: how long it takes to put them there and to find one. Run it to measure:
//! `cargo test --release -p capstan-kmip --test it -- --ignored --nocapture million`.

use std::time::Instant;

use capstan_kmip::{Item, ObjectType, Operation, Tag, Value};

use crate::client::{Client, Options, attribute, custom, name};

fn information(number: u32) -> Item {
    let items = vec![
        Item::text(Tag::APPLICATION_NAMESPACE, "LIBRARY-LTO"),
        Item::text(Tag::APPLICATION_DATA, format!("{number:064X}")),
    ];
    attribute("Application Specific Information", Value::Structure(items))
}

fn key(number: u32) -> Vec<Item> {
    let attributes = vec![
        attribute("Cryptographic Algorithm", Value::Enumeration(3)),
        attribute("Cryptographic Length", Value::Integer(256)),
        attribute("Cryptographic Usage Mask", Value::Integer(0x0c)),
        name(&format!("key {number}")),
        information(number),
        custom("x-Barcode", &format!("{number:06}L9")),
    ];
    let kind = Item::enumeration(Tag::OBJECT_TYPE, ObjectType::SymmetricKey);
    vec![kind, Item::structure(Tag::TEMPLATE_ATTRIBUTE, attributes)]
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
#[ignore = "takes a minute and a gigabyte or two; a measurement"]
fn a_million_keys() {
    const COUNT: u32 = 1_000_000;
    let mut client = Client::new();
    let begun = Instant::now();
    for number in (0..COUNT).step_by(100) {
        let batch = (number..number + 100).map(|number| (Operation::Create, key(number))).collect();
        assert!(client.batch(Options::default(), batch).iter().all(Result::is_ok));
    }
    println!("{COUNT} keys created in {:?}, {} MiB resident", begun.elapsed(), resident_mib());
    for (what, criterion) in [
        ("name", (|number| name(&format!("key {number}"))) as fn(u32) -> Item),
        ("application specific information", information),
        ("x-Barcode", |number| custom("x-Barcode", &format!("{number:06}L9"))),
    ] {
        let begun = Instant::now();
        for number in (0..COUNT).step_by(1000) {
            let kind = attribute("Object Type", Value::Enumeration(2));
            let found = client.one(Operation::Locate, vec![kind, criterion(number)]).unwrap();
            assert_eq!(found.items().len(), 1);
        }
        println!("located by {what}: {:?} each", begun.elapsed() / (COUNT / 1000));
    }
    let begun = Instant::now();
    client.one(Operation::Locate, vec![attribute("State", Value::Enumeration(2))]).unwrap();
    println!("located by state alone, which looks at all: {:?}", begun.elapsed());
}
