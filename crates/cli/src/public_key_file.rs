//! Files with one public key: those of another issuer, and those of our own former signing keys.
//!
//! A public key is no secret, so the mode of its file does not matter; whether it is a sound key does.

use std::io::Read as _;
use std::path::Path;

use policy::VerifyingKey;

use crate::failure::CommandFailure;
use crate::plain_file;

/// A public key of any kind we take is shorter.
const BYTES_MAX: u64 = 16 * 1024;

/// The name of the key in a file: the file's name without its extension.
pub(crate) fn name_of(path: &Path) -> Option<&str> {
    path.file_stem()?.to_str()
}

/// The text of a file with a key.
pub(crate) fn text_of(path: &Path) -> Result<String, CommandFailure> {
    let mut text = String::new();
    let read = plain_file::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(CommandFailure::new(format!("the key file `{}` cannot be read: {error}", path.display()))
            .hint("check the path and its permissions")),
    }
}

/// The key in a text, under a name.
pub(crate) fn key_in(path: &Path, text: &str, name: &str) -> Result<VerifyingKey, CommandFailure> {
    VerifyingKey::from_public_pem(text, name).map_err(|error| {
        CommandFailure::new(format!("`{}` cannot be used as a key: {error}", path.display()))
            .hint("it must hold one public key: RSA of at least 2048 bits, P-256 or Ed25519, as BEGIN PUBLIC KEY")
    })
}
