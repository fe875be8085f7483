//! A running Gantry and a client for it. Everything waits for conditions with a deadline; nothing sleeps and hopes.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for anything. Generous, because the machine may be busy; a passing test never waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The key that instances on one database share, as an operator gives it to them.
pub(crate) const STORE_KEY: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

/// The binary under test: the one just built, or an older one, to see that a regression test fails where the bug was.
pub(crate) fn binary() -> &'static str {
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY
        .get_or_init(|| std::env::var("GANTRY_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_gantry").to_owned()))
}

/// Tries until `attempt` gives something.
pub(crate) fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not happen in time");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Lets everybody look into a temporary directory, which is made for its owner alone: tools run as nobody.
pub(crate) fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
}

// ------------------------------------------------------------------------------------------------------------ start

/// How to start a server.
pub(crate) struct Start {
    args: Vec<String>,
    env: Vec<(String, String)>,
    data: Option<PathBuf>,
    /// Is it not to be ended by the signal for files that grow too large?
    bears_full_disks: bool,
    /// Does it run as a user who owns nothing?
    ordinary_user: bool,
    /// The certificate by which its clients recognise it, as PEM.
    certificate: Option<String>,
}

impl Start {
    pub(crate) fn new() -> Self {
        Self {
            args: Vec::new(),
            env: Vec::new(),
            data: None,
            bears_full_disks: false,
            ordinary_user: false,
            certificate: None,
        }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Uses a directory that outlives the server.
    pub(crate) fn data(mut self, dir: &Path) -> Self {
        self.data = Some(dir.to_owned());
        self
    }

    /// Files may be forbidden to grow while it runs: for it that is a disk that is full.
    pub(crate) fn bearing_full_disks(mut self) -> Self {
        self.bears_full_disks = true;
        self
    }

    /// Runs it as a user who owns nothing but its data directory, and has no control groups.
    pub(crate) fn running_as_ordinary_user(mut self) -> Self {
        self.ordinary_user = true;
        self
    }

    /// It speaks TLS, and its clients trust this certificate.
    pub(crate) fn trusting(mut self, certificate: &str) -> Self {
        self.certificate = Some(certificate.to_owned());
        self
    }

    /// The command, for tests that expect it to refuse.
    pub(crate) fn command(&self, data: &Path) -> Command {
        let mut command = gantry(data);
        if self.bears_full_disks {
            // A shell can ignore a signal for whoever it becomes.
            let mut shell = Command::new("sh");
            shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", binary()]);
            shell.env_clear().envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
            shell.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
            command = shell;
        }
        if self.ordinary_user {
            let user = ["--reuid=1234", "--regid=1234", "--clear-groups", "--", binary()];
            let mut changed = Command::new("/usr/bin/setpriv");
            changed.args(user).env_clear().envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
            changed.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
            command = changed;
        }
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(&self.args);
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Starts and waits until the server is ready.
    pub(crate) async fn run(self) -> Gantry {
        let (home, data) = match &self.data {
            Some(dir) => (None, dir.clone()),
            None => {
                let home = TempDir::new().unwrap();
                let data = home.path().join("data");
                if self.ordinary_user {
                    std::os::unix::fs::chown(home.path(), Some(1234), Some(1234)).unwrap();
                }
                (Some(home), data)
            }
        };
        let mut child = self.command(&data).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stderr = Drain::of(child.stderr.take().unwrap());
        let pid = child.id();
        let url = wait_for("the server's address", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the server ended with {status}: {}", stderr.text());
            }
            let text = std::fs::read_to_string(data.join("server.json")).ok()?;
            let info: Value = serde_json::from_str(&text).ok()?;
            (info["pid"] == pid).then(|| info["url"].as_str().unwrap().to_owned())
        });
        let token = std::fs::read_to_string(data.join("admin.token")).unwrap().trim().to_owned();
        let gantry =
            Gantry { child, url, token, data, _home: home, stderr, http: client_trusting(self.certificate.as_deref()) };
        let start = Instant::now();
        while gantry.get("/health/ready").await.status != 200 {
            assert!(start.elapsed() < PATIENCE, "the server did not become ready");
        }
        gantry
    }
}

/// A `gantry` command with a clean environment and this data directory.
pub(crate) fn gantry(data: &Path) -> Command {
    let mut command = Command::new(binary());
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("NO_COLOR", "1").env("GANTRY_DATA_DIR", data);
    command.current_dir(data.parent().unwrap_or(data)).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    Ran(command.output().unwrap())
}

pub(crate) struct Ran(Output);

impl Ran {
    pub(crate) fn code(&self) -> i32 {
        self.0.status.code().unwrap_or_else(|| panic!("ended by signal {:?}", self.0.status.signal()))
    }
    pub(crate) fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }
    pub(crate) fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.0.stdout).unwrap_or_else(|_| panic!("not JSON: {}{}", self.out(), self.err()))
    }
    /// Ends the test unless the command succeeded.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code(), 0, "{}{}", self.out(), self.err());
        self
    }
}

/// Keeps reading a stream, so that the other side never blocks on it.
pub(crate) struct Drain(std::sync::Arc<std::sync::Mutex<String>>);

impl Drain {
    pub(crate) fn of(mut stream: impl std::io::Read + Send + 'static) -> Self {
        let text = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let sink = std::sync::Arc::clone(&text);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut chunk) {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..n]));
            }
        });
        Self(text)
    }
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

