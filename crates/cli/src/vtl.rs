//! `capstan vtl`: a virtual tape library that other programs use over iSCSI.

use std::io::{Write, stderr, stdout};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_director::{key_cluster, key_store_path};
use capstan_keys::SealedStore;
use capstan_keys::cluster::ClusterPlace;
use capstan_vtl::iscsi::WirePoint;
use capstan_vtl::{
    CommandClass, ControlReply, ControlRequest, DeviceFault, Encryption, EventSeverity, FaultOrder, FaultyUnit,
    KeyAgent, LAYOUT_FILE, Layout, LibraryService, LibraryStatus, ProviderAgent, TargetEvent, TargetEvents, ask,
};
use clap::Subcommand;

use crate::args;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, VtlEvent};
use crate::progress::{Display, stop_on_interrupt};
use crate::secrets::{cluster_at, now_ns, state_dir, unlock};
use crate::table::{Table, path_text};
use crate::units;

#[derive(Debug, Subcommand)]
pub(crate) enum Vtl {
    /// Make the folder of a library: two LTO-9 drives, twenty slots, four cartridges; edit vtl.toml for others
    #[command(after_help = "Example:\n  capstan vtl init /srv/vtl")]
    Init {
        /// The library's folder
        folder: PathBuf,
    },
    /// Serve a library over iSCSI until Ctrl-C, and say what happens
    #[command(
        after_help = "Examples:\n  capstan vtl serve /srv/vtl\n  capstan vtl serve /srv/vtl --listen 192.0.2.7:3260\n  capstan vtl serve /srv/vtl --key-cluster kma1:7443 --key-identity /etc/capstan/vtl.pem\n\nDrives that are encryption agents take their keys from the key cluster that is named here; else from the key cluster, or the key store, of the state directory."
    )]
    Serve {
        /// The library's folder
        folder: PathBuf,
        /// Listen here instead of where vtl.toml says
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        keys: args::KeyCluster,
    },
    /// Show drives, places and who is logged in
    #[command(after_help = "Example:\n  capstan vtl status /srv/vtl")]
    Status {
        /// The library's folder
        folder: PathBuf,
    },
    /// Make a cartridge in a library that is being served
    #[command(after_help = "Example:\n  capstan vtl create /srv/vtl A00005L9 --capacity 100G")]
    Create {
        /// The library's folder
        folder: PathBuf,
        /// Its barcode
        barcode: String,
        /// Its capacity
        #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "10G")]
        capacity: u64,
        /// Its generation, as drives' models have it: LTO-8
        #[arg(long, value_name = "NAME")]
        generation: Option<String>,
        /// Make it write-once: what is written on it stays
        #[arg(long)]
        worm: bool,
    },
    /// Take a cartridge out of the mail slot, where a host has moved it
    #[command(after_help = "Example:\n  capstan vtl export /srv/vtl A00005L9")]
    Export {
        /// The library's folder
        folder: PathBuf,
        /// Its barcode
        barcode: String,
    },
    /// Put a cartridge that was taken out into the mail slot
    #[command(after_help = "Example:\n  capstan vtl import /srv/vtl A00005L9")]
    Import {
        /// The library's folder
        folder: PathBuf,
        /// Its barcode
        barcode: String,
    },
    /// Inject a fault, to test the programs that use the library
    #[command(after_help = inject_help())]
    Inject {
        /// The library's folder
        folder: PathBuf,
        /// Where: robot, wire, or the number of a drive from 0
        unit: String,
        /// The fault, from the list below; for `wire`, the point at which it is cut
        fault: String,
        /// The class of commands that fail [default: the class in which this fault usually occurs]
        #[arg(long, value_name = "CLASS")]
        at: Option<CommandClass>,
        /// How many of these commands succeed before the fault
        #[arg(long, value_name = "N", default_value_t = 0)]
        passing: u32,
    },
    /// End all injected faults
    #[command(after_help = "Example:\n  capstan vtl forgive /srv/vtl")]
    Forgive {
        /// The library's folder
        folder: PathBuf,
    },
}

