//! Cases of `RecordArchive`. Each takes a fresh archive.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test suite: what does not hold must panic"
)]

use std::sync::Arc;
use std::time::Duration;

use ports::clock::UnixMillis;
use ports::record_archive::{
    AppendOutcome, ArchivePlace, ArchiveQuery, ArchiveRecord, ArchiveTable, EndedCall, InvocationQuery, MONTHS_AHEAD,
    Month, RecordArchive, Retention, moment_of,
};
use uuid::Uuid;

/// All cases of `RecordArchive` against one adapter.
#[macro_export]
macro_rules! archive_suite {
    ($open:path) => {
        $crate::conformance_cases!(
            $open,
            archive,
            [
                a_fresh_archive_has_nothing,
                what_is_brought_again_is_written_once,
                a_gap_writes_nothing_and_says_where_to_go_on,
                records_of_all_logs_are_found_newest_first,
                pages_have_every_record_once,
                everything_asked_for_must_hold,
                another_tenant_sees_nothing_of_it,
                ended_calls_are_found_by_what_they_were,
                a_batch_over_a_month_boundary_is_in_both_months,
                months_are_made_ahead_once,
                retention_drops_whole_months_and_what_was_dropped_does_not_return,
                texts_come_back_as_they_were,
            ]
        );
    };
}

/// An archive under test.
pub type ArchiveUnderTest = Arc<dyn RecordArchive>;

const DAY: Duration = Duration::from_hours(24);

// ---------------------------------------------------------------------------------------------------------- samples

/// A record of a tenant at a moment that says how a call ended.
pub fn record(seq: u64, at: &str, tenant: &str) -> ArchiveRecord {
    ArchiveRecord {
        seq,
        at: moment_of(at).unwrap(),
        tenant: Some(tenant.to_owned()),
        tool: Some("calculator".to_owned()),
        subject: Some("agent-1".to_owned()),
        trace_id: Some("07".repeat(16)),
        action: "invocation_finished".to_owned(),
        invocation_id: Some(Uuid::from_u128(u128::from(seq) + 1).to_string().parse().unwrap()),
        ended: Some(EndedCall {
            version: Some("1.0.0".to_owned()),
            status: "success".to_owned(),
            code: None,
            duration_ms: 30,
            parameters_digest: Some("sha256:00".to_owned()),
            cost: Some(("0.000001500000".parse().unwrap(), "USD".parse().unwrap())),
        }),
        line: format!(r#"{{"seq":{seq},"at":"{at}"}}"#),
    }
}

async fn bring(archive: &ArchiveUnderTest, log: &str, records: &[ArchiveRecord]) {
    let written = u64::try_from(records.len()).unwrap();
    assert_eq!(archive.append(log, records).await.unwrap(), AppendOutcome::Written(written));
}

fn all() -> ArchiveQuery {
    ArchiveQuery { limit: 100, ..ArchiveQuery::default() }
}

async fn found(archive: &ArchiveUnderTest, query: ArchiveQuery) -> Vec<(String, u64)> {
    let page = archive.search(&query).await.unwrap();
    page.records.into_iter().map(|record| (record.place.log, record.place.seq)).collect()
}

fn names(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(log, seq)| ((*log).to_owned(), *seq)).collect()
}

fn calls_of(tenant: &str) -> InvocationQuery {
    InvocationQuery {
        tenant: tenant.parse().unwrap(),
        tool: None,
        agent: None,
        status: None,
        from: None,
        to: None,
        before: None,
        limit: 100,
    }
}

// ------------------------------------------------------------------------------------------------------------ cases

pub async fn a_fresh_archive_has_nothing(archive: ArchiveUnderTest) {
    assert_eq!(archive.reached("aa").await.unwrap(), 0);
    let page = archive.search(&all()).await.unwrap();
    assert!(page.records.is_empty() && page.next.is_none());
    assert!(archive.invocations(&calls_of("acme")).await.unwrap().calls.is_empty());
    let id = Uuid::from_u128(1).to_string().parse().unwrap();
    assert_eq!(archive.invocation(&"acme".parse().unwrap(), id).await.unwrap(), None);
    assert_eq!(archive.append("aa", &[]).await.unwrap(), AppendOutcome::Written(0));
    assert_eq!(archive.stats().await.unwrap().records, 0);
}

