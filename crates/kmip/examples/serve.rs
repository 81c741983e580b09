//! Serves KMIP in the clear on a free port of this machine alone, with objects in memory: for the replayer of the OASIS
//! cases and for trying a client out. It prints `listening on 127.0.0.1:PORT`, and never is a key manager.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use capstan_kmip::{HEADER_LEN, Limits, MemoryStore, Permitted, Requester, answer, message_len};

fn main() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;
    let mut objects = MemoryStore::new();
    for connection in listener.incoming() {
        if let Err(error) = serve(&mut connection?, &mut objects) {
            eprintln!("{error}");
        }
    }
    Ok(())
}

/// Answers one connection after another.
pub(crate) fn serve(connection: &mut TcpStream, objects: &mut MemoryStore) -> io::Result<()> {
    let requester = Requester { domain: "cases".to_owned(), permitted: Permitted::All };
    loop {
        let mut header = [0; HEADER_LEN];
        match connection.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let len = message_len(&header, &Limits::default()).map_err(io::Error::other)?;
        let mut request = vec![0; len];
        request[..HEADER_LEN].copy_from_slice(&header);
        connection.read_exact(&mut request[HEADER_LEN..])?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs();
        let decided = answer(&request, &requester, objects, i64::try_from(now_s).map_err(io::Error::other)?);
        for changes in [&decided.changes, &decided.notes] {
            objects.apply(changes).map_err(io::Error::other)?;
        }
        connection.write_all(&decided.response)?;
    }
}
