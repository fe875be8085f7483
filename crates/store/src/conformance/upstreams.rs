//! Cases of `UpstreamStore`. Each takes a fresh store.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::sync::Arc;

use contract::canonical;
use contract::ids::TenantId;
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::upstream_store::{
    PinChange, PinRecord, PinState, PinsPut, ServerPut, ServerRead, ServerRecord, ToolDefinition, UpstreamState,
    UpstreamStore,
};
use serde_json::{Value, json};

use super::StoreAdapter;

/// All cases of `UpstreamStore` against one adapter.
#[macro_export]
macro_rules! upstreams_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            upstreams,
            [
                a_fresh_store_has_no_servers_and_no_pins,
                a_server_is_added_and_replaced_and_its_pins_stay,
                a_server_is_put_only_beside_those_that_were_read,
                of_servers_that_are_put_at_once_one_is_kept,
                two_tenants_may_call_a_server_the_same,
                pins_are_replaced_by_tenant_server_and_tool,
                a_pin_is_not_written_over_by_what_was_judged_before_it,
                pins_without_their_server_are_not_kept,
                pins_are_kept_together_or_not_at_all,
                a_server_takes_its_pins_with_it_and_no_others,
                every_state_and_every_member_survives_a_reopening,
                hostile_names_are_kept_as_they_are,
            ]
        );
    };
}

type Store = Arc<dyn UpstreamStore>;

const NOON: UnixMillis = UnixMillis(1_790_000_000_123);

// ---------------------------------------------------------------------------------------------------------- samples

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn server(of: &str, name: &str, spec: Value) -> ServerRecord {
    ServerRecord { tenant: tenant(of), name: name.into(), spec, added_at: NOON, added_by: "admin".parse().unwrap() }
}

fn definition(text: &str) -> ToolDefinition {
    let value = json!({ "name": text, "inputSchema": { "type": "object" } });
    ToolDefinition { digest: canonical::digest(&value), value }
}

fn pin(of: &str, server: &str, upstream_tool: &str, tool: &str) -> PinRecord {
    PinRecord {
        tenant: tenant(of),
        server: server.into(),
        upstream_tool: upstream_tool.into(),
        tool: tool.parse().unwrap(),
        version: Some(Version::new(1, 0, 0)),
        accepted: Some(definition(upstream_tool)),
        proposed: None,
        state: PinState::Accepted,
        findings: Vec::new(),
        classification: None,
        seen_at: NOON,
    }
}

async fn with_server(adapter: &impl StoreAdapter, of: &str, name: &str) -> Store {
    let store = adapter.upstreams();
    put_server(&store, &server(of, name, json!({}))).await;
    store
}

/// Puts a server as somebody does who has read which there are.
async fn put_server(store: &Store, server: &ServerRecord) {
    let there = store.load().await.unwrap().servers;
    let others = there.into_iter().filter(|other| other.tenant == server.tenant && other.name != server.name);
    let others: Vec<ServerRead> = others.map(|it| ServerRead { name: it.name, added_at: it.added_at }).collect();
    assert_eq!(store.put_server(server, &others).await.unwrap(), ServerPut::Kept);
}

