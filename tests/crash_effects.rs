//! `kill -9` between intent and settlement, hundreds of times, with an effect that is counted outside the server: each key
//! has its effect once, and where nobody can know, that is what is said.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Gantry, Start, client, wait_for};

/// Where the server ends itself, in debug builds.
const STEPS: [&str; 6] = ["intending", "intended", "starting", "ended", "settling", "settled"];
/// How often at each of them.
const KILLS_PER_STEP: u32 = 26;
/// And how often at some other moment.
const KILLS_AT_RANDOM: u32 = 50;
/// Callers at once.
const CALLERS: usize = 3;

/// Pays: writes what it was given to a file outside, in one write. A tool whose server dies before it has said what to pay
/// pays nothing.
const PAY: &str = "line=$(cat); case \"$line\" in *number*) ;; *) exit 1 ;; esac; printf '%s\\n' \"$line\" >> COUNTER; echo '{\"paid\":true}'\n";

/// What the callers know.
#[derive(Default)]
struct Known {
    next: u32,
    /// Keys that were sent and not answered.
    open: BTreeSet<u32>,
    /// Keys with an answer that says it was done, and those of them whose answer was not given again.
    done: BTreeSet<u32>,
    ran: BTreeSet<u32>,
    /// Keys of which the server says that nobody knows.
    unknown: BTreeSet<u32>,
}

/// The tool that pays and the one that would undo it.
fn tools(folder: &Path, counter: &Path) {
    let place = counter.parent().unwrap().display();
    for (id, policy) in [("pay", "compensatable"), ("refund", "idempotent")] {
        let folder = folder.join(id);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.join("main.sh"), PAY.replace("COUNTER", counter.to_str().unwrap())).unwrap();
        let mut manifest = json!({
            "tool_id": id, "namespace": "bank", "version": "1.0.0", "name": id,
            "description": "Moves money, and writes down that it did.", "provider": "Test", "protocol": "native",
            "side_effect_policy": policy, "timeout_class": "standard",
            "side_effects": [{ "resource": "money", "op": "CREATE", "scope": "account" }], "idempotency": {},
            "required_permissions": [format!("filesystem:write:{place}")],
            "parameters": {
                "type": "object", "properties": { "number": { "type": "integer" } }, "required": ["number"],
            },
            "result_schema": { "type": "object", "properties": { "paid": { "type": "boolean" } }, "required": ["paid"] },
            "execution": { "type": "process", "command": ["sh", "main.sh"] },
        });
        if policy == "compensatable" {
            manifest["compensation_tool_id"] = json!("bank.refund");
        }
        std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
    }
}

/// Sends the call of one key; nothing if the server died over it.
async fn pay(http: &reqwest::Client, url: &str, token: &str, number: u32) -> Option<Answer> {
    let body = json!({ "tool_id": "bank.pay", "parameters": { "number": number },
        "execution_options": { "idempotency_key": format!("order-{number}") } });
    let sent = http.post(format!("{url}/v1/tools/invoke")).bearer_auth(token).json(&body).send().await;
    let response = sent.ok()?;
    let status = response.status().as_u16();
    let text = response.text().await.ok()?;
    let body: Value = serde_json::from_str(&text).ok()?;
    Some(Answer { status, headers: reqwest::header::HeaderMap::new(), body, text })
}

/// Calls until the server dies: first what is open, then new keys.
async fn call_until_it_dies(gantry_url: String, token: String, known: Arc<Mutex<Known>>) {
    let http = client();
    loop {
        let number = {
            let mut known = known.lock().unwrap();
            // Every third call repeats one that was not answered, and so do two callers at once.
            match known.open.iter().next().copied().filter(|_| known.next.is_multiple_of(3)) {
                Some(number) => {
                    known.next += 1;
                    number
                }
                None => {
                    known.next += 1;
                    let number = known.next;
                    known.open.insert(number);
                    number
                }
            }
        };
        let Some(answer) = pay(&http, &gantry_url, &token, number).await else { return };
        note(&mut known.lock().unwrap(), number, &answer);
    }
}

