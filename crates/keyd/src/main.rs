//! `keyd`: a node of the key-management cluster, and what people do with it.

mod program;

use std::process::ExitCode;

fn main() -> ExitCode {
    program::main()
}
