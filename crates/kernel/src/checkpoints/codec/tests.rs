//! Sealing and opening: nothing is lost, any damage is noticed, nothing grows beyond its bound.

use std::collections::BTreeMap;

use ports::clock::UnixMillis;
use ports::saved_state::{BINARY_BYTES_MAX, PARTS_MAX, STATE_BYTES_MAX, SavedState};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn record(n: u128, kind: CheckpointKind, custom_state: Value) -> CheckpointRecord {
    let id = |n: u128| CheckpointId(uuid::Uuid::from_u128(0x019a_0000_0000_7000_8000_0000_0000_0000 + n));
    let head = CheckpointHead {
        id: id(n),
        tenant: "acme".parse().unwrap(),
        invocation: "01990000-0000-7000-8000-000000000001".parse().unwrap(),
        owner: "agent-1".parse().unwrap(),
        tool: "demo.primes".parse().unwrap(),
        version: "1.0.0".parse().unwrap(),
        kind,
        label: (kind == CheckpointKind::Named).then(|| "half way".into()),
        parent: (n > 1).then(|| id(n - 1)),
        saved_at: UnixMillis(1_800_000_000_000),
    };
    CheckpointRecord { head, state: SavedState { custom_state, ..SavedState::default() } }
}

/// A megabyte of what tools keep: many small records.
fn large_state(changed: usize) -> Value {
    let row = |n: usize| {
        let sum = if n.is_multiple_of(100) && n / 100 < changed { n * 31 } else { n * 7_919 };
        json!({ "id": n, "path": format!("/data/in/file-{n:05}.csv"), "rows": sum % 10_007, "sum": format!("{sum:020x}") })
    };
    json!({ "next": changed, "done": (0..12_000).map(row).collect::<Vec<_>>() })
}

fn round_trip(chain: &[SealedCheckpoint]) -> CheckpointRecord {
    open(chain).unwrap().0
}

#[test]
fn every_member_comes_back_as_it_was() {
    let mut whole =
        record(2, CheckpointKind::Named, json!({ "a": [1, 1.0, -0.5, 1e300, "ä\u{0}", null, {}], "b": u64::MAX }));
    whole.state.progress_percent = Some(12.5);
    whole.state.phase = Some("sieve".into());
    whole.state.counters = serde_json::from_value(json!({ "rows": 3, "share": 0.1 })).unwrap();
    whole.state.binaries = BTreeMap::from([("bitmap".into(), (0..=255).collect()), ("empty".into(), Vec::new())]);
    whole.state.document_versions = BTreeMap::from([("spec".into(), "7".into())]);
    for kind in CheckpointKind::ALL {
        whole.head.kind = kind;
        let (sealed, _) = seal(&whole, None, GZIP_FROM_BYTES).unwrap();
        assert_eq!(round_trip(&[sealed]), whole);
    }
}

#[test]
fn small_micro_checkpoints_are_plain_and_all_others_are_compressed() {
    let cases = [
        (CheckpointKind::Micro, json!("x".repeat(9_000)), false),
        (CheckpointKind::Micro, json!("x".repeat(11_000)), true),
        (CheckpointKind::Macro, json!(1), true),
        (CheckpointKind::Named, json!(1), true),
    ];
    for (kind, state, compressed) in cases {
        let (sealed, _) = seal(&record(1, kind, state), None, GZIP_FROM_BYTES).unwrap();
        assert_eq!(sealed.is_gzip, compressed, "{kind:?}");
    }
    let (sealed, base) = seal(&record(1, CheckpointKind::Macro, large_state(0)), None, GZIP_FROM_BYTES).unwrap();
    let whole = base.content.len();
    assert!(whole > 1_000_000, "{whole}");
    assert!(sealed.payload.len() * 10 < whole * 4, "less than 60 % saved: {} of {whole}", sealed.payload.len());
}

#[test]
fn a_change_of_one_percent_takes_less_than_a_tenth() {
    let (first, base) = seal(&record(1, CheckpointKind::Micro, large_state(0)), None, GZIP_FROM_BYTES).unwrap();
    let changed = record(2, CheckpointKind::Micro, large_state(120));
    let (second, _) = seal(&changed, Some(&base), GZIP_FROM_BYTES).unwrap();
    assert_eq!((second.base, second.chain), (Some(first.head.id), 1));
    assert!(second.payload.len() * 10 < first.payload.len(), "{} of {}", second.payload.len(), first.payload.len());
    assert_eq!(round_trip(&[second, first]), changed);
}

