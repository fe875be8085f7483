//! Resources and prompts of servers behind Gantry: shown and read only where a token names them, and recorded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use gantry_kernel::{CallBounds, DelegationRequest};
use ports::audit_sink::AuditAction;
use ports::offerings::{
    NothingOffered, OfferingCaller, OfferingChange, OfferingKind, OfferingNotice, OfferingRequest, OfferingServer,
    Offerings, ResourceWatch,
};
use ports::tool_companion::ToolCompanion;
use serde_json::{Value, json};
use test_kernel::{TestKernel, TestKernelOptions, admin, as_holder};
use tokio::sync::{Semaphore, broadcast};

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
    async fn list(&self, _: &TenantId, server: &str, _: OfferingKind) -> Result<Vec<Value>, Refusal> {
        match server {
            "notes" => Ok(vec![json!({ "uri": "note://1", "name": "one" })]),
            _ => Err(Refusal::new(ErrorCode::E3502, "it is broken")),
        }
    }
    async fn ask(
        &self,
        _: &OfferingCaller,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        _: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        Ok(json!({ "server": server, "method": request.method(), "parameters": parameters }))
    }
    async fn watch(&self, _: &OfferingCaller, _: &str, _: &str) -> Result<ResourceWatch, Refusal> {
        Ok(ResourceWatch::until(|| {}))
    }
    fn notices(&self) -> broadcast::Receiver<OfferingNotice> {
        NothingOffered.notices()
    }
}

async fn stage() -> TestKernel {
    TestKernel::with(TestKernelOptions { offerings: Some(Arc::new(Shelf)), ..TestKernelOptions::default() }).await
}

