//! From the words of a manifest to what a guest finds in WASI (MAN-011, EXEC-014).
//!
//! A guest starts with nothing: no arguments, no environment, no directories, no sockets, stdin with its parameters.
//! `filesystem:read:/x` opens the directory `/x` under the same name, read-only; `filesystem:write:/x` for both. Below it
//! WASI itself keeps the guest: `..`, absolute paths and links that lead out are refused there.
//!
//! Invariants
//! - GRANT-1: what cannot be given as declared is a refusal, never less and never more.
//! - GRANT-2: the root, the kernel's directories and the server's own data are given to nobody.
//!
//! Not here: hosts (`outbound`), credentials (`host`).

use std::path::{Path, PathBuf};

use contract::error::{ErrorCode, Refusal};
use kernel::permissions::{NetworkPermission, Permissions};
use kernel::registry::ToolVersion;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};

use super::streams::{LogStream, ResultStream};

/// Directories that are the machine itself and not data (GRANT-2).
const NEVER: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// The place where the words of the manifest come in. Until `ToolVersion` carries its permissions compiled, they are read
/// here; then this function is `Ok(tool.permissions().clone())` and nothing else changes.
pub(super) fn permissions_of(tool: &ToolVersion) -> Result<Permissions, Refusal> {
    let mut permissions = Permissions::default();
    for word in &tool.manifest.required_permissions {
        if let Some(path) = word.strip_prefix("filesystem:read:") {
            permissions.read.push(path.into());
        } else if let Some(path) = word.strip_prefix("filesystem:write:") {
            permissions.write.push(path.into());
        } else if let Some(name) = word.strip_prefix("credentials:") {
            permissions.credentials.push(name.into());
        } else if let Some(destination) = word.strip_prefix("network:") {
            permissions.network.push(
                destination_of(destination)
                    .ok_or_else(|| refused(format!("the permission `{word}` cannot be given to a WASM tool")))?,
            );
        }
    }
    Ok(permissions)
}

/// `https://host:port`; the port follows from the scheme if it is not written.
fn destination_of(text: &str) -> Option<NetworkPermission> {
    let (scheme, rest) = text.split_once("://")?;
    let port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority: http::uri::Authority = rest.split('/').next()?.parse().ok()?;
    Some(NetworkPermission { host: authority.host().into(), port: authority.port_u16().unwrap_or(port) })
}

/// The three streams of a guest.
pub(super) struct Streams {
    pub(super) stdin: Vec<u8>,
    /// `None` where stdout is not the result: then it is part of the log.
    pub(super) stdout: Option<ResultStream>,
    pub(super) log: LogStream,
}

/// Everything a guest finds in WASI.
pub(super) fn wasi(permissions: &Permissions, protected: &[PathBuf], streams: Streams) -> Result<WasiCtx, Refusal> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
    wasi.stdin(MemoryInputPipe::new(streams.stdin)).stderr(streams.log.clone());
    match streams.stdout {
        Some(stdout) => wasi.stdout(stdout),
        None => wasi.stdout(streams.log),
    };
    for (paths, perms) in [(&permissions.read, FsPerms::ReadOnly), (&permissions.write, FsPerms::ReadWrite)] {
        for path in paths {
            let directory = directory(path, protected)?;
            wasi.preopened_dir(directory, path, perms).map_err(|error| {
                tracing::warn!(%error, path = %path, "a declared directory could not be opened");
                refused(format!("the declared directory `{path}` cannot be opened"))
            })?;
        }
    }
    Ok(wasi.build())
}

/// The directory behind a declared path, with all links followed.
fn directory(path: &str, protected: &[PathBuf]) -> Result<PathBuf, Refusal> {
    if !path.starts_with('/') {
        return Err(refused(format!("the declared path `{path}` is not absolute")));
    }
    let real =
        Path::new(path).canonicalize().map_err(|_| refused(format!("the declared directory `{path}` is not there")))?;
    if !real.is_dir() {
        return Err(refused(format!("the declared path `{path}` is not a directory"))
            .hint("declare the directory that holds the file: a WASM tool is given directories"));
    }
    let never = NEVER.iter().map(Path::new).any(|machine| real.starts_with(machine)) || real == Path::new("/");
    let own = protected.iter().filter_map(|dir| dir.canonicalize().ok()).any(|dir| overlap(&dir, &real));
    if never || own {
        return Err(refused(format!("the declared path `{path}` is given to no tool")));
    }
    Ok(real)
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn refused(message: String) -> Refusal {
    Refusal::new(ErrorCode::E3405, message)
        .hint("make the path available on this server, or change `required_permissions` in the manifest")
        .retryable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_data_is_given_to_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (data, inner, file) = (dir.path().join("data"), dir.path().join("data/keys"), dir.path().join("file"));
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(&file, "").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/proc/self", &link).unwrap();
        let protected = [data.clone()];
        let ask = |path: &Path| directory(path.to_str().unwrap(), &protected);
        for path in [Path::new("/"), Path::new("/proc"), Path::new("/proc/self"), Path::new("/sys"), Path::new("/dev")]
        {
            assert_eq!(ask(path).unwrap_err().code, ErrorCode::E3405, "{}", path.display());
        }
        for path in [&data, &inner, &dir.path().to_owned(), &link, &file, &dir.path().join("nothing")] {
            assert_eq!(ask(path).unwrap_err().code, ErrorCode::E3405, "{}", path.display());
        }
        assert_eq!(directory("relative", &[]).unwrap_err().code, ErrorCode::E3405);
        assert!(directory(data.to_str().unwrap(), &[]).is_ok());
    }

    #[test]
    fn destinations_have_a_host_and_a_port() {
        for (text, expect) in [
            ("https://api.example.com", Some(("api.example.com", 443))),
            ("http://127.0.0.1:8080", Some(("127.0.0.1", 8080))),
            ("http://[::1]:8080/path", Some(("[::1]", 8080))),
            ("ftp://example.com", None),
            ("example.com", None),
        ] {
            let found = destination_of(text);
            assert_eq!(found.as_ref().map(|d| (&*d.host, d.port)), expect, "{text}");
        }
    }
}
