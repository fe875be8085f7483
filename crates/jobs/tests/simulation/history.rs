//! One history: callers and faults for a minute or two of simulated time, then quiet, then the reckoning.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::error::ErrorCode;
use ports::clock::Clock as _;
use ports::ledger::{EntryFilter, EntryState};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::dice::Dice;
use crate::process::{Process, TOOLS, admin};
use crate::wire::Life;
use crate::world::{Act, ONCE, Seen, World};

const CALLERS: u64 = 4;
/// How often a caller tries before it gives up.
const TRIES: u64 = 6;
/// Processes that serve at once.
const REPLICAS: u64 = 2;
/// Long enough for every lease to lapse, every backoff to pass and every job to end.
const QUIET: Duration = Duration::from_secs(240);

/// The replicas, as they are at the moment.
type Replicas = Arc<Mutex<Vec<Arc<Process>>>>;

/// Runs the history of a seed.
pub(crate) fn run(seed: u64) -> Result<Seen, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(live(seed))
}

async fn live(seed: u64) -> Result<Seen, String> {
    let world = World::new();
    let calm = CancellationToken::new();
    let life = |number: u64| Life::new(Arc::clone(&world), Dice::of(seed, number), calm.clone());
    let first = Process::start(1, life(1)).await;
    first.publish().await;
    let mut all = vec![Arc::new(first)];
    for number in 2..=REPLICAS {
        all.push(Arc::new(Process::start(number, life(number)).await));
    }
    let replicas: Replicas = Arc::new(Mutex::new(all));

    let faults = tokio::spawn(misfortune(seed, Arc::clone(&world), Arc::clone(&replicas), calm.clone()));
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| tokio::spawn(caller(Dice::of(seed, 1_000 + number), Arc::clone(&world), Arc::clone(&replicas))))
        .collect();
    for caller in callers {
        caller.await.map_err(|error| error.to_string())?;
    }
    calm.cancel();
    faults.await.map_err(|error| error.to_string())?;
    world.clock.sleep(QUIET).await;
    let survivor = Arc::clone(replicas.lock().unwrap().first().ok_or("no process is left")?);
    reckon(&world, &survivor).await?;
    world.see(|seen| seen.histories = 1);
    let seen = world.seen.lock().unwrap().clone();
    Ok(seen)
}

/// Crashes and stops, until it is calm.
async fn misfortune(seed: u64, world: Arc<World>, replicas: Replicas, calm: CancellationToken) {
    let dice = Dice::of(seed, 500);
    let mut number = REPLICAS;
    while !calm.is_cancelled() {
        tokio::select! {
            () = calm.cancelled() => return,
            () = world.clock.sleep(Duration::from_millis(200) + dice.millis(6_000)) => {}
        }
        let which = usize::try_from(dice.below(REPLICAS)).unwrap();
        let Some(unlucky) = replicas.lock().unwrap().get(which).cloned() else { continue };
        if dice.percent(60) {
            unlucky.life.dead.cancel();
            world.see(|seen| seen.crashes += 1);
            world.clock.sleep(dice.millis(20_000)).await;
            number += 1;
            let life = Life::new(Arc::clone(&world), Dice::of(seed, number), calm.clone());
            let risen = Arc::new(Process::start(number, life).await);
            if let Some(place) = replicas.lock().unwrap().get_mut(which) {
                *place = risen;
            }
        } else {
            unlucky.life.stop_for(dice.millis(60_000));
            world.see(|seen| seen.stalls += 1);
        }
    }
}

/// Means some things to happen, and tries until it is told that they did, or that nobody knows.
async fn caller(dice: Dice, world: Arc<World>, replicas: Replicas) {
    for _ in 0..2 + dice.below(3) {
        let (tool, _) = TOOLS.get(usize::try_from(dice.below(TOOLS.len() as u64)).unwrap()).copied().unwrap();
        // Few numbers, so that callers mean the same thing now and then.
        let act = Act { tool, number: dice.below(6) };
        let background = dice.percent(30);
        for _ in 0..TRIES {
            world.see(|seen| seen.calls += 1);
            let which = usize::try_from(dice.below(REPLICAS)).unwrap();
            let process = replicas.lock().unwrap().get(which).cloned();
            let Some(process) = process else { continue };
            let settled =
                if background { submit(&world, &process, act).await } else { call(&world, &process, act).await };
            if settled {
                break;
            }
            let pause = if dice.percent(20) { dice.millis(40_000) } else { dice.millis(2_000) };
            world.clock.sleep(pause).await;
        }
        world.clock.sleep(dice.millis(3_000)).await;
    }
}

