//! Files as people have them, and as they should not be.

use serde_json::json;

use super::*;

/// A machine with some files, programs and variables.
struct Desk;

impl Machine for Desk {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        let folders = ["/people/me/notes", "/people/me/repo", "/srv/weather", "/srv/weather/dist", "/people/me", "/"];
        let files = [
            "/srv/weather/dist/index.js",
            "/srv/weather/package.json",
            "/people/me/.nvm/v22/bin/node",
            "/usr/bin/python3",
            "/srv/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
            "/srv/node_modules/@modelcontextprotocol/server-memory/dist/index.js",
        ];
        let path = path.to_str()?;
        if folders.contains(&path) { Some(PathKind::Folder) } else { files.contains(&path).then_some(PathKind::File) }
    }
    fn program(&self, name: &str) -> Option<PathBuf> {
        match name {
            "npx" | "node" => Some(format!("/people/me/.nvm/v22/bin/{name}").into()),
            "uvx" | "docker" => Some(format!("/usr/bin/{name}").into()),
            // A shim before the system's own.
            "python3" => Some("/people/me/.pyenv/shims/python3".into()),
            "tool" => Some("/people/me/.local/bin/tool".into()),
            _ => None,
        }
    }
    fn really(&self, path: &Path) -> PathBuf {
        match path.to_str() {
            Some("/people/me/.local/bin/tool") => "/opt/tool/libexec/tool".into(),
            _ => path.to_owned(),
        }
    }
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/people/me".into()),
            "GITHUB_TOKEN" => Some("ghp_fromtheenvironment".into()),
            _ => None,
        }
    }
}

fn permissions(server: &ImportedServer) -> Vec<&str> {
    server.grants.iter().map(|grant| grant.permission.as_str()).collect()
}

fn server<'a>(import: &'a Import, name: &str) -> &'a ImportedServer {
    import.servers.iter().find(|server| server.name == name).unwrap_or_else(|| panic!("{name}: {import:?}"))
}

const REALISTIC: &str = r#"{
  // my servers
  "mcpServers": {
    "filesystem": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2025.8.21", "/people/me/notes"] },
    "brave-search": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-brave-search"],
                      "env": { "BRAVE_API_KEY": "BSAxxxxxxxxxxxxxxxx" } },
    "weather": { "command": "node", "args": ["/srv/weather/dist/index.js", "--units=metric"],
                 "env": { "NODE_ENV": "production", "API_BASE": "https://api.weather.example:8443/v2" } },
    "git": { "command": "uvx", "args": ["mcp-server-git==2025.7.1", "--repository", "/people/me/repo"] },
    "linear": { "type": "http", "url": "https://mcp.linear.example/mcp",
                "headers": { "Authorization": "Bearer lin_api_123", "x-team": "core" } },
  },
}"#;

#[test]
fn a_realistic_file_with_five_servers_is_read_whole() {
    let import = read(REALISTIC, &Desk);
    assert_eq!(import.problems, []);
    assert_eq!(import.servers.len(), 5);

    let files = server(&import, "filesystem");
    assert_eq!(
        permissions(files),
        [
            "filesystem:read:/people/me/.nvm/v22",
            "network:https://registry.npmjs.org",
            "filesystem:read:/people/me/notes",
            "filesystem:write:/people/me/notes",
        ]
    );
    assert!(files.warnings.is_empty(), "{:?}", files.warnings);

    let brave = server(&import, "brave-search");
    assert!(permissions(brave).contains(&"network:https://api.search.brave.com"));
    assert!(brave.warnings.iter().any(|text| text.contains("has no version")), "{:?}", brave.warnings);
    let kept = brave.secrets.first().unwrap();
    assert_eq!((kept.name.as_str(), kept.place.as_str()), ("brave-search_brave_api_key", "env BRAVE_API_KEY"));
    assert_eq!(kept.value.as_deref(), Some("BSAxxxxxxxxxxxxxxxx"));

    let weather = server(&import, "weather");
    assert_eq!(
        permissions(weather),
        [
            "filesystem:read:/people/me/.nvm/v22",
            "filesystem:read:/srv/weather",
            "network:https://api.weather.example:8443"
        ]
    );
    assert_eq!(weather.runs, "node /srv/weather/dist/index.js --units=metric");

    let git = server(&import, "git");
    assert_eq!(
        permissions(git),
        [
            "network:https://pypi.org",
            "network:https://files.pythonhosted.org",
            "filesystem:read:/people/me/repo",
            "filesystem:write:/people/me/repo",
        ]
    );

    let ServerReach::Http { headers, .. } = &server(&import, "linear").spec.reach else { panic!("http") };
    assert_eq!(headers.get("Authorization"), Some(&Setting::Secret { secret: "linear_authorization".into() }));
    assert_eq!(headers.get("x-team"), Some(&Setting::Plain("core".into())));

    // IMP-2, for all of them.
    for imported in &import.servers {
        let told = format!(
            "{} {:?}",
            serde_json::to_string(&imported.spec).unwrap(),
            (&imported.warnings, &imported.runs, &imported.secrets)
        );
        assert!(!told.contains("BSAxxx") && !told.contains("lin_api"), "{told}");
    }
}

