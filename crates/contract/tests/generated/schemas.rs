//! Random schemas, small changes to them, and values that nearly satisfy them, all from one string of bytes.
//!
//! Bytes instead of nested strategies, because a value has to be guessed from a schema that was itself guessed; proptest
//! shrinks the bytes and with them everything. A fragment of JSON Schema: small names, small numbers, shallow nesting, so
//! that schemas and values meet often.

use serde_json::{Map, Value, json};

/// A source of choices; when the bytes are used up every choice is the first.
#[derive(Debug)]
pub(crate) struct Dice {
    bytes: Vec<u8>,
    at: usize,
}

impl Dice {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    fn roll(&mut self, sides: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) % sides.max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) >= 100 - percent
    }

    fn pick(&mut self, from: &[Value]) -> Value {
        let index = self.roll(from.len());
        from.get(index).cloned().unwrap_or(Value::Null)
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn name(dice: &mut Dice) -> String {
    NAMES.get(dice.roll(4)).copied().unwrap_or("a").to_owned()
}

fn small(dice: &mut Dice) -> Value {
    json!(dice.roll(6))
}

/// A whole document: an object of parameters with one shared definition.
pub(crate) fn document(dice: &mut Dice) -> Value {
    let mut root = if dice.chance(90) { object(dice, 3) } else { schema(dice, 3) };
    if let Value::Object(map) = &mut root {
        map.insert("$defs".to_owned(), json!({ "s": schema(dice, 1) }));
    }
    root
}

fn schema(dice: &mut Dice, depth: usize) -> Value {
    let kinds = if depth == 0 { 8 } else { 16 };
    match dice.roll(kinds) {
        0 => json!({ "type": "integer" }),
        1 => bounded(dice, "integer", &["minimum", "maximum", "exclusiveMinimum", "multipleOf"]),
        2 => bounded(dice, "number", &["minimum", "maximum", "exclusiveMaximum"]),
        3 => bounded(dice, "string", &["minLength", "maxLength"]),
        4 => json!({ "type": "boolean" }),
        5 => {
            json!({ "type": dice.pick(&[json!(["integer", "null"]), json!(["string", "integer"]), json!(["boolean", "integer"]), json!("null"), json!(["number", "boolean"])]) })
        }
        6 => dice.pick(&[
            json!({ "enum": [1, 2] }),
            json!({ "enum": ["a", "1", null] }),
            json!({ "const": 1 }),
            json!({ "type": "integer", "enum": [1, 2, 3] }),
            json!({ "type": "string", "pattern": "^a" }),
            json!({ "type": "string", "pattern": "^[0-9]+$" }),
            json!({ "type": "string", "format": "date" }),
            json!(true),
            json!({}),
            json!(false),
            json!({ "maxLength": 2 }),
            json!({ "minimum": 2 }),
            json!({ "const": "a" }),
            json!({ "required": ["a"] }),
        ]),
        7 => json!({ "$ref": "#/$defs/s" }),
        8..=10 => object(dice, depth - 1),
        11 => array(dice, depth - 1),
        12 => {
            let list = [schema(dice, depth - 1), schema(dice, depth - 1)];
            json!({ "anyOf": list })
        }
        13 => {
            let list = [schema(dice, depth - 1), schema(dice, depth - 1)];
            json!({ "oneOf": list })
        }
        14 => {
            let list = [schema(dice, depth - 1), schema(dice, depth - 1)];
            json!({ "allOf": list })
        }
        _ => match dice.roll(3) {
            0 => json!({ "not": schema(dice, 0) }),
            1 => json!({ "if": schema(dice, 0), "then": schema(dice, depth - 1), "else": schema(dice, depth - 1) }),
            _ => {
                let mut whole = object(dice, depth - 1);
                merge(&mut whole, "anyOf", json!([object(dice, 0), object(dice, 0)]));
                whole
            }
        },
    }
}

fn merge(schema: &mut Value, keyword: &str, value: Value) {
    if let Value::Object(map) = schema {
        map.insert(keyword.to_owned(), value);
    }
}

fn bounded(dice: &mut Dice, kind: &str, keywords: &[&str]) -> Value {
    let mut map = Map::new();
    map.insert("type".to_owned(), json!(kind));
    for keyword in keywords {
        if dice.chance(25) {
            let limit = if *keyword == "multipleOf" { json!(1 + dice.roll(3)) } else { small(dice) };
            map.insert((*keyword).to_owned(), limit);
        }
    }
    Value::Object(map)
}

fn object(dice: &mut Dice, depth: usize) -> Value {
    let mut properties = Map::new();
    for _ in 0..dice.roll(4) {
        let mut part = schema(dice, depth.saturating_sub(1));
        if dice.chance(20) {
            let default = scalar(dice);
            merge(&mut part, "default", default);
        }
        properties.insert(name(dice), part);
    }
    let mut map = Map::new();
    map.insert("type".to_owned(), json!("object"));
    if !properties.is_empty() || dice.chance(50) {
        map.insert("properties".to_owned(), Value::Object(properties));
    }
    if dice.chance(30) {
        map.insert("required".to_owned(), json!([name(dice)]));
    }
    if dice.chance(25) {
        let others = dice.pick(&[json!(true), json!(false), json!({ "type": "integer" }), json!({ "type": "string" })]);
        map.insert("additionalProperties".to_owned(), others);
    }
    if dice.chance(8) {
        map.insert("patternProperties".to_owned(), json!({ "^[cd]": schema(dice, 0) }));
    }
    for (keyword, limit) in [("minProperties", 2), ("maxProperties", 3)] {
        if dice.chance(8) {
            map.insert(keyword.to_owned(), json!(dice.roll(limit)));
        }
    }
    if dice.chance(8) {
        map.insert("dependentRequired".to_owned(), json!({ name(dice): [name(dice)] }));
    }
    if dice.chance(6) {
        map.insert("dependentSchemas".to_owned(), json!({ name(dice): object(dice, 0) }));
    }
    if dice.chance(5) {
        map.insert("propertyNames".to_owned(), json!({ "pattern": "^[abc]" }));
    }
    if dice.chance(5) {
        map.insert("unevaluatedProperties".to_owned(), json!(dice.roll(2) == 0));
    }
    if dice.chance(8) && depth > 0 {
        map.insert("allOf".to_owned(), json!([object(dice, 0), { "$ref": "#/$defs/s" }]));
    }
    Value::Object(map)
}

fn array(dice: &mut Dice, depth: usize) -> Value {
    let mut map = Map::new();
    map.insert("type".to_owned(), json!("array"));
    if dice.chance(70) {
        map.insert("items".to_owned(), schema(dice, depth));
    }
    if dice.chance(25) {
        map.insert("prefixItems".to_owned(), json!([schema(dice, 0)]));
    }
    if dice.chance(15) {
        map.insert("contains".to_owned(), schema(dice, 0));
    }
    if dice.chance(15) {
        map.insert("uniqueItems".to_owned(), json!(true));
    }
    for keyword in ["minItems", "maxItems", "minContains"] {
        if dice.chance(15) {
            map.insert(keyword.to_owned(), json!(dice.roll(4)));
        }
    }
    Value::Object(map)
}

/// A version after `old`: some small edits, somewhere.
pub(crate) fn edited(old: &Value, dice: &mut Dice) -> Value {
    let mut new = old.clone();
    for _ in 0..=dice.roll(2) {
        edit(&mut new, dice, 4);
    }
    new
}

fn edit(schema: &mut Value, dice: &mut Dice, depth: usize) {
    let Value::Object(map) = schema else {
        *schema = self::schema(dice, 1);
        return;
    };
    // Further down, through whatever keyword leads there.
    if depth > 0 && dice.chance(60) {
        let mut inner: Vec<&mut Value> = Vec::new();
        for (keyword, value) in map.iter_mut() {
            match (keyword.as_str(), value) {
                ("properties" | "patternProperties" | "$defs" | "dependentSchemas", Value::Object(named)) => {
                    inner.extend(named.values_mut())
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => inner.extend(list),
                ("items" | "additionalProperties" | "not" | "if" | "then" | "else" | "contains", value) => {
                    inner.push(value)
                }
                _ => {}
            }
        }
        let index = dice.roll(inner.len());
        if let Some(chosen) = inner.into_iter().nth(index) {
            return edit(chosen, dice, depth - 1);
        }
    }
    match dice.roll(9) {
        0 | 1 => {
            let keywords: Vec<String> = map.keys().filter(|keyword| *keyword != "$defs").cloned().collect();
            if let Some(keyword) = keywords.get(dice.roll(keywords.len())) {
                map.remove(keyword);
            }
        }
        2 => {
            for keyword in [
                "minimum",
                "maximum",
                "minLength",
                "maxLength",
                "minItems",
                "maxItems",
                "exclusiveMinimum",
                "minProperties",
                "maxProperties",
            ] {
                if map.contains_key(keyword) {
                    map.insert(keyword.to_owned(), small(dice));
                }
            }
        }
        3 => {
            let mut part = self::schema(dice, 1);
            if dice.chance(50) {
                let default = scalar(dice);
                merge(&mut part, "default", default);
            }
            let properties = map.entry("properties").or_insert_with(|| json!({}));
            merge(properties, &name(dice), part);
        }
        4 => {
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                properties.remove(&name(dice));
            }
        }
        5 => {
            map.insert("required".to_owned(), json!([name(dice)]));
        }
        6 => {
            let kinds = [
                json!(["integer", "string"]),
                json!("number"),
                json!(["integer", "null"]),
                json!(["boolean", "integer"]),
                json!(["object", "string"]),
            ];
            map.insert("type".to_owned(), dice.pick(&kinds));
        }
        7 => {
            let definitions = map.get("$defs").cloned();
            let both = json!([schema, self::schema(dice, 1)]);
            *schema = if dice.roll(2) == 0 { json!({ "anyOf": both }) } else { json!({ "oneOf": both }) };
            if let Some(definitions) = definitions {
                merge(schema, "$defs", definitions);
            }
        }
        _ => {
            let definitions = map.get("$defs").cloned();
            *schema = self::schema(dice, 2);
            if let Some(definitions) = definitions {
                merge(schema, "$defs", definitions);
            }
        }
    }
}

fn scalar(dice: &mut Dice) -> Value {
    dice.pick(&[
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(5),
        json!(-1),
        json!(1.5),
        json!(2.0),
        json!("a"),
        json!("ab"),
        json!(""),
        json!("1"),
        json!("42"),
        json!("0"),
        json!("2.5"),
        json!("yes"),
        json!("true"),
        json!("2020-01-02"),
        json!(true),
        json!(false),
        json!(null),
    ])
}

/// A value that tries to satisfy `schema`, with slips.
pub(crate) fn value(root: &Value, schema: &Value, dice: &mut Dice, depth: usize) -> Value {
    let Value::Object(map) = schema else { return scalar(dice) };
    if depth == 0 || dice.chance(8) {
        return scalar(dice);
    }
    if let Some(target) =
        map.get("$ref").and_then(Value::as_str).and_then(|text| root.pointer(text.trim_start_matches('#')))
    {
        return value(root, target, dice, depth - 1);
    }
    for keyword in ["enum", "anyOf", "oneOf"] {
        if let Some(Value::Array(list)) = map.get(keyword)
            && !map.contains_key("properties")
        {
            let chosen = dice.pick(list);
            return if keyword == "enum" { stringly(chosen, dice) } else { value(root, &chosen, dice, depth - 1) };
        }
    }
    if let Some(constant) = map.get("const") {
        return constant.clone();
    }
    if let Some(Value::Array(list)) = map.get("allOf")
        && !map.contains_key("type")
        && let Some(first) = list.get(dice.roll(list.len()))
    {
        return value(root, first, dice, depth - 1);
    }
    let kind = match map.get("type") {
        Some(Value::Array(kinds)) => dice.pick(kinds),
        Some(kind) => kind.clone(),
        None => {
            return if map.contains_key("then") {
                value(root, map.get("then").unwrap_or(&Value::Null), dice, depth - 1)
            } else {
                scalar(dice)
            };
        }
    };
    match kind.as_str().unwrap_or_default() {
        "integer" => {
            let number = json!(dice.roll(7));
            stringly(number, dice)
        }
        "number" => {
            let number = dice.pick(&[json!(0), json!(1), json!(2.5), json!(3), json!(4.5), json!(5)]);
            stringly(number, dice)
        }
        "boolean" => {
            let truth = json!(dice.roll(2) == 0);
            stringly(truth, dice)
        }
        "string" => dice.pick(&[
            json!("a"),
            json!("ab"),
            json!(""),
            json!("abcd"),
            json!("12"),
            json!("1"),
            json!("2020-01-02"),
            json!("yes"),
        ]),
        "array" => {
            let items = map.get("items").unwrap_or(&Value::Null);
            Value::Array((0..dice.roll(4)).map(|_| value(root, items, dice, depth - 1)).collect())
        }
        "object" => filled_object(root, map, dice, depth),
        _ => Value::Null,
    }
}

/// Sometimes as a model would write it.
fn stringly(value: Value, dice: &mut Dice) -> Value {
    if dice.chance(25) && !value.is_string() { Value::String(value.to_string()) } else { value }
}

fn filled_object(root: &Value, map: &Map<String, Value>, dice: &mut Dice, depth: usize) -> Value {
    let mut found = Map::new();
    let mut sources = vec![map];
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(list)) = map.get(keyword) {
            sources.extend(list.get(dice.roll(list.len())).and_then(Value::as_object));
        }
    }
    let required: Vec<&str> =
        sources.iter().filter_map(|one| one.get("required")?.as_array()).flatten().filter_map(Value::as_str).collect();
    for (name, schema) in sources.iter().filter_map(|one| one.get("properties")?.as_object()).flatten() {
        if required.contains(&name.as_str()) || dice.chance(60) {
            found.insert(name.clone(), value(root, schema, dice, depth - 1));
        }
    }
    if dice.chance(12) {
        let schema = map.get("additionalProperties").unwrap_or(&Value::Null);
        found.insert(name(dice), value(root, schema, dice, depth - 1));
    }
    Value::Object(found)
}
