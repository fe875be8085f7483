//! The words of a manifest, end to end: each opens exactly what it says, and nothing is open that no word opened.

use std::os::unix::fs::PermissionsExt as _;

use super::loopback::Loopback;
use super::*;
use crate::support::wait_for;

/// Does what it is told and says what came of it.
const DOES: &str = r#"
verb, path = parameters["do"], parameters.get("path")
try:
    if verb == "read":
        result = open(path).read()
    elif verb == "write":
        with open(path, "w") as file:
            file.write("written")
        result = "written"
    elif verb == "remove":
        os.remove(path)
        result = "removed"
    elif verb == "list":
        result = sorted(os.listdir(path))
    elif verb == "get":
        import urllib.request
        result = urllib.request.urlopen(path, timeout=5).status
    elif verb == "environment":
        result = sorted(os.environ)
except Exception as error:
    result = {"refused": type(error).__name__}
"#;

fn is_refused(value: &Value) -> bool {
    value["refused"].is_string()
}

async fn tried(gantry: &Gantry, id: &str, verb: &str, path: &str) -> Value {
    result(gantry, id, json!({ "do": verb, "path": path })).await
}

#[tokio::test]
async fn a_tool_that_declares_nothing_has_nothing() {
    let workshop = Workshop::with([Tool::python("bare", DOES)]);
    let place = workshop.place("open", &[("file", "text")]);
    let gantry = workshop.open_with(Start::new().env("SECRET_OF_THE_SERVER", "x")).await;
    for path in [place.join("file").to_str().unwrap(), "/etc/passwd", "/etc/hostname", "/proc/1/environ", "/sys/kernel"]
    {
        let answer = tried(&gantry, "bare", "read", path).await;
        assert!(is_refused(&answer) || !answer.to_string().contains("SECRET"), "{path}: {answer}");
        assert_ne!(answer, "text");
    }
    for path in ["/tool/new", "/usr/new", "/new", "/etc/new", place.join("new").to_str().unwrap()] {
        assert!(is_refused(&tried(&gantry, "bare", "write", path).await), "{path}");
    }
    assert_eq!(tried(&gantry, "bare", "write", "/tmp/scratch").await, "written", "scratch is its own");
    assert!(is_refused(&tried(&gantry, "bare", "read", "/tmp/scratch").await), "and gone with the call");
    assert_eq!(tried(&gantry, "bare", "list", "/tool").await, json!(["main.py", "tool.json"]));
    let names = result(&gantry, "bare", json!({ "do": "environment" })).await.to_string();
    for name in ["SECRET_OF_THE_SERVER", "GANTRY", "PROXY"] {
        assert!(!names.contains(name), "{names}");
    }
}

#[tokio::test]
async fn a_path_for_reading_can_be_read_and_nothing_else() {
    let workshop = Workshop::new();
    let open = workshop.place("open", &[("file", "text")]);
    let closed = workshop.place("closed", &[("file", "closed")]);
    std::os::unix::fs::symlink(closed.join("file"), open.join("link")).unwrap();
    workshop.add(&Tool::python("reads", DOES).may(&[format!("filesystem:read:{}", open.display())]));
    let gantry = workshop.open().await;
    let at = |path: PathBuf| path.to_str().unwrap().to_owned();
    assert_eq!(tried(&gantry, "reads", "read", &at(open.join("file"))).await, "text");
    assert_eq!(tried(&gantry, "reads", "list", &at(open.clone())).await, json!(["file", "link"]));
    for path in [closed.join("file"), open.join("link"), open.join("../closed/file")] {
        assert!(is_refused(&tried(&gantry, "reads", "read", &at(path.clone())).await), "{}", path.display());
    }
    for (verb, path) in [("write", open.join("file")), ("write", open.join("new")), ("remove", open.join("file"))] {
        assert!(is_refused(&tried(&gantry, "reads", verb, &at(path)).await), "{verb}");
    }
    assert_eq!(std::fs::read_to_string(open.join("file")).unwrap(), "text");
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 2);
}

#[tokio::test]
async fn a_path_for_writing_can_be_written_and_nothing_else() {
    let workshop = Workshop::new();
    let open = workshop.place("open", &[("file", "text")]);
    let closed = workshop.place("closed", &[("file", "closed")]);
    // The tool is nobody: what it may write is up to the operator of the machine too.
    for path in [&open, &closed] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    workshop.add(&Tool::python("writes", DOES).may(&[format!("filesystem:write:{}", open.display())]));
    let gantry = workshop.open().await;
    let at = |path: PathBuf| path.to_str().unwrap().to_owned();
    assert_eq!(tried(&gantry, "writes", "write", &at(open.join("new"))).await, "written");
    assert_eq!(std::fs::read_to_string(open.join("new")).unwrap(), "written");
    assert_eq!(tried(&gantry, "writes", "read", &at(open.join("new"))).await, "written");
    assert_eq!(tried(&gantry, "writes", "remove", &at(open.join("new"))).await, "removed");
    assert!(!open.join("new").exists());
    for path in [closed.join("new"), open.join("../closed/new"), open.join("../new")] {
        assert!(is_refused(&tried(&gantry, "writes", "write", &at(path.clone())).await), "{}", path.display());
    }
    assert_eq!(std::fs::read_dir(&closed).unwrap().count(), 1);
}