pub async fn what_is_brought_again_is_written_once(archive: ArchiveUnderTest) {
    let records: Vec<_> = (0..5).map(|seq| record(seq, "2027-01-15", "acme")).collect();
    bring(&archive, "aa", &records[..3]).await;
    assert_eq!(archive.append("aa", &records[..3]).await.unwrap(), AppendOutcome::Written(0));
    assert_eq!(archive.append("aa", &records[1..]).await.unwrap(), AppendOutcome::Written(2));
    assert_eq!(archive.reached("aa").await.unwrap(), 5);
    assert_eq!(found(&archive, all()).await.len(), 5);
    assert_eq!(archive.invocations(&calls_of("acme")).await.unwrap().calls.len(), 5);
    assert_eq!(archive.stats().await.unwrap().records, 5);
}

pub async fn a_gap_writes_nothing_and_says_where_to_go_on(archive: ArchiveUnderTest) {
    let late = [record(4, "2027-01-15", "acme")];
    assert_eq!(archive.append("aa", &late).await.unwrap(), AppendOutcome::Gap { expected: 0 });
    bring(&archive, "aa", &[record(0, "2027-01-15", "acme")]).await;
    assert_eq!(archive.append("aa", &late).await.unwrap(), AppendOutcome::Gap { expected: 1 });
    assert_eq!(found(&archive, all()).await, names(&[("aa", 0)]));
}

pub async fn records_of_all_logs_are_found_newest_first(archive: ArchiveUnderTest) {
    bring(&archive, "aa", &[record(0, "2027-01-15", "acme"), record(1, "2027-01-17", "acme")]).await;
    bring(&archive, "bb", &[record(0, "2027-01-16", "acme"), record(1, "2027-01-17", "zeta")]).await;
    assert_eq!(found(&archive, all()).await, names(&[("bb", 1), ("aa", 1), ("bb", 0), ("aa", 0)]));
    assert_eq!(archive.stats().await.unwrap().logs, 2);
}

pub async fn pages_have_every_record_once(archive: ArchiveUnderTest) {
    // The same moment for all: only the rest of the place tells them apart.
    for log in ["aa", "bb", "cc"] {
        bring(&archive, log, &(0..7).map(|seq| record(seq, "2027-01-15", "acme")).collect::<Vec<_>>()).await;
    }
    for tenant in [None, Some("acme".parse().unwrap())] {
        let mut query = ArchiveQuery { tenant, limit: 4, ..ArchiveQuery::default() };
        let mut seen = Vec::new();
        loop {
            let page = archive.search(&query).await.unwrap();
            seen.extend(page.records.into_iter().map(|record| record.place));
            match page.next {
                Some(next) => query.before = Some(next),
                None => break,
            }
        }
        assert_eq!(seen.len(), 21);
        assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "{seen:?}");
    }
    let mut query = InvocationQuery { limit: 4, ..calls_of("acme") };
    let mut seen = 0;
    loop {
        let page = archive.invocations(&query).await.unwrap();
        seen += page.calls.len();
        match page.next {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, 21);
}

pub async fn everything_asked_for_must_hold(archive: ArchiveUnderTest) {
    let mut other = record(1, "2027-02-15T08:00:00.000Z", "acme");
    other.tool = Some("mail.send".to_owned());
    other.subject = Some("agent-2".to_owned());
    other.trace_id = Some("08".repeat(16));
    other.action = "token_minted".to_owned();
    bring(&archive, "aa", &[record(0, "2027-01-15", "acme"), other, record(2, "2027-03-15", "acme")]).await;
    let text = |text: &str| Some(text.to_owned());
    for (query, expected) in [
        (ArchiveQuery { tool: text("mail.send"), ..all() }, vec![1]),
        (ArchiveQuery { tool: text("mail"), ..all() }, vec![]),
        (ArchiveQuery { subject: text("agent-2"), ..all() }, vec![1]),
        (ArchiveQuery { subject: text("agent-2"), tool: text("calculator"), ..all() }, vec![]),
        (ArchiveQuery { trace_id: text(&"07".repeat(16)), ..all() }, vec![2, 0]),
        (ArchiveQuery { action: text("token_minted"), ..all() }, vec![1]),
        (ArchiveQuery { from: moment_of("2027-02-15T08"), ..all() }, vec![2, 1]),
        (ArchiveQuery { to: moment_of("2027-02-15T08"), ..all() }, vec![0]),
        (ArchiveQuery { from: moment_of("2027-02"), to: moment_of("2027-03"), ..all() }, vec![1]),
    ] {
        let numbers: Vec<u64> = found(&archive, query.clone()).await.into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(numbers, expected, "{query:?}");
    }
}