/// Puts pins as somebody does who has read what is there.
async fn put(store: &Store, of: &str, server: &str, pins: &[PinRecord]) -> PinsPut {
    let there = store.load().await.unwrap().pins;
    let read = |pin: &PinRecord| {
        let same = |other: &&PinRecord| {
            (&other.tenant, &other.server, &other.upstream_tool)
                == (&tenant(of), &server.to_owned(), &pin.upstream_tool)
        };
        there.iter().find(same).cloned()
    };
    let changes: Vec<PinChange> = pins.iter().map(|pin| PinChange { read: read(pin), pin: pin.clone() }).collect();
    store.put_pins(&tenant(of), server, &changes).await.unwrap()
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn a_fresh_store_has_no_servers_and_no_pins(adapter: impl StoreAdapter) {
    assert_eq!(adapter.upstreams().load().await.unwrap(), UpstreamState::default());
    assert!(!adapter.upstreams().remove_server(&tenant("local"), "files").await.unwrap());
}

pub async fn a_server_is_added_and_replaced_and_its_pins_stay(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    let pins = [pin("local", "files", "read", "files.read")];
    assert_eq!(put(&store, "local", "files", &pins).await, PinsPut::Kept);
    let changed = server("local", "files", json!({ "reach": { "type": "stdio", "command": "node" } }));
    put_server(&store, &changed).await;
    assert_eq!(store.load().await.unwrap(), UpstreamState { servers: vec![changed], pins: pins.to_vec() });
}

pub async fn a_server_is_put_only_beside_those_that_were_read(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    with_server(&adapter, "acme", "files").await;
    let (mail, before) = (server("local", "mail", json!({})), store.load().await.unwrap());
    let read = |name: &str, added_at: UnixMillis| ServerRead { name: name.into(), added_at };
    for others in [
        vec![],
        vec![read("files", UnixMillis(NOON.0 + 1))],
        vec![read("other", NOON)],
        vec![read("files", NOON), read("mail", NOON)],
    ] {
        assert_eq!(store.put_server(&mail, &others).await.unwrap(), ServerPut::Outdated, "{others:?}");
    }
    assert_eq!(store.load().await.unwrap(), before, "nothing was written");
    assert_eq!(store.put_server(&mail, &[read("files", NOON)]).await.unwrap(), ServerPut::Kept);
    // Its own former description is none of the others.
    assert_eq!(store.put_server(&mail, &[read("files", NOON)]).await.unwrap(), ServerPut::Kept);
    let calendar = server("local", "calendar", json!({}));
    let others = [read("mail", NOON), read("files", NOON)];
    assert_eq!(store.put_server(&calendar, &others).await.unwrap(), ServerPut::Kept, "in any order");
}

pub async fn of_servers_that_are_put_at_once_one_is_kept(adapter: impl StoreAdapter) {
    let store = adapter.upstreams();
    let puts = (0..8).map(|n| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.put_server(&server("local", &format!("race-{n}"), json!({})), &[]).await })
    });
    let mut kept = 0;
    for put in puts.collect::<Vec<_>>() {
        kept += usize::from(put.await.unwrap().unwrap() == ServerPut::Kept);
    }
    assert_eq!((kept, store.load().await.unwrap().servers.len()), (1, 1));
}

pub async fn two_tenants_may_call_a_server_the_same(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    put_server(&store, &server("acme", "files", json!({ "a": 1 }))).await;
    assert_eq!(put(&store, "acme", "files", &[pin("acme", "files", "read", "files.read")]).await, PinsPut::Kept);
    assert_eq!(put(&store, "local", "files", &[pin("local", "files", "read", "files.read")]).await, PinsPut::Kept);
    assert!(store.remove_server(&tenant("acme"), "files").await.unwrap());
    let left = store.load().await.unwrap();
    assert_eq!((left.servers.len(), left.pins.len()), (1, 1));
    assert_eq!(left.pins.first().unwrap().tenant, tenant("local"));
}

pub async fn pins_are_replaced_by_tenant_server_and_tool(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    let first = pin("local", "files", "read", "files.read");
    let second = pin("local", "files", "write", "files.write");
    assert_eq!(put(&store, "local", "files", &[first.clone(), second.clone()]).await, PinsPut::Kept);
    let held = PinRecord { state: PinState::Quarantined, proposed: Some(definition("other")), ..first };
    assert_eq!(put(&store, "local", "files", std::slice::from_ref(&held)).await, PinsPut::Kept);
    assert_eq!(store.load().await.unwrap().pins, [held, second]);
}

