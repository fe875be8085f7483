//! Which addresses an authority may have: https, and plain http only on this machine.
//!
//! An answer of these authorities decides who is let in. Over plain http anybody on the way could write it, so http ends
//! at the loopback interface unless the operator says otherwise in so many words.
//!
//! Not here: addresses that callers choose (those are matched against a list in `did_web`).

use reqwest::Url;
use url::Host;

/// Why an address in the configuration cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not a URL with a host.
    #[error("the address must be a URL such as `https://issuer.example.com/keys.json`")]
    NotAUrl,
    /// Neither http nor https.
    #[error("the address must begin with `https://`, or with `http://` on this machine")]
    Scheme,
    /// http to another machine.
    #[error("the address must begin with `https://`: `http://` is for this machine only")]
    Plaintext,
    /// A user, password or fragment, or a query where there can be none.
    #[error("the address must not contain a user, a password, a fragment or, for a policy engine, a query")]
    Parts,
}

/// Reads an address from the configuration.
pub(crate) fn checked(text: &str, plaintext_anywhere: bool) -> Result<Url, AddressError> {
    let url = Url::parse(text).map_err(|_| AddressError::NotAUrl)?;
    match url.scheme() {
        "https" => {}
        "http" if plaintext_anywhere || is_loopback(&url) => {}
        "http" => return Err(AddressError::Plaintext),
        _ => return Err(AddressError::Scheme),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(AddressError::Parts);
    }
    Ok(url)
}

/// Does the address point at this machine?
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_ends_at_the_loopback_interface() {
        for (text, expected) in [
            ("https://issuer.example.com/keys?tenant=a", Ok(())),
            ("http://127.0.0.1:8080/keys", Ok(())),
            ("http://127.9.9.9/keys", Ok(())),
            ("http://localhost/keys", Ok(())),
            ("http://LOCALHOST/keys", Ok(())),
            ("http://[::1]:8080/keys", Ok(())),
            ("http://issuer.example.com/keys", Err(AddressError::Plaintext)),
            ("http://localhost.example.com/", Err(AddressError::Plaintext)),
            ("http://127.0.0.1.example.com/", Err(AddressError::Plaintext)),
            ("http://10.0.0.1/", Err(AddressError::Plaintext)),
            ("http://0.0.0.0/", Err(AddressError::Plaintext)),
            ("ftp://127.0.0.1/", Err(AddressError::Scheme)),
            ("file:///etc/keys.json", Err(AddressError::Scheme)),
            ("https://user@issuer.example.com/", Err(AddressError::Parts)),
            ("https://:password@issuer.example.com/", Err(AddressError::Parts)),
            ("https://issuer.example.com/#keys", Err(AddressError::Parts)),
            ("issuer.example.com", Err(AddressError::NotAUrl)),
            ("https://", Err(AddressError::NotAUrl)),
            ("", Err(AddressError::NotAUrl)),
        ] {
            assert_eq!(checked(text, false).map(drop), expected, "{text}");
        }
        assert!(checked("http://opa:8181", true).is_ok());
    }
}
