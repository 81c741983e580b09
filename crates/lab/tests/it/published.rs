//! Predictions against the tables that were published, and the page that says so.

use capstan_lab::{HostModel, agreeing, built_in_host, calibrate, mean_error, page, predict_grid, read_grid};

const START: &str = include_str!("../../hosts/start.toml");
const LTO4: &str = include_str!("../../published/lto4-netbackup.csv");
const T10000A: &str = include_str!("../../published/t10000a-netbackup.csv");

#[test]
fn a_calibration_gives_the_hosts_that_are_kept_and_meets_its_floor() {
    let start = HostModel::from_toml(START).unwrap();
    for (name, table, floor) in [("lto4", LTO4, 0.05), ("t10000a", T10000A, 0.08)] {
        let cells = read_grid(table).unwrap();
        let cells = if name == "lto4" { cells } else { agreeing(&cells, 0.1) };
        let (host, error) = calibrate(&cells, &start).unwrap();
        assert!(error <= floor, "{name}: {error}");
        let kept = built_in_host(name).unwrap();
        let kept_error = mean_error(&cells, &predict_grid(&cells, &kept).unwrap()).unwrap();
        assert!(kept_error <= error + 0.002, "{name}: {kept_error} by what is kept, {error} by {host:?}");
    }
}

#[test]
fn the_page_is_what_the_models_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/MODEL.md");
    let page = page().unwrap();
    if std::env::var_os("CAPSTAN_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept == page, "write it anew: capstan lab published >docs/MODEL.md");
}

#[test]
fn a_host_that_cannot_be_is_refused_with_its_figure() {
    let told = HostModel::from_toml(&START.replace("cycle_s = 0.03", "cycle_s = 0")).unwrap_err().to_string();
    assert_eq!(told, "start: cycle_s is 0, and must be more than 0");
}

#[test]
fn a_table_that_cannot_be_is_refused_with_its_line() {
    let head = "drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio\n";
    let told = |row: &str| {
        let host = built_in_host("lto4").unwrap();
        let cells = read_grid(&format!("{head}{row}\n"));
        cells.and_then(|cells| predict_grid(&cells, &host)).unwrap_err().to_string()
    };
    assert!(told("LTO4,0,256KB,0,1MB,1").contains("line 2 of the table cannot be read: 0 is no number of buffers"));
    assert!(told("LTO4,4,256QB,0,1MB,1").contains("QB is no unit"));
    assert!(told("LTO4,4,256KB,0,1MB,0.5").contains("not 0.5:1"));
    assert!(told("LTO2,4,256KB,0,1MB,1").contains("no model of a drive is named LTO2"));
    assert!(told("T10000A,4,8MB,0,1MB,1").contains("T10000A writes blocks of 1 to 2097152 bytes, not of 8388608"));
    assert_eq!(read_grid(head).unwrap_err().to_string(), "the table has no rows");
}
