//! Resources and prompts of servers behind Gantry: shown and read only where a token names them, and recorded.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use gantry_kernel::ports::audit_sink::AuditAction;
use gantry_kernel::ports::companion::Companion;
use gantry_kernel::ports::offerings::{Offering, OfferingRequest, Offerings};
use serde_json::{Value, json};

use crate::stage::{Props, Stage, admin, as_holder};

/// Two servers; the one called `broken` never has anything.
#[derive(Debug)]
struct Shelf;

#[async_trait]
impl Offerings for Shelf {
    fn servers(&self, tenant: &TenantId) -> Vec<(String, String)> {
        let both = vec![("notes".to_owned(), "notes".to_owned()), ("broken".to_owned(), "broken".to_owned())];
        if tenant.is_home() { both } else { Vec::new() }
    }
    async fn list(&self, _: &TenantId, server: &str, _: Offering) -> Result<Vec<Value>, Refusal> {
        match server {
            "notes" => Ok(vec![json!({ "uri": "note://1", "name": "one" })]),
            _ => Err(Refusal::new(ErrorCode::E3502, "it is broken")),
        }
    }
    async fn ask(
        &self,
        _: &TenantId,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        _: &dyn Companion,
    ) -> Result<Value, Refusal> {
        Ok(json!({ "server": server, "method": request.method(), "parameters": parameters }))
    }
}

async fn stage() -> Stage {
    Stage::with(Props { offerings: Some(Arc::new(Shelf)), ..Props::default() }).await
}

#[tokio::test]
async fn a_server_that_does_not_answer_does_not_hide_its_neighbours() {
    let listed = stage().await.kernel.offered(admin(), Offering::Resources).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].server.as_str(), &listed[0].item["uri"]), ("notes", &json!("note://1")));
}

#[tokio::test]
async fn resources_and_prompts_are_named_by_tokens_like_tools() {
    let stage = stage().await;
    let readers = json!({ "tenant": "local", "tools": [{ "tool_id": "notes.resources" }] });
    let reader = stage.mint(readers).await;
    let stranger = stage.mint(json!({ "tenant": "local", "sub": "agent-2", "tools": [{ "tool_id": "greet" }] })).await;
    let elsewhere = stage.mint(json!({ "tenant": "acme", "sub": "agent-3" })).await;
    for (token, resources, prompts) in [(&reader, 1, 0), (&stranger, 0, 0), (&elsewhere, 0, 0)] {
        let seen = stage.kernel.offered(as_holder(token), Offering::Resources).await.unwrap().len();
        assert_eq!(seen, resources);
        assert_eq!(stage.kernel.offered(as_holder(token), Offering::Prompts).await.unwrap().len(), prompts);
        let read = |request| stage.kernel.ask_offering(as_holder(token), "notes", request, json!({}), None);
        assert_eq!(read(OfferingRequest::ReadResource).await.is_ok(), resources == 1);
        assert_eq!(read(OfferingRequest::GetPrompt).await.map_err(|r| r.code), Err(ErrorCode::E3008));
    }
}

#[tokio::test]
async fn what_was_asked_is_recorded_and_a_server_that_is_not_there_has_the_same_words() {
    let stage = stage().await;
    let ask = |server| stage.kernel.ask_offering(admin(), server, OfferingRequest::ReadResource, json!({}), None);
    assert_eq!(ask("notes").await.unwrap()["method"], "resources/read");
    let refusal = ask("nowhere").await.unwrap_err();
    assert!(refusal.message.contains("no server `nowhere` offers this"), "{}", refusal.message);
    let records = stage.all_records().await;
    let asked: Vec<_> = records.iter().filter(|record| record.action == AuditAction::OfferingAsked).collect();
    assert_eq!(asked.iter().map(|record| record.code).collect::<Vec<_>>(), [None, Some(ErrorCode::E3008)]);
}
