//! Which package a runner (`npx`, `npm exec`, `uvx`, `uv tool run`) would fetch, in the words of an installer. (decision 0090)
//!
//! Only what is understood whole is taken over: a flag that is not known here might choose another package or another registry,
//! so a command line with one stays as it is, and why is said.

use super::runners::base_name;
use crate::package::PackageRegistry;

/// Flags of `npx` that only concern its own start.
const NPX_DROPPED: [&str; 11] = [
    "-y",
    "--yes",
    "-q",
    "--quiet",
    "-s",
    "--silent",
    "--prefer-offline",
    "--prefer-online",
    "--ignore-existing",
    "--no-audit",
    "--no-fund",
];
/// Flags of `npx` with a value that `npm install` has too.
const NPX_HANDED_ON: [&str; 1] = ["--registry"];
/// Flags of `uvx` that only concern its own start.
const UVX_DROPPED: [&str; 9] =
    ["-q", "--quiet", "-v", "--verbose", "--isolated", "--refresh", "--no-progress", "-n", "--no-cache"];
/// Flags of `uvx` with a value that `uv pip` has too.
const UVX_HANDED_ON: [&str; 8] =
    ["--index-url", "-i", "--index", "--default-index", "--extra-index-url", "--find-links", "-f", "--prerelease"];
/// Flags of `uvx` without a value that `uv pip` has too.
const UVX_HANDED_ON_ALONE: [&str; 4] = ["--offline", "--no-index", "--native-tls", "--system-certs"];

/// A package to install, and what of it to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageRequest {
    pub registry: PackageRegistry,
    /// The runner's words, up to where the server's own arguments begin.
    pub written: Vec<String>,
    /// Which of these words names the package.
    at: usize,
    /// What to install, in the installer's words; the first is the package itself.
    pub packages: Vec<String>,
    /// The command, if it is named apart from the package.
    pub command: Option<String>,
    /// Further flags for the installer.
    pub options: Vec<String>,
    /// Which Python, if that is said.
    pub python: Option<String>,
}

/// Reads a command line. `None`: no runner. An error is why its package cannot be kept.
pub fn read(command: &str, args: &[String]) -> Option<Result<PackageRequest, String>> {
    let word = |at: usize| args.get(at).map(String::as_str);
    let name = base_name(command);
    let (registry, skipped) = match (name, word(0), word(1)) {
        ("npx", ..) => (PackageRegistry::Npm, 0),
        ("npm", Some("exec" | "x"), _) => (PackageRegistry::Npm, 1),
        ("uvx", ..) => (PackageRegistry::Pypi, 0),
        ("uv", Some("tool"), Some("run")) => (PackageRegistry::Pypi, 2),
        ("bunx" | "pnpx", ..)
        | ("bun", Some("x"), _)
        | ("pnpm" | "yarn", Some("dlx"), _)
        | ("pipx", Some("run"), _) => {
            return Some(Err(format!(
                "packages of `{name}` are not kept, so it fetches its package at each start: `npx` and `uvx` start from a kept one"
            )));
        }
        _ => return None,
    };
    let reading = Reading { registry, words: args, at: skipped };
    Some(reading.request(name).map_err(|why| format!("its package is fetched at each start: {why}")))
}

impl PackageRequest {
    /// The name of the package without version and extras, if it is one of the registry.
    pub fn package_name(&self) -> Option<&str> {
        let word = self.packages.first().filter(|word| !is_local(word))?;
        let from = usize::from(word.starts_with('@'));
        let rest = word.get(from..)?;
        let end = rest.find(['@', '=', '<', '>', '~', '!', '[', ';', ' ']).map_or(word.len(), |end| end + from);
        word.get(..end)
    }

    /// Is one version named, and no other may come of it?
    pub fn has_version(&self) -> bool {
        let Some(word) = self.packages.first() else { return false };
        let version = match self.registry {
            PackageRegistry::Npm => word.get(1..).and_then(|rest| rest.split_once('@')).map(|(_, version)| version),
            PackageRegistry::Pypi => word.split_once("==").map(|(_, version)| version),
        };
        is_local(word)
            || version.is_some_and(|version| {
                version.starts_with(|c: char| c.is_ascii_digit()) && !version.contains(['*', 'x', ' ', '|'])
            })
    }

