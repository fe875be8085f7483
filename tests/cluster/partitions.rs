//! A line that is cut between one replica and what all of them share: packets vanish, nothing is refused or closed. The others
//! go on, the lonely one does what it may do alone, and when the line is mended all agree again.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use super::site::{NAMES, Site, ended, figure, held, payment, submit, until};
use crate::support::{Answer, Gantry, manifest};

/// The longest that anything may take which cannot be done: the bounds of one piece of work, with room for a busy machine.
const REFUSED_WITHIN: Duration = Duration::from_secs(40);

async fn sum(gantry: &Gantry, token: &str, tool: &str) -> Answer {
    let body = json!({ "tool_id": tool, "parameters": { "expression": "1+1" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

async fn forbid_everything(gantry: &Gantry, forbid: bool) {
    let word = if forbid { "forbid" } else { "permit" };
    let body = json!({ "tenant": "acme", "policies": format!("{word} (principal, action, resource);") });
    let answer = gantry.request(Method::PUT, "/v1/policies", Some(&gantry.token), Some(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_cut_off_from_redis_has_its_part_and_agrees_again_when_the_line_is_mended() {
    const PER_DAY: u32 = 30;
    // Impatient, so that the loss is noticed; not so much that a busy machine looks like one.
    let site = Site::new().set("SHARED_STATE__OPERATION_TIMEOUT_MS", "1500");
    let (line, address) = Site::line_to_redis();
    let one = site.replica(NAMES[0]).await;
    let two = site.replica(NAMES[1]).await;
    let lonely = site.start(NAMES[2]).env("GANTRY_SHARED_STATE__URL", &address).run().await;
    let limited = manifest(json!({ "rate_limit": { "max_per_day": PER_DAY }, "external_service": "sums" }));
    assert_eq!(one.register(limited).await.status, 201);
    let (user, other) = (json!({ "sub": "did:example:user" }), json!({ "sub": "did:example:other" }));
    let (user, other) = (one.mint(user).await, one.mint(other).await);
    let shared = async |gantry: &Gantry| gantry.get("/health").await.body["checks"]["shared_state"]["healthy"] == true;
    for gantry in [&one, &two, &lonely] {
        until("the tool is everywhere", async || gantry.get("/v1/tools/demo.echo_sum").await.status == 200).await;
        until("Redis is there", async || shared(gantry).await).await;
    }

    line.cut();
    until("the loss is noticed", async || !shared(&lonely).await).await;
    assert_eq!(lonely.get("/health/ready").await.status, 200, "calls go on");
    let mut admitted = 0;
    for _ in 0..PER_DAY {
        admitted += u32::from(sum(&lonely, &user, "demo.echo_sum").await.status == 200);
    }
    assert!((PER_DAY / 3..=PER_DAY / 3 + 1).contains(&admitted), "its part of {PER_DAY} is a third: {admitted}");
    let metrics = lonely.get("/metrics").await.text;
    assert!(metrics.contains(r#"gantry_shared_state_fallback_total{use="limit"}"#), "{metrics}");
    assert_ne!(lonely.cli(&["breakers", "open", "sums"]).code(), 0, "it would hold for one server only");
    // Nothing fails open: the ledger decides about effects, with or without Redis.
    let first = lonely.post("/v1/tools/invoke", payment("bank.pay", 1)).await;
    let again = one.post("/v1/tools/invoke", payment("bank.pay", 1)).await;
    assert_eq!((first.status, again.status, &again.body["cached"]), (200, 200, &json!(true)), "{}", again.text);
    assert_eq!(site.effects()[&1], 1);
    // The others are as they were, with all of the limit but what they give themselves.
    assert!(shared(&one).await && shared(&two).await);
    forbid_everything(&one, true).await;
    until("the other knows", async || sum(&two, &other, "calculator").await.status == 403).await;

    let mended = Instant::now();
    line.mend();
    until("the lonely one knows", async || sum(&lonely, &other, "calculator").await.status == 403).await;
    figure(&format!(
        "a policy made while the line to Redis was cut is in force {:?} after it was mended",
        mended.elapsed()
    ));
    until("Redis is back", async || shared(&lonely).await).await;
    forbid_everything(&lonely, false).await;
    for gantry in [&one, &two] {
        until("all agree", async || sum(gantry, &other, "calculator").await.status == 200).await;
    }
    let mut admitted = 0;
    for n in 0..PER_DAY {
        let gantry = [&one, &two, &lonely][usize::try_from(n).unwrap() % 3];
        admitted += u32::from(sum(gantry, &other, "demo.echo_sum").await.status == 200);
    }
    assert_eq!(admitted, PER_DAY, "one limit again");
    assert_eq!(sum(&lonely, &other, "demo.echo_sum").await.refusal(), (429, "E3003"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_cut_off_from_postgresql_begins_nothing_with_effects_and_what_it_held_goes_to_others() {
    let site = Site::new()
        .set("JOBS__LEASE_SECONDS", "5")
        .set("STORE__CONNECTION_WAIT_SECONDS", "3")
        .set("STORE__STATEMENT_SECONDS", "5");
    let (line, address) = site.line_to_postgres();
    // The lonely one is first, so that the job is its.
    let lonely = site.start(NAMES[0]).env("GANTRY_STORE__URL", &address).run().await;
    let promised = submit(&lonely, held(1)).await;
    until("the job runs", async || site.begun().len() == 1).await;
    let [two, three] = site.others().await;
    let token = two.mint(json!({ "sub": "did:example:user" })).await;
    assert_eq!(sum(&lonely, &token, "calculator").await.status, 200);

    line.cut();
    let start = Instant::now();
    let refused = lonely.post("/v1/tools/invoke", payment("bank.pay", 2)).await;
    assert_eq!(refused.refusal(), (503, "E3001"), "{}", refused.text);
    figure(&format!("a call with effects is refused {:?} after the line to PostgreSQL was cut", start.elapsed()));
    assert!(start.elapsed() < REFUSED_WITHIN, "{:?}", start.elapsed());
    until("it is not ready", async || lonely.get("/health/ready").await.status == 503).await;
    assert_eq!(lonely.get("/health/live").await.status, 200, "it waits for the line, and is no reason to be restarted");
    let end = ended(&two, &promised).await;
    assert_eq!(end["status"], "indeterminate", "{end}");
    forbid_everything(&two, true).await;
    site.open_gate();
    until("the effect", async || site.effects().len() == 1).await;

    let mended = Instant::now();
    line.mend();
    until("it is ready", async || lonely.get("/health/ready").await.status == 200).await;
    until("it knows the policy", async || sum(&lonely, &token, "calculator").await.status == 403).await;
    figure(&format!(
        "ready, with the policy made meanwhile, {:?} after the line to PostgreSQL was mended",
        mended.elapsed()
    ));
    for gantry in [&lonely, &two, &three] {
        let seen = super::site::job(gantry, &promised).await;
        assert_eq!(seen["status"], "indeterminate", "what it says of the job is late: {seen}");
    }
    assert_eq!(site.effects().values().copied().collect::<Vec<_>>(), [1], "nothing began, and nothing began again");
    until("it takes calls with effects", async || {
        lonely.post("/v1/tools/invoke", payment("bank.pay", 3)).await.status == 200
    })
    .await;
    assert_eq!(three.post("/v1/tools/invoke", payment("bank.pay", 3)).await.body["cached"], json!(true));
}