#[test]
fn chains_are_bounded_and_named_checkpoints_stand_alone() {
    let mut chain: Vec<SealedCheckpoint> = Vec::new();
    let mut base: Option<DeltaBase> = None;
    let mut wholes = 0;
    for n in 1..=40 {
        let state = json!({ "n": n, "ballast": "x".repeat(5_000), "more": (0..500).collect::<Vec<_>>() });
        let saved = record(n, CheckpointKind::Micro, state);
        let (sealed, own) = seal(&saved, base.as_ref(), GZIP_FROM_BYTES).unwrap();
        assert!(sealed.chain <= CHAIN_MAX);
        if sealed.base.is_none() {
            chain.clear();
            wholes += 1;
        }
        chain.insert(0, sealed);
        assert_eq!(round_trip(&chain), saved, "{n}");
        base = Some(own);
    }
    assert_eq!(wholes, 3);
    let named = record(50, CheckpointKind::Named, json!({ "ballast": "x".repeat(5_000) }));
    assert_eq!(seal(&named, base.as_ref(), GZIP_FROM_BYTES).unwrap().0.base, None);
}

#[test]
fn what_is_too_much_is_refused_before_it_is_kept() {
    let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
    let mut many = record(1, CheckpointKind::Micro, json!(1));
    many.state.counters = (0..=PARTS_MAX).map(|n| (n.to_string(), 1.into())).collect();
    let mut binary = record(1, CheckpointKind::Micro, json!(1));
    binary.state.binaries = BTreeMap::from([("a".into(), vec![0; BINARY_BYTES_MAX])]);
    let mut parts = record(1, CheckpointKind::Micro, json!(1));
    parts.state.binaries = (0..8).map(|n| (n.to_string(), vec![0; BINARY_BYTES_MAX - 1])).collect();
    let mut name = record(1, CheckpointKind::Micro, json!(1));
    name.state.document_versions = BTreeMap::from([("a".repeat(256), "1".into())]);
    let large = record(1, CheckpointKind::Micro, json!("x".repeat(STATE_BYTES_MAX)));
    for record in [record(1, CheckpointKind::Micro, deep), many, binary, parts, name, large] {
        let error = seal(&record, None, GZIP_FROM_BYTES).unwrap_err();
        assert_eq!(error.refusal().code, ErrorCode::E3906, "{error}");
    }
    let almost = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let (sealed, _) = seal(&record(1, CheckpointKind::Micro, almost.clone()), None, GZIP_FROM_BYTES).unwrap();
    assert_eq!(round_trip(&[sealed]).state.custom_state, almost);
}

/// With a seal that fits again, as somebody could make it who can write the store.
fn resealed(mut sealed: SealedCheckpoint) -> SealedCheckpoint {
    sealed.seal = seal_of(&sealed);
    sealed
}

#[test]
fn a_bomb_is_not_unpacked() {
    let (honest, _) = seal(&record(1, CheckpointKind::Macro, json!(1)), None, 0).unwrap();
    let bomb: Arc<[u8]> = gzip(&vec![0; CONTENT_BYTES_MAX * 4]).unwrap().into();
    assert!(bomb.len() < 300_000);
    let boasts = resealed(SealedCheckpoint { payload: Arc::clone(&bomb), content_bytes: u64::MAX, ..honest.clone() });
    let lies = resealed(SealedCheckpoint { payload: Arc::clone(&bomb), content_bytes: 10, ..honest.clone() });
    let most = CONTENT_BYTES_MAX as u64;
    let fills = resealed(SealedCheckpoint { payload: bomb, content_bytes: most, ..honest });
    for sealed in [boasts, lies, fills] {
        assert_eq!(open(&[sealed]).unwrap_err().refusal().code, ErrorCode::E3906);
    }
}

#[test]
fn a_version_of_the_future_is_not_guessed_at() {
    let (sealed, _) = seal(&record(1, CheckpointKind::Micro, json!(1)), None, 0).unwrap();
    for version in ["1.1", "2.0", "", "1.0 ", "0.9"] {
        let newer = resealed(SealedCheckpoint { schema_version: version.into(), ..sealed.clone() });
        let error = open(&[newer]).unwrap_err();
        assert_eq!(error.refusal().code, ErrorCode::E3905, "{version}");
    }
}

