//! Session ids that any instance of an installation understands: each says what its session must know, and is sealed.
//!
//! ```text
//! s1.BASE64URL({"id":…,"begun_ms":…,"params":…}).BASE64URL(tag)
//! ```
//!
//! `params` is what of `initialize` matters later: revision, capabilities, name and version of the client. An instance that
//! does not have the session begins it again from there. The tag binds all of it to whoever began the session and to the
//! path it was begun at, so an id is worth nothing in other hands; what it says is its client's own, and no secret.
//!
//! Invariants
//! - SID-1: an id is no longer than [`ID_BYTES_MAX`]. A client that says more about itself than fits is served where it
//!   began, and nowhere else.
//! - SID-2: an id begins a session anew for [`LIFETIME`] only.
//!
//! Not here: which sessions there are (`sessions`), and which were ended (`moving`).

use std::fmt;
use std::time::Duration;

use base::SaturatingFrom as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::canonical;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::sessions::SessionOwner;

/// How a sealed id begins.
const PREFIX: &str = "s1.";
/// Longest id that is given out or looked at.
const ID_BYTES_MAX: usize = 1_024;
/// Longest name or version of a client that is carried, in characters.
const NAME_CHARS_MAX: usize = 64;
/// How long after its beginning a session may be begun again elsewhere.
pub(super) const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How far the clocks of two instances may differ: an id from the near future is fine.
const CLOCK_DISAGREEMENT_MAX_MS: i64 = 60_000;
/// What the key is for, so that no seal of another kind opens as this one.
const PURPOSE: &[u8] = b"gantry mcp session id 1";

/// The key that instances of an installation have in common, for ids of sessions. It never shows itself.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// From its bytes.
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(…)")
    }
}

/// Makes and reads ids.
#[derive(Debug)]
pub(crate) struct SessionIds(hmac::Key);

/// What an id says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionIdContent {
    /// The session's name inside an instance.
    pub(crate) id: String,
    begun_ms: i64,
    /// Of `initialize`.
    pub(crate) params: Value,
}

