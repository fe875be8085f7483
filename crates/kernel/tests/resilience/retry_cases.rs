//! R1…R12: trying again is counted, waited for and given up as the cases say.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::time::Duration;

use base::backoff::BackoffInterval;
use gantry_kernel::resilience::retry::{JudgedAttempt, NextAttempt, RetryAttempts, RetryStop, spread};
use ports::resilience::guard::{PlanError, RetryPlan};

const WAIT: Duration = Duration::from_millis(500);

/// Time that passes only by waiting; waits are written down. Chance always says the most.
struct Stage {
    left: Cell<Duration>,
    waits: RefCell<Vec<Duration>>,
    hangs: bool,
}

impl Stage {
    fn new() -> Self {
        Self { left: Cell::new(Duration::from_hours(1)), waits: RefCell::default(), hangs: false }
    }

    fn waited_ms(&self) -> Vec<u128> {
        self.waits.borrow().iter().map(Duration::as_millis).collect()
    }
}

/// Written by hand, because a stage is not for several threads.
struct Done(bool);

impl Future for Done {
    type Output = ();
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if self.0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }
}

impl Stage {
    /// Waits. Dropping the whole attempt drops this, too: that is how waiting is interrupted (R10).
    fn wait(&self, span: Duration) -> impl Future<Output = ()> {
        self.waits.borrow_mut().push(span);
        self.left.set(self.left.get().saturating_sub(span));
        Done(!self.hangs)
    }
}

/// What came of it all.
#[derive(Debug)]
struct Ended<R> {
    result: R,
    attempts: u32,
    finish: RetryStop,
}

/// Drives the machine as the kernel does: until the judge is content, the attempts are used up or the time is. The judge may fail;
/// that is the end then (R11).
async fn run<R, F: Future<Output = R>, E>(
    plan: RetryPlan,
    stage: &Stage,
    mut attempt: impl FnMut(u32) -> F,
    mut judge: impl FnMut(&R) -> Result<JudgedAttempt, E>,
) -> Result<Ended<R>, E> {
    let mut attempts = RetryAttempts::new(plan);
    loop {
        let result = attempt(attempts.made() + 1).await;
        let judged = judge(&result)?;
        match attempts.after(judged, stage.left.get()) {
            NextAttempt::Finish(finish) => return Ok(Ended { result, attempts: attempts.made(), finish }),
            NextAttempt::Wait { at_most, at_least } => {
                stage.wait(spread(at_most, at_least, 1.0).min(stage.left.get())).await;
            }
        }
    }
}

fn three() -> RetryPlan {
    RetryPlan::new(3, BackoffInterval::fixed(WAIT).unwrap()).unwrap()
}

type Answer = Result<u32, &'static str>;

/// Errors are tried again.
fn errors_again(result: &Answer) -> Result<JudgedAttempt, &'static str> {
    Ok(if result.is_err() { JudgedAttempt::Again { after: None } } else { JudgedAttempt::Final })
}

/// Runs against these answers, one after the other; also answers how many were asked for.
async fn through(
    stage: &Stage,
    plan: RetryPlan,
    answers: &[Answer],
    judge: impl FnMut(&Answer) -> Result<JudgedAttempt, &'static str>,
) -> Result<Ended<Answer>, &'static str> {
    run(plan, stage, |attempt| std::future::ready(answers[usize::try_from(attempt).unwrap() - 1]), judge).await
}

#[tokio::test]
async fn r1_a_success_at_once_is_one_call() {
    let stage = Stage::new();
    let ended = through(&stage, three(), &[Ok(1)], errors_again).await.unwrap();
    assert_eq!((ended.result, ended.attempts, ended.finish), (Ok(1), 1, RetryStop::Settled));
    assert_eq!(stage.waited_ms(), [0_u128; 0]);
}

#[tokio::test]
async fn r2_two_failures_and_a_success_are_three_calls_with_the_waits_taken() {
    let stage = Stage::new();
    let ended = through(&stage, three(), &[Err("a"), Err("b"), Ok(3)], errors_again).await.unwrap();
    assert_eq!((ended.result, ended.attempts, ended.finish), (Ok(3), 3, RetryStop::Settled));
    assert_eq!(stage.waited_ms(), [500, 500]);
}

#[tokio::test]
async fn r3_three_failures_of_three_hand_out_the_last_error() {
    let ended = through(&Stage::new(), three(), &[Err("a"), Err("b"), Err("c")], errors_again).await.unwrap();
    assert_eq!((ended.result, ended.attempts, ended.finish), (Err("c"), 3, RetryStop::Exhausted));
}

#[tokio::test]
async fn r4_a_predicate_that_always_asks_again_ends_with_the_last_value_or_an_error_of_its_own() {
    let always = |_: &Answer| Ok(JudgedAttempt::Again { after: None });
    let ended = through(&Stage::new(), three(), &[Ok(1), Ok(2), Ok(3)], always).await.unwrap();
    assert_eq!((ended.result, ended.attempts, ended.finish), (Ok(3), 3, RetryStop::Exhausted));
    // Whoever wants an error then has one: the finish says that it was not settled.
    let strict = if ended.finish == RetryStop::Exhausted { Err("exhausted") } else { ended.result };
    assert_eq!(strict, Err("exhausted"));
}

