//! Heads of requests and responses: read with bounds, understood or refused, written anew.
//!
//! Where two readers of one head could disagree – two lengths, a length beside chunks, folded lines, lines without their
//! carriage return – the request is refused rather than repaired: that is how a second request is smuggled past a check.
//! Fields that are about one connection only are left out of what is passed on, and so are all `Proxy-…` ones; length,
//! encoding and `Host` are written from what was understood.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use super::answer::Answer;
use super::body::Body;
use super::target::{Authority, Target, Url};

/// As many fields a head may have.
const FIELDS_MAX: usize = 100;

/// Why a head could not be read from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadError {
    TooLarge,
    /// Bytes that no head has, known without waiting for its end.
    Malformed,
    /// The connection ended or broke before the head did.
    Ended,
}

/// The head of a request, understood.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: Target,
    pub(super) body: Body,
    /// HTTP/1.1, which knows chunks, interim answers and connections that stay.
    pub(super) is_current: bool,
    /// The client wants to go on after this one.
    pub(super) stays: bool,
    fields: Vec<Field>,
}

/// The head of a response, understood.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Body,
    reason: String,
    /// What is said about a length; answers to `HEAD` have one and no body.
    length: Option<u64>,
    fields: Vec<Field>,
}

/// One field that is passed on.
type Field = (String, Vec<u8>);

/// Reads up to and including the empty line.
pub(super) async fn read<R: AsyncBufRead + Unpin>(reader: &mut R, bytes_max: usize) -> Result<Vec<u8>, HeadError> {
    let mut head = Vec::new();
    loop {
        let piece = reader.fill_buf().await.map_err(|_| HeadError::Ended)?;
        if piece.is_empty() {
            return Err(HeadError::Ended);
        }
        let (mut used, mut complete) = (0, false);
        for &byte in piece {
            let line_ends = head.last() == Some(&b'\r');
            if line_ends != (byte == b'\n') || (byte < b' ' && !matches!(byte, b'\r' | b'\n' | b'\t')) {
                return Err(HeadError::Malformed);
            }
            // All that comes to a proxy begins with the name of a method, all that comes back with `HTTP`.
            if head.is_empty() && !byte.is_ascii_alphabetic() {
                return Err(HeadError::Malformed);
            }
            if head.len() == bytes_max {
                return Err(HeadError::TooLarge);
            }
            head.push(byte);
            used += 1;
            complete = head.ends_with(b"\r\n\r\n");
            if complete {
                break;
            }
        }
        reader.consume(used);
        if complete {
            return Ok(head);
        }
    }
}

// --------------------------------------------------------------------------------------------------------- Request

impl Request {
    pub(super) fn parse(head: &[u8]) -> Result<Self, Answer> {
        let mut slots = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut slots);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(Answer::new(431, "the request has too many fields")),
            Ok(httparse::Status::Partial) | Err(_) => return Err(Answer::NOT_HTTP),
        }
        let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Answer::NOT_HTTP);
        };
        let is_current = minor >= 1;
        let framing =
            Framing::read(parsed.headers).ok_or(Answer::new(400, "the length of the request is not clear"))?;
        let body = match (framing.chunked, framing.length) {
            (true, _) if !is_current => return Err(Answer::new(400, "HTTP/1.0 has no chunks")),
            (true, _) => Body::Chunked,
            (false, Some(length)) => Body::Length(length),
            (false, None) => Body::None,
        };
        let target = Target::parse(method, target)?;
        check_host(parsed.headers, is_current && matches!(target, Target::Forward(_)))?;
        if matches!(target, Target::Tunnel(_)) && !matches!(body, Body::None | Body::Length(0)) {
            return Err(Answer::new(400, "CONNECT has no body"));
        }
        let stays = is_current && !has_token(parsed.headers, "connection", "close");
        let fields = end_to_end(parsed.headers, &["host"]);
        Ok(Self { method: method.to_owned(), target, body, is_current, stays, fields })
    }

    /// The head for upstream. Its connection serves this request only.
    pub(super) fn render(&self, url: &Url) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, url.path, url.host_field).into_bytes();
        write_fields(&mut head, &self.fields);
        match self.body {
            Body::Chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Body::Length(length) => head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes()),
            Body::None | Body::UntilEnd => {}
        }
        head.extend_from_slice(b"Connection: close\r\n\r\n");
        head
    }
}