    /// The same with another package beside it, by which a version of something that it needs can be chosen: `mcp<2`. An error
    /// is why not.
    pub fn with_package(self, package: &str) -> Result<Self, String> {
        if self.registry != PackageRegistry::Pypi {
            return Err("only packages of PyPI can have others beside them".to_owned());
        }
        let mut written = self.written;
        let at = leading_words(&written).min(written.len());
        written.splice(at..at, ["--with".to_owned(), package.to_owned()]);
        let (runner, words) = written.split_first().ok_or_else(|| "there is no package".to_owned())?;
        read(runner, words).unwrap_or_else(|| Err("there is no package".to_owned()))
    }

    /// The same of another version; `latest` is the newest. A package of this machine has no other.
    pub fn with_version(mut self, version: &str) -> Option<Self> {
        let is_version = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_' | '!');
        if version.is_empty() || !version.chars().all(is_version) {
            return None;
        }
        let name = self.package_name()?.to_owned();
        let extras = self.packages.first()?.find('[').zip(self.packages.first()?.find(']'));
        let extras = extras.and_then(|(from, to)| self.packages.first()?.get(from..=to)).unwrap_or_default().to_owned();
        let (installed, said) = match self.registry {
            PackageRegistry::Npm => (format!("{name}@{version}"), format!("{name}@{version}")),
            PackageRegistry::Pypi if version == "latest" => (format!("{name}{extras}"), format!("{name}{extras}")),
            PackageRegistry::Pypi => (format!("{name}{extras}=={version}"), format!("{name}{extras}=={version}")),
        };
        *self.packages.first_mut()? = installed;
        let at = self.at;
        let word = self.written.get_mut(at)?;
        *word = match word.split_once('=').filter(|(flag, _)| flag.starts_with('-')) {
            Some((flag, _)) => format!("{flag}={said}"),
            None => said,
        };
        Some(self)
    }
}

/// How many words of a runner's command line stand in front of its flags.
fn leading_words(written: &[String]) -> usize {
    if written.first().is_some_and(|runner| runner == "uv") { 3 } else { 1 }
}

/// A command line, half read.
struct Reading<'a> {
    registry: PackageRegistry,
    words: &'a [String],
    at: usize,
}

