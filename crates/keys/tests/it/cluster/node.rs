//! A node's HTTPS door and nothing behind it: what it answers the test says. For what a real node seldom does on
//! request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use capstan_keys::api::{
    Base64, ClusterId, EPOCH_HEADER, IssuedCertificate, KmaMember, KmaState, Problem, REQUEST_ID_HEADER, RequestId,
};
use capstan_keys::cluster::{ClusterPlace, provider};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, version};
use serde_json::Value;

/// What is asked of a node.
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) request: RequestId,
    pub(crate) body: Value,
}

/// What it does about it.
pub(crate) enum Reply {
    Json(Value),
    Problem(Box<Problem>),
    /// It takes the question and breaks the connection.
    Nothing,
    /// It takes the question, and answers once this holds no more.
    Late(Arc<AtomicBool>, Box<Reply>),
}

impl Reply {
    pub(crate) fn of(answer: &impl serde::Serialize) -> Self {
        Self::Json(serde_json::to_value(answer).unwrap())
    }
}

type Script = Box<dyn FnMut(&Asked) -> Reply + Send>;

/// An authority that signs whatever it is told to.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

pub(crate) const AGENT: &str = "agent/mover1";
const CLUSTER: ClusterId = ClusterId([0xc1; 16]);

fn parameters(peer: &str, serial: u8) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    // Two thirds of it are over in 2040.
    (parameters.not_before, parameters.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2050, 1, 1));
    parameters.distinguished_name.push(DnType::OrganizationName, CLUSTER.to_string());
    parameters.serial_number = Some(SerialNumber::from_slice(&[serial; 16]));
    if !peer.is_empty() {
        parameters.subject_alt_names.push(SanType::URI(format!("capstan:{peer}").try_into().unwrap()));
    }
    parameters
}

impl Authority {
    fn new() -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut own = parameters("", 1);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = own.self_signed(&pair).unwrap().der().clone();
        Self { issuer: Issuer::new(own, pair), certificate }
    }

    fn peer(&self, peer: &str, serial: u8) -> (KeyPair, CertificateDer<'static>) {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let certificate = parameters(peer, serial).signed_by(&pair, &self.issuer).unwrap();
        (pair, certificate.der().clone())
    }

    /// A certificate for a signing request of the agent.
    pub(crate) fn renew(&self, request: &Base64, serial: u8) -> IssuedCertificate {
        self.renew_from(2020, request, serial)
    }

    /// The same by a clock of that year.
    pub(crate) fn renew_from(&self, year: i32, request: &Base64, serial: u8) -> IssuedCertificate {
        let request = CertificateSigningRequestDer::from(request.0.as_slice());
        let mut asked = CertificateSigningRequestParams::from_der(&request).unwrap();
        asked.params = parameters(AGENT, serial);
        asked.params.not_before = date_time_ymd(year, 1, 1);
        let certificate = asked.signed_by(&self.issuer).unwrap();
        IssuedCertificate {
            certificate: Base64(certificate.der().to_vec()),
            authority: Base64(self.certificate.to_vec()),
        }
    }
}

/// Some nodes of one cluster with one script, and an agent's identity.
pub(crate) struct Nodes {
    folder: tempfile::TempDir,
    pub(crate) authority: Arc<Authority>,
    pub(crate) addresses: Vec<String>,
    /// What was asked of any of them, in order, but who the members are.
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    script: Arc<Mutex<Script>>,
    /// The epoch that each of them tells; 0 if it tells none.
    pub(crate) epochs: Arc<Vec<AtomicU32>>,
    stop: Arc<AtomicBool>,
    threads: Vec<(SocketAddr, JoinHandle<()>)>,
}

impl Nodes {
    pub(crate) fn start(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::new());
        let (pair, certificate) = authority.peer(AGENT, 2);
        let pem = |label: &str, bytes: &[u8]| {
            let text = serde_json::to_string(&Base64(bytes.to_vec())).unwrap();
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", text.trim_matches('"'))
        };
        let identity = pem("PRIVATE KEY", pair.serialized_der())
            + &pem("CERTIFICATE", &certificate)
            + &pem("CERTIFICATE", &authority.certificate);
        write_private(&folder.path().join("agent.pem"), &identity);

