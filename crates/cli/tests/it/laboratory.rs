//! The laboratory as a person or a script meets it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use tempfile::TempDir;

fn capstan(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("capstan").unwrap();
    command.args(args).stdin(Stdio::null()).env_remove("CAPSTAN_KEY_FILE");
    // What is measured is kept; nothing of it belongs into the state directory of whoever runs the tests.
    command.env("CAPSTAN_STATE", concat!(env!("CARGO_TARGET_TMPDIR"), "/laboratory"));
    command
}

/// Runs a command that must end with `code`, and gives what it printed to standard output and to standard error.
fn run(args: &[&str], code: i32) -> (String, String) {
    ended(&capstan(args).output().unwrap(), args, code)
}

fn ended(output: &Output, args: &[&str], code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "capstan {args:?} said:\n{stderr}");
    (stdout, stderr)
}

#[test]
fn every_command_of_the_laboratory_has_an_example() {
    let (help, _) = run(&["lab", "--help"], 0);
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let lines = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<_> =
        lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(names.len() >= 5, "{help}");
    for name in names {
        let (help, _) = run(&["lab", name, "--help"], 0);
        assert!(help.contains("Example") && help.contains(&format!("capstan lab {name}")), "{name} has no example");
    }
}

/// A listener. Its process ends with it.
struct Listening {
    child: Child,
    events: BufReader<ChildStdout>,
    address: String,
}

