//! Packages of npm, installed by the machine's own `npm`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use upstreams::import::PackageRequest;

use super::installer::{InstallProgress, Step, away, first_lines, remedy_for_server, run};
use super::{Installed, Unpacked, tree};
use crate::failure::CommandFailure;
use crate::printer::visible;

/// What npm keeps of what it has resolved, with a digest for each package.
const LOCK_FILE: &str = "package-lock.json";
/// Longest name of a package with its version that is shown.
const NAME_CHARS_MAX: usize = 300;
const REMEDY: &str = "install Node.js with npm";

/// Installs a package with everything it needs into a folder that is not there yet.
pub(super) async fn install(
    folder: &Path,
    request: &PackageRequest,
    scripts: bool,
    progress: &dyn InstallProgress,
) -> Result<Unpacked, CommandFailure> {
    let unusable =
        |error: std::io::Error| CommandFailure::new(format!("a folder for the package cannot be made: {error}"));
    fs::create_dir(folder).map_err(unusable)?;
    // A name of its own, or that of the folder would stand in the lock file.
    let project = json!({ "name": "gantry-package", "private": true });
    fs::write(folder.join("package.json"), project.to_string()).map_err(unusable)?;
    let mut words = vec![OsString::from("--save-exact")];
    words.extend(request.options.iter().map(Into::into));
    words.push("--".into());
    words.extend(request.packages.iter().map(Into::into));
    let remedy = remedy_for_server(REMEDY, "npx");
    let (content, said) = run(npm_step(folder, words, scripts, &remedy), progress).await?;
    if !content {
        return Err(refused(&request.packages, &said));
    }
    unpacked(folder, request, scripts)
}

/// Installs what `package.json` of this folder names, as its lock file says if it has one.
pub(super) async fn install_project(
    folder: &Path,
    scripts: bool,
    progress: &dyn InstallProgress,
) -> Result<Installed, CommandFailure> {
    let step = npm_step(folder, Vec::new(), scripts, REMEDY);
    let (content, said) = run(step, progress).await?;
    if !content {
        // The file names many packages; npm says which one it is about.
        let failed = failed_package(&said).unwrap_or_else(|| "package.json".to_owned());
        return Err(refused(&[failed], &said).reasons(first_lines(&said)));
    }
    let lock = fs::read(folder.join(LOCK_FILE)).map_err(|_| unread())?;
    let document: Value = serde_json::from_slice(&lock).map_err(|_| unread())?;
    let packages = document.get("packages").and_then(Value::as_object).ok_or_else(unread)?;
    let lock = with_digests(lock, packages, folder)?;
    Ok(Installed { lock, skipped_scripts: skipped_scripts(packages, scripts) })
}