        let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let member = |(number, address): (usize, &SocketAddr)| KmaMember {
            name: format!("kma{}", number + 1),
            site: String::new(),
            address: address.to_string(),
            state: KmaState::Serving,
        };
        let members: Vec<_> = addresses.iter().enumerate().map(member).collect();
        let script: Arc<Mutex<Script>> =
            Arc::new(Mutex::new(Box::new(|asked| panic!("nothing answers {}", asked.path))));
        let (asked, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut nodes = Self {
            folder,
            authority,
            addresses: addresses.iter().map(SocketAddr::to_string).collect(),
            asked,
            script,
            epochs: Arc::new((0..count).map(|_| AtomicU32::new(0)).collect()),
            stop,
            threads: Vec::new(),
        };
        for (number, listener) in listeners.into_iter().enumerate() {
            let door = Arc::new(nodes.door(number, members.clone()));
            let (address, stop) = (addresses[number], Arc::clone(&nodes.stop));
            let thread = std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (door, stream) = (Arc::clone(&door), stream.unwrap());
                    // A connection that breaks is the other side's to tell of.
                    std::thread::spawn(move || drop(door.serve(stream)));
                }
            });
            nodes.threads.push((address, thread));
        }
        nodes
    }

    fn door(&self, number: usize, members: Vec<KmaMember>) -> Door {
        let (pair, certificate) = self.authority.peer(&format!("kma/kma{}", number + 1), 3);
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.serialize_pem().as_bytes()).unwrap();
        let tls = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13]).unwrap();
        let tls = tls.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
        let epoch = (Arc::clone(&self.epochs), number);
        Door { tls: Arc::new(tls), members, asked: Arc::clone(&self.asked), script: Arc::clone(&self.script), epoch }
    }

    pub(crate) fn answer(&self, script: impl FnMut(&Asked) -> Reply + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    pub(crate) fn place(&self) -> ClusterPlace {
        ClusterPlace { identity: self.identity(), nodes: self.addresses.clone(), site: String::new() }
    }

    pub(crate) fn identity(&self) -> PathBuf {
        self.folder.path().join("agent.pem")
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.path.clone()).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (address, thread) in self.threads.drain(..) {
            let _ = TcpStream::connect(address);
            let _ = thread.join();
        }
    }
}

fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

struct Door {
    tls: Arc<ServerConfig>,
    members: Vec<KmaMember>,
    asked: Arc<Mutex<Vec<Asked>>>,
    script: Arc<Mutex<Script>>,
    epoch: (Arc<Vec<AtomicU32>>, usize),
}

impl Door {
    /// One question, one answer, and the connection is closed; each on a thread of its own, as a node serves.
    fn serve(&self, socket: TcpStream) -> std::io::Result<()> {
        let connection = ServerConnection::new(Arc::clone(&self.tls)).map_err(std::io::Error::other)?;
        let mut stream = BufReader::new(StreamOwned::new(connection, socket));
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some(path) = line.split(' ').nth(1).map(str::to_owned) else { return Ok(()) };
        let (mut body_len, mut request) = (0, RequestId([0; 16]));
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => body_len = value.parse().unwrap(),
                REQUEST_ID_HEADER => request = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; body_len];
        stream.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let reply = match path.as_str() {
            "/v1/kmas" => Reply::of(&self.members),
            _ => {
                let asked = Asked { path, request, body };
                let reply = (self.script.lock().unwrap())(&asked);
                self.asked.lock().unwrap().push(asked);
                reply
            }
        };
        let reply = match reply {
            Reply::Late(holds, reply) => {
                while holds.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                *reply
            }
            reply => reply,
        };
        let (status, kind, answer) = match reply {
            Reply::Nothing | Reply::Late(..) => return Ok(()),
            Reply::Json(answer) => (200, "application/json", answer.to_string()),
            Reply::Problem(problem) => {
                (problem.status, "application/problem+json", serde_json::to_string(&problem).unwrap())
            }
        };
        let (epochs, number) = &self.epoch;
        let epoch = match epochs[*number].load(Ordering::Relaxed) {
            0 => String::new(),
            epoch => format!("{EPOCH_HEADER}: {epoch}\r\n"),
        };
        let head = format!(
            "HTTP/1.1 {status} so\r\ncontent-type: {kind}\r\n{epoch}content-length: {}\r\nconnection: close\r\n\r\n",
            answer.len()
        );
        let stream = stream.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(answer.as_bytes())?;
        stream.conn.send_close_notify();
        stream.flush()
    }
}
