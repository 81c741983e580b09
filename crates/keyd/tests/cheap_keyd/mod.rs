//! `examples/cheap_keyd.rs`, as cargo has built it beside the program.

use std::path::{Path, PathBuf};

/// Where it is. `cargo test` builds it; with `--test NAME`, cargo builds no example.
pub(crate) fn cheap_keyd() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_keyd")).with_file_name("examples").join("cheap_keyd");
    assert!(program.exists(), "{program:?} is not built: `cargo build -p capstan-keyd --example cheap_keyd`");
    program
}
