//! Where everything a server says finds its way: answers to whoever asked, progress and log lines to the companion of the call
//! they belong to, questions to the side that called.
//!
//! Nothing is queued here: what comes in is handled where it is read, so a flood of notifications costs the reader's time and
//! no memory. Only questions wait for somebody, and of those a bounded number.
//!
//! Invariants
//! - ROUTE-1: an answer reaches the request with its id, once. One that nobody waits for (wrong, repeated, after a
//!   cancellation) is dropped.
//! - ROUTE-2: once a connection has ended every request on it has an answer, and no new one begins.
//! - ROUTE-3: a question is passed on only for a call that is known: the one on whose stream it came, or the only one there
//!   is. Everything else is refused, because a question in another caller's name would reach the wrong person.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use ports::offerings::OfferingChange;
use ports::tool_companion::{
    LogNote, LogSeverity, ProgressCount, QuestionKind, ToolCompanion, ToolProgress, ToolQuestion,
};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::departure::RequestDeparture;
use super::{CallTraffic, RequestAsker, ServerChannel};
use crate::fault::{INVALID_REQUEST, METHOD_NOT_FOUND, UpstreamFault};
use crate::observer::{ReconnectKind, UnheardKind, UpstreamEvent};
use crate::spec::RelayedQuestions;
use crate::wire::{self, CallId, IncomingMessage};

/// Questions of one server that may wait for an answer at once.
const QUESTIONS_MAX: usize = 16;
/// Bytes of what is no message that go to the server's log.
const GARBAGE_BYTES_MAX: usize = 4 << 10;
/// How a line begins that a program wrote where it should speak, in its log.
pub(crate) const NOT_A_MESSAGE: &str = "[not a message] ";

/// Hears what concerns the server as a whole. Never waits.
pub(crate) trait ServerListener: Send + Sync + fmt::Debug {
    /// Its tools are others now, or may be.
    fn tools_changed(&self);
    /// Something else that it offers is not as it was.
    fn offering_changed(&self, change: OfferingChange);
    /// A line for its log.
    fn line(&self, line: &str);
    /// Something for those who count.
    fn happened(&self, event: UpstreamEvent);
}

/// The way of messages on one connection.
pub(crate) struct MessageRouter {
    table: Mutex<Table>,
    next: AtomicU64,
    ended: watch::Sender<bool>,
    hearing: Arc<dyn ServerListener>,
    relay: RelayedQuestions,
    questions: Arc<Semaphore>,
    /// Where answers to questions leave. It has room for as many as there may be questions.
    answers: mpsc::Sender<QuestionAnswer>,
}

/// Our answer to a question, on its way to the server.
#[derive(Debug)]
pub(crate) struct QuestionAnswer {
    message: Vec<u8>,
    /// Held until the server has it: no more questions are heard than there are of these.
    permit: OwnedSemaphorePermit,
}

/// The answers that a router gives, for whoever can send them: there is a router before there is a channel.
#[derive(Debug)]
pub(crate) struct QuestionAnswers(mpsc::Receiver<QuestionAnswer>);

impl QuestionAnswers {
    /// Sends them over a channel until that is gone, without waiting for one before the next. Does not keep the channel.
    pub(crate) async fn leave_through(mut self, channel: Weak<dyn ServerChannel>) {
        while let Some(QuestionAnswer { message, permit }) = self.0.recv().await {
            let Some(channel) = channel.upgrade() else { return };
            tokio::spawn(async move {
                let _permit = permit;
                // A server that cannot be told has gone, and its question with it.
                let _ = channel.tell(message).await;
            });
        }
    }
}

#[derive(Default)]
struct Table {
    calls: HashMap<CallId, Running>,
    /// Why the connection is of no more use.
    end: Option<&'static str>,
}

/// What becomes of a request.
type Outcome = Result<Value, UpstreamFault>;
/// Why a question has no answer: a code of JSON-RPC, and words.
type NoAnswer = (i64, &'static str);

/// A question of a server (elicitation, sampling, roots), whom to ask, and until when.
struct RoutedQuestion {
    companion: Arc<dyn ToolCompanion>,
    over: CancellationToken,
    question: ToolQuestion,
}

/// A request on its way.
struct Running {
    reply: Option<oneshot::Sender<Outcome>>,
    departure: Arc<RequestDeparture>,
    asker: RequestAsker,
    /// Cancelled when nobody waits for it any more.
    over: CancellationToken,
}

/// What is told of a request that has a line of its own, while it is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestTransmission {
    departure: Option<Arc<RequestDeparture>>,
    traffic: Option<Arc<CallTraffic>>,
    bytes: usize,
}