impl Listening {
    fn new(more: &[&str]) -> Self {
        let mut command = capstan(&["lab", "network", "--listen", "0", "--json"]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        let mut listening = Self { child, events, address: String::new() };
        let event = listening.event();
        assert_eq!(event["event"], "listening");
        listening.address = event["address"].as_str().unwrap().to_owned();
        listening
    }

    /// The next thing that it tells.
    fn event(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_network_between_two_processes_is_measured() {
    let mut listening = Listening::new(&["--once"]);
    let to = listening.address.clone();
    let measure = ["lab", "network", "--to", &to, "--connections", "1,2", "--seconds", "0.2"];
    let (text, _) = run(&[&measure[..], &["--json"]].concat(), 0);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rates = value["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 4);
    assert!(rates.iter().all(|rate| rate["mb_per_s"].as_f64().unwrap() > 1.0), "{value}");
    assert_eq!((&rates[3]["direction"], &rates[3]["connections"]), (&"receive".into(), &2.into()));
    assert!(value["round_trip"]["p99_s"].as_f64() >= value["round_trip"]["median_s"].as_f64());
    assert_eq!(
        (listening.event()["event"].as_str(), listening.event()["event"].as_str()),
        (Some("began"), Some("done"))
    );
    assert!(listening.child.wait().unwrap().success());
    assert!(run(&measure, 1).1.contains("Start `capstan lab network --listen"));
}

#[test]
fn a_listener_ends_with_ctrl_c_and_a_measurement_too() {
    let mut listening = Listening::new(&[]);
    let to = listening.address.clone();
    let (_, taken) = run(&["lab", "network", "--listen", &to], 1);
    assert!(taken.contains("is in use by another program: name another port"), "{taken}");
    let long = ["lab", "network", "--to", &to, "--seconds", "60"];
    let mut measuring = capstan(&long).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(listening.event()["event"], "began");
    interrupt(&measuring);
    assert_eq!(measuring.wait().unwrap().code(), Some(130));
    assert_eq!(listening.event()["event"], "lost");
    let (text, _) = run(&["lab", "network", "--to", &to, "--seconds", "0.1", "--connections", "1"], 0);
    assert!(text.starts_with("connections  direction") && text.contains("round trip"), "{text}");
    interrupt(&listening.child);
    assert_eq!(listening.child.wait().unwrap().code(), Some(0));
}

fn interrupt(child: &Child) {
    let done = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_network_that_cannot_be_measured_so_ends_with_2() {
    for (args, word) in [
        (&["--to", "127.0.0.1:9", "--connections", "0"][..], "1 to 64"),
        (&["--to", "127.0.0.1:9", "--block", "1G"], "blocks of"),
        (&["--to", "127.0.0.1:9", "--seconds", "0"], "no time to measure"),
        (&["--to", "nowhere"], "Write host:port"),
        (&["--listen", "0", "--to", "127.0.0.1:9"], "cannot be used with"),
        (&[], "--listen"),
    ] {
        let args = [&["lab", "network"], args].concat();
        let (_, said) = run(&args, 2);
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

#[test]
fn a_data_set_of_ones_own_is_found_to_shrink_and_comes_back_from_a_backup() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let set = path("set");
    let create = |folder: &str, more: &[&str], code| {
        let shape = ["--sizes", "100-40K", "--files", "600", "--names", "hostile", "--ratio-per-mb", "3-4"];
        let tree = ["--files-per-folder", "20", "--folders-per-folder", "3"];
        run(&[&["lab", "create-data", folder], &shape[..], &tree, more].concat(), code)
    };
    let (text, _) = create(&set, &["--json"], 0);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ratio = |name: &str| value[name].as_f64().unwrap();
    assert!((3.0..4.0).contains(&ratio("asked_ratio")), "{value}");
    assert!((ratio("found_ratio") / ratio("asked_ratio") - 1.0).abs() < 0.08, "{value}");
    let (_, said) = create(&set, &["--check"], 0);
    assert!(said.contains("600 files") && said.contains("asked 3."), "{said}");
    for args in [&["init", "--volume-size", "64M"][..], &["backup", &set], &["restore", &set, "--to", &path("back")]] {
        let mut command = capstan(args);
        command.env("CAPSTAN_STATE", path("state")).env("CAPSTAN_PASSPHRASE", "three plain words");
        ended(&command.output().unwrap(), args, 0);
    }
    // What comes back lies below its whole path.
    let back = dir.path().join("back").join(Path::new(&set).strip_prefix("/").unwrap());
    create(back.to_str().unwrap(), &["--check"], 0);
    // What lacks and what is too much is told apart.
    let file = walk_to_file(&back);
    std::fs::rename(&file, back.join("elsewhere")).unwrap();
    let (listed, _) = create(back.to_str().unwrap(), &["--check"], 3);
    let kinds: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "missing").count(), 1, "{listed}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "extra").count(), 1, "{listed}");
}

/// A file somewhere below a folder.
fn walk_to_file(folder: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.into_iter().next().unwrap_or_else(|| walk_to_file(&folders[0]))
}

#[test]
fn a_data_set_that_cannot_be_is_refused_before_work() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("set");
    for (args, word) in [
        (&["--sizes", "16K-4K", "--files", "3"][..], "shorter length first"),
        (&["--sizes", "0-4K", "--files", "3"], "1 byte to 16 TiB"),
        (&["--sizes", "4Q", "--files", "3"], "is not a size"),
        (&["--sizes", "4K", "--preset", "small", "--files", "3"], "cannot be used with"),
        (&["--sizes", "4K"], "--files"),
        (&["--files", "3"], "--preset"),
        (&["--sizes", "4K", "--files", "3", "--ratio-per-mb", "1-20"], "of 1 to 10"),
        (&["--sizes", "4K", "--files", "3", "--ratio-per-mb", "1-2", "--ratio", "3"], "cannot be used with"),
        (&["--sizes", "4K", "--files", "3", "--folders-per-folder", "1"], "two folders"),
        (&["--sizes", "4K", "--files", "3", "--files-per-folder", "0"], "one file at least"),
    ] {
        let args = [&["lab", "create-data", folder.to_str().unwrap()], args].concat();
        let (_, said) = run(&args, 2);
        assert!(said.contains(word), "{args:?}: {said}");
        assert!(!folder.exists());
    }
}

#[test]
fn a_grid_is_made_for_drives_and_predicted() {
    let characterize = ["lab", "characterize", "--drive"];
    let (text, said) =
        run(&[&characterize[..], &["LTO-6,LTO-8", "--file-sizes", "32K,1G", "--buffers", "8"]].concat(), 0);
    let lines: Vec<_> = text.lines().collect();
    let head = "drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio,predicted_mb_per_s,bottleneck";
    assert_eq!((lines[0], lines.len(), said.as_str()), (head, 1 + 2 * 2 * 3 * 5 * 2, ""));
    assert!(lines[1].starts_with("LTO-6,8,64KB,0,32KB,1,") && lines[1].ends_with(",source"), "{}", lines[1]);
    let one = ["--file-sizes", "10G", "--buffer-sizes", "2M", "--buffers", "32", "--ratios", "2", "--encrypted", "1"];
    let (json, _) = run(&[&characterize[..], &["LTO4", "--json"], &one].concat(), 0);
    let row: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json.lines().count(), &row["buffer_size"]), (1, &"2MB".into()));
    let predicted = row["predicted_mb_per_s"].as_f64().unwrap();
    // What was made is predicted as if it had been read.
    let dir = TempDir::new().unwrap();
    let table = dir.path().join("table.csv");
    std::fs::write(&table, format!("{}\nLTO4,32,2MB,1,10GB,2\n", head.rsplitn(3, ',').nth(2).unwrap())).unwrap();
    let (text, _) = run(&["lab", "characterize", "--grid", table.to_str().unwrap()], 0);
    assert!(text.contains(&format!(",{predicted:.3},")), "{predicted} is not in {text}");
    // The whole of the papers' grid.
    assert_eq!(run(&["lab", "characterize", "--drive", "T10000A"], 0).0.lines().count(), 1 + 4 * 3 * 6 * 4 * 2);
}

#[test]
fn a_grid_that_cannot_be_is_refused_before_a_line_is_printed() {
    for (args, word) in [
        (&["--drive", "LTO-8,T10000A", "--buffer-sizes", "256K,8M"][..], "leave that buffer size out"),
        (&["--drive", "LTO-2"], "there are T9840C"),
        (&["--drive", "LTO-8", "--grid", "table.csv"], "cannot be used with"),
        (&["--grid", "table.csv", "--ratios", "1"], "cannot be used with"),
        (&["--drive", "LTO-8", "--calibrate"], "no measurements"),
        (&["--drive", "LTO-8", "--ratios", "0.5"], "not 0.5:1"),
        (&["--drive", "LTO-8", "--encrypted", "2"], "write 0, 1 or 0,1"),
        (&["--ratios", "1"], "--grid"),
        (&[], "--grid"),
    ] {
        let args = [&["lab", "characterize"], args].concat();
        let (printed, said) = run(&args, 2);
        assert!(said.contains(word), "{args:?}: {said}");
        assert_eq!(printed, "", "{args:?}");
    }
}

/// A small tree, a state directory of its own, and a folder for cartridges.
struct Site {
    dir: TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { dir: TempDir::new().unwrap() };
        let tree = site.path("tree");
        run(&["lab", "create-data", "--sizes", "4K-256K", "--bytes", "30M", &tree, "--quiet"], 0);
        site
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, args: &[&str], code: i32) -> (String, String) {
        let mut command = capstan(args);
        command.env("CAPSTAN_STATE", self.dir.path().join("state"));
        ended(&command.output().unwrap(), args, code)
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.run(&[args, &["--json"]].concat(), 0).0).unwrap()
    }
}

