//! The packages of a tool's folder: what `requirements.txt`, `pyproject.toml` and `package.json` name, installed once into the folder
//! itself by the machine's own `uv` and `npm`. (decision 0107)
//!
//! ```text
//! requirements.txt, pyproject.toml, package.json    what the author writes
//! gantry-packages/gantry-packages.json              what was installed from what, with a digest
//! gantry-packages/requirements.lock, python/        for Python: PYTHONPATH of the tool leads there
//! package-lock.json, node_modules/                  for Node.js, where it looks by itself
//! ```
//!
//! The folder is what the tool is given, read-only, so the packages come with it wherever it goes: into the data directory by
//! `gantry tool add`, and into the sandbox.
//!
//! Invariants
//! - TPKG-1: the record is there only beside a whole installation: it is taken away first and written last.
//! - TPKG-2: install scripts and builds run only if the author has said so (INSTALLED-2), and everything is bounded as for packages of
//!   servers (INSTALLED-3).

use contract::hex::lower_hex;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use contract::manifest::{Execution, Manifest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{InstallProgress, Installed, digest_of, npm, pypi, scripts_warning, tree};
use crate::failure::CommandFailure;

/// Where what Gantry installs is kept in the folder, apart from what Node.js wants elsewhere.
const PACKAGES: &str = "gantry-packages";
const RECORD: &str = "gantry-packages.json";
const LOCK: &str = ".building.lock";
const FRESH: &str = ".fresh";
/// A file that names packages is a page, not a database.
const SOURCE_BYTES_MAX: u64 = 4 << 20;
/// Where the sandbox looks for programs.
const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// What was installed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuildRecord {
    /// Of the lock files; another one is another environment.
    pub(crate) digest: String,
    /// The files that named packages, each with the digest of what it said.
    pub(crate) sources: Vec<PackageFile>,
    /// Install scripts and builds were allowed.
    pub(crate) scripts: bool,
    /// The interpreter that the packages of Python are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) python: Option<PathBuf>,
    pub(crate) bytes: u64,
}

/// A file that names packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackageFile {
    pub(crate) file: String,
    sha256: String,
}

/// How a folder stands.
#[derive(Debug, PartialEq)]
pub(crate) enum PackagesState {
    /// No file of it names packages.
    NoneNamed,
    /// What its files name is installed.
    Built(Box<BuildRecord>),
    /// These files name packages that are not, or not so, installed.
    NotBuilt(Vec<String>),
}

/// What was built.
#[derive(Debug)]
pub(crate) struct BuiltPackages {
    pub(crate) record: BuildRecord,
    pub(crate) warnings: Vec<String>,
}

/// How the packages of a folder stand.
pub(crate) fn state(folder: &Path) -> Result<PackagesState, CommandFailure> {
    let sources = sources(folder)?;
    if sources.is_empty() {
        return Ok(PackagesState::NoneNamed);
    }
    let record = fs::read(folder.join(PACKAGES).join(RECORD)).ok();
    let record = record.and_then(|text| serde_json::from_slice::<BuildRecord>(&text).ok());
    Ok(match record.filter(|record| record.sources == sources) {
        Some(record) => PackagesState::Built(Box::new(record)),
        None => PackagesState::NotBuilt(sources.into_iter().map(|source| source.file).collect()),
    })
}

/// What to tell somebody about a folder whose packages are not installed; nothing about any other.
pub(crate) fn unbuilt_warning(folder: &Path) -> Option<String> {
    match state(folder) {
        Ok(PackagesState::NotBuilt(files)) => Some(format!(
            "{} of `{}` names packages that are not installed for the tool: `gantry tool build {}` installs them",
            files.join(" and "),
            folder.file_name().unwrap_or_default().to_string_lossy(),
            folder.display(),
        )),
        Ok(_) => None,
        Err(failure) => Some(failure.message),
    }
}

