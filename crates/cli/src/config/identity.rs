//! `[identity]`: whose tokens are accepted, and how strictly. (AUTH-002…005, AUTH-012)
//!
//! This server's own keys are always trusted. One other issuer may be trusted besides, by keys in files, by a key set in a
//! file, or by a key set behind a URL; what its tokens may give is limited to `trusted_roles`.
//!
//! Not here: reading the keys (`outside`), and where the own keys are (`data_dir`).

use std::path::PathBuf;
use std::time::Duration;

use policy::{Role, TokenMinter};
use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::ControlPath;
use super::problems::SectionProblems;
use super::section::ConfigSection;

/// Whose tokens are accepted, and how strictly.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct IdentityKeys {
    /// What this server's own tokens say as `iss`. Changing it ends every token that was minted before.
    pub(super) issuer: String,
    /// What every token must say as `aud`. Give each installation its own, so that a token for one is none for the other.
    pub(super) audience: String,
    /// Seconds by which the clocks of issuer and server may differ. Tokens begin that much earlier and live that much
    /// longer.
    #[schemars(range(min = 0, max = 300))]
    pub(super) clock_skew_seconds: u32,
    /// How often a token may be handed on (`gantry token delegate`, `POST /oauth/token`). Longer chains are refused.
    #[schemars(range(min = 1, max = 10))]
    pub(super) delegation_depth: usize,
    /// Must the subject of every token be a known DID? Otherwise plain names will do, and only what looks like a DID is
    /// checked. Unknown ones answer E3207.
    pub(super) require_did: bool,
    /// What tokens signed by the keys of `trusted_keys`, `jwks_file` or `jwks_url` must say as `iss`.
    #[schemars(extend("x-unset" = "the same as `issuer`"))]
    pub(super) trusted_issuer: Option<String>,
    /// Roles that tokens of the trusted issuer may give: `admin`, `operator`, `approver`, `auditor`, `tool_author`,
    /// `agent`. A token that gives another one is refused; with `agent` alone, one that gives none is an agent's.
    pub(super) trusted_roles: Vec<String>,
    /// Files with public keys of the trusted issuer, one key each: `BEGIN PUBLIC KEY`, RSA of at least 2048 bits (RS256),
    /// P-256 (ES256) or Ed25519 (EdDSA). A token names its key (`kid`) by the file's name without extension, or by the
    /// key's RFC 7638 thumbprint.
    pub(super) trusted_keys: Vec<ControlPath>,
    /// File with the JWK set of the trusted issuer. Read again every `jwks_refresh_seconds`, and when a token names a key
    /// that is not known. Not together with `jwks_url`.
    #[schemars(extend("x-unset" = "no key set is read from a file"))]
    pub(super) jwks_file: Option<ControlPath>,
    /// Address of the JWK set of the trusted issuer: `https://…`, or `http://…` on this machine. Fetched again every
    /// `jwks_refresh_seconds`, and when a token names a key that is not known, at most every 5 seconds. While it cannot be
    /// had the former keys stay in force, for up to a day. Not together with `jwks_file`.
    #[schemars(extend("x-unset" = "no key set is fetched"))]
    pub(super) jwks_url: Option<String>,
    /// Seconds between two looks at the key set. A key that its issuer has withdrawn is trusted no longer than that.
    #[schemars(range(min = 5, max = 86_400))]
    pub(super) jwks_refresh_seconds: u64,
    /// Hosts that may be asked for the documents of `did:web` subjects: `example.com`, `example.com:8443`, `*.example.com`.
    /// They are asked at public addresses only, and in the networks of `[egress] open_networks`. Empty: none is asked, and
    /// a `did:web` is known only if an administrator has introduced it.
    pub(super) did_web_hosts: Vec<String>,
    /// Failed authentications per minute and source address. At the limit: E3003 with `Retry-After`. Tokens that were
    /// accepted a moment ago are not affected.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) auth_failures_per_minute: u32,
}

impl Default for IdentityKeys {
    fn default() -> Self {
        let TokenMinter { issuer, audience } = TokenMinter::default();
        Self {
            issuer,
            audience,
            clock_skew_seconds: 0,
            delegation_depth: policy::DELEGATION_DEPTH_MAX,
            require_did: false,
            trusted_issuer: None,
            trusted_roles: vec![Role::Agent.as_str().to_owned()],
            trusted_keys: Vec::new(),
            jwks_file: None,
            jwks_url: None,
            jwks_refresh_seconds: 300,
            did_web_hosts: Vec::new(),
            auth_failures_per_minute: 600,
        }
    }
}

/// The section's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentitySection {
    pub(crate) issuer: String,
    pub(crate) audience: String,
    pub(crate) clock_skew_seconds: u32,
    pub(crate) delegation_depth: usize,
    pub(crate) require_did: bool,
    pub(crate) trusted: Option<TrustedIssuer>,
    /// Empty: nobody is asked.
    pub(crate) did_web_hosts: Vec<String>,
    pub(crate) failures_per_minute: u32,
}

/// Another issuer whose tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustedIssuer {
    pub(crate) name: String,
    pub(crate) roles: Vec<Role>,
    /// Public keys, a PEM file each.
    pub(crate) key_files: Vec<PathBuf>,
    pub(crate) key_set: Option<KeySetPlace>,
    pub(crate) refresh_every: Duration,
}

/// Where a key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySetPlace {
    File(PathBuf),
    Url(String),
}

