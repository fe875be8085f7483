//! Programs that run something else: interpreters with a script, and runners that fetch a package first (`npx`, `uvx` …).

use std::path::Path;

/// Programs that run another file.
const INTERPRETERS: [&str; 11] =
    ["node", "nodejs", "python", "python3", "deno", "bun", "ruby", "php", "tsx", "perl", "java"];
/// Flags of interpreters with a value of their own.
const VALUED: [&str; 8] = ["-r", "--require", "--import", "--loader", "-X", "-W", "--env-file", "-cp"];

/// Branches that go on from one day to the next.
const BRANCHES: [&str; 5] = ["HEAD", "dev", "develop", "main", "master"];

/// A package that a runner fetches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    /// Without its version.
    pub(super) name: String,
    pub(super) has_version: bool,
    /// Where its own arguments begin.
    pub(super) behind: usize,
    /// What is written behind the name to choose a version, with an example of one.
    pub(super) version_example: &'static str,
    pub(super) from: &'static Registry,
}

/// Where packages come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Registry {
    pub(super) word: &'static str,
    pub(super) hosts: &'static [&'static str],
    /// A version behind the name of a package, and behind the address of a repository.
    version_example: &'static str,
    tag_example: &'static str,
    /// Flags of its runners with a value of their own.
    valued: &'static [&'static str],
}

/// What `npx` and its like fetch from.
pub(super) const NPM: Registry = Registry {
    word: "npm",
    hosts: &["https://registry.npmjs.org"],
    version_example: "@1.2.3",
    tag_example: "#TAG",
    valued: &["-c", "--call", "--registry", "-w", "--workspace"],
};
/// What `uvx` and its like fetch from.
pub(super) const PYPI: Registry = Registry {
    word: "PyPI",
    hosts: &["https://pypi.org", "https://files.pythonhosted.org"],
    version_example: "==1.2.3",
    tag_example: "@TAG",
    valued: &["--python", "-p", "--index-url", "-i", "--index", "--default-index", "--with", "--with-editable"],
};

/// The last part of a command.
pub(super) fn base_name(command: &str) -> &str {
    Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or(command)
}

/// Does it run another file? `python3.12` is a Python, too.
pub(super) fn is_interpreter(command: &str) -> bool {
    let name = base_name(command);
    let plain = name.strip_prefix("python3.").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
    plain || INTERPRETERS.contains(&name)
}

/// Which argument is the script of an interpreter, if one is.
pub(super) fn script_index(command: &str, args: &[String]) -> Option<usize> {
    if !is_interpreter(command) {
        return None;
    }
    let mut index = 0;
    while let Some(arg) = args.get(index) {
        match arg.as_str() {
            // A module, or a program in the arguments themselves.
            "-m" | "-c" | "-e" | "--eval" | "-jar" => return None,
            "run" if matches!(base_name(command), "deno" | "bun") => index += 1,
            flag if VALUED.contains(&flag) => index += 2,
            flag if flag.starts_with('-') => index += 1,
            _ => return Some(index),
        }
    }
    None
}

/// The module that a Python runs by `-m`.
pub(super) fn module<'a>(command: &str, args: &'a [String]) -> Option<&'a str> {
    let at = args.iter().position(|arg| arg == "-m").filter(|_| is_interpreter(command))?;
    args.get(at + 1).map(String::as_str)
}

/// The package, if a runner fetches one.
pub(super) fn fetched(command: &str, args: &[String]) -> Option<Fetched> {
    let first = args.first().map(String::as_str);
    let second = args.get(1).map(String::as_str);
    let (registry, skipped) = match (base_name(command), first, second) {
        ("npx" | "bunx" | "pnpx", ..) => (&NPM, 0),
        ("npm", Some("exec" | "x"), _) | ("pnpm" | "yarn", Some("dlx"), _) | ("bun", Some("x"), _) => (&NPM, 1),
        ("uvx", ..) => (&PYPI, 0),
        ("uv", Some("tool"), Some("run")) => (&PYPI, 2),
        ("pipx", Some("run"), _) => (&PYPI, 1),
        _ => return None,
    };
    let mut index = skipped;
    let mut from = None;
    while let Some(arg) = args.get(index) {
        match arg.as_str() {
            "--package" | "--from" | "--spec" => {
                from = args.get(index + 1).cloned();
                index += 2;
            }
            "-p" if registry.word == NPM.word => {
                from = args.get(index + 1).cloned();
                index += 2;
            }
            "--" => index += 1,
            flag if registry.valued.contains(&flag) => index += 2,
            flag if flag.starts_with("--package=") || flag.starts_with("--from=") => {
                from = flag.split_once('=').map(|(_, value)| value.to_owned());
                index += 1;
            }
            flag if flag.starts_with('-') => index += 1,
            _ => break,
        }
    }
    let written = from.or_else(|| args.get(index).cloned())?;
    let behind = index + 1;
    if is_repository(&written) {
        let (name, tag) = split_tag(&written, registry);
        let has_version = tag.is_some_and(|tag| !tag.is_empty() && !BRANCHES.contains(&tag));
        let version_example = registry.tag_example;
        return Some(Fetched { name: name.to_owned(), has_version, behind, version_example, from: registry });
    }
    let (name, version) = split_version(&written);
    let has_version = version.is_some_and(|version| !version.is_empty() && !matches!(version, "latest" | "next"));
    let version_example = registry.version_example;
    Some(Fetched { name: name.to_owned(), has_version, behind, version_example, from: registry })
}

