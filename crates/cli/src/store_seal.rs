//! The seal on what must not be readable in the store: ChaCha20-Poly1305 under a key that is in no database.
//!
//! A sealed text is `gantry-sealed:1:` and, in base64, a random nonce and what the cipher makes of the text. What the text *is*
//! (whose, and which row) is sealed with it, so that no row can pass for another.
//!
//! Not here: what is sealed (`sealed_secrets`, `sealed_jobs`, `sealed_checkpoints`, `sealed_runs`, `sealed_deliveries`,
//! `sealed_servers`), which key it is (`store_keys`).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use ports::entropy::Entropy;
use ports::registry_store::StoreError;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::Value;

use crate::failure::CommandFailure;

/// What sealed texts begin with, and the way they are sealed.
const SEALED: &str = "gantry-sealed:1:";
/// What the beginning of every way is.
pub(crate) const SEALED_SOMEHOW: &str = "gantry-sealed:";
/// The same in JSON, as payloads are kept.
pub(crate) const SEALED_PAYLOAD: &str = "\"gantry-sealed:";

/// What is said of a shared store from before there were keys, for which nobody has given one.
pub(crate) const NOT_SEALED: &str = "signing keys, other secrets of the installation, the parameters of background calls, the \
                                     state in checkpoints, what workflows are asked and answer, what webhooks are told \
                                     and how MCP servers are reached are readable in the database";

/// A key of 32 bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreKey([u8; 32]);

/// Seals texts and opens them.
pub(crate) struct StoreSeal {
    key: LessSafeKey,
    entropy: Arc<dyn Entropy>,
}

/// What seals the contents of one port, and what opens them.
#[derive(Debug)]
pub(crate) struct StoreSeals {
    /// Seals what is written. Without it everything is written as it is.
    seal: Option<StoreSeal>,
    /// Opens what was sealed with another key of this installation.
    former: Option<StoreSeal>,
}

#[derive(Debug, thiserror::Error)]
#[error("a text of the store cannot be sealed")]
struct NotSealed;

/// Is this a sealed text, with whatever key?
pub(crate) fn is_sealed(text: &str) -> bool {
    text.starts_with(SEALED_SOMEHOW)
}

// ---------------------------------------------------------------------------------------------------------- StoreKey

impl StoreKey {
    /// As people write it: 64 hexadecimal digits, or base64.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bytes = of_hex(text)
            .or_else(|| [STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD].iter().find_map(|way| way.decode(text).ok()))?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(…)")
    }
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Option<Vec<u8>> = text.as_bytes().iter().map(digit).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    digits.chunks_exact(2).map(|pair| Some(pair.first()? << 4 | pair.last()?)).collect()
}

// --------------------------------------------------------------------------------------------------------- StoreSeal

impl StoreSeal {
    /// With this key.
    pub(crate) fn new(key: &StoreKey, entropy: Arc<dyn Entropy>) -> Result<Self, CommandFailure> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key.0);
        let key = key.map_err(|_| CommandFailure::new("the key of the store cannot be used"))?;
        Ok(Self { key: LessSafeKey::new(key), entropy })
    }

    /// The sealed text of `what`. `None` if it cannot be sealed.
    pub(crate) fn seal(&self, what: &str, text: &str) -> Option<String> {
        Some(format!("{SEALED}{}", URL_SAFE_NO_PAD.encode(self.enclose(what, text.as_bytes())?)))
    }

    /// The text behind the sealed one. `None` if it was sealed with another key or as something else, or was changed.
    pub(crate) fn open(&self, what: &str, sealed: &str) -> Option<String> {
        let all = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(SEALED)?).ok()?;
        String::from_utf8(self.disclose(what, &all)?).ok()
    }

    /// The same for what is no text.
    pub(crate) fn seal_bytes(&self, what: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        Some(SEALED.bytes().chain(self.enclose(what, bytes)?).collect())
    }

    /// What is behind sealed bytes.
    pub(crate) fn open_bytes(&self, what: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        self.disclose(what, sealed.strip_prefix(SEALED.as_bytes())?)
    }

    /// A nonce, and what the cipher makes of the bytes.
    fn enclose(&self, what: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.entropy.fill(&mut nonce);
        let mut sealed = bytes.to_vec();
        let nonce_once = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_once, Aad::from(what.as_bytes()), &mut sealed).ok()?;
        Some(nonce.into_iter().chain(sealed).collect())
    }

    fn disclose(&self, what: &str, all: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = all.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.key.open_in_place(nonce, Aad::from(what.as_bytes()), &mut sealed).ok()?;
        Some(opened.to_vec())
    }
}

