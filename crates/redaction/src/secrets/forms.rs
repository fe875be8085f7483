//! Secrets that are of no one provider: private keys, web tokens, headers, users of URLs, secrets of Kubernetes.

use super::open_end::OpenEnd;
use super::plausible;
use crate::boundary::{at, before, begins, is_word, line_before, mentions, run};
use crate::findings::{RedactionFinding, RedactionKind};

/// How much of a private key is looked at, header included.
const PRIVATE_KEY_MAX: usize = 16 * 1024;
/// Shortest body of one.
const PRIVATE_KEY_MIN: usize = 24;
/// How much of a Kubernetes object is looked at around its kind for its data; the data is read to its end.
const OBJECT_MAX: usize = 4 * 1024;

pub(super) type Place = Option<(usize, usize)>;
/// A place, and how it goes on behind what was looked at.
pub(super) type OpenPlace = Option<(usize, usize, OpenEnd)>;

const fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=')
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// `-----BEGIN … PRIVATE KEY-----` to its end, or as far as it goes.
pub(super) fn private_key(bytes: &[u8], start: usize) -> OpenPlace {
    let block = bytes.get(start..bytes.len().min(start + PRIVATE_KEY_MAX))?;
    let label_end = 11 + find(block.get(11..block.len().min(80))?, b"-----")?;
    let label = block.get(11..label_end)?;
    find(label, b"PRIVATE KEY")?;
    let body_start = label_end + 5;
    let body = block.get(body_start..)?;
    let body_end = find(body, b"-----").unwrap_or(body.len());
    let (inner, rest) = body.split_at_checked(body_end)?;
    if inner.iter().filter(|byte| is_base64(**byte)).count() < PRIVATE_KEY_MIN {
        return None;
    }
    let tail = if rest.starts_with(b"-----END") {
        8 + find(rest.get(8..rest.len().min(80))?, b"-----").map_or(0, |end| end + 5)
    } else {
        0
    };
    let end = start + body_start + body_end + tail;
    // Without an end the block is cut, possibly inside of a character.
    let end =
        if tail == 0 { run(bytes, start + body_start, PRIVATE_KEY_MAX, |byte| byte.is_ascii()).min(end) } else { end };
    let is_cut = tail == 0 && end - start >= PRIVATE_KEY_MAX;
    Some((start, end, if is_cut { OpenEnd::KeyBody } else { OpenEnd::None }))
}

/// The private part of a key file of `PuTTY`.
pub(super) fn putty_key(bytes: &[u8], start: usize) -> (usize, OpenPlace) {
    let end = run(bytes, start, PRIVATE_KEY_MAX, |byte| byte.is_ascii());
    let is = bytes.get(start..end).is_some_and(|block| find(block, b"Private-Lines:").is_some());
    (end, is.then_some((start, end, OpenEnd::Ascii)))
}

/// A signed (RFC 7515) or encrypted (RFC 7516) token.
pub(super) fn web_token(bytes: &[u8], start: usize) -> (usize, Place) {
    if at(bytes, start) != b'e' || at(bytes, start + 2) != b'J' || !begins(bytes, start) {
        return (start, None);
    }
    let mut ends = Vec::with_capacity(5);
    let mut place = start;
    while ends.len() < 5 {
        let end = run(bytes, place, usize::MAX, is_base64url);
        ends.push((place, end));
        if at(bytes, end) != b'.' {
            break;
        }
        place = end + 1;
    }
    let length = |part: usize| ends.get(part).map_or(0, |(from, to)| to - from);
    let payload = ends.get(1).map_or(0, |(from, _)| *from);
    let looked = ends.first().map_or(start, |(_, end)| *end);
    let signed = length(0) >= 12 && length(1) >= 8 && ends.len() >= 3 && at(bytes, payload) == b'e';
    let encrypted = ends.len() == 5 && length(0) >= 12 && length(2) >= 8 && length(3) >= 8;
    if !signed && !encrypted {
        return (looked, None);
    }
    let parts = if encrypted && !signed { 5 } else { 3 };
    let end = ends.get(parts - 1).map_or(looked, |(_, end)| *end);
    (end, Some((start, end)))
}