/// Installs what the files of a tool's folder name. Whoever drops the future breaks it off; the folder counts as not built then.
pub(crate) async fn build(
    folder: &Path,
    manifest: &Manifest,
    scripts: bool,
    progress: &dyn InstallProgress,
) -> Result<Option<BuiltPackages>, CommandFailure> {
    let folder = folder.canonicalize().map_err(|error| unusable(folder, &error))?;
    let sources = sources(&folder)?;
    if sources.is_empty() {
        return Ok(None);
    }
    let packages = folder.join(PACKAGES);
    fs::create_dir_all(&packages).map_err(|error| unusable(&packages, &error))?;
    let lock = File::create(packages.join(LOCK)).map_err(|error| unusable(&packages, &error))?;
    if lock.try_lock().is_err() {
        return Err(CommandFailure::new("the folder is being built by another command").hint("wait for its end"));
    }
    // TPKG-1.
    remove_file(&packages.join(RECORD)).map_err(|error| unusable(&packages, &error))?;
    let is_node = |source: &PackageFile| source.file == "package.json";
    let of_python: Vec<PathBuf> =
        sources.iter().filter(|source| !is_node(source)).map(|source| PathBuf::from(&source.file)).collect();
    let mut installed = Vec::new();
    let python = (!of_python.is_empty()).then(|| interpreter(manifest));
    if let Some(python) = &python {
        installed.push(install_python(&folder, &packages, of_python, python.clone(), (scripts, progress)).await?);
    }
    if sources.iter().any(is_node) {
        // Anew: npm runs no script of a package that it finds installed, and leaves what nobody names any more.
        tree::remove(&folder.join("node_modules")).map_err(|error| unusable(&folder, &error))?;
        installed.push(npm::install_project(&folder, scripts, progress).await?);
    }
    let all: Vec<u8> = installed.iter().flat_map(|installed| installed.lock.iter().copied()).collect();
    let skipped: Vec<String> = installed.into_iter().flat_map(|installed| installed.skipped_scripts).collect();
    // Tools run as nobody, and the mask of whoever builds may be for one person only.
    let opened = [PACKAGES, "node_modules", "package-lock.json"].iter().map(|name| folder.join(name));
    let mut bytes = 0;
    for made in opened {
        if !made.try_exists().map_err(|error| unusable(&made, &error))? {
            continue;
        }
        tree::open_for_reading(&made, None).map_err(|error| unusable(&made, &error))?;
        bytes += tree::size(&made).map_err(|error| unusable(&made, &error)).map_or(0, |size| size.bytes);
    }
    let record = BuildRecord { digest: digest_of(&all, scripts), sources, scripts, python, bytes };
    let text = serde_json::to_string_pretty(&record).unwrap_or_default();
    fs::write(packages.join(RECORD), text).map_err(|error| unusable(&packages, &error))?;
    tree::open_one(&packages.join(RECORD), None).map_err(|error| unusable(&packages, &error))?;
    let warnings = if skipped.is_empty() { Vec::new() } else { vec![scripts_warning(&skipped)] };
    Ok(Some(BuiltPackages { record, warnings }))
}

/// Under another name first: a tool that runs meanwhile has the former packages until the new ones are whole.
async fn install_python(
    folder: &Path,
    packages: &Path,
    files: Vec<PathBuf>,
    python: PathBuf,
    (scripts, progress): (bool, &dyn InstallProgress),
) -> Result<Installed, CommandFailure> {
    let fresh = packages.join(FRESH);
    let unusable = |error: io::Error| unusable(packages, &error);
    tree::remove(&fresh).map_err(unusable)?;
    fs::create_dir(&fresh).map_err(unusable)?;
    let target = (python, fresh.join("python"));
    let installed = pypi::install_project((folder, files), target, scripts, progress).await?;
    for name in ["python", "requirements.lock"] {
        let (from, to) = (fresh.join(name), packages.join(name));
        if to.is_dir() {
            tree::remove(&to).map_err(unusable)?;
        }
        // Where nothing had to be installed there is no folder.
        if from.try_exists().map_err(unusable)? {
            fs::rename(&from, &to).map_err(unusable)?;
        }
    }
    tree::remove(&fresh).map_err(unusable)?;
    Ok(installed)
}

/// The Python that the sandbox starts for this tool: what is installed has to fit it, and not the one that happens to be first
/// for whoever builds.
fn interpreter(manifest: &Manifest) -> PathBuf {
    let command = match &manifest.execution {
        Some(Execution::Process { command, .. }) => command.first().map(String::as_str),
        _ => None,
    };
    let named = command.filter(|command| command.rsplit('/').next().is_some_and(|name| name.starts_with("python")));
    let named = Path::new(named.unwrap_or("python3"));
    let found =
        SYSTEM_PROGRAMS.iter().map(|folder| Path::new(folder).join(named)).find(|path| fs::metadata(path).is_ok());
    found.unwrap_or_else(|| named.to_owned())
}