// ----------------------------------------------------------------------------------------------------------- server

/// A running server; killed when dropped.
pub(crate) struct Gantry {
    child: Child,
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) data: PathBuf,
    _home: Option<TempDir>,
    stderr: Drain,
    http: reqwest::Client,
}

impl Gantry {
    pub(crate) async fn start() -> Self {
        Start::new().run().await
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.stderr.text()
    }

    /// The address without the scheme.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Asks the server to end and waits for it.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        wait_for("the server's end", || self.child.try_wait().unwrap())
    }

    /// The same, for what the server has said until its end.
    pub(crate) fn shut_down(mut self) -> String {
        self.signal("TERM");
        let status = wait_for("the server's end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }

    /// The same, for a server that was asked to end before.
    pub(crate) fn shut_down_by_itself(mut self) -> String {
        let status = wait_for("the server's end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(
            Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap().success()
        );
    }

    /// Ends it as a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    // ---- talking

    pub(crate) async fn request(&self, method: Method, path: &str, token: Option<&str>, body: Option<Value>) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        Answer::of(request.send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, Some(&self.token), None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.request(Method::POST, path, Some(&self.token), Some(body)).await
    }

    /// Sends a body as it is.
    pub(crate) async fn post_raw(&self, path: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.token);
        Answer::of(request.header("content-type", content_type).body(body).send().await.unwrap()).await
    }

    pub(crate) async fn invoke(&self, tool: &str, parameters: Value) -> Answer {
        self.post("/v1/tools/invoke", json!({ "tool_id": tool, "parameters": parameters })).await
    }

    /// Calls and waits for the end, however long it takes on a busy machine: the call does not become a job.
    pub(crate) async fn invoke_to_the_end(&self, tool: &str, parameters: Value) -> Answer {
        let body = json!({ "tool_id": tool, "parameters": parameters });
        let request = self.http.post(format!("{}/v1/tools/invoke", self.url)).bearer_auth(&self.token);
        let request = request.header("content-type", "application/json").header("prefer", "wait=600");
        Answer::of(request.body(body.to_string()).send().await.unwrap()).await
    }

    pub(crate) async fn register(&self, manifest: Value) -> Answer {
        self.post("/v1/tools/register", manifest).await
    }

    /// A capability token.
    pub(crate) async fn mint(&self, change: Value) -> String {
        let mut body = json!({ "sub": "did:example:test", "tenant": "acme", "roles": ["agent"], "ttl_seconds": 600,
            "tools": [{ "tool_id": "*" }], "scopes": ["*"] });
        for (member, value) in change.as_object().unwrap() {
            body[member] = value.clone();
        }
        let answer = self.post("/v1/tokens", body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body["token"].as_str().unwrap().to_owned()
    }

    /// The CLI, talking to this server.
    pub(crate) fn cli(&self, args: &[&str]) -> Ran {
        run(gantry(&self.data).args(args))
    }
}

impl Drop for Gantry {
    fn drop(&mut self) {
        // Already gone is fine: that is what some tests are about.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn client() -> reqwest::Client {
    client_trusting(None)
}

/// A client that also trusts this certificate.
pub(crate) fn client_trusting(certificate: Option<&str>) -> reqwest::Client {
    let mut builder = reqwest::Client::builder().timeout(PATIENCE);
    if let Some(pem) = certificate {
        builder = builder.add_root_certificate(reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
    }
    builder.build().unwrap()
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    /// Null if it was not JSON.
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        Self { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::Null), text }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }

    /// Status and code of a refusal, after checking that it is a whole and helpful one.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        let error = &self.body["error"];
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        for member in ["code", "name", "kind", "message", "resolution", "trace_id"] {
            assert!(error[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {}", self.text);
        }
        assert!(error["retryable"].is_boolean(), "{}", self.text);
        // What the tool itself wrote is shown, as it is, to those who look after it.
        let mut ours = self.body.clone();
        if let Value::Object(members) = &mut ours {
            members.remove("output");
        }
        let ours = ours.to_string();
        for leak in ["/root", "/home", "/tmp", "panicked", "src/", ".rs:"] {
            assert!(!ours.contains(leak), "{leak} in {}", self.text);
        }
        (self.status, self.code())
    }
}

// -------------------------------------------------------------------------------------------------------- manifests

/// A manifest that is admitted; `change` replaces members, null removes them.
#[expect(clippy::needless_pass_by_value, reason = "reads better at its many callers")]
pub(crate) fn manifest(change: Value) -> Value {
    let mut manifest = json!({
        "tool_id": "echo_sum", "namespace": "demo", "version": "1.0.0", "name": "Echo sum",
        "description": "Evaluates a small arithmetic expression for demonstrations.", "provider": "Demo", "protocol": "native",
        "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object", "properties": { "expression": { "type": "string", "description": "what to evaluate" } }, "required": ["expression"] },
        "result_schema": { "type": "object", "properties": { "result": {} }, "required": ["result"] },
        "execution": { "type": "builtin", "handler": "calculator" },
    });
    for (member, value) in change.as_object().unwrap() {
        if value.is_null() {
            manifest.as_object_mut().unwrap().remove(member);
        } else {
            manifest[member] = value.clone();
        }
    }
    manifest
}
