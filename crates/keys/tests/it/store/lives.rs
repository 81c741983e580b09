//! The life of a volume's keys, from the first label to the last read.

use capstan_keys::KeyState;

use super::*;

#[test]
fn a_key_comes_back_by_its_tag_after_reopening() {
    let (_directory, path, mut store) = new_store();
    let key = store.new_key(&volser("A00001L9"), Algorithm::Aes256Ccm, NOW_NS).unwrap();
    assert_eq!(key.algorithm(), Algorithm::Aes256Ccm);
    drop(store);
    let again = reopen(&path).read_key(&volser("A00001L9"), &key.tag()).unwrap();
    assert_eq!(again.expose(), key.expose());
    assert_eq!(again.tag(), key.tag());
    assert_eq!(again.algorithm(), Algorithm::Aes256Ccm);
}

#[test]
fn no_key_is_issued_twice() {
    let (_directory, _path, mut store) = new_store();
    let mut keys: Vec<[u8; 32]> = (0..20).map(|_| fill(&mut store, "A00001").1).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 20);
}

#[test]
fn the_older_key_stays_in_force_until_the_new_label_stands() {
    let (_directory, path, mut store) = new_store();
    let (old, _) = fill(&mut store, "A00001");
    let (other, _) = fill(&mut store, "A00002");

    // The label of a second life fails: the volume still carries the old tag and can be appended to.
    let unused = store.new_key(&volser("A00001"), GCM, NOW_NS + 10).unwrap().tag();
    assert_eq!(store.append_key(&volser("A00001"), &old, NOW_NS + 11).unwrap().tag(), old);

    // The next attempt succeeds.
    let new = store.new_key(&volser("A00001"), GCM, NOW_NS + 20).unwrap().tag();
    assert_eq!(store.activate(&volser("A00001"), &new, NOW_NS + 30).unwrap(), [old]);

    let records = reopen(&path).list().unwrap();
    let states: Vec<_> = records.iter().map(|record| (record.tag, record.state)).collect();
    assert_eq!(
        states,
        [
            (old, KeyState::ProcessOnly),
            (other, KeyState::ProtectAndProcess),
            (unused, KeyState::Ready),
            (new, KeyState::ProtectAndProcess),
        ]
    );
    assert_eq!(records[0].created_ns, NOW_NS);
    assert_eq!(records[0].activated_ns, Some(NOW_NS + 1));
    assert_eq!(records[0].retired_ns, Some(NOW_NS + 30));
    assert_eq!(records[0].destroyed_ns, None);

    // The retired key still reads, and no longer writes: a volume that carries it all the same goes on with one of its
    // own.
    assert_eq!(store.read_key(&volser("A00001"), &old).unwrap().tag(), old);
    let next = store.append_key(&volser("A00001"), &old, NOW_NS + 40).unwrap().tag();
    assert!(![old, unused, new].contains(&next));
}

/// Two processes were given a key each for one volume, and labelled it one after the other. Activating the first used
/// to retire the second, whose own report was then refused although the volume carries its tag.
#[test]
fn of_two_keys_issued_for_one_volume_the_volume_decides() {
    let (_directory, _path, mut store) = new_store();
    let issue = |store: &mut SealedStore| store.new_key(&volser("A00001"), GCM, NOW_NS).unwrap().tag();
    let (one, other) = (issue(&mut store), issue(&mut store));
    assert!(store.activate(&volser("A00001"), &one, NOW_NS).unwrap().is_empty());
    assert_eq!(store.activate(&volser("A00001"), &other, NOW_NS).unwrap(), [one]);
    store.append_key(&volser("A00001"), &other, NOW_NS).unwrap();
    assert_ne!(store.append_key(&volser("A00001"), &one, NOW_NS).unwrap().tag(), one, "it never encrypts again");
}

/// The label stood, and the process ended before it could report that: the volume's own tag is the proof.
#[test]
fn appending_activates_a_key_whose_activation_was_lost() {
    let (_directory, path, mut store) = new_store();
    let (old, _) = fill(&mut store, "A00001");
    let new = store.new_key(&volser("A00001"), GCM, NOW_NS + 10).unwrap().tag();
    drop(store);

    let mut store = reopen(&path);
    store.append_key(&volser("A00001"), &new, NOW_NS + 20).unwrap();
    let records = store.list().unwrap();
    assert_eq!((records[0].tag, records[0].state), (old, KeyState::ProcessOnly));
    assert_eq!((records[1].tag, records[1].state), (new, KeyState::ProtectAndProcess));
    assert_eq!(records[1].activated_ns, Some(NOW_NS + 20));
}

#[test]
fn reporting_twice_changes_nothing() {
    let (_directory, _path, mut store) = new_store();
    let (tag, _) = fill(&mut store, "A00001");
    let before = store.list().unwrap();
    assert!(store.activate(&volser("A00001"), &tag, NOW_NS + 99).unwrap().is_empty());
    store.append_key(&volser("A00001"), &tag, NOW_NS + 99).unwrap();
    assert_eq!(store.list().unwrap(), before);
}

#[test]
fn a_key_is_not_appended_with_on_another_volume() {
    let (_directory, _path, mut store) = new_store();
    let (tag, bytes) = fill(&mut store, "A00001");
    for error in [
        refused(store.append_key(&volser("A00002"), &tag, NOW_NS)),
        refused(store.activate(&volser("A00002"), &tag, NOW_NS)),
    ] {
        let text = error.to_string();
        assert!(matches!(error, KeyError::KeyOfOtherVolume { .. }), "{text}");
        assert!(text.contains("A00001") && text.contains("A00002") && text.contains(&tag.to_string()), "{text}");
    }
    // A volume under another barcode can be read all the same: the tag decides.
    assert_eq!(store.read_key(&volser("A00002"), &tag).unwrap().expose(), &bytes);
}

#[test]
fn a_missing_key_names_tag_and_volume() {
    let (_directory, _path, mut store) = new_store();
    let tag = KeyTag([0xab; 16]);
    for error in [
        refused(store.read_key(&volser("B00007"), &tag)),
        refused(store.append_key(&volser("B00007"), &tag, NOW_NS)),
        refused(store.activate(&volser("B00007"), &tag, NOW_NS)),
    ] {
        let text = error.to_string();
        assert!(matches!(error, KeyError::KeyMissing { .. }), "{text}");
        assert!(text.contains("B00007") && text.contains(&tag.to_string()), "{text}");
        assert!(text.contains("import"), "it says what to do: {text}");
    }
}

/// The director's loop hands it from thread to thread.
#[test]
fn a_store_can_be_sent_to_another_thread() {
    let (_directory, _path, store) = new_store();
    let count = std::thread::spawn(move || store.list().unwrap().len()).join().unwrap();
    assert_eq!(count, 0);
}