fn note(known: &mut Known, number: u32, answer: &Answer) {
    known.open.remove(&number);
    match answer.status {
        200 => {
            known.done.insert(number);
            // Two may ask at once; whoever is answered first, one of them ran it.
            assert!(answer.body["cached"] == true || known.ran.insert(number), "{}", answer.text);
        }
        _ => {
            assert_eq!(answer.code(), "E3413", "{}", answer.text);
            known.unknown.insert(number);
        }
    }
}

fn effects(counter: &Path) -> BTreeMap<u32, u32> {
    let mut counted = BTreeMap::new();
    for line in std::fs::read_to_string(counter).unwrap_or_default().lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        *counted.entry(u32::try_from(value["number"].as_u64().unwrap()).unwrap()).or_default() += 1;
    }
    counted
}

async fn start(data: &Path, tools: &Path, fault: Option<String>) -> Gantry {
    let mut start = Start::new().data(data).arg("--tools").arg(tools.to_str().unwrap());
    if let Some(fault) = fault {
        start = start.env("GANTRY_FAULT_POINT", fault);
    }
    start.env("GANTRY_LIMITS__CONCURRENT_CALLS_PER_AGENT", "64").run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_kills_between_intent_and_settlement_pay_nothing_twice() {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (data, folder, place) = (home.path().join("data"), home.path().join("tools"), home.path().join("counter"));
    for folder in [&folder, &place] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
    let counter = place.join("paid");
    tools(&folder, &counter);
    let known = Arc::new(Mutex::new(Known::default()));

    let at_steps = (0..KILLS_PER_STEP).flat_map(|round| STEPS.map(|step| Some(format!("{step}:{}", 1 + round % 7))));
    let moments = at_steps.chain((0..KILLS_AT_RANDOM).map(|_| None));
    for (round, fault) in moments.enumerate() {
        let at_random = fault.is_none();
        let gantry = start(&data, &folder, fault).await;
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| tokio::spawn(call_until_it_dies(gantry.url.clone(), gantry.token.clone(), Arc::clone(&known))))
            .collect();
        if at_random {
            // Some answers away, a different number each round, and not at an answer's own moment.
            let enough = known.lock().unwrap().done.len() + 1 + round % 5;
            wait_for("answers", || (known.lock().unwrap().done.len() >= enough).then_some(()));
            tokio::time::sleep(Duration::from_micros(u64::try_from(round).unwrap() * 137 % 5_000)).await;
            gantry.signal("KILL");
        }
        for caller in callers {
            caller.await.unwrap();
        }
        gantry.kill();
    }

    // The last server finds everything as the others left it; every call that was not answered is sent again.
    let gantry = start(&data, &folder, None).await;
    let http = client();
    let open: Vec<u32> = known.lock().unwrap().open.iter().copied().collect();
    for number in open {
        let answer = pay(&http, &gantry.url, &gantry.token, number).await.expect("the server stays");
        note(&mut known.lock().unwrap(), number, &answer);
    }
    let known = known.lock().unwrap();
    let counted = effects(&counter);
    for (number, times) in &counted {
        assert_eq!(*times, 1, "order {number} was paid {times} times");
    }
    for number in &known.done {
        assert!(counted.contains_key(number), "order {number} was answered and not paid");
        assert!(!known.unknown.contains(number), "order {number} is both done and unknown");
    }
    for number in 1..=known.next {
        let settled = counted.contains_key(&number) || known.unknown.contains(&number);
        assert!(settled || !known.done.contains(&number), "order {number} was lost");
    }
    assert!(!known.unknown.is_empty(), "a kill while the tool ran must have left something unknown");
    assert!(known.done.len() > 200, "only {} calls were answered", known.done.len());
    drop(known);
    gantry.kill();
}