/// Does a text of its kind name packages?
type NamesPackages = fn(&str) -> bool;

/// The files of a folder that name packages, each with the digest of its text.
fn sources(folder: &Path) -> Result<Vec<PackageFile>, CommandFailure> {
    let kinds: [(&str, NamesPackages); 3] = [
        ("requirements.txt", names_requirements),
        ("pyproject.toml", names_dependencies_in_toml),
        ("package.json", names_dependencies_in_json),
    ];
    let mut found = Vec::new();
    for (file, names_some) in kinds {
        let path = folder.join(file);
        let text = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unusable(&path, &error)),
            Ok(about) if about.len() > SOURCE_BYTES_MAX => {
                return Err(CommandFailure::new(format!("`{file}` is larger than {SOURCE_BYTES_MAX} bytes")));
            }
            Ok(_) => fs::read_to_string(&path).map_err(|error| unusable(&path, &error))?,
        };
        if names_some(&text) {
            let sha256 = lower_hex(&Sha256::digest(text.as_bytes()));
            found.push(PackageFile { file: file.to_owned(), sha256 });
        }
    }
    Ok(found)
}

fn names_requirements(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A file that cannot be read names nothing; the author's own tools say what is wrong with it.
fn names_dependencies_in_toml(text: &str) -> bool {
    let document: Option<toml::Table> = toml::from_str(text).ok();
    let dependencies = document.as_ref().and_then(|it| it.get("project")?.get("dependencies")?.as_array());
    dependencies.is_some_and(|dependencies| !dependencies.is_empty())
}

fn names_dependencies_in_json(text: &str) -> bool {
    let document: Option<Value> = serde_json::from_str(text).ok();
    let dependencies = document.as_ref().and_then(|it| it.get("dependencies")?.as_object());
    dependencies.is_some_and(|dependencies| !dependencies.is_empty())
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn unusable(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(format!("`{}` cannot be used: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_name_packages_have_to_be_built() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        assert_eq!(state(dir.path()).unwrap(), PackagesState::NoneNamed);
        put("requirements.txt", "# nothing yet\n\n");
        put("pyproject.toml", "[project]\nname = 'x'\ndependencies = []\n");
        put("package.json", "{\"type\": \"module\", \"devDependencies\": {\"x\": \"1\"}}");
        assert_eq!(state(dir.path()).unwrap(), PackagesState::NoneNamed);
        assert_eq!(unbuilt_warning(dir.path()), None);
        put("requirements.txt", "requests==2\n");
        put("pyproject.toml", "[project]\ndependencies = ['httpx']\n");
        put("package.json", "{\"dependencies\": {\"x\": \"1\"}}");
        let all = ["requirements.txt", "pyproject.toml", "package.json"].map(str::to_owned).to_vec();
        assert_eq!(state(dir.path()).unwrap(), PackagesState::NotBuilt(all));
        assert!(unbuilt_warning(dir.path()).unwrap().contains("gantry tool build"));
    }

    #[test]
    fn a_record_stands_for_the_files_it_was_made_from_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("requirements.txt"), "requests==2\n").unwrap();
        let record = BuildRecord {
            digest: "sha256:00".into(),
            sources: sources(dir.path()).unwrap(),
            scripts: false,
            python: None,
            bytes: 1,
        };
        fs::create_dir(dir.path().join(PACKAGES)).unwrap();
        let place = dir.path().join(PACKAGES).join(RECORD);
        fs::write(&place, serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(state(dir.path()).unwrap(), PackagesState::Built(Box::new(record)));
        fs::write(dir.path().join("requirements.txt"), "requests==3\n").unwrap();
        assert!(matches!(state(dir.path()).unwrap(), PackagesState::NotBuilt(_)));
        fs::write(&place, "{").unwrap();
        assert!(matches!(state(dir.path()).unwrap(), PackagesState::NotBuilt(_)), "a damaged record is none");
    }
}
