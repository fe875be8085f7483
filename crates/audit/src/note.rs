//! Signed notes (C2SP signed-note): a text, an empty line, and signatures of the form `— name base64(key hash ‖ signature)`.
//!
//! Keys are Ed25519 and written as the format's other users write them: `name+hash+base64(1 ‖ public key)` to check with,
//! `PRIVATE+KEY+name+hash+base64(1 ‖ seed)` to sign with. The hash (4 bytes) only says which key is meant.
//!
//! Not here: what the text says (`checkpoint`), where keys are kept (`key_file`).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use ring::hmac;
use sha2::{Digest as _, Sha256};

/// How a signature line begins.
const SIGNATURE_HEAD: &str = "\u{2014} ";
/// The format's number of Ed25519.
const ED25519: u8 = 1;
const PRIVATE_HEAD: &str = "PRIVATE+KEY+";
/// Signatures of one note that are looked at; the rest is not ours.
const SIGNATURES_MAX: usize = 16;

/// Why a text is no note or no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("it is not a signed note: a text, an empty line and signatures are expected")]
    Malformed,
    #[error("it is not a key of the form `name+hash+base64`")]
    Key,
    #[error("none of its signatures is of the expected key")]
    UnknownKey,
    #[error("its signature is wrong")]
    WrongSignature,
}

/// A public key with its name.
#[derive(Clone, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    hash: [u8; 4],
    key: VerifyingKey,
}

/// A private key with its name. Shows only its public half.
pub struct NoteSigner {
    name: String,
    key: SigningKey,
}

/// A text with signatures that nobody has looked at yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<(String, Vec<u8>)>,
}

// ---- NoteKey ----

impl NoteKey {
    fn new(name: &str, key: VerifyingKey) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(name);
        hasher.update([b'\n', ED25519]);
        hasher.update(key.as_bytes());
        let mut hash = [0; 4];
        hash.iter_mut().zip(hasher.finalize()).for_each(|(place, byte)| *place = byte);
        Self { name: name.to_owned(), hash, key }
    }

    /// The key's name: for a log its origin.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&[ED25519], &self.key.as_bytes()[..]].concat();
        write!(f, "{}+{:08x}+{}", self.name, u32::from_be_bytes(self.hash), STANDARD.encode(bytes))
    }
}

impl fmt::Debug for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NoteKey({self})")
    }
}

impl FromStr for NoteKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let (name, hash, bytes) = key_parts(text)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| NoteError::Key)?;
        let made = Self::new(name, key);
        if format!("{:08x}", u32::from_be_bytes(made.hash)) == hash { Ok(made) } else { Err(NoteError::Key) }
    }
}

// ---- NoteSigner ----

impl NoteSigner {
    /// The key of this seed, under this name.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Self {
        Self { name: name.to_owned(), key: SigningKey::from_bytes(seed) }
    }

    /// The public half.
    pub fn verifier(&self) -> NoteKey {
        NoteKey::new(&self.name, self.key.verifying_key())
    }

    /// The private key as text, for its file.
    pub(crate) fn to_secret_text(&self) -> String {
        let bytes = [&[ED25519], &self.key.to_bytes()[..]].concat();
        let hash = u32::from_be_bytes(self.verifier().hash);
        format!("{PRIVATE_HEAD}{}+{hash:08x}+{}", self.name, STANDARD.encode(bytes))
    }

    /// Reads what [`Self::to_secret_text`] wrote.
    pub(crate) fn from_secret_text(text: &str) -> Result<Self, NoteError> {
        let (name, hash, seed) = key_parts(text.strip_prefix(PRIVATE_HEAD).ok_or(NoteError::Key)?)?;
        let made = Self::from_seed(name, &seed);
        if format!("{:08x}", u32::from_be_bytes(made.verifier().hash)) == hash { Ok(made) } else { Err(NoteError::Key) }
    }

    /// A key for another use, which nobody has who does not have this one.
    pub(crate) fn derived(&self, purpose: &[u8]) -> hmac::Key {
        let seed = hmac::Key::new(hmac::HMAC_SHA256, &self.key.to_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&seed, purpose).as_ref())
    }

    /// The note of this text, which ends with a newline and has no empty line.
    pub fn sign(&self, text: &str) -> String {
        let signature = self.key.sign(text.as_bytes());
        let bytes = [&self.verifier().hash[..], &signature.to_bytes()[..]].concat();
        format!("{text}\n{SIGNATURE_HEAD}{} {}\n", self.name, STANDARD.encode(bytes))
    }
}

impl fmt::Debug for NoteSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoteSigner").field("verifier", &self.verifier()).finish_non_exhaustive()
    }
}

// ---- Note ----