#[tokio::test]
async fn a_path_that_no_tool_may_have_is_refused_before_anything_runs() {
    let workshop = Workshop::new();
    let link = workshop.path("link");
    std::os::unix::fs::symlink("/usr", &link).unwrap();
    let data = workshop.path("data");
    for (id, path) in [
        ("proc", "/proc"),
        ("all", "/"),
        ("missing", "/no/such/place"),
        ("through_link", &link),
        ("of_the_server", &data),
    ] {
        workshop.add(&Tool::python(id, "result = 1").may(&[format!("filesystem:read:{path}")]));
    }
    let gantry = workshop.open_with(Start::new().data(Path::new(&data))).await;
    for id in ["proc", "all", "missing", "through_link", "of_the_server"] {
        let answer = call(&gantry, id, json!({})).await;
        assert_eq!(answer.code(), "E3405", "{id}: {}", answer.text);
        assert_eq!(answer.body["error"]["retryable"], false, "{id}");
    }
}

#[tokio::test]
async fn a_declared_host_and_port_can_be_reached_and_nothing_else() {
    let (declared, other) = (Loopback::start().await, Loopback::start().await);
    let workshop = Workshop::with([
        Tool::python("speaks", DOES).may(&[declared.permission()]),
        Tool::python("mute", DOES),
        Tool::python("by_hand", "import socket\nsocket.create_connection(('127.0.0.1', parameters['port']), 5)"),
    ]);
    let gantry = workshop.open().await;
    assert_eq!(tried(&gantry, "speaks", "get", &declared.url(3)).await, 200);
    assert_eq!(declared.connections(), 1);
    let localhost = format!("http://localhost:{}/1", declared.port);
    for url in [other.url(1), localhost, "http://169.254.169.254/latest/".to_owned(), "http://10.0.0.1/".to_owned()] {
        let answer = call(&gantry, "speaks", json!({ "do": "get", "path": url })).await;
        assert_eq!(answer.refusal(), (403, "E3406"), "{url}: {}", answer.text);
    }
    // Without any word there is no network at all, and so nobody who could see a violation.
    assert!(is_refused(&tried(&gantry, "mute", "get", &declared.url(1)).await));
    let answer = call(&gantry, "by_hand", json!({ "port": declared.port })).await;
    assert_eq!(answer.code(), "E3401", "{}", answer.text);
    assert_eq!((declared.connections(), other.connections()), (1, 0));
    let log = gantry.data.join("audit/audit-000001.jsonl");
    let said = format!("tried to connect to 127.0.0.1:{}", other.port);
    wait_for("the record of the violation", || std::fs::read_to_string(&log).ok()?.contains(&said).then_some(()));
}

/// Connects without asking any proxy, and says something, as drivers of databases do.
const CONNECTS: &str = r#"
import socket
try:
    with socket.create_connection((parameters["host"], parameters["port"]), 20) as s:
        s.sendall(b"GET /3 HTTP/1.0\r\n\r\n")
        result = s.recv(12).decode() or "closed"
except OSError as error:
    result = type(error).__name__
"#;

#[tokio::test]
async fn a_program_that_knows_no_proxy_reaches_what_is_declared_and_nothing_else() {
    let (declared, other) = (Loopback::start().await, Loopback::start().await);
    let workshop = Workshop::with([Tool::python("connects", CONNECTS).may(&[declared.permission()])]);
    let gantry = workshop.open().await;
    let answer = call(&gantry, "connects", json!({ "host": "127.0.0.1", "port": declared.port })).await;
    assert_eq!(answer.body["result"], "HTTP/1.1 200", "{}", answer.text);
    assert!(answer.body["execution_metadata"]["network_bytes_received"].as_u64() > Some(0), "it is counted");
    let refused = call(&gantry, "connects", json!({ "host": "db.example.com", "port": 5432 })).await;
    assert_eq!(refused.refusal(), (403, "E3406"), "an undeclared name: {}", refused.text);
    // Nobody is met at other ports; there a program may serve something to itself.
    for port in [other.port, 5432] {
        let answer = call(&gantry, "connects", json!({ "host": "127.0.0.1", "port": port })).await;
        assert_eq!(answer.body["result"], "ConnectionRefusedError", "{}", answer.text);
    }
    assert_eq!((declared.connections(), other.connections()), (1, 0));
    let log = gantry.data.join("audit/audit-000001.jsonl");
    let said = "tried to connect to db.example.com";
    wait_for("the record of the name", || std::fs::read_to_string(&log).ok()?.contains(said).then_some(()));
}

