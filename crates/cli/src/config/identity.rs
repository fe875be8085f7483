//! `[identity]`: whose tokens are accepted, and how strictly. (AUTH-002…005, AUTH-012)
//!
//! This server's own keys are always trusted. One other issuer may be trusted besides, by keys in files, by a key set in a
//! file, or by a key set behind a URL; what its tokens may give is limited to `trusted_roles`.
//!
//! Not here: reading the keys (`outside`), and where the own keys are (`data_dir`).

use std::path::PathBuf;
use std::time::Duration;

use base::SaturatingFrom as _;
use policy::{Role, TokenMinter};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "identity";

const ISSUER: ConfigKey = ConfigKey {
    section: SECTION,
    name: "issuer",
    kind: KeyKind::Text,
    default: Some("gantry"),
    unset: "",
    doc: "What this server's own tokens say as `iss`. Changing it ends every token that was minted before.",
    since: "0.1",
};

const AUDIENCE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "audience",
    kind: KeyKind::Text,
    default: Some("gantry"),
    unset: "",
    doc: "What every token must say as `aud`. Give each installation its own, so that a token for one is none for the other.",
    since: "0.1",
};

const CLOCK_SKEW_SECONDS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "clock_skew_seconds",
    kind: KeyKind::Integer(0..=300),
    default: Some("0"),
    unset: "",
    doc: "Seconds by which the clocks of issuer and server may differ. Tokens begin that much earlier and live that much \
          longer.",
    since: "0.1",
};

const DELEGATION_DEPTH: ConfigKey = ConfigKey {
    section: SECTION,
    name: "delegation_depth",
    kind: KeyKind::Integer(1..=10),
    default: Some("5"),
    unset: "",
    doc: "How often a token may be handed on (`gantry token delegate`, `POST /oauth/token`). Longer chains are refused.",
    since: "0.1",
};

const REQUIRE_DID: ConfigKey = ConfigKey {
    section: SECTION,
    name: "require_did",
    kind: KeyKind::Flag,
    default: Some("false"),
    unset: "",
    doc: "Must the subject of every token be a known DID? Otherwise plain names will do, and only what looks like a DID is \
          checked. Unknown ones answer E3207.",
    since: "0.1",
};

const TRUSTED_ISSUER: ConfigKey = ConfigKey {
    section: SECTION,
    name: "trusted_issuer",
    kind: KeyKind::Text,
    default: None,
    unset: "the same as `issuer`",
    doc: "What tokens signed by the keys of `trusted_keys`, `jwks_file` or `jwks_url` must say as `iss`.",
    since: "0.1",
};

const TRUSTED_ROLES: ConfigKey = ConfigKey {
    section: SECTION,
    name: "trusted_roles",
    kind: KeyKind::List,
    default: Some("agent"),
    unset: "",
    doc: "Roles that tokens of the trusted issuer may give: `admin`, `operator`, `approver`, `auditor`, `tool_author`, \
          `agent`. A token that gives another one is refused; with `agent` alone, one that gives none is an agent's.",
    since: "0.1",
};

/// Public keys of another issuer.
pub(crate) const TRUSTED_KEYS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "trusted_keys",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Files with public keys of the trusted issuer, one key each: `BEGIN PUBLIC KEY`, RSA of at least 2048 bits (RS256), \
          P-256 (ES256) or Ed25519 (EdDSA). A token names its key (`kid`) by the file's name without extension, or by the \
          key's RFC 7638 thumbprint.",
    since: "0.1",
};

/// A key set of another issuer, in a file.
pub(crate) const JWKS_FILE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "jwks_file",
    kind: KeyKind::Text,
    default: None,
    unset: "no key set is read from a file",
    doc: "File with the JWK set of the trusted issuer. Read again every `jwks_refresh_seconds`, and when a token names a key \
          that is not known. Not together with `jwks_url`.",
    since: "0.1",
};

/// A key set of another issuer, behind an address.
pub(crate) const JWKS_URL: ConfigKey = ConfigKey {
    section: SECTION,
    name: "jwks_url",
    kind: KeyKind::Text,
    default: None,
    unset: "no key set is fetched",
    doc: "Address of the JWK set of the trusted issuer: `https://…`, or `http://…` on this machine. Fetched again every \
          `jwks_refresh_seconds`, and when a token names a key that is not known, at most every 5 seconds. While it cannot be \
          had the former keys stay in force, for up to a day. Not together with `jwks_file`.",
    since: "0.1",
};

const JWKS_REFRESH_SECONDS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "jwks_refresh_seconds",
    kind: KeyKind::Integer(5..=86_400),
    default: Some("300"),
    unset: "",
    doc: "Seconds between two looks at the key set. A key that its issuer has withdrawn is trusted no longer than that.",
    since: "0.1",
};

/// Who may be asked for documents of DIDs.
pub(crate) const DID_WEB_HOSTS: ConfigKey = ConfigKey {
    section: SECTION,
    name: "did_web_hosts",
    kind: KeyKind::List,
    default: Some(""),
    unset: "",
    doc: "Hosts that may be asked for the documents of `did:web` subjects: `example.com`, `example.com:8443`, \
          `*.example.com`. They are asked at public addresses only, and in the networks of `[egress] open_networks`. Empty: \
          none is asked, and a `did:web` is known only if an administrator has introduced it.",
    since: "0.1",
};

