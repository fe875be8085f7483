//! `[inbound_jobs]`: the signed door for jobs of other queues, and the services that do them. (ASYNC-010…014, FLOW-006)

use contract::ids::TenantId;
use ports::secret_source::SecretValue;
use schemars::JsonSchema;
use serde::Deserialize;
use vendor_services::{CallOutUrls, QstashReceiver};

use super::problems::SectionProblems;
use super::secret_text::SecretText;
use super::section::{ConfigSection, field_names};

/// The signed door for jobs of other queues, and the services that do them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct InboundKeys {
    /// The current signing key of QStash, or of whatever signs as it does (HS256). Better set by the variable than written
    /// into a file.
    #[schemars(extend("x-unset" = "the door is closed: E3010"))]
    pub(super) signing_key: Option<SecretText>,
    /// The next signing key, which is accepted too while keys are being rolled.
    #[schemars(extend("x-unset" = "none"))]
    pub(super) next_signing_key: Option<SecretText>,
    /// The address under which this server is called from outside, for example `https://gantry.example.com`: signatures are
    /// for `{public_url}/jobs/{type}` and for no other address.
    #[schemars(extend("x-unset" = "needed when `signing_key` is set"))]
    pub(super) public_url: Option<String>,
    /// For whom these jobs are done.
    #[schemars(extend("x-unset" = "the home tenant"))]
    pub(super) tenant: Option<String>,
    /// Largest body of a job or a callback, in bytes; a larger one is refused before it is read.
    #[schemars(range(min = 1_024, max = 16_777_216))]
    pub(super) bytes_max: usize,
    /// Signs what is sent to the services below (`Gantry-Signature`), and what workflows send back.
    #[schemars(extend("x-unset" = "no service is called and no callback taken: E3408"))]
    pub(super) secret: Option<SecretText>,
    /// The service that makes and keeps embeddings.
    #[schemars(extend("x-unset" = "`generate_embedding` is refused: E3408"))]
    pub(super) embedding_url: Option<String>,
    /// The workflow engine; `/webhook/{workflowId}` is put behind it.
    #[schemars(extend("x-unset" = "`execute_workflow` is refused: E3408"))]
    pub(super) workflow_url: Option<String>,
    /// The service that knows devices and sends to them.
    #[schemars(extend("x-unset" = "`send_notification` is refused: E3408"))]
    pub(super) notification_url: Option<String>,
}

impl Default for InboundKeys {
    fn default() -> Self {
        Self {
            signing_key: None,
            next_signing_key: None,
            public_url: None,
            tenant: None,
            bytes_max: 1 << 20,
            secret: None,
            embedding_url: None,
            workflow_url: None,
            notification_url: None,
        }
    }
}

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

impl ConfigSection for InboundKeys {
    const NAME: &'static str = "inbound_jobs";
    type Checked = Option<InboundSection>;

    fn checked(self, problems: &mut SectionProblems<'_>) -> Option<InboundSection> {
        let Some(current) = self.signing_key else {
            let others = field_names::<Self>().iter().copied().filter(|name| *name != "signing_key");
            let others: Vec<&str> = others.collect();
            problems.idle(&others, "`signing_key`, without which the door is closed");
            return None;
        };
        let next = self.next_signing_key.as_ref().map(|key| key.expose().as_bytes());
        let receiver = QstashReceiver::new(current.expose().as_bytes(), next)?;
        let public_url = self.public_url.map(|url| url.trim_end_matches('/').to_owned());
        let is_url = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        let Some(public_url) = public_url.filter(is_url) else {
            let message = "must be an address such as `https://gantry.example.com` when `signing_key` is set";
            problems.at("public_url", message);
            return None;
        };
        let tenant = match self.tenant.map(|name| name.parse::<TenantId>()).transpose() {
            Ok(tenant) => tenant.unwrap_or_else(TenantId::home),
            Err(error) => {
                problems.at("tenant", error.to_string());
                return None;
            }
        };
        Some(InboundSection {
            receiver,
            public_url,
            tenant,
            bytes_max: self.bytes_max,
            secret: self.secret.and_then(|secret| SecretValue::new(secret.expose())),
            urls: CallOutUrls {
                embedding: self.embedding_url,
                workflow: self.workflow_url,
                notification: self.notification_url,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_file;
    use super::*;

    fn read(text: &str) -> (Option<InboundSection>, Vec<String>) {
        of_file::<InboundKeys>(&format!("[inbound_jobs]\n{text}"))
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
