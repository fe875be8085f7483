//! Packages that many people have, and what each cannot work without. Nothing here starts anything: it only spares people
//! from finding out by refusals what a well-known server touches. (MCP-006, X-35)

/// What the arguments of a package mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing to infer.
    Plain,
    /// Each path among them is a folder the server is for.
    Folders,
    /// The value of this flag is a folder or file the server writes to.
    Flag(&'static str),
    /// This variable names a file it writes to.
    Variable(&'static str),
}

/// A package.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) hosts: &'static [&'static str],
    pub(super) meaning: Meaning,
    /// Something to say about it.
    pub(super) remark: Option<&'static str>,
}

const fn package(name: &'static str, hosts: &'static [&'static str], meaning: Meaning) -> Package {
    Package { name, hosts, meaning, remark: None }
}

const PACKAGES: &[Package] = &[
    package("@modelcontextprotocol/server-filesystem", &[], Meaning::Folders),
    package("@modelcontextprotocol/server-memory", &[], Meaning::Variable("MEMORY_FILE_PATH")),
    package("@modelcontextprotocol/server-everything", &[], Meaning::Plain),
    package("@modelcontextprotocol/server-sequential-thinking", &[], Meaning::Plain),
    package("@modelcontextprotocol/server-brave-search", &["https://api.search.brave.com"], Meaning::Plain),
    package("@brave/brave-search-mcp-server", &["https://api.search.brave.com"], Meaning::Plain),
    package("@modelcontextprotocol/server-github", &["https://api.github.com"], Meaning::Plain),
    package("@modelcontextprotocol/server-gitlab", &["https://gitlab.com"], Meaning::Plain),
    package("@modelcontextprotocol/server-slack", &["https://slack.com"], Meaning::Plain),
    package("@modelcontextprotocol/server-google-maps", &["https://maps.googleapis.com"], Meaning::Plain),
    Package {
        name: "@modelcontextprotocol/server-postgres",
        hosts: &[],
        meaning: Meaning::Plain,
        remark: Some("that it only reads is for the database's role to enforce, not for its tools' descriptions"),
    },
    package("mcp-server-git", &[], Meaning::Flag("--repository")),
    package("mcp-server-sqlite", &[], Meaning::Flag("--db-path")),
    package("mcp-server-time", &[], Meaning::Plain),
    Package {
        name: "mcp-server-fetch",
        hosts: &[],
        meaning: Meaning::Plain,
        remark: Some("it fetches whatever it is asked for: grant the hosts you want with `network:https://host`"),
    },
];

/// What is known of a package by this name, without its version.
pub(super) fn find(name: &str) -> Option<&'static Package> {
    PACKAGES.iter().find(|package| package.name == name)
}

/// What is known of the package that brings this command. Those of npm are called after their package, with `mcp-` before it.
pub(super) fn of_command(command: &str) -> Option<&'static Package> {
    let of_npm = || find(&format!("@modelcontextprotocol/{}", command.strip_prefix("mcp-")?));
    find(command).or_else(of_npm)
}
