//! A section of the configuration: a type whose fields are its keys, and the rules that are more than a range.

use schemars::JsonSchema;
use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde_json::Value;

use super::key::ConfigKey;
use super::problems::SectionProblems;
use super::schema;

/// The keys of a section, as its type has them: what is not set is as its default is.
pub(crate) trait ConfigSection: Default + DeserializeOwned + JsonSchema {
    /// As it stands in the file, in brackets.
    const NAME: &'static str;
    /// What the product uses.
    type Checked;

    /// The rules that are more than the range of one key. Whatever is wrong is a problem; what is made of it then is not used.
    fn checked(self, problems: &mut SectionProblems<'_>) -> Self::Checked;
}

/// What is known of a section without any value.
#[derive(Debug, Clone, Copy)]
pub(super) struct SectionShape {
    pub(super) name: &'static str,
    names: fn() -> &'static [&'static str],
    schema: fn() -> Value,
}

impl SectionShape {
    pub(super) const fn of<T: ConfigSection>() -> Self {
        Self { name: T::NAME, names: field_names::<T>, schema: schema::of::<T> }
    }

    pub(super) fn schema(&self) -> Value {
        (self.schema)()
    }

    /// The names of its keys, in their order.
    pub(super) fn names(&self) -> &'static [&'static str] {
        (self.names)()
    }

    /// Its keys, in the order of the fields.
    pub(super) fn keys(&self) -> Vec<ConfigKey> {
        let schema = self.schema();
        let since = schema.get(schema::SINCE).and_then(Value::as_str).unwrap_or_default();
        let fields = schema.get("properties");
        let key = |name: &&'static str| ConfigKey::of(self.name, name, since, fields?.get(*name)?);
        self.names().iter().filter_map(key).collect()
    }
}

/// The names of a type's fields, in their order, which its schema does not keep.
pub(super) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // INVARIANT: it always fails, because there is no value; what it was asked for is what counts.
    let _ = T::deserialize(NameTaker { names: &mut names });
    names
}

struct NameTaker<'a> {
    names: &'a mut &'static [&'static str],
}

impl<'de> Deserializer<'de> for NameTaker<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoValue> {
        *self.names = fields;
        Err(NoValue::custom("no value"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