/// Does `uv` run something of a project?
pub(super) fn is_uv_run(command: &str, args: &[String]) -> bool {
    base_name(command) == "uv" && args.iter().take_while(|arg| *arg != "tool").any(|arg| arg == "run")
}

/// The project of `uv run`, where it is said: `uv run --directory DIR …`, `uv --project DIR run …`.
pub(super) fn project_of_uv_run(args: &[String]) -> Option<String> {
    args.iter().enumerate().find_map(|(index, arg)| match arg.as_str() {
        "--directory" | "--project" => args.get(index + 1).cloned(),
        flag => ["--directory=", "--project="].iter().find_map(|start| flag.strip_prefix(start)).map(str::to_owned),
    })
}

/// A repository of git in place of a package: `git+https://…`, `name @ git+ssh://…`, `github:owner/name`.
fn is_repository(written: &str) -> bool {
    written.contains("git+") || written.starts_with("git://") || written.starts_with("github:")
}

/// The address of a repository, and the tag or commit that it is to be: `…@TAG` for PyPI, `…#TAG` for npm.
fn split_tag<'a>(written: &'a str, registry: &Registry) -> (&'a str, Option<&'a str>) {
    if registry.word == NPM.word {
        return written.split_once('#').map_or((written, None), |(name, tag)| (name, Some(tag)));
    }
    // Behind `#` stands a folder of it, and an `@` before the last slash is of whoever logs in.
    let address = written.split('#').next().unwrap_or(written);
    let path = address.rfind('/').unwrap_or(0);
    match address.get(path..).and_then(|rest| rest.find('@')).and_then(|at| address.split_at_checked(path + at)) {
        Some((name, tag)) => (name, Some(tag.trim_start_matches('@'))),
        None => (address, None),
    }
}

/// `name@version`, `@scope/name@version`, `name==version`.
fn split_version(written: &str) -> (&str, Option<&str>) {
    if let Some((name, version)) = written.split_once("==") {
        return (without_extras(name), Some(version));
    }
    let from = usize::from(written.starts_with('@'));
    let at = written.char_indices().skip(from).find(|(_, c)| *c == '@').map(|(at, _)| at);
    match at.and_then(|at| written.split_at_checked(at)) {
        Some((name, version)) => (without_extras(name), Some(version.trim_start_matches('@'))),
        None => (without_extras(written), None),
    }
}

/// `mcp[cli]` is `mcp`.
fn without_extras(name: &str) -> &str {
    name.split_once('[').map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> (String, Vec<String>) {
        let mut words = text.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.collect())
    }

    #[test]
    fn a_package_is_found_behind_every_runner() {
        for (line, name, has_version, behind) in [
            ("npx -y @scope/name@1.2.3 /a", "@scope/name", true, 2),
            ("npx name@latest", "name", false, 1),
            ("/opt/node/bin/npx --yes -p name@1 other", "name", true, 4),
            ("npm exec -- name@1 /a", "name", true, 3),
            ("pnpm dlx name", "name", false, 2),
            ("bun x name", "name", false, 2),
            ("uvx name==1.0 --flag", "name", true, 1),
            ("uvx --from mcp[cli]==1.0 mcp", "mcp", true, 3),
            ("uvx --python 3.12 name@1.0", "name", true, 3),
            ("uv tool run name", "name", false, 3),
            ("pipx run --spec name==1 tool", "name", true, 4),
            ("uvx --from git+https://x.example/o/serena serena", "git+https://x.example/o/serena", false, 3),
            ("uvx --from git+https://x.example/o/serena@v1.2 serena", "git+https://x.example/o/serena", true, 3),
            ("uvx --from git+https://x.example/o/serena@main serena", "git+https://x.example/o/serena", false, 3),
            ("uvx git+ssh://git@x.example/o/r#subdirectory=a", "git+ssh://git@x.example/o/r", false, 1),
            ("npx github:o/r#v1", "github:o/r", true, 1),
        ] {
            let (command, args) = words(line);
            let found = fetched(&command, &args).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((found.name.as_str(), found.has_version, found.behind), (name, has_version, behind), "{line}");
        }
        for line in ["node x.js", "npm start", "uv run x", "pipx list", "npx"] {
            let (command, args) = words(line);
            assert_eq!(fetched(&command, &args), None, "{line}");
        }
    }

    #[test]
    fn the_script_of_an_interpreter_is_its_first_argument_that_is_no_flag() {
        for (line, expected) in [
            ("node --no-warnings dist/index.js x", Some(1)),
            ("node -r dotenv/config a.js", Some(2)),
            ("python3.12 server.py", Some(0)),
            ("deno run --allow-net main.ts", Some(2)),
            ("python -m server x.py", None),
            ("node -e 1 x", None),
            ("tool x.py", None),
            ("node", None),
        ] {
            let (command, args) = words(line);
            assert_eq!(script_index(&command, &args), expected, "{line}");
        }
    }

    #[test]
    fn the_project_of_uv_run_is_found_before_and_after_the_word() {
        for (line, expected) in [
            ("uv run --directory /srv/a server", Some(Some("/srv/a"))),
            ("uv --project=/srv/a run server", Some(Some("/srv/a"))),
            ("uv run server.py", Some(None)),
            ("uv tool run server", None),
            ("uvx run", None),
        ] {
            let (command, args) = words(line);
            let found = is_uv_run(&command, &args).then(|| project_of_uv_run(&args));
            assert_eq!(found, expected.map(|project| project.map(str::to_owned)), "{line}");
        }
    }
}
