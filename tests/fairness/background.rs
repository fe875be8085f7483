//! Work in the background: the queue, workers, turns of agents and deliveries of webhooks are shared.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;

use reqwest::Method;
use serde_json::json;

use super::{Stage, begin_impatient, metric, receiver, submit, succeeds, token, until};
use crate::support::Start;

#[tokio::test(flavor = "multi_thread")]
async fn one_agent_fills_no_more_than_its_part_of_its_tenants_queue() {
    let stage = Stage::new();
    let start = stage.start().env("GANTRY_JOBS__CONCURRENCY", "1").env("GANTRY_JOBS__QUEUE_PER_TENANT", "8");
    let gantry = start.env("GANTRY_JOBS__QUEUE_PER_AGENT", "3").run().await;
    let (loud, quiet) = (token(&gantry, "acme", "loud").await, token(&gantry, "acme", "quiet").await);
    let first = submit(&gantry, &loud, "demo.gated", stage.parameters("gate", "loud"), "high").await;
    until("the only worker is busy", async || (stage.noted().len() == 1).then_some(())).await;
    for _ in 0..3 {
        submit(&gantry, &loud, "calculator", json!({ "expression": "6 * 7" }), "high").await;
    }
    let options = json!({ "async_mode": true });
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "1" }, "execution_options": options });
    let full = gantry.request(Method::POST, "/v1/tools/invoke", Some(&loud), Some(body)).await;
    assert_eq!(full.refusal(), (503, "E3701"), "{}", full.text);
    let others = submit(&gantry, &quiet, "calculator", json!({ "expression": "6 * 7" }), "low").await;
    stage.open("gate");
    succeeds(&gantry, &loud, &first).await;
    succeeds(&gantry, &quiet, &others).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_one_tenant_never_hold_all_workers() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_JOBS__CONCURRENCY", "4").run().await;
    let mut held = Vec::new();
    for number in 0..8 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        let id = submit(&gantry, &agent, "demo.gated", stage.parameters("gate", "held"), "high").await;
        held.push((agent, id));
    }
    until("jobs of the hostile tenant", async || (stage.noted().len() >= 3).then_some(())).await;
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let id = submit(&gantry, &other, "calculator", json!({ "expression": "6 * 7" }), "low").await;
        succeeds(&gantry, &other, &id).await;
    }
    assert_eq!(stage.noted().len(), 3);
    let workers = [
        metric(&gantry, "gantry_places_max{resource=\"workers\"}").await,
        metric(&gantry, "gantry_places_held{resource=\"workers\"}").await,
    ];
    assert_eq!(workers, [Some(4), Some(3)]);
    stage.open("gate");
    for (agent, id) in held {
        succeeds(&gantry, &agent, &id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_go_on_in_the_background_for_one_tenant_leave_room_for_those_of_others() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_JOBS__BACKGROUND_CALLS", "8").run().await;
    let mut held = Vec::new();
    for number in 0..10 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        held.push(begin_impatient(&gantry, &agent, &stage.parameters("gate", "held")));
    }
    let places = async |figure: &str| metric(&gantry, &format!("gantry_places_{figure}")).await;
    until("six of eight and no more", async || {
        let refused = places("refused_total{resource=\"background_calls\"}").await;
        (refused == Some(4)).then_some(())
    })
    .await;
    assert_eq!(places("held{resource=\"background_calls\"}").await, Some(6));
    let mut others = Vec::new();
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let answer = begin_impatient(&gantry, &other, &stage.parameters("gate", tenant)).await.unwrap();
        assert_eq!(answer.status, 202, "{tenant}: {}", answer.text);
        others.push((other, answer.body["invocation_id"].as_str().unwrap().to_owned()));
    }
    stage.open("gate");
    for (other, id) in others {
        succeeds(&gantry, &other, &id).await;
    }
    let mut ends = Vec::new();
    for call in held {
        ends.push(call.await.unwrap().status);
    }
    ends.sort_unstable();
    assert_eq!(ends, [200, 200, 200, 200, 202, 202, 202, 202, 202, 202]);
}

