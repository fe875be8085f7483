//! The token a policy engine may want from us. It cannot be printed: `Debug` masks it, and there is no way to read it.

use std::fmt;

use reqwest::header::HeaderValue;

/// A token, kept as the header it is sent in.
#[derive(Clone)]
pub struct BearerToken(HeaderValue);

/// Why a text is no token. Does not say what the text was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a bearer token must be visible ASCII characters without spaces")]
pub struct BearerTokenError;

impl BearerToken {
    /// Takes a token.
    ///
    /// # Errors
    /// It is empty or has characters that cannot stand in a header.
    pub fn new(token: &str) -> Result<Self, BearerTokenError> {
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BearerTokenError);
        }
        let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| BearerTokenError)?;
        header.set_sensitive(true);
        Ok(Self(header))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_show_itself() {
        let token = BearerToken::new("s3cret").unwrap();
        assert_eq!(format!("{token:?}"), "BearerToken(***)");
        assert!(!format!("{:?}", token.header()).contains("s3cret"));
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_no_token() {
        for bad in ["", " ", "a b", "a\r\nx-admin: 1", "ä", "a\u{7f}"] {
            assert_eq!(BearerToken::new(bad).map(drop), Err(BearerTokenError), "{bad:?}");
        }
    }
}
