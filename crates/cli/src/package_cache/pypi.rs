//! Packages of PyPI, installed by the machine's own `uv` into a virtual environment of their own.
//!
//! First everything is resolved to versions with digests, then exactly that is installed. The environment can be moved
//! (`--relocatable`), its files are copies and no links into the cache of `uv`, and its modules are compiled now, because a
//! server cannot write beside them later.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use upstreams::import::PackageRequest;

use super::installer::{InstallProgress, Step, away, first_lines, remedy_for_server, run};
use super::{Installed, Unpacked};
use crate::failure::CommandFailure;
use crate::printer::visible;

/// What was resolved, with a digest for each package.
const LOCK_FILE: &str = "requirements.lock";
/// Longest name of a package with its version that is shown.
const NAME_CHARS_MAX: usize = 300;
const REMEDY: &str = "install uv (`pip install uv`)";

/// Installs a package with everything it needs into a folder that is not there yet.
pub(super) async fn install(
    folder: &Path,
    request: &PackageRequest,
    scripts: bool,
    progress: &dyn InstallProgress,
) -> Result<Unpacked, CommandFailure> {
    let cwd = folder.parent().unwrap_or(folder);
    let mut args: Vec<OsString> = ["venv", "--quiet", "--no-project", "--relocatable"].map(Into::into).into();
    if let Some(version) = &request.python {
        args.extend(["--python".into(), version.into()]);
    }
    args.push(folder.into());
    let (packages, version) = (&request.packages, request.python.as_deref());
    let remedy = remedy_for_server(REMEDY, "uvx");
    let step = Step { program: "uv", args, cwd, watched: folder, input: String::new(), remedy: &remedy };
    let (content, said) = run(step, progress).await?;
    if !content {
        return Err(refused(packages, version, &said));
    }
    let resolution = Resolution {
        cwd,
        watched: folder,
        python: folder.join("bin").join("python"),
        files: Vec::new(),
        wanted: request.packages.iter().map(|package| requirement(package)).collect::<Vec<_>>().join("\n"),
        lock: folder.join(LOCK_FILE),
        target: None,
        options: &request.options,
        scripts,
        remedy: &remedy,
    };
    let installed = resolution.install(progress).await?;
    installed.map_err(|said| refused(packages, version, &said))?;
    unpacked(folder, request)
}

/// Installs what files of a folder name into `target`, for this Python. Answers what the digest is taken of.
pub(super) async fn install_project(
    (folder, files): (&Path, Vec<PathBuf>),
    (python, target): (PathBuf, PathBuf),
    scripts: bool,
    progress: &dyn InstallProgress,
) -> Result<Installed, CommandFailure> {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let above = target.parent().unwrap_or(&target).to_owned();
    let lock = above.join(LOCK_FILE);
    let resolution = Resolution {
        cwd: folder,
        watched: &above,
        python,
        files,
        wanted: String::new(),
        lock: lock.clone(),
        target: Some(target),
        options: &[],
        scripts,
        remedy: REMEDY,
    };
    let installed = resolution.install(progress).await?;
    installed.map_err(|said| {
        // The files name many packages; uv says which one it is about.
        let named = failed_package(&said).map_or(names, |failed| vec![failed]);
        let failure = refused(&named, None, &said).reasons(first_lines(&said));
        // Which Python it is, the tool itself says.
        if wrong_python(&said) {
            return failure.hint("name such a Python in `command` of the tool's `[execution]`, and build it again");
        }
        failure
    })?;
    let lock = fs::read(&lock).map_err(|_| CommandFailure::new("uv has left no lock file that can be read"))?;
    // Nothing is built without leave, so there are no scripts that could have been left out.
    Ok(Installed { lock, skipped_scripts: Vec::new() })
}

/// What uv resolves to versions with digests, and then installs exactly so.
struct Resolution<'a> {
    cwd: &'a Path,
    /// What grows.
    watched: &'a Path,
    python: PathBuf,
    /// Files that name packages; where there are none, `wanted` names them.
    files: Vec<PathBuf>,
    wanted: String,
    lock: PathBuf,
    /// Where packages go that do not go into the environment of `python`.
    target: Option<PathBuf>,
    options: &'a [String],
    scripts: bool,
    remedy: &'a str,
}