impl ConfigSection for IdentityKeys {
    const NAME: &'static str = "identity";
    type Checked = IdentitySection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> IdentitySection {
        for (name, text) in [("issuer", &self.issuer), ("audience", &self.audience)] {
            // As tokens have it; an empty name would make every token that lacks one ours.
            if !(1..=256).contains(&text.len()) || text.chars().any(char::is_control) {
                problems.at(name, "must be 1 to 256 printable characters");
            }
        }
        IdentitySection {
            clock_skew_seconds: self.clock_skew_seconds,
            delegation_depth: self.delegation_depth,
            require_did: self.require_did,
            failures_per_minute: self.auth_failures_per_minute,
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            did_web_hosts: self.did_web_hosts.clone(),
            trusted: self.trusted(problems),
        }
    }
}

impl IdentityKeys {
    fn trusted(self, problems: &mut SectionProblems<'_>) -> Option<TrustedIssuer> {
        let before = problems.count();
        let roles = roles(&self.trusted_roles, problems);
        let roles_are_fine = problems.count() == before;
        let key_set = match (self.jwks_file, self.jwks_url) {
            (Some(_), Some(_)) => {
                problems.at("jwks_url", "not together with `jwks_file`: set one of the two");
                None
            }
            (Some(file), None) => Some(KeySetPlace::File(file.into())),
            (None, Some(url)) => Some(KeySetPlace::Url(url)),
            (None, None) => None,
        };
        if self.trusted_keys.is_empty() && key_set.is_none() {
            if self.trusted_issuer.is_some() {
                let message = "names an issuer without keys: set `trusted_keys`, `jwks_file` or `jwks_url` too";
                problems.at("trusted_issuer", message);
            }
            let without = "keys of another issuer (`trusted_keys`, `jwks_file` or `jwks_url`)";
            // One problem of one setting is enough.
            if roles_are_fine {
                problems.idle(&["trusted_roles"], without);
            }
            problems.idle(&["jwks_refresh_seconds"], without);
            return None;
        }
        Some(TrustedIssuer {
            name: self.trusted_issuer.unwrap_or(self.issuer),
            roles,
            key_files: self.trusted_keys.into_iter().map(Into::into).collect(),
            key_set,
            refresh_every: Duration::from_secs(self.jwks_refresh_seconds),
        })
    }
}

impl IdentitySection {
    /// In whose name and for whom this installation makes tokens.
    pub(crate) fn minter(&self) -> TokenMinter {
        TokenMinter { issuer: self.issuer.clone(), audience: self.audience.clone() }
    }
}

fn roles(texts: &[String], problems: &mut SectionProblems<'_>) -> Vec<Role> {
    let mut roles = Vec::new();
    for text in texts {
        match Role::ALL.into_iter().find(|role| role.as_str() == text) {
            Some(role) => roles.push(role),
            None => {
                let known: Vec<&str> = Role::ALL.into_iter().map(Role::as_str).collect();
                problems.at("trusted_roles", format!("there is no role `{text}`; use {}", known.join(", ")));
            }
        }
    }
    roles
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_variables;
    use super::*;

    #[test]
    fn without_configuration_only_own_keys_are_trusted() {
        let (section, problems) = of_variables::<IdentityKeys>(&[]);
        assert!(problems.is_empty() && section.trusted.is_none() && !section.require_did);
        assert_eq!((section.issuer.as_str(), section.audience.as_str()), (policy::ISSUER, policy::AUDIENCE));
        assert_eq!(section.delegation_depth, policy::DELEGATION_DEPTH_MAX);
        assert_eq!((section.clock_skew_seconds, section.failures_per_minute), (0, 600));
    }

    #[test]
    fn another_issuer_has_our_name_and_gives_agents_unless_told_otherwise() {
        let (section, problems) = of_variables::<IdentityKeys>(&[("TRUSTED_KEYS", "a.pem, b.pem"), ("ISSUER", "me")]);
        let trusted = section.trusted.unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!((trusted.name.as_str(), trusted.roles, trusted.key_files.len()), ("me", vec![Role::Agent], 2));
        let (section, _) = of_variables::<IdentityKeys>(&[
            ("JWKS_URL", "https://issuer.example.com/keys"),
            ("TRUSTED_ISSUER", "them"),
            ("TRUSTED_ROLES", "operator,auditor"),
        ]);
        let trusted = section.trusted.unwrap();
        assert_eq!((trusted.name.as_str(), trusted.roles), ("them", vec![Role::Operator, Role::Auditor]));
        assert_eq!(trusted.refresh_every, Duration::from_secs(300));
    }

    #[test]
    fn what_cannot_be_meant_is_a_problem() {
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str);
        let cases: &[Case<'_>] = &[
            (&[("JWKS_URL", "https://a"), ("JWKS_FILE", "b")], "not together"),
            (&[("TRUSTED_ISSUER", "them")], "without keys"),
            (&[("TRUSTED_ROLES", "agent,root")], "no role `root`"),
            (&[("ISSUER", "")], "1 to 256 printable"),
            (&[("AUDIENCE", "a\tb")], "1 to 256 printable"),
        ];
        for (variables, word) in cases {
            let (_, problems) = of_variables::<IdentityKeys>(variables);
            assert!(problems.len() == 1 && problems[0].contains(word), "{variables:?}: {problems:?}");
        }
    }
}
