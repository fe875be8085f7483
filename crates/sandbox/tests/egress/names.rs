//! Resolvers that answer what a test wants, and remember what they were asked.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;

use async_trait::async_trait;
use gantry_sandbox::egress::HostResolver;

/// Answers one after the other for each name; the last one stays.
#[derive(Debug, Default)]
pub(crate) struct Names {
    answers: Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn new(answers: &[(&str, &[&[&str]])]) -> Self {
        let addresses = |list: &&[&str]| list.iter().map(|a| a.parse().unwrap()).collect();
        let answers = answers.iter().map(|(name, all)| ((*name).to_owned(), all.iter().map(addresses).collect()));
        Self { answers: Mutex::new(answers.collect()), asked: Mutex::default() }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl HostResolver for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let all = answers.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let now = all.front().cloned().unwrap_or_default();
        if all.len() > 1 {
            all.pop_front();
        }
        Ok(now)
    }
}

/// Never answers.
#[derive(Debug)]
pub(crate) struct Silence;

#[async_trait]
impl HostResolver for Silence {
    async fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        std::future::pending().await
    }
}
