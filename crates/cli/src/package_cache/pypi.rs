//! Packages of PyPI, installed by the machine's own `uv` into a virtual environment of their own.
//!
//! First everything is resolved to versions with digests, then exactly that is installed. The environment can be moved
//! (`--relocatable`), its files are copies and no links into the cache of `uv`, and its modules are compiled now, because a
//! server cannot write beside them later.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use upstreams::import::PackageRequest;

use super::installer::{InstallProgress, Step, away, first_lines, run};
use super::{Installed, Unpacked};
use crate::failure::Failure;
use crate::printer::visible;

/// What was resolved, with a digest for each package.
const LOCK_FILE: &str = "requirements.lock";
const REMEDY: &str = "install uv (`pip install uv`), or add the server with --no-package";

/// Installs a package with everything it needs into a folder that is not there yet.
pub(super) async fn install(
    folder: &Path,
    request: &PackageRequest,
    scripts: bool,
    progress: &dyn InstallProgress,
) -> Result<Unpacked, Failure> {
    let cwd = folder.parent().unwrap_or(folder);
    let mut args: Vec<OsString> = ["venv", "--quiet", "--no-project", "--relocatable"].map(Into::into).into();
    if let Some(version) = &request.python {
        args.extend(["--python".into(), version.into()]);
    }
    args.push(folder.into());
    let (packages, version) = (request.packages.join(", "), request.python.as_deref());
    let step = Step { program: "uv", args, cwd, watched: folder, input: String::new(), remedy: REMEDY };
    let (content, said) = run(step, progress).await?;
    if !content {
        return Err(refused(&packages, version, &said));
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
        remedy: REMEDY,
    };
    let installed = resolution.install(progress).await?;
    installed.map_err(|said| refused(&packages, version, &said))?;
    unpacked(folder, request)
}

/// Installs what files of a folder name into `target`, for this Python. Answers what the digest is taken of.
pub(super) async fn install_project(
    (folder, files): (&Path, Vec<PathBuf>),
    (python, target): (PathBuf, PathBuf),
    scripts: bool,
    progress: &dyn InstallProgress,
) -> Result<Installed, Failure> {
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
        remedy: "install uv (`pip install uv`)",
    };
    let installed = resolution.install(progress).await?;
    installed.map_err(|said| {
        // The files name many packages; uv says which one it is about.
        let missing = said.split_once(" was not found").and_then(|(before, _)| before.rsplit(' ').next());
        refused(missing.unwrap_or(&names.join(", ")), None, &said).reasons(first_lines(&said))
    })?;
    let lock = fs::read(&lock).map_err(|_| Failure::new("uv has left no lock file that can be read"))?;
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
    remedy: &'static str,
}

impl Resolution<'_> {
    /// The inner error is what uv said.
    async fn install(&self, progress: &dyn InstallProgress) -> Result<Result<(), String>, Failure> {
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
        // CACHE-2: what is built runs code of its author.
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
fn unpacked(folder: &Path, request: &PackageRequest) -> Result<Unpacked, Failure> {
    let unread = || Failure::new("uv has left no environment that can be read");
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

fn no_command(name: &str, version: &str, wanted: &str, scripts: &[String]) -> Failure {
    match scripts {
        [] => Failure::new(format!("`{name}` {version} has no command: it is a library, and no server"))
            .hint("look for the package's server in its documentation"),
        some => Failure::new(format!("`{name}` {version} has no command `{}`", visible(wanted)))
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

fn refused(package: &str, python: Option<&str>, said: &str) -> Failure {
    if let Some(failure) = away("PyPI", said) {
        return failure;
    }
    if said.contains("no usable wheels")
        || said.contains("building from source is disabled")
        || said.contains("building source distributions is disabled")
    {
        return Failure::new(format!(
            "`{package}`, or something it needs, has to be built, which runs its code outside of every sandbox"
        ))
        .hint("--allow-install-scripts lets it be built");
    }
    if said.contains("was not found in the package registry") || said.contains("not found in the cache") {
        return Failure::new(format!("there is no package `{package}` on PyPI, or something it needs is not there"))
            .hint("check its name, and the index of uv for a private one");
    }
    if said.contains("there is no version of") {
        return Failure::new(format!("there is no such version: `{package}`"))
            .hint("PyPI's page of the package shows those there are");
    }
    if said.contains("No interpreter found") {
        return Failure::new(format!("there is no Python {} for uv", python.unwrap_or_default()))
            .hint("`uv python install VERSION` gets one");
    }
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join("; ");
    Failure::new(format!("uv could not install `{package}`: {}", visible(&lines)))
        .hint(format!("`uv pip install {package}` in an environment of your own shows more"))
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
            ("cause: error sending request for url", "the PyPI registry cannot be reached"),
            ("cause: invalid peer certificate: UnknownIssuer", "shows a certificate"),
            ("cause: Because all versions of docopt have no usable wheels and", "has to be built"),
            ("error: something else\n  cause: x", "error: something else; cause: x"),
        ] {
            let failure = refused(&request.packages.join(", "), request.python.as_deref(), said);
            assert!(failure.message.contains(message), "{said}: {}", failure.message);
            assert!(failure.hint.is_some(), "{said}");
        }
    }
}
