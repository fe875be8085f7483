//! The store's address: what the library reads of it, and what it does not know.
//!
//! The library knows `sslmode` as `disable`, `prefer` and `require`. Here certificates are always verified, so
//! `verify-full`, which people write for that, is the same as `require`; and `sslrootcert` names a file of roots.

use std::path::PathBuf;

use tokio_postgres::Config;

/// An address as it was read.
pub(super) struct Address {
    pub(super) config: Config,
    /// A PEM file with the certificates to trust.
    pub(super) roots: Option<PathBuf>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, tokio_postgres::Error> {
        let Some((before, query)) = url.split_once('?') else { return Ok(Self { config: url.parse()?, roots: None }) };
        let (mut left, mut roots) = (Vec::new(), None);
        for setting in query.split('&') {
            match setting.split_once('=') {
                Some(("sslrootcert", file)) => roots = Some(PathBuf::from(decoded(file))),
                Some(("sslmode", "verify-full")) => left.push("sslmode=require"),
                _ => left.push(setting),
            }
        }
        let url = if left.is_empty() { before.to_owned() } else { format!("{before}?{}", left.join("&")) };
        Ok(Self { config: url.parse()?, roots })
    }
}

/// The address without its password, for people to read.
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user.split(':').next().unwrap_or(""));
    // The password may also be a setting, and settings say little to people.
    let database = after.split('?').next().unwrap_or("");
    if user.is_empty() {
        format!("{scheme}://{place}{database}")
    } else {
        format!("{scheme}://{user}@{place}{database}")
    }
}

/// `%2F` and the like as the characters they stand for.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_postgres::config::SslMode;

    #[test]
    fn what_the_library_does_not_know_is_taken_out_of_the_address() {
        for (url, mode, roots) in [
            ("postgres://a@h/d", SslMode::Prefer, None),
            ("postgres://a@h/d?sslmode=disable", SslMode::Disable, None),
            ("postgres://a@h/d?sslmode=verify-full&sslrootcert=/etc/ca.pem", SslMode::Require, Some("/etc/ca.pem")),
            ("postgres://a@h/d?sslrootcert=%2Fetc%2Fc%20a.pem&sslmode=require", SslMode::Require, Some("/etc/c a.pem")),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.config.get_ssl_mode(), address.roots), (mode, roots.map(PathBuf::from)), "{url}");
        }
        assert!(Address::parse("postgres://a@h/d?sslmode=verify-ca").is_err());
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://gantry:s3cret@db:5432/gantry", "postgres://gantry@db:5432/gantry"),
            ("postgres://gantry:s3c@ret@db/gantry?password=s3cret", "postgres://gantry@db/gantry"),
            ("postgresql://db/gantry", "postgresql://db/gantry"),
            ("postgres://:s3cret@db", "postgres://db"),
        ] {
            assert_eq!(without_password(url), shown);
            assert!(!without_password(url).contains("s3c"));
        }
    }
}