impl Resolution<'_> {
    /// The inner error is what uv said.
    async fn install(&self, progress: &dyn InstallProgress) -> Result<Result<(), String>, CommandFailure> {
        let mut args: Vec<OsString> =
            ["pip", "compile", "--generate-hashes", "--no-header", "--no-annotate"].map(Into::into).into();
        match self.files.as_slice() {
            [] => args.push("-".into()),
            files => args.extend(files.iter().map(Into::into)),
        }
        args.extend(["--output-file".into(), OsString::from(&self.lock)]);
        let (content, said) = run(self.step(args, self.wanted.clone()), progress).await?;
        if !content {
            return Ok(Err(said));
        }
        let mut args: Vec<OsString> =
            ["pip", "install", "--require-hashes", "--link-mode", "copy"].map(Into::into).into();
        match &self.target {
            Some(target) => args.extend(["--target".into(), OsString::from(target)]),
            None => args.push("--compile-bytecode".into()),
        }
        args.extend(["--requirement".into(), OsString::from(&self.lock)]);
        let (content, said) = run(self.step(args, String::new()), progress).await?;
        Ok(if content { Ok(()) } else { Err(said) })
    }

    fn step(&self, mut args: Vec<OsString>, input: String) -> Step<'_> {
        args.extend(["--quiet".into(), "--python".into(), OsString::from(&self.python)]);
        // INSTALLED-2: what is built runs code of its author.
        if !self.scripts {
            args.push("--no-build".into());
        }
        args.extend(self.options.iter().map(Into::into));
        Step { program: "uv", args, cwd: self.cwd, watched: self.watched, input, remedy: self.remedy }
    }
}

/// A file of this machine is named by its address.
fn requirement(package: &str) -> String {
    if package.starts_with('/') { format!("file://{package}") } else { package.to_owned() }
}

/// What was installed.
fn unpacked(folder: &Path, request: &PackageRequest) -> Result<Unpacked, CommandFailure> {
    let unread = || CommandFailure::new("uv has left no environment that can be read");
    let lock = fs::read(folder.join(LOCK_FILE)).map_err(|_| unread())?;
    let text = String::from_utf8_lossy(&lock).into_owned();
    let name = match request.package_name() {
        Some(name) => normalized(name),
        None => {
            let local = text.lines().find_map(|line| line.split_once(" @ file:")).map(|(name, _)| normalized(name));
            local.ok_or_else(unread)?
        }
    };
    let about = information(folder, &name).ok_or_else(unread)?;
    let version = about
        .file_name()
        .and_then(|file| {
            file.to_str()?.strip_suffix(".dist-info")?.split_once('-').map(|(_, version)| version.to_owned())
        })
        .ok_or_else(unread)?;
    let is_name = |wanted: &str| !wanted.is_empty() && !wanted.contains(['/', '\0']) && !wanted.starts_with('.');
    let has = |wanted: &String| is_name(wanted) && fs::symlink_metadata(folder.join("bin").join(wanted)).is_ok();
    // A command has its package's name as that is written, with dots and capitals, or as it is compared.
    let as_written = request.package_name().map(str::to_owned).filter(has);
    let wanted = request.command.clone().or(as_written).unwrap_or_else(|| name.clone());
    let script = Path::new("bin").join(&wanted);
    if !has(&wanted) {
        let scripts =
            fs::read_to_string(about.join("entry_points.txt")).map(|text| console_scripts(&text)).unwrap_or_default();
        return Err(no_command(&name, &version, &wanted, &scripts));
    }
    let (command, leading) = (PathBuf::from("bin/python"), vec![script]);
    Ok(Unpacked { name, version, lock, command, leading, skipped_scripts: Vec::new() })
}

fn no_command(name: &str, version: &str, wanted: &str, scripts: &[String]) -> CommandFailure {
    match scripts {
        [] => CommandFailure::new(format!("`{name}` {version} has no command: it is a library, and no server"))
            .hint("look for the package's server in its documentation"),
        some => CommandFailure::new(format!("`{name}` {version} has no command `{}`", visible(wanted)))
            .hint(format!("name one: `uvx --from {name} COMMAND`; it has {}", visible(&some.join(", ")))),
    }
}