#[test]
fn what_belongs_elsewhere_is_not_opened() {
    let state = json!({ "ballast": "x".repeat(5_000) });
    let (first, base) = seal(&record(1, CheckpointKind::Micro, state.clone()), None, 0).unwrap();
    let (second, _) = seal(&record(2, CheckpointKind::Micro, state), Some(&base), 0).unwrap();
    let (other, _) = seal(&record(3, CheckpointKind::Micro, json!(1)), None, 0).unwrap();
    let mut moved = first.clone();
    moved.head.owner = "agent-2".parse().unwrap();
    let mut under_another_head = first.clone();
    under_another_head.head.tool = "demo.other".parse().unwrap();
    let cases: Vec<Vec<SealedCheckpoint>> = vec![
        vec![],
        vec![second.clone()],
        vec![second.clone(), other],
        vec![first.clone(), first.clone()],
        vec![second.clone(), first.clone(), first],
        vec![moved],
        vec![resealed(under_another_head)],
        vec![second; 40],
    ];
    for (n, chain) in cases.iter().enumerate() {
        assert_eq!(open(chain).unwrap_err(), CodecError::Corrupt, "case {n}");
    }
}

/// Any JSON that tools may save.
fn json_state() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::btree_map("\\PC{0,10}", inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_state_comes_back_through_a_chain(states in proptest::collection::vec(json_state(), 1..6), gzip_from in 0_usize..4_000) {
        let mut chain: Vec<SealedCheckpoint> = Vec::new();
        let mut base: Option<DeltaBase> = None;
        for (n, state) in (1..).zip(states) {
            let saved = record(n, CheckpointKind::Micro, json!({ "ballast": "ballast ".repeat(400), "state": state }));
            let (sealed, own) = seal(&saved, base.as_ref(), gzip_from).unwrap();
            if sealed.base.is_none() {
                chain.clear();
            }
            chain.insert(0, sealed);
            prop_assert_eq!(&open(&chain).unwrap().0, &saved);
            base = Some(own);
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed(place in any::<prop::sample::Index>(), kind in 0_usize..3, delta in any::<bool>()) {
        let state = |n: u32| json!({ "n": n, "ballast": (0..700).collect::<Vec<_>>() });
        let (below, base) = seal(&record(1, CheckpointKind::Micro, state(1)), None, 2_000).unwrap();
        let kind = CheckpointKind::ALL[kind];
        let (sealed, _) = seal(&record(2, kind, state(2)), delta.then_some(&base), 2_000).unwrap();
        let is_delta = sealed.base.is_some();
        let mut payload = sealed.payload.to_vec();
        let (mut checksum, mut digest) = (*sealed.checksum.as_bytes(), *sealed.seal.as_bytes());
        let bytes = payload.len();
        let bit = place.index((bytes + 64) * 8);
        let (at, mask) = (bit / 8, 1_u8 << (bit % 8));
        match at.checked_sub(bytes) {
            None => payload[at] ^= mask,
            Some(n) if n < 32 => checksum[n] ^= mask,
            Some(n) => digest[n - 32] ^= mask,
        }
        let spoiled = SealedCheckpoint { payload: payload.into(), checksum: checksum.into(), seal: digest.into(), ..sealed };
        let chain = if is_delta { vec![spoiled, below] } else { vec![spoiled] };
        prop_assert_eq!(open(&chain).unwrap_err(), CodecError::Corrupt);
    }

    #[test]
    fn a_truncated_one_is_noticed(keep in 0_usize..2_000) {
        let (sealed, _) = seal(&record(1, CheckpointKind::Macro, json!((0..2_000).collect::<Vec<_>>())), None, 0).unwrap();
        let cut = keep.min(sealed.payload.len() - 1);
        let payload: Arc<[u8]> = sealed.payload[..cut].into();
        let spoiled = SealedCheckpoint { payload, ..sealed };
        prop_assert_eq!(open(std::slice::from_ref(&spoiled)).unwrap_err(), CodecError::Corrupt);
        prop_assert!(open(&[resealed(spoiled)]).is_err(), "also if the seal is made to fit");
    }
}
