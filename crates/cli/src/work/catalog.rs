//! `catalog`: copies what no volume has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::{CatalogAction, CatalogOf};
use crate::failure::{Failure, director};
use crate::globals::Globals;
use crate::json;
use crate::secrets::site;
use crate::units;

pub(crate) fn catalog(cli: &Globals, of: &CatalogOf) -> Result<ExitCode, Failure> {
    let CatalogAction::Copy { directory } = &of.action;
    let site = site(cli)?;
    let to = absolute(directory)?;
    if to.starts_with(absolute(site.dir())?) {
        let why = "lies in the state directory, and would be lost with it: give a directory on another disk";
        return Err(Failure::Usage(format!("{} {why}", to.display())));
    }
    let mut copied = site.catalog().copy_to(&to.join("catalog")).map_err(director)?;
    for name in ["capstan.toml", "cell"] {
        copy(&site.dir().join(name), &to.join(name), &mut |bytes| {
            copied.files += 1;
            copied.bytes += bytes;
        })?;
    }
    let (files, bytes, directory) = (copied.files, copied.bytes, to.display().to_string());
    if cli.json {
        json::print(&json::Event::CatalogCopied { directory, files, bytes })?;
    } else if !cli.quiet {
        let files = units::counted(files, "file");
        println!("{directory} is up to date: {files}, {} copied", units::bytes(bytes));
        println!("The keys are not in it: `capstan keys export FILE` makes their copy.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies a file, or the files of a directory, which have their modes again. What is neither has no copy, and what is
/// not there is left out.
fn copy(from: &Path, to: &Path, copied: &mut dyn FnMut(u64)) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::Other(format!("cannot copy {} to {}: {error}; run the command again", from.display(), to.display()))
    };
    let Ok(about) = fs::symlink_metadata(from) else { return Ok(()) };
    if about.is_dir() {
        fs::create_dir_all(to).and_then(|()| fs::set_permissions(to, about.permissions())).map_err(failed)?;
        for entry in fs::read_dir(from).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            copy(&from.join(&name), &to.join(&name), copied)?;
        }
    } else if about.is_file() {
        // A copy that was cut short never takes the place of a whole one.
        let mut new = to.as_os_str().to_owned();
        new.push(".new");
        let written = fs::copy(from, &new).and_then(|len| {
            fs::File::open(&new)?.sync_all()?;
            fs::rename(&new, to)?;
            Ok(len)
        });
        copied(written.map_err(failed)?);
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    // Links of what is there already are followed: the state directory may be one.
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    absolute.map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
}
