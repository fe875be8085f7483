//! Reading an OCI image layout: which manifest, which layers, what to start. Every byte that is used is checked against
//! the digest that names it.
//!
//! `index.json` is the one file nothing vouches for; it belongs to the tool's folder like the manifest of the tool. With
//! `@sha256:…` in the tool's manifest, that vouches for everything.

use contract::hex::lower_hex;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::image::OciImage;

/// Longest index, manifest or configuration.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Layers of one image.
const LAYERS_MAX: usize = 128;
/// Indexes in indexes.
const INDEX_DEPTH_MAX: usize = 4;

/// What is wrong with a layout.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("only an image layout has manifests to choose from by digest")]
    NoLayout,
    #[error("a digest is `sha256:` and 64 hexadecimal digits")]
    NoDigest,
    #[error("its layout version is not 1.x")]
    Version,
    #[error("it has no manifest for this machine")]
    NoManifest,
    #[error("it has several manifests for this machine: say which with `@sha256:…`")]
    Ambiguous,
    #[error("a part of it does not match its digest")]
    Mismatch,
    #[error("a part of it is missing")]
    Missing(#[source] io::Error),
    #[error("a part of it is too large")]
    TooLarge,
    #[error("a part of it is not what it should be")]
    Malformed(#[source] serde_json::Error),
    #[error("layers of type `{0}` are not supported")]
    LayerType(String),
}

/// A manifest that has been chosen.
#[derive(Debug)]
pub(super) struct Manifest {
    /// Hexadecimal digits.
    pub(super) digest: String,
    pub(super) layers: Vec<Layer>,
    config: Start,
}

/// One layer, not yet looked at.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) gzip: bool,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct ManifestDocument {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct ConfigDocument {
    os: String,
    architecture: String,
    config: Option<Start>,
}

/// CONT-2: what of an image's configuration is used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Start {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    working_dir: Option<String>,
}

impl Manifest {
    /// With its files at `root`.
    pub(super) fn image(&self, root: PathBuf) -> OciImage {
        let parts = [&self.config.entrypoint, &self.config.cmd];
        let cwd = self.config.working_dir.as_deref().filter(|cwd| cwd.starts_with('/')).unwrap_or("/");
        OciImage {
            root,
            command: parts.into_iter().flatten().flatten().cloned().collect(),
            env: environment(self.config.env.as_deref().unwrap_or_default()),
            cwd: cwd.into(),
        }
    }
}

/// Reads the layout in `dir`, and chooses the manifest for this machine or the one with the digest.
pub(super) fn read(dir: &Path, pinned: Option<&str>) -> Result<Manifest, LayoutError> {
    #[derive(Deserialize)]
    struct Marker {
        #[serde(rename = "imageLayoutVersion")]
        version: String,
    }
    let marker: Marker = document(&dir.join("oci-layout"))?;
    if !marker.version.starts_with("1.") {
        return Err(LayoutError::Version);
    }
    let index: Index = document(&dir.join("index.json"))?;
    let mut found = Vec::new();
    candidates(dir, index, pinned, INDEX_DEPTH_MAX, &mut found)?;
    let mut fitting: Vec<(String, ManifestDocument, ConfigDocument)> = Vec::new();
    for descriptor in found {
        let (digest, manifest): (_, ManifestDocument) = blob(dir, &descriptor)?;
        let (_, config): (_, ConfigDocument) = blob(dir, &manifest.config)?;
        if is_ours(&config.os, &config.architecture) && !fitting.iter().any(|(other, ..)| *other == digest) {
            fitting.push((digest, manifest, config));
        }
    }
    let (digest, manifest, config) = match fitting.len() {
        0 => return Err(LayoutError::NoManifest),
        1 => fitting.pop().ok_or(LayoutError::NoManifest)?,
        _ => return Err(LayoutError::Ambiguous),
    };
    if manifest.layers.len() > LAYERS_MAX {
        return Err(LayoutError::TooLarge);
    }
    let layers = manifest.layers.iter().map(layer).collect::<Result<_, _>>()?;
    Ok(Manifest { digest, layers, config: config.config.unwrap_or_default() })
}

