//! What the servers of the stage offer besides tools. `notes` has a namespace, `bare` has none.
//!
//! A resource or prompt whose name contains `curious` asks its caller for a colour first; one that contains `missing` is
//! not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use ports::offerings::{
    OfferingCaller, OfferingChange, OfferingKind, OfferingNotice, OfferingRequest, OfferingServer, Offerings,
    ResourceWatch,
};
use ports::tool_companion::{QuestionKind, ToolCompanion, ToolQuestion};
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// News that wait for the slowest, as in the real thing.
const NOTICES_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Shelf {
    notices: broadcast::Sender<OfferingNotice>,
    /// Resources watched at the moment.
    pub(crate) watched: Arc<AtomicUsize>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { notices: broadcast::Sender::new(NOTICES_MAX), watched: Arc::default() }
    }
}

impl Shelf {
    pub(crate) fn tell(&self, tenant: Option<&str>, server: &str, change: OfferingChange) {
        let tenant = tenant.map(|tenant| tenant.parse().unwrap());
        let _ = self.notices.send(OfferingNotice { tenant, server: server.to_owned(), change });
    }

    pub(crate) fn watched(&self) -> usize {
        self.watched.load(Ordering::SeqCst)
    }
}

fn missing() -> Refusal {
    Refusal::new(ErrorCode::E3008, "it is not there")
}

async fn colour(companion: &dyn ToolCompanion) -> Result<Value, Refusal> {
    let parameters = json!({ "mode": "form", "message": "Which colour?",
        "requestedSchema": { "type": "object", "properties": { "colour": { "type": "string" } } } });
    let question = ToolQuestion { key: "colour".into(), kind: QuestionKind::Elicitation, parameters };
    Ok(companion.ask(vec![question]).await?[0].value["content"]["colour"].clone())
}

#[async_trait::async_trait]
impl Offerings for Shelf {
    fn servers(&self, tenant: &TenantId) -> Vec<OfferingServer> {
        let server = |name: &str, namespace: &str| OfferingServer {
            name: name.to_owned(),
            owner: TenantId::home(),
            namespace: namespace.to_owned(),
            resources: true,
            prompts: true,
        };
        if tenant.is_home() { vec![server("notes", "notes"), server("bare", "")] } else { Vec::new() }
    }

    async fn list(&self, _: &TenantId, server: &str, what: OfferingKind) -> Result<Vec<Value>, Refusal> {
        Ok(match (server, what) {
            ("notes", OfferingKind::Resources) => {
                (0..5).map(|n| json!({ "uri": format!("note://{n}"), "name": format!("note {n}") })).collect()
            }
            ("notes", OfferingKind::ResourceTemplates) => {
                vec![json!({ "uriTemplate": "note://{id}/page", "name": "page" })]
            }
            ("notes", OfferingKind::Prompts) => {
                vec![json!({ "name": "greet" }), json!({ "name": "two words" }), json!({ "name": "curious" })]
            }
            ("bare", OfferingKind::Resources) => {
                vec![json!({ "uri": "test://static", "name": "static" }), json!({ "no": "resource" })]
            }
            ("bare", OfferingKind::Prompts) => vec![json!({ "name": "plain" })],
            _ => Vec::new(),
        })
    }

    async fn ask(
        &self,
        _: &OfferingCaller,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        let named = parameters.get("uri").or_else(|| parameters.get("name")).and_then(Value::as_str);
        let named = named.unwrap_or_default();
        if named.contains("missing") {
            return Err(missing());
        }
        let colour = if named.contains("curious") { colour(&**companion).await? } else { json!("none") };
        Ok(match request {
            OfferingRequest::ReadResource => json!({ "contents": [
                { "uri": named, "text": format!("{named} of {server}, {colour}") },
                { "uri": "note://beside", "blob": "AA==" } ] }),
            OfferingRequest::GetPrompt => json!({ "description": named, "messages": [
                { "role": "user", "content": { "type": "text", "text": format!("{parameters}, {colour}") } },
                { "role": "assistant", "content": { "type": "resource_link", "uri": "note://1", "name": "one" } } ] }),
            OfferingRequest::CompletePrompt | OfferingRequest::CompleteResource => {
                json!({ "completion": { "values": [parameters["ref"].to_string()], "total": 1, "hasMore": false } })
            }
        })
    }

    async fn watch(&self, _: &OfferingCaller, _: &str, uri: &str) -> Result<ResourceWatch, Refusal> {
        if uri.contains("missing") {
            return Err(missing());
        }
        self.watched.fetch_add(1, Ordering::SeqCst);
        let watched = Arc::clone(&self.watched);
        Ok(ResourceWatch::until(move || {
            watched.fetch_sub(1, Ordering::SeqCst);
        }))
    }

    fn notices(&self) -> broadcast::Receiver<OfferingNotice> {
        self.notices.subscribe()
    }
}
