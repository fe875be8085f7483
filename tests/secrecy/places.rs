//! Where things end up that a server writes: receivers on loopback that keep every byte, and the search in all of it.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Bytes of a value by which it is found at first.
const WINDOW: usize = 8;

/// An HTTP server that keeps the bodies it is sent, and answers 200 with what it was sent if it is to echo.
pub(super) struct Receiver {
    pub(super) address: String,
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Receiver {
    pub(super) fn open(echoes: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
        let keeping = Arc::clone(&kept);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let keeping = Arc::clone(&keeping);
                std::thread::spawn(move || drop(stream.and_then(|stream| converse(stream, &keeping, echoes))));
            }
        });
        Self { address, kept }
    }

    pub(super) fn kept(&self) -> Vec<u8> {
        self.kept.lock().unwrap().clone()
    }
}

fn converse(mut stream: TcpStream, kept: &Mutex<Vec<u8>>, echoes: bool) -> std::io::Result<()> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65_536]);
    loop {
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        };
        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let end = head + length.unwrap_or(0_usize);
        while bytes.len() < end {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        let rest = bytes.split_off(end);
        kept.lock().unwrap().extend_from_slice(&bytes[head..]);
        let answer = if echoes { &bytes[head..] } else { b"" };
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len()).as_bytes())?;
        stream.write_all(answer)?;
        bytes = rest;
    }
}

/// All files below a directory, with what is in them; `left_out` are names at its top.
pub(super) fn files(dir: &Path, left_out: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            if left_out.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                waiting.push(path);
            } else if path.is_file() {
                found.push((name, std::fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// Finds many values, each in many forms, in one pass over a text.
pub(super) struct Search {
    /// The forms, by their first bytes.
    forms: HashMap<[u8; WINDOW], Vec<(Vec<u8>, usize)>>,
    values: Vec<String>,
}

impl Search {
    pub(super) fn new(values: Vec<String>) -> Self {
        let mut forms: HashMap<_, Vec<_>> = HashMap::new();
        for (number, value) in values.iter().enumerate() {
            for form in forms_of(value) {
                let window = form.get(..WINDOW).unwrap_or_else(|| panic!("{value} is too short")).try_into().unwrap();
                forms.entry(window).or_default().push((form, number));
            }
        }
        Self { forms, values }
    }

    /// What is found, with what stands around it.
    pub(super) fn within(&self, bytes: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        for (at, window) in bytes.windows(WINDOW).enumerate() {
            let Some(forms) = self.forms.get(window) else { continue };
            for (form, number) in forms.iter().filter(|(form, _)| bytes[at..].starts_with(form)) {
                let around = &bytes[at.saturating_sub(200)..(at + form.len() + 60).min(bytes.len())];
                found.push(format!("`{}` in: {}", self.values[*number], String::from_utf8_lossy(around)));
            }
        }
        found
    }
}

/// A value as programs write it: as it is, in JSON (twice too), base64 at each of its three places, hexadecimal, in a URL.
fn forms_of(value: &str) -> Vec<Vec<u8>> {
    let json = |text: &str| serde_json::Value::from(text).to_string().trim_matches('"').to_owned();
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url = |kept: &[u8]| -> String {
        let one = |byte: u8| match byte {
            _ if byte.is_ascii_alphanumeric() || kept.contains(&byte) => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        value.bytes().map(one).collect()
    };
    let mut forms = vec![value.to_owned(), json(value), json(&json(value)), hex.to_uppercase(), hex];
    forms.extend([url(b"-._~"), url(b"-._~/"), url(b"-._~").replace("%20", "+"), url(b"-._~").to_lowercase()]);
    for before in 0..3_usize {
        let bytes = [&vec![0; before][..], value.as_bytes()].concat();
        let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        forms.extend(
            [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
                .map(|text| text.chars().skip(first).take(end - first).collect()),
        );
    }
    forms.sort_unstable();
    forms.dedup();
    forms.into_iter().map(String::into_bytes).collect()
}

#[test]
fn a_value_is_found_in_each_of_its_forms() {
    let search = Search::new(vec!["amber \"lantern\"/x+y".to_owned()]);
    for text in [
        "see amber \"lantern\"/x+y.",
        r#"{"a":"amber \"lantern\"/x+y"}"#,
        r#"{"a":"{\"b\":\"amber \\\"lantern\\\"/x+y\"}"}"#,
        "eHhhbWJlciAibGFudGVybiIveCt5eA==",
        "616d62657220226c616e7465726e222f782b79",
        "?q=amber%20%22lantern%22%2Fx%2By",
        "?q=amber+%22lantern%22%2Fx%2By",
    ] {
        assert!(!search.within(text.as_bytes()).is_empty(), "{text}");
    }
    assert!(search.within(b"amber lantern").is_empty());
}
