//! The data directory: what is in it and where.
//!
//! ```text
//! .gantry/                 0700
//!   admin.token            the bootstrap secret, made at the first start
//!   keys/signing.pem       signs capability tokens, made at the first start
//!   keys/store.key         seals what must not be readable in the store, made at the first start
//!   keys/retired/          public halves of the keys it followed
//!   webhook.key            what secrets of webhooks are derived from
//!   mcp.key                seals session ids, if several instances share a store
//!   *.replaced             what an instance had before it joined others
//!   gantry.db              the store, unless `[store] url` says otherwise
//!   audit/                 the audit log, unless `[audit] dir` says otherwise
//!   mask/                  the empty folder and file that cover this directory in folders of MCP servers
//!   server.json            where the running server is; gone when it is not running
//!   server.crt             the certificate that server shows, if it speaks TLS
//! ```
//!
//! A key or token that cannot be read or makes no sense is a refusal, never a reason to make a new one: a new key would
//! silently end every token that was ever minted.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use policy::SigningKey;
use ports::entropy::Entropy;
use ports::secret_source::SecretValue;
use serde::{Deserialize, Serialize};

use crate::failure::CommandFailure;
use crate::secret_file::{self, SecretFileError, SecretText};
use crate::store_seal::StoreKey;

/// The file with the admin token.
pub(crate) const ADMIN_TOKEN: &str = "admin.token";
/// How an admin token begins, so that scanners and people recognise one.
const ADMIN_PREFIX: &str = "gantry_admin_";
/// Random bytes in an admin token.
const ADMIN_BYTES: usize = 32;
/// Where the root of webhook secrets is, and how long it is.
const WEBHOOK_ROOT_FILE: &str = "webhook.key";
const ROOT_BYTES: usize = 32;
/// Where the certificate of the running server is.
const CERTIFICATE_FILE: &str = "server.crt";

/// The data directory.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    path: PathBuf,
}

/// Where a running server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningServer {
    pub(crate) url: String,
    pub(crate) pid: u32,
    pub(crate) version: String,
}

/// A secret of the data directory, and what to say about its file.
pub(crate) struct DataDirSecret<T> {
    pub(crate) value: T,
    pub(crate) warning: Option<String>,
}

impl DataDir {
    /// At this path; nothing is made yet.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the admin token is.
    pub(crate) fn admin_token_file(&self) -> PathBuf {
        self.path.join(ADMIN_TOKEN)
    }

    /// Where the signing key is.
    pub(crate) fn signing_key_file(&self) -> PathBuf {
        self.path.join("keys").join("signing.pem")
    }

    /// Where the public halves of former signing keys are.
    pub(crate) fn retired_keys_dir(&self) -> PathBuf {
        self.path.join("keys").join("retired")
    }

    /// Where the root of webhook secrets is.
    pub(crate) fn webhook_root_file(&self) -> PathBuf {
        self.path.join(WEBHOOK_ROOT_FILE)
    }

    /// Where the key is that seals session ids of MCP.
    pub(crate) fn seal_key_file(&self) -> PathBuf {
        self.path.join("mcp.key")
    }

    /// Where the key is that seals what must not be readable in the store.
    pub(crate) fn store_key_file(&self) -> PathBuf {
        self.path.join("keys").join("store.key")
    }

    /// Makes the directory and its folders, for their owner only.
    pub(crate) fn create(&self) -> Result<(), CommandFailure> {
        self.create_folder(&self.path.join("keys"))
    }

    /// Makes and answers the folder of tools that the server keeps.
    pub(crate) fn tools_dir(&self) -> Result<PathBuf, CommandFailure> {
        let folder = self.path.join("tools");
        self.create_folder(&folder)?;
        Ok(folder)
    }

    /// Makes the folder of former keys.
    pub(crate) fn create_retired(&self) -> Result<(), CommandFailure> {
        self.create_folder(&self.retired_keys_dir())?;
        // The folder must be as durable as what is about to be written into it.
        let synced = std::fs::File::open(self.path.join("keys")).and_then(|keys| keys.sync_all());
        synced.map_err(|error| CommandFailure::new(format!("the folder of keys cannot be synced: {error}")))
    }

