//! A client that wants all of the ledger: etcd takes so much and no more, and then nobody could be revoked.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use capstan_kmip::{Item, Operation, Tag, Value, decode, encode};
use etcd_client::{AlarmAction, AlarmOptions, AlarmType};

use super::node::Node;
use super::rough::{Tls, config, connect};
use super::said;
use crate::etcd::Etcd;

/// What etcd takes in this test.
const QUOTA: u64 = 16 << 20;
/// Objects of one request: as many as one takes.
const AT_ONCE: usize = 15;

/// What a request came to: of each item its Result Message, or nothing where it was done.
fn asked(stream: &mut Tls, items: Vec<(Operation, Vec<Item>)>) -> Vec<(Option<String>, Option<String>)> {
    let version = vec![Item::integer(Tag::PROTOCOL_VERSION_MAJOR, 1), Item::integer(Tag::PROTOCOL_VERSION_MINOR, 4)];
    let count = i32::try_from(items.len()).unwrap();
    let header = vec![Item::structure(Tag::PROTOCOL_VERSION, version), Item::integer(Tag::BATCH_COUNT, count)];
    let mut message = vec![Item::structure(Tag::REQUEST_HEADER, header)];
    message.extend(items.into_iter().enumerate().map(|(number, (operation, payload))| {
        let mut fields = vec![Item::enumeration(Tag::OPERATION, operation)];
        let id = Value::ByteString(vec![u8::try_from(number).unwrap()].into());
        fields.extend((count > 1).then(|| Item::new(Tag::UNIQUE_BATCH_ITEM_ID, id)));
        fields.push(Item::structure(Tag::REQUEST_PAYLOAD, payload));
        Item::structure(Tag::BATCH_ITEM, fields)
    }));
    stream.write_all(&encode(&Item::structure(Tag::REQUEST_MESSAGE, message))).unwrap();
    let mut response = vec![0; 8];
    stream.read_exact(&mut response).unwrap();
    let len = u32::from_be_bytes(response[4..].try_into().unwrap()) as usize;
    response.resize(8 + len, 0);
    stream.read_exact(&mut response[8..]).unwrap();
    let response = decode(&response, &Default::default()).unwrap();
    let text = |item: &Item| match &item.value {
        Value::TextString(text) => Some(text.clone()),
        _ => None,
    };
    let items = response.items().iter().filter(|item| item.tag == Tag::BATCH_ITEM);
    let told = items.map(|item| {
        let uid = item.child(Tag::RESPONSE_PAYLOAD).and_then(|payload| payload.child(Tag::UNIQUE_IDENTIFIER));
        (item.child(Tag::RESULT_MESSAGE).and_then(text), uid.and_then(text))
    });
    told.collect()
}

/// Registers an opaque object with much in its attributes, so many times; the Unique Identifiers, or why not.
fn fill(stream: &mut Tls, count: usize) -> Result<Vec<String>, String> {
    let comment = vec![
        Item::text(Tag::ATTRIBUTE_NAME, "Comment"),
        Item::new(Tag::ATTRIBUTE_VALUE, Value::TextString("x".repeat(35_000))),
    ];
    let attributes = Item::structure(Tag::TEMPLATE_ATTRIBUTE, vec![Item::structure(Tag::ATTRIBUTE, comment)]);
    let junk = vec![
        Item::enumeration(Tag::OPAQUE_DATA_TYPE, 0x8000_0001_u32),
        Item::new(Tag::OPAQUE_DATA_VALUE, Value::ByteString(vec![7; 16 << 10].into())),
    ];
    let payload =
        vec![Item::enumeration(Tag::OBJECT_TYPE, 8_u32), attributes, Item::structure(Tag::OPAQUE_OBJECT, junk)];
    let told = asked(stream, (0..count).map(|_| (Operation::Register, payload.clone())).collect());
    told.into_iter().map(|(refused, uid)| uid.ok_or_else(|| refused.unwrap_or_default())).collect()
}

/// The largest file of a member, as etcd says it.
async fn used(etcd: &Etcd) -> u64 {
    u64::try_from(etcd.client(0).await.status().await.unwrap().db_size()).unwrap()
}