const AUTH_FAILURES_PER_MINUTE: ConfigKey = ConfigKey {
    section: SECTION,
    name: "auth_failures_per_minute",
    kind: KeyKind::Integer(1..=1_000_000),
    default: Some("600"),
    unset: "",
    doc: "Failed authentications per minute and source address. At the limit: E3003 with `Retry-After`. Tokens that were \
          accepted a moment ago are not affected.",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &ISSUER,
    &AUDIENCE,
    &CLOCK_SKEW_SECONDS,
    &DELEGATION_DEPTH,
    &REQUIRE_DID,
    &TRUSTED_ISSUER,
    &TRUSTED_ROLES,
    &TRUSTED_KEYS,
    &JWKS_FILE,
    &JWKS_URL,
    &JWKS_REFRESH_SECONDS,
    &DID_WEB_HOSTS,
    &AUTH_FAILURES_PER_MINUTE,
];

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

impl IdentitySection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        let name = |key: &ConfigKey, problems: &mut Vec<ConfigProblem>| {
            let text = settings.text(key).unwrap_or_default();
            // As tokens have it; an empty name would make every token that lacks one ours.
            if !(1..=256).contains(&text.len()) || text.chars().any(char::is_control) {
                problems.push(ConfigProblem::new(key.title(), "must be 1 to 256 printable characters"));
            }
            text.to_owned()
        };
        let issuer = name(&ISSUER, problems);
        let audience = name(&AUDIENCE, problems);
        Self {
            trusted: trusted(settings, &issuer, problems),
            issuer,
            audience,
            clock_skew_seconds: small(settings, &CLOCK_SKEW_SECONDS),
            delegation_depth: usize::saturating_from(settings.integer(&DELEGATION_DEPTH)),
            require_did: settings.flag(&REQUIRE_DID),
            did_web_hosts: settings.list(&DID_WEB_HOSTS).to_vec(),
            failures_per_minute: small(settings, &AUTH_FAILURES_PER_MINUTE),
        }
    }

    /// In whose name and for whom this installation makes tokens.
    pub(crate) fn minter(&self) -> TokenMinter {
        TokenMinter { issuer: self.issuer.clone(), audience: self.audience.clone() }
    }
}

fn small(settings: &EffectiveSettings, key: &ConfigKey) -> u32 {
    u32::saturating_from(settings.integer(key))
}

fn trusted(settings: &EffectiveSettings, own: &str, problems: &mut Vec<ConfigProblem>) -> Option<TrustedIssuer> {
    let before = problems.len();
    let roles = roles(settings, problems);
    let roles_are_fine = problems.len() == before;
    let key_files: Vec<PathBuf> = settings.list(&TRUSTED_KEYS).iter().map(PathBuf::from).collect();
    let key_set = match (settings.text(&JWKS_FILE), settings.text(&JWKS_URL)) {
        (Some(_), Some(_)) => {
            problems.push(ConfigProblem::new(JWKS_URL.title(), "not together with `jwks_file`: set one of the two"));
            None
        }
        (Some(file), None) => Some(KeySetPlace::File(file.into())),
        (None, Some(url)) => Some(KeySetPlace::Url(url.to_owned())),
        (None, None) => None,
    };
    let name = settings.text(&TRUSTED_ISSUER);
    if key_files.is_empty() && key_set.is_none() {
        if name.is_some() {
            let message = "names an issuer without keys: set `trusted_keys`, `jwks_file` or `jwks_url` too";
            problems.push(ConfigProblem::new(TRUSTED_ISSUER.title(), message));
        }
        let without = "keys of another issuer (`trusted_keys`, `jwks_file` or `jwks_url`)";
        // One problem of one setting is enough.
        let roles = roles_are_fine.then_some(&TRUSTED_ROLES);
        problems.extend(settings.idle(&roles.into_iter().chain([&JWKS_REFRESH_SECONDS]).collect::<Vec<_>>(), without));
        return None;
    }
    let refresh_every = Duration::from_secs(settings.integer(&JWKS_REFRESH_SECONDS));
    Some(TrustedIssuer { name: name.unwrap_or(own).to_owned(), roles, key_files, key_set, refresh_every })
}

fn roles(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Vec<Role> {
    let mut roles = Vec::new();
    for text in settings.list(&TRUSTED_ROLES) {
        match Role::ALL.into_iter().find(|role| role.as_str() == text) {
            Some(role) => roles.push(role),
            None => {
                let known: Vec<&str> = Role::ALL.into_iter().map(Role::as_str).collect();
                let message = format!("there is no role `{text}`; use {}", known.join(", "));
                problems.push(ConfigProblem::new(TRUSTED_ROLES.title(), message));
            }
        }
    }
    roles
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(variables: &[(&str, &str)]) -> (IdentitySection, Vec<String>) {
        let environment: BTreeMap<String, String> =
            variables.iter().map(|(k, v)| (format!("GANTRY_IDENTITY__{k}"), (*v).to_owned())).collect();
        let settings = EffectiveSettings::gather(None, &environment, Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = IdentitySection::read(&settings, &mut problems);
        (section, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn without_configuration_only_own_keys_are_trusted() {
        let (section, problems) = read(&[]);
        assert!(problems.is_empty() && section.trusted.is_none() && !section.require_did);
        assert_eq!((section.issuer.as_str(), section.audience.as_str()), (policy::ISSUER, policy::AUDIENCE));
        assert_eq!(section.delegation_depth, policy::DELEGATION_DEPTH_MAX);
        assert_eq!((section.clock_skew_seconds, section.failures_per_minute), (0, 600));
    }

    #[test]
    fn another_issuer_has_our_name_and_gives_agents_unless_told_otherwise() {
        let (section, problems) = read(&[("TRUSTED_KEYS", "a.pem, b.pem"), ("ISSUER", "me")]);
        let trusted = section.trusted.unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!((trusted.name.as_str(), trusted.roles, trusted.key_files.len()), ("me", vec![Role::Agent], 2));
        let (section, _) = read(&[
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
            let (_, problems) = read(variables);
            assert!(problems.len() == 1 && problems[0].contains(word), "{variables:?}: {problems:?}");
        }
    }
}