#[tokio::test(flavor = "multi_thread")]
async fn urgent_jobs_of_one_agent_take_no_turns_from_its_neighbour() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_JOBS__CONCURRENCY", "1").run().await;
    let (loud, quiet) = (token(&gantry, "acme", "loud").await, token(&gantry, "acme", "quiet").await);
    let other = token(&gantry, "acme", "other").await;
    let first = submit(&gantry, &other, "demo.gated", stage.parameters("gate", "other"), "normal").await;
    until("the only worker is busy", async || (stage.noted().len() == 1).then_some(())).await;
    for _ in 0..30 {
        submit(&gantry, &loud, "demo.gated", stage.parameters("", "loud"), "high").await;
    }
    let waiting = submit(&gantry, &quiet, "demo.gated", stage.parameters("", "quiet"), "low").await;
    stage.open("gate");
    succeeds(&gantry, &other, &first).await;
    succeeds(&gantry, &quiet, &waiting).await;
    let at = stage.noted().iter().position(|word| word == "quiet").unwrap();
    assert!(at <= 2, "{} jobs of the loud agent ran before", at - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_that_nobody_answers_fill_only_the_room_of_the_agent_that_named_them() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir_all(data.join("secrets/acme")).unwrap();
    let hook = data.join("secrets/acme/hook");
    std::fs::write(&hook, "a secret to sign with, long enough").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o600)).unwrap();
    // An address where nobody listens any more.
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = Start::new().data(&data).env("GANTRY_WEBHOOKS__ALLOW", format!("http://{away}"));
    let start = start.env("GANTRY_JOBS__QUEUE_PER_TENANT", "12").env("GANTRY_JOBS__QUEUE_PER_AGENT", "4");
    let gantry = start.run().await;
    let scopes = json!(["tool:*", "credentials:hook"]);
    let loud = gantry.mint(json!({ "sub": "did:example:loud", "tenant": "acme", "scopes": scopes })).await;
    let quiet = token(&gantry, "acme", "quiet").await;
    let mut accepted = 0;
    let full = loop {
        let callback = json!({ "url": format!("http://{away}?n={accepted}"), "secret": "hook" });
        let body = json!({ "tool_id": "calculator", "parameters": { "expression": "6 * 7" },
            "execution_options": { "async_mode": true, "callback": callback } });
        let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&loud), Some(body)).await;
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 40, "its callbacks take no room of its own");
        let id = answer.body["invocation_id"].as_str().unwrap().to_owned();
        succeeds(&gantry, &loud, &id).await;
    };
    assert_eq!(full.refusal(), (503, "E3701"), "{}", full.text);
    let id = submit(&gantry, &quiet, "calculator", json!({ "expression": "6 * 7" }), "low").await;
    succeeds(&gantry, &quiet, &id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_holds_up_its_own_deliveries_only() {
    let (tarpit, well) = (receiver(false), receiver(true));
    let start = Start::new().env("GANTRY_WEBHOOKS__ALLOW", format!("{},{}", tarpit.url, well.url));
    let start = start.env("GANTRY_WEBHOOKS__TIMEOUT_MS", "300000").env("GANTRY_JOBS__CONCURRENCY", "8");
    let gantry = start.run().await;
    let subscribe = async |tenant: &str, url: &str| {
        let boss = json!({ "sub": format!("did:example:boss-{tenant}"), "tenant": tenant, "roles": ["admin"] });
        let boss = gantry.mint(boss).await;
        let body = json!({ "url": format!("{url}/hook"), "events": ["invocation.completed"] });
        let answer = gantry.request(Method::POST, "/v1/webhooks", Some(&boss), Some(body)).await;
        assert!(answer.status < 300, "{}", answer.text);
    };
    subscribe("mallory", &tarpit.url).await;
    subscribe("acme", &well.url).await;
    subscribe("zeta", &well.url).await;
    let end_a_call = async |tenant: &str| {
        let agent = token(&gantry, tenant, "agent").await;
        let id = submit(&gantry, &agent, "calculator", json!({ "expression": "6 * 7" }), "normal").await;
        succeeds(&gantry, &agent, &id).await;
    };
    for _ in 0..12 {
        end_a_call("mallory").await;
    }
    until("deliveries into the tarpit", async || (tarpit.asked.load(Ordering::SeqCst) >= 5).then_some(())).await;
    for (count, tenant) in [(1, "acme"), (2, "zeta")] {
        end_a_call(tenant).await;
        until("the delivery", async || (well.asked.load(Ordering::SeqCst) >= count).then_some(())).await;
    }
    // Another receiver of the same tenant, too.
    subscribe("mallory", &well.url).await;
    end_a_call("mallory").await;
    until("the neighbour's delivery", async || (well.asked.load(Ordering::SeqCst) >= 3).then_some(())).await;
    // The receiver has counted its request before the worker has its answer and gives its place back.
    let held = async || metric(&gantry, "gantry_places_held{resource=\"deliveries\"}").await;
    until("only deliveries into the tarpit are left", async || (held().await == Some(5)).then_some(())).await;
    assert!(tarpit.asked.load(Ordering::SeqCst) <= 5, "one address holds five of eight workers at most");
}