impl RequestTransmission {
    /// Its first byte is about to leave.
    pub(crate) fn leaves(&self) {
        // Nobody who has taken it back is left to send it: the line was closed with that.
        if let Some(departure) = &self.departure {
            let _ = departure.leaves();
        }
        if let Some(traffic) = &self.traffic {
            traffic.add_sent(self.bytes);
        }
    }

    /// The server has turned it away, and nothing of it was executed. It may leave once more.
    pub(crate) fn turned_away(&self) {
        if let Some(departure) = &self.departure {
            departure.stayed();
        }
    }
}

impl MessageRouter {
    pub(crate) fn new(hearing: Arc<dyn ServerListener>, relay: RelayedQuestions) -> (Arc<Self>, QuestionAnswers) {
        let (answers, leaving) = mpsc::channel(QUESTIONS_MAX);
        let router = Self {
            table: Mutex::default(),
            next: AtomicU64::new(1),
            ended: watch::Sender::new(false),
            hearing,
            relay,
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            answers,
        };
        (Arc::new(router), QuestionAnswers(leaving))
    }

    /// Begins a request. Refused if the connection has ended.
    pub(crate) fn begin(&self, asker: RequestAsker) -> Result<CallId, UpstreamFault> {
        let mut table = self.table();
        if let Some(why) = table.end {
            return Err(UpstreamFault::NotSent(why));
        }
        // UWIRE-2.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let departure = Arc::new(RequestDeparture::of(asker.dispatch.clone()));
        let running = Running { reply: None, departure, asker, over: CancellationToken::new() };
        table.calls.insert(id, running);
        Ok(id)
    }

    /// Waits for the answer to a request that goes over a line with others, which is to be asked when its first byte leaves.
    pub(crate) fn wait_for(
        &self,
        id: CallId,
    ) -> Result<(oneshot::Receiver<Outcome>, Arc<RequestDeparture>), UpstreamFault> {
        let mut table = self.table();
        if let Some(why) = table.end {
            return Err(UpstreamFault::NotSent(why));
        }
        let running = table.calls.get_mut(&id).ok_or(UpstreamFault::NotSent("the request is over"))?;
        let (reply, answer) = oneshot::channel();
        running.reply = Some(reply);
        Ok((answer, Arc::clone(&running.departure)))
    }

    /// The transmission of a request of so many bytes that has a line of its own.
    pub(crate) fn transmission(&self, id: CallId, bytes: usize) -> RequestTransmission {
        let departure = self.table().calls.get(&id).map(|running| Arc::clone(&running.departure));
        RequestTransmission { departure, traffic: self.traffic_of(id), bytes }
    }

    /// So many bytes of a request are about to leave.
    pub(crate) fn count_sent(&self, id: CallId, bytes: usize) {
        if let Some(traffic) = self.traffic_of(id) {
            traffic.add_sent(bytes);
        }
    }

    /// So many bytes came back that belong to a request.
    pub(crate) fn count_received(&self, id: CallId, bytes: usize) {
        if let Some(traffic) = self.traffic_of(id) {
            traffic.add_received(bytes);
        }
    }

    fn traffic_of(&self, id: CallId) -> Option<Arc<CallTraffic>> {
        self.table().calls.get(&id)?.asker.traffic.clone()
    }

    /// Ends a request; `true` if it was on its way, so that the server has to be told.
    pub(crate) fn over(&self, id: CallId) -> bool {
        let Some(running) = self.table().calls.remove(&id) else { return false };
        running.over.cancel();
        running.departure.take_back()
    }

    /// ROUTE-2.
    pub(crate) fn end(&self, why: &'static str) {
        let mut table = self.table();
        if table.end.is_some() {
            return;
        }
        table.end = Some(why);
        for running in table.calls.values_mut() {
            if let Some(reply) = running.reply.take() {
                let sent = running.departure.has_left();
                // Whoever has dropped its request does not want to know.
                let _ = reply.send(Err(if sent { UpstreamFault::Lost(why) } else { UpstreamFault::NotSent(why) }));
            }
        }
        drop(table);
        self.ended.send_replace(true);
    }

