//! `[inbound_jobs]`: the signed door for jobs of other queues, and the services that do them. (ASYNC-010…014, FLOW-006)

use base::SaturatingFrom as _;
use contract::ids::TenantId;
use ports::secret_source::SecretValue;
use vendor_services::{CallOutUrls, QstashReceiver};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const SECTION: &str = "inbound_jobs";

const fn key(name: &'static str, kind: KeyKind, unset: &'static str, doc: &'static str) -> ConfigKey {
    ConfigKey { section: SECTION, name, kind, default: None, unset, doc, since: "0.2" }
}

const SIGNING_KEY: ConfigKey = key(
    "signing_key",
    KeyKind::Secret,
    "the door is closed: E3010",
    "The current signing key of QStash, or of whatever signs as it does (HS256). Better set by the variable than written into \
     a file.",
);

const NEXT_SIGNING_KEY: ConfigKey = key(
    "next_signing_key",
    KeyKind::Secret,
    "none",
    "The next signing key, which is accepted too while keys are being rolled.",
);

const PUBLIC_URL: ConfigKey = key(
    "public_url",
    KeyKind::Text,
    "needed when `signing_key` is set",
    "The address under which this server is called from outside, for example `https://gantry.example.com`: signatures are for \
     `{public_url}/jobs/{type}` and for no other address.",
);

const TENANT: ConfigKey = key("tenant", KeyKind::Text, "the home tenant", "For whom these jobs are done.");

const BYTES_MAX: ConfigKey = ConfigKey {
    default: Some("1048576"),
    ..key(
        "bytes_max",
        KeyKind::Integer(1_024..=16_777_216),
        "",
        "Largest body of a job or a callback, in bytes; a larger one is refused before it is read.",
    )
};

const SECRET: ConfigKey = key(
    "secret",
    KeyKind::Secret,
    "no service is called and no callback taken: E3408",
    "Signs what is sent to the services below (`Gantry-Signature`), and what workflows send back.",
);

const EMBEDDING_URL: ConfigKey = key(
    "embedding_url",
    KeyKind::Text,
    "`generate_embedding` is refused: E3408",
    "The service that makes and keeps embeddings.",
);

const WORKFLOW_URL: ConfigKey = key(
    "workflow_url",
    KeyKind::Text,
    "`execute_workflow` is refused: E3408",
    "The workflow engine; `/webhook/{workflowId}` is put behind it.",
);

const NOTIFICATION_URL: ConfigKey = key(
    "notification_url",
    KeyKind::Text,
    "`send_notification` is refused: E3408",
    "The service that knows devices and sends to them.",
);

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &SIGNING_KEY,
    &NEXT_SIGNING_KEY,
    &PUBLIC_URL,
    &TENANT,
    &BYTES_MAX,
    &SECRET,
    &EMBEDDING_URL,
    &WORKFLOW_URL,
    &NOTIFICATION_URL,
];

/// The door, if it is open.
#[derive(Debug)]
pub(crate) struct InboundSection {
    pub(crate) receiver: QstashReceiver,
    pub(crate) public_url: String,
    pub(crate) tenant: TenantId,
    pub(crate) bytes_max: usize,
    pub(crate) secret: Option<SecretValue>,
    pub(crate) urls: CallOutUrls,
}

impl InboundSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        let text = |key: &ConfigKey| settings.text(key).map(str::to_owned).filter(|text| !text.is_empty());
        let Some(current) = text(&SIGNING_KEY) else {
            let keys = KEYS.iter().copied().filter(|key| key.name != SIGNING_KEY.name).collect::<Vec<_>>();
            problems.extend(settings.idle(&keys, "`signing_key`, without which the door is closed"));
            return None;
        };
        let next = text(&NEXT_SIGNING_KEY);
        let receiver = QstashReceiver::new(current.as_bytes(), next.as_deref().map(str::as_bytes))?;
        let public_url = text(&PUBLIC_URL).map(|url| url.trim_end_matches('/').to_owned());
        let is_url = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        let Some(public_url) = public_url.filter(is_url) else {
            problems.push(ConfigProblem::new(
                PUBLIC_URL.title(),
                "must be an address such as `https://gantry.example.com` when `signing_key` is set",
            ));
            return None;
        };
        let tenant = match text(&TENANT).map(|name| name.parse::<TenantId>()).transpose() {
            Ok(tenant) => tenant.unwrap_or_else(TenantId::home),
            Err(error) => {
                problems.push(ConfigProblem::new(TENANT.title(), error.to_string()));
                return None;
            }
        };
        Some(Self {
            receiver,
            public_url,
            tenant,
            bytes_max: usize::saturating_from(settings.integer(&BYTES_MAX)),
            secret: text(&SECRET).and_then(SecretValue::new),
            urls: CallOutUrls {
                embedding: text(&EMBEDDING_URL),
                workflow: text(&WORKFLOW_URL),
                notification: text(&NOTIFICATION_URL),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::settings::ConfigFile;
    use super::*;

    fn read(text: &str) -> (Option<InboundSection>, Vec<String>) {
        let file =
            ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: format!("[inbound_jobs]\n{text}") };
        let settings = EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = InboundSection::read(&settings, &mut problems);
        (section, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_door_is_closed_without_a_key_and_needs_to_know_its_address() {
        assert!(matches!(read(""), (None, problems) if problems.is_empty()));
        assert!(matches!(read("signing_key = ''"), (None, problems) if problems.is_empty()));
        let (section, problems) = read("signing_key = 'k'");
        assert!(section.is_none() && problems[0].starts_with("[inbound_jobs] public_url"), "{problems:?}");
        let (section, problems) = read("signing_key = 'sig-k'\npublic_url = 'https://g.example/'\nsecret = 's3cret'");
        let section = section.unwrap();
        assert!(problems.is_empty() && section.public_url == "https://g.example" && section.tenant.is_home());
        let shown = format!("{section:?}");
        assert!(!shown.contains("sig-k") && !shown.contains("s3cret"), "{shown}");
    }
}
