//! What was measured on, in words: processor, memory, kernel, file system, and the versions of the peers.

use std::fs;
use std::thread;

use super::measure::Stage;
use crate::amount::shown_bytes;

/// Lines for the report.
pub(super) fn describe(stage: &Stage) -> Vec<String> {
    let mut lines = describe_machine(stage);
    lines.push(format!("{} for data sets and volumes", said(stage, "df --output=fstype . | tail -n 1")));
    let versions = said(
        stage,
        "tar --version | sed -n 1p; bsdtar --version | cut -d ' ' -f 1,2; echo \"zstd $(zstd --version | grep -o 'v[0-9][0-9.]*')\"
        echo \"age $(age --version)\"; restic version | cut -d ' ' -f 1,2; borg --version",
    );
    lines.push(versions.lines().collect::<Vec<_>>().join(", "));
    lines
}

/// What a script prints.
fn said(stage: &Stage, script: &str) -> String {
    stage.run(script).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Lines about the machine, whatever is measured on it.
pub(super) fn describe_machine(stage: &Stage) -> Vec<String> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let memory = field("/proc/meminfo", "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse().ok());
    let memory = memory.map_or_else(|| "unknown".to_owned(), |kib: u64| shown_bytes(kib << 10));
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let system = field_of(&fs::read_to_string("/etc/os-release").unwrap_or_default(), "PRETTY_NAME", '=');
    vec![
        format!("{cores} cores of {model}, {memory} of memory"),
        format!("{}, Linux {}", system.unwrap_or_default().trim_matches('"'), said(stage, "uname -r")),
    ]
}

fn field(file: &str, name: &str) -> Option<String> {
    field_of(&fs::read_to_string(file).ok()?, name, ':')
}

fn field_of(text: &str, name: &str, separator: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}
