//! Whose tool is whose: what two tenants and the home tenant see, publish and change in one registry (X-51, VIS-001).

#![expect(clippy::unwrap_used, reason = "test crate")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::Manifest;
use gantry_kernel::registry::{ListFilter, RegistrationOutcome, Registry};
use ports::clock::{Clock, UnixMillis};
use ports::lifecycle::LifecycleAction;
use ports::observer::NoObserver;
use proptest::prelude::*;
use serde_json::{Value, json};
use store::memory::MemoryStore;

// ------------------------------------------------------------------------------------------------------------ stage

#[derive(Debug)]
struct Noon;

impl Clock for Noon {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_800_000_000_000)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

struct Stage {
    registry: Registry,
    store: Arc<MemoryStore>,
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

async fn open(store: &Arc<MemoryStore>) -> Registry {
    Registry::open(Arc::clone(store) as _, Arc::clone(store) as _, Arc::new(Noon), Arc::new(NoObserver)).await.unwrap()
}

impl Stage {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        Self { registry: open(&store).await, store }
    }

    async fn publish(&self, by: &str, tool: &str, change: Value) -> Result<RegistrationOutcome, Refusal> {
        let mut manifest = json!({
            "tool_id": tool, "version": "1.0.0", "name": tool, "description": format!("A tool that {by} made."),
            "provider": "Tests", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
            "parameters": { "type": "object", "properties": {} }, "result_schema": { "type": "object" },
        });
        manifest.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let manifest: Manifest = serde_json::from_value(manifest).unwrap();
        self.registry.register(&tenant(by), manifest, &"author".parse().unwrap()).await
    }

    /// Whose tool the tenant gets under a name.
    fn owner(&self, of: &str, name: &str) -> Option<String> {
        self.registry.snapshot().find(&tenant(of), name).map(|tool| tool.tenant.to_string())
    }

    /// What the tenant sees, as `owner/tool`.
    fn seen(&self, by: &str) -> Vec<String> {
        let page = self.registry.list(&tenant(by), &ListFilter { page_size: 200, ..ListFilter::default() }, |_| true);
        assert_eq!(page.total_count, page.tools.len());
        page.tools.iter().map(|listed| format!("{}/{}", listed.tool.tenant, listed.tool.id)).collect()
    }

    async fn remove(&self, by: &str, name: &str) -> Result<usize, ErrorCode> {
        let removed = self.registry.change_lifecycle(&tenant(by), name, None, &LifecycleAction::Remove, |_| true).await;
        removed.map(|versions| versions.len()).map_err(|refusal| refusal.code)
    }
}

// ------------------------------------------------------------------------------------------------------------ tests

#[tokio::test]
async fn tenants_see_their_own_tools_and_the_shared_ones_in_order() {
    let stage = Stage::new().await;
    for (by, tool) in [("local", "bbb"), ("acme", "ccc"), ("zeta", "ccc"), ("acme", "aaa"), ("local", "ddd")] {
        assert!(stage.publish(by, tool, json!({})).await.unwrap().created, "{by} {tool}");
    }
    assert_eq!(stage.seen("local"), ["local/bbb", "local/ddd"]);
    assert_eq!(stage.seen("acme"), ["acme/aaa", "local/bbb", "acme/ccc", "local/ddd"]);
    assert_eq!(stage.seen("zeta"), ["local/bbb", "zeta/ccc", "local/ddd"]);
    assert_eq!(stage.seen("nobody"), ["local/bbb", "local/ddd"]);
    assert_eq!((stage.owner("zeta", "aaa"), stage.owner("local", "ccc")), (None, None));
    let snapshot = stage.registry.snapshot();
    assert_eq!((snapshot.tool_count(), snapshot.version_count()), (5, 5));
    let again = open(&stage.store).await;
    assert_eq!(again.snapshot().tool_count(), 5);
    assert_eq!(again.snapshot().find(&tenant("zeta"), "ccc").unwrap().tenant, tenant("zeta"));
}

#[tokio::test]
async fn a_name_of_another_tenant_is_not_found_and_not_suggested() {
    let stage = Stage::new().await;
    stage.publish("acme", "secret_report", json!({})).await.unwrap();
    for by in ["zeta", "local"] {
        let refusal = stage.registry.snapshot().not_found(&tenant(by), "secret_reports", |_| true);
        assert_eq!(refusal.code, ErrorCode::E3101);
        assert!(!format!("{refusal:?}").contains("secret_report`"), "{refusal:?}");
        assert_eq!(stage.remove(by, "secret_report").await, Err(ErrorCode::E3101), "{by}");
        let hits = stage.registry.search(&tenant(by), "secret report", 10, |_| true).await.unwrap();
        assert!(hits.is_empty(), "{by}");
    }
    assert_eq!(stage.registry.search(&tenant("acme"), "secret report", 10, |_| true).await.unwrap().len(), 1);
    assert_eq!(stage.remove("acme", "secret_report").await, Ok(1));
}

#[tokio::test]
async fn an_id_of_the_shared_catalogue_is_taken_unless_the_tenant_had_it_first() {
    let stage = Stage::new().await;
    stage.publish("local", "shared_tool", json!({})).await.unwrap();
    let refusal = stage.publish("acme", "shared_tool", json!({})).await.unwrap_err();
    assert_eq!((refusal.code, refusal.hint.is_some()), (ErrorCode::E3103, true), "{refusal:?}");

    stage.publish("acme", "early_tool", json!({})).await.unwrap();
    stage.publish("local", "early_tool", json!({})).await.unwrap();
    assert_eq!(stage.owner("acme", "early_tool").as_deref(), Some("acme"));
    assert_eq!(stage.owner("zeta", "early_tool").as_deref(), Some("local"));
    assert_eq!(stage.seen("acme"), ["acme/early_tool", "local/shared_tool"]);
    // It goes on with its own, and comparisons are with its own.
    stage.publish("acme", "early_tool", json!({ "version": "1.1.0" })).await.unwrap();
    assert!(!stage.publish("acme", "early_tool", json!({})).await.unwrap().created);
    assert_eq!(stage.remove("acme", "early_tool").await, Ok(2));
    assert_eq!(stage.owner("acme", "early_tool").as_deref(), Some("acme"), "removed is not gone");
    assert_eq!(stage.seen("zeta"), ["local/early_tool", "local/shared_tool"]);
}