impl Reading<'_> {
    fn request(mut self, runner: &str) -> Result<PackageRequest, String> {
        let mut found = PackageRequest {
            registry: self.registry,
            written: Vec::new(),
            at: 0,
            packages: Vec::new(),
            command: None,
            options: Vec::new(),
            python: None,
        };
        let (mut named, mut with): (Vec<(usize, String)>, Vec<String>) = (Vec::new(), Vec::new());
        while let Some(word) = self.words.get(self.at).filter(|word| word.starts_with('-')) {
            let place = self.at + 1;
            self.at += 1;
            if word == "--" {
                break;
            }
            let (flag, joined) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            match (self.registry, flag) {
                (PackageRegistry::Npm, "-p" | "--package") | (PackageRegistry::Pypi, "--from") => {
                    let place = if joined.is_some() { place } else { place + 1 };
                    named.push((place, self.value(flag, joined)?));
                }
                (PackageRegistry::Pypi, "--with") => {
                    let value = self.value(flag, joined)?;
                    for part in value.split(',').map(str::trim) {
                        // `mcp>=1.2,<2` is one requirement.
                        match with.last_mut().filter(|_| part.starts_with(['<', '>', '=', '!', '~'])) {
                            Some(last) => *last = format!("{last},{part}"),
                            None => with.push(part.to_owned()),
                        }
                    }
                }
                (PackageRegistry::Pypi, "-p" | "--python") => found.python = Some(self.value(flag, joined)?),
                (PackageRegistry::Npm, flag) if NPX_DROPPED.contains(&flag) && joined.is_none() => {}
                (PackageRegistry::Pypi, flag) if UVX_DROPPED.contains(&flag) && joined.is_none() => {}
                (PackageRegistry::Pypi, flag) if UVX_HANDED_ON_ALONE.contains(&flag) && joined.is_none() => {
                    found.options.push(flag.to_owned());
                }
                (PackageRegistry::Npm, flag) if NPX_HANDED_ON.contains(&flag) => {
                    let value = self.value(flag, joined)?;
                    found.options.push(format!("{flag}={}", without_password(value)?));
                }
                (PackageRegistry::Pypi, flag) if UVX_HANDED_ON.contains(&flag) => {
                    let value = self.value(flag, joined)?;
                    found.options.extend([flag.to_owned(), without_password(value)?]);
                }
                _ => return Err(format!("`{flag}` of `{runner}` is not understood here")),
            }
        }
        let (place, word) = (self.at + 1, self.words.get(self.at).cloned());
        let word = word.ok_or_else(|| format!("`{runner}` names none"))?;
        // `npm exec` reads flags behind the package as its own, unless `--` stands before them.
        let mut end = self.at + 1;
        if runner == "npm" {
            let own = self.words.get(end..).unwrap_or_default();
            match own.iter().position(|word| word.starts_with('-')) {
                Some(0) if own.first().is_some_and(|word| word == "--") => end += 1,
                Some(_) => return Err("write `--` before the server's own arguments".into()),
                None => {}
            }
        }
        match (self.registry, named.is_empty()) {
            (_, true) => named.push((place, word)),
            (PackageRegistry::Npm, false) => found.command = Some(word),
            // `uvx --from name command@version` has no meaning of its own.
            (PackageRegistry::Pypi, false) => {
                found.command = Some(word.split('@').next().unwrap_or_default().to_owned())
            }
        }
        found.at = named.first().map_or(0, |(place, _)| *place);
        for word in named.into_iter().map(|(_, word)| word).chain(with) {
            found.packages.push(self.installable(&word)?);
        }
        if found.packages.iter().skip(1).any(|word| is_local(word)) {
            return Err("only the first package may be one of this machine".into());
        }
        let own = self.words.get(..end).unwrap_or_default();
        found.written = std::iter::once(runner.to_owned()).chain(own.iter().cloned()).collect();
        Ok(found)
    }

    fn value(&mut self, flag: &str, joined: Option<String>) -> Result<String, String> {
        if let Some(value) = joined {
            return Ok(value);
        }
        let value = self.words.get(self.at).cloned();
        self.at += 1;
        value.ok_or_else(|| format!("`{flag}` has no value"))
    }

    /// A package in the installer's words.
    fn installable(&self, word: &str) -> Result<String, String> {
        if is_local(word) {
            return Ok(word.to_owned());
        }
        let elsewhere = || format!("`{word}` comes from neither the registry nor this machine");
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '~');
        let is_name = |name: &str| !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(plain);
        match self.registry {
            PackageRegistry::Npm => {
                let (name, version) = match word.get(1..).and_then(|rest| rest.find('@')) {
                    Some(at) => word.split_at(at + 1),
                    None => (word, ""),
                };
                let scoped = name.strip_prefix('@').and_then(|scoped| scoped.split_once('/'));
                let is_package = scoped.map_or_else(|| is_name(name), |(scope, name)| is_name(scope) && is_name(name));
                let is_version = !version.contains([':', '/', '\0']) && version != "@";
                if is_package && is_version { Ok(word.to_owned()) } else { Err(elsewhere()) }
            }
            PackageRegistry::Pypi => {
                let end = word.find(['@', '=', '<', '>', '~', '!', '[']).unwrap_or(word.len());
                let (name, rest) = word.split_at(end);
                if !is_name(name) || rest.contains(['/', ':', ';', '\n', '\0']) {
                    return Err(elsewhere());
                }
                Ok(match rest.rsplit_once('@') {
                    Some((extras, "latest")) => format!("{name}{extras}"),
                    Some((extras, version)) => format!("{name}{extras}=={version}"),
                    None => word.to_owned(),
                })
            }
        }
    }
}

/// A file or folder of this machine.
fn is_local(word: &str) -> bool {
    word.starts_with('/')
}

