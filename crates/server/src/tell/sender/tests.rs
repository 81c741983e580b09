//! Messages on their way to small servers of the tests' own, over loopback: what arrives, and what is said of what does
//! not.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, channel};

use std::path::PathBuf;
use std::sync::Arc;

use capstan_director::MailSecurity;

use super::*;
use crate::tell::message::TellItem;

/// What a server does with one connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Takes,
    Refuses,
    /// It reads, and says nothing until the other side goes.
    Hangs,
}

/// A server that meets one connection after the other, each in its mood; it gives what each said.
fn server(moods: Vec<Mood>, talk: fn(TcpStream, Mood) -> String) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (say, said) = channel();
    thread::spawn(move || {
        for mood in moods {
            let (stream, _) = listener.accept().unwrap();
            let _ = say.send(talk(stream, mood));
        }
    });
    (address, said)
}

fn smtp(stream: TcpStream, mood: Mood) -> String {
    let mut out = stream.try_clone().unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut heard = String::new();
    let mut answer = |text: &str| out.write_all(format!("{text}\r\n").as_bytes());
    if mood == Mood::Hangs {
        return lines.collect();
    }
    answer("220 mail.example.org ESMTP").unwrap();
    let mut in_data = false;
    for line in lines {
        heard += &format!("{line}\n");
        let word = line.split([' ', ':']).next().unwrap_or_default().to_uppercase();
        let said = match word.as_str() {
            _ if in_data && line != "." => continue,
            _ if in_data => {
                in_data = false;
                "250 queued"
            }
            "EHLO" => "250-mail.example.org\r\n250-AUTH PLAIN LOGIN\r\n250 8BITMIME",
            "AUTH" => "235 welcome",
            "RCPT" if mood == Mood::Refuses => "550 5.1.1 nobody of that name",
            "DATA" => {
                in_data = true;
                "354 go on"
            }
            "QUIT" => {
                let _ = answer("221 bye");
                break;
            }
            _ => "250 fine",
        };
        if answer(said).is_err() {
            break;
        }
    }
    heard
}

fn http(stream: TcpStream, mood: Mood) -> String {
    let mut out = stream.try_clone().unwrap();
    let mut from = BufReader::new(stream);
    let (mut heard, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        heard += &line;
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).unwrap();
    heard += &format!("\n{}", String::from_utf8(body).unwrap());
    let answer: &[u8] = match mood {
        Mood::Takes => b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        Mood::Refuses => b"HTTP/1.1 302 Found\r\nLocation: /else\r\nContent-Length: 4\r\nConnection: close\r\n\r\nelse",
        Mood::Hangs => {
            let _ = from.read_to_end(&mut Vec::new());
            b""
        }
    };
    let _ = out.write_all(answer);
    heard
}

fn sender(tries: usize) -> TellSender {
    let patience = TellPatience {
        network: Duration::from_millis(300),
        command: Duration::from_millis(300),
        pauses: vec![Duration::from_millis(1); tries - 1],
    };
    TellSender { host: "tern".to_owned(), mail: None, patience, secrets: vec!["HOME".to_owned()] }
}

fn message(way: TellWay) -> TellMessage {
    let item = TellItem {
        event: "failed".to_owned(),
        subject: "policy web failed (3 attempts)".to_owned(),
        text: "Run 7: /srv/b\u{e4}ume is gone".to_owned(),
        policy: "web".to_owned(),
        run: Some(12),
        ..TellMessage::test("oncall", way, 1_800_000_000_000_000_000).items.remove(0)
    };
    TellMessage { rule: "oncall".to_owned(), way, items: vec![item] }
}

fn send(sender: &TellSender, rule: &TellRule, way: TellWay) -> Result<(), String> {
    sender.send(rule, &message(way), &AtomicBool::new(false)).map_err(|error| error.to_string())
}

fn mail(address: SocketAddr, user: &str, password_file: PathBuf) -> Option<MailConfig> {
    Some(MailConfig {
        server: address.to_string(),
        security: MailSecurity::None,
        from: "capstan@example.org".to_owned(),
        user: user.to_owned(),
        password_file,
    })
}