/// The folder with what is known of an installed package.
fn information(folder: &Path, name: &str) -> Option<PathBuf> {
    let versions =
        fs::read_dir(folder.join("lib")).ok()?.filter_map(|entry| Some(entry.ok()?.path().join("site-packages")));
    let entries = versions.filter_map(|packages| fs::read_dir(packages).ok()).flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        let file = path.file_name().and_then(|file| file.to_str()?.strip_suffix(".dist-info"));
        file.and_then(|file| file.split_once('-')).is_some_and(|(own, _)| normalized(own) == name)
    })
}

/// The names of the commands in `entry_points.txt`.
fn console_scripts(text: &str) -> Vec<String> {
    let section = text.lines().map(str::trim).skip_while(|line| *line != "[console_scripts]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim().to_owned()).collect()
}

/// `Mcp_Server.time` is `mcp-server-time`.
fn normalized(name: &str) -> String {
    let parts: Vec<&str> = name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
    parts.join("-").to_ascii_lowercase()
}

/// What uv said of these packages, as what happened and what to do.
fn refused(packages: &[String], python: Option<&str>, said: &str) -> CommandFailure {
    let wanted = packages.join(", ");
    if let Some(failure) = no_python(&wanted, python, said) {
        return failure;
    }
    if let Some(failure) = away("PyPI", said) {
        return failure;
    }
    let failed = failed_package(said);
    let is_wanted = |failed: &String| packages.iter().any(|wanted| bare_name(wanted) == bare_name(failed));
    // What nobody has named is something that it needs.
    let needed = failed.as_ref().filter(|failed| !is_wanted(failed)).map(|failed| visible(failed).into_owned());
    let is_theirs = "another version of it may need something else; its authors would like to know";
    if said.contains("no usable wheels")
        || said.contains("building from source is disabled")
        || said.contains("building source distributions is disabled")
    {
        let which = match needed {
            Some(needed) => format!("`{needed}`, which `{wanted}` needs, has to be built"),
            None if failed.is_some() => format!("`{wanted}` has to be built"),
            None => format!("`{wanted}`, or something it needs, has to be built"),
        };
        return CommandFailure::new(format!("{which}, which runs its code outside of every sandbox"))
            .hint("--allow-install-scripts lets it be built");
    }
    if said.contains("was not found in the package registry") || said.contains("not found in the cache") {
        return match needed {
            Some(needed) => {
                CommandFailure::new(format!("`{wanted}` needs `{needed}`, and there is no such package on PyPI"))
                    .hint(is_theirs)
            }
            None => CommandFailure::new(format!("there is no package `{wanted}` on PyPI"))
                .hint("check its name, and the index of uv for a private one"),
        };
    }
    if said.contains("there is no version of") || said.contains("there are no versions of") {
        return match needed {
            Some(needed) => {
                CommandFailure::new(format!("`{wanted}` needs `{needed}`, and there is no such version on PyPI"))
                    .hint(is_theirs)
            }
            None => CommandFailure::new(format!("there is no such version: `{wanted}`"))
                .hint("PyPI's page of the package shows those there are"),
        };
    }
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join("; ");
    CommandFailure::new(format!("uv could not install `{wanted}`: {}", visible(&lines)))
        .hint(format!("`uv pip install {}` in an environment of your own shows more", installable(packages)))
}

/// Does a package need another Python than the one it is for?
fn wrong_python(said: &str) -> bool {
    said.split_whitespace().collect::<Vec<_>>().join(" ").contains("does not satisfy Python")
}

/// Packages as `uv pip install` takes them: a file that names some stands behind `-r`.
fn installable(packages: &[String]) -> String {
    let is_file = |package: &str| matches!(package, "requirements.txt" | "pyproject.toml");
    let words = packages.iter().map(|package| if is_file(package) { format!("-r {package}") } else { package.clone() });
    words.collect::<Vec<_>>().join(" ")
}

/// The interpreter that is wanted is not there, cannot be fetched, or is another one than the package needs.
fn no_python(wanted: &str, python: Option<&str>, said: &str) -> Option<CommandFailure> {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let version = python.map(|version| format!("Python {}", visible(version))).unwrap_or_else(|| "a Python".to_owned());
    // Interpreters of uv's own come from there, and packages do not.
    let of_github = ["python-build-standalone", "Failed to install cpython-", "Failed to download managed Python"];
    if of_github.iter().any(|sign| said.contains(sign)) {
        return Some(
            CommandFailure::new(format!("uv could not fetch {version}, which comes from GitHub and not from PyPI"))
                .hint(
                    "install that Python on this machine, where uv finds it; or let uv reach github.com \
                 (`UV_PYTHON_INSTALL_MIRROR` names a mirror); then do this again",
                ),
        );
    }
    if said.contains("No interpreter found") {
        return Some(
            CommandFailure::new(format!("there is no {} for uv", version.trim_start_matches("a ")))
                .hint("install it on this machine, or let `uv python install VERSION` fetch one"),
        );
    }
    // `the current Python version (3.9.6) does not satisfy Python>=3.11`
    let (before, after) = said.split_once("does not satisfy Python")?;
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '<' | '>' | '=' | '!' | '~' | '*');
    let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
    let needed = after.get(..end)?.trim_end_matches([',', '.']);
    let found = before.rsplit_once('(').and_then(|(_, rest)| rest.split(')').next());
    let found = found.map(|found| format!(", and not {}", visible(found))).unwrap_or_default();
    let least = needed.split(',').find_map(|part| part.strip_prefix(">=")).filter(|version| !version.is_empty());
    let failure = CommandFailure::new(format!("`{wanted}` needs Python {needed}{found}"));
    Some(match least {
        Some(least) => failure.hint(format!(
            "name that one: `uvx --python {least} …`; uv takes it from this machine, or fetches it from GitHub \
             (`uv python install {least}`)"
        )),
        None => failure.hint("install such a Python on this machine, and name it: `uvx --python VERSION …`"),
    })
}