/// A token that was encoded once more.
pub(super) fn wrapped_web_token(bytes: &[u8], start: usize) -> (usize, Place) {
    if bytes.get(start..start + 4) != Some(b"ZXlK") || !begins(bytes, start) {
        return (start, None);
    }
    let end = run(bytes, start, usize::MAX, is_base64);
    (end, (end - start >= 70).then_some((start, end)))
}

/// What follows `Bearer`.
pub(super) fn bearer(bytes: &[u8], start: usize, after: usize) -> Place {
    let belongs = |byte: u8| is_base64(byte) || matches!(byte, b'.' | b'~' | b':' | b'|');
    let end = run(bytes, after, usize::MAX, belongs);
    let end = if before(bytes, end) == b'.' { end - 1 } else { end };
    let token = bytes.get(after..end)?;
    let digits = token.iter().any(u8::is_ascii_digit);
    let fine = begins(bytes, start)
        && token.len() >= 8
        && digits
        && !plausible::stand_in(token)
        && plausible::entropy(token) > 2.4;
    (fine && !(plausible::is_wordy(token) && token.len() < 32)).then_some((after, end))
}

/// What follows `Basic`: a user and a password in base64.
pub(super) fn basic(bytes: &[u8], start: usize, after: usize) -> Place {
    let end = run(bytes, after, usize::MAX, is_base64);
    let token = bytes.get(after..end)?;
    let header = mentions(line_before(bytes, start), "authorization");
    let mixed = token.iter().any(u8::is_ascii_uppercase) && token.iter().any(u8::is_ascii_lowercase);
    let enough = if header { 6 } else { 12 };
    (begins(bytes, start) && token.len() >= enough && mixed && is_user_and_password(token)).then_some((after, end))
}

/// Whether base64 holds printable characters with a colon among them.
fn is_user_and_password(token: &[u8]) -> bool {
    let (mut bits, mut held, mut colon) = (0_u32, 0_u8, false);
    for byte in token.iter().take_while(|byte| **byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            let letter = (bits >> held) & 0xff;
            colon |= letter == u32::from(b':');
            if letter < 0x20 || letter == 0x7f {
                return false;
            }
            bits &= (1 << held) - 1;
        }
    }
    colon
}

/// The user with password before the host of an URL; `after` is behind its `//`.
pub(super) fn user_of_url(bytes: &[u8], after: usize) -> Place {
    let ends_authority = |byte: u8| {
        byte <= b' '
            || matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\' | b')' | b',')
            || byte >= 0x80
    };
    let end = run(bytes, after, usize::MAX, |byte| !ends_authority(byte));
    let authority = bytes.get(after..end)?;
    let sign = authority.iter().rposition(|byte| *byte == b'@')?;
    let user = authority.get(..sign)?;
    let colon = user.iter().position(|byte| *byte == b':');
    let password = colon.and_then(|colon| user.get(colon + 1..));
    let real = |text: &[u8]| {
        let lower = text.to_ascii_lowercase();
        !plausible::stand_in(text)
            && !matches!(lower.as_slice(), b"password" | b"pass" | b"passwd" | b"pwd" | b"secret" | b"token" | b"pw")
            && !text.iter().any(|byte| matches!(byte, b'{' | b'}' | b'$' | b'[' | b']'))
            && plausible::longest_row(text) < text.len()
    };
    let secret = match password {
        Some(password) => !password.is_empty() && real(password),
        None => user.len() >= 20 && user.iter().any(u8::is_ascii_digit) && real(user) && !plausible::is_wordy(user),
    };
    secret.then_some((after, after + sign))
}

