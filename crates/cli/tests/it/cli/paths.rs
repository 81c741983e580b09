//! Paths as people type them: below the source, by patterns, without what leads to them; and what a backup leaves out.

use std::fs;

use super::{Bench, ended};

fn bench() -> Bench {
    let bench = Bench::new(&[]);
    let source = bench.source();
    for path in ["docs/a.tex", "docs/b.tex", "docs/old/c.tex", "docs/notes.txt"] {
        fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
        fs::write(source.join(path), format!("{path}\n")).unwrap();
    }
    bench
}

/// The files below a directory, by their path in it.
fn files(dir: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => found.push(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

impl Bench {
    /// Restores with these arguments into a new directory, and gives the files there.
    fn restored(&self, args: &[&str]) -> Vec<String> {
        let to = tempfile::tempdir_in(self.dir.path()).unwrap();
        let args = [&["restore", "--quiet", "--to", to.path().to_str().unwrap()], args].concat();
        self.done(&args, 0);
        files(to.path())
    }
}

/// `src:letter.txt` had "no path": each path had to begin with the source once more.
#[test]
fn a_path_may_be_given_below_the_source() {
    let bench = bench();
    bench.done(&["backup", "home", "--quiet"], 0);
    let source = bench.source_text();
    let absolute = format!("{source}:{source}/letters/ada.txt");
    let whole = source[1..].to_owned() + "/letters/ada.txt";
    for place in ["home:letters/ada.txt", "home:home/letters/ada.txt", absolute.as_str()] {
        assert_eq!(bench.done(&["cat", place], 0), "dear Ada\n", "{place}");
        assert_eq!(bench.rows(&["ls", place])[0]["path"], whole.as_str(), "{place}");
        assert_eq!(bench.restored(&[place]), std::slice::from_ref(&whole), "{place}");
    }
    let names = |rows: Vec<serde_json::Value>| rows.iter().map(|row| row["path"].clone()).collect::<Vec<_>>();
    assert_eq!(names(bench.rows(&["ls", "home:docs"])), names(bench.rows(&["ls", &format!("home:{source}/docs")])));
    // A slash in front means the root of the file system.
    for args in [["cat", "home:/letters/ada.txt"], ["cat", "home:letters/eve.txt"], ["ls", "home:lettres"]] {
        let said = bench.said(&args, 1);
        assert!(said.contains("has no path"), "{said}");
        assert_eq!(said.contains("tried as"), !args[1].contains(":/"), "{said}");
    }
    let said = bench.said(&["restore", "home:lettres", "--to", "back"], 1);
    assert!(said.contains(&format!("tried as /lettres, {source}/lettres")), "{said}");
    assert!(!bench.dir.path().join("back").exists());
}

/// There was no way to restore by a pattern, to leave something out, or to write files without the directories that
/// lead to them.
#[test]
fn a_restore_takes_patterns_and_strips_components() {
    let bench = bench();
    bench.done(&["backup", "home", "--quiet"], 0);
    let depth = bench.source_text().split('/').count() - 1;
    let strip = |more: usize| (depth + more).to_string();
    let below = |args: &[&str], more: usize| bench.restored(&[args, &["--strip", &strip(more)]].concat());

    assert_eq!(below(&["home:docs/*.tex"], 1), ["a.tex", "b.tex"], "`*` does not cross a slash");
    assert_eq!(below(&["home:docs/**/*.tex"], 0), ["docs/a.tex", "docs/b.tex", "docs/old/c.tex"]);
    assert_eq!(below(&["home:d*"], 1).len(), 4, "what is below a match belongs to it");
    assert_eq!(below(&["home", "--include", "*.tex", "--exclude", "docs/old"], 0), ["docs/a.tex", "docs/b.tex"]);
    assert_eq!(below(&["home:docs", "--exclude", "*.tex"], 1), ["notes.txt"]);
    let said = bench.said(&["restore", "home", "--dry-run", "--include", "*.tex", "--exclude", "dcos/old"], 0);
    assert!(said.contains("--exclude dcos/old matched nothing") && !said.contains("*.tex matched"), "{said}");
    // A name may look like a pattern. Of two names of a file the other one does not come along, though its content may
    // stand under that.
    fs::write(bench.source().join("docs/[a].tex"), "brackets\n").unwrap();
    fs::hard_link(bench.source().join("docs/notes.txt"), bench.source().join("letters/again")).unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    assert_eq!(below(&["home:docs/[a].tex"], 1), ["[a].tex"]);
    for (name, path, other) in [("again", "letters/again", "notes.txt"), ("notes.txt", "docs/notes.txt", "again")] {
        assert_eq!(below(&["home", "--include", name], 0), [path]);
        assert_eq!(below(&["home", "--include", name, "--exclude", other], 1), [name]);
    }

    for (args, words) in [
        (vec!["home:docs/*.pdf"], "has no path \"docs/*.pdf\""),
        (vec!["home", "--include", "*.pdf"], "leave nothing"),
        (vec!["home", "--include", "a["], "is not a pattern"),
        (vec!["home:docs", "--strip", "99"], "leaves no name"),
        (vec!["home:docs/a.tex", "home:letters/ada.txt", "--strip", "99"], "leaves no name"),
    ] {
        let said = bench.said(&[&["restore", "--to", "back"], &args[..]].concat(), 1);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    fs::write(bench.source().join("letters/a.tex"), "another\n").unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    let both = ["restore", "home:docs/a.tex", "home:letters/a.tex", "--to", "back", "--strip", &strip(1)];
    assert!(bench.said(&both, 1).contains("makes \"a.tex\" of both"));
    assert!(!bench.dir.path().join("back").exists(), "nothing is written where something would be lost");
}

#[test]
fn ls_and_cat_show_an_earlier_state() {
    let bench = bench();
    bench.done(&["backup", "home", "--quiet"], 0);
    let first = bench.rows(&["objects"])[0]["started_ns"].as_i64().unwrap();
    fs::write(bench.source().join("docs/a.tex"), "later\n").unwrap();
    fs::write(bench.source().join("docs/z.tex"), "new\n").unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    // To the nanosecond: both objects may be of one second.
    let at = jiff::Timestamp::from_nanosecond(first.into()).unwrap().to_string();
    assert_eq!(bench.done(&["cat", "home:docs/a.tex", "--at", &at], 0), "docs/a.tex\n");
    assert_eq!(bench.done(&["cat", "home:docs/a.tex"], 0), "later\n");
    assert!(!bench.done(&["ls", "home:docs", "--at", &at], 0).contains("z.tex"));
    assert!(bench.done(&["ls", "home:docs"], 0).contains("z.tex"));
    let said = bench.said(&["ls", "home:docs", "--at", "2001-01-01"], 1);
    assert!(said.contains("nothing of home:docs had been backed up by 2001-01-01"), "{said}");
}

/// `--exclude a/node_modules` matched nothing, silently, and an incremental with other excludes recorded thousands of
/// deletions, silently.
#[test]
fn what_is_left_out_is_said_where_it_matters() {
    let bench = bench();
    let said = bench.said(&["backup", "home", "--exclude", "docs/old", "--exclude", "dcos/a"], 0);
    assert!(said.contains("--exclude dcos/a matched nothing") && !said.contains("docs/old matched"), "{said}");
    assert!(bench.rows(&["ls", "home:docs"]).iter().all(|row| !row["path"].as_str().unwrap().ends_with("old")));

    // No volume says it: a rebuild takes it over.
    bench.done(&["rebuild", "--quiet"], 0);
    assert_eq!(bench.json(&["show", "home"])["left_out"], serde_json::json!(["dcos/a", "docs/old"]));

    // The same again is no change, in whatever form it is given.
    let list = bench.dir.path().join("excludes");
    fs::write(&list, "# what nobody needs\n\ndocs/old\n").unwrap();
    let from = ["backup", "home", "--incremental", "--exclude-from", list.to_str().unwrap(), "--exclude", "dcos/a"];
    let said = bench.said(&from, 0);
    assert!(!said.contains("unlike object") && !said.contains("left out now"), "{said}");

    let said = bench.said(&["backup", "home", "--incremental", "--exclude", "docs", "--exclude", "dcos/a"], 0);
    assert!(said.contains("leaves out `docs` as well, and no longer leaves out `docs/old`"), "{said}");
    assert!(said.contains("4 of the 8 paths there are left out now"), "{said}");
    assert!(!said.contains("Ctrl-C"), "half of few is no reason to stop: {said}");
    let deleted = bench.rows(&["objects"])[0]["deleted"].as_i64().unwrap();
    assert_eq!(deleted, 4, "the notice counts what is recorded");

    let said = bench.said(&["backup", "home", "--incremental", "--exclude", "letters", "--exclude", "noise"], 0);
    assert!(said.contains("3 of the 4 paths"), "{said}");
    assert!(said.contains("stop this run (Ctrl-C)"), "{said}");

    let args = ["backup", "home", "--exclude-from", "nowhere"];
    let output = bench.command(&args).output().unwrap();
    ended(&output, &args, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--exclude-from nowhere cannot be read"));
}

#[test]
fn against_source_knows_what_the_backup_left_out() {
    let bench = bench();
    let cache = bench.source().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
    fs::write(cache.join("page"), "worthless\n").unwrap();
    bench.done(&["backup", "home", "--quiet", "--exclude", "docs/old", "--exclude-caches"], 0);
    let listed = bench.done(&["ls", "home:cache"], 0);
    assert!(listed.contains("CACHEDIR.TAG") && !listed.contains("page"), "{listed}");
    bench.done(&["verify", "home", "--against-source"], 0);
    fs::write(bench.source().join("docs/new"), "new\n").unwrap();
    let said = bench.said(&["verify", "home", "--against-source"], 3);
    assert!(said.contains("docs/new: the source has it"), "{said}");
}

/// A further name of a file was looked at as if it had no content.
#[test]
fn a_further_name_of_a_file_is_compared_with_the_source_too() {
    let bench = bench();
    fs::write(bench.source().join("first"), "content").unwrap();
    fs::hard_link(bench.source().join("first"), bench.source().join("second")).unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    bench.done(&["verify", "home", "--against-source"], 0);
    fs::remove_file(bench.source().join("second")).unwrap();
    fs::write(bench.source().join("second"), "another content").unwrap();
    let said = bench.said(&["verify", "home", "--against-source"], 3);
    assert!(said.contains("second: it has 15 bytes, had 7"), "{said}");
}

/// Sockets were left out, and a source that is a link stored as nothing but that, without a word.
#[test]
fn what_is_left_out_by_its_nature_is_said() {
    let bench = bench();
    let sockets: Vec<_> = ["one", "two"]
        .iter()
        .map(|name| std::os::unix::net::UnixListener::bind(bench.source().join(name)).unwrap())
        .collect();
    let said = bench.said(&["backup", "home"], 0);
    assert!(said.contains("is a socket, which is not stored, and 1 more path of the kind"), "{said}");
    drop(sockets);
    std::os::unix::fs::symlink("home", bench.dir.path().join("link")).unwrap();
    let said = bench.said(&["backup", "link", "--quiet"], 0);
    assert!(said.contains("is a symbolic link, stored as such; name what it points to"), "{said}");
}

/// Of a file that was deleted it was said that the object has no such path, and whoever had lost it had to find out
/// where it was.
#[test]
fn a_path_that_was_deleted_is_told_with_the_backup_that_has_it() {
    let bench = bench();
    bench.done(&["backup", "home", "--quiet"], 0);
    let first = bench.rows(&["objects"])[0]["object"].as_str().unwrap().to_owned();
    fs::remove_file(bench.source().join("docs/a.tex")).unwrap();
    bench.done(&["backup", "home", "--quiet", "--incremental"], 0);
    let whole = format!("{}/docs/a.tex", bench.source_text());
    for args in [["cat", "home:docs/a.tex"], ["ls", "home:docs/a.tex"]] {
        let said = bench.said(&args, 1);
        assert!(said.contains("It was deleted since"), "{said}");
        assert!(said.contains(&format!("`capstan restore '{first}:{whole}' --to DIR`")), "{said}");
    }
    // What it says is what helps.
    assert_eq!(bench.restored(&[&format!("{first}:{whole}")]), [whole[1..].to_owned()]);
    // A full backup has no word of what is gone; an object from before has nothing of what came later.
    bench.done(&["backup", "home", "--quiet", "--full"], 0);
    assert!(bench.said(&["restore", "home:docs/a.tex", "--to", "back"], 1).contains("It was deleted since"));
    fs::write(bench.source().join("docs/later.tex"), "later\n").unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    let said = bench.said(&["cat", &format!("{first}:docs/later.tex")], 1);
    assert!(said.contains("yet. The first version of it is in the backup that began"), "{said}");
    // A name alone is found further below.
    let said = bench.said(&["restore", "home:c.tex", "--to", "back"], 1);
    let below = format!("but has {}/docs/old/c.tex: write the path below the source", bench.source_text());
    assert!(said.contains(&below), "{said}");
    fs::write(bench.source().join("letters/c.tex"), "another\n").unwrap();
    bench.done(&["backup", "home", "--quiet"], 0);
    assert!(bench.said(&["restore", "home:c.tex", "--to", "back"], 1).contains("or '**/c.tex' for all of them"));
    assert_eq!(bench.restored(&["home:**/c.tex"]).len(), 2);
    assert!(bench.said(&["cat", "home:nowhere"], 1).contains("`capstan find` looks for a name"));
}

/// Who typed the path of a file was told that no object matches, and never of the colon; who named an object that had
/// expired, that there is none.
#[test]
fn a_path_below_a_source_and_what_has_expired_are_told_as_that() {
    let bench = bench();
    bench.done(&["backup", "home", "-q"], 0);
    let source = bench.source_text();
    let said = bench.said(&["restore", &format!("{source}/notes.txt"), "--to", "back"], 1);
    assert!(said.contains(&format!("behind a colon: {source}:notes.txt")), "{said}");
    let object = bench.rows(&["objects"])[0]["object"].as_str().unwrap().to_owned();
    bench.done(&["backup", "home", "-q"], 0);
    bench.done(&["expire", &object, "--yes"], 0);
    let end = &object[24..];
    let said = bench.said(&["restore", end, "--to", "back"], 1);
    assert!(said.contains(&format!("`capstan expire --undo {object}` takes it back")), "{said}");
    bench.done(&["expire", "--undo", end], 0);
    bench.done(&["restore", end, "--to", "back", "-q"], 0);
}

/// A pool that was set up once more by a script kept everything for ever from then on.
#[test]
fn a_pool_keeps_what_is_not_named() {
    let bench = Bench::new(&[]);
    let retention =
        || bench.rows(&["pools"]).iter().find(|row| row["pool"] == "vault").unwrap()["retention_ns"].clone();
    bench.done(&["pools", "add", "vault", "--encrypt", "ccm", "--retention", "30d"], 0);
    let days = retention();
    bench.done(&["pools", "add", "vault"], 0);
    assert!(days.is_u64() && retention() == days);
    bench.done(&["pools", "add", "vault", "--retention", "forever"], 0);
    assert!(retention().is_null());
    let said = bench.said(&["pools", "add", "vault", "--encrypt", "gcm"], 1);
    assert!(said.contains("leave the cipher out"), "{said}");
}

/// Who typed the name of a file was sent to the list of objects.
#[test]
fn the_name_of_a_file_is_sent_to_find() {
    let bench = bench();
    bench.done(&["backup", "home", "-q"], 0);
    for (typed, command) in [
        ("notes.txt", "capstan find notes.txt"),
        ("elsewhere:docs/notes.txt", "capstan find -- '**/docs/notes.txt'"),
        ("/etc/fstab", "capstan find /etc/fstab"),
        ("*.tex", "capstan find -- '*.tex'"),
    ] {
        let said = bench.said(&["restore", typed, "--to", "back"], 1);
        assert!(said.contains(&format!("`{command}` looks for it")), "{said}");
        assert!(said.contains("no object matches"), "{said}");
    }
    assert!(bench.done(&["find", "--", "**/docs/notes.txt"], 0).contains("docs/notes.txt"));
    assert!(bench.done(&["find", "--", "*.tex"], 0).contains("a.tex"));
}

/// A full backup that lost an exclude said nothing: a new host that lacks the settings of the old one took all that had
/// been left out.
#[test]
fn a_full_backup_says_that_it_leaves_out_something_else() {
    let bench = bench();
    let said = |args: &[&str]| bench.said(&[&["backup", "home", "--full"], args].concat(), 0);
    assert!(!said(&["--exclude", "*.tex", "--exclude", "tmp"]).contains("leaves out"));
    assert!(!said(&["--exclude", "*.tex", "--exclude", "tmp"]).contains("unlike"));
    let other = said(&["--exclude", "tmp", "--exclude", "*.txt"]);
    assert!(other.contains("this backup leaves out `*.txt` as well, and no longer leaves out `*.tex`"), "{other}");
    assert!(other.contains("which it comes after") && !other.contains("deleted"), "{other}");
    assert!(
        !said(&["--exclude", "tmp", "--client", "other.host"]).contains("unlike"),
        "of another host nothing is known"
    );
    // By the name of the old machine on a new one, and where the catalog was made anew beside the old one.
    assert!(said(&["--client", "other.host"]).contains("no longer leaves out `tmp`"));
    bench.done(&["rebuild", "-q"], 0);
    assert!(said(&[]).contains("no longer leaves out `*.txt`, `tmp`"));
}

#[test]
fn a_time_may_be_one_of_today_and_a_source_may_be_mistyped() {
    let bench = bench();
    bench.done(&["backup", "home", "--quiet"], 0);
    let said = bench.said(&["ls", "home", "--at", "2020-01-01 01:54"], 1);
    assert!(said.contains("had been backed up by 2020-01-01 01:54: the first backup of it began"), "{said}");
    bench.done(&["ls", "home", "--at", "23:59"], 0);
    assert!(bench.said(&["ls", "home", "--at", "25:59"], 2).contains("12:00 of today"));
    for wrong in ["hmoe", "/srv/home"] {
        let said = bench.said(&["ls", wrong], 1);
        assert!(said.contains(&format!("did you mean \"{}\"", bench.source_text())), "{said}");
    }
    assert!(!bench.said(&["ls", "zzz"], 1).contains("did you mean"));
}

/// One host's `/etc` was given back as another's, whichever was backed up last.
#[test]
fn a_source_that_several_clients_have_is_asked_for() {
    let bench = Bench::new(&[]);
    let (settings, source) = (bench.dir.path().join("state/capstan.toml"), bench.source_text());
    let written = fs::read_to_string(&settings).unwrap();
    let be =
        |client: &str| fs::write(&settings, written.replace("client = \"\"", &format!("client = {client:?}"))).unwrap();
    for client in ["tern", "plover"] {
        be(client);
        fs::write(bench.source().join("of"), client).unwrap();
        bench.done(&["backup", &source], 0);
    }
    let back = |args: &[&str]| {
        let to = bench.dir.path().join("back");
        let _ = fs::remove_dir_all(&to);
        bench.done(&[&["restore", &source, "--to", to.to_str().unwrap()], args].concat(), 0);
        fs::read_to_string(to.join(source.strip_prefix('/').unwrap()).join("of")).unwrap()
    };
    assert_eq!(
        (back(&[]), back(&["--of", "tern"])),
        ("plover".to_owned(), "tern".to_owned()),
        "its own, if nothing is said"
    );
    assert_eq!(bench.rows(&["find", "of"]).len(), 2);
    assert_eq!(bench.rows(&["find", "of", "--of", "tern"])[0]["client"], "tern");
    assert_eq!(bench.rows(&["versions", &format!("{source}/of"), "--of", "tern"]).len(), 1);
    be("server");
    let place = format!("{source}:of");
    for args in [&["restore", &source, "--to", "/tmp"][..], &["ls", &source], &["ls", &place], &["verify", &source]] {
        let said = bench.said(args, 1);
        assert!(said.contains(&format!("several clients have {source} (plover, tern)")), "{args:?}: {said}");
    }
    for args in [&["find", "of", "--of", "heron"][..], &["versions", "/etc/of", "--of", "heron"]] {
        let said = bench.said(args, 1);
        assert!(said.contains("nothing of a client heron was backed up"), "{args:?}: {said}");
    }
    let said = bench.said(&["ls", &place, "--of", "heron"], 1);
    assert!(said.contains("heron") || said.contains("several clients"), "{said}");
    assert_eq!(back(&["--of", "plover"]), "plover");
}
