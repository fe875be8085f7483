//! The platform's policies follow their files: read at the start, and again when a file changes.
//!
//! The store stays the truth for every call: a file's text becomes a new version in it, like one that came by the API. A
//! text that was seen before is not looked at twice, so a version that came by the API is in force until somebody touches
//! the files or restarts the server.
//!
//! Invariants
//! - FILES-1: a text that cannot be used changes nothing. Without any former policies the server does not start: "no
//!   policies yet" must not be the answer to "the policies are broken".
//! - FILES-2: a trouble is said once, until something changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use contract::error::ErrorCode;
use kernel::Kernel;
use policy::BearerSecret;
use ports::actor::Actor;
use ports::clock::Clock;
use ports::entropy::new_trace_id;

use super::{EXTENSION, PolicyText};
use crate::failure::CommandFailure;
use crate::folder_watcher::FolderWatcher;

/// The files are looked at after this long even if nobody has said a word: events can be lost.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Puts the policies of files in force.
pub(crate) struct PolicyFollower {
    pub(crate) kernel: Arc<Kernel>,
    /// Changing policies is an administrative act like any other, and recorded like any other.
    pub(crate) admin_token: String,
    /// A file, or a folder of files.
    pub(crate) path: PathBuf,
    /// What was found last.
    pub(crate) last: Option<Result<String, Vec<String>>>,
}

/// What came of one look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FollowOutcome {
    /// Nothing new.
    Same,
    /// A new version is in force.
    InForce(u64),
    /// It cannot be used; the former policies stay in force.
    Unusable,
}

impl PolicyFollower {
    /// The first look, before any call is taken.
    pub(crate) async fn begin(&mut self) -> Result<(), CommandFailure> {
        let look = self.look().await;
        let is_first = self.kernel.access().snapshot().platform().record.is_none();
        match (look, &self.last) {
            (FollowOutcome::Unusable, Some(Err(troubles))) if is_first => {
                Err(CommandFailure::new("the policies cannot be used, and there are no former ones")
                    .reasons(troubles.clone())
                    .hint("mend them (`gantry policy check` looks at them), or unset `[policy] file`"))
            }
            (look, _) => {
                self.tell(&look);
                Ok(())
            }
        }
    }

    /// Looks again after every change, for ever.
    pub(crate) async fn run(mut self, clock: Arc<dyn Clock>) {
        let mut watcher = match FolderWatcher::start(&[self.folder()], matters) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "policy files cannot be watched on this machine; they are looked at now and then");
                None
            }
        };
        loop {
            let changed = async {
                match &mut watcher {
                    Some(watcher) => watcher.changed(&*clock).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                more = changed => if !more { watcher = None },
                () = clock.sleep(LOOK_EVERY) => {}
            }
            let look = self.look().await;
            self.tell(&look);
        }
    }

    /// Reads the files and puts them in force, if they are new and can be used.
    pub(crate) async fn look(&mut self) -> FollowOutcome {
        let path = self.path.clone();
        // Reading files may take a while on a slow disk; calls must not wait for it.
        let read = tokio::task::spawn_blocking(move || PolicyText::read(&[path])).await;
        let found = match read {
            Ok(Ok(text)) => text,
            Ok(Err(failure)) => return self.unusable(vec![failure.message]),
            Err(_) => return self.unusable(vec!["the policy files could not be read".to_owned()]),
        };
        if self.last.as_ref().is_some_and(|last| last.as_ref() == Ok(&found.text)) {
            return FollowOutcome::Same;
        }
        let newest = self.kernel.access().snapshot().platform().record.clone();
        if newest.is_some_and(|newest| newest.text == found.text) {
            self.last = Some(Ok(found.text));
            return FollowOutcome::Same;
        }
        let actor = Actor {
            credential: Some(BearerSecret(&self.admin_token)),
            source: None,
            trace_id: new_trace_id(self.kernel.entropy()),
        };
        match self.kernel.put_policies(actor, None, found.text.clone()).await {
            Ok(record) => {
                self.last = Some(Ok(found.text));
                FollowOutcome::InForce(record.version)
            }
            // Compiled once more only for the places in the files.
            Err(refusal) if refusal.code == ErrorCode::E3004 => match found.compile() {
                Err(problems) => self.unusable(problems.iter().map(ToString::to_string).collect()),
                Ok(_) => self.unusable(vec![refusal.message]),
            },
            // The store or the audit log has failed: the same text is worth another try.
            Err(refusal) => self.unusable(vec![refusal.message]),
        }
    }

    fn unusable(&mut self, troubles: Vec<String>) -> FollowOutcome {
        let same = self.last.as_ref().is_some_and(|last| last.as_ref() == Err(&troubles));
        self.last = Some(Err(troubles));
        // FILES-2.
        if same { FollowOutcome::Same } else { FollowOutcome::Unusable }
    }

    fn tell(&self, look: &FollowOutcome) {
        match (look, &self.last) {
            (FollowOutcome::InForce(version), _) => tracing::info!(version, "the policies of the files are in force"),
            (FollowOutcome::Unusable, Some(Err(troubles))) => {
                for trouble in troubles {
                    tracing::error!("{trouble}");
                }
                tracing::error!(
                    problems = troubles.len(),
                    "the policies of the files cannot be used; the former ones stay in force"
                );
            }
            _ => {}
        }
    }

    /// Editors replace files, so it is always a folder that is watched.
    fn folder(&self) -> PathBuf {
        let parent = || self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(Path::to_owned);
        let is_folder = std::fs::metadata(&self.path).is_ok_and(|found| found.is_dir());
        if is_folder { self.path.clone() } else { parent().unwrap_or_else(|| PathBuf::from(".")) }
    }
}