fn inject_help() -> String {
    let wires = WirePoint::ALL.map(|point| point.to_string()).join(", ");
    format!(
        "Examples:\n  capstan vtl inject /srv/vtl 0 lose-writes:8 --passing 100\n  capstan vtl inject /srv/vtl 0 sense:3/0c/00\n  \
         capstan vtl inject /srv/vtl robot door-open:3\n  capstan vtl inject /srv/vtl wire amid-data-out --passing 10\n\n\
         Faults:\n{}\n\nClasses of commands: {}\nWhere a wire is cut: {wires}",
        DeviceFault::explained(),
        CommandClass::names()
    )
}

fn inject(
    cli: &Globals,
    folder: &Path,
    (unit, fault): (&str, &str),
    at: Option<CommandClass>,
    passing: u32,
) -> Result<ExitCode, Failure> {
    let request = match unit {
        "wire" => ControlRequest::Cut { point: fault.to_owned(), passage: passing + 1 },
        _ => {
            let unit = match unit {
                "robot" => FaultyUnit::Robot,
                number => FaultyUnit::Drive(number.parse().map_err(|_| {
                    Failure::Usage(format!(
                        "{number:?} is not a unit: use robot, wire, or the number of a drive from 0"
                    ))
                })?),
            };
            let fault: DeviceFault = fault.parse().map_err(Failure::Usage)?;
            let at = at.unwrap_or_else(|| fault.natural_class(unit));
            ControlRequest::Inject { order: FaultOrder { unit, at, passing, fault } }
        }
    };
    order(cli, folder, &request)
}

pub(crate) fn vtl(cli: &Globals, command: &Vtl) -> Result<ExitCode, Failure> {
    match command {
        Vtl::Init { folder } => init(cli, folder),
        Vtl::Serve { folder, listen, keys } => serve(cli, folder, *listen, keys),
        Vtl::Status { folder } => status(cli, folder),
        Vtl::Create { folder, barcode, capacity, generation, worm } => {
            let (barcode, generation) = (barcode.clone(), generation.clone());
            order(cli, folder, &ControlRequest::Create { barcode, capacity_bytes: *capacity, generation, worm: *worm })
        }
        Vtl::Export { folder, barcode } => order(cli, folder, &ControlRequest::Export { barcode: barcode.clone() }),
        Vtl::Import { folder, barcode } => order(cli, folder, &ControlRequest::Import { barcode: barcode.clone() }),
        Vtl::Inject { folder, unit, fault, at, passing } => inject(cli, folder, (unit, fault), *at, *passing),
        Vtl::Forgive { folder } => order(cli, folder, &ControlRequest::Forgive),
    }
}

fn init(cli: &Globals, folder: &Path) -> Result<ExitCode, Failure> {
    let path = folder.join(LAYOUT_FILE);
    let private = || std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700));
    let made = std::fs::create_dir_all(folder).and_then(|()| private()).and_then(|()| {
        let mut file = std::fs::File::options().write(true).create_new(true).open(&path)?;
        file.write_all(Layout::example().to_text().as_bytes())
    });
    match made {
        Ok(()) => {
            if cli.json {
                json::print(&VtlEvent::VtlMade { layout: path_text(path.as_os_str().as_bytes()) })?;
            } else if !cli.quiet {
                let folder = folder.display();
                writeln!(stdout(), "{} is made: edit it, then `capstan vtl serve {folder}`", path.display())
                    .map_err(Failure::output)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Failure::Other(format!("{} is there already: edit it, or name another folder", path.display())))
        }
        Err(error) => Err(Failure::Other(format!("{} cannot be made: {error}", path.display()))),
    }
}

/// Who gives the drives their keys: the cluster that was named, else that of the state directory, else its key store.
fn key_agent(cli: &Globals, named: &args::KeyCluster) -> Result<Arc<dyn KeyAgent>, Failure> {
    let dir = state_dir(cli)?;
    let named = named.identity.as_ref().map(|identity| ClusterPlace {
        identity: identity.clone(),
        nodes: named.nodes.clone(),
        site: named.site.clone().unwrap_or_default(),
    });
    let place = match named {
        None => cluster_at(&dir)?,
        named => named,
    };
    if let Some(place) = place {
        let events = Display::new(cli).events();
        return Ok(Arc::new(ProviderAgent::new(key_cluster(place, now_ns, &events))));
    }
    let store = SealedStore::open(&key_store_path(&dir), &unlock(cli)?);
    Ok(Arc::new(ProviderAgent::new(Mutex::new(store.map_err(|error| Failure::Director(error.into()))?))))
}

