//! What a breaker and a limit cost when they are in Redis and not in the memory of the server.
//!
//! The same tool, with a service behind it and a limit for its users, on two servers that differ in nothing else. They are
//! asked in turns over one connection each, and the median of the differences is judged.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::setup::{GUARDED, InstanceGroup, Place, Services};
use crate::load::Connection;
use crate::scenarios::median;

/// Medians, in microseconds.
#[derive(Serialize)]
pub(super) struct Cost {
    pub(super) pairs: usize,
    pub(super) memory_us: f64,
    pub(super) redis_us: f64,
    /// The median difference of two calls, one after the other.
    pub(super) added_us: f64,
}

/// Calls before anything is counted: scripts are loaded, lines are opened.
const WARM_UP: usize = 50;

/// Pairs of calls, one on each server.
pub(super) async fn measure(gantry: &Path, folder: &Path, services: &Services, pairs: usize) -> Result<Cost> {
    let address = services.redis(0);
    let (in_memory, in_redis) = (Place { store: None, shared: None }, Place { store: None, shared: Some(&address) });
    let memory = InstanceGroup::start(gantry, folder, "guarded-memory", in_memory, 1).await?;
    let redis = InstanceGroup::start(gantry, folder, "guarded-redis", in_redis, 1).await?;
    let (mut times, mut added) = ([Vec::new(), Vec::new()], Vec::new());
    let mut lines = Vec::new();
    for group in [&memory, &redis] {
        let target = group.targets(GUARDED, "pair").pop().context("a group without instances")?;
        lines.push((Connection::open(target.address).await?, target.fresh));
    }
    let [(on_memory, to_memory), (on_redis, to_redis)] = lines.as_mut_slice() else {
        anyhow::bail!("two servers were started and not both answer");
    };
    for number in 0..WARM_UP + pairs {
        // Whoever is second finds everything warm, so they take turns at that too.
        let (memory, redis) = if number.is_multiple_of(2) {
            let memory = on_memory.timed_fresh(to_memory).await?;
            (memory, on_redis.timed_fresh(to_redis).await?)
        } else {
            let redis = on_redis.timed_fresh(to_redis).await?;
            (on_memory.timed_fresh(to_memory).await?, redis)
        };
        if number < WARM_UP {
            continue;
        }
        let (memory, redis) = (memory.as_secs_f64() * 1e6, redis.as_secs_f64() * 1e6);
        let [of_memory, of_redis] = &mut times;
        of_memory.push(memory);
        of_redis.push(redis);
        added.push(redis - memory);
    }
    memory.stop().await?;
    redis.stop().await?;
    let [of_memory, of_redis] = times;
    Ok(Cost { pairs, memory_us: median(of_memory), redis_us: median(of_redis), added_us: median(added) })
}
