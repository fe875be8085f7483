//! Verdicts are proofs: what they promise holds for schemas and values nobody thought of. (COMPAT-1, COMPAT-2)

#[path = "generated/schemas.rs"]
mod schemas;

use gantry_contract::compat::{CompatVerdict, SchemaDirection, compare};
use gantry_contract::schema::{Coercion, CompiledSchema, SchemaLimits};
use proptest::prelude::*;
use serde_json::Value;

use schemas::{Dice, document, edited, value};

fn dice() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 40..400)
}

/// An old version, a new one, and the choices that are left.
fn versions(bytes: Vec<u8>) -> (Value, Value, Dice) {
    let mut dice = Dice::new(bytes);
    let old = document(&mut dice);
    let new = edited(&old, &mut dice);
    (old, new, dice)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn callers_of_a_compatible_version_are_still_understood(bytes in dice(), seeds in proptest::collection::vec(dice(), 12)) {
        let (old, new, _) = versions(bytes);
        let limits = SchemaLimits::default();
        let (Ok(before), Ok(after)) =
            (CompiledSchema::input(&old, &limits, Coercion::Lossless), CompiledSchema::input(&new, &limits, Coercion::Lossless))
        else { return Ok(()) };
        let comparison = compare(&old, &new, SchemaDirection::Input);
        if comparison.verdict == CompatVerdict::Major {
            return Ok(());
        }
        for seed in seeds {
            let instance = value(&old, &old, &mut Dice::new(seed), 6);
            if before.prepare(instance.clone()).is_ok() {
                let answer = after.prepare(instance.clone());
                prop_assert!(answer.is_ok(), "{:?}\nold {old}\nnew {new}\nvalue {instance}\n{answer:?}", comparison.verdict);
            }
        }
    }

    #[test]
    fn consumers_of_a_compatible_version_get_what_they_rely_on(bytes in dice(), seeds in proptest::collection::vec(dice(), 12)) {
        let (old, new, _) = versions(bytes);
        let limits = SchemaLimits::default();
        let (Ok(before), Ok(after)) = (CompiledSchema::output(&old, &limits), CompiledSchema::output(&new, &limits)) else { return Ok(()) };
        let comparison = compare(&old, &new, SchemaDirection::Output);
        if comparison.verdict == CompatVerdict::Major {
            return Ok(());
        }
        for seed in seeds {
            let instance = value(&new, &new, &mut Dice::new(seed), 6);
            if after.check(&instance).is_ok() {
                let answer = before.check(&instance);
                prop_assert!(answer.is_ok(), "{:?}\nold {old}\nnew {new}\nvalue {instance}\n{answer:?}", comparison.verdict);
            }
        }
    }

    #[test]
    fn a_patch_accepts_the_same_in_both_directions(bytes in dice(), seeds in proptest::collection::vec(dice(), 8)) {
        let (old, new, _) = versions(bytes);
        let limits = SchemaLimits::default();
        let (Ok(before), Ok(after)) =
            (CompiledSchema::input(&old, &limits, Coercion::Off), CompiledSchema::input(&new, &limits, Coercion::Off))
        else { return Ok(()) };
        if compare(&old, &new, SchemaDirection::Input).verdict != CompatVerdict::Patch {
            return Ok(());
        }
        for seed in seeds {
            let instance = value(&new, &new, &mut Dice::new(seed), 6);
            prop_assert_eq!(before.prepare(instance.clone()).is_ok(), after.prepare(instance.clone()).is_ok(), "old {}\nnew {}\nvalue {}", old, new, instance);
        }
    }

    #[test]
    fn a_schema_is_a_patch_of_itself_and_of_its_rewording(bytes in dice()) {
        let mut dice = Dice::new(bytes);
        let old = document(&mut dice);
        if CompiledSchema::input(&old, &SchemaLimits::default(), Coercion::Off).is_err() {
            return Ok(());
        }
        let mut reworded = old.clone();
        if let Value::Object(map) = &mut reworded {
            map.insert("description".to_owned(), Value::String("in other words".to_owned()));
        }
        for direction in [SchemaDirection::Input, SchemaDirection::Output] {
            prop_assert_eq!(compare(&old, &old, direction).verdict, CompatVerdict::Patch);
            let found = compare(&old, &reworded, direction);
            prop_assert_eq!(found.verdict, CompatVerdict::Patch, "{} {:?}", old, found);
        }
    }
}
