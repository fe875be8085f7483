//! The steps by which the shape of either database has come about: one numbering, in which a number and a name mean the same
//! change in both. (STORE-007)
//!
//! A step that only one of them needed leaves a gap in the other's list; the reasons are with the test below.
//!
//! A database remembers how far it has come by a mark. The steps up to 28 were once numbered by each database for itself, and
//! kept the marks that existing files, databases and backups have; from 29 on a step's mark is its number. So nothing that was
//! written is written anew, releases before and after read it alike, and a newer mark is refused as ever. (decision 0122)
//!
//! Not here: taking the steps (`sqlite::migrations`, `postgres::migrations`).

use base::SaturatingFrom as _;

use crate::SchemaSteps;

/// A step. Once released, its statements are never edited.
#[derive(Debug)]
pub(crate) struct SchemaStep {
    /// Number and name, as the file has them.
    pub(crate) file: &'static str,
    /// What a database keeps of having taken it.
    pub(crate) mark: i32,
    pub(crate) statements: &'static str,
}

/// The step of a database, by the name of its file and its mark.
macro_rules! step {
    ($database:literal, $file:literal, $mark:literal) => {
        SchemaStep {
            file: $file,
            mark: $mark,
            statements: include_str!(concat!("../../migrations/", $database, "/", $file, ".sql")),
        }
    };
}
pub(crate) use step;

/// The mark of the newest step.
pub(crate) fn newest(steps: &[SchemaStep]) -> i32 {
    steps.last().map_or(0, |step| step.mark)
}

/// How far a database with this mark has come, in steps. Each mark beyond the newest is a step of a newer release.
pub(crate) fn progress(steps: &[SchemaStep], mark: i32) -> SchemaSteps {
    let known = u32::saturating_from(steps.len());
    let taken = u32::saturating_from(steps.iter().filter(|step| step.mark <= mark).count());
    let unknown = u32::try_from(mark.saturating_sub(newest(steps))).unwrap_or(0);
    SchemaSteps { taken: taken.saturating_add(unknown), known }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use contract::canonical::Digest;

    use super::*;
    use crate::{postgres, sqlite};

    /// The newest step whose mark is not its number.
    const RENUMBERED: i32 = 28;
    /// Steps that only SQLite needed.
    const ONLY_SQLITE: &[(&str, &str)] = &[
        ("0006_revocations_end", "in PostgreSQL the column was there from the start (`access`)"),
        ("0011_jobs_resolved", "a trigger of SQLite; in PostgreSQL the statement names the state it expects"),
        ("0025_job_flows_waiting", "PostgreSQL counted what waits from the start (`job_flows`)"),
    ];
    /// Steps that only PostgreSQL needed.
    const ONLY_POSTGRES: &[(&str, &str)] = &[
        ("0008_workflow_runs", "SQLite made the table together with `webhooks`"),
        ("0013_health", "SQLite made the table together with `usage`"),
        ("0014_installation", "one machine keeps its secrets in its data directory"),
        ("0015_presence", "one machine has one instance"),
        ("0016_archive", "the searchable copy of all audit logs is of many instances"),
        ("0019_log_heads", "likewise the signed heads of their logs"),
    ];

    fn number(step: &SchemaStep) -> i32 {
        step.file.get(..4).and_then(|digits| digits.parse().ok()).unwrap()
    }

    #[test]
    fn a_number_and_a_name_are_one_step_in_both_databases() {
        let files = |steps: &'static [SchemaStep]| steps.iter().map(|step| step.file).collect::<BTreeSet<_>>();
        let (of_sqlite, of_postgres) = (files(sqlite::STEPS), files(postgres::STEPS));
        let listed = |list: &[(&'static str, &str)]| list.iter().map(|(file, _)| *file).collect::<Vec<_>>();
        assert_eq!(of_sqlite.difference(&of_postgres).copied().collect::<Vec<_>>(), listed(ONLY_SQLITE));
        assert_eq!(of_postgres.difference(&of_sqlite).copied().collect::<Vec<_>>(), listed(ONLY_POSTGRES));
        let numbers: BTreeMap<i32, &str> =
            sqlite::STEPS.iter().chain(postgres::STEPS).map(|step| (number(step), step.file)).collect();
        assert_eq!(numbers.len(), of_sqlite.union(&of_postgres).count(), "a number is one name's");
        assert!(numbers.keys().copied().eq(1..=i32::saturating_from(numbers.len())), "{numbers:?}");
    }

    #[test]
    fn every_file_is_a_step_in_its_order_and_new_steps_are_marked_by_their_numbers() {
        for (folder, steps) in [("sqlite", sqlite::STEPS), ("postgres", postgres::STEPS)] {
            let path = format!("{}/migrations/{folder}", env!("CARGO_MANIFEST_DIR"));
            let mut files: Vec<String> =
                std::fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            files.sort();
            assert_eq!(files, steps.iter().map(|step| format!("{}.sql", step.file)).collect::<Vec<_>>());
            assert!(steps.is_sorted_by(|one, next| one.mark < next.mark), "{folder}");
            for step in steps.iter().filter(|step| number(step) > RENUMBERED) {
                assert_eq!(step.mark, number(step), "{folder}: {}", step.file);
            }
        }
    }

    #[test]
    fn what_was_shipped_under_the_old_numbers_has_kept_its_text_and_its_marks() {
        for (steps, shipped, digest) in [
            (sqlite::STEPS, 22, "sha256:4b4726d65c1faa4e2d7906105c79e8cc845270f7f36170b2faf02fe39501eed9"),
            (postgres::STEPS, 25, "sha256:ebbdcad894c9f8ee8cd5d3705befa7f0eb6757b709fa83cbcac5610d987ddaaf"),
        ] {
            let old: Vec<&SchemaStep> = steps.iter().filter(|step| number(step) <= RENUMBERED).collect();
            assert!(old.iter().map(|step| step.mark).eq(1..=shipped));
            let text: String = old.iter().map(|step| format!("{}\n{}", step.mark, step.statements)).collect();
            assert_eq!(Digest::of_bytes(text.as_bytes()).to_string(), digest);
        }
    }

    #[test]
    fn progress_is_counted_in_steps_whatever_their_marks() {
        let steps = [(1, "0001_a"), (2, "0003_b"), (29, "0029_c")].map(|(mark, file)| SchemaStep {
            file,
            mark,
            statements: "",
        });
        for (mark, taken, missing, unknown) in [(0, 0, 3, 0), (1, 1, 2, 0), (2, 2, 1, 0), (29, 3, 0, 0), (31, 5, 0, 2)]
        {
            let progress = progress(&steps, mark);
            assert_eq!((progress.taken, progress.missing(), progress.unknown()), (taken, missing, unknown), "{mark}");
        }
    }
}