/// The package that uv says it is about, with its version if it says that, too.
fn failed_package(said: &str) -> Option<String> {
    // Its sentences are broken into lines to fit a terminal.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let behind = |mark: &str| said.split_once(mark).and_then(|(_, rest)| rest.split(' ').next());
    let before = |mark: &str| said.split_once(mark).and_then(|(before, _)| before.rsplit(' ').next());
    let in_ticks = |mark: &str| said.split_once(mark).and_then(|(_, rest)| rest.split(['`', ' ']).next());
    let fetched = || {
        let (_, address) = said.split_once("Failed to fetch: `")?;
        let (_, rest) = address.split_once("/simple/")?;
        rest.split(['/', '`']).next()
    };
    let found = before(" was not found in")
        .or_else(|| behind("there is no version of "))
        .or_else(|| behind("there are no versions of "))
        .or_else(|| before(" has no usable wheels"))
        .or_else(|| before(" have no usable wheels"))
        .or_else(|| before(" has no wheels"))
        .or_else(|| before(" have no wheels"))
        .or_else(|| in_ticks("Wheels are required for `"))
        .or_else(|| in_ticks("Failed to build `"))
        .or_else(|| in_ticks("Failed to download `"))
        .or_else(|| in_ticks("Failed to parse: `"))
        .or_else(|| in_ticks("Distribution `"))
        .or_else(fetched)
        .or_else(|| before(" depends on Python"))
        .or_else(|| before(" depend on Python"))
        .or_else(|| before(" depends on "))
        .or_else(|| behind("Because only "))?;
    let name = found.trim_matches(['`', ',', '.', ':', '(', ')']);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= NAME_CHARS_MAX;
    is_name.then(|| name.to_owned())
}