impl SignedNote {
    /// Takes a note apart. Nothing is believed yet.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        let (text, signatures) = note.rsplit_once("\n\n").ok_or(NoteError::Malformed)?;
        let mut found = Vec::new();
        for line in signatures.strip_suffix('\n').ok_or(NoteError::Malformed)?.split('\n').take(SIGNATURES_MAX) {
            let (name, bytes) =
                line.strip_prefix(SIGNATURE_HEAD).and_then(|rest| rest.split_once(' ')).ok_or(NoteError::Malformed)?;
            let bytes = STANDARD.decode(bytes).map_err(|_| NoteError::Malformed)?;
            if name.is_empty() || bytes.len() < 5 {
                return Err(NoteError::Malformed);
            }
            found.push((name.to_owned(), bytes));
        }
        Ok(Self { text: format!("{text}\n"), signatures: found })
    }

    /// The text as it claims to be.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Has this key signed it?
    pub fn verify(&self, key: &NoteKey) -> Result<(), NoteError> {
        let mut of_key = self.signatures.iter().filter_map(|(name, bytes)| {
            let (hash, signature) = bytes.split_at_checked(4)?;
            (*name == key.name && hash == key.hash).then_some(signature)
        });
        let bytes = of_key.next().ok_or(NoteError::UnknownKey)?;
        let signature = Signature::from_slice(bytes).map_err(|_| NoteError::WrongSignature)?;
        key.key.verify_strict(self.text.as_bytes(), &signature).map_err(|_| NoteError::WrongSignature)
    }
}

/// `name+hash+base64(1 ‖ 32 bytes)`.
fn key_parts(text: &str) -> Result<(&str, &str, [u8; 32]), NoteError> {
    let mut parts = text.trim().splitn(3, '+');
    let (Some(name), Some(hash), Some(bytes)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(NoteError::Key);
    };
    let bytes = STANDARD.decode(bytes).map_err(|_| NoteError::Key)?;
    match bytes.split_first() {
        Some((&ED25519, rest)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
            Ok((name, hash, rest.try_into().map_err(|_| NoteError::Key)?))
        }
        _ => Err(NoteError::Key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Go package that first had this format.
    const KNOWN_KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const KNOWN_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
        then you don't know what your problem is.\n\n\
        \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    #[test]
    fn a_note_signed_elsewhere_is_verified() {
        let key: NoteKey = KNOWN_KEY.parse().unwrap();
        assert_eq!(key.to_string(), KNOWN_KEY);
        assert_eq!(SignedNote::parse(KNOWN_NOTE).unwrap().verify(&key), Ok(()));
        let changed = KNOWN_NOTE.replace("answer", "Answer");
        assert_eq!(SignedNote::parse(&changed).unwrap().verify(&key), Err(NoteError::WrongSignature));
    }

    #[test]
    fn what_is_signed_here_is_verified_with_the_public_half_only() {
        let (ours, theirs) = (NoteSigner::from_seed("a/log", &[1; 32]), NoteSigner::from_seed("a/log", &[2; 32]));
        let note = ours.sign("one\ntwo\n");
        assert!(note.starts_with("one\ntwo\n\n\u{2014} a/log "));
        let parsed = SignedNote::parse(&note).unwrap();
        assert_eq!(parsed.text(), "one\ntwo\n");
        assert_eq!(parsed.verify(&ours.verifier().to_string().parse().unwrap()), Ok(()));
        assert_eq!(parsed.verify(&theirs.verifier()), Err(NoteError::UnknownKey));
        assert_eq!(parsed.verify(&NoteSigner::from_seed("b/log", &[1; 32]).verifier()), Err(NoteError::UnknownKey));
    }

    #[test]
    fn a_private_key_comes_back_from_its_text_and_is_never_shown() {
        let signer = NoteSigner::from_seed("a/log", &[3; 32]);
        let text = signer.to_secret_text();
        assert_eq!(NoteSigner::from_secret_text(&text).unwrap().verifier(), signer.verifier());
        assert!(!format!("{signer:?}").contains(text.rsplit('+').next().unwrap()));
        assert!(NoteSigner::from_secret_text(&signer.verifier().to_string()).is_err());
    }

    #[test]
    fn what_is_no_note_and_no_key_is_refused() {
        for bad in [
            "",
            "\n\n",
            "text\n",
            "text\n\n",
            "text\n\n\u{2014} name\n",
            "text\n\n\u{2014} name !!\n",
            "text\n\n\u{2014} name AAAA\n",
        ] {
            assert!(SignedNote::parse(bad).is_err(), "{bad:?}");
        }
        for bad in [
            "",
            "a",
            "a+b",
            "+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "a+00000000+AQ==",
            &KNOWN_KEY.replace("c7", "c8"),
        ] {
            assert!(bad.parse::<NoteKey>().is_err(), "{bad:?}");
        }
    }
}
