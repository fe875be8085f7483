//! `kill -9` of a replica while all three work: nothing that was promised is lost, and nothing has its effect twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::site::{Caller, NAMES, Sent, Site, ended, figure, held_by, job, later, payment, submit, until};
use crate::support::wait_for;

/// Callers at once, and answers before the death.
const CALLERS: usize = 6;
const BEFORE: usize = 20;
/// Answers after it.
const AFTER: usize = 20;

#[derive(Default)]
struct Books {
    next: AtomicU64,
    is_over: AtomicBool,
    /// What was said about each number that was paid while its caller waited: was it done?
    answered: Mutex<BTreeMap<u64, bool>>,
    /// The numbers that are paid later, by their job's id; and those whose tool may run twice.
    promised: Mutex<BTreeMap<String, u64>>,
    repeatable: Mutex<BTreeSet<u64>>,
}

/// Makes calls of all kinds, one after the other, at whichever replica answers, and repeats what was not answered.
async fn keep_calling(http: Caller, urls: Vec<String>, books: Arc<Books>, first: usize) {
    let mut at = first;
    while !books.is_over.load(Ordering::SeqCst) {
        let number = books.next.fetch_add(1, Ordering::SeqCst);
        let call = match number % 3 {
            0 => payment("bank.pay", number),
            1 => later(payment("bank.pay", number)),
            _ => later(payment("bank.note", number)),
        };
        if number % 3 == 2 {
            books.repeatable.lock().unwrap().insert(number);
        }
        let answer = loop {
            at += 1;
            // Whoever hears nothing asks another one.
            if let Sent::Answered(answer) = http.call(&urls[at % urls.len()], &call).await {
                break answer;
            }
        };
        match answer.status {
            202 => {
                let id = answer.body["invocation_id"].as_str().unwrap().to_owned();
                books.promised.lock().unwrap().insert(id, number);
            }
            200 => assert!(books.answered.lock().unwrap().insert(number, true).is_none()),
            _ => {
                assert_eq!(answer.code(), "E3413", "{}", answer.text);
                books.answered.lock().unwrap().insert(number, false);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_that_is_killed_loses_nothing_and_does_nothing_twice() {
    let site = Site::new().set("JOBS__LEASE_SECONDS", "5").set("JOBS__CONCURRENCY", "2");
    let [one, two, three] = site.three().await;
    let urls: Vec<String> = [&one, &two, &three].map(|gantry| gantry.url.clone()).into();
    let books = Arc::new(Books::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| tokio::spawn(keep_calling(Caller::new(&one.token), urls.clone(), Arc::clone(&books), n)))
        .collect();
    let counted = || books.answered.lock().unwrap().len() + books.promised.lock().unwrap().len();
    until("work", async || counted() >= BEFORE).await;
    // In the middle of its own work: it holds jobs and calls of others.
    three.kill();
    let then = counted();
    until("work after the death", async || counted() >= then + AFTER).await;
    books.is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }

    let (mut unknown, mut taken_over) = (0, 0);
    let promised = books.promised.lock().unwrap().clone();
    for (id, number) in &promised {
        let end = ended(&two, id).await;
        let paid = site.effects().get(number).copied().unwrap_or(0);
        let repeatable = books.repeatable.lock().unwrap().contains(number);
        match end["status"].as_str().unwrap() {
            "success" => assert!(paid == 1 || repeatable && paid > 1, "{number} was paid {paid} times: {end}"),
            "indeterminate" => {
                assert!(!repeatable && paid <= 1, "{number} was paid {paid} times: {end}");
                unknown += 1;
            }
            _ => panic!("{number}: {end}"),
        }
        taken_over += u32::from(end["attempts"].as_u64().unwrap_or(0) > 1);
    }
    let answered = books.answered.lock().unwrap().clone();
    for (number, done) in &answered {
        let paid = site.effects().get(number).copied().unwrap_or(0);
        assert!(paid == 1 || !done && paid == 0, "{number} was paid {paid} times, and said to be done: {done}");
        unknown += u32::from(!done);
    }
    figure(&format!(
        "{} answered, {} promised, {taken_over} of them begun again, {unknown} unknown",
        answered.len(),
        promised.len()
    ));
    assert!(promised.len() > 10 && answered.len() > 5);

    // It comes back, and is one of them again.
    let again = site.replica(NAMES[2]).await;
    let answer = again.post("/v1/tools/invoke", payment("bank.pay", 1_000_000)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let repeated = wait_for("the first answer", || answered.iter().find(|(_, done)| **done).map(|(number, _)| *number));
    let answer = again.post("/v1/tools/invoke", payment("bank.pay", repeated)).await;
    assert_eq!((answer.status, &answer.body["cached"]), (200, &serde_json::json!(true)), "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_that_has_less_time_than_a_lease_is_unknown_after_a_death_and_nothing_else() {
    let site = Site::new().set("JOBS__LEASE_SECONDS", "3");
    let one = site.replica(NAMES[0]).await;
    let (mut number, mut promised) = (0, String::new());
    until("the tool runs with most of its time before it", async || {
        number += 1;
        let submitted = Instant::now();
        promised = submit(&one, held_by("bank.quick", number)).await;
        let is_over = async || job(&one, &promised).await["status"].as_str() == Some("timeout");
        until("the tool runs", async || site.begun().contains_key(&number) || is_over().await).await;
        // On a busy machine a sandbox may take nearly all of the five seconds to start, and the call would end before the death.
        submitted.elapsed() < Duration::from_secs(2)
    })
    .await;
    one.kill();
    // Whoever takes it over finds it in the hands of one who may still live, for longer than the call may take.
    let two = site.replica(NAMES[1]).await;
    let end = ended(&two, &promised).await;
    assert_eq!(
        (end["status"].as_str(), end["error"]["code"].as_str()),
        (Some("indeterminate"), Some("E3413")),
        "{end}"
    );
    let unknown = two.cli(&["jobs", "unknown", "--json"]).ok().json().to_string();
    assert!(unknown.contains(&promised), "{unknown}");
    assert_eq!((site.begun()[&number], site.effects().len()), (1, 0));
}