#[tokio::test]
async fn r5_an_error_that_is_not_to_be_retried_is_one_call_and_comes_out() {
    let listed = |result: &Answer| {
        Ok(if result.is_err_and(|error| error == "busy") {
            JudgedAttempt::Again { after: None }
        } else {
            JudgedAttempt::Final
        })
    };
    let stage = Stage::new();
    let ended = through(&stage, three(), &[Err("forbidden")], listed).await.unwrap();
    assert_eq!((ended.result, ended.attempts, ended.finish), (Err("forbidden"), 1, RetryStop::Settled));
    assert_eq!(stage.waited_ms(), [0_u128; 0]);
}

#[tokio::test]
async fn r6_a_recovery_gives_its_value_when_attempts_are_used_up() {
    let ended = through(&Stage::new(), three(), &[Err("a"), Err("b"), Err("c")], errors_again).await.unwrap();
    let recovered = ended.result.or_else(|error| if error == "c" { Ok::<u32, &str>(99) } else { Err(error) });
    assert_eq!((recovered, ended.finish), (Ok(99), RetryStop::Exhausted));
}

#[tokio::test]
async fn r7_waits_are_computed_from_the_number_of_the_attempt() {
    let stage = Stage::new();
    let interval = BackoffInterval::exponential(Duration::from_millis(100), 3.0, Duration::from_millis(500)).unwrap();
    let plan = RetryPlan::new(4, interval).unwrap();
    let ended = through(&stage, plan, &[Err("a"), Err("b"), Err("c"), Ok(4)], errors_again).await.unwrap();
    assert_eq!(ended.attempts, 4);
    assert_eq!(stage.waited_ms(), [100, 300, 500]);
}

#[tokio::test]
async fn r8_a_wait_can_depend_on_the_value() {
    let stage = Stage::new();
    let by_value = |result: &Answer| {
        Ok(match result {
            Ok(0) => JudgedAttempt::Final,
            Ok(value) => JudgedAttempt::AgainIn(Some(Duration::from_millis(u64::from(*value)))),
            Err(_) => JudgedAttempt::Again { after: None },
        })
    };
    through(&stage, three(), &[Ok(40), Ok(7), Ok(0)], by_value).await.unwrap();
    assert_eq!(stage.waited_ms(), [40, 7]);
}

#[tokio::test]
async fn r9_no_interval_stops_and_one_of_zero_goes_on_at_once() {
    let none = |_: &Answer| Ok(JudgedAttempt::AgainIn(None));
    let ended = through(&Stage::new(), three(), &[Err("a")], none).await.unwrap();
    assert_eq!((ended.result, ended.attempts, ended.finish), (Err("a"), 1, RetryStop::NoTime));
    let stage = Stage::new();
    let zero = |_: &Answer| Ok(JudgedAttempt::AgainIn(Some(Duration::ZERO)));
    let ended = through(&stage, three(), &[Err("a"), Err("b"), Err("c")], zero).await.unwrap();
    assert_eq!((ended.attempts, stage.waited_ms()), (3, vec![0, 0]));
}

#[tokio::test]
async fn r10_whoever_is_interrupted_while_waiting_makes_no_further_attempt() {
    let stage = Stage { hangs: true, ..Stage::new() };
    let attempts = Cell::new(0);
    let trying = run(
        three(),
        &stage,
        |attempt| {
            attempts.set(attempt);
            std::future::ready(Err::<u32, _>("a"))
        },
        errors_again,
    );
    tokio::select! {
        biased;
        ended = trying => assert!(ended.is_err(), "it came to an end"),
        () = std::future::ready(()) => {}
    }
    assert_eq!((attempts.get(), stage.waited_ms()), (1, vec![500]));
}

#[tokio::test]
async fn r11_a_predicate_that_fails_is_the_end_with_its_error() {
    let fails = |_: &Answer| Err("the predicate failed");
    let ended = through(&Stage::new(), three(), &[Err("a")], fails).await;
    assert_eq!(ended.unwrap_err(), "the predicate failed");
}

#[tokio::test]
async fn r12_the_same_plan_counts_anew_each_time() {
    let plan = three();
    for _ in 0..2 {
        let ended = through(&Stage::new(), plan, &[Err("a"), Err("b"), Err("c")], errors_again).await.unwrap();
        assert_eq!(ended.attempts, 3);
    }
}

#[tokio::test]
async fn what_the_other_side_asks_for_is_the_least_and_ends_it_if_there_is_no_time() {
    let stage = Stage::new();
    let asked = |seconds| move |_: &Answer| Ok(JudgedAttempt::Again { after: Some(Duration::from_secs(seconds)) });
    through(&stage, three(), &[Err("a"), Err("b"), Err("c")], asked(7)).await.unwrap();
    assert_eq!(stage.waited_ms(), [7_000, 7_000]);
    stage.left.set(Duration::from_secs(5));
    let ended = through(&stage, three(), &[Err("a")], asked(7)).await.unwrap();
    assert_eq!((ended.attempts, ended.finish), (1, RetryStop::NoTime));
}

#[test]
fn a_plan_has_at_least_one_attempt() {
    for attempts in [0, 101] {
        assert_eq!(RetryPlan::new(attempts, BackoffInterval::fixed(WAIT).unwrap()), Err(PlanError));
    }
}
