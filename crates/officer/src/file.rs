//! Files that a person is given once, and that overwrite nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A new file, for its owner alone.
///
/// # Errors
/// There is a file of that name already, or none can be made there.
pub fn create(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{} exists already and is left as it is: name another file", path.display())
        }
        _ => anyhow::Error::from(error).context(format!("{} cannot be created", path.display())),
    })
}

/// Makes the name of a new file outlive a crash of the machine.
///
/// # Errors
/// The folder of the file cannot be flushed.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