#[tokio::test]
async fn only_the_owner_changes_a_lifecycle() {
    let stage = Stage::new().await;
    stage.publish("local", "shared_tool", json!({})).await.unwrap();
    assert_eq!(stage.remove("acme", "shared_tool").await, Err(ErrorCode::E3206));
    let (acme, remove) = (tenant("acme"), LifecycleAction::Remove);
    let unseen = stage.registry.change_lifecycle(&acme, "shared_tool", None, &remove, |_| false).await;
    assert_eq!(unseen.unwrap_err().code, ErrorCode::E3101);
    assert_eq!(stage.remove("local", "shared_tool").await, Ok(1));
}

#[tokio::test]
async fn aliases_are_those_of_the_tenant_and_lead_nobody_around_a_hidden_tool() {
    let stage = Stage::new().await;
    stage.publish("acme", "report", json!({ "aliases": ["weekly_report"] })).await.unwrap();
    stage.publish("zeta", "other_report", json!({ "aliases": ["weekly_report"] })).await.unwrap();
    assert_eq!(stage.owner("acme", "weekly_report").as_deref(), Some("acme"));
    assert_eq!(stage.owner("zeta", "weekly_report").as_deref(), Some("zeta"));
    assert_eq!(stage.owner("local", "weekly_report"), None);

    // What the home tenant publishes later changes no name of a tenant.
    stage.publish("local", "weekly_report", json!({})).await.unwrap();
    stage.publish("local", "report", json!({ "aliases": ["old_report"] })).await.unwrap();
    assert_eq!(stage.owner("acme", "weekly_report").as_deref(), Some("acme"));
    assert_eq!(stage.seen("acme"), ["acme/report"]);
    assert_eq!(stage.owner("acme", "old_report"), None);
    assert_eq!(stage.owner("zeta", "old_report").as_deref(), Some("local"));

    // But a tenant that comes later cannot give a shared name to something else.
    let refusal = stage.publish("nova", "nova_tool", json!({ "aliases": ["old_report"] })).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3105);
    let refusal = stage.publish("nova", "nova_tool", json!({ "aliases": ["report"] })).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3105);
}

#[tokio::test]
async fn an_alias_is_a_name_that_nothing_else_gets() {
    let stage = Stage::new().await;
    stage.publish("local", "report", json!({ "aliases": ["weekly_report"] })).await.unwrap();
    stage.publish("acme", "bill", json!({ "aliases": ["old_bill"] })).await.unwrap();
    for (tenant, name) in [("local", "weekly_report"), ("acme", "weekly_report"), ("acme", "old_bill")] {
        let refusal = stage.publish(tenant, name, json!({})).await.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::E3103, "{tenant} {name}");
    }
    assert_eq!(stage.owner("local", "weekly_report").as_deref(), Some("local"));
    assert_eq!(stage.seen("local"), ["local/report"]);
    assert_eq!(stage.seen("acme"), ["acme/bill", "local/report"]);
    // Of other tenants' former names nobody knows.
    stage.publish("zeta", "old_bill", json!({})).await.unwrap();
}

#[tokio::test]
async fn what_undoes_a_tool_must_be_seen_by_its_tenant() {
    let stage = Stage::new().await;
    stage.publish("acme", "undo_it", json!({})).await.unwrap();
    let change = || json!({ "compensation_tool_id": "undo_it" });
    assert_eq!(stage.publish("zeta", "do_it", change()).await.unwrap_err().code, ErrorCode::E3105);
    stage.publish("acme", "do_it", change()).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Against the obvious: a list of who published what, in order.
    #[test]
    fn every_tenant_sees_its_own_and_the_rest_of_the_shared(
        publications in prop::collection::vec((0..3_usize, 0..5_usize), 0..20),
    ) {
        let (tenants, tools) = (["local", "acme", "zeta"], ["aaa", "bbb", "ccc", "ddd", "eee"]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let stage = Stage::new().await;
            let mut done: Vec<(&str, &str)> = Vec::new();
            for (by, tool) in publications {
                let (by, tool) = (*tenants.get(by).unwrap(), *tools.get(tool).unwrap());
                let has = |who: &str, done: &[(&str, &str)]| done.contains(&(who, tool));
                let taken = has("local", &done) && !has(by, &done);
                let answer = stage.publish(by, tool, json!({})).await;
                assert_eq!(answer.as_ref().err().map(|refusal| refusal.code), taken.then_some(ErrorCode::E3103));
                if !taken && !has(by, &done) {
                    done.push((by, tool));
                }
            }
            for tenant in tenants {
                let owner = |tool: &str| [tenant, "local"].into_iter().find(|owner| done.contains(&(owner, tool)));
                let expected: Vec<String> =
                    tools.iter().filter_map(|tool| Some(format!("{}/{tool}", owner(tool)?))).collect();
                assert_eq!(stage.seen(tenant), expected);
                for tool in tools {
                    let owner = stage.owner(tenant, tool).map(|owner| format!("{owner}/{tool}"));
                    assert_eq!(owner.as_ref(), expected.iter().find(|seen| seen.ends_with(tool)));
                }
            }
        });
    }
}