/// True if the caller need not ask again.
async fn call(world: &World, process: &Process, act: Act) -> bool {
    match process.call(act).await {
        None => {
            world.see(|seen| seen.broken_calls += 1);
            false
        }
        Some(Ok(returned)) => {
            let answer = returned.into_response();
            let serial = answer.result.get("serial").and_then(Value::as_u64).unwrap_or_default();
            world.told.lock().unwrap().entry(act).or_default().insert(serial);
            world.see(|seen| seen.replays += u64::from(answer.cached));
            true
        }
        Some(Err(failed)) => {
            let code = failed.refusal.code;
            world.see(|seen| seen.code(code));
            if code == ErrorCode::E3413 {
                world.unknown.lock().unwrap().insert(act);
                world.see(|seen| seen.unknown += 1);
            }
            matches!(code, ErrorCode::E3413 | ErrorCode::E3401)
        }
    }
}

async fn submit(world: &World, process: &Process, act: Act) -> bool {
    match process.submit(act).await {
        Some(Ok(accepted)) => {
            world.accepted.lock().unwrap().insert(accepted.invocation_id, act);
            world.see(|seen| seen.jobs += 1);
            true
        }
        _ => false,
    }
}

// -------------------------------------------------------------------------------------------------------- reckoning

async fn reckon(world: &World, process: &Process) -> Result<(), String> {
    let acts: Vec<Act> = TOOLS
        .iter()
        .flat_map(|(tool, _)| (0..6).map(|number| Act { tool, number }))
        .filter(|act| !world.effects_of(*act).is_empty() || world.told.lock().unwrap().contains_key(act))
        .collect();
    for act in acts.into_iter().filter(|act| ONCE.contains(&act.tool)) {
        once(world, process, act).await.map_err(|broken| format!("{act:?}: {broken}"))?;
    }
    for (act, told) in world.told.lock().unwrap().iter() {
        let effects = world.effects_of(*act);
        if let Some(made_up) = told.iter().find(|serial| !effects.contains(serial)) {
            return Err(format!("{act:?}: effect {made_up} was told of and never happened"));
        }
    }
    let accepted = world.accepted.lock().unwrap().clone();
    for (id, act) in accepted {
        let view = process.jobs.status(admin(), None, id).await.map_err(|refusal| format!("job {id}: {refusal}"))?;
        if !view.record.state.is_end() {
            return Err(format!(
                "SIM-4: job {id} of {act:?} is still {}: {:?}",
                view.record.state.as_str(),
                view.record
            ));
        }
        if let Some(answer) = view.result {
            let serial = answer.pointer("/result/serial").and_then(Value::as_u64).ok_or("a result without a serial")?;
            if !world.effects_of(act).contains(&serial) {
                return Err(format!("SIM-4: job {id} of {act:?} tells of effect {serial}, which never happened"));
            }
        }
    }
    Ok(())
}

/// SIM-1, SIM-2 and SIM-3 for one act.
async fn once(world: &World, process: &Process, act: Act) -> Result<(), String> {
    let before = world.effects_of(act);
    if before.len() > 1 {
        return Err(format!("SIM-1: it happened {} times", before.len()));
    }
    let told = world.told.lock().unwrap().get(&act).cloned().unwrap_or_default();
    if told.len() > 1 {
        return Err(format!("SIM-2: callers were told different things: {told:?}"));
    }
    let asked = process.call(act).await.ok_or("the last process died")?;
    let after = world.effects_of(act);
    if after.len() > 1 {
        return Err("SIM-1: it happened again when it was asked about".into());
    }
    match asked {
        Ok(returned) => {
            let serial = returned.into_response().result.get("serial").and_then(Value::as_u64).unwrap_or_default();
            let right = after.contains(&serial) && told.iter().all(|known| *known == serial);
            right.then_some(()).ok_or_else(|| format!("SIM-2: told {told:?}, now {serial}, happened {after:?}"))
        }
        Err(failed) if !told.is_empty() => Err(format!("SIM-2: {told:?} was told, and now {}", failed.refusal)),
        Err(failed) if failed.refusal.code == ErrorCode::E3413 => {
            let unknown = EntryFilter { state: Some(EntryState::Unknown), ..EntryFilter::default() };
            let lines =
                process.kernel.ledger_lines(admin(), unknown, 200).await.map_err(|refusal| refusal.to_string())?;
            let key = format!("{}-{}", act.tool, act.number);
            let listed = lines.iter().any(|line| line.intent.key.as_ref().is_some_and(|known| known.key == key));
            listed.then_some(()).ok_or_else(|| "SIM-3: it is unknown, and people are not shown it".into())
        }
        Err(_) if before.is_empty() => Ok(()),
        Err(failed) => Err(format!("SIM-3: it happened, and the answer is {}", failed.refusal)),
    }
}
