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

/// The file of roots that an address names, if it names one.
pub fn root_certificates(url: &str) -> Option<PathBuf> {
    let (_, query) = url.split_once('?')?;
    query.split('&').rev().find_map(|setting| setting.strip_prefix("sslrootcert=")).map(decoded).map(PathBuf::from)
}

/// The same address with another file of roots in place of the one it names.
pub fn with_root_certificates(url: &str, file: &str) -> String {
    let Some((before, query)) = url.split_once('?') else { return url.to_owned() };
    let settings = query.split('&').map(|setting| match setting.strip_prefix("sslrootcert=") {
        Some(_) => format!("sslrootcert={}", encoded(file)),
        None => setting.to_owned(),
    });
    format!("{before}?{}", settings.collect::<Vec<_>>().join("&"))
}

/// The address without its password, for people to read. Where it cannot be told what belongs to the password, that is not
/// shown either.
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    // The password may also be a setting, and settings say little to people.
    let (before, settings) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, place) = match (before.rsplit_once('@'), settings.contains('@')) {
        (Some((user, place)), false) => (user, place),
        (None, false) => ("", before),
        (user, true) => (user.map_or("", |(user, _)| user), "(hidden)"),
    };
    let user = user.split(':').next().unwrap_or("");
    if user.is_empty() { format!("{scheme}://{place}") } else { format!("{scheme}://{user}@{place}") }
}

/// Has the password a character that means something else in an address, unless it is written with a percent sign?
pub fn password_has_raw_signs(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (before, settings) = rest.split_once('?').unwrap_or((rest, ""));
    let user = if settings.contains('@') { rest.rsplit_once('@') } else { before.rsplit_once('@') };
    let Some((_, password)) = user.and_then(|(user, _)| user.split_once(':')) else { return false };
    let digits = |after: &str| after.chars().take(2).filter(char::is_ascii_hexdigit).count() == 2;
    password.contains(['@', '#', '/', '?']) || password.split('%').skip(1).any(|after| !digits(after))
}

/// Everything that could mean something in an address as `%` and two digits.
fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte);
    let signs = text.bytes().map(|byte| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    signs.collect()
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
    fn signs_of_a_password_that_mean_something_else_are_noticed() {
        for (url, raw) in [
            ("postgres://a:plain@h/d?sslmode=require", false),
            ("postgres://a:%40%2F100%25@h/d", false),
            ("postgres://h/d", false),
            ("postgres://a@h/d?application_name=x", false),
            ("postgres://a:p@ss@h/d", true),
            ("postgres://a:p#ss@h/d", true),
            ("postgres://a:p/ss@h/d", true),
            ("postgres://a:p?ss@h/d", true),
            ("postgres://a:100%@h/d", true),
        ] {
            assert_eq!(password_has_raw_signs(url), raw, "{url}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://gantry:s3cret@db:5432/gantry", "postgres://gantry@db:5432/gantry"),
            ("postgres://gantry:s3c@ret@db/gantry?password=s3cret", "postgres://gantry@db/gantry"),
            ("postgresql://db/gantry", "postgresql://db/gantry"),
            ("postgres://:s3cret@db", "postgres://db"),
            ("postgres://gantry:s3c/ret@db/gantry", "postgres://gantry@db/gantry"),
            ("postgres://gantry:s3c?ret@db/gantry", "postgres://(hidden)"),
            ("postgres://gantry@db/gantry?password=s3c@s3cret", "postgres://gantry@(hidden)"),
        ] {
            assert_eq!(without_password(url), shown);
            assert!(!without_password(url).contains("s3c"));
        }
    }

    #[test]
    fn the_file_of_roots_is_found_and_replaced_and_everything_else_stays() {
        let url = "postgres://a:p%40w@h/d?sslmode=require&sslrootcert=c%20a.pem&application_name=x";
        assert_eq!(root_certificates(url), Some("c a.pem".into()));
        let moved = with_root_certificates(url, "/etc/a&b/ü.pem");
        assert_eq!(root_certificates(&moved), Some("/etc/a&b/ü.pem".into()));
        assert!(moved.starts_with("postgres://a:p%40w@h/d?sslmode=require&sslrootcert=/etc/a%26b/"), "{moved}");
        assert!(moved.ends_with("&application_name=x"), "{moved}");
        for url in ["postgres://a@h/d", "postgres://a@h/d?sslmode=require"] {
            assert_eq!((root_certificates(url), with_root_certificates(url, "/x")), (None, url.to_owned()));
        }
    }
}
