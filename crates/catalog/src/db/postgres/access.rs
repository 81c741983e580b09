//! How a database is reached: what its address says, and TLS.
//!
//! On this machine, what goes over a connection is in the clear, unless the address asks for TLS. To another machine,
//! there is no connection without it. The server's certificate is then always checked, against an authority and for
//! the host's name: whoever stood between could read the names of all files, and answer in the server's place.
//! Rejected: `sslmode=require` as libpq has it, which encrypts for whoever answers.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{CONNECT_WAIT, PATIENCE, without_password, words};
use crate::CatalogError;

/// A way to a database.
pub(super) struct Access {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Access {
    /// The way that an address describes.
    pub(super) fn to(url: &str) -> Result<Self, CatalogError> {
        Self::of(url).map_err(|reason| CatalogError::DatabaseRefused { database: without_password(url), reason })
    }

    fn of(url: &str) -> Result<Self, String> {
        let (plain, wanted) = Wanted::split(url)?;
        let mut config = Config::from_str(&plain)
            .map_err(|error| format!("{}; an address is postgres://user@host:port/database", words(&error)))?;
        let is_encrypted = wanted.is_encrypted(&config)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host("127.0.0.1");
        }
        config.application_name("capstan").connect_timeout(CONNECT_WAIT).tcp_user_timeout(PATIENCE);
        config.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        let tls = is_encrypted.then(|| wanted.tls()).transpose()?;
        Ok(Self { config, tls })
    }

    pub(super) fn connect(&self) -> Result<Client, postgres::Error> {
        match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        }
    }
}

/// What an address says of TLS, in libpq's words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Whether there is to be TLS, if it says so.
    tls: Option<bool>,
    /// The file of the authorities that may have signed the server's certificate; none: those that the machine trusts.
    authority: Option<PathBuf>,
    /// What this machine shows to the server.
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Wanted {
    /// Takes these parameters out of an address: the client library knows some of them otherwise, and some not at all.
    fn split(url: &str) -> Result<(String, Self), String> {
        let mut wanted = Self::default();
        // A password may have a question mark.
        let user_len = url.find('@').unwrap_or(0);
        let Some(address_len) = url[user_len..].find('?').map(|at| user_len + at) else {
            return Ok((url.to_owned(), wanted));
        };
        let mut rest = Vec::new();
        for parameter in url[address_len + 1..].split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "sslmode" => wanted.tls = mode(value)?,
                "sslrootcert" if value == "system" => wanted.authority = None,
                "sslrootcert" => wanted.authority = Some(whole_path(name, value)?),
                "sslcert" => wanted.certificate = Some(whole_path(name, value)?),
                "sslkey" => wanted.key = Some(whole_path(name, value)?),
                _ => rest.push(parameter),
            }
        }
        let question = if rest.is_empty() { "" } else { "?" };
        Ok((format!("{}{question}{}", &url[..address_len], rest.join("&")), wanted))
    }

    /// Whether there is TLS on the way to the hosts of an address.
    fn is_encrypted(&self, config: &Config) -> Result<bool, String> {
        let far = far_host(config);
        let is_encrypted = self.tls.unwrap_or(far.is_some());
        match far {
            Some(far) if !is_encrypted => Err(format!(
                "{far} is another machine, and nothing goes there without TLS: leave sslmode out of the address, or reach that \
                 database through a tunnel that ends here"
            )),
            _ if is_encrypted && config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_))) => {
                Err("a socket of this machine has no TLS: leave sslmode out of the address".to_owned())
            }
            _ if is_encrypted && config.get_hosts().is_empty() && !config.get_hostaddrs().is_empty() => {
                Err("TLS needs a name to compare with the server's certificate: give host beside hostaddr".to_owned())
            }
            _ if !is_encrypted && *self != (Self { tls: self.tls, ..Self::default() }) => {
                Err("it names certificates and goes without TLS: add sslmode=verify-full to the address".to_owned())
            }
            _ => Ok(is_encrypted),
        }
    }

    fn tls(&self) -> Result<MakeRustlsConnect, String> {
        let mut roots = RootCertStore::empty();
        match &self.authority {
            Some(path) => {
                for certificate in certificates("sslrootcert", path)? {
                    roots.add(certificate).map_err(|error| format!("sslrootcert={}: {error}", path.display()))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            let none = "no authority is known that may have signed the server's certificate: name its file in the address \
                        (sslrootcert=/etc/capstan/database-authority.crt)";
            return Err(none.to_owned());
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(roots);
        let config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let chain = certificates("sslcert", certificate)?;
                let failed = |why: &dyn std::fmt::Display| format!("sslkey={}: {why}", key.display());
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(&error))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| failed(&error))?
            }
            _ => return Err("sslcert and sslkey go together: give both or none".to_owned()),
        };
        Ok(MakeRustlsConnect::new(config))
    }
}

/// What `sslmode` means. The words of libpq for "with TLS, if the server likes" leave it to the host.
fn mode(value: &str) -> Result<Option<bool>, String> {
    match value {
        "disable" => Ok(Some(false)),
        "allow" | "prefer" => Ok(None),
        "require" | "verify-ca" | "verify-full" => Ok(Some(true)),
        _ => Err(format!("sslmode={value}: give verify-full or disable")),
    }
}

