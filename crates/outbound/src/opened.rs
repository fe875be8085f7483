//! What the operator has opened beyond public hosts by https on port 443, in words of a configuration:
//!
//! - `hooks.example.com:8443`: this port of this host too;
//! - `10.0.0.7:8443`: this very address, though it is not public;
//! - `http://10.0.0.7:8080`: the same without TLS;
//! - `10.1.0.0/16`: names may lead into this network.

use std::str::FromStr;

use sandbox::egress::{Cidr, CidrError, EgressHost, EgressRule, HostPattern, RuleError};

/// What the operator has opened beyond public hosts by https on port 443.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenedNetworks {
    rules: Vec<EgressRule>,
    /// Those of the rules that may be called without TLS.
    plaintext: Vec<EgressRule>,
    networks: Vec<Cidr>,
}

/// Why a text opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenedError {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Network(#[from] CidrError),
    /// `http://*`, `http:*`.
    #[error("plain http is allowed for one host at a time: write `http://host:port`")]
    PlaintextEverywhere,
}

impl OpenedNetworks {
    /// Reads the operator's words.
    ///
    /// ```
    /// # use gantry_outbound::OpenedNetworks;
    /// assert!(OpenedNetworks::read(["hooks.example.com:8443", "http://10.0.0.7:8080", "10.1.0.0/16"]).is_ok());
    /// assert_eq!(OpenedNetworks::read(["http:*"]).unwrap_err().0, "http:*");
    /// ```
    ///
    /// # Errors
    /// The first that cannot be read, with its text.
    pub fn read<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, (String, OpenedError)> {
        let mut opened = Self::default();
        for text in texts {
            opened.add(text).map_err(|error| (text.to_owned(), error))?;
        }
        Ok(opened)
    }

    /// Hosts and ports that are named.
    #[must_use]
    pub fn rules(&self) -> &[EgressRule] {
        &self.rules
    }

    /// Networks that are not public and into which names may lead.
    #[must_use]
    pub fn networks(&self) -> &[Cidr] {
        &self.networks
    }

    /// Is a whole rule among what is named, and not only a part of it?
    #[must_use]
    pub fn covers(&self, wanted: &EgressRule) -> bool {
        self.rules.iter().any(|rule| rule.intersect(wanted).as_ref() == Some(wanted))
    }

    /// May this port of this host be asked without TLS?
    pub(crate) fn allows_plaintext(&self, host: &EgressHost, port: u16) -> bool {
        self.plaintext.iter().any(|rule| rule.admits(host, port))
    }

    fn add(&mut self, text: &str) -> Result<(), OpenedError> {
        let text = text.trim();
        if text.contains('/') && !text.contains("://") {
            self.networks.push(Cidr::from_str(text)?);
            return Ok(());
        }
        let rule = EgressRule::from_str(text)?;
        if text.to_ascii_lowercase().starts_with("http:") {
            if rule.host == HostPattern::Any {
                return Err(OpenedError::PlaintextEverywhere);
            }
            self.plaintext.push(rule.clone());
        }
        self.rules.push(rule);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_covered_as_a_whole_or_not_at_all() {
        let opened = OpenedNetworks::read(["https://*.example.com", "10.0.0.7:8080", "one.example:*"]).unwrap();
        for (text, covered) in [
            ("https://a.example.com", true),
            ("a.example.com:443", true),
            ("a.example.com", false),
            ("a.example.com:*", false),
            ("https://example.com", false),
            ("10.0.0.7:8080", true),
            ("10.0.0.7:8081", false),
            ("one.example:9", true),
            ("one.example:*", true),
            ("*", false),
        ] {
            assert_eq!(opened.covers(&text.parse().unwrap()), covered, "{text}");
        }
    }
}