fn serve(
    cli: &Globals,
    folder: &Path,
    listen: Option<SocketAddr>,
    keys: &args::KeyCluster,
) -> Result<ExitCode, Failure> {
    let layout = Layout::read(folder).map_err(|error| Failure::because(&error))?;
    let wants_keys = layout.drives.iter().any(|drive| drive.encryption == Encryption::Agent);
    let agent = if wants_keys { Some(key_agent(cli, keys)?) } else { None };
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&stop);
    let service =
        LibraryService::start(folder, agent.as_ref(), listen, events(cli)).map_err(|error| Failure::because(&error))?;
    let address = service.local_address();
    if cli.json {
        json::print(&VtlEvent::Serving { target: &layout.target.name, address: address.to_string() })?;
    } else if !cli.quiet {
        let drives = service.library().drives().len();
        let name = &layout.target.name;
        writeln!(stdout(), "serving {name}: a changer and {drives} drives at {address}; Ctrl-C ends it")
            .map_err(Failure::output)?;
    }
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let lost = service.stop();
    if lost.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::Other(format!("not everything that was written is on the disk:\n  {}", lost.join("\n  "))))
}

/// Prints what happens: a line each, of JSON where that is wanted; of what is as it should be none when quiet.
fn events(cli: &Globals) -> TargetEvents {
    let (quiet, json) = (cli.quiet, cli.json);
    Arc::new(move |event: TargetEvent| {
        // Whoever read the lines and went away does not end the library.
        let _gone = match (json, event.gravity()) {
            (true, _) => serde_json::to_string(&event).map_or(Ok(()), |line| writeln!(stdout(), "{line}")),
            (false, EventSeverity::Trouble) => writeln!(stderr(), "capstan: {event}"),
            (false, EventSeverity::Notice) if quiet => Ok(()),
            (false, EventSeverity::Notice) => writeln!(stdout(), "{event}"),
        };
    })
}

fn order(cli: &Globals, folder: &Path, request: &ControlRequest) -> Result<ExitCode, Failure> {
    match ask(folder, request).map_err(|error| Failure::because(&error))? {
        ControlReply::Done(text) => {
            if cli.json {
                json::print(&VtlEvent::VtlDone { done: &text })?;
            } else if !cli.quiet {
                writeln!(stdout(), "{text}").map_err(Failure::output)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        ControlReply::Refused(reason) => Err(Failure::Other(reason)),
        ControlReply::Status(_) => Err(Failure::Other("the library answered something else".to_owned())),
    }
}

fn status(cli: &Globals, folder: &Path) -> Result<ExitCode, Failure> {
    let reply = ask(folder, &ControlRequest::Status).map_err(|error| Failure::because(&error))?;
    let ControlReply::Status(status) = reply else {
        return Err(Failure::Other("the library answered something else".to_owned()));
    };
    let mut out = stdout();
    if cli.json {
        json::print(&status)?;
        return Ok(ExitCode::SUCCESS);
    }
    show(&status, &mut out).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn show(status: &LibraryStatus, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{} at {}", status.target, status.listens)?;
    let logged_in = if status.initiators.is_empty() { "nobody".to_owned() } else { status.initiators.join(", ") };
    writeln!(out, "logged in: {logged_in}\n")?;
    let mut table = Table::new(&["PLACE", ">ADDRESS", "CARTRIDGE"]);
    let shown = |row: &&capstan_vtl::PlaceRow| row.barcode.is_some() || !row.place.starts_with("slot");
    for row in status.elements.iter().filter(shown) {
        table.row(vec![row.place.clone(), row.address.to_string(), row.barcode.clone().unwrap_or_default()]);
    }
    table.print(out)?;
    let unverified: u64 = status.drives.iter().map(|drive| drive.unverified_writes).sum();
    if unverified > 0 {
        writeln!(
            out,
            "\n{unverified} writes came from hosts that could not know where the tape stood: they do not ask after a reset"
        )?;
    }
    Ok(())
}
