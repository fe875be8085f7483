//! What a task looks like from outside, whatever the revision: where a job stands, in the words of MCP.

use ports::clock::UnixMillis;
use ports::job_store::{JobRecord, JobState};
use rmcp::model::{Task, TaskStatus};

/// How often it is worth asking.
pub(super) const POLL_MS: u64 = 1_000;

/// A job as a task, without its end.
pub(crate) fn task(record: &JobRecord, kept_for_ms: u64) -> Task {
    let changed = record.ended_at.or(record.started_at).unwrap_or(record.created_at).max(record.created_at);
    let mut task =
        Task::new(record.key.id.to_string(), status(record.state), record.created_at.to_string(), changed.to_string())
            .with_ttl_ms(kept_for_ms)
            .with_poll_interval_ms(POLL_MS);
    task.status_message = message(record);
    task
}

/// A task of which nothing is known but that it has begun.
pub(super) fn unseen(id: String, now: UnixMillis, kept_for_ms: u64) -> Task {
    Task::new(id, TaskStatus::Working, now.to_string(), now.to_string())
        .with_ttl_ms(kept_for_ms)
        .with_poll_interval_ms(POLL_MS)
}

/// Questions and the kind of a failure are not known to the record.
fn status(state: JobState) -> TaskStatus {
    match state {
        JobState::Delayed | JobState::Queued | JobState::Running => TaskStatus::Working,
        JobState::Done => TaskStatus::Completed,
        JobState::Failed | JobState::Dead => TaskStatus::Failed,
        JobState::Cancelled => TaskStatus::Cancelled,
    }
}

fn message(record: &JobRecord) -> Option<String> {
    let words =
        |name: &str| record.error.as_ref().and_then(|error| error.get(name)).and_then(serde_json::Value::as_str);
    match record.state {
        JobState::Delayed => Some("it waits for its next attempt".to_owned()),
        JobState::Queued => Some("it waits for its turn".to_owned()),
        JobState::Running if record.cancel_asked.is_some() => Some("it was asked to end".to_owned()),
        JobState::Running => match (record.phase.as_deref(), record.progress_percent) {
            (Some(phase), Some(percent)) => Some(format!("{phase}, {percent:.0} %")),
            (Some(phase), None) => Some(phase.to_owned()),
            (None, Some(percent)) => Some(format!("{percent:.0} %")),
            (None, None) => None,
        },
        JobState::Done => None,
        JobState::Failed | JobState::Dead | JobState::Cancelled => {
            Some(format!("{}: {}", words("code")?, words("message")?))
        }
    }
}

#[cfg(test)]
mod tests {
    use ports::job_store::{JobKey, JobPriority};
    use serde_json::json;

    use super::*;

    fn record(state: JobState) -> JobRecord {
        JobRecord {
            key: JobKey {
                tenant: "local".parse().unwrap(),
                id: "019a0000-0000-7000-8000-000000000001".parse().unwrap(),
            },
            kind: "tool_call".into(),
            label: "demo.x".into(),
            owner: "agent".parse().unwrap(),
            priority: JobPriority::near(5),
            state,
            attempts: 1,
            interruptions: 0,
            attempts_max: 1,
            progress_percent: None,
            phase: None,
            cancel_asked: None,
            error: None,
            created_at: UnixMillis(1_000),
            due_at: UnixMillis(1_000),
            started_at: Some(UnixMillis(2_000)),
            ended_at: None,
        }
    }

    #[test]
    fn a_running_task_says_how_far_it_is_and_an_ended_one_why() {
        let shown = |change: &dyn Fn(&mut JobRecord), state| {
            let mut record = record(state);
            change(&mut record);
            task(&record, 60_000).status_message
        };
        assert_eq!(shown(&|_| {}, JobState::Running), None);
        assert_eq!(
            shown(&|r| (r.phase, r.progress_percent) = (Some("load".into()), Some(39.6)), JobState::Running).as_deref(),
            Some("load, 40 %")
        );
        assert_eq!(
            shown(&|r| r.cancel_asked = Some(String::new()), JobState::Running).as_deref(),
            Some("it was asked to end")
        );
        let error = json!({ "code": "E3703", "message": "the job was cancelled" });
        assert_eq!(
            shown(&|r| r.error = Some(error.clone()), JobState::Cancelled).as_deref(),
            Some("E3703: the job was cancelled")
        );
    }

    #[test]
    fn times_and_spans_are_as_the_protocol_wants_them() {
        let shown = serde_json::to_value(task(&record(JobState::Running), 60_000)).unwrap();
        assert_eq!(shown["createdAt"], "1970-01-01T00:00:01.000Z");
        assert_eq!(shown["lastUpdatedAt"], "1970-01-01T00:00:02.000Z");
        assert_eq!((&shown["ttlMs"], &shown["pollIntervalMs"]), (&json!(60_000), &json!(1_000)));
        assert_eq!(shown["status"], "working");
    }
}