    fn create_folder(&self, folder: &Path) -> Result<(), CommandFailure> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            CommandFailure::new(format!("the data directory `{}` cannot be made: {error}", self.path.display()))
                .hint("name another one with --data-dir, or check the owner and mode of its parent")
        })
    }

    /// Is it there, and who can look into it? `None`: not there.
    pub(crate) fn mode(&self) -> std::io::Result<Option<u32>> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_dir() => Ok(Some(metadata.permissions().mode() & 0o777)),
            Ok(_) => Err(std::io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    // ------------------------------------------------------------------------------------------------------- secrets

    /// The signing key, if there is one.
    pub(crate) fn signing_key(&self) -> Result<Option<DataDirSecret<SigningKey>>, CommandFailure> {
        let path = self.signing_key_file();
        let Some(secret) = read(&path)? else { return Ok(None) };
        let value = SigningKey::from_pem(&secret.text).map_err(|error| garbled(&path, &error.to_string()))?;
        Ok(Some(DataDirSecret { value, warning: warning(&path, &secret) }))
    }

    /// The admin token, if there is one.
    pub(crate) fn admin_token(&self) -> Result<Option<DataDirSecret<String>>, CommandFailure> {
        let path = self.admin_token_file();
        let Some(secret) = read(&path)? else { return Ok(None) };
        let value = secret.text.trim().to_owned();
        if !is_admin_token(&value) {
            return Err(garbled(&path, "it does not hold an admin token"));
        }
        Ok(Some(DataDirSecret { value, warning: warning(&path, &secret) }))
    }

    /// The signing key; made if there is none.
    pub(crate) fn signing_key_or_new(
        &self,
        entropy: &dyn Entropy,
    ) -> Result<DataDirSecret<SigningKey>, CommandFailure> {
        if let Some(kept) = self.signing_key()? {
            return Ok(kept);
        }
        let mut seed = [0u8; 32];
        entropy.fill(&mut seed);
        let key = SigningKey::from_seed(&seed);
        let pem = key.to_pem().map_err(|error| CommandFailure::new(error.to_string()))?;
        secret_file::write(&self.signing_key_file(), &pem).map_err(|error| refused(&error))?;
        Ok(DataDirSecret { value: key, warning: None })
    }

    /// The admin token; made if there is none.
    pub(crate) fn admin_token_or_new(&self, entropy: &dyn Entropy) -> Result<DataDirSecret<String>, CommandFailure> {
        if let Some(kept) = self.admin_token()? {
            return Ok(kept);
        }
        let token = new_admin_token(entropy);
        secret_file::write(&self.admin_token_file(), &format!("{token}\n")).map_err(|error| refused(&error))?;
        Ok(DataDirSecret { value: token, warning: None })
    }

    /// What the secrets of webhooks are derived from; made if there is none.
    pub(crate) fn webhook_root_or_new(&self, entropy: &dyn Entropy) -> Result<SecretValue, CommandFailure> {
        let path = self.webhook_root_file();
        let text = match read(&path)? {
            Some(kept) => kept.text.trim().to_owned(),
            None => {
                let text = new_root(entropy);
                secret_file::write(&path, &format!("{text}\n")).map_err(|error| refused(&error))?;
                text
            }
        };
        root_of(&text)
            .and_then(|root| SecretValue::new(root.to_vec()))
            .ok_or_else(|| garbled(&path, "it does not hold the root of webhook secrets"))
    }

    /// The key that seals what must not be readable in the store, if there is one.
    pub(crate) fn store_key(&self) -> Result<Option<StoreKey>, CommandFailure> {
        let path = self.store_key_file();
        let Some(kept) = read(&path)? else { return Ok(None) };
        StoreKey::parse(&kept.text).map(Some).ok_or_else(|| garbled(&path, "it does not hold the key of the store"))
    }

    /// The same; made if there is none.
    pub(crate) fn store_key_or_new(&self, entropy: &dyn Entropy) -> Result<StoreKey, CommandFailure> {
        if let Some(key) = self.store_key()? {
            return Ok(key);
        }
        let (path, text) = (self.store_key_file(), new_root(entropy));
        secret_file::write(&path, &format!("{text}\n")).map_err(|error| refused(&error))?;
        StoreKey::parse(&text).ok_or_else(|| garbled(&path, "it does not hold the key of the store"))
    }

    // ------------------------------------------------------------------------------------------------ running server

    /// Where the running server said it is. The note counts only while its writer lives and holds it: after a crash
    /// somebody else may have got the port, and must not be shown the admin token.
    pub(crate) fn running_server(&self) -> Option<RunningServer> {
        let note = std::fs::File::open(self.server_file()).ok()?;
        match note.try_lock_shared() {
            Err(std::fs::TryLockError::WouldBlock) => serde_json::from_reader(note).ok(),
            Ok(()) | Err(std::fs::TryLockError::Error(_)) => None,
        }
    }

    /// Says where the running server is, for as long as what this gives is kept.
    pub(crate) fn announce(&self, server: &RunningServer) -> Result<ServerNote, CommandFailure> {
        let path = self.server_file();
        let text = serde_json::to_string(server).unwrap_or_default();
        secret_file::write(&path, &text).map_err(|error| refused(&error))?;
        let unlockable = |_| {
            CommandFailure::new("the note about the running server could not be locked")
                .hint("the data directory must be on a file system that knows locks")
        };
        let held = std::fs::File::open(&path).map_err(unlockable)?;
        held.lock().map_err(unlockable)?;
        Ok(ServerNote { path, _held: held })
    }

    /// Where the certificate of the running server is.
    pub(crate) fn certificate_file(&self) -> PathBuf {
        self.path.join(CERTIFICATE_FILE)
    }

    /// Says which certificates the running server shows, so that commands recognise it.
    pub(crate) fn tell_certificates(&self, certificates: &[String]) -> Result<(), CommandFailure> {
        secret_file::write(&self.certificate_file(), &certificates.concat()).map_err(|error| refused(&error))
    }

    fn server_file(&self) -> PathBuf {
        self.path.join("server.json")
    }
}