fn to_mail() -> TellRule {
    let mail = vec!["ops@example.org".to_owned(), "night@example.org".to_owned()];
    TellRule { mail, ..TellRule::default() }
}

#[test]
fn a_mail_arrives_for_all_with_the_name_and_password_of_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "s3cret\n").unwrap();
    let (address, said) = server(vec![Mood::Takes], smtp);
    let sender = TellSender { mail: mail(address, "capstan", password), ..sender(1) };
    send(&sender, &to_mail(), TellWay::Mail).unwrap();
    let said = said.recv().unwrap();
    for line in [
        "EHLO tern",
        // capstan, s3cret
        "AUTH PLAIN AGNhcHN0YW4AczNjcmV0",
        "MAIL FROM:<capstan@example.org>",
        "RCPT TO:<ops@example.org>",
        "RCPT TO:<night@example.org>",
        "Subject: capstan tern: policy web failed (3 attempts)",
        "Auto-Submitted: auto-generated",
    ] {
        assert!(said.lines().any(|heard| heard.starts_with(line)), "{line:?} is not in\n{said}");
    }
    // What is no ASCII comes as UTF-8, in one of the ways that mail has for it.
    assert!(said.contains("charset=utf-8") && said.contains("\nMessage-ID: <"), "{said}");
}

#[test]
fn a_mail_server_that_refuses_is_asked_three_times_and_its_words_are_said() {
    let (address, said) = server(vec![Mood::Refuses; 3], smtp);
    let sender = TellSender { mail: mail(address, "", PathBuf::new()), ..sender(3) };
    let error = send(&sender, &to_mail(), TellWay::Mail).unwrap_err();
    assert!(error.contains("nobody of that name") && error.contains(&address.to_string()), "{error}");
    assert_eq!(said.iter().count(), 3);
}

#[test]
fn a_mail_server_that_hangs_is_left_and_tried_again() {
    let (address, said) = server(vec![Mood::Hangs, Mood::Takes], smtp);
    let sender = TellSender { mail: mail(address, "", PathBuf::new()), ..sender(2) };
    send(&sender, &to_mail(), TellWay::Mail).unwrap();
    assert_eq!(said.iter().count(), 2);
}

#[test]
fn mail_is_never_sent_without_the_protection_that_the_settings_want() {
    let (address, said) = server(vec![Mood::Takes], smtp);
    let mut config = mail(address, "", PathBuf::new()).unwrap();
    config.security = MailSecurity::StartTls;
    let sender = TellSender { mail: Some(config), ..sender(1) };
    send(&sender, &to_mail(), TellWay::Mail).unwrap_err();
    assert!(!said.recv().unwrap().contains("MAIL"));
    let no_password = mail(address, "capstan", PathBuf::from("/nonexistent/password"));
    let error = send(&TellSender { mail: no_password, ..sender }, &to_mail(), TellWay::Mail).unwrap_err();
    assert!(error.contains("password file /nonexistent/password"), "{error}");
}

#[test]
fn a_webhook_gets_json_and_only_2xx_counts() {
    let (address, said) = server(vec![Mood::Takes, Mood::Refuses, Mood::Hangs], http);
    let rule = TellRule { webhook: format!("http://{address}/hook?token=s3cret"), ..TellRule::default() };
    send(&sender(1), &rule, TellWay::Webhook).unwrap();
    let heard = said.recv().unwrap();
    assert!(heard.starts_with("POST /hook?token=s3cret HTTP/1.1\r\n"), "{heard}");
    let json: serde_json::Value = serde_json::from_str(heard.split("\n\n").nth(1).unwrap()).unwrap();
    let event = serde_json::json!({
        "event": "failed", "subject": "policy web failed (3 attempts)", "text": "Run 7: /srv/b\u{e4}ume is gone",
        "policy": "web", "client": null, "run": 12, "since_ns": 1_800_000_000_000_000_000_i64, "is_over": false,
    });
    assert_eq!(json, serde_json::json!({"host": "tern", "events": [event]}));
    // A redirect is not followed, and the address, which is a secret at many receivers, is not said.
    let error = send(&sender(1), &rule, TellWay::Webhook).unwrap_err();
    assert!(error.contains("302") && !error.contains("s3cret"), "{error}");
    let error = send(&sender(1), &rule, TellWay::Webhook).unwrap_err();
    assert!(error.contains("timeout") && !error.contains("s3cret"), "{error}");
}

