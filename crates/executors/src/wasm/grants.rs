//! From the words of a manifest to what a guest finds in WASI (MAN-011, EXEC-014).
//!
//! A guest starts with nothing: no arguments, no environment, no directories, no sockets, stdin with its parameters.
//! `filesystem:read:/x` opens the directory `/x` under the same name, read-only; `filesystem:write:/x` for both. Below it
//! WASI itself keeps the guest: `..`, absolute paths and links that lead out are refused there. What it may read and write
//! of that is what nobody may, as for a process ([`nobody`](super::nobody)).
//!
//! Invariants
//! - GRANT-1: what cannot be given as declared is a refusal, never less and never more.
//!
//! Not here: hosts (`outbound`), credentials (`host`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::error::{ErrorCode, Refusal};
use ports::permissions::DeclaredPermissions;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};

use super::streams::{LogStream, ResultStream};
use crate::confinement::ToolConfinement;

/// The three streams of a guest.
pub(super) struct Streams {
    pub(super) stdin: Vec<u8>,
    /// `None` where stdout is not the result: then it is part of the log.
    pub(super) stdout: Option<ResultStream>,
    pub(super) log: LogStream,
}

/// Everything a guest finds in WASI.
pub(super) fn wasi(
    permissions: &DeclaredPermissions,
    confinement: &ToolConfinement,
    env: &BTreeMap<String, String>,
    streams: Streams,
) -> Result<WasiCtx, Refusal> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
    wasi.stdin(MemoryInputPipe::new(streams.stdin)).stderr(streams.log.clone());
    match streams.stdout {
        Some(stdout) => wasi.stdout(stdout),
        None => wasi.stdout(streams.log),
    };
    for (name, value) in env {
        wasi.env(name, value);
    }
    for (paths, perms) in [(&permissions.read, FsPerms::ReadOnly), (&permissions.write, FsPerms::ReadWrite)] {
        for path in paths {
            let directory = directory(path, confinement)?;
            wasi.preopened_dir(directory, path, perms).map_err(|error| {
                tracing::warn!(%error, path = %path, "a declared directory could not be opened");
                refused(format!("the declared directory `{path}` cannot be opened"))
            })?;
        }
    }
    Ok(wasi.build())
}

/// The directory behind a declared path. No link is followed on the way: who may write in one place must not choose what
/// is opened in another.
fn directory(path: &str, confinement: &ToolConfinement) -> Result<PathBuf, Refusal> {
    confinement.admitted(path)?;
    let real =
        Path::new(path).canonicalize().map_err(|_| refused(format!("the declared directory `{path}` is not there")))?;
    if real != Path::new(path) {
        return Err(
            refused(format!("a symbolic link stands in the declared path `{path}`")).hint("declare where it leads")
        );
    }
    if !real.is_dir() {
        return Err(refused(format!("the declared path `{path}` is not a directory"))
            .hint("declare the directory that holds the file: a WASM tool is given directories"));
    }
    Ok(real)
}

fn refused(message: String) -> Refusal {
    Refusal::new(ErrorCode::E3405, message)
        .hint("make the path available on this server, or change `required_permissions` in the manifest")
        .retryable(false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ports::secret_source::NoSecrets;
    use sandbox::egress::SystemResolver;

    use super::*;
    use crate::confinement::OperatorReach;

    #[test]
    fn what_is_no_directory_or_lies_behind_a_link_is_given_to_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (data, file, link) = (dir.path().join("data"), dir.path().join("file"), dir.path().join("link"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        let reach = OperatorReach { blocked_paths: vec![dir.path().join("closed")], ..OperatorReach::default() };
        let confinement = ToolConfinement::new(reach, Arc::new(NoSecrets), Arc::new(SystemResolver));
        let ask = |path: &Path| directory(path.to_str().unwrap(), &confinement);
        for path in ["/", "/proc", "/proc/self", "/sys", "/dev"] {
            assert_eq!(ask(Path::new(path)).unwrap_err().code, ErrorCode::E3405, "{path}");
        }
        for path in [&dir.path().join("closed"), &dir.path().to_owned(), &link, &file, &dir.path().join("nothing")] {
            assert_eq!(ask(path).unwrap_err().code, ErrorCode::E3405, "{}", path.display());
        }
        assert!(ask(&data).is_ok());
    }
}
