//! What tools ask while they run as tasks: the questions wait here until `tasks/update` answers them, the time is over or
//! the call has ended.
//!
//! Bounded: so many tasks with questions, so many rounds of one task, and each for a time. At a limit the question is
//! dropped, and its tool hears that nobody answers. Questions live as long as the process, as the call does that asks them;
//! another process that looks at the same job sees it at work.
//!
//! A name of a question must not come twice in the life of a task, and tools ask twice by one name. So each round has a
//! number, and a question is known outside by both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::ids::InvocationId;
use ports::tool_companion::{CallerAnswer, ToolQuestion};
use rmcp::model::{InputRequest, InputRequests, InputResponses};
use tokio::sync::{mpsc, oneshot};

use super::super::rounds::{answers, input_request, is_answered};
use super::super::running_call::ToolMessage;

/// Rounds of one task that are open at once. At the limit the next is not asked.
const ROUNDS_MAX: usize = 16;

/// All open questions.
#[derive(Debug, Default)]
pub(crate) struct TaskQuestions(Mutex<HashMap<InvocationId, Open>>);

/// Of one task.
#[derive(Debug)]
struct Open {
    /// Who alone sees and answers them.
    principal: String,
    rounds: Vec<OpenRound>,
}

/// What was asked at once, and is answered at once.
#[derive(Debug)]
struct OpenRound {
    number: u64,
    /// By the name outside.
    asked: Vec<(String, ToolQuestion, InputRequest)>,
    answered: Vec<CallerAnswer>,
    answer: oneshot::Sender<Vec<CallerAnswer>>,
}

