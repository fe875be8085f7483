//! Load over several instances: every caller has a line to each of them and asks them in turn, as behind a load balancer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::Scale;
use crate::load::{Connection, Fresh, Measured};

/// An instance, and what it is asked.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) fresh: Fresh,
}

/// So many callers for a round.
pub(super) async fn round(targets: &[Target], callers: usize, scale: &Scale) -> Result<Measured> {
    let from = Instant::now() + scale.warm_up;
    let until = from + scale.round;
    let mut tasks: JoinSet<Result<Vec<Duration>>> = JoinSet::new();
    for number in 0..callers {
        tasks.spawn(keep_asking(targets.to_vec(), number, from, until));
    }
    let mut latencies = Vec::new();
    while let Some(part) = tasks.join_next().await {
        latencies.append(&mut part.context("a caller's task died")??);
    }
    Measured::of(latencies, scale.round)
}

async fn keep_asking(targets: Vec<Target>, first: usize, from: Instant, until: Instant) -> Result<Vec<Duration>> {
    let mut lines = Vec::with_capacity(targets.len());
    for target in targets {
        lines.push((Connection::open(target.address).await?, target.fresh));
    }
    let (mut latencies, mut turn) = (Vec::with_capacity(1 << 12), first);
    loop {
        let start = Instant::now();
        if start >= until {
            return Ok(latencies);
        }
        let place = turn % lines.len().max(1);
        let (connection, fresh) = lines.get_mut(place).context("nobody to ask")?;
        let latency = connection.timed_fresh(fresh).await?;
        if start >= from {
            latencies.push(latency);
        }
        turn += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::load;

    /// A server that counts what it is asked and always says the same.
    async fn counter() -> (SocketAddr, Arc<AtomicU64>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                        count.fetch_add(1, Ordering::Relaxed);
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n12").await.unwrap();
                    }
                });
            }
        });
        (address, asked)
    }

    #[tokio::test]
    async fn instances_are_asked_in_turn_and_all_answers_count() {
        let servers = [counter().await, counter().await, counter().await];
        let fresh = Fresh::new(200, "12", |_| load::request("GET", "/", None, None));
        let targets: Vec<Target> =
            servers.iter().map(|(address, _)| Target { address: *address, fresh: fresh.clone() }).collect();
        let measured = round(&targets, 2, &crate::stores::QUICK).await.unwrap();
        assert!(measured.per_second > 0.0 && measured.p50_us <= measured.p99_us, "{measured:?}");
        let asked: Vec<u64> = servers.iter().map(|(_, asked)| asked.load(Ordering::Relaxed)).collect();
        let (least, most) = (asked.iter().min().unwrap(), asked.iter().max().unwrap());
        // Each of the two callers may have ended anywhere in its turn.
        assert!(*least > 0 && most - least <= 2, "{asked:?}");
    }
}