#[test]
fn parts_are_measured_kept_and_advised_on() {
    let site = Site::new();
    let (tree, out) = (site.path("tree"), site.path("out"));
    // Nothing is known yet, and it is said what to do.
    let (_, told) = site.run(&["lab", "advise", &tree], 2);
    assert!(told.contains("was not measured yet: capstan lab null") && told.contains("--measure"), "{told}");

    let short = ["--rounds", "2", "--seconds", "0.5"];
    let read = ["lab", "read", &tree, "--readers", "1,2", "--cache", "warm,direct", "--json"];
    let (read, _) = site.run(&[&read[..], &short[..]].concat(), 0);
    assert_eq!(read.lines().count(), 2);
    let read: serde_json::Value = serde_json::from_str(read.lines().next().unwrap()).unwrap();
    assert!(read["rates"][1]["mb_per_s"]["median"].as_f64().unwrap() > 0.0, "{read}");
    let null = site.json(&[&["lab", "null", &tree, "-j", "1,2", "--cache", "warm"], &short[..]].concat());
    assert_eq!((null["rates"].as_array().unwrap().len(), &null["whole"]), (4, &serde_json::json!(true)));
    // What takes another's place says so; what is disturbed takes none, unless it is told to.
    let again = ["lab", "null", &tree, "-j", "1,2", "--cache", "warm", "--replace"];
    let (table, said) = site.run(&[&again[..], &short[..]].concat(), 0);
    assert!(said.contains(", in the place of what was measured"), "{said}");
    assert!(table.contains("processor %"), "{table}");
    let drive = ["lab", "drive", "--folder", &out, "--amount", "20M", "--rounds", "2", "--data", "zeros,random"];
    assert_eq!(site.json(&drive)["rates"].as_array().unwrap().len(), 8);
    let staging = ["lab", "staging", "--folder", &out, "--depot", "20M", "--rounds", "1", "--writers", "1,2"];
    assert_eq!(site.json(&staging)["write"].as_array().unwrap().len(), 2);

    let restore = ["lab", "restore", &tree, "--folder", &out, "--to", &site.path("back"), "--rounds", "1"];
    let restored = site.json(&restore);
    assert!(restored["restore"]["mb_per_s"]["median"].as_f64().unwrap() > 0.0, "{restored}");
    assert!(restored["copy"]["cpu_s_per_mb"].as_f64().unwrap() > 0.0, "{restored}");

    let advice = site.json(&["lab", "advise", &tree, "--folder", &out, "--try", "--try-seconds", "0.5"]);
    let names = ["source", "processor", "disk", "drive"].map(serde_json::Value::from);
    assert!(names.contains(&advice["now"]["forecast"]["bottleneck"]), "{advice}");
    assert_eq!(advice["drives"].as_array().unwrap().len(), 19);
    assert!(advice["trials"][0]["trial"]["measured_mb_per_s"]["median"].as_f64().unwrap() > 0.0, "{advice}");
    let (text, _) = site.run(&["lab", "advise", &tree, "--drive", "SDLT-220", "--window", "1h", "--data", "1T"], 0);
    for line in
        ["bottleneck: drive", "window     1 h 00 min: not kept", "staging    staged", "drive      ", "certainty  "]
    {
        assert!(text.contains(line), "{line:?} is missing:\n{text}");
    }
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0, "what was written is removed");

    let (page, csv) = (site.path("report.html"), site.path("report.csv"));
    site.run(&["lab", "report", "--output", &page, "--csv", &csv], 0);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("the bottleneck") && page.contains("Published: LTO4") && page.ends_with("</html>"));
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.starts_with("kind,what,predicted_mb_per_s") && csv.contains("\ntrial,"), "{csv}");
    // One source that cannot be advised on leaves the page to the others.
    let (page, unknown) = (site.path("second.html"), site.path("unknown"));
    let (_, said) = site.run(&["lab", "report", &unknown, &tree, "--output", &page], 3);
    assert!(said.contains(&format!("{unknown}: there is no advice in the page")), "{said}");
    assert!(std::fs::read_to_string(page).unwrap().contains("the bottleneck"));
}

