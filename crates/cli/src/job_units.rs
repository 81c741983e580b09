//! The systemd units of jobs, made for the state directory, the library and the key file that there are.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use capstan_director::Site;

use crate::failure::Failure;
use crate::globals::Globals;
use crate::json;

const SERVICE: (&str, &str) = ("capstan-backup@.service", include_str!("../../../packaging/capstan-backup@.service"));
const TIMER: (&str, &str) = ("capstan-backup@.timer", include_str!("../../../packaging/capstan-backup@.timer"));

/// Writes both units into a directory, and says how they are started.
pub(crate) fn write(cli: &Globals, site: &Site, dir: &Path) -> Result<ExitCode, Failure> {
    let service = service(cli, site)?;
    let fault =
        |path: &Path, error: &std::io::Error| Failure::Other(format!("cannot write {}: {error}", path.display()));
    std::fs::create_dir_all(dir).map_err(|error| fault(dir, &error))?;
    let mut written = Vec::new();
    for (name, text) in [(SERVICE.0, service.as_str()), TIMER] {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| fault(&path, &error))?;
        written.push(path.display().to_string());
    }
    if cli.json {
        json::print(&json::Event::UnitsWritten { files: written })?;
        return Ok(ExitCode::SUCCESS);
    }
    written.iter().for_each(|path| println!("{path}"));
    if cli.key_file.is_none() {
        println!(
            "The service opens the key store with /etc/capstan/capstan.key. If there is none: `capstan keys add --new-key-file /etc/capstan/capstan.key`"
        );
    }
    let job = site.config().jobs.keys().find(|name| !site.is_policy(name)).map_or("JOB", String::as_str);
    println!("Start a job by the clock: systemctl daemon-reload && systemctl enable --now capstan-backup@{job}.timer");
    println!("Another time than 02:30, another path to write to: systemctl edit");
    Ok(ExitCode::SUCCESS)
}

/// The service with the paths of this machine.
fn service(cli: &Globals, site: &Site) -> Result<String, Failure> {
    let absolute = |path: &Path| -> Result<String, Failure> {
        let path = std::path::absolute(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        word(&path)
    };
    let program =
        std::env::current_exe().map_err(|error| Failure::Other(format!("cannot tell where capstan is: {error}")))?;
    let state = absolute(site.dir())?;
    let mut paths = state.clone();
    for (_, library) in site.config().all_libraries().filter(|(_, library)| library.is_folder_here()) {
        let folder = absolute(&site.dir().join(&library.path))?;
        if !Path::new(&folder).starts_with(&state) {
            paths = format!("{paths} {folder}");
        }
    }
    let mut text = SERVICE.1.replace("/usr/bin/capstan", &word(&program)?);
    if let Some(key_file) = &cli.key_file {
        text = text.replace("/etc/capstan/capstan.key", &absolute(key_file)?);
    }
    // The longer ones first: the state directory is part of them.
    text = text.replace("RequiresMountsFor=/var/lib/capstan", &format!("RequiresMountsFor={paths}"));
    text = text.replace("ReadWritePaths=/var/lib/capstan", &format!("ReadWritePaths={paths}"));
    Ok(text.replace("CAPSTAN_STATE=/var/lib/capstan", &format!("CAPSTAN_STATE={state}")))
}

/// A path as a unit takes it: systemd cuts at blanks, and reads `%` and quotes.
fn word(path: &Path) -> Result<String, Failure> {
    let text = PathBuf::from(path).into_os_string().into_string();
    match text {
        Ok(text) if !text.contains([' ', '\t', '\n', '%', '"', '\'', '\\', '$']) => Ok(text),
        _ => Err(Failure::Usage(format!(
            "{} has characters that systemd reads as its own: give it a plain path, by a link if need be",
            path.display()
        ))),
    }
}