pub async fn a_pin_is_not_written_over_by_what_was_judged_before_it(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    let change = |read: Option<&PinRecord>, pin: &PinRecord| PinChange { read: read.cloned(), pin: pin.clone() };
    let first = pin("local", "files", "read", "files.read");
    let other = pin("local", "files", "write", "files.write");
    let (of, server) = (tenant("local"), "files");
    assert_eq!(store.put_pins(&of, server, &[change(None, &first)]).await.unwrap(), PinsPut::Kept);
    let twice = store.put_pins(&of, server, &[change(None, &other), change(None, &first)]).await.unwrap();
    assert_eq!(twice, PinsPut::Outdated, "it was not there when it was looked for");
    // Somebody decides about what was read, and somebody else has judged it meanwhile.
    let classified = PinRecord { classification: Some(SideEffectPolicy::Pure), ..first.clone() };
    assert_eq!(store.put_pins(&of, server, &[change(Some(&first), &classified)]).await.unwrap(), PinsPut::Kept);
    let held = PinRecord { state: PinState::Quarantined, proposed: Some(definition("other")), ..first.clone() };
    let late = [change(None, &other), change(Some(&first), &held)];
    assert_eq!(store.put_pins(&of, server, &late).await.unwrap(), PinsPut::Outdated);
    assert_eq!(store.load().await.unwrap().pins, std::slice::from_ref(&classified), "all of them or none");
    let gone = [change(Some(&other), &other)];
    assert_eq!(store.put_pins(&of, server, &gone).await.unwrap(), PinsPut::Outdated, "it is not there any more");
    let held = PinRecord { classification: classified.classification, ..held };
    let again = [change(None, &other), change(Some(&classified), &held)];
    assert_eq!(store.put_pins(&of, server, &again).await.unwrap(), PinsPut::Kept);
    assert_eq!(store.load().await.unwrap().pins, [held, other]);
}

pub async fn pins_without_their_server_are_not_kept(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    assert_eq!(put(&store, "local", "gone", &[pin("local", "gone", "read", "gone.read")]).await, PinsPut::ServerGone);
    assert_eq!(put(&store, "acme", "files", &[pin("acme", "files", "read", "files.read")]).await, PinsPut::ServerGone);
    assert_eq!(store.load().await.unwrap().pins, []);
}

pub async fn pins_are_kept_together_or_not_at_all(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    let pins = [pin("local", "files", "read", "files.read"), pin("local", "files", "Read", "files.read")];
    let changes = pins.map(|pin| PinChange { read: None, pin });
    store.put_pins(&tenant("local"), "files", &changes).await.unwrap_err();
    assert_eq!(store.load().await.unwrap().pins, [], "two tools with one name");
}

pub async fn a_server_takes_its_pins_with_it_and_no_others(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    let other = with_server(&adapter, "local", "mail").await;
    assert_eq!(put(&store, "local", "files", &[pin("local", "files", "read", "files.read")]).await, PinsPut::Kept);
    let stays = pin("local", "mail", "read", "mail.read");
    assert_eq!(put(&other, "local", "mail", std::slice::from_ref(&stays)).await, PinsPut::Kept);
    assert!(store.remove_server(&tenant("local"), "files").await.unwrap());
    assert!(!store.remove_server(&tenant("local"), "files").await.unwrap());
    assert_eq!(store.load().await.unwrap().pins, [stays]);
}

pub async fn every_state_and_every_member_survives_a_reopening(mut adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    let pins: Vec<PinRecord> = PinState::ALL
        .into_iter()
        .enumerate()
        .map(|(index, state)| PinRecord {
            state,
            proposed: (state != PinState::Accepted).then(|| definition("other")),
            findings: vec![json!({ "kind": "hidden_text", "severity": "high" })],
            classification: [None, Some(SideEffectPolicy::Pure), Some(SideEffectPolicy::Irreversible)]
                .get(index)
                .copied()
                .flatten(),
            ..pin("local", "files", &format!("tool{index}"), &format!("files.tool{index}"))
        })
        .chain([PinRecord {
            version: None,
            accepted: None,
            proposed: Some(definition("held at first sight")),
            state: PinState::Quarantined,
            ..pin("local", "files", "zzz", "files.zzz")
        }])
        .collect();
    assert_eq!(put(&store, "local", "files", &pins).await, PinsPut::Kept);
    drop(store);
    adapter.reopen().await;
    let state = adapter.upstreams().load().await.unwrap();
    assert_eq!(state.pins, pins);
    assert_eq!(state.servers, [server("local", "files", json!({}))]);
}

pub async fn hostile_names_are_kept_as_they_are(adapter: impl StoreAdapter) {
    let store = with_server(&adapter, "local", "files").await;
    for (index, name) in
        ["'; DROP TABLE upstream_pins; --", "ä\u{202e}b", "\n", "x".repeat(5_000).as_str()].into_iter().enumerate()
    {
        let record = pin("local", "files", name, &format!("files.tool{index}"));
        assert_eq!(put(&store, "local", "files", std::slice::from_ref(&record)).await, PinsPut::Kept);
        assert!(store.load().await.unwrap().pins.contains(&record), "{name}");
    }
}
