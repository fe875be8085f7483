//! The keys of another issuer: a JWK set behind a URL or in a file (AUTH-005).
//!
//! Both hand over bytes. What a content type claims is not looked at, and whether the bytes are a key set is found out by
//! whoever reads keys anyway: a second, laxer opinion here would help nobody.
//!
//! Not here: when to ask. The kernel caches, rotates and bounds how often an unknown key id makes it ask again.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use ports::key_source::{KeySource, KeySourceError};
use reqwest::Url;
use tokio::fs;
use tokio::io::AsyncReadExt as _;

use crate::address::{self, AddressError};
use crate::outbound::{AnswerBounds, AuthorityClient};

/// Longest key set.
const KEY_SET_BYTES_MAX: usize = 256 << 10;
/// Longest wait for one.
const FETCH_TIME_MAX: Duration = Duration::from_secs(2);

/// A key set behind a URL: https, or http on this machine.
#[derive(Debug)]
pub struct KeySetUrl {
    out: AuthorityClient,
    url: Url,
    bounds: AnswerBounds,
}

impl KeySetUrl {
    /// For an address.
    ///
    /// # Errors
    /// The address is not one that keys may come from.
    pub fn new(out: &AuthorityClient, url: &str) -> Result<Self, AddressError> {
        let url = address::checked(url, false)?;
        Ok(Self { out: out.clone(), url, bounds: AnswerBounds { time: FETCH_TIME_MAX, bytes_max: KEY_SET_BYTES_MAX } })
    }

    /// Waits less than the two seconds it would wait otherwise; never more.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.bounds.time = time.min(FETCH_TIME_MAX);
        self
    }
}

#[async_trait]
impl KeySource for KeySetUrl {
    async fn fetch(&self) -> Result<Vec<u8>, KeySourceError> {
        self.out.get(&self.url, self.bounds).await.map_err(|error| KeySourceError(error.to_string()))
    }
}

/// A key set in a file, read anew each time, so that a replaced file is a rotation.
#[derive(Debug)]
pub struct KeySetFile {
    path: PathBuf,
}

impl KeySetFile {
    /// For a file. It need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    async fn read(&self) -> Result<Vec<u8>, KeySourceError> {
        // Opening a pipe would wait for a writer, so what is no regular file is not opened.
        if !fs::metadata(&self.path).await.map_err(|error| unreadable(&error))?.is_file() {
            return Err(KeySourceError("it is not a regular file".into()));
        }
        let file = fs::File::open(&self.path).await.map_err(|error| unreadable(&error))?;
        let mut text = Vec::new();
        let one_too_many = KEY_SET_BYTES_MAX as u64 + 1;
        file.take(one_too_many).read_to_end(&mut text).await.map_err(|error| unreadable(&error))?;
        if text.len() > KEY_SET_BYTES_MAX {
            return Err(KeySourceError(format!("the file is longer than {KEY_SET_BYTES_MAX} bytes")));
        }
        Ok(text)
    }
}

#[async_trait]
impl KeySource for KeySetFile {
    async fn fetch(&self) -> Result<Vec<u8>, KeySourceError> {
        match tokio::time::timeout(FETCH_TIME_MAX, self.read()).await {
            Ok(read) => read,
            Err(_) => Err(KeySourceError("the file system gave no answer in time".into())),
        }
    }
}

/// By the kind of error alone: the full one may name the path.
fn unreadable(error: &std::io::Error) -> KeySourceError {
    KeySourceError(format!("the file cannot be read: {}", error.kind()))
}
