//! One limit, one breaker and one execution, whichever replica is asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::service::Service;
use super::site::{Caller, Sent, Site, figure, held, until};
use crate::support::{Gantry, PATIENCE, manifest};

/// What a user may call in a day, how many calls are made, and how many callers make them.
const PER_DAY: u32 = 400;
const CALLS: u32 = 560;
const CALLERS: u32 = 12;
const DUPLICATES: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rate_limit_of_three_replicas_is_one_to_a_hundredth() {
    let site = Site::new();
    let three = site.three().await;
    let limited = manifest(json!({ "rate_limit": { "max_per_day": PER_DAY } }));
    assert_eq!(three[0].register(limited).await.status, 201);
    let token = three[0].mint(json!({ "tenant": "local" })).await;
    let call = json!({ "tool_id": "demo.echo_sum", "parameters": { "expression": "1+1" } });
    for gantry in &three {
        until("the tool is everywhere", async || gantry.get("/v1/tools/demo.echo_sum").await.status == 200).await;
    }
    let urls = three.each_ref().map(|gantry| gantry.url.clone());
    let start = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (http, urls, call) = (Caller::new(&token), urls.clone(), call.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for n in 0..CALLS / CALLERS {
                    let url = &urls[usize::try_from(caller + n).unwrap() % urls.len()];
                    let Sent::Answered(answer) = http.call(url, &call).await else { panic!("no answer") };
                    match answer.status {
                        200 => admitted += 1,
                        _ => assert_eq!(answer.refusal(), (429, "E3003"), "{}", answer.text),
                    }
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for caller in callers {
        admitted += caller.await.unwrap();
    }
    // What comes back while the calls are made, rounded up.
    let refilled = u32::try_from(start.elapsed().as_secs()).unwrap() * PER_DAY / 86_400 + 1;
    figure(&format!("{admitted} of {CALLS} calls admitted, {PER_DAY} allowed, in {:?}", start.elapsed()));
    assert!((PER_DAY..=PER_DAY + refilled).contains(&admitted), "{admitted} of {PER_DAY} and {refilled}");
    assert!(refilled * 100 <= PER_DAY, "the run was too slow to show a hundredth");
    for gantry in &three {
        let metrics = gantry.get("/metrics").await.text;
        let alone = metrics.lines().find(|line| line.starts_with(r#"gantry_shared_state_fallback_total{use="limit"}"#));
        assert!(alone.is_none_or(|line| line.ends_with(" 0")), "nothing was done alone: {alone:?}");
    }
}

async fn ask(gantry: &Gantry) -> crate::support::Answer {
    gantry.invoke("demo.ask", json!({ "problem": "why?" })).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failures_at_one_replica_open_the_breaker_of_all_and_trials_are_counted_once() {
    const TRIALS: usize = 2;
    let service = Service::start().await;
    let site = Site::new()
        .set("MODEL__BASE_URL", format!("http://{}", service.address))
        .set("MODEL__MODEL", "test-model")
        .set("RESILIENCE__FAILURE_THRESHOLD", "3")
        .set("RESILIENCE__HALF_OPEN_MAX_CALLS", TRIALS.to_string())
        .set("RESILIENCE__SUCCESS_THRESHOLD", TRIALS.to_string())
        .set("RESILIENCE__OPEN_MS", "4000");
    let three = Arc::new(site.three().await);
    assert_eq!(three[0].register(Service::tool()).await.status, 201);
    for gantry in &*three {
        until("the tool is everywhere", async || gantry.get("/v1/tools/demo.ask").await.status == 200).await;
    }
    service.fail(true);
    let opened = Instant::now();
    for _ in 0..3 {
        assert_eq!(ask(&three[0]).await.refusal(), (503, "E3502"));
    }
    for gantry in &three[1..] {
        let (asked, answer) = (service.asked(), ask(gantry).await);
        // A machine that takes seconds for a call has let the wait pass.
        if opened.elapsed().as_millis() < 4_000 {
            assert_eq!((answer.refusal(), asked), ((503, "E3501"), 3), "{}", answer.text);
            assert_eq!(service.asked(), 3, "it was never asked by this replica");
        }
    }

    // Everybody tries at once; two get through, wherever they came in.
    service.fail(false);
    service.hold(true);
    let before = service.asked();
    let trials: Vec<_> = (0..9)
        .map(|n| {
            let three = Arc::clone(&three);
            tokio::spawn(async move {
                let gantry = &three[n % three.len()];
                let start = Instant::now();
                loop {
                    let answer = ask(gantry).await;
                    if answer.status == 200 {
                        return;
                    }
                    assert_eq!(answer.code(), "E3501", "{}", answer.text);
                    assert!(start.elapsed() < PATIENCE, "no call gets through");
                }
            })
        })
        .collect();
    until("the trials", async || service.asked() >= before + TRIALS).await;
    for gantry in three.iter().chain(&*three) {
        assert_eq!(ask(gantry).await.refusal(), (503, "E3501"));
    }
    assert_eq!(service.asked(), before + TRIALS, "no more than the trials of one breaker");
    service.hold(false);
    for trial in trials {
        trial.await.unwrap();
    }
    for gantry in &*three {
        let seen = gantry.get("/v1/breakers?service=thinker").await;
        assert_eq!(seen.body["breakers"][0]["state"], "closed", "{}", seen.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_duplicates_at_three_replicas_are_one_execution_with_one_answer() {
    let site = Site::new();
    let three = site.three().await;
    let callers: Vec<_> = (0..DUPLICATES)
        .map(|n| {
            let (http, url) = (Caller::new(&three[0].token), three[n % three.len()].url.clone());
            tokio::spawn(async move { http.call(&url, &held(1)).await })
        })
        .collect();
    until("the execution", async || !site.begun().is_empty()).await;
    // One that comes late is the same as one that waits.
    site.open_gate();
    let (mut results, mut cached) = (BTreeSet::new(), 0);
    for caller in callers {
        let Sent::Answered(answer) = caller.await.unwrap() else { panic!("no answer") };
        assert_eq!(answer.status, 200, "{}", answer.text);
        let body = &answer.body;
        results.insert(json!([body["invocation_id"], body["status"], body["result"]]).to_string());
        cached += usize::from(body["cached"] == true);
    }
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(cached, DUPLICATES - 1, "one of them ran");
    assert_eq!((site.begun()[&1], site.effects()[&1]), (1, 1));
}
