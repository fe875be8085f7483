//! `GET /v1/invocations/{id}/events`: a job's events as they happen, from where the caller left off. (ASYNC-004)
//!
//! Events are read from the store, never from memory: a stream that was cut, or a server that was started again, goes on
//! from any number. What happens in this process wakes the stream; what happens in others is found by looking.
//!
//! Bounds: so many streams at once (`door`), each for [`STREAM_MAX`] at most; a reader that does not read holds up only
//! itself, because the next events are read when it has taken the last. The credential is asked again before every piece
//! and at every look: a token that was revoked or has ended ends the stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use fair_places::FairPermit;
use futures_util::stream;
use jobs::{Jobs, status_told_by};
use ports::job_store::{JobEvent, JobKey, JobState};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::{id_in_path, keeper};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};

/// How often other processes' doings are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks without an event before a sign of life is sent.
const LOOKS_BETWEEN_SIGNS: u32 = 15;
/// How long one stream lasts; the caller goes on with the next.
const STREAM_MAX: Duration = Duration::from_secs(60 * 60);
/// Events read at once.
const EVENTS_AT_ONCE: usize = 50;

/// One open stream.
struct Watch {
    door: Arc<Door>,
    jobs: Arc<Jobs>,
    who: CallerCredential,
    tenant: Option<TenantId>,
    key: JobKey,
    after: u64,
    news: broadcast::Receiver<JobKey>,
    unsent: VecDeque<JobEvent>,
    began: Duration,
    /// It has ended; what is left are the events that are kept of it.
    ended: bool,
    _room: FairPermit,
}

pub(super) async fn events(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let query = incoming.query(&["tenant", "after"])?;
    let tenant = query.one("tenant")?.map(str::parse::<TenantId>).transpose();
    let tenant = tenant.map_err(|error| Refusal::new(ErrorCode::E3004, error.to_string()))?;
    let seen = incoming.parts.headers.get("last-event-id").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let after = query.number("after", 0..=u64::MAX, seen.unwrap_or(0))?;
    let id = id_in_path(&mut incoming).await?;
    let jobs = Arc::clone(keeper(&door, &who).await?);
    // Before the first look, so that nothing falls between.
    let news = jobs.changes();
    let (key, state) = jobs.find(who.actor(), tenant.as_ref(), id).await?;
    let caller = door.kernel().recognise(who.actor()).await?;
    let room = door.watcher(caller.caller()).ok_or_else(|| {
        Refusal::new(ErrorCode::E3001, "too many streams of events are open").hint("ask with GET instead, or later")
    })?;
    let began = door.kernel().clock().monotonic();
    let watch = Watch {
        door,
        jobs,
        who,
        tenant,
        key,
        after,
        news,
        unsent: VecDeque::new(),
        began,
        ended: state.is_end(),
        _room: room,
    };
    let pieces = stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(piece), watch))
    });
    Ok(HttpAnswer::stream("text/event-stream", Body::from_stream(pieces)))
}

impl Watch {
    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut looks = 0;
        loop {
            self.door.kernel().recognise(self.who.actor()).await.ok()?;
            if let Some(event) = self.unsent.pop_front() {
                self.after = event.seq;
                // What a person found out may come after an end.
                self.ended |= JobState::of_word(&event.kind).is_some_and(JobState::is_end);
                return Some(written(&event));
            }
            let clock = self.door.kernel().clock();
            let outlived = clock.monotonic().saturating_sub(self.began) > STREAM_MAX;
            if outlived || self.door.is_draining() {
                return None;
            }
            // A store that does not answer ends the stream; the caller comes back with the number it has.
            self.unsent = self.jobs.events(self.who.actor(), &self.key, self.after, EVENTS_AT_ONCE).await.ok()?.into();
            if !self.unsent.is_empty() {
                continue;
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                () = clock.sleep(LOOK_EVERY) => looks += 1,
                () = stirred(&mut self.news, &self.key) => {}
            }
            if looks >= LOOKS_BETWEEN_SIGNS {
                // Whoever may not look any more sees the end of the stream.
                let (_, state) = self.jobs.find(self.who.actor(), self.tenant.as_ref(), self.key.id).await.ok()?;
                self.ended = state.is_end();
                return Some(Bytes::from_static(b": still here\n\n"));
            }
        }
    }
}

/// Returns when the job has changed in this process, or may have.
async fn stirred(news: &mut broadcast::Receiver<JobKey>, key: &JobKey) {
    loop {
        match news.recv().await {
            Ok(changed) if changed != *key => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// One event as the standard has it. JSON has no line breaks of its own when it is written compactly.
///
/// The end of a job is called what its status is from then on, and says so in its data; so does what a person finds out.
fn written(event: &JobEvent) -> Bytes {
    let mut data = event.data.clone();
    let status = status_told_by(event);
    if let Some(members) = data.as_object_mut() {
        members.insert("at".to_owned(), event.at.to_string().into());
        if let Some(status) = status {
            // The store's own word for the same.
            members.remove("state");
            members.insert("status".to_owned(), status.as_str().into());
        }
    }
    let kind = match status {
        Some(status) if event.kind != "resolved" => status.as_str(),
        _ => event.kind.as_str(),
    };
    Bytes::from(format!("id: {}\nevent: {kind}\ndata: {data}\n\n", event.seq))
}

#[cfg(test)]
mod tests {
    use ports::clock::UnixMillis;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_is_called_what_the_status_is_from_then_on() {
        for (kind, data, event, status) in [
            ("done", json!({}), "success", "success"),
            ("failed", json!({ "error": { "code": "E3401" } }), "error", "error"),
            ("dead", json!({ "error": { "code": "E3402" } }), "timeout", "timeout"),
            ("failed", json!({ "error": { "code": "E3413" } }), "indeterminate", "indeterminate"),
            ("cancelled", json!({}), "cancelled", "cancelled"),
            ("resolved", json!({ "state": "done" }), "resolved", "success"),
            ("resolved", json!({ "state": "failed", "error": { "code": "E3401" } }), "resolved", "error"),
        ] {
            let written = written(&JobEvent { seq: 1, at: UnixMillis(0), kind: kind.into(), data });
            let text = String::from_utf8(written.to_vec()).unwrap();
            assert!(text.contains(&format!("\nevent: {event}\n")), "{text}");
            assert!(text.contains(&format!("\"status\":\"{status}\"")) && !text.contains("state\""), "{text}");
        }
        let started = JobEvent { seq: 1, at: UnixMillis(0), kind: "started".into(), data: json!({ "attempt": 1 }) };
        assert!(!String::from_utf8(written(&started).to_vec()).unwrap().contains("status"));
    }

    #[test]
    fn an_event_is_one_line_of_data_whatever_is_in_it() {
        let event = JobEvent {
            seq: 7,
            at: UnixMillis(0),
            kind: "progress".into(),
            data: json!({ "current_phase": "two\nlines\r\n\nid: 9" }),
        };
        let text = String::from_utf8(written(&event).to_vec()).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.starts_with("id: 7\nevent: progress\ndata: {") && text.ends_with("}\n\n"), "{text}");
    }
}
