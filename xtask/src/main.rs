//! Work on the project itself.
fn main() {}
