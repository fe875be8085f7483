//! A policy engine outside that never answers for one tenant: its calls wait there, before they are anywhere else, and those of
//! others pass.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::fairness::{call, metric, token, until};
use crate::support::Start;

/// Calls of the hostile tenant at once: more than there is room for.
const HOSTILE: usize = 120;

/// Answers at once, except for `mallory`, about whom it never says anything.
fn engine() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let (mut bytes, mut buffer) = (Vec::new(), [0; 65_536]);
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    bytes.extend_from_slice(&buffer[..count]);
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let head = head.to_ascii_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    if length.is_none_or(|length: usize| body.len() < length) {
                        continue;
                    }
                    if body.contains("mallory") {
                        // Until the other side has had enough.
                        let _ = stream.read(&mut buffer);
                        return;
                    }
                    let said = json!({ "result": true }).to_string();
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
                    let _ = stream.write_all(format!("{head}content-length: {}\r\n\r\n{said}", said.len()).as_bytes());
                    return;
                }
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_at_a_policy_engine_for_one_tenant_leave_room_for_those_of_others() {
    let start = Start::new()
        .env("GANTRY_SERVER__CALLS_MAX", "2")
        .env("GANTRY_SERVER__CALLS_WAITING_MAX", "0")
        .env("GANTRY_POLICY__ENGINE", "opa")
        .env("GANTRY_POLICY__ENGINE_URL", engine())
        .env("GANTRY_POLICY__ENGINE_PATH", "gantry/authz")
        .env("GANTRY_POLICY__ENGINE_TIMEOUT_MS", "10000");
    let gantry = Arc::new(start.run().await);
    let (acme, zeta) = (token(&gantry, "acme", "ann").await, token(&gantry, "zeta", "zoe").await);
    let (over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let codes: Arc<Mutex<Vec<Value>>> = Arc::default();
    let mut hostile = Vec::new();
    for number in 0..HOSTILE {
        let agent = token(&gantry, "mallory", &format!("mallory-{}", number % 8)).await;
        let (gantry, over, refused) = (Arc::clone(&gantry), Arc::clone(&over), Arc::clone(&refused));
        let codes = Arc::clone(&codes);
        hostile.push(tokio::spawn(async move {
            // An engine that says nothing refuses in the end; then the next is sent.
            while !over.load(Ordering::SeqCst) {
                let answer = call(&gantry, &agent).await;
                if answer.body["error"]["code"] == "E3001" {
                    refused.fetch_add(1, Ordering::SeqCst);
                    // It has all it can get.
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
                codes.lock().unwrap().push(answer.body["error"]["code"].clone());
            }
        }));
    }
    until("the hostile tenant has all it can get", async || (refused.load(Ordering::SeqCst) > 0).then_some(())).await;
    for _ in 0..5 {
        for other in [&acme, &zeta] {
            let answer = call(&gantry, other).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
    }
    let held = metric(&gantry, "gantry_places_held{resource=\"accepted_calls\"}").await.unwrap();
    let most = metric(&gantry, "gantry_places_max{resource=\"accepted_calls\"}").await.unwrap();
    assert!(held * 4 <= most * 3, "{held} of {most}");
    over.store(true, Ordering::SeqCst);
    for one in hostile {
        one.await.unwrap();
    }
    let codes = codes.lock().unwrap();
    assert!(codes.iter().all(|code| code == "E3001" || code == "E3205"), "{codes:?}");
}