pub async fn another_tenant_sees_nothing_of_it(archive: ArchiveUnderTest) {
    let nobodys = ArchiveRecord { tenant: None, ..record(2, "2027-01-17", "x") };
    bring(&archive, "aa", &[record(0, "2027-01-15", "acme"), record(1, "2027-01-16", "zeta"), nobodys]).await;
    let of = |tenant: &str| ArchiveQuery { tenant: Some(tenant.parse().unwrap()), ..all() };
    assert_eq!(found(&archive, of("acme")).await, names(&[("aa", 0)]));
    assert_eq!(found(&archive, of("zeta")).await, names(&[("aa", 1)]));
    assert_eq!(found(&archive, of("other")).await, names(&[]));
    assert_eq!(found(&archive, all()).await.len(), 3);
    let first = record(0, "2027-01-15", "acme").invocation_id.unwrap();
    assert!(archive.invocation(&"acme".parse().unwrap(), first).await.unwrap().is_some());
    assert!(archive.invocation(&"zeta".parse().unwrap(), first).await.unwrap().is_none());
    assert_eq!(archive.invocations(&calls_of("zeta")).await.unwrap().calls.len(), 1);
}

pub async fn ended_calls_are_found_by_what_they_were(archive: ArchiveUnderTest) {
    let mut failed = record(1, "2027-01-16", "acme");
    failed.subject = Some("agent-2".to_owned());
    failed.tool = Some("mail.send".to_owned());
    failed.ended = failed.ended.map(|ended| EndedCall {
        status: "error".to_owned(),
        code: Some("E3401".to_owned()),
        cost: None,
        ..ended
    });
    let begun = ArchiveRecord { ended: None, ..record(2, "2027-01-17", "acme") };
    let first = record(0, "2027-01-15", "acme");
    bring(&archive, "aa", &[first.clone(), failed.clone(), begun]).await;
    let text = |text: &str| Some(text.to_owned());
    for (query, expected) in [
        (calls_of("acme"), vec![1, 0]),
        (InvocationQuery { status: text("error"), ..calls_of("acme") }, vec![1]),
        (InvocationQuery { tool: text("calculator"), ..calls_of("acme") }, vec![0]),
        (InvocationQuery { agent: text("agent-2"), ..calls_of("acme") }, vec![1]),
        (InvocationQuery { from: moment_of("2027-01-16"), ..calls_of("acme") }, vec![1]),
        (InvocationQuery { to: moment_of("2027-01-16"), status: text("error"), ..calls_of("acme") }, vec![]),
    ] {
        let page = archive.invocations(&query).await.unwrap();
        let numbers: Vec<u64> = page.calls.iter().map(|call| call.place.seq).collect();
        assert_eq!(numbers, expected, "{query:?}");
    }
    let call = archive.invocation(&"acme".parse().unwrap(), first.invocation_id.unwrap()).await.unwrap().unwrap();
    assert_eq!(Some(&call.ended), first.ended.as_ref());
    assert_eq!(call.place, ArchivePlace { at: first.at, log: "aa".to_owned(), seq: 0 });
    assert_eq!((call.tool, call.agent), (first.tool, first.subject));
    assert_eq!(call.invoked_at, UnixMillis(first.at.0 - 30));
    // The last end of a call is the one that counts.
    let again = ArchiveRecord { seq: 3, at: moment_of("2027-02-01").unwrap(), ..failed.clone() };
    bring(&archive, "aa", &[ArchiveRecord { invocation_id: first.invocation_id, ..again }]).await;
    let call = archive.invocation(&"acme".parse().unwrap(), first.invocation_id.unwrap()).await.unwrap().unwrap();
    assert_eq!((call.place.seq, call.ended.code.as_deref()), (3, Some("E3401")));
}

