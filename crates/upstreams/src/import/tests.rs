//! Files as people have them, and as they should not be.

use serde_json::json;

use super::*;
use crate::spec::{ServerReach, ServerSetting};

mod claude_code;

/// A machine with some files, programs and variables.
struct Desk;

impl ImportMachine for Desk {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        let folders = [
            "/people/me/notes",
            "/people/me/repo",
            "/people/me/link",
            "/people/me/work",
            "/srv/weather",
            "/srv/weather/dist",
            "/people/me/.asdf/installs",
            "/people/me/my notes",
            "/people/me",
            "/",
        ];
        let files = [
            "/people/me/.pyenv/versions/3.11.7/bin/python3",
            "/people/me/.pyenv/versions/3.12.1/bin/python",
            "/people/me/.asdf/installs/nodejs/20.1.0/bin/deno",
            "/people/me/.asdf/installs/nodejs/9.0.0/bin/deno",
            "/people/me/.local/bin/pipped",
            "/people/me/.local/bin/tool",
            "/people/me/.local/share/pipx/venvs/pipped/bin/python",
            "/people/me/.local/share/uv/python/cpython-3.12/bin/python3",
            "/people/me/work/server.py",
            "/people/me/work/node_modules/.bin/local-server",
            "/people/me/work/.venv/bin/python",
            "/people/me/loose.py",
            "/people/me/current/bin/tool",
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
    fn programs(&self, name: &str) -> Vec<PathBuf> {
        match name {
            "npx" | "node" => vec![format!("/people/me/.nvm/v22/bin/{name}").into()],
            "uvx" | "docker" | "uv" => vec![format!("/usr/bin/{name}").into()],
            // Shims, one of which leads nowhere.
            "python" => vec!["/people/me/.pyenv/shims/python".into()],
            "python3" => vec!["/people/me/.rbenv/shims/python3".into(), "/usr/bin/python3".into()],
            "deno" => vec!["/people/me/.asdf/shims/deno".into()],
            "tool" => vec!["/people/me/.local/bin/tool".into()],
            "pipped" => vec!["/people/me/.local/bin/pipped".into()],
            _ => Vec::new(),
        }
    }
    fn really(&self, path: &Path) -> PathBuf {
        match path.to_str() {
            Some("/people/me/.local/bin/tool") => "/opt/tool/libexec/tool".into(),
            Some("/people/me/.local/bin/pipped") => "/people/me/.local/share/pipx/venvs/pipped/bin/pipped".into(),
            Some(
                "/people/me/.local/share/pipx/venvs/pipped/bin/python"
                | "/people/me/.local/share/uv/python/cpython-3.12/bin/python3",
            ) => "/people/me/.local/share/uv/python/cpython-3.12.5/bin/python3.12".into(),
            Some("/people/me/work/node_modules/.bin/local-server") => {
                "/people/me/work/node_modules/local/dist/index.js".into()
            }
            Some("/people/me/current/bin") => "/opt/tool/v2/bin".into(),
            Some("/people/me/link") => "/people/me/notes".into(),
            _ => path.to_owned(),
        }
    }
    fn links(&self, path: &Path) -> Vec<PathBuf> {
        let links: &[&str] = match path.to_str() {
            Some("/people/me/.local/bin/tool") => &["/people/me/.local/bin/tool"],
            Some("/people/me/.local/bin/pipped") => &["/people/me/.local/bin/pipped"],
            Some("/people/me/.local/share/pipx/venvs/pipped/bin/python") => &[
                "/people/me/.local/share/pipx/venvs/pipped/bin/python",
                "/people/me/.local/share/uv/python/cpython-3.12",
            ],
            Some("/people/me/work/node_modules/.bin/local-server") => {
                &["/people/me/work/node_modules/.bin/local-server"]
            }
            _ => &[],
        };
        links.iter().map(PathBuf::from).collect()
    }
    fn text(&self, path: &Path) -> Option<String> {
        let text = match path.to_str()? {
            "/people/me/.pyenv/version" => "3.12\n",
            "/people/me/.local/share/pipx/venvs/pipped/bin/pipped" => {
                "#!/people/me/.local/share/pipx/venvs/pipped/bin/python\n"
            }
            "/people/me/.local/share/pipx/venvs/pipped/pyvenv.cfg" => {
                "home = /people/me/.local/share/uv/python/cpython-3.12/bin\nversion = 3.12\n"
            }
            "/people/me/work/node_modules/local/dist/index.js" => "#!/usr/bin/env node\n",
            "/people/me/work/.env" => "REGION=eu\nAPI_TOKEN=hunter2\n",
            _ => return None,
        };
        Some(text.to_owned())
    }
    fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        let names: &[&str] = match folder.to_str() {
            Some("/people/me/.pyenv/versions") => &["3.11.7", "3.12.1", "3.12.0"],
            Some("/people/me/.asdf/installs") => &["nodejs"],
            Some("/people/me/.asdf/installs/nodejs") => &["20.1.0", "9.0.0"],
            _ => &[],
        };
        names.iter().map(|name| folder.join(name)).collect()
    }
    fn file(&self) -> Option<PathBuf> {
        Some("/people/me/work/.vscode/mcp.json".into())
    }
    fn closed(&self, path: &Path, write: bool) -> Option<ClosedPath> {
        let is_closed = write && path == Path::new("/people/me/repo");
        is_closed.then(|| ClosedPath { why: "it could not write".into(), command: None })
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

fn server<'a>(import: &'a ImportedFile, name: &str) -> &'a ImportedServer {
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
    assert_eq!(files.spec.upkeep.start_timeout_seconds, 180, "the package is fetched first");

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
    assert_eq!(headers.get("Authorization"), Some(&ServerSetting::Secret { secret: "linear_authorization".into() }));
    assert_eq!(headers.get("x-team"), Some(&ServerSetting::Plain("core".into())));

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
        "there": { "command": "npx", "args": ["x@1.0.0", "${command:pick}"] },
    } });
    let import = read(&file.to_string(), &Desk);
    let github = server(&import, "github");
    let values: Vec<Option<&str>> = github.secrets.iter().map(|secret| secret.value.as_deref()).collect();
    assert_eq!(values, [Some("ghp_fromtheenvironment"), None]);
    assert!(github.warnings.iter().any(|text| text.contains("`github_other_key`")), "{:?}", github.warnings);
    let ServerReach::Stdio { env, .. } = &github.spec.reach else { panic!("stdio") };
    assert_eq!(env.get("MODE"), Some(&ServerSetting::Plain("fast".into())));
    assert!(permissions(server(&import, "files")).contains(&"filesystem:write:/people/me/notes"));
    let problem = import.problems.first().unwrap();
    assert!(permissions(server(&import, "here")).contains(&"filesystem:read:/people/me/work"));
    assert_eq!(problem.path, "/servers/there/args/1");
    assert!(problem.message.contains("`command:pick`"), "{}", problem.message);
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
    assert_eq!(
        names,
        ["good", "My-Server"],
        "what would be the same server twice is taken once: {:?}",
        import.problems
    );
    let mut places: Vec<&str> = import.problems.iter().map(|problem| problem.path.as_str()).collect();
    places.sort_unstable();
    let expected = [
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
        (r#"{"mcpServers": {"a": {}, "a": {}}}"#, "stands there twice"),
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
        (json!(["@modelcontextprotocol/server-filesystem@1.0.0", "./here"]), "does not exist"),
        (json!(["x@latest"]), "has no version"),
        (json!(["github:o/r"]), "write `github:o/r#TAG`"),
        (json!(["x@1.0.0", "--token=ghp_abcdefghijklmnop"]), "argument 2 looks like a secret"),
        (json!(["x@1.0.0", "--api-key", "hunter2"]), "argument 3 looks like a secret"),
        (json!(["x@1.0.0", "--password=hunter2"]), "argument 2 looks like a secret"),
    ] {
        let file = json!({ "mcpServers": { "a": { "command": "npx", "args": args } } });
        let import = read(&file.to_string(), &Desk);
        let found = server(&import, "a");
        assert!(found.warnings.iter().any(|text| text.contains(word)), "{word}: {:?}", found.warnings);
        assert!(permissions(found).iter().all(|permission| !permission.starts_with("filesystem:write")));
        assert!(!found.runs.contains("ghp_") && !found.runs.contains("hunter2"), "{}", found.runs);
    }
    let file = json!({ "mcpServers": { "a": { "command": "docker", "args": ["run", "-i", "mcp/x"] }, "b": { "command": "nowhere" } } });
    let import = read(&file.to_string(), &Desk);
    let of_container = server(&import, "a");
    assert!(of_container.spec.disabled, "it could not start");
    let off = of_container.switched_off.as_ref().unwrap();
    assert!(off.why.contains("container engine") && !off.can_start, "{off:?}");
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
    let path = |folder: &str| Some(ServerSetting::Plain(format!("{folder}:/usr/local/bin:/usr/bin:/bin")));
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

#[test]
fn what_a_script_runs_on_is_followed_to_the_installed_version() {
    let file = json!({ "mcpServers": {
        "shim": { "command": "python", "args": ["-m", "server"] },
        "plugin": { "command": "deno", "args": ["run", "x.ts"] },
        "pipx": { "command": "pipped" },
        "modules": { "command": "./node_modules/.bin/local-server" },
        "behind-a-link": { "command": "/people/me/current/bin/tool" },
    } });
    let import = read(&file.to_string(), &Desk);
    assert_eq!(import.problems, []);
    let told = |name: &str| {
        let found = server(&import, name);
        let ServerReach::Stdio { command, env, .. } = &found.spec.reach else { panic!("stdio") };
        let path = match env.get("PATH") {
            Some(ServerSetting::Plain(path)) => path.split(':').next().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        (command.clone(), path, permissions(found).join(" "))
    };
    let read =
        |roots: &[&str]| roots.iter().map(|root| format!("filesystem:read:{root}")).collect::<Vec<_>>().join(" ");
    let of = |command: &str, path: &str, roots: &[&str]| (command.to_owned(), path.to_owned(), read(roots));
    // The newest 3.12 that has it, and nothing else of the version manager.
    let version = "/people/me/.pyenv/versions/3.12.1";
    assert_eq!(told("shim"), of(&format!("{version}/bin/python"), &format!("{version}/bin"), &[version]));
    let version = "/people/me/.asdf/installs/nodejs/20.1.0";
    assert_eq!(told("plugin"), of(&format!("{version}/bin/deno"), &format!("{version}/bin"), &[version]));
    // The link, its environment, the folder of the link to the interpreter, which has the interpreter in it.
    assert_eq!(
        told("pipx"),
        of(
            "/people/me/.local/bin/pipped",
            "/people/me/.local/bin",
            &[
                "/people/me/.local/bin",
                "/people/me/.local/share/pipx/venvs/pipped",
                "/people/me/.local/share/uv/python"
            ]
        )
    );
    assert_eq!(
        told("modules"),
        of(
            "/people/me/work/node_modules/.bin/local-server",
            "/people/me/work/node_modules/.bin",
            &["/people/me/work/node_modules", "/people/me/.nvm/v22"]
        )
    );
    assert_eq!(told("behind-a-link").0, "/opt/tool/v2/bin/tool");
}

#[test]
fn no_installation_is_somebodys_home() {
    for (folder, own) in [
        ("/people/me", true),
        ("/people/me/.local", true),
        ("/people/me/.local/share", true),
        (concat!("/home", "/ann"), true),
        ("/home", true),
        ("/root", true),
        ("/", true),
        ("/people/me/.nvm", false),
        ("/people/me/.local/bin", false),
        (concat!("/home", "/ann/miniconda3"), false),
        ("/opt", false),
    ] {
        assert_eq!(own_files::is_somebodys(&Desk, Path::new(folder)), own, "{folder}");
    }
}

#[test]
fn relative_paths_begin_at_the_project_of_the_file_and_links_are_followed() {
    let file = json!({ "servers": {
        "script": { "command": "python3", "args": ["server.py", "--db=./new.db"] },
        "loose": { "command": "python3", "args": ["~/loose.py"] },
        "files": { "command": "npx", "args": ["@modelcontextprotocol/server-filesystem@1.0.0", "..", "/people/me/link"] },
        "in": { "command": "node", "args": ["dist/index.js"], "cwd": "/srv/weather" },
        "nowhere": { "command": "node", "cwd": "/nowhere" },
        "wrapped": { "command": "cmd", "args": ["/c", "npx", "-y", "x@1.0.0"] },
        "line": { "command": "npx -y x" },
        "env": { "command": "python3", "args": ["server.py"], "envFile": "${workspaceFolder}/.env", "env": { "REGION": "us" } },
        "project": { "command": "uv", "args": ["run", "--directory", "/people/me/work", "server"] },
        "repo": { "command": "uvx", "args": ["mcp-server-git==1.0", "--repository", "/people/me/repo"] },
    } });
    let import = read(&file.to_string(), &Desk);
    let places: Vec<&str> = import.problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(places, ["/servers/nowhere/cwd", "/servers/line/command"], "{:?}", import.problems);
    let reach = |name: &str| match &server(&import, name).spec.reach {
        ServerReach::Stdio { command, args, cwd, env, .. } => {
            (command.clone(), args.join(" "), cwd.clone(), env.clone())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(reach("script").1, "/people/me/work/server.py --db=/people/me/work/new.db");
    assert_eq!(permissions(server(&import, "script")), ["filesystem:read:/people/me/work"]);
    // In somebody's home only the script itself is given.
    assert_eq!(permissions(server(&import, "loose")), ["filesystem:read:/people/me/loose.py"]);
    let given = permissions(server(&import, "files"));
    assert!(
        given.contains(&"filesystem:write:/people/me") && given.contains(&"filesystem:write:/people/me/notes"),
        "{given:?}"
    );
    assert_eq!(
        (reach("in").1.as_str(), reach("in").2.as_deref()),
        ("/srv/weather/dist/index.js", Some("/srv/weather"))
    );
    assert_eq!(reach("wrapped").1, "-y x@1.0.0");
    let (_, _, _, env) = reach("env");
    assert_eq!(env.get("REGION"), Some(&ServerSetting::Plain("us".into())));
    assert_eq!(env.get("API_TOKEN"), Some(&ServerSetting::Secret { secret: "env_api_token".into() }));
    assert_eq!(reach("project").3.get("UV_NO_SYNC"), Some(&ServerSetting::Plain("1".into())));
    assert!(permissions(server(&import, "project")).contains(&"filesystem:read:/people/me/work"));
    assert!(server(&import, "repo").closed.iter().any(|closed| closed.why == "it could not write"));
}

#[test]
fn what_is_switched_off_is_taken_over_and_not_started() {
    let file = json!({ "mcpServers": {
        "off": { "command": "python3", "disabled": true },
        "not-on": { "command": "python3", "enabled": false },
        "on": { "command": "python3", "disabled": false, "enabled": true },
        "odd": { "command": "python3", "disabled": "yes" },
        "kind": { "url": "https://x.example/mcp", "type": 5 },
        "extension": { "source": "extension", "settings": {} },
        "list": { "command": ["python3", "-m", "server"] },
    }, "projects": { "/people/me/work": { "mcpServers": { "of-project": { "command": "python3" } } }, "/b": { "mcpServers": {} } } });
    let import = read(&file.to_string(), &Desk);
    let off: Vec<(&str, bool)> =
        import.servers.iter().map(|server| (server.name.as_str(), server.spec.disabled)).collect();
    assert_eq!(off, [("off", true), ("not-on", true), ("on", false), ("list", false), ("of-project", false)]);
    let mut problems: Vec<&str> = import.problems.iter().map(|problem| problem.path.as_str()).collect();
    problems.sort_unstable();
    assert_eq!(problems, ["/mcpServers/extension", "/mcpServers/kind/type", "/mcpServers/odd/disabled"]);
}

#[test]
fn two_servers_of_one_name_are_both_taken_and_the_same_one_once() {
    let import = read(
        r#"{ "mcpServers": { "a b": { "command": "/bin/true" }, "a-b": { "command": "/bin/false" }, "c": { "command": "/bin/true" } },
            "projects": { "/p": { "mcpServers": { "c": { "command": "/bin/true" }, "a-b": { "command": "/bin/echo" } } } } }"#,
        &Desk,
    );
    assert_eq!(import.problems, []);
    let names: Vec<&str> = import.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["a-b", "a-b-2", "c", "a-b-3"]);
    assert!(
        server(&import, "a-b-2").warnings.iter().any(|text| text.contains("because /mcpServers/a b is called `a-b`"))
    );
    let twice = read(r#"{ "mcpServers": { "a": {}, "a": {} } }"#, &Desk);
    let message = &twice.problems.first().unwrap().message;
    assert!(message.contains("`a` stands there twice") && message.contains("rename one"), "{message}");
}

#[test]
fn a_path_with_spaces_and_one_that_a_variable_names_are_granted() {
    let import = read(
        r#"{ "mcpServers": {
            "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/people/me/my notes"] },
            "git": { "command": "/bin/true", "env": { "GIT_BASE_DIR": "/people/me/repo", "HOME": "/people/me", "OTHER": "/people/me" } }
        } }"#,
        &Desk,
    );
    assert_eq!(import.problems, []);
    for word in ["filesystem:read:/people/me/my%20notes", "filesystem:write:/people/me/my%20notes"] {
        assert!(permissions(server(&import, "files")).contains(&word), "{word}");
    }
    assert_eq!(
        permissions(server(&import, "git")),
        ["filesystem:read:/people/me/repo"],
        "no home for the sake of a variable"
    );
}

#[test]
fn the_entry_by_which_a_client_starts_gantry_is_left_out() {
    let file = json!({ "mcpServers": {
        "gantry": { "command": "/opt/bin/gantry", "args": ["mcp", "--data-dir", "/people/me/.gantry", "--as", "cursor"] },
        "nested": { "command": { "path": "gantry", "args": ["--no-config", "mcp"] } },
        "other": { "command": "gantry", "args": ["serve"] },
        "weather": { "command": "node", "args": ["/srv/weather/dist/index.js"] }
    } });
    let import = read(&file.to_string(), &Desk);
    assert_eq!(import.of_gantry, ["gantry", "nested"]);
    assert_eq!(import.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["other", "weather"]);
}