/// Such a site got the advice for a virtual library, and 2.4 GB were written to one that it does not have.
#[test]
fn a_site_that_writes_to_tapes_wants_the_model_of_its_drives() {
    let site = Site::new();
    let (tree, state) = (site.path("tree"), site.dir.path().join("state"));
    std::fs::create_dir(&state).unwrap();
    for library in ["changer = \"/dev/sg99\"", "mover = \"cellar\"", "devices = [\"/dev/nst9\"]"] {
        std::fs::write(state.join("capstan.toml"), format!("[library]\n{library}\n")).unwrap();
        for more in [&[][..], &["--measure"]] {
            let (_, said) = site.run(&[&["lab", "advise", &tree], more].concat(), 2);
            assert!(said.contains("name it, as in --drive LTO-8"), "{library}: {said}");
        }
        let (_, said) = site.run(&["lab", "advise", &tree, "--drive", "LTO-8"], 2);
        assert!(said.contains("was not measured yet"), "{library}: {said}");
    }
    assert!(!state.join("library").exists(), "nothing was written");
}

/// What had been measured for minutes was lost with the way that was stopped.
#[test]
fn what_was_measured_before_ctrl_c_is_printed_and_kept() {
    let site = Site::new();
    let tree = site.path("tree");
    let ways = ["-j", "1", "--compression", "0,1,2,3,4,5,6,7", "--cache", "warm"];
    let slow = ["--rounds", "1", "--seconds", "0.5", "--slow-source", "20"];
    let mut command = capstan(&[&["lab", "null", &tree], &ways[..], &slow].concat());
    command.env("CAPSTAN_STATE", site.dir.path().join("state"));
    let mut measuring = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(measuring.stderr.take().unwrap());
    let mut lines = said.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("zstd 0: ")), "the first way was measured");
    interrupt(&measuring);
    let said: Vec<String> = lines.collect();
    let mut table = String::new();
    measuring.stdout.take().unwrap().read_to_string(&mut table).unwrap();
    assert_eq!(measuring.wait().unwrap().code(), Some(130), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("kept in ")), "{said:?}");
    assert!(table.starts_with("connections"), "{table}");
    let kept = std::fs::read_to_string(site.dir.path().join("state/laboratory.json")).unwrap();
    assert!(kept.contains("\"compression_level\": 0") && !kept.contains("\"compression_level\": 7"), "{kept}");
}