impl fmt::Debug for StoreSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSeal(…)")
    }
}

// -------------------------------------------------------------------------------------------------------- StoreSeals

impl StoreSeals {
    pub(crate) fn new((seal, former): (Option<StoreSeal>, Option<StoreSeal>)) -> Self {
        Self { seal, former }
    }

    /// Is what is written sealed?
    pub(crate) fn is_sealing(&self) -> bool {
        self.seal.is_some()
    }

    /// The text as it goes into the store: sealed, if there is a key.
    pub(crate) fn sealed(&self, what: &str, text: &str) -> Result<Option<String>, StoreError> {
        let Some(seal) = &self.seal else { return Ok(None) };
        seal.seal(what, text).map(Some).ok_or_else(|| StoreError::Corrupt(Box::new(NotSealed)))
    }

    /// What a text of the store says. `None` if it is sealed with another key or as something else, or was changed.
    pub(crate) fn opened<'a>(&self, what: &str, text: &'a str) -> Option<Cow<'a, str>> {
        if !is_sealed(text) {
            return Some(Cow::Borrowed(text));
        }
        let seals = [&self.seal, &self.former];
        seals.into_iter().flatten().find_map(|seal| seal.open(what, text)).map(Cow::Owned)
    }

    /// JSON as it goes into the store: a sealed text, if there is a key.
    pub(crate) fn sealed_json(&self, what: &str, value: &Value) -> Result<Option<Value>, StoreError> {
        Ok(self.sealed(what, &value.to_string())?.map(Value::String))
    }

    /// What JSON of the store says; `None` as above.
    pub(crate) fn opened_json(&self, what: &str, value: Value) -> Option<Value> {
        match value.as_str().filter(|text| is_sealed(text)) {
            Some(text) => serde_json::from_str(&self.opened(what, text)?).ok(),
            None => Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::OsEntropy;

    fn seal_of(hex: &str) -> StoreSeal {
        StoreSeal::new(&StoreKey::parse(&hex.repeat(32)).unwrap(), Arc::new(OsEntropy::open().unwrap())).unwrap()
    }

    #[test]
    fn a_key_is_read_from_hexadecimal_digits_and_base64_and_from_nothing_else() {
        let hex = "07".repeat(32);
        for text in [hex.as_str(), &format!(" {hex}\n"), &STANDARD.encode([7; 32]), &URL_SAFE_NO_PAD.encode([7; 32])] {
            assert_eq!(StoreKey::parse(text), Some(StoreKey([7; 32])), "{text}");
        }
        for text in ["", "hunter2", &"07".repeat(31), &"0g".repeat(32), &STANDARD.encode([7; 31])] {
            assert_eq!(StoreKey::parse(text), None, "{text}");
        }
        assert!(!format!("{:?}", StoreKey([7; 32])).contains('7'));
    }

    #[test]
    fn a_text_is_opened_by_its_key_as_what_it_is_and_by_nothing_else() {
        let (seal, other) = (seal_of("a1"), seal_of("b2"));
        let sealed = seal.seal("job acme 1", "hunter2").unwrap();
        assert!(is_sealed(&sealed) && !sealed.contains("hunter2"));
        assert_ne!(seal.seal("job acme 1", "hunter2").unwrap(), sealed, "never the same twice");
        assert_eq!(seal.open("job acme 1", &sealed).as_deref(), Some("hunter2"));
        assert_eq!(seal.open("job acme 2", &sealed), None, "no row passes for another");
        assert_eq!(other.open("job acme 1", &sealed), None);
        assert_eq!(seal.open("job acme 1", sealed.get(..sealed.len() - 2).unwrap()), None);
        assert_eq!(seal.open("job acme 1", "hunter2"), None);
        let sealed = seal.seal_bytes("state 1", b"\x00\xff").unwrap();
        assert_eq!(seal.open_bytes("state 1", &sealed).as_deref(), Some(&b"\x00\xff"[..]));
        assert_eq!(seal.open_bytes("state 2", &sealed), None);
        assert_eq!(seal.open_bytes("state 1", b"\x00\xff"), None);
    }
}