/// `-u user:password` of a `curl` command.
pub(super) fn user_of_curl(bytes: &[u8], after: usize) -> (usize, Place) {
    let end = run(bytes, after, usize::MAX, |byte| byte != b'\n');
    (end, bytes.get(after..end).and_then(|command| user_in_command(command, after)))
}

fn user_in_command(command: &[u8], after: usize) -> Place {
    let option = [&b"--user "[..], b"--user=", b"-u ", b"--proxy-user ", b"-U "].into_iter().find_map(|option| {
        let place = find(command, option)?;
        (place == 0 || before(command, place) == b' ').then_some(place + option.len())
    })?;
    let quote = at(command, option);
    let quoted = matches!(quote, b'"' | b'\'');
    let start = option + usize::from(quoted);
    let end = run(command, start, usize::MAX, |byte| {
        if quoted { byte != quote } else { byte > b' ' && byte < 0x7f && !matches!(byte, b'"' | b'\'') }
    });
    let user = command.get(start..end)?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let variable = user.iter().any(|byte| matches!(byte, b'$' | b'{' | b'<' | b'%'));
    let enough = user.len() >= 7 && (user.len() - colon > 3 || colon > 3);
    (enough && !variable && !plausible::stand_in(user)).then_some((after + start, after + end))
}

/// The values of an object of the kind `Secret`; they are appended to `found`. Says how far it has looked.
pub(super) fn kubernetes_secret(bytes: &[u8], start: usize, found: &mut Vec<RedactionFinding>) -> usize {
    secret_values(bytes, start, found).unwrap_or(start)
}

fn secret_values(bytes: &[u8], start: usize, found: &mut Vec<RedactionFinding>) -> Option<usize> {
    let mut place = run(bytes, start + 4, 3, |byte| matches!(byte, b'"' | b'\'' | b' '));
    if at(bytes, place) != b':' || is_word(before(bytes, start)) {
        return None;
    }
    place = run(bytes, place + 1, 4, |byte| matches!(byte, b'"' | b'\'' | b' '));
    if !bytes.get(place..)?.starts_with(b"Secret") || is_word(at(bytes, place + 6)) {
        return None;
    }
    let from = start.saturating_sub(OBJECT_MAX);
    let object = bytes.get(from..bytes.len().min(start + OBJECT_MAX))?;
    let looked = from + object.len();
    let Some(data) = [&b"data:"[..], b"stringData:", b"\"data\""].iter().filter_map(|word| find(object, word)).max()
    else {
        return Some(looked);
    };
    let (mut values, mut is_value) = (0, false);
    let mut line_start = data + 4;
    // Values are read to their end; what comes behind what was looked at is read as long as it is values.
    for line in bytes.get(from + data + 4..)?.split(|byte| matches!(byte, b'\n' | b',' | b'{')) {
        if !is_value && line_start > object.len() {
            break;
        }
        is_value = false;
        let colon = line.iter().position(|byte| *byte == b':');
        if let Some(colon) = colon.filter(|_| line_start > data + 4) {
            let skip = run(line, colon + 1, 8, |byte| matches!(byte, b' ' | b'"' | b'\''));
            let end = run(line, skip, usize::MAX, is_base64);
            let value = line.get(skip..end)?;
            let rest_empty = line.get(end..)?.iter().all(|byte| matches!(byte, b' ' | b'"' | b'\'' | b'\r' | b'}'));
            if value.len() >= 8 && rest_empty && !plausible::stand_in(value) && !plausible::is_wordy(value) {
                found.push(RedactionFinding {
                    kind: RedactionKind::Secret,
                    start: from + line_start + skip,
                    end: from + line_start + end,
                });
                values += 1;
                is_value = true;
            }
        }
        if line.starts_with(b"---")
            || (values > 0 && colon.is_some() && !line.first().is_some_and(|byte| matches!(byte, b' ' | b'"' | b'\t')))
        {
            break;
        }
        line_start += line.len() + 1;
    }
    Some(if values > 0 { from + line_start } else { looked })
}
