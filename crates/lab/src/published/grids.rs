//! One stream by buffers, buffer size, file size, compressibility and encryption.

use std::fmt::Write;

use capstan_tape::model::built_in;

use super::table::{Page, compared};
use crate::grid::{Cell, GridError, agreeing, mean_error, predict_grid, read_grid};
use crate::pipeline::{HostModel, PipelineJob};

const LTO4: &str = include_str!("../../published/lto4-netbackup.csv");
const T10000A: &str = include_str!("../../published/t10000a-netbackup.csv");
/// Measurements of one thing that differ by more say nothing of it.
const AGREES: f64 = 0.1;

/// The hosts that a calibration is known of: that of the LTO4 table first.
const HOSTS: [&str; 2] = [include_str!("../../hosts/lto4.toml"), include_str!("../../hosts/t10000a.toml")];

/// A table that was published.
pub struct PublishedGrid {
    /// The drive it is of.
    pub name: &'static str,
    /// The host that was calibrated against it.
    pub host: HostModel,
    /// Its rows, but for those in which it contradicts itself.
    pub cells: Vec<Cell>,
}

/// The tables that were published.
///
/// # Errors
/// A table that comes with the program is damaged.
pub fn published_grids() -> Result<Vec<PublishedGrid>, GridError> {
    let mut grids = Vec::new();
    for (name, host, text) in [("LTO4", "lto4", LTO4), ("T10000A", "t10000a", T10000A)] {
        let all = read_grid(text)?;
        let host = built_in_host(host).ok_or(GridError::Empty)?;
        // Only one of them has each row both encrypted and plain.
        let cells = if name == "LTO4" { all } else { agreeing(&all, AGREES) };
        grids.push(PublishedGrid { name, host, cells });
    }
    Ok(grids)
}

/// The calibrated host of that name: `lto4` or `t10000a`.
pub fn built_in_host(name: &str) -> Option<HostModel> {
    HOSTS.iter().filter_map(|text| HostModel::from_toml(text).ok()).find(|host| host.name == name)
}

/// The tables of both drives.
pub(super) fn grids(page: &mut Page) -> Result<(), GridError> {
    page.say("## One stream by buffers, buffer size, file size, compressibility and encryption (NetBackup; StorageTek Crypto KMS 2.0 paper)");
    page.say(
        "`capstan lab characterize --grid FILE` adds `predicted_mb_per_s` to each row of such a table. The calibration finds a\n\
         host's figures: seconds to open a file; seconds for each further read request (requests double from 32 KiB up to a\n\
         window); what the disk streams behind the window; seconds for each border of a buffer within a file; the cycle in which\n\
         the host notices that a buffer is free; how fast it copies buffers; and how little all that fluctuates. The drive gives\n\
         two more figures: what it sustains at 1:1, and its ceiling.",
    );
    page.text.push_str("| figure | host of the LTO4 table | host of the T10000A table |\n|---|--:|--:|\n");
    let hosts = ["lto4", "t10000a"].map(built_in_host);
    let [Some(lto4), Some(t10000a)] = &hosts else { return Err(GridError::Empty) };
    type Shown = (&'static str, fn(&HostModel) -> f64);
    let figures: [Shown; 8] = [
        ("open a file, ms", |host| host.open_s * 1e3),
        ("each further request, ms", |host| host.request_s * 1e3),
        ("longest request, KB", |host| host.window_kb),
        ("stream behind it, MB/s", |host| host.stream_mb_per_s),
        ("border of a buffer, ms", |host| host.border_s * 1e3),
        ("cycle of a buffer, ms", |host| host.cycle_s * 1e3),
        ("copying, MB/s", |host| host.copy_mb_per_s),
        ("steadiness", |host| host.steadiness),
    ];
    let round = |value: f64| (value * 1e3).round() / 1e3;
    for (name, figure) in figures {
        let _ = writeln!(page.text, "| {name} | {} | {} |", round(figure(lto4)), round(figure(t10000a)));
    }
    page.text.push('\n');
    page.text.push_str("| table | cells | mean absolute error | floor |\n|---|--:|--:|--:|\n");
    let mut lines = Vec::new();
    for (PublishedGrid { name, host, cells }, floor) in published_grids()?.into_iter().zip([5, 8]) {
        let error = mean_error(&cells, &predict_grid(&cells, &host)?).unwrap_or_default();
        let words = if name == "LTO4" { "" } else { ", those in which encrypted and plain agree within 10 %" };
        let _ = writeln!(page.text, "| {name}{words} | {} | {:.1} % | {floor} % |", cells.len(), error * 100.0);
        lines.push((cells, host));
    }
    page.say("\nBy length of file:");
    page.text.push_str("| file | LTO4 | T10000A |\n|---|--:|--:|\n");
    for file in ["32KB", "256KB", "1MB", "1GB", "5GB", "10GB"] {
        let mut row = format!("| {file} |");
        for (cells, host) in &lines {
            let part: Vec<Cell> = cells.iter().filter(|cell| cell.columns[4] == file).cloned().collect();
            match mean_error(&part, &predict_grid(&part, host)?) {
                Some(error) => _ = write!(row, " {:.1} % |", error * 100.0),
                None => row.push_str(" |"),
            }
        }
        page.text.push_str(&row);
        page.text.push('\n');
    }
    page.text.push('\n');
    let ms = |figure: fn(&HostModel) -> f64| {
        let [one, other] = [lto4, t10000a].map(|host| round(figure(host) * 1e3));
        if one == other { format!("{one} ms") } else { format!("{one} and {other} ms") }
    };
    let (cycle, request) = (ms(|host| host.cycle_s), ms(|host| host.request_s));
    page.say(&format!(
        "On the two hosts, the calibration finds a cycle of {cycle}, which the paper reads from its own tables, and\n\
         {request} for a further request. The paper's advice follows from the model, and is not typed in. The table shows\n\
         how many buffers are needed for three quarters of the rate that any number of them gives, with data of 10:1 as in\n\
         the table's own long files.",
    ));
    let need = |buffer_bytes: u64| -> Result<u32, GridError> {
        let drive = built_in("LTO-4").map_err(|source| GridError::Model { line: 0, source })?;
        let job = |buffers| PipelineJob { file_bytes: 1e10, buffer_bytes, buffers, ratio: 10.0, encrypted: true };
        let full = |buffers| lto4.predict(&drive, &job(buffers)).map(|prediction| prediction.mb_per_s);
        let most = full(1024).map_err(|source| GridError::Model { line: 0, source })?;
        let enough =
            [4, 8, 16, 32, 64].into_iter().find(|&buffers| full(buffers).is_ok_and(|rate| rate >= 0.75 * most));
        Ok(enough.unwrap_or(0))
    };
    page.compare(&[
        compared("buffers of 256 KB that are needed", "", 32.0, f64::from(need(256 << 10)?)),
        compared("buffers of 2 MB that are needed", "", 8.0, f64::from(need(2 << 20)?)),
    ]);
    Ok(())
}
