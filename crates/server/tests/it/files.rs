//! Files of objects over TLS: a client finds its own, a user those of the clients that the user may restore.

use std::ops::ControlFlow;
use std::path::Path;

use capstan_catalog::{Object, ObjectFilter, PathParts};
use capstan_client::files::{FileRow, FileType, FileVersions, FilesAnswer, FindFiles, ListFiles, ROWS_MAX, SizeRange};
use capstan_client::restores::AskRestore;
use capstan_client::{ClientError, ServerQuestions};
use capstan_director::{FileSearch, FoundFile, SearchCursor, Searched, SearchedFor};
use capstan_server::cell::users::words::{FileVersionsOf, FindFilesOf, ListFilesOf};

use crate::cell::{CellBench, Machine};
use crate::own_objects::{ask, back_up};
use crate::users::{questions, user};

/// Everything that an answer has, in all its parts, and how many these were.
fn all(ask: impl Fn(Option<String>) -> Result<FilesAnswer, ClientError>) -> (Vec<FileRow>, usize) {
    let (mut rows, mut after, mut parts) = (Vec::new(), None, 0);
    loop {
        let answer = ask(after).unwrap();
        assert!(answer.rows.len() <= ROWS_MAX && answer.damaged.is_empty());
        rows.extend(answer.rows);
        (after, parts) = (answer.next, parts + 1);
        if after.is_none() {
            return (rows, parts);
        }
    }
}

fn names(rows: &[FileRow]) -> Vec<String> {
    let name = |row: &FileRow| {
        let path = String::from_utf8_lossy(&row.path.bytes()).into_owned();
        path.rsplit('/').next().unwrap().to_owned()
    };
    rows.iter().map(name).collect()
}

fn glob(glob: &str) -> FindFiles {
    FindFiles { glob: glob.to_owned(), ..FindFiles::default() }
}

fn of(client: &str, find: FindFiles) -> FindFilesOf {
    FindFilesOf { of: Some(client.to_owned()), find }
}

/// Two clients of one source: what each has of it.
fn two_of_one_source(folder: &Path) -> (CellBench, capstan_server::cell::ServedCell, [Machine; 2]) {
    let bench = CellBench::new();
    let cell = bench.serve_keyed();
    let machines = ["tern", "plover"].map(|client| bench.joined(&cell, client));
    let source = folder.join("etc");
    std::fs::create_dir_all(source.join("sub")).unwrap();
    for (machine, client) in machines.iter().zip(["tern", "plover"]) {
        std::fs::write(source.join("of"), client).unwrap();
        std::fs::write(source.join(format!("only-{client}")), vec![7; 5000]).unwrap();
        back_up(&bench, &cell, machine, client, &source);
        std::fs::remove_file(source.join(format!("only-{client}"))).unwrap();
    }
    (bench, cell, machines)
}

