//! A replica that stands still for longer than its leases, and goes on as if nothing had been: what it did is not lost, what
//! it says is late, and late is refused.

use std::time::Duration;

use serde_json::json;

use super::site::{Caller, NAMES, Sent, Site, ended, held, job, payment, submit, until};
use crate::support::Gantry;

async fn metric(gantry: &Gantry, line: &str) -> f64 {
    let text = gantry.get("/metrics").await.text;
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_replica_says_after_its_leases_is_refused_and_nothing_is_done_twice() {
    let site = Site::new().set("JOBS__LEASE_SECONDS", "5");
    // Alone, so that the job is its.
    let sleeper = site.replica(NAMES[0]).await;
    let promised = submit(&sleeper, held(1)).await;
    let (http, url) = (Caller::new(&sleeper.token), sleeper.url.clone());
    let waiting = tokio::spawn(async move { http.call(&url, &held(2)).await });
    until("both run", async || site.begun().len() == 2).await;

    // Those who come later leave what is somebody's in their hands: for longer than it takes them to look around.
    let [two, three] = site.others().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let seen = job(&two, &promised).await;
    assert_eq!((&seen["status"], &seen["attempts"]), (&json!("running"), &json!(1)), "{seen}");

    // It stands still. The others find that nobody knows, and do not try again.
    sleeper.signal("STOP");
    let end = ended(&two, &promised).await;
    assert_eq!((&end["status"], &end["error"]["code"]), (&json!("indeterminate"), &json!("E3413")), "{end}");
    let answer = three.post("/v1/tools/invoke", payment("bank.pay", 2)).await;
    assert_eq!(answer.code(), "E3410", "other parameters than the one that is held: {}", answer.text);
    let answer = three.post("/v1/tools/invoke", held(2)).await;
    assert_eq!(answer.refusal(), (500, "E3413"), "{}", answer.text);

    // The tools go on all the time, and end. What the sleeper has to say about them comes too late.
    site.open_gate();
    until("both effects", async || site.effects().len() == 2).await;
    sleeper.signal("CONT");
    let Sent::Answered(late) = waiting.await.unwrap() else { panic!("the sleeper does not answer") };
    assert_ne!(late.status, 200, "nobody may be told what the ledger does not say: {}", late.text);
    assert_eq!(late.code(), "E3413", "{}", late.text);
    until("a fence", async || metric(&sleeper, r#"gantry_ledger_events_total{event="fenced"}"#).await >= 1.0).await;
    for gantry in [&sleeper, &two, &three] {
        let seen = job(gantry, &promised).await;
        assert_eq!(seen["status"], "indeterminate", "{seen}");
        assert_eq!(gantry.post("/v1/tools/invoke", held(2)).await.code(), "E3413");
    }
    for (number, times) in site.effects().into_iter().chain(site.begun()) {
        assert_eq!(times, 1, "{number}");
    }

    // A person looks, and says so; and the sleeper is awake.
    let unknown = two.cli(&["jobs", "unknown", "--json"]).ok().json().to_string();
    assert!(unknown.contains(&promised), "{unknown}");
    let resolved = ["jobs", "resolve", &promised, "--happened", "--result", r#"{"paid": true}"#, "--note", "it has"];
    three.cli(&resolved).ok();
    assert_eq!(job(&sleeper, &promised).await["status"], "success");
    assert_eq!(sleeper.post("/v1/tools/invoke", payment("bank.pay", 3)).await.status, 200);
}