impl TaskQuestions {
    /// Listens to a task until its call has ended. `given` answers what the client knew would be asked.
    pub(crate) async fn hear(
        self: Arc<Self>,
        id: InvocationId,
        principal: String,
        mut said: mpsc::Receiver<ToolMessage>,
        mut given: InputResponses,
        tasks_max: usize,
        time: Duration,
    ) {
        let mut number = 0;
        while let Some(said) = said.recv().await {
            // How far it is stands in the job.
            let ToolMessage::Asked(questions, answer) = said else { continue };
            if is_answered(&questions, &given) {
                drop(answer.send(answers(questions, &mut given)));
                continue;
            }
            number += 1;
            if self.put(id, &principal, number, questions, answer, tasks_max) {
                let all = Arc::downgrade(&self);
                tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    if let Some(all) = all.upgrade() {
                        all.end(id, number);
                    }
                });
            }
        }
        self.all().remove(&id);
    }

    /// Keeps questions open, if there is room and the protocol has words for them. Otherwise nobody answers.
    fn put(
        &self,
        id: InvocationId,
        principal: &str,
        number: u64,
        questions: Vec<ToolQuestion>,
        answer: oneshot::Sender<Vec<CallerAnswer>>,
        tasks_max: usize,
    ) -> bool {
        let asked = questions.into_iter().map(|question| {
            let request = input_request(&question)?;
            Some((format!("{number}.{}", question.key), question, request))
        });
        let Some(asked) = asked.collect::<Option<Vec<_>>>() else { return false };
        let mut all = self.all();
        if all.len() >= tasks_max && !all.contains_key(&id) {
            return false;
        }
        let open = all.entry(id).or_insert_with(|| Open { principal: principal.to_owned(), rounds: Vec::new() });
        // Whoever asked may have given up meanwhile.
        open.rounds.retain(|round| !round.answer.is_closed());
        if open.rounds.len() >= ROUNDS_MAX {
            return false;
        }
        open.rounds.push(OpenRound { number, asked, answered: Vec::new(), answer });
        true
    }

    /// What is open of a task, for the one who may see it.
    pub(crate) fn open(&self, id: InvocationId, principal: &str) -> Option<InputRequests> {
        let all = self.all();
        let open = all.get(&id).filter(|open| open.principal == principal)?;
        let rounds = open.rounds.iter().filter(|round| !round.answer.is_closed());
        let requests: InputRequests = rounds
            .flat_map(|round| round.asked.iter().map(|(name, _, request)| (name.clone(), request.clone())))
            .collect();
        (!requests.is_empty()).then_some(requests)
    }

    /// Takes answers. A round whose last answer this is goes on.
    pub(crate) fn answer(&self, id: InvocationId, principal: &str, mut responses: InputResponses) {
        let mut all = self.all();
        let Some(open) = all.get_mut(&id).filter(|open| open.principal == principal) else { return };
        for round in &mut open.rounds {
            let answered = &mut round.answered;
            round.asked.retain(|(name, question, _)| match responses.remove(name) {
                Some(value) => {
                    answered.push(CallerAnswer { key: question.key.clone(), value });
                    false
                }
                None => true,
            });
        }
        let (done, waiting) = std::mem::take(&mut open.rounds).into_iter().partition(|round| round.asked.is_empty());
        open.rounds = waiting;
        let done: Vec<OpenRound> = done;
        for round in done {
            // A tool that does not wait any more does not hear it.
            drop(round.answer.send(round.answered));
        }
    }

    /// The time of a round is over.
    fn end(&self, id: InvocationId, number: u64) {
        if let Some(open) = self.all().get_mut(&id) {
            open.rounds.retain(|round| round.number != number);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<InvocationId, Open>> {
        self.0.lock_unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use ports::tool_companion::QuestionKind;
    use serde_json::json;

    use super::*;

    fn id(text: &str) -> InvocationId {
        text.parse().unwrap()
    }

    fn question(key: &str) -> ToolQuestion {
        let parameters = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
        ToolQuestion { key: key.into(), kind: QuestionKind::Elicitation, parameters }
    }

    fn names(questions: &TaskQuestions, id: InvocationId, principal: &str) -> Vec<String> {
        questions.open(id, principal).unwrap_or_default().into_keys().collect()
    }

    fn given(names: &[&str]) -> InputResponses {
        names.iter().map(|name| ((*name).to_owned(), json!({ "action": "accept" }))).collect()
    }

    #[test]
    fn questions_are_answered_one_by_one_by_their_own_principal() {
        let (questions, task) = (TaskQuestions::default(), id("019a0000-0000-7000-8000-000000000001"));
        let (answer, mut answered) = oneshot::channel();
        assert!(questions.put(task, "me", 1, vec![question("a"), question("b")], answer, 1));
        assert_eq!(names(&questions, task, "me"), ["1.a", "1.b"]);
        assert!(names(&questions, task, "you").is_empty());
        questions.answer(task, "you", given(&["1.a", "1.b"]));
        questions.answer(task, "me", given(&["a", "other", "1.b"]));
        assert_eq!(names(&questions, task, "me"), ["1.a"]);
        assert!(answered.try_recv().is_err());
        questions.answer(task, "me", given(&["1.a"]));
        let keys: Vec<String> = answered.try_recv().unwrap().into_iter().map(|answer| answer.key).collect();
        assert_eq!(keys, ["b", "a"]);
        assert!(names(&questions, task, "me").is_empty());
    }

    #[test]
    fn there_is_a_limit_to_tasks_and_rounds_and_a_round_ends_with_its_time() {
        let questions = TaskQuestions::default();
        let one = id("019a0000-0000-7000-8000-000000000001");
        let mut waiting = Vec::new();
        let mut put = |task, number| {
            let (answer, answered) = oneshot::channel();
            waiting.push(answered);
            questions.put(task, "me", number, vec![question("a")], answer, 1)
        };
        assert!((1..=16).all(|number| put(one, number)));
        assert!(!put(one, 17), "too many rounds");
        assert!(!put(id("019a0000-0000-7000-8000-000000000002"), 1), "too many tasks");
        questions.end(one, 3);
        assert!(waiting[2].try_recv().is_err());
        assert_eq!(names(&questions, one, "me").len(), 15);
        // Whoever asked and has gone is not asked for.
        drop(waiting.remove(0));
        assert_eq!(names(&questions, one, "me").len(), 14);
    }
}
