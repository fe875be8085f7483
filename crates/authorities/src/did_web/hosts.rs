//! The hosts whose DID documents are asked for. Nobody else is ever contacted.
//!
//! An entry is a host (`example.com`: any port), a host with a port (`example.com:8443`: this port only), or a star for
//! the names below a host, at any depth and without the host itself (`*.example.com`).

use std::str::FromStr;

use reqwest::Url;

use super::location::is_host;

/// Why an entry of the list cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` is not a host: write `example.com`, `example.com:8443` or `*.example.com`, international names in their `xn--` form"
)]
pub struct HostListError {
    pub given: String,
}

/// The list.
#[derive(Debug)]
pub(super) struct HostList(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    name: Name,
    port: Option<u16>,
}

#[derive(Debug)]
enum Name {
    Exactly(String),
    /// `.example.com`, with its leading dot.
    EndingWith(String),
}

impl HostList {
    pub(super) fn new(entries: &[String]) -> Result<Self, HostListError> {
        entries.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Self)
    }

    /// May this address be asked?
    pub(super) fn has(&self, url: &Url) -> bool {
        let (Some(host), port) = (url.host_str(), url.port_or_known_default()) else { return false };
        self.0.iter().any(|entry| {
            let named = match &entry.name {
                Name::Exactly(name) => host == name,
                Name::EndingWith(end) => host.len() > end.len() && host.ends_with(end.as_str()),
            };
            named && (entry.port.is_none() || entry.port == port)
        })
    }
}

impl FromStr for Entry {
    type Err = HostListError;
    fn from_str(text: &str) -> Result<Self, HostListError> {
        let wrong = || HostListError { given: text.chars().filter(|c| !c.is_control()).take(80).collect() };
        let (pattern, port) = match text.split_once(':') {
            None => (text, None),
            Some((pattern, digits)) => {
                let port = digits.parse().ok().filter(|port: &u16| *port > 0 && digits.bytes().all(|b| b != b'+'));
                (pattern, Some(port.ok_or_else(wrong)?))
            }
        };
        let (below, host) = match pattern.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, pattern),
        };
        // A star must not stand for the front of an IP address.
        let is_name = host.rsplit('.').next().is_some_and(|label| label.bytes().any(|b| b.is_ascii_alphabetic()));
        if !is_host(host) || (below && !is_name) {
            return Err(wrong());
        }
        let host = host.to_ascii_lowercase();
        Ok(Self { name: if below { Name::EndingWith(format!(".{host}")) } else { Name::Exactly(host) }, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(entry: &str, url: &str) -> bool {
        HostList::new(&[entry.to_owned()]).unwrap().has(&Url::parse(url).unwrap())
    }

    #[test]
    fn an_entry_names_a_host_a_port_or_what_is_below() {
        for (entry, url, expected) in [
            ("example.com", "https://example.com/", true),
            ("Example.COM", "https://example.com/", true),
            ("example.com", "https://example.com:3000/", true),
            ("example.com", "https://a.example.com/", false),
            ("example.com", "https://badexample.com/", false),
            ("example.com", "https://example.com.evil.net/", false),
            ("example.com:443", "https://example.com/", true),
            ("example.com:3000", "https://example.com:3000/", true),
            ("example.com:3000", "https://example.com/", false),
            ("*.example.com", "https://a.example.com/", true),
            ("*.example.com", "https://a.b.example.com:8443/", true),
            ("*.example.com", "https://example.com/", false),
            ("*.example.com", "https://badexample.com/", false),
            ("*.example.com:8443", "https://a.example.com/", false),
            ("127.0.0.1", "http://127.0.0.1:9/", true),
        ] {
            assert_eq!(has(entry, url), expected, "{entry} {url}");
        }
        assert!(!HostList::new(&[]).unwrap().has(&Url::parse("https://example.com").unwrap()));
    }

    #[test]
    fn an_entry_that_is_no_host_is_refused() {
        for bad in [
            "",
            "*",
            "*.",
            "*.*",
            "a.*.b",
            "*example.com",
            "*.0.0.1",
            "a b",
            "https://a",
            "a/b",
            "a:",
            "a:0",
            "a:+1",
            "a:65536",
            "a:1:2",
            "u@a",
            "ä.de",
            "a..b",
            ".a",
            "a.",
        ] {
            let error = HostList::new(&[bad.to_owned()]).map(drop).unwrap_err();
            assert_eq!(error.given, bad);
        }
    }
}