/// What is in `Host` is replaced by the host of the URL, but it has to be one, and only one.
fn check_host(fields: &[httparse::Header<'_>], needed: bool) -> Result<(), Answer> {
    let mut hosts = values(fields, "host");
    let bad = || Answer::new(400, "the request must have one field `Host`, with a host");
    match (hosts.next(), hosts.next()) {
        (None, _) if needed => Err(bad()),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err(bad()),
        (Some(host), None) => {
            let host = std::str::from_utf8(host).ok().filter(|h| h.bytes().all(|b| b.is_ascii_graphic()));
            Authority::parse(host.ok_or_else(bad)?, Some(80)).map_err(|_| bad()).map(drop)
        }
    }
}

// -------------------------------------------------------------------------------------------------------- Response

impl Response {
    /// Reads the answer to a request with this method.
    pub(super) fn parse(head: &[u8], method: &str) -> Result<Self, Answer> {
        let mut slots = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut slots);
        let complete = parsed.parse(head).is_ok_and(|status| status.is_complete());
        let (true, Some(status)) = (complete, parsed.code) else {
            return Err(Answer::BAD_UPSTREAM);
        };
        let framing = Framing::read(parsed.headers).ok_or(Answer::BAD_UPSTREAM)?;
        let body = match (status, framing.chunked, framing.length) {
            (100..=199 | 204 | 304, ..) => Body::None,
            _ if method == "HEAD" => Body::None,
            (_, true, _) => Body::Chunked,
            (_, false, Some(length)) => Body::Length(length),
            (_, false, None) => Body::UntilEnd,
        };
        let length = framing.length.filter(|_| !matches!(status, 100..=199 | 204));
        let reason = parsed.reason.unwrap_or_default().to_owned();
        Ok(Self { status, body, reason, length, fields: end_to_end(parsed.headers, &[]) })
    }

    /// Is another one to come?
    pub(super) const fn is_interim(&self) -> bool {
        matches!(self.status, 100..=199)
    }

    /// The head for the client, with chunks if it knows them, and whether its connection ends with this one.
    pub(super) fn render(&self, chunked: bool, last: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, self.reason).into_bytes();
        write_fields(&mut head, &self.fields);
        if let Some(length) = self.length {
            head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        if chunked {
            head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        if last && !self.is_interim() {
            head.extend_from_slice(b"Connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

// ----------------------------------------------------------------------------------------------------------- parts

/// What a head says about the length of its body.
struct Framing {
    length: Option<u64>,
    chunked: bool,
}

impl Framing {
    /// `None` if two readers could understand it in two ways.
    fn read(fields: &[httparse::Header<'_>]) -> Option<Self> {
        let (mut lengths, mut encodings) = (values(fields, "content-length"), values(fields, "transfer-encoding"));
        let (length, encoding) = (lengths.next(), encodings.next());
        if lengths.next().is_some() || encodings.next().is_some() || (length.is_some() && encoding.is_some()) {
            return None;
        }
        let length = match length {
            // No sign, no list, nothing but digits.
            Some(digits) if digits.iter().all(u8::is_ascii_digit) => {
                Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
            }
            Some(_) => return None,
            None => None,
        };
        if encoding.is_some_and(|value| !value.eq_ignore_ascii_case(b"chunked")) {
            return None;
        }
        Some(Self { length, chunked: encoding.is_some() })
    }
}

fn values<'h>(fields: &'h [httparse::Header<'h>], name: &'static str) -> impl Iterator<Item = &'h [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// Is the word in a list of words?
fn has_token(fields: &[httparse::Header<'_>], name: &'static str, token: &str) -> bool {
    values(fields, name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Fields about one connection, or written anew.
const HOP_BY_HOP: [&str; 8] =
    ["connection", "content-length", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// The fields that concern both ends.
fn end_to_end(fields: &[httparse::Header<'_>], without: &[&str]) -> Vec<Field> {
    let is_kept = |name: &str| {
        let listed = |names: &[&str]| names.iter().any(|n| name.eq_ignore_ascii_case(n));
        let for_proxies = name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("proxy-"));
        !listed(&HOP_BY_HOP) && !listed(without) && !for_proxies && !has_token(fields, "connection", name)
    };
    fields
        .iter()
        .filter(|field| is_kept(field.name))
        .map(|field| (field.name.to_owned(), field.value.to_vec()))
        .collect()
}

fn write_fields(head: &mut Vec<u8>, fields: &[Field]) {
    for (name, value) in fields {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn read_whole(bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, HeadError> {
        let mut reader = bytes;
        read(&mut reader, bytes_max).await
    }

    #[tokio::test]
    async fn a_head_ends_at_its_empty_line_and_its_lines_in_two_characters() {
        for (bytes, expected) in [
            ("A\r\n\r\nrest", Ok("A\r\n\r\n")),
            ("A\tb\r\n\r\n", Ok("A\tb\r\n\r\n")),
            ("A\r\n", Err(HeadError::Ended)),
            ("", Err(HeadError::Ended)),
            ("A\n\n", Err(HeadError::Malformed)),
            ("A\rB", Err(HeadError::Malformed)),
            ("A\r\r\n", Err(HeadError::Malformed)),
            ("A\0", Err(HeadError::Malformed)),
            ("\r\n\r\n", Err(HeadError::Malformed)),
            ("AAAAAAAAAAAAAAAA\r\n\r\n", Err(HeadError::TooLarge)),
        ] {
            let expected = expected.map(|head| head.as_bytes().to_vec());
            assert_eq!(read_whole(bytes.as_bytes(), 16).await, expected, "{bytes:?}");
        }
    }

    /// Names and values of fields as attackers write them, beside harmless ones.
    fn field() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            "Host",
            "host",
            "Content-Length",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "X-A",
            "TE",
            "Proxy-X",
            "Transfer-Encoding ",
            " X",
            "Upgrade",
        ]);
        let value = prop::sample::select(vec![
            "a",
            "0",
            "5",
            "05",
            "5,5",
            "-5",
            "chunked",
            "Chunked",
            "chunked,chunked",
            "x-a",
            "close",
            "host",
            "",
            "\u{b}chunked",
            "a b",
        ]);
        (name, value).prop_map(|(name, value)| format!("{name}: {value}\r\n"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn what_is_passed_on_has_one_meaning(fields in prop::collection::vec(field(), 0..6), minor in 0..2) {
            let head = format!("POST http://a.test/p HTTP/1.{minor}\r\n{}\r\n", fields.concat());
            let Ok(request) = Request::parse(head.as_bytes()) else { return Ok(()) };
            let Target::Forward(url) = &request.target else { return Err(TestCaseError::fail("a tunnel")) };
            let passed = String::from_utf8(request.render(url)).unwrap();
            let lower = passed.to_ascii_lowercase();
            let times = |name: &str| lower.matches(&format!("\r\n{name}:")).count();
            prop_assert!(passed.starts_with("POST /p HTTP/1.1\r\nHost: a.test\r\n"), "{}", passed);
            prop_assert_eq!(times("host"), 1);
            prop_assert!(times("content-length") + times("transfer-encoding") <= 1, "{}", passed);
            prop_assert_eq!((times("connection"), times("te"), times("upgrade"), times("proxy-x")), (1, 0, 0, 0));
            // A second reader sees the same body.
            let again = Request::parse(passed.replacen(" /p ", " http://a.test/p ", 1).as_bytes()).unwrap();
            prop_assert_eq!(again.body, request.body);
        }

        #[test]
        fn no_bytes_are_too_strange_to_be_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let head = [b"GET http://a.test/ HTTP/1.1\r\nHost: a\r\nX: ", &bytes[..], b"\r\n\r\n"].concat();
            for head in [&bytes, &head] {
                let (request, response) = (Request::parse(head), Response::parse(head, "GET"));
                prop_assert!(request.is_err() || response.is_err());
            }
        }
    }
}