/// A package without its version and extras, as names are compared.
fn bare_name(package: &str) -> String {
    normalized(package.split(['=', '<', '>', '~', '!', '[', '{', ';', '@', ' ']).next().unwrap_or(package))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages_and_commands_are_read_as_they_are_written() {
        assert_eq!(normalized("Mcp_Server.Time"), "mcp-server-time");
        let text = "[gui_scripts]\nz = x\n[console_scripts]\nmcp-server-time = a:main\nother=b:c\n[x]\ny = z\n";
        assert_eq!(console_scripts(text), ["mcp-server-time", "other"]);
        assert!(console_scripts("").is_empty());
        assert!(no_command("a", "1", "a", &["b".into()]).hint.unwrap().contains("uvx --from a COMMAND"));
        assert!(no_command("a", "1", "a", &[]).message.contains("library"));
    }

    #[test]
    fn what_uv_says_becomes_what_happened_and_what_to_do() {
        let request = upstreams::import::package_request::read("uvx", &["name==9".to_owned()]).unwrap().unwrap();
        for (said, message) in [
            ("cause: Because name was not found in the package registry and", "there is no package `name==9`"),
            ("cause: Because there is no version of name==9 and", "there is no such version"),
            (
                "cause: Because there is no version of mcp==99 and name==9 depends on mcp==99, we can conclude",
                "`name==9` needs `mcp==99`, and there is no such version on PyPI",
            ),
            (
                "cause: Because lost was not found in the package registry and name==9 depends on lost, we can conclude",
                "`name==9` needs `lost`, and there is no such package on PyPI",
            ),
            (
                "cause: Because all versions of docopt have no usable wheels and name==9 depends on docopt",
                "`docopt`, which `name==9` needs, has to be built",
            ),
            ("cause: error sending request for url", "the PyPI registry cannot be reached"),
            ("cause: invalid peer certificate: UnknownIssuer", "shows a certificate"),
            ("cause: Because all versions of docopt have no usable wheels and", "has to be built"),
            ("error: something else\n  cause: x", "error: something else; cause: x"),
            (
                "error: Failed to install cpython-3.12.9-linux-x86_64-gnu\n  cause: Failed to download https://github.com/astral-sh/python-build-standalone/x\n  cause: error sending request for url",
                "uv could not fetch a Python, which comes from GitHub and not from PyPI",
            ),
            (
                "  ╰─▶ Because the current Python version (3.9.6) does not satisfy\n      Python>=3.12 and name==9 depends on Python>=3.12, we",
                "`name==9` needs Python >=3.12, and not 3.9.6",
            ),
        ] {
            let failure = refused(&request.packages, request.python.as_deref(), said);
            assert!(failure.message.contains(message), "{said}: {}", failure.message);
            assert!(failure.hint.is_some(), "{said}");
        }
    }

    #[test]
    fn a_python_that_is_missing_is_named_with_the_way_to_it() {
        let missing = refused(&["name".to_owned()], Some("3.12"), "error: No interpreter found for Python 3.12 in");
        assert_eq!(missing.message, "there is no Python 3.12 for uv");
        let other = "the current Python version (3.9.6) does not satisfy Python>=3.12,<4 and name depends on";
        let hint = refused(&["name".to_owned()], None, other).hint.unwrap();
        assert!(hint.contains("`uvx --python 3.12 …`"), "{hint}");
    }

    #[test]
    fn a_file_of_packages_is_given_to_uv_as_one() {
        let hint = refused(&["requirements.txt".to_owned()], None, "error: it is broken").hint.unwrap();
        assert!(hint.starts_with("`uv pip install -r requirements.txt`"), "{hint}");
        let both = ["requirements.txt", "pyproject.toml"].map(str::to_owned);
        assert_eq!(installable(&both), "-r requirements.txt -r pyproject.toml");
        assert_eq!(installable(&["a==1".to_owned()]), "a==1");
    }

    #[test]
    fn of_many_packages_the_one_that_failed_is_named() {
        for (said, name) in [
            (
                "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of\n      requests==99 and you require requests==99, we",
                "requests==99",
            ),
            ("  ╰─▶ Because no-such was not found in the package registry and you require no-such, we can", "no-such"),
            ("  ╰─▶ Because all versions of docopt have no usable wheels and you require docopt, we", "docopt"),
            ("  ╰─▶ Because cornac>=1.15.1,<=1.18.0 has no usable wheels, we can conclude", "cornac>=1.15.1,<=1.18.0"),
            ("  × Failed to build `native==1.0`\n  ├─▶ The build backend returned an error", "native==1.0"),
            ("error: Failed to fetch: `https://pypi.example/simple/private/`\n  Caused by: HTTP status 401", "private"),
            (
                "  ╰─▶ Because the current Python version (3.9.6) does not satisfy Python>=3.11 and rooster-blue==1 depends on Python>=3.11, we",
                "rooster-blue==1",
            ),
            (
                "  ╰─▶ Because gensim==3.8.3 depends on numpy<=1.16.1 and you require gensim==3.8.3, we can conclude that you require numpy<=1.16.1.",
                "gensim==3.8.3",
            ),
        ] {
            assert_eq!(failed_package(said).as_deref(), Some(name), "{said}");
        }
        assert_eq!(failed_package("error: something else"), None);
    }
}
