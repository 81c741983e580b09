//! Writes a tree to standard output as a tar archive: `source_tar /usr/share | tar --compare -C / -f -`.
#![allow(clippy::unwrap_used, reason = "a trial that cannot run stops")]

use std::io::{Stdout, Write};
use std::path::PathBuf;

use capstan_format::FileEntry;
use capstan_mover::{Progress, Stopped, StreamSink, TreeOptions, TreeSource};

struct Output {
    chunk: Vec<u8>,
    used: usize,
    position: u64,
    out: Stdout,
}

impl StreamSink for Output {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        if self.used == self.chunk.len() {
            self.out.write_all(&self.chunk).map_err(|_| Stopped)?;
            self.used = 0;
        }
        Ok(&mut self.chunk[self.used..])
    }

    fn advance(&mut self, len: usize) {
        self.used += len;
        self.position += len as u64;
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn connection(&self) -> u16 {
        0
    }

    fn member(&mut self, _: FileEntry) {}
}

fn main() {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let tree = TreeSource::new(&paths, &TreeOptions::default()).unwrap();
    let out = std::io::stdout();
    let mut sinks = [Output { chunk: vec![0; 1 << 20], used: 0, position: 0, out }];
    let report = tree.run(&mut sinks, None, &Progress::new()).unwrap();
    let [mut output] = sinks;
    let used = output.used;
    output.out.write_all(&output.chunk[..used]).unwrap();
    output.out.write_all(&[0; 1024]).unwrap();
    for problem in &report.problems {
        eprintln!("{problem}");
    }
    eprintln!("{} files, {} directories, {} bytes", report.files, report.directories, report.bytes);
}