/// What a plain HTTP listener answers.
fn got(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Asks until it is so, a minute long.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Writes into etcd beside the cluster until its file has that size.
async fn fill_beside(etcd: &Etcd, size: u64) {
    let mut client = etcd.client(0).await;
    let mut number = 0_u32;
    while used(etcd).await < size {
        for _ in 0..4 {
            number += 1;
            if client.put(format!("/beside/{number}"), vec![7; 64 << 10], None).await.is_err() {
                return;
            }
        }
        // etcd writes its file every 100 ms.
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
}

/// One client filled etcd's quota within minutes, and then nothing could be changed any more: it could not be revoked
/// either, every refusal said that the majority could not be reached, and `/readyz` was well.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_fill_the_ledger_and_what_is_left_is_for_people() {
    let [metrics] = crate::etcd::free_ports(1).try_into().unwrap();
    let metrics = format!("127.0.0.1:{metrics}");
    let mut node = Node::start_over(Etcd::start_with(1, &format!("--quota-backend-bytes={QUOTA}")).await).await;
    node.kill();
    let file = node.state().join("keyd.toml");
    let settings = fs::read_to_string(&file).unwrap();
    let settings = settings.replace("[etcd]\n", &format!("[etcd]\nquota_bytes = {QUOTA}\n"));
    fs::write(&file, format!("metrics_listen = \"{metrics}\"\n{settings}")).unwrap();
    node.run_again();
    let hostile = node.enrol("hostile").await;
    let honest = node.enrol("honest").await;
    let eve = node.person("eve");
    let connected = |client: &Path| connect(&node, &config(client));

    // It asks for all there is, as fast as it can: its rate is used up long before etcd's room is, and a further client
    // finds room.
    let mut stream = connected(&hostile);
    let mut junk = Vec::new();
    let why = loop {
        match fill(&mut stream, AT_ONCE - 7) {
            Ok(uids) => junk.extend(uids),
            Err(why) => break why,
        }
        assert!(junk.len() < 200, "nothing stops it");
    };
    assert!(why.contains("more than its share"), "{why}");
    let filled = used(&node.etcd).await;
    assert!(filled < QUOTA / 2, "one client has filled {filled} of {QUOTA} bytes");
    fill(&mut connected(&honest), 1).unwrap();

    let listed: serde_json::Value = serde_json::from_str(&said(&node.asked(&eve, "kmip-clients list --json"))).unwrap();
    let usage = &listed.as_array().unwrap().iter().find(|client| client["name"] == "hostile").unwrap()["usage"];
    assert_eq!(usage["objects"], junk.len(), "who fills it is shown: {listed}");
    assert!(usage["bytes"].as_u64().unwrap() > 50_000 * junk.len() as u64, "{listed}");
    assert_eq!(usage["bytes_max"], QUOTA / 8);

    // Somebody else fills etcd, and what is left is kept: a client destroys, and makes nothing.
    let status = || said(&node.asked(&eve, "status"));
    fill_beside(&node.etcd, QUOTA / 2 + (1 << 20)).await;
    until("nobody is warned", || status().contains("ROOM     the ledger fills"));
    fill_beside(&node.etcd, QUOTA * 3 / 4 + (200 << 10)).await;
    until("the reserve is not said", || status().contains("destroy and revoke"));
    let why = fill(&mut connected(&honest), 1).unwrap_err();
    assert!(why.contains("kept for destroying and revoking"), "{why}");
    let uid = |uid: &str| vec![Item::text(Tag::UNIQUE_IDENTIFIER, uid)];
    let told = asked(&mut stream, vec![(Operation::Destroy, uid(&junk[0]))]);
    assert_eq!(told[0].0, None, "what is destroyed gives room back");

    // The last of it is for people: the client is revoked, another is enrolled.
    fill_beside(&node.etcd, QUOTA * 9 / 10 + (100 << 10)).await;
    until("the last reserve is not said", || status().contains("the rest is for people"));
    let told = asked(&mut stream, vec![(Operation::Destroy, uid(&junk[1]))]);
    assert!(told[0].0.as_ref().is_some_and(|why| why.contains("kept for people")), "{told:?}");
    let revoked = node.asked(&eve, "kmip-clients revoke hostile");
    assert!(revoked.status.success(), "{}", said(&revoked));
    let told = asked(&mut stream, vec![(Operation::Locate, Vec::new())]);
    assert!(told[0].0.as_ref().is_some_and(|why| why.contains("revoked")), "{told:?}");
    assert!(node.asked(&eve, "kmip-clients add another").status.success());
    assert!(got(&metrics, "/readyz").starts_with("HTTP/1.1 200"));

    // And where etcd has met its quota after all, that is what is said.
    fill_beside(&node.etcd, QUOTA).await;
    until("that it is full is not said", || status().contains("the ledger is FULL"));
    let refused = said(&node.asked(&eve, "kmip-clients revoke honest"));
    assert!(refused.contains("the ledger is full") && !refused.contains("majority"), "{refused}");
    let ready = got(&metrics, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("ledger-full"), "{ready}");
    until("no number says it", || got(&metrics, "/metrics").contains("keyd_ledger_full 1"));
    // What is there is read all the same.
    assert_eq!(asked(&mut connected(&honest), vec![(Operation::Locate, Vec::new())])[0].0, None);

    // The way back, as the documentation has it.
    let mut client = node.etcd.client(0).await;
    client.delete("/beside/", Some(etcd_client::DeleteOptions::new().with_prefix())).await.unwrap();
    let revision = client.get("nothing", None).await.unwrap().header().unwrap().revision();
    client.compact(revision, Some(etcd_client::CompactionOptions::new().with_physical())).await.unwrap();
    client.defragment().await.unwrap();
    let raised = client.alarm(AlarmAction::Get, AlarmType::None, None).await.unwrap();
    for alarm in raised.alarms() {
        let mut of_member = AlarmOptions::new();
        of_member.with_member(alarm.member_id());
        client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of_member)).await.unwrap();
    }
    until("it does not come back", || status().contains("room     the ledger has room"));
    assert!(got(&metrics, "/readyz").starts_with("HTTP/1.1 200"));
    let revoked = node.asked(&eve, "kmip-clients revoke honest");
    assert!(revoked.status.success(), "{}", said(&revoked));
}
