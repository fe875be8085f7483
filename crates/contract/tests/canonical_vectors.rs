//! RFC 8785: the published samples, the number table of its appendix B, and that canonical text is a fixed point.

use gantry_contract::canonical::{digest, to_canonical_string};
use gantry_contract::json::{JsonLimits, read};
use proptest::prelude::*;
use serde_json::{Value, json};

const ROWS: &str = include_str!("../../../testdata/vectors/jcs_dev.jsonl");

#[test]
fn published_samples_come_out_byte_for_byte() {
    let mut rows = 0;
    for line in ROWS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let input = read(row["input"].as_str().unwrap().as_bytes(), &JsonLimits::default()).unwrap();
        let output = to_canonical_string(&input);
        let hex: String = output.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(output, row["output"].as_str().unwrap(), "{}", row["id"]);
        assert_eq!(hex, row["output_hex"].as_str().unwrap(), "{}", row["id"]);
        rows += 1;
    }
    assert!(rows > 0);
}

#[test]
fn numbers_are_written_as_appendix_b_has_them() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000_u64, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        let value = Value::from(f64::from_bits(bits));
        assert_eq!(to_canonical_string(&value), expected, "{bits:016x}");
    }
}

#[test]
fn spellings_of_one_value_have_one_text() {
    for (given, expected) in [
        ("1e21", "1e+21"),
        ("1E+2", "100"),
        ("4.50", "4.5"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e7", "0"),
        ("5e-324", "5e-324"),
        ("2e-3", "0.002"),
        ("333333333.33333329", "333333333.3333333"),
        ("9007199254740994", "9007199254740994"),
        ("1e-27", "1e-27"),
        ("100000000000000000000000", "1e+23"),
        // Keys are sorted by UTF-16 units: the emoji's surrogates come before U+FB33, its code point after it.
        (
            r#"{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"\r":4,"1":5,"":6}"#,
            "{\"\":6,\"\\r\":4,\"1\":5,\"€\":3,\"😀\":2,\"\u{fb33}\":1}",
        ),
        (r#""\u000F\u0008\t\n\f\r\u0022\\\/\u007f\u20ac""#, "\"\\u000f\\b\\t\\n\\f\\r\\\"\\\\/\u{7f}€\""),
        (r#"{"b":{"d":1,"c":[{"z":0,"y":0}]},"a":null}"#, r#"{"a":null,"b":{"c":[{"y":0,"z":0}],"d":1}}"#),
    ] {
        let value = read(given.as_bytes(), &JsonLimits::default()).unwrap();
        assert_eq!(to_canonical_string(&value), expected, "{given}");
    }
}

#[test]
fn digests_follow_the_value_not_the_spelling() {
    let read = |text: &str| read(text.as_bytes(), &JsonLimits::default()).unwrap();
    assert_eq!(digest(&read(r#"{"a":1,"b":[2.0]}"#)), digest(&read(r#"{ "b" : [2], "\u0061" : 1e0 }"#)));
    assert_ne!(digest(&read(r#"{"a":1}"#)), digest(&read(r#"{"a":"1"}"#)));
    // Neighbours beyond 2^53 must not share an approval.
    assert_ne!(digest(&read("[9007199254740993]")), digest(&read("[9007199254740992]")));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(|bits| Value::from(f64::from_bits(bits))),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_text_is_a_fixed_point(value in any_json()) {
        let text = to_canonical_string(&value);
        let again = read(text.as_bytes(), &JsonLimits::default()).unwrap();
        prop_assert_eq!(to_canonical_string(&again), text);
    }

    #[test]
    fn integral_doubles_are_a_fixed_point_too(exponent in 50..70_i32, mantissa in 1.0..2.0_f64) {
        let value = Value::from((mantissa * 2_f64.powi(exponent)).floor());
        let text = to_canonical_string(&value);
        let again = read(text.as_bytes(), &JsonLimits::default()).unwrap();
        prop_assert_eq!(to_canonical_string(&again), text);
    }
}
