//! Seals what clients carry around for us and give back: the `requestState` of a call that waits for an answer.
//!
//! Whoever holds the text can neither change it nor use it for another caller, another tool, other arguments or later than
//! it says. The key lives as long as the process, as the calls do that wait.

use contract::canonical::{self, Digest};
use contract::hex::lower_hex;
use policy::Caller;
use ports::entropy::Entropy;
use ring::hmac;
use serde_json::{Value, json};

/// Bytes of what is sealed: id, end, binding.
const SEALED_BYTES: usize = 16 + 8 + 32;
/// Bytes of the tag of HMAC-SHA-256.
const TAG_BYTES: usize = 32;

/// Makes and breaks seals.
pub(crate) struct StateSeal(hmac::Key);

/// Which waiting call a text speaks of.
pub(crate) type WaitingId = [u8; 16];

/// Why a text was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// Not made by this process, or changed since.
    #[error("`requestState` was not given out by this server, or has been changed")]
    Broken,
    /// Too late.
    #[error("the time for an answer is over")]
    Expired,
    /// Made for another caller, tool or arguments.
    #[error(
        "`requestState` belongs to another call: send it with the same tool, the same arguments and the same token"
    )]
    Foreign,
}

impl std::fmt::Debug for StateSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl StateSeal {
    /// With a key nobody knows.
    pub(crate) fn new(entropy: &dyn Entropy) -> Self {
        let mut key = [0; 32];
        entropy.fill(&mut key);
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// The text for one waiting call.
    pub(crate) fn close(&self, id: WaitingId, until_ms: i64, binding: &Digest) -> String {
        let sealed: Vec<u8> =
            id.into_iter().chain(until_ms.to_be_bytes()).chain(binding.as_bytes().iter().copied()).collect();
        let tag = hmac::sign(&self.0, &sealed);
        lower_hex(&[&sealed, tag.as_ref()].concat())
    }

    /// Which call it speaks of, if it is whole, in time and in the right hands.
    pub(crate) fn open(&self, text: &str, now_ms: i64, binding: &Digest) -> Result<WaitingId, SealError> {
        let bytes = bytes_of(text).ok_or(SealError::Broken)?;
        let (sealed, tag) = bytes.split_at_checked(SEALED_BYTES).ok_or(SealError::Broken)?;
        hmac::verify(&self.0, sealed, tag).map_err(|_| SealError::Broken)?;
        let (id, rest) = sealed.split_first_chunk::<16>().ok_or(SealError::Broken)?;
        let (until, bound) = rest.split_first_chunk::<8>().ok_or(SealError::Broken)?;
        if bound != binding.as_bytes() {
            return Err(SealError::Foreign);
        }
        if now_ms >= i64::from_be_bytes(*until) {
            return Err(SealError::Expired);
        }
        Ok(*id)
    }
}

/// What a seal is bound to.
pub(crate) fn binding(caller: &Caller, tool: &str, arguments: &Value) -> Digest {
    canonical::digest(&json!([principal(caller), tool, canonical::digest(arguments).to_string()]))
}

/// Who somebody is, whatever token it is shown by: everybody who has a hand in it.
pub(crate) fn principal(caller: &Caller) -> String {
    let chain: Vec<&str> = caller.chain().iter().map(|link| link.sub.as_str()).collect();
    let user = caller.user().map(contract::ids::Subject::as_str);
    json!([caller.tenant(), caller.subject(), user, chain]).to_string()
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * (SEALED_BYTES + TAG_BYTES) || !text.is_ascii() {
        return None;
    }
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(u8);
    impl Entropy for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    #[test]
    fn a_seal_opens_for_its_own_call_in_time_and_for_nothing_else() {
        let seal = StateSeal::new(&Fixed(1));
        let (mine, other) = (Digest::of_bytes(b"mine"), Digest::of_bytes(b"other"));
        let text = seal.close([7; 16], 1000, &mine);
        assert_eq!(seal.open(&text, 999, &mine), Ok([7; 16]));
        assert_eq!(seal.open(&text, 1000, &mine), Err(SealError::Expired));
        assert_eq!(seal.open(&text, 999, &other), Err(SealError::Foreign));
        assert_eq!(StateSeal::new(&Fixed(2)).open(&text, 999, &mine), Err(SealError::Broken));
        for at in [0, 20, 40, 100, text.len() - 1] {
            let mut changed: Vec<char> = text.chars().collect();
            changed[at] = if changed[at] == '0' { '1' } else { '0' };
            let changed: String = changed.into_iter().collect();
            assert_eq!(seal.open(&changed, 999, &mine), Err(SealError::Broken), "{at}");
        }
        for short in ["", "00", text.trim_start_matches('0').trim_start_matches('7')] {
            assert_eq!(seal.open(short, 999, &mine), Err(SealError::Broken));
        }
    }
}