    /// Why the connection is of no more use, if it is not.
    pub(crate) fn why_ended(&self) -> Option<&'static str> {
        self.table().end
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as this value does.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// A text of the other side. `origin` is the request on whose own stream it came.
    pub(crate) fn received(&self, text: &[u8], origin: Option<CallId>) {
        match wire::read(text) {
            Ok(messages) => {
                // On a line of its own a request has been charged by whoever reads it.
                if let (None, [message]) = (origin, messages.as_slice())
                    && let Some(id) = belongs_to(message)
                {
                    self.count_received(id, text.len());
                }
                messages.into_iter().for_each(|message| self.take(message, origin));
            }
            // Servers print to where they should speak; it is their log then.
            Err(_) => {
                let shown = text.get(..GARBAGE_BYTES_MAX).unwrap_or(text);
                self.unheard(UnheardKind::Garbage);
                self.hearing.line(&format!("{NOT_A_MESSAGE}{}", String::from_utf8_lossy(shown)));
            }
        }
    }

    /// One message of the other side.
    pub(crate) fn take(&self, message: IncomingMessage, origin: Option<CallId>) {
        match message {
            IncomingMessage::Answer { id, outcome } => self.answered(id, outcome.map_err(UpstreamFault::from)),
            IncomingMessage::Notification { method, params } => self.notified(&method, &params, origin),
            IncomingMessage::Request { id, method, params } => self.asked(id, &method, params, origin),
        }
    }

    /// The answer to a request was longer than a message may be.
    pub(crate) fn answered_too_large(&self, id: CallId) {
        self.answered(Some(id), Err(UpstreamFault::TooLarge));
    }

    /// ROUTE-1.
    fn answered(&self, id: Option<CallId>, outcome: Result<Value, UpstreamFault>) {
        let reply = id.and_then(|id| self.table().calls.get_mut(&id)?.reply.take());
        match reply {
            Some(reply) => drop(reply.send(outcome)),
            None => {
                tracing::debug!(?id, "an answer that nobody waits for");
                self.unheard(UnheardKind::Answer);
            }
        }
    }

    fn unheard(&self, what: UnheardKind) {
        self.hearing.happened(UpstreamEvent::Dropped(what));
    }

    /// The stream of an answer was taken up again.
    pub(crate) fn taken_up(&self) {
        self.hearing.happened(UpstreamEvent::Reconnected(ReconnectKind::Stream));
    }

    fn notified(&self, method: &str, params: &Value, origin: Option<CallId>) {
        match method {
            "notifications/progress" => {
                let token = params.get("progressToken").and_then(wire::own);
                match token.and_then(|token| self.companion_of(token)) {
                    Some(companion) => companion.progress(progress(params)),
                    None => self.unheard(UnheardKind::Notification),
                }
            }
            "notifications/message" => self.logged(params, origin),
            "notifications/tools/list_changed" => self.hearing.tools_changed(),
            // Lists and resources of servers are read when they are wanted; nothing is kept that could be stale.
            "notifications/resources/list_changed" => self.hearing.offering_changed(OfferingChange::Resources),
            "notifications/prompts/list_changed" => self.hearing.offering_changed(OfferingChange::Prompts),
            "notifications/resources/updated" => {
                if let Some(uri) = params.get("uri").and_then(Value::as_str) {
                    self.hearing.offering_changed(OfferingChange::Resource(uri.to_owned()));
                }
            }
            _ => {}
        }
    }

    fn logged(&self, params: &Value, origin: Option<CallId>) {
        let word = params.get("level").and_then(Value::as_str).unwrap_or("info");
        let Some(data) = params.get("data").cloned() else { return };
        let logger = params.get("logger").and_then(Value::as_str).map(str::to_owned);
        let note = LogNote { severity: LogSeverity::of_word(word), logger, data };
        match self.companion_for(origin) {
            Some((companion, _)) => companion.note(note),
            None => self.hearing.line(&format!("[{word}] {}", note.text())),
        }
    }

