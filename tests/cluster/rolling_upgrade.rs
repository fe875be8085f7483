//! All three replicas are replaced, one after the other, while somebody calls all the time and no call fails.
//!
//! Who calls does what any load balancer does: asks each replica whether it is ready, sends to those that are, and goes to
//! another when nobody listens. What was sent and not answered has failed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::site::{Caller, NAMES, Sent, Site, ended, figure, later, payment, until};

const CALLERS: u64 = 4;
/// Between two looks of the balancer, and how long a replica that is about to end waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LAME_DUCK_MS: &str = "2000";
/// Calls between two replicas.
const BETWEEN: u64 = 30;

#[derive(Default)]
struct Balancer {
    /// Where the replicas are, and are they ready?
    places: Mutex<[(String, bool); 3]>,
    next: AtomicU64,
    answered: AtomicU64,
    is_over: AtomicBool,
    failed: Mutex<Vec<String>>,
    promised: Mutex<Vec<(u64, String)>>,
}

impl Balancer {
    async fn look(self: Arc<Self>, http: Caller) {
        while !self.is_over.load(Ordering::SeqCst) {
            for n in 0..NAMES.len() {
                let url = self.places.lock().unwrap()[n].0.clone();
                let ready = http.is_ready(&url).await;
                let mut places = self.places.lock().unwrap();
                if places[n].0 == url {
                    places[n].1 = ready;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn ready(&self, n: u64) -> Option<String> {
        let places = self.places.lock().unwrap();
        let ready: Vec<&String> = places.iter().filter(|(_, ready)| *ready).map(|(url, _)| url).collect();
        let at = usize::try_from(n).unwrap().checked_rem(ready.len())?;
        Some(ready[at].clone())
    }

    async fn call(&self, http: &Caller, call: &Value, n: u64) -> Option<Value> {
        for at in n.. {
            let Some(url) = self.ready(at) else {
                self.failed.lock().unwrap().push("no replica is ready".into());
                return None;
            };
            match http.call(&url, call).await {
                Sent::Unheard => {}
                Sent::Answered(answer) if [200, 202].contains(&answer.status) => {
                    self.answered.fetch_add(1, Ordering::SeqCst);
                    return Some(answer.body);
                }
                Sent::Answered(answer) => self.failed.lock().unwrap().push(format!("{call}: {}", answer.text)),
                Sent::Broken(why) => self.failed.lock().unwrap().push(format!("{call}: {why}")),
            }
            if !self.failed.lock().unwrap().is_empty() {
                return None;
            }
        }
        None
    }

    async fn keep_calling(self: Arc<Self>, http: Caller) {
        while !self.is_over.load(Ordering::SeqCst) {
            let n = self.next.fetch_add(1, Ordering::SeqCst);
            let call = match n % 4 {
                0 => payment("bank.pay", n),
                1 => later(payment("bank.pay", n)),
                _ => json!({ "tool_id": "calculator", "parameters": { "expression": "6 * 7" } }),
            };
            let answer = self.call(&http, &call, n).await;
            if let Some(id) =
                answer.filter(|_| n % 4 == 1).and_then(|body| Some(body["invocation_id"].as_str()?.into()))
            {
                self.promised.lock().unwrap().push((n, id));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replacing_all_replicas_under_load_fails_no_call() {
    let site = Site::new().set("SERVER__LAME_DUCK_MS", LAME_DUCK_MS);
    let mut replicas: Vec<_> = site.three().await.into_iter().collect();
    let http = Caller::new(&replicas[0].token);
    let balancer = Arc::new(Balancer::default());
    for (n, gantry) in replicas.iter().enumerate() {
        balancer.places.lock().unwrap()[n] = (gantry.url.clone(), true);
    }
    let looking = tokio::spawn(Arc::clone(&balancer).look(http.clone()));
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(Arc::clone(&balancer).keep_calling(http.clone()))).collect();
    let answers = async |more: u64| {
        let enough = balancer.answered.load(Ordering::SeqCst) + more;
        until("answers", async || {
            let failed = balancer.failed.lock().unwrap().clone();
            assert!(failed.is_empty(), "{failed:#?}");
            balancer.answered.load(Ordering::SeqCst) >= enough
        })
        .await;
    };
    answers(BETWEEN).await;
    for (n, name) in NAMES.into_iter().enumerate() {
        let old = replicas.remove(0);
        let status = tokio::task::spawn_blocking(move || old.stop()).await.unwrap();
        assert!(status.success(), "{status}");
        let new = site.replica(name).await;
        balancer.places.lock().unwrap()[n] = (new.url.clone(), true);
        replicas.push(new);
        answers(BETWEEN).await;
    }
    balancer.is_over.store(true, Ordering::SeqCst);
    looking.await.unwrap();
    for caller in callers {
        caller.await.unwrap();
    }
    let failed = balancer.failed.lock().unwrap().clone();
    assert!(failed.is_empty(), "{failed:#?}");
    let promised = balancer.promised.lock().unwrap().clone();
    for (number, id) in &promised {
        let end = ended(&replicas[0], id).await;
        assert_eq!(end["status"], "success", "{number}: {end}");
    }
    for (number, times) in site.effects() {
        assert_eq!(times, 1, "{number} was paid {times} times");
    }
    figure(&format!("{} calls answered, {} of them jobs", balancer.answered.load(Ordering::SeqCst), promised.len()));
}
