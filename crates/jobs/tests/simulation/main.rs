//! Thousands of random histories: callers that retry and ask twice, processes that crash and stall, a store that fails, jobs
//! that change hands. The kernel is the real one; time, the store, the tools and every fault are the simulation's, so a
//! history is a function of its seed.
//!
//! What must hold in every one of them
//! - SIM-1: a tool that must not happen twice has at most one effect per key.
//! - SIM-2: an answer that a caller has seen stays the answer.
//! - SIM-3: an effect that nobody was told of is told of when asked again: with its own result, or as unknown.
//! - SIM-4: a job that was accepted comes to an end, and its result is of an effect that happened.
//!
//! `GANTRY_SIM_HISTORIES=20000` runs more of them, `GANTRY_SIM_SEED=17` one again.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test crate")]
#![expect(clippy::disallowed_methods, reason = "which histories are run is said in the environment")]

mod dice;
mod history;
mod process;
mod wire;
mod world;

/// Histories of an ordinary run.
const HISTORIES: u64 = 2_000;

fn asked(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Runs one history, or says how to see it again.
fn live(seed: u64) -> world::Seen {
    history::run(seed)
        .unwrap_or_else(|broken| panic!("history {seed} is broken: {broken}\nsee it again with GANTRY_SIM_SEED={seed}"))
}

fn total(histories: impl Iterator<Item = world::Seen>) -> world::Seen {
    histories.fold(world::Seen::default(), |mut seen, history| {
        seen.add(&history);
        seen
    })
}

#[test]
fn in_thousands_of_random_histories_nothing_is_done_twice_and_nothing_is_lost() {
    let seeds = match asked("GANTRY_SIM_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=asked("GANTRY_SIM_HISTORIES").unwrap_or(HISTORIES),
    };
    // Each history is a world of its own, so they are shared out among two threads.
    let seen = std::thread::scope(|scope| {
        let run = |odd: u64| seeds.clone().filter(move |seed| seed % 2 == odd).map(live);
        let other = scope.spawn(move || total(run(1)));
        let mut seen = total(run(0));
        seen.add(&other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        seen
    });
    eprintln!("{seen:?}");
    // A simulation in which nothing happens proves nothing.
    if asked("GANTRY_SIM_SEED").is_none() {
        seen.is_eventful();
    }
}
