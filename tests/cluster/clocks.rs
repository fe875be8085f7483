//! Replicas whose clocks differ by seconds: one goes ahead, one behind. Limits go by the clock of Redis, leases by that of
//! PostgreSQL, and tokens by what `clock_skew_seconds` allows.
//!
//! The clocks are moved by libfaketime, which stands before the system's own; only what counts since 1970 is moved.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::site::{NAMES, Site, ended, held, job, payment, submit, until};
use crate::support::{Gantry, manifest};

/// Seconds from the clock of this machine: the second replica is ahead, the third behind.
const AHEAD: &str = "+7s";
const BEHIND: &str = "-7s";

/// The library that moves clocks.
fn library() -> String {
    let said = Command::new("faketime").args(["-f", "+0s", "printenv", "LD_PRELOAD"]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(!said.trim().is_empty(), "faketime says nothing");
    said.trim().to_owned()
}

async fn replica(site: &Site, name: &str, shift: &str) -> Gantry {
    site.start(name)
        .env("LD_PRELOAD", library())
        .env("FAKETIME", shift)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .run()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_whose_clocks_differ_by_seconds_agree_on_limits_leases_and_tokens() {
    const PER_MINUTE: u32 = 60;
    let site = Site::new().set("IDENTITY__CLOCK_SKEW_SECONDS", "20").set("JOBS__LEASE_SECONDS", "5");
    let one = site.replica(NAMES[0]).await;
    let promised = submit(&one, held(1)).await;
    until("the job runs", async || site.begun().len() == 1).await;
    let ahead = replica(&site, NAMES[1], AHEAD).await;
    let behind = replica(&site, NAMES[2], BEHIND).await;
    let three = [&one, &ahead, &behind];
    let clock = async |gantry: &Gantry| gantry.get("/health").await.body["timestamp"].as_str().unwrap().to_owned();
    assert!(clock(&ahead).await > clock(&one).await && clock(&behind).await < clock(&one).await, "the clocks differ");

    // A token of one is a token of all.
    let limited = manifest(json!({ "rate_limit": { "max_per_minute": PER_MINUTE } }));
    assert_eq!(ahead.register(limited).await.status, 201);
    let call = json!({ "tool_id": "demo.echo_sum", "parameters": { "expression": "1+1" } });
    let mut admitted = 0;
    let start = std::time::Instant::now();
    for minted in three {
        let token = minted.mint(json!({ "sub": "did:example:user" })).await;
        for gantry in three {
            until("the tool is everywhere", async || gantry.get("/v1/tools/demo.echo_sum").await.status == 200).await;
            // One limit: a clock that is ahead gives nothing back before its time, in a minute of which seconds differ.
            for _ in 0..PER_MINUTE / 6 {
                let path = "/v1/tools/invoke";
                let answer = gantry.request(reqwest::Method::POST, path, Some(&token), Some(call.clone())).await;
                match answer.status {
                    200 => admitted += 1,
                    _ => assert_eq!(answer.refusal(), (429, "E3003"), "{}", answer.text),
                }
            }
        }
    }
    let refilled = u32::try_from(start.elapsed().as_secs()).unwrap() * PER_MINUTE / 60 + 1;
    assert!((PER_MINUTE..=PER_MINUTE + refilled).contains(&admitted), "{admitted} of {PER_MINUTE} and {refilled}");

    // For longer than the lease, nobody takes what is somebody's.
    tokio::time::sleep(Duration::from_secs(7)).await;
    for gantry in three {
        let seen = job(gantry, &promised).await;
        assert_eq!((&seen["status"], &seen["attempts"]), (&json!("running"), &json!(1)), "{seen}");
    }
    site.open_gate();
    assert_eq!(ended(&behind, &promised).await["status"], "success");
    // What one did is done for all.
    for gantry in three {
        let answer = gantry.post("/v1/tools/invoke", payment("bank.pay", 2)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(site.effects().into_values().collect::<Vec<_>>(), [1, 1]);
}
