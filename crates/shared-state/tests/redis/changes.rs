//! The change bus over Redis: the suite of every bus, and the ways in which words get lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gantry_shared_state::bus_suite::{BusUnderTest, until};
use gantry_shared_state::{LinkState, RedisState};
use ports::change_bus::{BusChange, ChangeBus};

use crate::server::{Server, replica, settings, shared, unique, within};

/// Replicas of one installation. They are kept, because a bus ends with its replica.
struct Installation {
    namespace: String,
    replicas: std::sync::Mutex<Vec<RedisState>>,
}

#[async_trait]
impl BusUnderTest for Installation {
    async fn join(&self) -> Arc<dyn ChangeBus> {
        let state = replica(shared(), &self.namespace).await;
        let bus = state.bus();
        self.replicas.lock().unwrap().push(state);
        bus
    }
}

async fn installation() -> Installation {
    Installation { namespace: unique("bus"), replicas: std::sync::Mutex::default() }
}

mod suite {
    gantry_shared_state::bus_suite!(super::installation);
}

#[tokio::test]
async fn a_replica_is_told_at_every_connection_that_words_may_be_lost() {
    let mut server = Server::start();
    let state = RedisState::open(&settings(&server, "")).unwrap();
    let mut listener = state.bus().subscribe();
    within(until(&mut listener, &BusChange::Lost)).await;
    server.kill();
    within(state.away()).await;
    server.run();
    within(until(&mut listener, &BusChange::Lost)).await;
    assert!(matches!(state.standing(), LinkState::Up { connection: 2.. }));
}

#[tokio::test]
async fn a_word_that_was_never_delivered_is_found_by_its_number() {
    let namespace = unique("lost");
    let state = replica(shared(), &namespace).await;
    let mut listener = state.bus().subscribe();
    within(until(&mut listener, &BusChange::Lost)).await;
    // Somebody counts, and what it says reaches nobody.
    shared().say(&["INCR", &format!("{namespace}:gantry:{{bus}}:generation")]);
    within(until(&mut listener, &BusChange::Lost)).await;
}

#[tokio::test]
async fn a_gap_between_two_words_is_told() {
    let namespace = unique("gap");
    let (one, other) = (replica(shared(), &namespace).await, replica(shared(), &namespace).await);
    let mut listener = other.bus().subscribe();
    one.bus().publish(BusChange::Access { epoch: 1 }).await;
    within(until(&mut listener, &BusChange::Access { epoch: 1 })).await;
    let generation = shared().say(&["INCRBY", &format!("{namespace}:gantry:{{bus}}:generation"), "5"]);
    let word = format!("{} somebody access 2", generation.trim_start_matches(':'));
    shared().say(&["PUBLISH", &format!("{namespace}:gantry:changes"), &word]);
    let heard = within(until(&mut listener, &BusChange::Lost)).await;
    assert!(!heard.is_empty());
}

#[tokio::test]
async fn what_could_not_be_told_is_told_as_lost_when_redis_is_back() {
    let mut server = Server::start();
    let one = replica(&server, "").await;
    let mut own = one.bus().subscribe();
    server.kill();
    within(one.away()).await;
    one.bus().publish(BusChange::Access { epoch: 9 }).await;
    within(until(&mut own, &BusChange::Access { epoch: 9 })).await;
    server.run();
    // Comes after the connection: it hears of what is owed, or is told so when it connects.
    let other = replica(&server, "").await;
    let mut listener = other.bus().subscribe();
    within(until(&mut listener, &BusChange::Lost)).await;
}

#[tokio::test]
async fn a_server_that_has_forgotten_everything_does_not_count_the_same_numbers_again() {
    let mut server = Server::start();
    let one = replica(&server, "").await;
    one.bus().publish(BusChange::Access { epoch: 1 }).await;
    let before: u64 = server.say_bulk(&["GET", "gantry:{bus}:generation"]).parse().unwrap();
    server.kill();
    within(one.away()).await;
    server.run();
    within(one.ready()).await;
    one.bus().publish(BusChange::Access { epoch: 2 }).await;
    let after: u64 = server.say_bulk(&["GET", "gantry:{bus}:generation"]).parse().unwrap();
    assert!(after > before, "{after} after {before}");
}

#[tokio::test]
async fn a_policy_update_of_the_sources_voids_the_decisions_of_whom_it_names_and_of_all_if_it_cannot_be_read() {
    let namespace = unique("abac");
    let state = replica(shared(), &namespace).await;
    let mut listener = state.bus().subscribe();
    within(until(&mut listener, &BusChange::Lost)).await;
    let (updates, changes) = (format!("{namespace}:abac:policy:updates"), format!("{namespace}:gantry:changes"));
    let long = "x".repeat(300_000);
    for noise in ["", "*", "{}", "[[[[", r#"{"affected_subjects":[{}]}"#, r#"{"affected_subjects":"did:x"}"#, &long] {
        shared().say(&["PUBLISH", &changes, noise]);
        shared().say(&["PUBLISH", &updates, noise]);
        let heard = within(until(&mut listener, &BusChange::Decisions)).await;
        assert_eq!(heard, [BusChange::Decisions], "among our own words noise changes nothing");
    }
    shared().say(&["PUBLISH", &updates, r#"{"affected_subjects":["did:key:z6Mk","did:web:a.example"]}"#]);
    let named = ["did:key:z6Mk", "did:web:a.example"].map(|did| did.parse().unwrap());
    let word = BusChange::DecisionsOf { subjects: named.into() };
    assert_eq!(within(until(&mut listener, &word)).await, [word]);
}

#[tokio::test]
async fn publishing_while_redis_is_frozen_takes_no_longer_than_an_operation_may() {
    let server = Server::start();
    let quick =
        gantry_shared_state::RedisSettings { operation_timeout: Duration::from_millis(50), ..settings(&server, "") };
    let state = RedisState::open(&quick).unwrap();
    within(state.ready()).await;
    server.freeze();
    // The first waits for the operation, or the look of the bus has noticed already; the others fail at once.
    for epoch in 0..1_000 {
        within(state.bus().publish(BusChange::Access { epoch })).await;
    }
    assert!(matches!(state.standing(), LinkState::Away { .. }));
    server.thaw();
    within(state.ready()).await;
}