/// All manifests that may be for this machine.
fn candidates(
    dir: &Path,
    index: Index,
    pinned: Option<&str>,
    depth: usize,
    found: &mut Vec<Descriptor>,
) -> Result<(), LayoutError> {
    for descriptor in index.manifests {
        let named = pinned.is_some_and(|digest| descriptor.digest.strip_prefix("sha256:") == Some(digest));
        match descriptor.media_type.as_str() {
            "application/vnd.oci.image.index.v1+json" | "application/vnd.docker.distribution.manifest.list.v2+json" => {
                let (_, inner) = blob(dir, &descriptor)?;
                let depth = depth.checked_sub(1).ok_or(LayoutError::TooLarge)?;
                // An index that is named stands for whatever is in it.
                candidates(dir, inner, pinned.filter(|_| !named), depth, found)?;
            }
            "application/vnd.oci.image.manifest.v1+json" | "application/vnd.docker.distribution.manifest.v2+json" => {
                let wanted = named || pinned.is_none();
                let platform = descriptor.platform.as_ref();
                if wanted && platform.is_none_or(|platform| is_ours(&platform.os, &platform.architecture)) {
                    found.push(descriptor);
                }
            }
            _ => {}
        }
        if found.len() > LAYERS_MAX {
            return Err(LayoutError::TooLarge);
        }
    }
    Ok(())
}

fn is_ours(os: &str, architecture: &str) -> bool {
    let ours = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    os == "linux" && architecture == ours
}

fn layer(descriptor: &Descriptor) -> Result<Layer, LayoutError> {
    let gzip = match descriptor.media_type.as_str() {
        "application/vnd.oci.image.layer.v1.tar" => false,
        "application/vnd.oci.image.layer.v1.tar+gzip" | "application/vnd.docker.image.rootfs.diff.tar.gzip" => true,
        other => return Err(LayoutError::LayerType(other.to_owned())),
    };
    Ok(Layer { digest: digits(&descriptor.digest)?.to_owned(), size: descriptor.size, gzip })
}

/// Where a blob lies.
pub(super) fn blob_path(dir: &Path, digest: &str) -> PathBuf {
    dir.join("blobs").join("sha256").join(digest)
}

/// A document that is what its descriptor says, and its digest.
fn blob<D: DeserializeOwned>(dir: &Path, descriptor: &Descriptor) -> Result<(String, D), LayoutError> {
    let digest = digits(&descriptor.digest)?;
    let bytes = bounded_file(&blob_path(dir, digest), DOCUMENT_BYTES_MAX).map_err(too_large_or_missing)?;
    if bytes.len() as u64 != descriptor.size || lower_hex(&Sha256::digest(&bytes)) != digest {
        return Err(LayoutError::Mismatch);
    }
    Ok((digest.to_owned(), serde_json::from_slice(&bytes).map_err(LayoutError::Malformed)?))
}

fn document<D: DeserializeOwned>(path: &Path) -> Result<D, LayoutError> {
    let bytes = bounded_file(path, DOCUMENT_BYTES_MAX).map_err(too_large_or_missing)?;
    serde_json::from_slice(&bytes).map_err(LayoutError::Malformed)
}

fn too_large_or_missing(error: io::Error) -> LayoutError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => LayoutError::TooLarge,
        _ => LayoutError::Missing(error),
    }
}

/// A regular file that is not longer than that; no link is followed to it.
pub(super) fn bounded_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    plain_file(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Opens a regular file, whatever somebody has put there.
pub(super) fn plain_file(path: &Path) -> io::Result<std::fs::File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
    // Not waiting for the other end of a pipe that should be a file.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = std::fs::File::from(rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Names and values of `NAME=value`; what is not of that form is left out.
pub(super) fn environment(entries: &[String]) -> BTreeMap<String, String> {
    let pairs = entries.iter().filter_map(|entry| entry.split_once('='));
    let sound = pairs.filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'));
    sound.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Is this the hexadecimal form of a digest?
pub(super) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Only one kind of digest, and nothing that could be a path.
fn digits(digest: &str) -> Result<&str, LayoutError> {
    digest.strip_prefix("sha256:").filter(|digits| is_digest(digits)).ok_or(LayoutError::NoDigest)
}