#[test]
fn other_clients_keep_the_block_elsewhere() {
    let entry = json!({ "command": "python3", "args": ["-m", "server"] });
    for document in [
        json!({ "mcpServers": { "a": entry } }),
        json!({ "servers": { "a": entry }, "inputs": [] }),
        json!({ "mcp": { "servers": { "a": entry } } }),
        json!({ "context_servers": { "a": { "source": "custom", "command": "python3", "args": ["-m", "server"] } } }),
        json!({ "context_servers": { "a": { "command": { "path": "python3", "args": ["-m", "server"] }, "settings": {} } } }),
    ] {
        let import = read(&document.to_string(), &Desk);
        assert_eq!(import.problems, [], "{document}");
        let found = server(&import, "a");
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        assert!(matches!(&found.spec.reach, ServerReach::Stdio { args, .. } if args.len() == 2));
    }
}

#[test]
fn placeholders_are_filled_in_or_named() {
    let file = json!({ "servers": {
        "github": { "command": "npx", "args": ["@modelcontextprotocol/server-github@1.0.0"],
            "env": { "GITHUB_PERSONAL_ACCESS_TOKEN": "${env:GITHUB_TOKEN}", "OTHER_KEY": "${input:other}", "MODE": "${MODE:-fast}" } },
        "files": { "command": "npx", "args": ["@modelcontextprotocol/server-filesystem@1.0.0", "${userHome}/notes"] },
        "here": { "command": "npx", "args": ["x@1.0.0", "${workspaceFolder}"] },
    } });
    let import = read(&file.to_string(), &Desk);
    let github = server(&import, "github");
    let values: Vec<Option<&str>> = github.secrets.iter().map(|secret| secret.value.as_deref()).collect();
    assert_eq!(values, [Some("ghp_fromtheenvironment"), None]);
    assert!(github.warnings.iter().any(|text| text.contains("`github_other_key`")), "{:?}", github.warnings);
    let ServerReach::Stdio { env, .. } = &github.spec.reach else { panic!("stdio") };
    assert_eq!(env.get("MODE"), Some(&Setting::Plain("fast".into())));
    assert!(permissions(server(&import, "files")).contains(&"filesystem:write:/people/me/notes"));
    let problem = import.problems.first().unwrap();
    assert_eq!(problem.path, "/servers/here/args/1");
    assert!(problem.message.contains("`workspaceFolder`"), "{}", problem.message);
}

#[test]
fn every_problem_is_named_with_its_place_and_hides_no_other_server() {
    let file = json!({ "mcpServers": {
        "good": { "command": "python3" },
        "empty": {},
        "text": "npx",
        "command": { "command": 7 },
        "args": { "command": "python3", "args": ["a", {}, null] },
        "env": { "command": "python3", "env": { "A": {}, "B=": "x" } },
        "both": { "command": "python3", "url": "https://x.example" },
        "scheme": { "url": "ftp://x.example" },
        "user": { "url": "https://me:hunter2@x.example/mcp" },
        "query": { "url": "https://x.example/mcp?api_key=hunter2hunter2" },
        "kind": { "type": "carrier-pigeon", "url": "https://x.example/mcp" },
        "My Server": { "command": "python3" },
        "My/Server": { "command": "python3" },
    } });
    let import = read(&file.to_string(), &Desk);
    let names: Vec<&str> = import.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["good", "My-Server"], "{:?}", import.problems);
    let mut places: Vec<&str> = import.problems.iter().map(|problem| problem.path.as_str()).collect();
    places.sort_unstable();
    let expected = [
        "/mcpServers/My~1Server",
        "/mcpServers/args/args/1",
        "/mcpServers/args/args/2",
        "/mcpServers/both/url",
        "/mcpServers/command/command",
        "/mcpServers/empty",
        "/mcpServers/env/env",
        "/mcpServers/env/env/A",
        "/mcpServers/kind/type",
        "/mcpServers/query/url",
        "/mcpServers/scheme/url",
        "/mcpServers/text",
        "/mcpServers/user/url",
    ];
    assert_eq!(places, expected);
    assert!(!format!("{import:?}").contains("hunter2"));
}