/// What is kept of a server is shown to whoever may see servers, and an address may have a password in it.
fn without_password(value: String) -> Result<String, String> {
    let has_one = url::Url::parse(&value).is_ok_and(|url| url.password().is_some() || !url.username().is_empty());
    if has_one {
        return Err("an address of a registry has a password in it: keep that in `.npmrc` or `uv.toml`".into());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Option<Result<PackageRequest, String>> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let command = words.next().unwrap();
        read(&command, &words.collect::<Vec<_>>())
    }

    #[test]
    fn runners_become_words_of_installers() {
        for (line, packages, command, words) in [
            ("npx -y @scope/name@1.2.3 /a --flag", "@scope/name@1.2.3", None, 3),
            ("npx name", "name", None, 2),
            ("/opt/bin/npx -y name@latest -y", "name@latest", None, 3),
            ("npx -y -p @a/b@1 -p c tool x", "@a/b@1 c", Some("tool"), 7),
            ("npx --package=a tool", "a", Some("tool"), 3),
            ("npx -y --registry https://x.example a", "a", None, 5),
            ("npx -- a --yes", "a", None, 3),
            ("npx -y /srv/a.tgz x", "/srv/a.tgz", None, 3),
            ("npm exec -- a /x", "a", None, 4),
            ("npm exec -y a -- --x", "a", None, 5),
            ("npm x a /x", "a", None, 3),
            ("uvx name --x", "name", None, 2),
            ("uvx name@latest", "name", None, 2),
            ("uvx name[cli]@1.2", "name[cli]==1.2", None, 2),
            ("uvx --python 3.12 --with a,b==2 name==1", "name==1 a b==2", None, 6),
            ("uvx --with mcp>=1.2,<2,a name", "name mcp>=1.2,<2 a", None, 4),
            ("uvx --from name>=2 tool", "name>=2", Some("tool"), 4),
            ("uv tool run --from=a b", "a", Some("b"), 5),
        ] {
            let found =
                read_line(line).unwrap_or_else(|| panic!("{line}")).unwrap_or_else(|why| panic!("{line}: {why}"));
            let seen = (found.packages.join(" "), found.command.as_deref(), found.written.len());
            assert_eq!(seen, (packages.to_owned(), command, words), "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_whole_stays_as_it_is() {
        for line in [
            "npx -c 'a b'",
            "npx -w x a",
            "npx github:a/b",
            "npx a@npm:b",
            "npx https://x.example/a.tgz",
            "npx ./a",
            "npx",
            "npx -y",
            "npx --registry https://a:b@x.example a",
            "npm exec a --x",
            "npx -p a -p /srv/b c",
            "uvx git+https://x.example/a",
            "uvx --with-editable /a b",
            "uvx --from a@git+https://x b",
            "bunx a",
            "pnpm dlx a",
            "pipx run a",
        ] {
            assert!(read_line(line).is_some_and(|read| read.is_err()), "{line}");
        }
        for line in ["node a.js", "npm start", "uv run a", "pipx list"] {
            assert_eq!(read_line(line), None, "{line}");
        }
    }

    #[test]
    fn another_version_is_written_where_the_first_one_stood() {
        for (line, version, packages, written) in [
            ("npx -y @a/b@1 x", "2.0.0", "@a/b@2.0.0", "npx -y @a/b@2.0.0"),
            ("npx -p a -p c tool", "latest", "a@latest c", "npx -p a@latest -p c tool"),
            ("npx --package=a tool", "3", "a@3", "npx --package=a@3 tool"),
            ("uvx a[x]==1 --y", "2", "a[x]==2", "uvx a[x]==2"),
            ("uvx --from a==1 b", "latest", "a", "uvx --from a b"),
        ] {
            let changed = read_line(line).unwrap().unwrap().with_version(version).unwrap();
            assert_eq!(
                (changed.packages.join(" "), changed.written.join(" ")),
                (packages.into(), written.into()),
                "{line}"
            );
        }
        let first = || read_line("npx a").unwrap().unwrap();
        assert_eq!((first().with_version(""), first().with_version("1; x")), (None, None));
        assert_eq!(read_line("npx /srv/a").unwrap().unwrap().with_version("1"), None);
    }

    #[test]
    fn a_range_or_a_tag_is_no_version() {
        for (line, name, has_version) in [
            ("npx a", Some("a"), false),
            ("npx @a/b@next", Some("@a/b"), false),
            ("npx a@^1.2", Some("a"), false),
            ("npx a@1.x", Some("a"), false),
            ("npx @a/b@1.2.3", Some("@a/b"), true),
            ("uvx a[x]>=1", Some("a"), false),
            ("uvx a@1.2", Some("a"), true),
            ("npx /srv/a", None, true),
        ] {
            let found = read_line(line).unwrap().unwrap();
            assert_eq!((found.package_name(), found.has_version()), (name, has_version), "{line}");
        }
    }
}