/// As other languages escape JSON and addresses, one character this way and the next that way.
#[tokio::test]
async fn a_credential_is_found_however_its_characters_are_escaped() {
    let shows = r#"
import urllib.parse
s = open("/run/secrets/api_key").read().strip()
result = [json.dumps(s).replace("/", "\\/"), s.replace("=", "\\u003d").replace("&", "\\u0026"),
          json.dumps(s).replace("\\u00e9", "\\u00E9"), urllib.parse.quote(s, safe=";,/?:@&=+$-_.!~*'()#"),
          s.replace(" ", "%20"), s.replace(" ", "+"), urllib.parse.quote(urllib.parse.quote(s, safe=""), safe=""),
          json.dumps({"a": json.dumps({"b": json.dumps(s)})})]
"#;
    let workshop = Workshop::with([Tool::python("escapes", shows).may(&["credentials:api_key".to_owned()])]);
    let data = PathBuf::from(workshop.path("data"));
    let gantry = workshop.open_with(Start::new().data(&data)).await;
    let place = data.join("secrets/local");
    std::fs::create_dir_all(&place).unwrap();
    write(&place.join("api_key"), "correct/h\u{e9}rse=b&tt ry\"staple\n".as_bytes(), 0o600);
    let known = result(&gantry, "escapes", json!({})).await;
    for said in known.as_array().unwrap() {
        let said = said.as_str().unwrap();
        assert!(said.contains("[secret api_key]") && !said.contains("correct") && !said.contains("staple"), "{known}");
    }
    assert_eq!(known.as_array().unwrap().len(), 8, "{known}");
}

#[tokio::test]
async fn a_declared_credential_is_given_as_a_file_and_taken_out_of_what_the_tool_says() {
    let shows = r#"
names = sorted(os.listdir("/run/secrets")) if os.path.isdir("/run/secrets") else []
text = {name: open("/run/secrets/" + name).read().strip() for name in names}
print("log:", text, file=sys.stderr)
everywhere = open("/proc/self/environ").read() + open("/proc/self/cmdline").read()
result = {"names": names, "said": list(text.values()), "lengths": [len(one) for one in text.values()],
          "elsewhere": any(one in everywhere for one in text.values())}
"#;
    let workshop = Workshop::with([
        Tool::python("knows", shows).may(&["credentials:api_key".to_owned()]),
        Tool::python("wants_more", shows).may(&["credentials:api_key".to_owned(), "credentials:missing".to_owned()]),
        Tool::python("knows_none", shows),
    ]);
    let data = PathBuf::from(workshop.path("data"));
    let gantry = workshop.open_with(Start::new().data(&data).env("GANTRY_LOG__LEVEL", "debug")).await;
    let place = data.join("secrets/local");
    std::fs::create_dir_all(&place).unwrap();
    for name in ["api_key", "other_key"] {
        write(&place.join(name), b"correct-horse-battery\n", 0o600);
    }
    let known = result(&gantry, "knows", json!({})).await;
    let scrubbed = json!({ "names": ["api_key"], "said": ["[secret api_key]"], "lengths": [21],
        "elsewhere": false });
    assert_eq!(known, scrubbed);
    assert_eq!(result(&gantry, "knows_none", json!({})).await["names"], json!([]));
    let answer = call(&gantry, "wants_more", json!({})).await;
    assert_eq!(answer.code(), "E3602", "{}", answer.text);
    assert!(answer.text.contains("`missing`"), "{}", answer.text);
    // Another tenant's caller has no part in it.
    let token = gantry.mint(json!({ "sub": "did:example:eve", "tenant": "globex" })).await;
    let body = json!({ "tool_id": "t.knows", "parameters": {} });
    let answer = gantry.request(reqwest::Method::POST, "/v1/tools/invoke", Some(&token), Some(body)).await;
    assert_eq!(answer.code(), "E3602", "{}", answer.text);
    assert!(!gantry.log().contains("correct-horse"), "{}", gantry.log());
    // A file that others may read is no secret.
    write(&place.join("api_key"), b"correct-horse-battery\n", 0o644);
    let answer = call(&gantry, "knows", json!({})).await;
    assert_eq!(answer.code(), "E3602", "{}", answer.text);
    assert!(answer.text.contains("cannot be used so") && !answer.text.contains("try again"), "{}", answer.text);
    for said in ["mode 644", "chmod 600"] {
        wait_for(said, || gantry.log().contains(said).then_some(()));
    }
}