    fn asked(&self, id: Value, method: &str, params: Value, origin: Option<CallId>) {
        // Nobody is left to tell the answer.
        if self.answers.is_closed() {
            return;
        }
        // One that asks too much gets no answer at all: answering would be work without a bound, too.
        let Ok(permit) = Arc::clone(&self.questions).try_acquire_owned() else {
            return self.unheard(UnheardKind::Question);
        };
        let answers = self.answers.clone();
        let reply = move |outcome: Result<Value, NoAnswer>| {
            // There is room for each that has a permit; where nobody sends them any more the server has gone.
            let _ = answers.try_send(QuestionAnswer { message: wire::answer(&id, outcome), permit });
        };
        if method == "ping" {
            return reply(Ok(json!({})));
        }
        let question = match self.question(method, params, origin) {
            Ok(question) => question,
            Err(refused) => return reply(Err(refused)),
        };
        let RoutedQuestion { companion, over, question } = question;
        tokio::spawn(async move {
            let key = question.key.clone();
            let answers = tokio::select! {
                answers = companion.ask(vec![question]) => answers,
                // Nobody waits for the call any more, nor for the answer.
                () = over.cancelled() => return,
            };
            let answer = answers.ok().and_then(|all| all.into_iter().find(|answer| answer.key == key));
            let outcome = answer.map(|answer| answer.value);
            reply(outcome.ok_or((INVALID_REQUEST, "the caller cannot be asked, or did not answer")));
        });
    }

    /// ROUTE-3.
    fn question(&self, method: &str, params: Value, origin: Option<CallId>) -> Result<RoutedQuestion, NoAnswer> {
        let kind = QuestionKind::of_method(method).ok_or((METHOD_NOT_FOUND, "this client does not know the method"))?;
        if !relayed(self.relay, kind) {
            return Err((METHOD_NOT_FOUND, "this is not passed on to the caller"));
        }
        let (companion, over) = self
            .companion_for(origin)
            .ok_or((INVALID_REQUEST, "it is not known which call this question belongs to"))?;
        // Ids of our own requests and keys of questions come from one counter, so that no two of a call are alike.
        let key = format!("{method}:{}", self.next.fetch_add(1, Ordering::Relaxed));
        let question = ToolQuestion { key, kind, parameters: params };
        Ok(RoutedQuestion { companion, over, question })
    }

    fn companion_of(&self, id: CallId) -> Option<Arc<dyn ToolCompanion>> {
        self.table().calls.get(&id)?.asker.companion.clone()
    }

    /// The call something belongs to: the one on whose stream it came, or the only one there is.
    fn companion_for(&self, origin: Option<CallId>) -> Option<(Arc<dyn ToolCompanion>, CancellationToken)> {
        let table = self.table();
        let found = |running: &Running| Some((Arc::clone(running.asker.companion.as_ref()?), running.over.clone()));
        if let Some(origin) = origin {
            return table.calls.get(&origin).and_then(found);
        }
        let mut all = table.calls.values().filter_map(found);
        let only = all.next()?;
        all.next().is_none().then_some(only)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock_unpoisoned()
    }
}

/// Does the operator let this kind of question through?
pub(crate) fn relayed(relay: RelayedQuestions, kind: QuestionKind) -> bool {
    match kind {
        QuestionKind::Elicitation => relay.elicitation,
        QuestionKind::Sampling => relay.sampling,
        QuestionKind::Roots => relay.roots,
    }
}

/// The refusal of a call whose question is not passed on.
pub(crate) fn not_relayed(server: &str, kind: QuestionKind) -> Refusal {
    Refusal::new(
        ErrorCode::E3010,
        format!("the server `{server}` asks its caller by `{}`, which is not passed on", kind.method()),
    )
    .hint("let the operator allow it for this server (`relay`), or call a tool that does not ask")
    .retryable(false)
}

fn progress(params: &Value) -> ToolProgress {
    let number = |name: &str| params.get(name).and_then(Value::as_f64);
    let percent = match (number("progress"), number("total")) {
        (Some(done), Some(total)) if total > 0.0 => Some((done / total * 100.0).clamp(0.0, 100.0)),
        _ => None,
    };
    let message = params.get("message").and_then(Value::as_str).map(str::to_owned);
    let count = number("progress").map(|done| ProgressCount { done, total: number("total") });
    ToolProgress { percent, phase: None, message, count }
}

