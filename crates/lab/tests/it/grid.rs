//! Grids that are made, not read.

use capstan_lab::{GridAxes, GridError, built_in_host, make_grid, predict_grid, read_grid};
use capstan_tape::model::built_in_names;

const LTO4: &str = include_str!("../../published/lto4-netbackup.csv");
const T10000A: &str = include_str!("../../published/t10000a-netbackup.csv");

#[test]
fn the_papers_grid_has_their_rows_and_predicts_the_same_of_them() {
    for (drive, table, host) in [("LTO4", LTO4, "lto4"), ("T10000A", T10000A, "t10000a")] {
        let host = built_in_host(host).unwrap();
        let made = make_grid(&GridAxes::of_papers(vec![drive.to_owned()])).unwrap();
        let made_predictions = predict_grid(&made, &host).unwrap();
        let read = read_grid(table).unwrap();
        let read_predictions = predict_grid(&read, &host).unwrap();
        for (cell, prediction) in read.iter().zip(&read_predictions) {
            let found: Vec<_> = made.iter().zip(&made_predictions).filter(|(made, _)| made.job == cell.job).collect();
            assert_eq!(found.len(), 1, "{:?}", cell.columns);
            assert_eq!(found[0].1, prediction, "{:?}", cell.columns);
            // Only the drive's name is written otherwise.
            assert_eq!(found[0].0.columns[1..], cell.columns[1..]);
        }
    }
}

#[test]
fn what_is_made_can_be_read_again() {
    let axes = GridAxes {
        buffer_bytes: Some(vec![64 << 10, 100_000]),
        file_bytes: vec![1, 1500, 3 << 30],
        ratios: vec![1.0, 2.5],
        ..GridAxes::of_papers(vec!["lto6".to_owned(), "TS 1160".to_owned()])
    };
    let made = make_grid(&axes).unwrap();
    assert_eq!(made.len(), 2 * 4 * 2 * 3 * 2 * 2);
    assert_eq!(made, make_grid(&axes).unwrap());
    assert_eq!(made[0].columns, ["LTO-6", "4", "64KB", "0", "1", "1"]);
    let head = "drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio";
    let rows: Vec<_> = made.iter().map(|cell| cell.columns.join(",")).collect();
    assert_eq!(read_grid(&format!("{head}\n{}\n", rows.join("\n"))).unwrap(), made);
}

#[test]
fn every_drive_has_a_grid_of_the_sizes_that_it_writes() {
    let host = built_in_host("lto4").unwrap();
    let grid = |drive: &str| make_grid(&GridAxes::of_papers(vec![drive.to_owned()])).unwrap();
    for drive in built_in_names() {
        let grid = grid(drive);
        assert!(predict_grid(&grid, &host).unwrap().iter().all(|one| one.mb_per_s > 0.0), "{drive}");
    }
    let has = |drive: &str, size: &str| grid(drive).iter().any(|cell| cell.columns[2] == size);
    assert!(has("LTO-4", "8MB") && has("T10000A", "2MB") && !has("T10000A", "8MB") && !has("T9840C", "512KB"));
}

#[test]
fn a_drive_that_does_not_encrypt_has_no_encrypted_rows() {
    let host = built_in_host("lto4").unwrap();
    for drive in ["LTO-3", "SDLT-220", "T9840C"] {
        let axes = GridAxes::of_papers(vec![drive.to_owned()]);
        let rows = make_grid(&axes).unwrap();
        assert!(!rows.is_empty() && rows.iter().all(|row| !row.job.encrypted), "{drive}");
        let asked = GridAxes { encrypted: Some(vec![true]), ..axes };
        let told = make_grid(&asked).unwrap_err().to_string();
        assert!(told.starts_with(&format!("{drive} does not encrypt: leave --encrypted out")), "{told}");
    }
    let table = "drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio\nLTO-3,32,256KB,1,1GB,2\n";
    let told = predict_grid(&read_grid(table).unwrap(), &host).unwrap_err().to_string();
    assert_eq!(told, "line 2 of the table: LTO-3 does not encrypt");
}

#[test]
fn a_grid_that_cannot_be_is_refused_as_a_whole() {
    let axes = GridAxes::of_papers(vec!["LTO-8".to_owned(), "T10000A".to_owned()]);
    let told = |axes: GridAxes| make_grid(&axes).unwrap_err();
    let block = told(GridAxes { buffer_bytes: Some(vec![256 << 10, 8 << 20]), ..axes.clone() });
    assert!(matches!(block, GridError::Block { .. }));
    assert_eq!(
        block.to_string(),
        "T10000A writes blocks of 1 to 2097152 bytes, not of 8388608: leave that buffer size out, or make a grid of its own for \
         that drive"
    );
    let unknown = told(GridAxes::of_papers(vec!["LTO-8".to_owned(), "LTO-2".to_owned()]));
    assert!(unknown.to_string().contains("no model of a drive is named LTO-2; there are"), "{unknown}");
    for (wrong, word) in [
        (GridAxes { drives: vec![], ..axes.clone() }, "one drive"),
        (GridAxes { buffers: vec![0], ..axes.clone() }, "0 is no number of buffers"),
        (GridAxes { file_bytes: vec![0], ..axes.clone() }, "files of 0 bytes"),
        (GridAxes { ratios: vec![1.0, 0.5], ..axes.clone() }, "not 0.5:1"),
        (GridAxes { ratios: vec![f64::INFINITY], ..axes.clone() }, "not inf:1"),
        (GridAxes { buffers: vec![1; 20_000], ..axes.clone() }, "more than a million rows"),
    ] {
        let told = told(wrong).to_string();
        assert!(told.contains(word), "{told}");
    }
    assert!(matches!(told(GridAxes { buffer_bytes: Some(vec![0]), ..axes }), GridError::Block { .. }));
}