#[tokio::test]
async fn what_cannot_be_given_is_refused_with_what_is_wrong_and_what_to_do() {
    let workshop = Workshop::new();
    let pipe = workshop.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let here = workshop.place("here", &[]);
    let config = here.join("gantry.toml");
    write(&config, b"[server]\n", 0o644);
    let loopback = Loopback::start().await;
    let port = loopback.port;
    workshop.add(&Tool::python("pipes", "result = 1").may(&[format!("filesystem:read:{pipe}")]));
    workshop.add(&Tool::python("configures", "result = 1").may(&[format!("filesystem:read:{}", here.display())]));
    workshop.add(&Tool::python("fat", "result = 1").run("env", json!({ "FAT": "x".repeat(150_000) })));
    for (id, host) in [("local", "localhost"), ("unspecified", "0.0.0.0")] {
        workshop.add(&Tool::python(id, DOES).may(&[format!("network:http://{host}:{port}")]));
    }
    let gantry = workshop.open_with(Start::new().arg("--config").arg(config.to_str().unwrap())).await;
    let get = |host: &str| json!({ "do": "get", "path": format!("http://{host}:{port}/1") });
    for (id, parameters, code, words) in [
        ("pipes", json!({}), "E3405", &["neither a file nor a directory", "regular file", pipe.as_str()][..]),
        ("configures", json!({}), "E3405", &["gives to no tool"]),
        ("fat", json!({}), "E3405", &["too long", "execution.env"]),
        ("local", get("localhost"), "E3406", &["declares", "open_networks", "127.0.0.1"]),
        ("unspecified", get("0.0.0.0"), "E3406", &["declares", "open_networks"]),
    ] {
        let answer = call(&gantry, id, parameters).await;
        assert_eq!(answer.code(), code, "{id}: {}", answer.text);
        for word in words {
            assert!(answer.text.contains(word), "{id}, {word}: {}", answer.text);
        }
        assert!(!answer.text.contains("has to be declared"), "{id}: {}", answer.text);
    }
    assert_eq!(loopback.connections(), 0);
}

#[tokio::test]
async fn isolation_that_this_machine_lacks_is_refused_with_what_is_missing() {
    let workshop = Workshop::with([Tool::python("guarded", "result = 1").run("isolation", json!("microvm"))]);
    let gantry = workshop.open().await;
    let answer = call(&gantry, "guarded", json!({})).await;
    assert_eq!(answer.code(), "E3405", "{}", answer.text);
    for word in ["microvm", "virtual machine"] {
        assert!(answer.text.contains(word), "{}", answer.text);
    }
}

#[tokio::test]
async fn no_tool_is_given_what_decides_what_the_server_runs_or_holds_its_keys() {
    let workshop = Workshop::new();
    let given = workshop.place("given", &[]);
    let tenants = workshop.place("tenants", &[]);
    let keys = workshop.place("keys", &[]);
    let trusted = workshop.place("trusted", &[]);
    let seal = keys.join("seal.key");
    write(&seal, "0f".repeat(32).as_bytes(), 0o600);
    write(&trusted.join("keys.json"), br#"{ "keys": [] }"#, 0o644);
    let cases = [
        ("gets", given.clone(), None),
        ("writes_tools", tenants.clone(), Some("E3405")),
        ("writes_below", tenants.join("one"), Some("E3405")),
        ("reads_keys", keys.clone(), Some("E3405")),
        ("reads_key", seal.clone(), Some("E3405")),
        ("writes_trust", trusted.clone(), Some("E3405")),
    ];
    std::fs::create_dir(tenants.join("one")).unwrap();
    for (id, path, _) in &cases {
        let word = if id.starts_with("writes") { "write" } else { "read" };
        workshop.add(&Tool::python(id, "result = 1").may(&[format!("filesystem:{word}:{}", path.display())]));
    }
    let start = Start::new()
        .env("GANTRY_TOOLS__TENANTS", format!("acme={}", tenants.display()))
        .env("GANTRY_STORE__SEAL_KEY_FILE", seal.display().to_string())
        .env("GANTRY_IDENTITY__TRUSTED_ISSUER", "them")
        .env("GANTRY_IDENTITY__JWKS_FILE", trusted.join("keys.json").display().to_string());
    let gantry = workshop.open_with(start).await;
    for (id, _, code) in cases {
        let answer = call(&gantry, id, json!({})).await;
        match code {
            None => assert_eq!(answer.status, 200, "{id}: {}", answer.text),
            Some(code) => {
                assert_eq!(answer.code(), code, "{id}: {}", answer.text);
                assert!(answer.text.contains("gives to no tool"), "{id}: {}", answer.text);
            }
        }
    }
}
