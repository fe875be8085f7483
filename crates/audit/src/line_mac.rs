//! The code at the end of every line: whoever does not have the key of the log cannot write a line that is taken for one of it.
//!
//! A signature speaks for records up to a checkpoint. What a killed process has written after the newest one is in the file and
//! nothing signed speaks for it, so the next start could not tell it from what somebody else has put there. The code can be
//! made only with the key that signs: HMAC-SHA256, cut to 128 bits, over the hash of the line before and the line itself.
//!
//! ```text
//! {"seq":7,…,"mac":"tyNkBGl9mYb0oM9sHV0pXg"}
//! ```
//!
//! It is part of the line, and so of what is hashed, synced and copied with it: no second file has to be kept in step. Verifying
//! from outside does not need it and cannot check it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::hmac;

use crate::merkle::TreeHash;
use crate::note::NoteSigner;

/// What the key is derived for.
const PURPOSE: &[u8] = b"gantry-audit lines v1";
const MEMBER: &[u8] = b",\"mac\":\"";
const MEMBER_END: &[u8] = b"\"}";
/// 128 bits of the code are kept: that many cannot be guessed, and the line is written for every call.
const MAC_BYTES: usize = 16;
/// As text.
const TEXT_BYTES: usize = 22;

/// The key of the codes of one log. Shows nothing.
#[derive(Clone)]
pub(crate) struct MacKey(hmac::Key);

/// What the code of a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MacVerdict {
    Genuine,
    /// It was made with another key, of another line, or after another one.
    Wrong,
    /// There is none: a version before there were codes wrote the line, or somebody else did.
    Missing,
}

impl MacKey {
    /// That of whoever has this key.
    pub(crate) fn of(signer: &NoteSigner) -> Self {
        Self(signer.derived(PURPOSE))
    }

    /// Adds the code to the line that begins at `start` and ends with `}` and a newline.
    pub(crate) fn add(&self, previous: &TreeHash, lines: &mut Vec<u8>, start: usize) {
        let end = lines.len().saturating_sub(b"}\n".len());
        let code = self.code(previous, lines.get(start..end).unwrap_or_default());
        lines.truncate(end);
        lines.extend_from_slice(MEMBER);
        let at = lines.len();
        lines.resize(at + TEXT_BYTES, 0);
        if let Some(place) = lines.get_mut(at..) {
            // The place is exactly as long as the text.
            let _ = STANDARD_NO_PAD.encode_slice(code, place);
        }
        lines.extend_from_slice(MEMBER_END);
        lines.push(b'\n');
    }

    /// Looks at a line without its newline, which stands after the line with this hash.
    pub(crate) fn check(&self, previous: &TreeHash, line: &[u8]) -> MacVerdict {
        let Some((body, code)) = parts(line) else { return MacVerdict::Missing };
        // Both sides are hashed under the key first, so the time says nothing about where they differ.
        let (made, found) = (hmac::sign(&self.0, &self.code(previous, body)), hmac::sign(&self.0, &code));
        if made.as_ref() == found.as_ref() { MacVerdict::Genuine } else { MacVerdict::Wrong }
    }

    fn code(&self, previous: &TreeHash, body: &[u8]) -> [u8; MAC_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(previous);
        context.update(body);
        let mut code = [0; MAC_BYTES];
        code.iter_mut().zip(context.sign().as_ref()).for_each(|(place, byte)| *place = *byte);
        code
    }
}

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MacKey")
    }
}

/// A line without its code, and the code.
fn parts(line: &[u8]) -> Option<(&[u8], [u8; MAC_BYTES])> {
    let rest = line.strip_suffix(MEMBER_END)?;
    let (head, text) = rest.split_at_checked(rest.len().checked_sub(TEXT_BYTES)?)?;
    let body = head.strip_suffix(MEMBER)?;
    let mut code = [0; MAC_BYTES];
    (STANDARD_NO_PAD.decode_slice(text, &mut code).ok()? == MAC_BYTES).then_some((body, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> MacKey {
        MacKey::of(&NoteSigner::from_seed("a/log", &[seed; 32]))
    }

    #[test]
    fn a_line_with_its_code_is_json_and_genuine_only_unchanged_and_in_its_place() {
        let mut lines = b"{\"seq\":0}\n{\"seq\":1,\"note\":\"x\"}\n".to_vec();
        key(1).add(&[7; 32], &mut lines, 10);
        assert!(lines.starts_with(b"{\"seq\":0}\n{\"seq\":1,\"note\":\"x\",\"mac\":\""));
        let line = lines[10..].strip_suffix(b"\n").unwrap();
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert_eq!(value["mac"].as_str().unwrap().len(), TEXT_BYTES);
        assert_eq!(key(1).check(&[7; 32], line), MacVerdict::Genuine);
        assert_eq!(key(1).check(&[8; 32], line), MacVerdict::Wrong, "after another line");
        assert_eq!(key(2).check(&[7; 32], line), MacVerdict::Wrong, "with another key");
        for at in 0..line.len() {
            let mut changed = line.to_vec();
            changed[at] ^= 1;
            assert_ne!(key(1).check(&[7; 32], &changed), MacVerdict::Genuine, "byte {at}");
        }
    }

    #[test]
    fn a_line_without_a_code_has_none() {
        let long = format!("{{\"seq\":1,\"mac\":\"{}\"}}", "A".repeat(23));
        for line in ["", "{}", "{\"seq\":1,\"mac\":\"\"}", "{\"seq\":1,\"mac\":\"AAAAAAAAAAAAAAAAAAAAA!\"}", &long] {
            assert_eq!(key(1).check(&[0; 32], line.as_bytes()), MacVerdict::Missing, "{line}");
        }
    }
}
