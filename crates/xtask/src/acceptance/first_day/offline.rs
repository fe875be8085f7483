//! A start without any network: in a network namespace that has nothing but its own loopback, with registries that lead nowhere.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::gateway::{Place, search_path};

/// Starts the server, calls a tool of a package of npm and one of PyPI, and ends it.
const SCRIPT: &str = r#"
if [ "$ALONE" = 1 ]; then busybox ip link set lo up || exit 4; fi
"$0" serve --listen 127.0.0.1:0 >>"$GANTRY_DATA_DIR/../gantry.log" 2>&1 & pid=$!
tries=0
# Not `health`: that says what it thinks of servers which cannot work here.
until said=$("$0" call calculator expression=1 2>&1); do
  tries=$((tries + 1)); [ "$tries" -gt 300 ] && { kill "$pid"; echo "it does not answer: $said"; exit 3; }
  sleep 0.1
done
"$0" call everything.echo message=offline; first=$?
"$0" call time.get_current_time timezone=UTC; second=$?
kill -TERM "$pid"; wait "$pid"
[ "$first" = 0 ] && [ "$second" = 0 ]
"#;
/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:9/";

/// Works, or says what did not. No server may be running on the place.
pub(super) fn check(place: &Place) -> Result<()> {
    let is_root = test_servers::is_root()?;
    let mut command = Command::new(if is_root { "unshare" } else { "sh" });
    if is_root {
        command.args(["--net", "sh"]).env("ALONE", "1");
    }
    command.arg("-c").arg(SCRIPT).arg(&place.binary).current_dir(&place.home);
    command.env("NO_COLOR", "1").env("GANTRY_DATA_DIR", place.home.join("data")).env("GANTRY_LOG__LEVEL", "warn");
    command.env("PATH", search_path()).env("npm_config_registry", NOWHERE).env("UV_DEFAULT_INDEX", NOWHERE);
    let output = command.output().context("cannot run a shell")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && said.contains("Echo: offline") && said.contains("UTC"),
        "without a network: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
