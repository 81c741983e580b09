//! What users have the server do with cartridges, over TLS.

use capstan_client::{ClientError, ServerQuestions};
use capstan_server::cell::users::CellActs;
use capstan_server::cell::users::media_words::VolumesAnswer;
use capstan_server::cell::users::task_words::{
    CartridgeMove, LabelVolumes, LibraryEvent, MoveCartridges, StopTask, TaskBegun, TaskEnd, TaskSeen,
};

use crate::cell::CellBench;
use crate::own_objects::back_up;
use crate::users::{questions, user};

/// What a task said, and how it ended.
fn until_ended(server: &ServerQuestions, begun: Result<TaskBegun, ClientError>) -> (Vec<String>, TaskEnd) {
    let task = begun.unwrap().task;
    let mut messages = Vec::new();
    loop {
        let heard = messages.len();
        let seen: TaskSeen = server.get(&format!("/v1/tasks?task={task}&heard={heard}")).unwrap();
        messages.extend(seen.messages);
        if let Some(end) = seen.ended {
            return (messages, end);
        }
    }
}

#[test]
fn operators_label_volumes_and_move_cartridges_and_destroy_nothing() {
    let bench = CellBench::new();
    let cell = bench.serve_keyed();
    let tern = bench.joined(&cell, "tern");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter"), "dear Ada\n").unwrap();
    back_up(&bench, &cell, &tern, "tern", folder.path());
    let olga = questions(&user(&bench, &cell, "olga", &["operator"], &[]));
    let omar = questions(&user(&bench, &cell, "omar", &["operator"], &[]));
    let bert = questions(&user(&bench, &cell, "bert", &["restorer"], &["tern"]));
    let held = olga.get::<VolumesAnswer>("/v1/volumes").unwrap().volumes[0].volume.clone();
    let label = |server: &ServerQuestions, volumes: &[&str]| {
        let volumes = volumes.iter().map(|&volume| volume.to_owned()).collect();
        server.post::<TaskBegun>("/v1/volumes/label", &LabelVolumes { volumes, ..LabelVolumes::default() })
    };
    let (messages, end) = until_ended(&olga, label(&olga, &["L00001", &held, "L00002"]));
    assert_eq!((end.failure, end.labelled), (None, vec!["L00001".to_owned(), "L00002".to_owned()]));
    assert!(messages.contains(&"labelled L00001 for scratch".to_owned()), "{messages:?}");
    let reasons: Vec<_> = end.not_labelled.iter().map(|not| (not.volume.as_str(), not.reason.as_str())).collect();
    assert_eq!(reasons[0].0, held);
    assert!(reasons[0].1.contains("has been written") && reasons[0].1.contains("the server's machine"), "{reasons:?}");
    let (_, end) = until_ended(&olga, label(&olga, &["L00001", "my passphrase"]));
    assert!(end.failure.unwrap().contains("is no barcode"));
    let (_, end) = until_ended(&olga, label(&olga, &[&held]));
    assert!(end.failure.unwrap().contains("has been written"));

    let moved = |what| {
        let begun = olga.post::<TaskBegun>("/v1/library/move", &MoveCartridges { library: None, what });
        until_ended(&olga, begun).1
    };
    // What has expired can be taken back, so the volume is not labelled either; nor are several of which none is.
    let site = bench.site();
    let expired = site.catalog().objects(&capstan_catalog::ObjectFilter::default()).unwrap()[0].id;
    let asked = capstan_director::ExpiryRequest { named: vec![expired], ..capstan_director::ExpiryRequest::default() };
    back_up(&bench, &cell, &tern, "tern", folder.path());
    let plan = site.plan_expiry(&asked).unwrap();
    site.expire(&plan, &asked).unwrap();
    assert!(site.catalog().object(expired).unwrap().unwrap().status == capstan_catalog::ObjectStatus::Expired);
    let (_, end) = until_ended(&olga, label(&olga, &[&held, &held]));
    assert!(end.failure.unwrap().starts_with("no volume was labelled"));

    // A library in this process has no drive that keeps a volume; one with a robot has.
    let load = CartridgeMove::Load { volume: "L00001".to_owned(), drive: 1 };
    assert!(moved(load).failure.unwrap().contains("a job mounts what it needs"));
    assert_eq!(moved(CartridgeMove::Initialize).moved, Some(LibraryEvent::Initialized));

    // One's task is not another's, and a restorer has none.
    let begun = label(&olga, &["L00003"]).unwrap();
    let path = format!("/v1/tasks?task={}", begun.task);
    let refused = omar.get::<TaskSeen>(&path).unwrap_err().to_string();
    assert!(refused.contains("no such task of yours"), "{refused}");
    until_ended(&olga, Ok(begun));
    let stopped = omar.post::<TaskBegun>("/v1/tasks/stop", &StopTask { task: begun.task });
    assert!(stopped.unwrap_err().to_string().contains("no such task of yours"));
    olga.post::<TaskBegun>("/v1/tasks/stop", &StopTask { task: begun.task }).unwrap();
    for refused in [label(&bert, &["L00004"]).map(drop), bert.get::<TaskSeen>(&path).map(drop)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("user bert (restorer) may not label volumes"), "{refused}");
    }
    for volumes in [&[][..], &["L00005"; 101]] {
        assert!(matches!(label(&olga, volumes), Err(ClientError::Refused { .. })));
    }
    let records = CellActs::at_shell(&bench.site(), 1000).unwrap().audit(Some(100)).unwrap().records;
    let acts: Vec<_> = records.iter().filter(|record| record["act"] == "change-media").collect();
    let results: Vec<_> = acts.iter().map(|record| record["result"].as_str().unwrap()).collect();
    assert_eq!(results[..6], ["begun", "done", "begun", "failed", "begun", "failed"], "{acts:?}");
    let load = acts.iter().find(|record| record["facts"]["what"] == "load").unwrap();
    assert_eq!((&load["who"], &load["object"]), (&"user/olga".into(), &"volume/L00001".into()));
    assert_eq!(load["facts"]["drive"], "1", "{load}");
    assert!(!format!("{records:?}").contains("passphrase"), "{records:?}");
    assert_eq!(results.iter().filter(|result| **result == "refused").count(), 2, "{acts:?}");
}
