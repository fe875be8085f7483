//! Cases of `LogHeads`. Each takes a fresh one.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test suite: what does not hold must panic")]

use std::sync::Arc;

use ports::log_heads::{HeadReport, LogHead, LogHeads};

/// All cases of `LogHeads` against one adapter.
#[macro_export]
macro_rules! log_heads_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            log_heads,
            [
                the_largest_head_of_each_log_is_kept,
                a_head_that_does_not_go_with_the_kept_one_is_told_so,
                of_heads_that_come_at_once_the_largest_stays,
            ]
        );
    };
}

/// What is under test.
pub type HeadsUnderTest = Arc<dyn LogHeads>;

fn head(origin: &str, size: u64, root: &str) -> LogHead {
    let note = format!("{origin}\n{size}\n{root}\n\n— {origin} signature\n");
    LogHead { origin: origin.to_owned(), size, root: root.to_owned(), note }
}

pub async fn the_largest_head_of_each_log_is_kept(heads: HeadsUnderTest) {
    assert_eq!(heads.heads().await.unwrap(), []);
    for (origin, size) in [("b", 1), ("a", 5), ("b", 7)] {
        assert_eq!(heads.tell(&head(origin, size, "root")).await.unwrap(), HeadReport::Kept);
    }
    assert_eq!(heads.tell(&head("b", 7, "root")).await.unwrap(), HeadReport::Known);
    assert_eq!(heads.heads().await.unwrap(), [head("a", 5, "root"), head("b", 7, "root")]);
}

pub async fn a_head_that_does_not_go_with_the_kept_one_is_told_so(heads: HeadsUnderTest) {
    heads.tell(&head("a", 5, "root")).await.unwrap();
    for wrong in [head("a", 4, "root"), head("a", 5, "another")] {
        assert_eq!(heads.tell(&wrong).await.unwrap(), HeadReport::Contradicted(head("a", 5, "root")));
    }
    assert_eq!(heads.heads().await.unwrap(), [head("a", 5, "root")]);
}

pub async fn of_heads_that_come_at_once_the_largest_stays(heads: HeadsUnderTest) {
    let telling = (1..=16).map(|size| {
        let heads = Arc::clone(&heads);
        tokio::spawn(async move { heads.tell(&head("a", size, "root")).await.map(drop) })
    });
    for told in telling.collect::<Vec<_>>() {
        told.await.unwrap().unwrap();
    }
    assert_eq!(heads.heads().await.unwrap(), [head("a", 16, "root")]);
}
