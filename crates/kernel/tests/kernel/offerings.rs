//! Resources and prompts of servers behind Gantry: shown and read only where a token names them, and recorded.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use gantry_kernel::ports::audit_sink::AuditAction;
use gantry_kernel::ports::companion::Companion;
use gantry_kernel::ports::offerings::{
    NothingOffered, Offering, OfferingNews, OfferingRequest, OfferingServer, Offerings, Watch,
};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::stage::{Props, Stage, admin, as_holder};

/// Two servers; the one called `broken` never has anything.
#[derive(Debug)]
struct Shelf;

#[async_trait]
impl Offerings for Shelf {
    fn servers(&self, tenant: &TenantId) -> Vec<OfferingServer> {
        let server = |name: &str| OfferingServer {
            name: name.to_owned(),
            owner: TenantId::home(),
            namespace: name.to_owned(),
            resources: true,
            prompts: true,
        };
        if tenant.is_home() { vec![server("notes"), server("broken")] } else { Vec::new() }
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
        _: &Arc<dyn Companion>,
    ) -> Result<Value, Refusal> {
        Ok(json!({ "server": server, "method": request.method(), "parameters": parameters }))
    }
    async fn watch(&self, _: &TenantId, _: &str, _: &str) -> Result<Watch, Refusal> {
        Ok(Watch::until(|| {}))
    }
    fn news(&self) -> broadcast::Receiver<OfferingNews> {
        NothingOffered.news()
    }
}

async fn stage() -> Stage {
    Stage::with(Props { offerings: Some(Arc::new(Shelf)), ..Props::default() }).await
}

#[tokio::test]
async fn a_server_that_does_not_answer_does_not_hide_its_neighbours() {
    let listed = stage().await.kernel.offered(admin(), Offering::Resources, |_| true).await.unwrap();
    assert_eq!(listed.len(), 1);
    let of_another = stage().await.kernel.offered(admin(), Offering::Resources, |server| server.name == "other").await;
    assert_eq!(of_another.unwrap().len(), 0, "only what is wanted is asked");
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
        let seen = stage.kernel.offered(as_holder(token), Offering::Resources, |_| true).await.unwrap().len();
        assert_eq!(seen, resources);
        assert_eq!(stage.kernel.offered(as_holder(token), Offering::Prompts, |_| true).await.unwrap().len(), prompts);
        let read = |request| stage.kernel.ask_offering(as_holder(token), "notes", request, json!({}), None);
        assert_eq!(read(OfferingRequest::ReadResource).await.is_ok(), resources == 1);
        assert_eq!(read(OfferingRequest::GetPrompt).await.map_err(|r| r.code), Err(ErrorCode::E3008));
        assert_eq!(read(OfferingRequest::CompleteResource).await.is_ok(), resources == 1);
        assert_eq!(read(OfferingRequest::CompletePrompt).await.map_err(|r| r.code), Err(ErrorCode::E3008));
        let watched = stage.kernel.watch_resource(as_holder(token), "notes", "note://1").await;
        assert_eq!(watched.is_ok(), resources == 1, "{watched:?}");
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

#[tokio::test]
async fn policies_judge_what_is_read_from_a_server_as_they_judge_calls_of_its_tools() {
    let stage = stage().await;
    let reader = stage.mint(json!({ "tenant": "local", "sub": "reader" })).await;
    let read = |request| stage.kernel.ask_offering(as_holder(&reader), "notes", request, json!({}), None);
    for (objection, resources, prompts) in [
        (r#"forbid (principal, action, resource == Tool::"notes.resources");"#, false, true),
        (r#"forbid (principal, action, resource == Tool::"notes.prompts");"#, true, false),
        (r#"forbid (principal, action, resource) when { resource.provider == "notes" };"#, false, false),
        (r#"forbid (principal, action, resource) when { resource.provider == "other" };"#, true, true),
        (r#"@obligations("require_approval") permit (principal, action, resource);"#, false, false),
    ] {
        let text = format!("permit (principal, action, resource);\n{objection}");
        stage.kernel.put_policies(admin(), None, text).await.unwrap();
        for (request, allowed) in [
            (OfferingRequest::ReadResource, resources),
            (OfferingRequest::CompleteResource, resources),
            (OfferingRequest::GetPrompt, prompts),
        ] {
            let denied = if objection.contains("approval") { ErrorCode::E3208 } else { ErrorCode::E3206 };
            let expected = if allowed { Ok(()) } else { Err(denied) };
            assert_eq!(read(request).await.map(drop).map_err(|refusal| refusal.code), expected, "{objection}");
        }
        let watched = stage.kernel.watch_resource(as_holder(&reader), "notes", "note://1").await;
        assert_eq!(watched.is_ok(), resources, "{objection}");
    }
}
