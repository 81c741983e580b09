//! What a scraper sees, by `prometheus_client` for Python (package python3-prometheus-client), whose parser of
//! OpenMetrics is strict.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const PARSE: &str = r"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
samples = [[s.name, s.labels, s.value] for f in text_string_to_metric_families(sys.stdin.read()) for s in f.samples]
json.dump(samples, sys.stdout)
";

/// A scrape, parsed.
pub(crate) struct Scraped(Vec<Value>);

impl Scraped {
    pub(crate) fn from(address: &str) -> Self {
        let (status, text) = get(address, "/metrics");
        assert_eq!(status, 200, "{text}");
        let mut python = Command::new("/usr/bin/python3");
        let python = python.args(["-c", PARSE]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = python.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let parsed = child.wait_with_output().unwrap();
        assert!(parsed.status.success(), "{text}\n{}", String::from_utf8_lossy(&parsed.stderr));
        Self(serde_json::from_slice(&parsed.stdout).unwrap())
    }

    /// The value of a sample with at least these labels.
    pub(crate) fn number(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits =
            |sample: &&Value| sample[0] == name && labels.iter().all(|(label, value)| sample[1][*label] == *value);
        self.0.iter().find(fits).and_then(|sample| sample[2].as_f64())
    }

    pub(crate) fn label_values(&self) -> impl Iterator<Item = &str> {
        let labels = self.0.iter().filter_map(|sample| sample[1].as_object());
        labels.flat_map(|labels| labels.values().filter_map(Value::as_str))
    }
}

/// One request over plain HTTP: status and body.
pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
