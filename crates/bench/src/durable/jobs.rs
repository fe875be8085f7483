//! How long a call in the background waits when nothing else does: from the moment it was written down to the moment a
//! worker took it, by the job's own record.
//!
//! The record has milliseconds, which is coarse for one job and fine for the median of many.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::load;
use crate::product::Product;

/// A job that has not ended by then never will.
const JOB_TIME_MAX: Duration = Duration::from_secs(20);
/// How often it is asked after, and how long everybody rests before the next.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Milliseconds of a day.
const DAY: u64 = 86_400_000;

/// Waiting of an idle queue.
#[derive(Serialize)]
pub(super) struct StartCost {
    pub(super) jobs: usize,
    pub(super) p50_ms: u64,
    pub(super) p99_ms: u64,
}

/// One job after the other.
pub(super) async fn start_cost(server: &Product, agent: &str, jobs: usize) -> Result<StartCost> {
    let mut waits = Vec::with_capacity(jobs);
    for _ in 0..jobs {
        waits.push(one(server, agent).await?);
    }
    waits.sort_unstable();
    let rank = |percent: usize| waits.get((waits.len() * percent).div_ceil(100).max(1) - 1).copied();
    let (p50_ms, p99_ms) = rank(50).zip(rank(99)).context("no jobs were asked for")?;
    Ok(StartCost { jobs, p50_ms, p99_ms })
}

async fn one(server: &Product, agent: &str) -> Result<u64> {
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "6 * 7" },
        "execution_options": { "async_mode": true } });
    let request = load::request("POST", "/v1/tools/invoke", Some(agent), Some(&body.to_string()));
    let (status, answer) = load::ask_once(server.address, &request).await?;
    ensure!(status == 202, "a call in the background answered {status}: {}", String::from_utf8_lossy(&answer));
    let accepted: Value = serde_json::from_slice(&answer)?;
    let id = accepted.get("invocation_id").and_then(Value::as_str).context("a job without an id")?;
    let ask = load::request("GET", &format!("/v1/invocations/{id}"), Some(agent), None);
    let since = Instant::now();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (status, answer) = load::ask_once(server.address, &ask).await?;
        ensure!(status == 200, "a job answered {status}: {}", String::from_utf8_lossy(&answer));
        let job: Value = serde_json::from_slice(&answer)?;
        let time = |name: &str| job.get(name).and_then(Value::as_str).and_then(time_of_day);
        if time("completed_at").is_some() {
            ensure!(job.get("status").and_then(Value::as_str) == Some("success"), "a job failed: {job}");
            let (created, started) = time("created_at").zip(time("started_at")).context("a job that never started")?;
            return Ok((started + DAY - created) % DAY);
        }
        ensure!(since.elapsed() < JOB_TIME_MAX, "a job did not end: {job}");
    }
}

/// Milliseconds since midnight of `2027-01-15T08:00:00.000Z`.
fn time_of_day(text: &str) -> Option<u64> {
    let (_, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (clock, millis) = time.split_once('.')?;
    let seconds = clock.split(':').try_fold(0, |sum, part| Some(sum * 60 + part.parse::<u64>().ok()?))?;
    Some(seconds * 1000 + millis.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_read_from_a_record() {
        for (text, millis) in [
            ("2027-01-15T00:00:00.000Z", Some(0)),
            ("2027-01-15T08:01:02.345Z", Some(28_862_345)),
            ("2027-01-15", None),
            ("2027-01-15T08:xx:02.345Z", None),
        ] {
            assert_eq!(time_of_day(text), millis, "{text}");
        }
    }
}
