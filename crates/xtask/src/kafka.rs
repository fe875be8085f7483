//! `cargo xtask kafka [--seconds N] [--kills N]`: the audit log's way to Kafka, with a broker that is killed.
//!
//! A real server, built with Kafka, carries its audit log to a real broker that keeps its topics on disk. While several
//! tenants make calls, the broker is ended as a power failure would and started again, again and again, and the server is
//! stopped and started once. Then a consumer of its own reads the whole topic, and it must have every record as a valid
//! CloudEvent, each tenant's in order; a record may come twice.
//!
//! Before that, the tests of TLS and SASL are run, against a listener of their own; the broker is spoken to in the clear.
//!
//! Not part of `cargo xtask test`: the broker is the only one that needs no Java, and building it takes about 16 minutes,
//! once. Brokers that answer from memory are in the tests of `kafka-sink`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base::SaturatingFrom as _;

use crate::{services, workspace};

mod broker;
mod gateway;
mod topic;

use broker::Broker;
use gateway::{Gateway, Load};

/// How long there are calls, unless said otherwise.
const SECONDS_DEFAULT: u64 = 60;
/// How often the broker is killed meanwhile, unless said otherwise.
const KILLS_DEFAULT: u64 = 5;
/// How long the broker stays away.
const AWAY: Duration = Duration::from_secs(2);
/// How long everything may take to arrive after the last call.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(180);
/// Where the records go.
const TOPIC: &str = "tool-execution-audit";
const PARTITIONS: &str = "3";

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (mut seconds, mut kills) = (SECONDS_DEFAULT, KILLS_DEFAULT);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        let value = value.with_context(|| format!("`{argument}` wants a number: kafka has --seconds and --kills"))?;
        match argument.as_str() {
            "--seconds" => seconds = value,
            "--kills" => kills = value,
            unknown => bail!("kafka has no option `{unknown}`: it has --seconds and --kills"),
        }
    }
    ensure!(kills > 0 && seconds >= 4 * kills, "the broker needs four seconds for each time it is killed");
    secure()?;
    let program = services::tansu::provide()?;
    let (gantry, reader) = (workspace::built(&["--package", "gantry", "--features", "kafka"], "gantry")?, reader()?);
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    let seen = runtime.block_on(exercise(Parts { program, gantry, reader }, Duration::from_secs(seconds), kills))?;
    println!("{}", seen.table());
    Ok(if seen.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// TLS and SASL, with the library that has them.
fn secure() -> Result<()> {
    let tests = ["test", "--package", "gantry-kafka-sink", "--features", "tls", "--test", "secure"];
    let status = workspace::cargo().args(tests).status().context("cannot run cargo")?;
    ensure!(status.success(), "the tests of TLS and SASL fail");
    Ok(())
}

/// The programs that take part.
struct Parts {
    program: PathBuf,
    gantry: PathBuf,
    reader: PathBuf,
}

async fn exercise(parts: Parts, time: Duration, kills: u64) -> Result<topic::Seen> {
    let home = tempfile::Builder::new().prefix("gantry-kafka-").tempdir().context("no temporary folder")?;
    let mut broker = Broker::start(&parts.program, home.path())?;
    topic::create(&parts.reader, &broker.address, TOPIC, PARTITIONS)?;
    let mut gateway = Gateway::start(&parts.gantry, home.path(), &broker.address, TOPIC).await?;
    println!("broker {}, gateway {}, {kills} kills in {} s", broker.address, gateway.url, time.as_secs());
    let load = Load::begin(&gateway).await?;
    let part = time / u32::saturating_from(kills).max(1);
    let mut outages = Duration::ZERO;
    for kill in 0..kills {
        tokio::time::sleep(part.saturating_sub(AWAY)).await;
        let down = Instant::now();
        broker.kill()?;
        if kill == kills / 2 {
            // In the middle of an outage, which is the worst moment for it.
            gateway = gateway.again(&parts.gantry, home.path(), &broker.address, TOPIC).await?;
            load.go_on_with(&gateway);
        }
        tokio::time::sleep(AWAY).await;
        broker = broker.again(&parts.program, home.path())?;
        outages += down.elapsed();
    }
    tokio::time::sleep(AWAY).await;
    let made = load.end().await?;
    let start = Instant::now();
    while !gateway.has_delivered_everything(&parts.gantry)? {
        ensure!(
            start.elapsed() < ARRIVAL_TIME_MAX,
            "not everything was delivered within {} s:\n{}",
            ARRIVAL_TIME_MAX.as_secs(),
            gateway.log()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    gateway.stop().await?;
    let records = gateway::records(&parts.gantry, home.path())?;
    let mut seen = topic::read(&parts.reader, &broker.address, TOPIC)?;
    seen.expect(records, made, kills, outages);
    broker.kill()?;
    Ok(seen)
}

fn reader() -> Result<PathBuf> {
    workspace::built(&["--package", "gantry-kafka-sink", "--example", "kafka_topic"], "kafka_topic")
}

/// Ends a process as a power failure would.
fn kill(child: &mut std::process::Child) -> Result<()> {
    child.kill().context("cannot end a process")?;
    child.wait().context("a process does not end").map(drop)
}

/// Asks a process to end.
fn ask_to_end(id: u32) -> Result<()> {
    let status = Command::new("kill").args(["-TERM", &id.to_string()]).status().context("cannot run kill")?;
    ensure!(status.success(), "the process {id} cannot be asked to end");
    Ok(())
}