pub async fn a_batch_over_a_month_boundary_is_in_both_months(archive: ArchiveUnderTest) {
    let records = [
        record(0, "2027-01-31T23:59:59.999Z", "acme"),
        record(1, "2027-02-01T00:00:00.000Z", "acme"),
        // The clock went back.
        record(2, "2027-01-31T23:59:59.998Z", "acme"),
    ];
    bring(&archive, "aa", &records).await;
    let january = ArchiveQuery { to: moment_of("2027-02"), ..all() };
    assert_eq!(found(&archive, january).await, names(&[("aa", 0), ("aa", 2)]));
    let kept = Retention { audit: Some(DAY), invocations: Some(DAY) };
    let dropped = archive.retain(&kept, moment_of("2027-02-02").unwrap()).await.unwrap();
    assert!(dropped.iter().all(|of| of.month.to_string() == "2027-01") && dropped.len() == 2, "{dropped:?}");
    assert_eq!(found(&archive, all()).await, names(&[("aa", 1)]));
}

pub async fn months_are_made_ahead_once(archive: ArchiveUnderTest) {
    let now = moment_of("2027-11-30T23:59").unwrap();
    let months = u64::from(MONTHS_AHEAD) + 1;
    assert_eq!(archive.provide(now).await.unwrap(), 2 * months);
    assert_eq!(archive.provide(now).await.unwrap(), 0);
    assert_eq!(archive.provide(moment_of("2027-12-01").unwrap()).await.unwrap(), 2);
    let made: Vec<String> = archive
        .stats()
        .await
        .unwrap()
        .months
        .into_iter()
        .filter(|of| of.table == ArchiveTable::Audit)
        .map(|of| of.month.to_string())
        .collect();
    assert_eq!(made, ["2027-11", "2027-12", "2028-01", "2028-02"]);
}

pub async fn retention_drops_whole_months_and_what_was_dropped_does_not_return(archive: ArchiveUnderTest) {
    let months: Vec<String> = (1..=12).map(|month| format!("2027-{month:02}")).chain(["2028-01".to_owned()]).collect();
    let records: Vec<_> =
        (0_u64..).zip(&months).map(|(seq, month)| record(seq, &format!("{month}-15"), "acme")).collect();
    bring(&archive, "aa", &records).await;
    let kept = Retention { audit: Some(DAY * 184), invocations: None };
    // 184 days before 2028-01-31 is 2027-07-31: July is still half inside.
    let now = moment_of("2028-01-31").unwrap();
    let dropped: Vec<Month> = archive.retain(&kept, now).await.unwrap().iter().map(|of| of.month).collect();
    let expected: Vec<Month> = months[..6].iter().map(|month| month.parse().unwrap()).collect();
    assert_eq!(dropped, expected);
    assert_eq!(archive.retain(&kept, now).await.unwrap(), []);
    assert_eq!(found(&archive, all()).await.len(), 7);
    assert_eq!(archive.invocations(&calls_of("acme")).await.unwrap().calls.len(), 13, "calls are kept for ever");
    assert_eq!(archive.append("aa", &records).await.unwrap(), AppendOutcome::Written(0));
    assert_eq!(found(&archive, all()).await.len(), 7);
    let kept = Retention { audit: None, invocations: Some(DAY) };
    assert_eq!(archive.retain(&kept, now).await.unwrap().len(), 12);
    assert_eq!(archive.invocations(&calls_of("acme")).await.unwrap().calls.len(), 1);
}

pub async fn texts_come_back_as_they_were(archive: ArchiveUnderTest) {
    let odd = "a\0b\u{10}'; DROP TABLE audit_records; --";
    let mut strange = record(0, "2027-01-15", "acme");
    strange.subject = Some(odd.to_owned());
    strange.line = r#"{"subject":"a\u0000b","note":"ünï"}"#.to_owned();
    bring(&archive, "aa", &[strange.clone()]).await;
    let page = archive.search(&ArchiveQuery { subject: Some(odd.to_owned()), ..all() }).await.unwrap();
    assert_eq!(page.records[0].line, strange.line);
    assert_eq!(archive.invocations(&calls_of("acme")).await.unwrap().calls[0].agent.as_deref(), Some(odd));
}