impl SessionIds {
    /// With the key of the installation.
    pub(crate) fn new(SessionKey(key): &SessionKey) -> Self {
        // Its own key, derived: the installation's seals other things too.
        let own = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), PURPOSE);
        Self(hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()))
    }

    /// The id for a session that begins now; `None` if it would be too long (SID-1).
    pub(crate) fn close(&self, id: &str, now_ms: i64, params: &Value, owner: &SessionOwner) -> Option<String> {
        let carried = SessionIdContent { id: id.to_owned(), begun_ms: now_ms, params: what_matters(params) };
        let said = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&carried).ok()?);
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, &bound(&said, owner)));
        let text = format!("{PREFIX}{said}.{tag}");
        (text.len() <= ID_BYTES_MAX).then_some(text)
    }

    /// What an id says, if it is whole, in the right hands and not too old.
    pub(crate) fn open(&self, text: &str, now_ms: i64, owner: &SessionOwner) -> Option<SessionIdContent> {
        let (said, tag) = text.strip_prefix(PREFIX).filter(|_| text.len() <= ID_BYTES_MAX)?.split_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.0, &bound(said, owner), &tag).ok()?;
        let carried: SessionIdContent = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(said).ok()?).ok()?;
        let age = now_ms.checked_sub(carried.begun_ms)?;
        let lifetime = i64::saturating_from(LIFETIME.as_millis());
        (-CLOCK_DISAGREEMENT_MAX_MS..lifetime).contains(&age).then_some(carried)
    }

    /// Is this an id of this kind, good or bad?
    pub(crate) fn is_one(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

/// What is signed: what the id says, and whose it is.
fn bound(said: &str, owner: &SessionOwner) -> Vec<u8> {
    let whose = canonical::digest(&json!([owner.principal, owner.toolset.as_deref()]));
    whose.as_bytes().iter().chain(said.as_bytes()).copied().collect()
}

/// What of `initialize` an instance must know to go on.
fn what_matters(params: &Value) -> Value {
    let text = |of: &Value, name: &str| {
        let text = of.get(name).and_then(Value::as_str).unwrap_or("?");
        Value::from(text.chars().take(NAME_CHARS_MAX).collect::<String>())
    };
    let named = |name: &str| params.get(name).cloned().unwrap_or_default();
    let client = named("clientInfo");
    let mut capabilities = Map::new();
    if let Value::Object(said) = named("capabilities") {
        let known = said.into_iter().filter(|(name, _)| CAPABILITIES.contains(&name.as_str()));
        capabilities.extend(known);
    }
    json!({
        "protocolVersion": text(params, "protocolVersion"),
        "capabilities": capabilities,
        "clientInfo": { "name": text(&client, "name"), "version": text(&client, "version") },
    })
}

/// Capabilities that change what a client is asked.
const CAPABILITIES: [&str; 4] = ["roots", "sampling", "elicitation", "tasks"];

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn owner(principal: &str, toolset: Option<&str>) -> SessionOwner {
        SessionOwner { principal: principal.to_owned(), toolset: toolset.map(Into::into) }
    }

    fn params() -> Value {
        json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {}, "experimental": { "x": 1 } },
            "clientInfo": { "name": "n".repeat(500), "version": "1", "icons": ["x"] } })
    }

    #[test]
    fn an_id_opens_at_every_instance_with_the_key_for_its_owner_in_time() {
        let (ids, mine) = (SessionIds::new(&SessionKey::new([1; 32])), owner("me", None));
        let text = ids.close("abc", NOW, &params(), &mine).unwrap();
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()) && SessionIds::is_one(&text));
        let carried = SessionIds::new(&SessionKey::new([1; 32])).open(&text, NOW + 1, &mine).unwrap();
        assert_eq!(carried.id, "abc");
        assert_eq!(carried.params["capabilities"], json!({ "elicitation": {} }));
        assert_eq!(carried.params["clientInfo"], json!({ "name": "n".repeat(64), "version": "1" }));
        let day = 24 * 3_600_000;
        for (at, fine) in [(0, true), (-60_000, true), (-60_001, false), (day - 1, true), (day, false)] {
            assert_eq!(ids.open(&text, NOW + at, &mine).is_some(), fine, "{at}");
        }
        for other in [owner("you", None), owner("me", Some("small")), owner("", None)] {
            assert_eq!(ids.open(&text, NOW, &other), None);
        }
        assert_eq!(SessionIds::new(&SessionKey::new([2; 32])).open(&text, NOW, &mine), None);
    }

    #[test]
    fn what_does_not_fit_is_not_given_out() {
        let much = json!({ "capabilities": { "roots": { "x": "y".repeat(2_000) } } });
        assert_eq!(SessionIds::new(&SessionKey::new([1; 32])).close("abc", NOW, &much, &owner("me", None)), None);
        let nothing = SessionIds::new(&SessionKey::new([1; 32])).close("abc", NOW, &Value::Null, &owner("me", None));
        assert!(nothing.is_some(), "a client that says nothing is no reason to fail");
    }

    #[test]
    fn a_changed_id_does_not_open_and_any_text_is_refused_in_peace() {
        let (ids, mine) = (SessionIds::new(&SessionKey::new([1; 32])), owner("me", None));
        let text = ids.close("abc", NOW, &params(), &mine).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(ids.open(&String::from_utf8(changed).unwrap(), NOW, &mine), None, "{at}");
        }
        for cut in 0..text.len() {
            assert_eq!(ids.open(text.get(..cut).unwrap(), NOW, &mine), None, "{cut}");
        }
        for any in ["", "s1.", "s1..", "s1.a.b", "s1.é.é", "no-such-session", &"s1.".repeat(1_000)] {
            assert_eq!(ids.open(any, NOW, &mine), None, "{any}");
        }
    }
}