#[tokio::test]
async fn a_server_that_does_not_answer_does_not_hide_its_neighbours() {
    let listed = stage().await.kernel.offered(admin(), OfferingKind::Resources, |_| true).await.unwrap();
    assert_eq!(listed.len(), 1);
    let of_another =
        stage().await.kernel.offered(admin(), OfferingKind::Resources, |server| server.name == "other").await;
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
        let seen = stage.kernel.offered(as_holder(token), OfferingKind::Resources, |_| true).await.unwrap().len();
        assert_eq!(seen, resources);
        assert_eq!(
            stage.kernel.offered(as_holder(token), OfferingKind::Prompts, |_| true).await.unwrap().len(),
            prompts
        );
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

/// A server that counts how often it is asked for a list, says who asks, and answers once it is let.
#[derive(Debug)]
struct Counted {
    listed: AtomicUsize,
    askers: Mutex<Vec<(String, String)>>,
    gate: Semaphore,
    notices: broadcast::Sender<OfferingNotice>,
}

impl Counted {
    fn new(open: usize) -> Arc<Self> {
        let (listed, askers, notices) = (AtomicUsize::new(0), Mutex::default(), broadcast::channel(4).0);
        Arc::new(Self { listed, askers, gate: Semaphore::new(open), notices })
    }

    fn listed(&self) -> usize {
        self.listed.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        self.gate.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl Offerings for Counted {
    fn servers(&self, tenant: &TenantId) -> Vec<OfferingServer> {
        Shelf.servers(tenant).into_iter().filter(|server| server.name == "notes").collect()
    }
    async fn list(&self, tenant: &TenantId, server: &str, what: OfferingKind) -> Result<Vec<Value>, Refusal> {
        self.listed.fetch_add(1, Ordering::SeqCst);
        self.wait().await;
        Shelf.list(tenant, server, what).await
    }
    async fn ask(
        &self,
        caller: &OfferingCaller,
        _: &str,
        _: OfferingRequest,
        _: Value,
        _: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        self.askers.lock().unwrap().push((caller.tenant.to_string(), caller.agent.to_string()));
        self.wait().await;
        Ok(json!({}))
    }
    async fn watch(&self, caller: &OfferingCaller, server: &str, uri: &str) -> Result<ResourceWatch, Refusal> {
        self.askers.lock().unwrap().push((caller.tenant.to_string(), caller.agent.to_string()));
        Shelf.watch(caller, server, uri).await
    }
    fn notices(&self) -> broadcast::Receiver<OfferingNotice> {
        self.notices.subscribe()
    }
}

async fn counted(open: usize) -> (TestKernel, Arc<Counted>) {
    let server = Counted::new(open);
    let offerings = Some(Arc::clone(&server) as Arc<dyn Offerings>);
    (TestKernel::with(TestKernelOptions { offerings, ..TestKernelOptions::default() }).await, server)
}

/// The same with one place for calls, and nobody who may wait for it.
async fn crowded(open: usize) -> (TestKernel, Arc<Counted>) {
    let server = Counted::new(open);
    let offerings = Some(Arc::clone(&server) as Arc<dyn Offerings>);
    let bounds = CallBounds { calls_max: 1, waiting_max: 0, ..CallBounds::default() };
    (TestKernel::with(TestKernelOptions { offerings, bounds, ..TestKernelOptions::default() }).await, server)
}

#[tokio::test]
async fn however_often_lists_are_wanted_a_server_is_asked_once_in_a_while() {
    let (stage, server) = counted(usize::MAX >> 4).await;
    let poor = json!({ "tenant": "local", "sub": "poor", "budget": { "calls": 1 } });
    let (poor, other) = (stage.mint(poor).await, stage.mint(json!({ "tenant": "local", "sub": "other" })).await);
    let list = async |token: &str| {
        let listed = stage.kernel.offered(as_holder(token), OfferingKind::Resources, |_| true).await.unwrap();
        assert_eq!(listed.len(), 1);
    };
    for _ in 0..50 {
        list(&poor).await;
        list(&other).await;
    }
    assert_eq!(server.listed(), 1, "one answer is everybody's of the tenant");
    stage.kernel.offered(as_holder(&poor), OfferingKind::Prompts, |_| true).await.unwrap();
    assert_eq!(server.listed(), 2, "and of one kind");
    let change = |change| OfferingNotice { tenant: None, server: "notes".into(), change };
    server.notices.send(change(OfferingChange::Resources)).unwrap();
    list(&poor).await;
    list(&poor).await;
    assert_eq!(server.listed(), 3, "what has changed is asked again");
    server.notices.send(change(OfferingChange::Prompts)).unwrap();
    list(&poor).await;
    assert_eq!(server.listed(), 3, "something else has changed");
    stage.step(5);
    list(&poor).await;
    assert_eq!(server.listed(), 4, "a moment later it is asked again");
}

#[tokio::test]
async fn whoever_hangs_up_has_not_bought_another_question() {
    let (stage, server) = counted(0).await;
    for _ in 0..20 {
        let mut listing = Box::pin(stage.kernel.offered(admin(), OfferingKind::Resources, |_| true));
        // Until the server is asked, and no longer.
        while server.listed() == 0 {
            assert!(futures_util::poll!(&mut listing).is_pending());
            tokio::task::yield_now().await;
        }
        assert!(futures_util::poll!(&mut listing).is_pending());
    }
    server.gate.add_permits(1);
    assert_eq!(stage.kernel.offered(admin(), OfferingKind::Resources, |_| true).await.unwrap().len(), 1);
    assert_eq!(server.listed(), 1);
}

#[tokio::test]
async fn what_is_asked_takes_the_turn_of_the_root_of_its_chain_and_a_place_among_calls() {
    let (stage, server) = crowded(1).await;
    let ann = stage.mint(json!({ "tenant": "local", "sub": "ann" })).await;
    let wish = DelegationRequest { sub: Some("made-up".parse().unwrap()), ..DelegationRequest::default() };
    let below = stage.kernel.delegate_token(as_holder(&ann), &wish).await.unwrap().token;
    let read =
        |token| stage.kernel.ask_offering(as_holder(token), "notes", OfferingRequest::ReadResource, json!({}), None);
    read(&below).await.unwrap();
    stage.kernel.watch_resource(as_holder(&below), "notes", "note://1").await.unwrap();
    let asked = || server.askers.lock().unwrap().clone();
    assert_eq!(asked(), vec![("local".to_owned(), "ann".to_owned()); 2]);

    // While a slow answer holds the one place there is none for another.
    let mut slow = Box::pin(read(&below));
    while asked().len() < 3 {
        assert!(futures_util::poll!(&mut slow).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&ann).await.unwrap_err().code, ErrorCode::E3001);
    assert_eq!(asked().len(), 3, "the server was not asked");
    server.gate.add_permits(2);
    slow.await.unwrap();
    read(&ann).await.unwrap();
}