/// A file with policies; or a name that begins with two dots, by which mounted configuration is swapped as a whole.
fn matters(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
        || path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::SystemClock;
    use crate::test_kernel;

    const ONE: &str = "@id(\"one\")\npermit (principal, action, resource);\n";
    const TWO: &str = "@id(\"two\")\npermit (principal, action, resource);\n";
    const BROKEN: &str = "permit (principal, action, resource) when { resource.colour };\n";

    async fn follower(dir: &Path, kernel: Option<Arc<Kernel>>) -> PolicyFollower {
        let kernel = match kernel {
            Some(kernel) => kernel,
            None => test_kernel::kernel(&dir.join("data")).await,
        };
        PolicyFollower { kernel, admin_token: test_kernel::ADMIN.into(), path: dir.join("policies"), last: None }
    }

    fn put(dir: &Path, file: &str, text: &str) {
        std::fs::create_dir_all(dir.join("policies")).unwrap();
        std::fs::write(dir.join("policies").join(file), text).unwrap();
    }

    fn in_force(follower: &PolicyFollower) -> Vec<String> {
        let snapshot = follower.kernel.access().snapshot();
        snapshot.platform().policies.as_ref().map(|policies| policies.names().to_vec()).unwrap_or_default()
    }

    #[tokio::test]
    async fn files_are_followed_and_broken_ones_leave_the_former_policies_in_force() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a.cedar", ONE);
        let mut follower = follower(dir.path(), None).await;
        assert_eq!(follower.look().await, FollowOutcome::InForce(1));
        assert_eq!(follower.look().await, FollowOutcome::Same);
        put(dir.path(), "b.cedar", TWO);
        assert_eq!(follower.look().await, FollowOutcome::InForce(2));
        assert_eq!(in_force(&follower), ["one", "two"]);
        put(dir.path(), "b.cedar", BROKEN);
        assert_eq!(follower.look().await, FollowOutcome::Unusable);
        let Some(Err(troubles)) = &follower.last else { panic!("troubles") };
        assert!(troubles[0].contains("b.cedar:1:"), "{troubles:?}");
        assert_eq!(in_force(&follower), ["one", "two"]);
        assert_eq!(follower.look().await, FollowOutcome::Same, "FILES-2");
        std::fs::remove_dir_all(dir.path().join("policies")).unwrap();
        assert_eq!(follower.look().await, FollowOutcome::Unusable);
        assert_eq!(in_force(&follower), ["one", "two"]);
    }

    #[tokio::test]
    async fn a_first_start_with_broken_policies_is_refused_and_a_later_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a.cedar", BROKEN);
        let mut first = follower(dir.path(), None).await;
        let failure = first.begin().await.unwrap_err();
        assert!(failure.reasons[0].contains("a.cedar:1:"), "{failure:?}");
        put(dir.path(), "a.cedar", ONE);
        first.begin().await.unwrap();
        put(dir.path(), "a.cedar", BROKEN);
        let mut again = follower(dir.path(), Some(Arc::clone(&first.kernel))).await;
        again.begin().await.unwrap();
        assert_eq!(in_force(&again), ["one"]);
    }

    #[tokio::test]
    async fn the_same_text_is_no_new_version_and_the_api_is_not_fought() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a.cedar", ONE);
        let mut first = follower(dir.path(), None).await;
        first.begin().await.unwrap();
        let mut again = follower(dir.path(), Some(Arc::clone(&first.kernel))).await;
        assert_eq!(again.look().await, FollowOutcome::Same, "a restart");
        let trace_id = new_trace_id(first.kernel.entropy());
        let actor = Actor { credential: Some(BearerSecret(test_kernel::ADMIN)), source: None, trace_id };
        first.kernel.put_policies(actor, None, TWO.into()).await.unwrap();
        assert_eq!(first.look().await, FollowOutcome::Same);
        assert_eq!(in_force(&first), ["two"]);
    }

    #[tokio::test]
    async fn a_change_is_noticed_without_being_asked() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a.cedar", ONE);
        let mut following = follower(dir.path(), None).await;
        following.begin().await.unwrap();
        let kernel = Arc::clone(&following.kernel);
        let task = tokio::spawn(following.run(Arc::new(SystemClock::start())));
        let noticed = async {
            loop {
                // The watcher may start after the first write: written until it is seen.
                put(dir.path(), "a.cedar", TWO);
                let version = kernel.access().snapshot().platform().record.as_ref().map(|record| record.version);
                if version == Some(2) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), noticed).await.unwrap();
        task.abort();
    }
}