#[test]
fn a_part_that_cannot_be_measured_is_said_before_work() {
    let site = Site::new();
    let (tree, out, gone) = (site.path("tree"), site.path("out"), site.path("gone"));
    for (args, code, told) in [
        (&["lab", "null", &tree, "--cache", "direct"][..], 2, "--cache warm or cold"),
        (&["lab", "null", &tree, "--compression", "44"], 2, "levels from -7 to 19"),
        (&["lab", "null", &tree, "-j", "0"], 2, "1 to 256 connections"),
        (&["lab", "null", &gone], 1, "cannot read"),
        (&["lab", "null", &tree, "--seconds", "1e30"], 2, "0.05 s to a day"),
        (&["lab", "null", &tree, "--slow-source", "1e-30"], 2, "0.001 to 1000000 MB/s"),
        (&["lab", "drive", "--folder", &out, "--amount", "900T"], 1, "take a smaller amount"),
        (&["lab", "drive", "--folder", &out, "--sync", "0"], 2, "behind more than nothing"),
        (&["lab", "drive", "--folder", &out, "--pace", "T9840D"], 2, "leave that length out"),
        (&["lab", "advise", &tree, "--window", "0s"], 2, "a second long or longer"),
        (&["lab", "advise", &tree, "--data", "0"], 2, "a megabyte to back up, or more"),
        (&["lab", "read", &gone], 1, "cannot read"),
        (&["lab", "read", &tree, "--block", "64K,1000"], 2, "multiples of 4 KiB"),
        (&["lab", "null", &tree, "-j", "1,0"], 2, "1 to 256 connections"),
        (&["lab", "drive", "--folder", &out, "--block", "64K,4M"], 2, "leave that length out"),
        (&["lab", "staging", "--folder", &out, "--block", "4M"], 2, "blocks are of 4 KiB to 2 MiB"),
        (&["lab", "drive", "--folder", &out, "--pace", "LTO-99"], 2, "no model of a drive is named LTO-99"),
        (&["lab", "staging", "--folder", &out, "--depot", "900T"], 1, "take smaller depots"),
        (&["lab", "advise", &tree, "--drive", "LTO-99"], 2, "no model of a drive is named LTO-99"),
    ] {
        let (_, stderr) = site.run(args, code);
        assert!(stderr.contains(told), "{args:?} said:\n{stderr}");
    }
    // Not even of the ways that could be.
    let kept = std::fs::read_to_string(site.dir.path().join("state/laboratory.json")).unwrap();
    assert!(!kept.contains("mb_per_s"), "{kept}");
    // A cartridge with somebody's data on it.
    let mut init = capstan(&["init", "--volume-size", "64M"]);
    init.env("CAPSTAN_STATE", site.dir.path().join("state")).env("CAPSTAN_PASSPHRASE", "three plain words");
    assert!(init.output().unwrap().status.success());
    let mut backup = capstan(&["backup", &tree, "--quiet"]);
    backup.env("CAPSTAN_STATE", site.dir.path().join("state")).env("CAPSTAN_PASSPHRASE", "three plain words");
    assert!(backup.output().unwrap().status.success());
    let slots = site.dir.path().join("state/library/slots");
    let library = if slots.exists() { slots } else { site.dir.path().join("state/library") };
    let tape = std::fs::read_dir(library).unwrap().map(|entry| entry.unwrap().path());
    let tape = tape.into_iter().find(|path| path.extension().is_some_and(|end| end == "tape")).unwrap();
    let (_, stderr) = site.run(&["lab", "drive", "--cartridge", tape.to_str().unwrap()], 2);
    assert!(stderr.contains("only a blank cartridge is written"), "{stderr}");
    let mut verify = capstan(&["verify", &tree]);
    verify.env("CAPSTAN_STATE", site.dir.path().join("state")).env("CAPSTAN_PASSPHRASE", "three plain words");
    assert!(verify.output().unwrap().status.success(), "what was on it is there");
}

#[test]
fn a_name_that_is_no_text_is_kept_with_everything_else() {
    use std::os::unix::ffi::OsStrExt;
    let site = Site::new();
    let odd = site.dir.path().join(std::ffi::OsStr::from_bytes(b"x\xffy"));
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("file"), vec![7; 100_000]).unwrap();
    let measure = |path: &std::ffi::OsStr| {
        let mut command = capstan(&["lab", "null", "-j", "1", "--rounds", "1", "--seconds", "0.2", "--json"]);
        command.env("CAPSTAN_STATE", site.dir.path().join("state")).arg(path);
        let (printed, _) = ended(&command.output().unwrap(), &["lab", "null"], 0);
        serde_json::from_str::<serde_json::Value>(&printed).unwrap()["source"].as_str().unwrap().to_owned()
    };
    measure(Path::new(&site.path("tree")).as_os_str());
    assert!(measure(odd.as_os_str()).ends_with("x%ffy"));
    let kept = std::fs::read_to_string(site.dir.path().join("state/laboratory.json")).unwrap();
    assert!(kept.contains("x%ffy") && kept.contains("/tree\""), "{kept}");
}