/// `npm install` in a folder with these words at its end.
fn npm_step<'a>(folder: &'a Path, words: Vec<OsString>, scripts: bool, remedy: &'a str) -> Step<'a> {
    let mut args: Vec<OsString> = ["install", "--location=project", "--prefix"].map(Into::into).into();
    args.push(folder.into());
    args.extend(
        ["--install-links", "--omit=dev", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
            .map(Into::into),
    );
    // INSTALLED-2.
    args.push(if scripts { "--ignore-scripts=false" } else { "--ignore-scripts" }.into());
    args.extend(words);
    Step { program: "npm", args, cwd: folder, watched: folder, input: String::new(), remedy }
}

fn unread() -> CommandFailure {
    CommandFailure::new("npm has left no lock file that can be read").hint("a newer npm may: version 7 or later")
}

/// What the digest of an installation is taken of: a folder of this machine has no digest in the lock file.
fn with_digests(mut lock: Vec<u8>, packages: &Map<String, Value>, folder: &Path) -> Result<Vec<u8>, CommandFailure> {
    for (path, entry) in packages.iter().filter(|(path, entry)| !path.is_empty() && entry.get("integrity").is_none()) {
        let is_link = entry.get("link").is_some();
        let optional = entry.get("optional").is_some();
        match tree::digest(&folder.join(path)) {
            Ok(digest) => lock.extend(digest),
            // What is for another machine only is not there.
            Err(_) if is_link || optional => {}
            Err(error) => return Err(CommandFailure::new(format!("what npm has installed cannot be read: {error}"))),
        }
    }
    Ok(lock)
}

/// Packages whose install scripts were not run.
fn skipped_scripts(packages: &Map<String, Value>, scripts: bool) -> Vec<String> {
    let has_script = |entry: &&Value| entry.get("hasInstallScript").and_then(Value::as_bool) == Some(true);
    let with_scripts = packages.iter().filter(|(_, entry)| !scripts && has_script(entry));
    with_scripts.map(|(path, _)| path.rsplit("node_modules/").next().unwrap_or(path).to_owned()).collect()
}

/// What was installed.
fn unpacked(folder: &Path, request: &PackageRequest, scripts: bool) -> Result<Unpacked, CommandFailure> {
    let lock = fs::read(folder.join(LOCK_FILE)).map_err(|_| unread())?;
    let document: Value = serde_json::from_slice(&lock).map_err(|_| unread())?;
    let packages = document.get("packages").and_then(Value::as_object).ok_or_else(unread)?;
    let wanted = document.pointer("/packages//dependencies").and_then(Value::as_object).ok_or_else(unread)?;
    let name =
        request.package_name().or_else(|| wanted.keys().next().map(String::as_str)).ok_or_else(unread)?.to_owned();
    let entry = packages.get(&format!("node_modules/{name}")).ok_or_else(unread)?;
    let version = entry.get("version").and_then(Value::as_str).ok_or_else(unread)?.to_owned();
    let lock = with_digests(lock, packages, folder)?;
    let command = command(&name, entry, request.command.as_deref())?;
    let command = PathBuf::from("node_modules/.bin").join(command);
    if fs::metadata(folder.join(&command)).is_err() {
        let file = command.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        return Err(CommandFailure::new(format!("`{name}` {version} has no command `{file}`"))
            .hint(commands_hint(&bins(entry))));
    }
    let skipped_scripts = skipped_scripts(packages, scripts);
    Ok(Unpacked { name, version, lock, command, leading: Vec::new(), skipped_scripts })
}

/// Which command of a package is meant, by the rule of `npx`: the only one, or the one with the name of the package.
fn command(name: &str, entry: &Value, named: Option<&str>) -> Result<String, CommandFailure> {
    if let Some(named) = named {
        return if is_command(named) {
            Ok(named.to_owned())
        } else {
            Err(CommandFailure::new(format!("`{}` is no command of a package", visible(named))))
        };
    }
    let bins = bins(entry);
    let own = name.rsplit('/').next().unwrap_or(name);
    let mut scripts: Vec<&str> = bins.values().filter_map(Value::as_str).collect();
    scripts.dedup();
    let chosen = match bins.len() {
        0 => {
            return Err(CommandFailure::new(format!("`{name}` has no command: it is a library, and no server"))
                .hint("look for the package's server in its documentation"));
        }
        _ if bins.contains_key(own) => Some(own),
        _ if scripts.len() == 1 => bins.keys().next().map(String::as_str),
        _ => None,
    };
    chosen.filter(|name| is_command(name)).map(str::to_owned).ok_or_else(|| {
        CommandFailure::new(format!("`{name}` has several commands, and none with its own name"))
            .hint(commands_hint(&bins))
    })
}

fn bins(entry: &Value) -> Map<String, Value> {
    entry.get("bin").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn commands_hint(bins: &Map<String, Value>) -> String {
    let names: Vec<String> = bins.keys().map(|name| visible(name).into_owned()).collect();
    format!(
        "name one: `npx -p PACKAGE COMMAND`; it has {}",
        if names.is_empty() { "none".into() } else { names.join(", ") }
    )
}

/// A name of one file.
fn is_command(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != ".."
}

/// What npm said of these packages, as what happened and what to do.
fn refused(packages: &[String], said: &str) -> CommandFailure {
    let wanted = packages.join(", ");
    let failed = failed_package(said);
    let is_wanted = |failed: &String| packages.iter().any(|wanted| bare_name(wanted) == bare_name(failed));
    // What nobody has named is something that it needs.
    let needed = failed.as_ref().filter(|failed| !is_wanted(failed)).map(|failed| visible(failed).into_owned());
    let name = packages.first().map_or("PACKAGE", |first| bare_name(first));
    let name = if name.starts_with('/') { "PACKAGE" } else { name };
    let is_theirs = format!(
        "another version of it may need something else (`npm view {name} versions`); its authors would like to know"
    );
    if said.contains("code E404") {
        return match needed {
            Some(needed) => CommandFailure::new(format!(
                "`{wanted}` needs `{needed}`, and there is no such package on npm, or it is not yours to see"
            ))
            .hint(is_theirs),
            None => CommandFailure::new(format!("there is no package `{wanted}` on npm, or it is not yours to see"))
                .hint("check its name; a private one needs `npm login`"),
        };
    }
    if said.contains("code ETARGET") || said.contains("code ENOVERSIONS") {
        return match needed {
            Some(needed) => {
                CommandFailure::new(format!("`{wanted}` needs `{needed}`, and there is no such version on npm"))
                    .hint(is_theirs)
            }
            None => CommandFailure::new(format!("there is no such version: `{wanted}`"))
                .hint(format!("`npm view {name} versions` shows those there are")),
        };
    }
    if let Some(failure) = away("npm", said) {
        return failure;
    }
    let lines = said.lines().filter_map(|line| line.strip_prefix("npm error ")).filter(|line| !line.trim().is_empty());
    let first = lines.filter(|line| !line.starts_with("A complete log")).take(3).collect::<Vec<_>>().join("; ");
    CommandFailure::new(format!("npm could not install `{wanted}`: {}", visible(&first)))
        .hint(format!("`npm install {wanted}` in an empty folder shows more"))
}

/// The package that npm says it is about, with its version if it says that, too.
fn failed_package(said: &str) -> Option<String> {
    let behind = |mark: &str| said.split_once(mark).and_then(|(_, rest)| rest.split_whitespace().next());
    let quoted = said.split_once("' is not in this registry").and_then(|(before, _)| before.rsplit('\'').next());
    let fetched = || {
        let address = said.lines().find(|line| line.contains(" 404 "))?.split("://").nth(1)?;
        Some(address.split_whitespace().next()?.split_once('/')?.1)
    };
    // Of two packages that want different versions of a third, the one that does not get its own.
    let of_peer =
        || said.lines().find(|line| line.contains(" peer "))?.rsplit_once(" from ").map(|(_, name)| name.trim());
    let of_folder = || {
        let path = said.lines().find_map(|line| line.strip_prefix("npm error path "))?;
        Some(path.rsplit_once("node_modules/")?.1.trim())
    };
    let found = behind("No matching version found for ")
        .or_else(|| behind("No versions available for "))
        .or(quoted)
        .or_else(|| behind("Not compatible with your version of node/npm: "))
        .or_else(fetched)
        .or_else(of_peer)
        .or_else(of_folder)?;
    let name = found.trim_end_matches(['.', ',', ':']).replace("%2f", "/");
    (!bare_name(&name).is_empty() && name.len() <= NAME_CHARS_MAX).then_some(name)
}

/// A package without its version.
fn bare_name(package: &str) -> &str {
    let from = usize::from(package.starts_with('@'));
    match package.get(from..).and_then(|rest| rest.find('@')) {
        Some(at) => package.get(..at + from).unwrap_or(package),
        None => package,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_chosen_as_npx_does() {
        for (bins, named, expected) in [
            (json!({ "x": "a.js" }), None, Ok("x")),
            (json!({ "pkg": "a.js", "x": "b.js" }), None, Ok("pkg")),
            (json!({ "x": "a.js", "y": "a.js" }), None, Ok("x")),
            (json!({ "x": "a.js", "y": "b.js" }), None, Err("several commands")),
            (json!({}), None, Err("no command")),
            (json!({ "x": "a.js", "y": "b.js" }), Some("y"), Ok("y")),
            (json!({ "x": "a.js" }), Some("../x"), Err("no command of a package")),
        ] {
            let found = command("@scope/pkg", &json!({ "bin": bins }), named);
            match expected {
                Ok(name) => assert_eq!(found.unwrap(), name),
                Err(words) => assert!(found.unwrap_err().message.contains(words), "{bins}"),
            }
        }
    }

    #[test]
    fn what_npm_says_becomes_what_happened_and_what_to_do() {
        let words = ["-y", "@a/b@9"].map(str::to_owned);
        let request = upstreams::import::package_request::read("npx", &words).unwrap().unwrap();
        for (said, message) in [
            ("npm error code E404\nnpm error 404 Not Found", "there is no package `@a/b@9` on npm"),
            ("npm error code ETARGET\nnpm error notarget", "there is no such version: `@a/b@9`"),
            ("npm error code ECONNREFUSED", "the npm registry cannot be reached"),
            ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "shows a certificate"),
            ("npm error code E401", "wants a login"),
            (
                "npm error code ETARGET\nnpm error notarget No matching version found for @a/b@9.\nnpm error notarget In most",
                "there is no such version: `@a/b@9`",
            ),
            (
                "npm error code ETARGET\nnpm error notarget No matching version found for left-pad@^99.0.0.\nnpm error notarget In most",
                "`@a/b@9` needs `left-pad@^99.0.0`, and there is no such version on npm",
            ),
            (
                "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/@x%2flost - Not found\nnpm error 404\nnpm error 404  '@x/lost@^1.0.0' is not in this registry.",
                "`@a/b@9` needs `@x/lost@^1.0.0`, and there is no such package on npm",
            ),
            (
                "npm error code EWEIRD\nnpm error something\nnpm error A complete log of",
                "`@a/b@9`: code EWEIRD; something",
            ),
        ] {
            let failure = refused(&request.packages, said);
            assert!(failure.message.contains(message), "{said}: {}", failure.message);
            assert!(failure.hint.is_some(), "{said}");
        }
    }

    #[test]
    fn of_many_packages_the_one_that_failed_is_named() {
        for (said, name) in [
            (
                "npm error code ETARGET\nnpm error notarget No matching version found for left-pad@99.0.0.",
                "left-pad@99.0.0",
            ),
            ("npm error code E404\nnpm error 404  '@x/lost@*' is not in this registry.", "@x/lost@*"),
            ("npm error code E404\nnpm error 404 Not Found - GET https://r.example/@x%2flost - Not found", "@x/lost"),
            ("npm error code ENOVERSIONS\nnpm error No versions available for empty", "empty"),
            (
                "npm error code ERESOLVE\nnpm error Found: react@18.2.0\nnpm error peer react@\"^16.0.0\" from old-lib@1.0.0\nnpm error node_modules/old-lib",
                "old-lib@1.0.0",
            ),
            ("npm error code 1\nnpm error path /srv/x/node_modules/@a/native\nnpm error command failed", "@a/native"),
            (
                "npm error code EBADENGINE\nnpm error Not compatible with your version of node/npm: next@99.0.0",
                "next@99.0.0",
            ),
        ] {
            assert_eq!(failed_package(said).as_deref(), Some(name), "{said}");
        }
        assert_eq!(failed_package("npm error code EUSAGE"), None);
        let words = refused(
            &["left-pad@99.0.0".to_owned()],
            "npm error code ETARGET\nnpm error notarget No matching version found for left-pad@99.0.0.",
        );
        assert_eq!(words.message, "there is no such version: `left-pad@99.0.0`");
        assert_eq!(words.hint.unwrap(), "`npm view left-pad versions` shows those there are");
    }
}