impl fmt::Debug for MessageRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        f.debug_struct("Router").field("calls", &table.calls.len()).field("end", &table.end).finish_non_exhaustive()
    }
}

/// The request that a message on a shared line belongs to, as far as it says so itself.
fn belongs_to(message: &IncomingMessage) -> Option<CallId> {
    match message {
        IncomingMessage::Answer { id, .. } => *id,
        IncomingMessage::Notification { params, .. } => params.get("progressToken").and_then(wire::own),
        IncomingMessage::Request { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Deaf;
    impl ServerListener for Deaf {
        fn tools_changed(&self) {}
        fn offering_changed(&self, _: OfferingChange) {}
        fn line(&self, _: &str) {}
        fn happened(&self, _: UpstreamEvent) {}
    }

    fn router() -> Arc<MessageRouter> {
        MessageRouter::new(Arc::new(Deaf), RelayedQuestions::careful()).0
    }

    #[test]
    fn an_answer_reaches_its_request_once_and_no_other() {
        let router = router();
        let (first, second) =
            (router.begin(RequestAsker::default()).unwrap(), router.begin(RequestAsker::default()).unwrap());
        let (mut one, _) = router.wait_for(first).unwrap();
        let (mut two, _) = router.wait_for(second).unwrap();
        router.received(br#"{"jsonrpc":"2.0","id":99,"result":"wrong"}"#, None);
        router.received(format!(r#"{{"id":{second},"result":"b"}}"#).as_bytes(), None);
        router.received(format!(r#"{{"id":{second},"result":"again"}}"#).as_bytes(), None);
        assert_eq!(two.try_recv().unwrap(), Ok(json!("b")));
        assert!(one.try_recv().is_err());
        router.received(format!(r#"{{"id":"{first}","result":"a"}}"#).as_bytes(), None);
        assert_eq!(one.try_recv().unwrap(), Ok(json!("a")));
    }

    #[test]
    fn at_the_end_what_was_sent_is_lost_and_what_was_not_is_not() {
        let router = router();
        let (first, second) =
            (router.begin(RequestAsker::default()).unwrap(), router.begin(RequestAsker::default()).unwrap());
        let (mut one, sent) = router.wait_for(first).unwrap();
        let (mut two, _) = router.wait_for(second).unwrap();
        assert!(sent.leaves());
        router.end("it died");
        assert_eq!(one.try_recv().unwrap(), Err(UpstreamFault::Lost("it died")));
        assert_eq!(two.try_recv().unwrap(), Err(UpstreamFault::NotSent("it died")));
        assert_eq!(router.begin(RequestAsker::default()), Err(UpstreamFault::NotSent("it died")));
        assert!(router.over(first) && !router.over(second) && !router.over(first));
    }

    #[test]
    fn of_two_calls_neither_is_asked_in_the_name_of_the_other() {
        let router = router();
        let companion = || Some(ports::tool_companion::SilentCompanion::new());
        let first = router.begin(RequestAsker { companion: companion(), ..RequestAsker::default() }).unwrap();
        assert!(router.question("elicitation/create", json!({}), None).is_ok(), "the only one");
        let second = router.begin(RequestAsker { companion: companion(), ..RequestAsker::default() }).unwrap();
        assert!(router.question("elicitation/create", json!({}), None).is_err(), "which of the two?");
        assert!(router.question("elicitation/create", json!({}), Some(second)).is_ok(), "on its own stream");
        assert!(router.question("sampling/createMessage", json!({}), Some(second)).is_err(), "not passed on");
        assert!(router.question("tasks/list", json!({}), Some(second)).is_err(), "unknown");
        router.over(first);
        router.begin(RequestAsker::default()).unwrap();
        assert!(router.question("elicitation/create", json!({}), None).is_ok(), "the other has no companion");
    }

    #[test]
    fn progress_is_a_share_where_there_is_a_total() {
        for (params, percent) in [
            (json!({"progress": 1, "total": 4}), Some(25.0)),
            (json!({"progress": 9, "total": 4}), Some(100.0)),
            (json!({"progress": 9}), None),
            (json!({"progress": 9, "total": 0}), None),
            (json!({}), None),
        ] {
            assert_eq!(progress(&params).percent, percent, "{params}");
        }
    }
}
