//! Thousands of calls over five servers that are killed at random. No call hangs, nothing is left of any server, and
//! every outcome is accounted for: the servers keep a journal of what they really did, and what callers were told must
//! agree with it.
//!
//! `GANTRY_SOAK_CALLS` says how many calls; `cargo xtask soak` makes the ten thousand of the goal. The order of kills
//! follows from a seed, `GANTRY_SOAK_SEED`, which a failure names.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use serde_json::json;

use super::*;
use crate::sandbox::traces::{carriers, marker, wait_until_gone};

const SERVERS: u64 = 5;
const CALLS_DEFAULT: u64 = 2_000;
/// Calls in flight.
const AT_ONCE: usize = 16;
/// A server is killed after about so many calls.
const KILL_EVERY: u64 = 40;
/// No call may take longer, whatever happens to its server.
const CALL_TIME_MAX: Duration = Duration::from_secs(45);

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Done,
    /// It may have run.
    Unknown,
    /// It did not run, for the reason with this code.
    Refused(String),
    /// Nothing: the call hung.
    Hung,
}

/// A generator that gives the same numbers for the same seed on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

async fn one(harness: &McpHarness, client: &RawClient, number: u64) -> (u64, Told) {
    let server = number % SERVERS;
    let call = async {
        // Both doors, in turn.
        if number.is_multiple_of(2) {
            let answer = harness.invoke(&format!("s{server}.count"), json!({ "number": number })).await;
            return if answer.status == 200 { "done".to_owned() } else { answer.code().to_owned() };
        }
        let reply = client.call(&format!("s{server}__count"), &json!({ "number": number })).await.unwrap();
        let text = reply.message.to_string();
        if reply.text() == format!("counted {number}") {
            return "done".to_owned();
        }
        let code = text.split("E3").nth(1).and_then(|rest| rest.get(..3)).map(|digits| format!("E3{digits}"));
        code.unwrap_or_else(|| panic!("an error without a code: {text}"))
    };
    let told = match tokio::time::timeout(CALL_TIME_MAX, call).await {
        Err(_) => Told::Hung,
        Ok(code) if code == "done" => Told::Done,
        Ok(code) if ["E3413", "E3402"].contains(&code.as_str()) => Told::Unknown,
        Ok(code) => Told::Refused(code),
    };
    (number, told)
}

#[tokio::test]
async fn calls_over_servers_that_die_are_all_accounted_for() {
    let (calls, seed) = (setting("GANTRY_SOAK_CALLS", CALLS_DEFAULT), setting("GANTRY_SOAK_SEED", 7_300));
    let (harness, word) = (McpHarness::open().await, marker());
    let journal = harness.path("state/journal");
    std::fs::write(&journal, "").unwrap();
    std::fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    for number in 0..SERVERS {
        let mut spec = harness.plain(&["--journal", &journal, &word]);
        // Deaths are what this is about: they must not count as a server that cannot start.
        spec["upkeep"] = json!({ "min_uptime_seconds": 0, "max_restarts": 100_000 });
        harness.put(&format!("s{number}"), &spec).await;
    }
    let client = harness.new_client();
    let (mut dice, mut kills) = (Dice(seed.max(1)), 0_u64);
    let mut told: BTreeMap<u64, Told> = BTreeMap::new();
    {
        let calls = futures_util::stream::iter(0..calls).map(|number| one(&harness, &client, number));
        let mut calls = std::pin::pin!(calls.buffer_unordered(AT_ONCE));
        while let Some((number, outcome)) = calls.next().await {
            told.insert(number, outcome);
            if dice.roll(KILL_EVERY) == 0 {
                let alive = carriers(&word);
                if let Some(victim) = alive.get(usize::try_from(dice.roll(alive.len().max(1) as u64)).unwrap()) {
                    // It may have ended by itself since.
                    let _ = std::process::Command::new("kill").args(["-KILL", &victim.to_string()]).status();
                    kills += 1;
                }
            }
        }
    }
    assert!(kills > calls / KILL_EVERY / 4, "seed {seed}: only {kills} servers were killed");

    let mut done: BTreeMap<u64, u64> = BTreeMap::new();
    for line in std::fs::read_to_string(&journal).unwrap().lines() {
        *done.entry(line.parse().unwrap()).or_default() += 1;
    }
    assert_eq!(told.len() as u64, calls, "seed {seed}");
    let mut kinds: BTreeMap<&Told, u64> = BTreeMap::new();
    for (number, outcome) in &told {
        *kinds.entry(outcome).or_default() += 1;
        let times = done.get(number).copied().unwrap_or_default();
        let fits = match outcome {
            Told::Done => times == 1,
            Told::Unknown => times <= 1,
            Told::Refused(_) => times == 0,
            Told::Hung => false,
        };
        assert!(
            fits,
            "seed {seed}: call {number} was told {outcome:?} and was done {times} times\n{}",
            harness.gantry.log()
        );
    }
    // Most calls never meet a killer: a gateway that refuses everything would pass the account above.
    let succeeded = kinds.get(&Told::Done).copied().unwrap_or_default();
    assert!(succeeded * 10 >= calls * 8, "seed {seed}: {kinds:?} after {kills} kills");
    println!("{calls} calls, {kills} kills, seed {seed}: {kinds:?}");

    let McpHarness { home, gantry, .. } = harness;
    assert!(gantry.stop().success());
    wait_until_gone(&word);
    drop(home);
}