#[test]
fn a_webhook_over_https_proves_who_it_is() {
    // What listens speaks no TLS; that it is spoken to by TLS is what is seen here.
    let (address, said) = server(vec![Mood::Refuses], |stream, _| {
        let mut first = [0; 1];
        let mut stream = stream;
        stream.read_exact(&mut first).unwrap();
        format!("{first:?}")
    });
    let rule = TellRule { webhook: format!("https://localhost:{}/", address.port()), ..TellRule::default() };
    let error = send(&sender(1), &rule, TellWay::Webhook).unwrap_err();
    let no_authorities = error.contains("ca-certificates");
    assert!(no_authorities || said.recv().unwrap() == "[22]", "a TLS handshake begins with 22: {error}");
}

/// A program that does what `script` says.
fn program(dir: &std::path::Path, script: &str) -> TellRule {
    let path = dir.join("page");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = vec![path.display().to_string(), dir.display().to_string()];
    TellRule { command, ..TellRule::default() }
}

#[test]
fn a_command_has_the_event_in_its_environment_and_json_on_its_input() {
    let dir = tempfile::tempdir().unwrap();
    let mut sender = sender(1);
    sender.patience.command = Duration::from_secs(30);
    let rule =
        program(dir.path(), r#"echo "$CAPSTAN_EVENT|$CAPSTAN_SUBJECT|${HOME-none}" > "$1/told"; cat > "$1/json""#);
    send(&sender, &rule, TellWay::Command).unwrap();
    let told = std::fs::read_to_string(dir.path().join("told")).unwrap();
    assert_eq!(told, "failed|capstan tern: policy web failed (3 attempts)|none\n");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.path().join("json")).unwrap()).unwrap();
    assert_eq!(json, message(TellWay::Command).json("tern"));
    let rule = program(dir.path(), "echo no such pager >&2; exit 3");
    let error = send(&sender, &rule, TellWay::Command).unwrap_err();
    assert!(error.contains("exit status: 3: no such pager"), "{error}");
    let nothing = TellRule { command: vec!["/nonexistent/page".to_owned()], ..TellRule::default() };
    assert!(send(&sender, &nothing, TellWay::Command).unwrap_err().contains("cannot be started"));
}

#[test]
fn a_command_that_hangs_is_killed_with_all_that_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let rule = program(dir.path(), r#"sleep 600 & echo $! > "$1/child"; wait"#);
    let mut sender = sender(1);
    sender.patience.command = Duration::from_secs(2);
    let error = send(&sender, &rule, TellWay::Command).unwrap_err();
    assert!(error.contains("was killed"), "{error}");
    let child = std::fs::read_to_string(dir.path().join("child")).unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
    let is_dead = |state: String| state.is_empty() || state.contains(") Z ");
    // It was killed, and dies as soon as the machine has a moment for it.
    let until = Instant::now() + Duration::from_secs(30);
    while !is_dead(state()) {
        assert!(Instant::now() < until, "{}", state());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sender_that_is_to_stop_tries_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let rule = program(dir.path(), "exit 1");
    let mut sender = sender(2);
    sender.patience.pauses = vec![Duration::from_secs(600)];
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    let began = Instant::now();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        stops.store(true, Ordering::Relaxed);
    });
    assert!(matches!(sender.send(&rule, &message(TellWay::Command), &stop), Err(TellError::Stopped)));
    assert!(began.elapsed() < Duration::from_secs(60));
    stopper.join().unwrap();
}