/// The path that a parameter names: a whole one, as the address is used in any directory.
fn whole_path(name: &str, value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(OsString::from_vec(percent_decode_str(value).collect()));
    if path.is_absolute() { Ok(path) } else { Err(format!("{name}={value}: give the whole path, from /")) }
}

fn certificates(name: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{name}={}: {why}", path.display());
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let read = read.map_err(|error| failed(&error))?;
    if read.is_empty() { Err(failed(&"there is no certificate in it (PEM)")) } else { Ok(read) }
}

/// A host of an address that is not this machine.
fn far_host(config: &Config) -> Option<String> {
    let far = |host: &Host| match host {
        Host::Tcp(name) if name != "localhost" && !name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) => {
            Some(name.clone())
        }
        _ => None,
    };
    let far_address = || config.get_hostaddrs().iter().find(|address| !address.is_loopback()).map(IpAddr::to_string);
    config.get_hosts().iter().find_map(far).or_else(far_address)
}

/// Why a server and this machine do not come to TLS, and what to do, if that is why a connection failed.
pub(super) fn tls_refusal(said: &str) -> Option<String> {
    let lower = said.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let advice = if says(&["does not support tls"]) {
        "set ssl = on in its postgresql.conf, with a certificate"
    } else if says(&["no encryption"]) {
        "that server wants TLS: add sslmode=verify-full to the address"
    } else if !says(&["certificate"]) {
        return None;
    } else if says(&["unknownissuer", "unknown issuer"]) {
        "name the file of the authority that signed the server's certificate in the address \
         (sslrootcert=/etc/capstan/database-authority.crt)"
    } else if says(&["not valid for name", "notvalidforname"]) {
        "use the host name that the server's certificate has as subjectAltName in the address"
    } else if says(&["causedasendentity"]) {
        "the server uses the certificate of an authority: make it one of its own, signed by that authority"
    } else if says(&["expired", "not valid yet"]) {
        "renew the server's certificate, or set whichever clock is wrong"
    } else {
        "see that sslcert and sslkey are what the server wants, and that its certificate is one for servers"
    };
    Some(format!("{said}: {advice}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn is_encrypted(url: &str) -> Result<bool, String> {
        let (plain, wanted) = Wanted::split(url)?;
        wanted.is_encrypted(&Config::from_str(&plain).unwrap())
    }

    #[test]
    fn what_says_how_tls_is_to_be_is_taken_out_of_an_address() {
        let url = "postgres://me:a?b@db/c?sslmode=verify-full&connect_timeout=3&sslrootcert=/etc/a%20b.crt";
        let (plain, wanted) = Wanted::split(url).unwrap();
        assert_eq!(plain, "postgres://me:a?b@db/c?connect_timeout=3");
        assert_eq!(wanted.authority.as_deref(), Some(Path::new("/etc/a b.crt")));
        let (plain, wanted) = Wanted::split("postgres://me@db/c?sslmode=disable").unwrap();
        assert_eq!((plain.as_str(), wanted.tls), ("postgres://me@db/c", Some(false)));
        let relative = Wanted::split("postgres://me@db/c?sslrootcert=a.crt").unwrap_err();
        assert!(relative.contains("the whole path"), "{relative}");
        let mistyped = Wanted::split("postgres://me@db/c?sslmode=verify_full").unwrap_err();
        assert!(mistyped.contains("give verify-full"), "{mistyped}");
    }

    #[test]
    fn nothing_goes_to_another_machine_without_tls() {
        for (url, encrypted) in [
            ("postgres://me@127.0.0.1/c", false),
            ("postgres://me@localhost/c", false),
            ("postgres:///c?host=/run/postgresql", false),
            ("postgres://me@localhost/c?sslmode=verify-full", true),
            ("postgres://me@db.example.com/c", true),
            ("postgres://me@db.example.com/c?sslmode=prefer", true),
            ("postgres://me@127.0.0.1,db.example.com/c", true),
            ("postgres://me@db.example.com/c?hostaddr=192.0.2.7", true),
            // The address is what is connected to.
            ("postgres://me@localhost/c?hostaddr=192.0.2.7", true),
        ] {
            assert_eq!(is_encrypted(url), Ok(encrypted), "{url}");
        }
        for (url, said) in [
            ("postgres://me@db.example.com/c?sslmode=disable", "another machine"),
            ("postgres://me@localhost/c?hostaddr=192.0.2.7&sslmode=disable", "another machine"),
            ("postgres:///c?host=/run/postgresql&sslmode=require", "has no TLS"),
            ("postgres:///c?hostaddr=192.0.2.7", "give host"),
            ("postgres://me@localhost/c?sslrootcert=/etc/a.crt", "add sslmode=verify-full"),
        ] {
            let refused = is_encrypted(url).unwrap_err();
            assert!(refused.contains(said), "{url}: {refused}");
        }
    }
}