#[test]
fn each_finds_files_of_the_clients_that_are_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let (bench, cell, [tern, plover]) = two_of_one_source(folder.path());
    let source = folder.path().join("etc").display().to_string();
    let ada = questions(&user(&bench, &cell, "ada", &["administrator"], &[]));
    let bert = questions(&user(&bench, &cell, "bert", &["restorer"], &["tern"]));
    let find = |server: &ServerQuestions, asked: &FindFilesOf| server.look::<FilesAnswer>("/v1/files/find", asked);
    let found = |server: &ServerQuestions, asked: &FindFilesOf| names(&find(server, asked).unwrap().rows);
    let every = FindFilesOf { of: None, find: glob("only-*") };
    assert_eq!(found(&ada, &every), ["only-plover", "only-tern"], "the latest object first");
    assert_eq!(found(&bert, &every), ["only-tern"]);
    let rows = find(&bert, &every).unwrap().rows;
    assert_eq!((rows[0].client.as_deref(), rows[0].size), (Some("tern"), 5000));
    assert_eq!(found(&ada, &of("plover", glob("only-*"))), ["only-plover"]);
    let refused = find(&bert, &of("plover", glob("*"))).unwrap_err().to_string();
    assert!(refused.contains("user bert is a restorer, and not of client plover"), "{refused}");

    let of_type = FindFiles { types: vec![FileType::Directory], latest: true, ..glob("*") };
    assert_eq!(found(&bert, &of("tern", of_type)), ["etc", "sub"]);
    let large = FindFiles { size: Some(SizeRange::Above(4096)), object: Some(source.clone()), ..glob("*") };
    assert_eq!(found(&bert, &of("tern", large.clone())), ["only-tern"]);
    let unnamed = FindFilesOf { of: None, find: large };
    let refused = find(&ada, &unnamed).unwrap_err().to_string();
    assert!(refused.contains("Several clients have") && refused.contains("(--of)"), "{refused}");
    assert_eq!(found(&bert, &unnamed), ["only-tern"], "of those that may be seen there is one");
    let wrong = FindFiles { after: Some("nowhere".to_owned()), ..glob("*") };
    let refused = find(&ada, &FindFilesOf { of: None, find: wrong }).unwrap_err().to_string();
    assert!(refused.contains("`after` is nothing that an answer has said"), "{refused}");
    let refused = find(&ada, &FindFilesOf { of: None, find: glob("[") }).unwrap_err().to_string();
    assert!(refused.contains('['), "{refused}");

    // A client has no other, whatever it names.
    let own = ServerQuestions::new(&tern.state).unwrap();
    let own_find = |asked: &FindFiles| own.look::<FilesAnswer>("/v1/own/files/find", asked);
    let rows = own_find(&glob("*")).unwrap().rows;
    assert_eq!(names(&rows), ["etc", "of", "only-tern", "sub"]);
    assert!(rows.iter().all(|row| row.client.is_none()));
    let plovers = ServerQuestions::new(&plover.state).unwrap().objects().unwrap().objects[0].object.clone();
    let refused = own_find(&FindFiles { object: Some(plovers.clone()), ..glob("*") }).unwrap_err().to_string();
    assert!(refused.contains(&format!("Nothing of client tern was backed up as {plovers}")), "{refused}");
    // Nor by a cursor that it makes itself.
    let cursor = serde_json::json!({"object": plovers, "client": "plover", "source": [], "path": null}).to_string();
    let after = FindFiles { after: Some(cursor.clone()), ..glob("*") };
    assert_eq!(names(&own_find(&after).unwrap().rows), names(&rows), "it goes on with the next object of its own");
    let after = FindFiles { after: Some(cursor.clone()), object: Some(source.clone()), ..glob("*") };
    let refused = own_find(&after).unwrap_err().to_string();
    assert!(refused.contains("no object matches"), "{refused}");
    let after = ListFiles { place: source.clone(), after: Some(cursor), ..ListFiles::default() };
    let refused = own.look::<FilesAnswer>("/v1/own/files/list", &after).unwrap_err().to_string();
    assert!(refused.contains("Nothing of client tern was backed up"), "{refused}");
    let long = ListFiles { place: "/a".repeat(100_000), ..ListFiles::default() };
    let refused = own.look::<FilesAnswer>("/v1/own/files/list", &long).unwrap_err().to_string();
    assert!(refused.contains("too long"), "{refused}");
    assert!(own.look::<FilesAnswer>("/v1/files/find", &every).is_err(), "a machine is no user");

    let list = |asked: &ListFilesOf| ada.look::<FilesAnswer>("/v1/files/list", asked);
    let place = |place: String| ListFiles { place, ..ListFiles::default() };
    let listed = list(&ListFilesOf { of: Some("tern".to_owned()), list: place(source.clone()) }).unwrap();
    assert_eq!(names(&listed.rows), ["of", "only-tern", "sub"]);
    let listed = own.look::<FilesAnswer>("/v1/own/files/list", &place(format!("{source}:of"))).unwrap();
    assert_eq!(names(&listed.rows), ["of"], "a file stands for itself");
    let refused = own.look::<FilesAnswer>("/v1/own/files/list", &place(format!("{source}:only-plover")));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("has no path"), "{refused}");

    let path = FileVersions { path: format!("{source}/of"), after: None };
    let versions = own.look::<FilesAnswer>("/v1/own/files/versions", &path).unwrap().rows;
    assert_eq!((versions.len(), versions[0].level.as_deref()), (1, Some("full")));
    let both = FileVersionsOf { of: None, versions: path };
    assert_eq!(ada.look::<FilesAnswer>("/v1/files/versions", &both).unwrap().rows.len(), 2);
    assert_eq!(bert.look::<FilesAnswer>("/v1/files/versions", &both).unwrap().rows.len(), 1);
}

/// Whoever had the source last took it from all others: a client could not restore its own `/etc`.
#[test]
fn a_source_that_several_clients_have_is_each_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let (_bench, _cell, [tern, plover]) = two_of_one_source(folder.path());
    let source = folder.path().join("etc").display().to_string();
    for machine in [&tern, &plover] {
        let server = ServerQuestions::new(&machine.state).unwrap();
        let planned = server.begin_restore(&AskRestore { plan_only: true, ..ask(&[&source]) });
        assert_eq!(planned.unwrap().outlook.members, 4);
    }
}

