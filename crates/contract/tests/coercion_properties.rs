//! Preparing parameters changes as little as possible, and never twice. (SCHEMA-1, SCHEMA-2, COERCE-1)

#[path = "generated/schemas.rs"]
mod schemas;

use gantry_contract::schema::{Coercion, CompiledSchema, SchemaLimits};
use proptest::prelude::*;
use serde_json::Value;

use schemas::{Dice, document, edited, value};

fn dice() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 40..400)
}

/// A schema, somewhat off the beaten track, with coercion on and off.
fn compiled(bytes: Vec<u8>) -> Option<(Value, CompiledSchema, CompiledSchema)> {
    let mut dice = Dice::new(bytes);
    let first = document(&mut dice);
    let schema = edited(&first, &mut dice);
    let limits = SchemaLimits::default();
    let lossless = CompiledSchema::input(&schema, &limits, Coercion::Lossless).ok()?;
    let off = CompiledSchema::input(&schema, &limits, Coercion::Off).ok()?;
    Some((schema, lossless, off))
}

/// Whether `after` is `before` with nothing but members added to objects.
fn only_adds(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, one)| b.get(name).is_some_and(|two| only_adds(one, two)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(one, two)| only_adds(one, two))
        }
        _ => before == after,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_valid_value_only_gets_its_defaults(bytes in dice(), seed in dice()) {
        let Some((schema, lossless, off)) = compiled(bytes) else { return Ok(()) };
        let instance = value(&schema, &schema, &mut Dice::new(seed), 6);
        if let Ok(plain) = off.prepare(instance.clone()) {
            let prepared = lossless.prepare(instance.clone());
            prop_assert_eq!(prepared.as_ref(), Ok(&plain), "{} {}", schema, instance);
            prop_assert!(plain.coercions.is_empty());
            prop_assert!(only_adds(&instance, &plain.value), "{schema} {instance} {}", plain.value);
            prop_assert_eq!(instance == plain.value, plain.defaults_filled.is_empty());
        }
    }

    #[test]
    fn preparing_twice_is_preparing_once(bytes in dice(), seed in dice()) {
        let Some((schema, lossless, off)) = compiled(bytes) else { return Ok(()) };
        let instance = value(&schema, &schema, &mut Dice::new(seed), 6);
        if let Ok(once) = lossless.prepare(instance) {
            // What comes out is valid without any help, or it would not be what was validated.
            prop_assert!(off.check(&once.value).is_ok());
            let twice = lossless.prepare(once.value.clone()).expect("valid");
            prop_assert_eq!(&twice.value, &once.value, "{}", schema);
            prop_assert!(twice.coercions.is_empty() && twice.defaults_filled.is_empty(), "{schema} {:?}", twice);
        }
    }

    #[test]
    fn each_converted_string_is_reported_and_reads_the_same(bytes in dice(), seed in dice()) {
        let Some((schema, lossless, _)) = compiled(bytes) else { return Ok(()) };
        let instance = value(&schema, &schema, &mut Dice::new(seed), 6);
        if let Ok(prepared) = lossless.prepare(instance.clone()) {
            for note in &prepared.coercions {
                let text = instance.pointer(&note.path).and_then(Value::as_str).expect("a string was there");
                let now = prepared.value.pointer(&note.path).expect("something is there");
                let same = match now {
                    Value::Bool(truth) => ["true", "1", "yes"].contains(&text.to_ascii_lowercase().as_str()) == *truth,
                    Value::Number(number) => text.parse::<f64>().ok() == number.as_f64(),
                    _ => false,
                };
                prop_assert!(same, "{text} {now}");
            }
        }
    }

    #[test]
    fn refusals_always_say_something(bytes in dice(), seed in dice()) {
        let Some((schema, lossless, _)) = compiled(bytes) else { return Ok(()) };
        let instance = value(&schema, &schema, &mut Dice::new(seed), 6);
        if let Err(refused) = lossless.prepare(instance.clone()) {
            prop_assert!(!refused.violations.is_empty(), "{schema} {instance}");
            prop_assert!(refused.violations.iter().all(|one| !one.message.is_empty() && one.message.chars().count() < 2_000));
        }
    }
}