#[test]
fn what_is_no_block_at_all_is_said_in_one_sentence() {
    for (text, word) in [
        ("", "is empty"),
        (" \n", "is empty"),
        ("{", "ends too early"),
        ("[]", "`mcpServers`"),
        ("{}", "`mcpServers`"),
        (r#"{"mcpServers": []}"#, "must be an object"),
        (r#"{"mcpServers": {"a": {}, "a": {}}}"#, "stands twice"),
    ] {
        let import = read(text, &Desk);
        assert!(import.servers.is_empty());
        assert!(import.problems.first().unwrap().message.contains(word), "{text}: {:?}", import.problems);
    }
}

#[test]
fn what_cannot_be_granted_is_a_warning_and_not_a_grant() {
    for (args, word) in [
        (json!(["@modelcontextprotocol/server-filesystem@1.0.0", "/"]), "all files"),
        (json!(["@modelcontextprotocol/server-filesystem@1.0.0", "/nowhere"]), "does not exist"),
        (json!(["@modelcontextprotocol/server-filesystem@1.0.0", "./here"]), "relative path"),
        (json!(["x@latest"]), "has no version"),
        (json!(["x@1.0.0", "--token=ghp_abcdefghijklmnop"]), "looks like a secret"),
    ] {
        let file = json!({ "mcpServers": { "a": { "command": "npx", "args": args } } });
        let import = read(&file.to_string(), &Desk);
        let found = server(&import, "a");
        assert!(found.warnings.iter().any(|text| text.contains(word)), "{word}: {:?}", found.warnings);
        assert!(permissions(found).iter().all(|permission| !permission.starts_with("filesystem:write")));
        assert!(!found.runs.contains("ghp_"));
    }
    let file = json!({ "mcpServers": { "a": { "command": "docker", "args": ["run", "-i", "mcp/x"] }, "b": { "command": "nowhere" } } });
    let import = read(&file.to_string(), &Desk);
    assert!(server(&import, "a").warnings.iter().any(|text| text.contains("container engine")));
    assert!(server(&import, "b").warnings.iter().any(|text| text.contains("no program `nowhere`")));
}

#[test]
fn a_known_server_is_known_where_it_is_installed_too() {
    let script = |name: &str| format!("/srv/node_modules/@modelcontextprotocol/{name}/dist/index.js");
    let notes = ["filesystem:read:/people/me/notes", "filesystem:write:/people/me/notes"];
    let memory = json!({ "MEMORY_FILE_PATH": "/people/me/notes/memory.jsonl" });
    for (command, args, env, writes) in [
        ("node", json!([script("server-filesystem"), "/people/me/notes"]), json!({}), true),
        ("node", json!(["--no-warnings", script("server-memory")]), memory.clone(), true),
        ("mcp-server-filesystem", json!(["/people/me/notes"]), json!({}), true),
        ("/people/me/.local/bin/mcp-server-git", json!(["--repository", "/people/me/notes"]), json!({}), true),
        ("python3", json!(["-m", "mcp_server_git", "--repository=/people/me/notes"]), json!({}), true),
        // What nobody knows reads what it is told of, and writes nowhere.
        ("node", json!(["/srv/weather/dist/index.js", "/people/me/notes"]), json!({}), false),
        ("node", json!(["/srv/weather/dist/index.js"]), memory, false),
    ] {
        let file = json!({ "mcpServers": { "a": { "command": command, "args": args, "env": env } } });
        let import = read(&file.to_string(), &Desk);
        let given = permissions(server(&import, "a"));
        assert_eq!(notes.iter().all(|note| given.contains(note)), writes, "{command} {args}: {given:?}");
        assert_eq!(
            given.iter().any(|word| word.starts_with("filesystem:write:")),
            writes,
            "{command} {args}: {given:?}"
        );
    }
}

#[test]
fn a_program_outside_the_systems_folders_is_found_inside_and_brings_its_own_files_only() {
    let file = json!({ "mcpServers": { "a": { "command": "tool" }, "b": { "command": "node" }, "c": { "command": "python3" } } });
    let import = read(&file.to_string(), &Desk);
    let told = |name: &str| {
        let found = server(&import, name);
        let ServerReach::Stdio { command, env, .. } = &found.spec.reach else { panic!("stdio") };
        (
            command.clone(),
            env.get("PATH").cloned(),
            permissions(found).into_iter().map(str::to_owned).collect::<Vec<_>>(),
        )
    };
    let path = |folder: &str| Some(Setting::Plain(format!("{folder}:/usr/local/bin:/usr/bin:/bin")));
    let own = |roots: &[&str]| roots.iter().map(|root| format!("filesystem:read:{root}")).collect::<Vec<_>>();
    let beside = (
        "/people/me/.local/bin/tool".to_owned(),
        path("/people/me/.local/bin"),
        own(&["/people/me/.local/bin", "/opt/tool/libexec"]),
    );
    assert_eq!(told("a"), beside);
    assert_eq!(
        told("b"),
        ("/people/me/.nvm/v22/bin/node".to_owned(), path("/people/me/.nvm/v22/bin"), own(&["/people/me/.nvm/v22"]))
    );
    assert_eq!(told("c"), ("python3".to_owned(), None, own(&[])));
}