/// The note of a running server. Whoever holds it is the server of this data directory.
#[derive(Debug)]
pub(crate) struct ServerNote {
    path: PathBuf,
    _held: std::fs::File,
}

impl ServerNote {
    /// Takes the note back.
    pub(crate) fn withdraw(self) {
        // A note that stays behind is no longer held, and counts as none.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_file_name(CERTIFICATE_FILE));
    }
}

/// An admin token nobody knows.
pub(crate) fn new_admin_token(entropy: &dyn Entropy) -> String {
    let mut random = [0u8; ADMIN_BYTES];
    entropy.fill(&mut random);
    format!("{ADMIN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

/// A key nobody knows, as text.
pub(crate) fn new_root(entropy: &dyn Entropy) -> String {
    let mut random = [0u8; ROOT_BYTES];
    entropy.fill(&mut random);
    URL_SAFE_NO_PAD.encode(random)
}

/// The key that such a text stands for.
pub(crate) fn root_of(text: &str) -> Option<[u8; ROOT_BYTES]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// Does this look like one of our admin tokens?
pub(crate) fn is_admin_token(text: &str) -> bool {
    text.strip_prefix(ADMIN_PREFIX)
        .and_then(|rest| URL_SAFE_NO_PAD.decode(rest).ok())
        .is_some_and(|bytes| bytes.len() == ADMIN_BYTES)
}

/// The text of a secret's file, if there is one.
pub(crate) fn read(path: &Path) -> Result<Option<SecretText>, CommandFailure> {
    secret_file::read(path).map_err(|error| refused(&error))
}

/// The refusal for a secret that cannot be read or written.
pub(crate) fn refused(error: &SecretFileError) -> CommandFailure {
    CommandFailure::new(error.to_string()).hint(error.remedy())
}

/// The refusal for a secret that makes no sense.
pub(crate) fn garbled(path: &Path, problem: &str) -> CommandFailure {
    CommandFailure::new(format!("`{}` cannot be used: {problem}", path.display())).hint(
        "restore it from a backup; or move it away, then the next start makes a new one and everything signed or issued \
         with the old one ends",
    )
}

fn warning(path: &Path, secret: &SecretText) -> Option<String> {
    secret.group_readable.then(|| format!("`{0}` can be read by its group: chmod 600 {0}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::OsEntropy;

    fn fresh() -> (tempfile::TempDir, DataDir) {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path().join("data"));
        data.create().unwrap();
        (dir, data)
    }

    #[test]
    fn secrets_are_made_once_and_kept() {
        let (_dir, data) = fresh();
        let entropy = OsEntropy::open().unwrap();
        assert_eq!(data.mode().unwrap(), Some(0o700));
        assert!(data.admin_token().unwrap().is_none() && data.signing_key().unwrap().is_none());
        let token = data.admin_token_or_new(&entropy).unwrap().value;
        let key = data.signing_key_or_new(&entropy).unwrap().value;
        assert!(token.starts_with("gantry_admin_") && token.len() == 13 + 43);
        assert_eq!(data.admin_token_or_new(&entropy).unwrap().value, token);
        assert_eq!(data.signing_key_or_new(&entropy).unwrap().value.id(), key.id());
        let root = data.webhook_root_or_new(&entropy).unwrap();
        assert_eq!(data.webhook_root_or_new(&entropy).unwrap(), root);
        secret_file::write(&data.path().join(WEBHOOK_ROOT_FILE), "short").unwrap();
        assert!(data.webhook_root_or_new(&entropy).is_err(), "a garbled root is not replaced");
    }

    #[test]
    fn garbled_secrets_are_refused_and_left_as_they_are() {
        let (_dir, data) = fresh();
        let entropy = OsEntropy::open().unwrap();
        for content in ["", "hunter2", "gantry_admin_short", "gantry_admin_????"] {
            secret_file::write(&data.admin_token_file(), content).unwrap();
            assert!(data.admin_token_or_new(&entropy).is_err(), "{content:?}");
            assert_eq!(std::fs::read_to_string(data.admin_token_file()).unwrap(), content);
        }
        secret_file::write(&data.signing_key_file(), "-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
        let failure = data.signing_key_or_new(&entropy).err().unwrap();
        assert!(failure.message.contains("signing.pem") && failure.hint.is_some());
    }

    #[test]
    fn a_note_counts_only_while_its_server_holds_it() {
        let (_dir, data) = fresh();
        let server = RunningServer { url: "http://127.0.0.1:1".into(), pid: 1, version: "0".into() };
        assert_eq!(data.running_server(), None);
        let announced = data.announce(&server).unwrap();
        assert_eq!(data.running_server(), Some(server.clone()));
        announced.withdraw();
        assert_eq!(data.running_server(), None);
        // As after a crash: the note is there, but nobody holds it.
        drop(data.announce(&server).unwrap());
        assert!(data.server_file().try_exists().unwrap());
        assert_eq!(data.running_server(), None);
    }
}