/// A client learned what another one had of the same source at a time at which it had nothing itself.
#[test]
fn what_another_client_had_at_a_time_is_told_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (bench, cell, [tern, plover]) = two_of_one_source(folder.path());
    let source = folder.path().join("etc").display().to_string();
    let objects = bench.keyed_site().catalog().objects(&ObjectFilter::default()).unwrap();
    // Of tern alone there was something then.
    let at_ns = objects.iter().map(|object| object.started_ns).max().map(|last| last - 1);
    let bert = questions(&user(&bench, &cell, "bert", &["restorer"], &["plover"]));
    let listing = ListFiles { place: source.clone(), at_ns, recursive: true, ..ListFiles::default() };
    let said = |refusal: ClientError| assert!(refusal.to_string().contains("by that time"), "{refusal}");
    let own = |machine: &Machine| ServerQuestions::new(&machine.state).unwrap();
    assert!(!own(&tern).look::<FilesAnswer>("/v1/own/files/list", &listing).unwrap().rows.is_empty());
    said(own(&plover).look::<FilesAnswer>("/v1/own/files/list", &listing).unwrap_err());
    let asked = AskRestore { plan_only: true, at_ns, ..ask(&[&source]) };
    said(own(&plover).begin_restore(&asked).unwrap_err());
    let of_plover = ListFilesOf { of: Some("plover".to_owned()), list: listing };
    said(bert.look::<FilesAnswer>("/v1/files/list", &of_plover).unwrap_err());
}

/// Stopped behind each file, a search finds the same and each once; so it does when objects come and go meanwhile.
#[test]
fn a_search_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (bench, cell, [tern, _plover]) = two_of_one_source(folder.path());
    let source = folder.path().join("etc");
    std::fs::remove_file(source.join("of")).unwrap();
    std::fs::write(source.join("sub/new"), "new").unwrap();
    back_up(&bench, &cell, &tern, "tern", &source);
    let site = bench.keyed_site();
    let none = PathParts::default();
    let search = |searched, after| FileSearch {
        wanted: SearchedFor::Matching(&|_: &[u8]| true, &none),
        searched,
        client: None,
        is_of: &|_| true,
        with_open: false,
        after,
        is_over: &|| false,
        threads: 4,
    };
    let of = |object: &Object, file: &FoundFile| (object.id, file.entry.path.clone());
    for searched in [Searched::Versions, Searched::Latest] {
        let mut all = Vec::new();
        let end = site.search_files(&search(searched, None), &mut |object, file| {
            all.push(of(object, &file));
            ControlFlow::Continue(())
        });
        assert!(end.unwrap().next.is_none() && all.len() > 6, "{all:?}");
        let (mut one_by_one, mut after) = (Vec::new(), None);
        loop {
            let end = site.search_files(&search(searched, after), &mut |object, file| {
                one_by_one.push(of(object, &file));
                ControlFlow::Break(())
            });
            after = end.unwrap().next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(one_by_one, all, "{searched:?}");
        // The object at which it stopped is gone.
        let first = &all[0];
        let left: Vec<_> = all.iter().filter(|found| found.0 != first.0).cloned().collect();
        let known = site.catalog().object(first.0).unwrap().unwrap();
        let gone = u128::from_str_radix(&first.0.to_string(), 16).unwrap() - 1;
        let gone = format!("{gone:032x}").parse().unwrap();
        let cursor =
            SearchCursor { object: gone, client: known.client, source: known.source, path: Some(first.1.clone()) };
        let mut rest = Vec::new();
        let end = site.search_files(&search(searched, Some(cursor)), &mut |object, file| {
            rest.push(of(object, &file));
            ControlFlow::Continue(())
        });
        assert!(end.is_ok());
        match searched {
            Searched::Latest => assert_eq!(rest, all[1..], "the source goes on behind the path"),
            _ => assert_eq!(rest, left, "the other objects are searched, and that before is not again"),
        }
    }
}

/// A directory larger than an answer comes whole and once, also what is looked for in it.
#[test]
fn long_answers_come_in_parts() {
    let bench = CellBench::new();
    let cell = bench.serve_keyed();
    let tern = bench.joined(&cell, "tern");
    let folder = tempfile::tempdir().unwrap();
    let count = 2 * ROWS_MAX + 7;
    let expected: Vec<String> = (0..count).map(|number| format!("f{number:05}")).collect();
    for name in &expected {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    back_up(&bench, &cell, &tern, "tern", folder.path());
    let server = ServerQuestions::new(&tern.state).unwrap();
    let place = folder.path().display().to_string();
    for recursive in [false, true] {
        let asked = ListFiles { place: place.clone(), recursive, ..ListFiles::default() };
        let list = |after| server.look("/v1/own/files/list", &ListFiles { after, ..asked.clone() });
        let (rows, parts) = all(list);
        assert_eq!((&names(&rows)[usize::from(recursive)..], parts), (&expected[..], 3));
    }
    for latest in [false, true] {
        let asked = FindFiles { latest, ..glob("f*") };
        let (rows, parts) = all(|after| server.look("/v1/own/files/find", &FindFiles { after, ..asked.clone() }));
        assert_eq!((names(&rows), parts), (expected.clone(), 3));
    }
}
