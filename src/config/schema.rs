//! The JSON Schema of the settings file, for editors.
//!
//! There is no second list of settings: the types of `file` are read from a deserializer that writes down what they ask for.

use serde::Deserialize as _;
use serde::de::value::Error;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer as _, MapAccess,
    SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, json};

use super::described::DescribedSettings;
use super::file::File;
use super::problem::ConfigError;

/// The draft that editors of TOML know.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// One or more whole numbers, each with its unit.
const DURATION: &str = r"^\s*(0|([0-9]+(ms|s|m|h|d))+)\s*$";
const SIZE: &str = r"^\s*([0-9]+|([0-9]+(KiB|MiB|GiB|B))+)\s*$";

/// The schema of the settings file, with the meanings and the defaults of the example.
pub fn schema() -> Result<Value, ConfigError> {
    let mut schema = Value::Null;
    File::deserialize(Recorder(&mut schema))
        .map_err(|error| ConfigError::new(error.to_string()))?;
    DescribedSettings::example().describe(&mut schema);
    if let Some(members) = schema.as_object_mut() {
        members.insert("$schema".into(), DRAFT.into());
        members.insert("title".into(), "Settings of raincheck".into());
    }
    Ok(schema)
}

/// Writes the schema of the type that reads from it.
struct Recorder<'s>(&'s mut Value);

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Error;

    /// Records a setting that is read from its text. Its expectation is also the text for users.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let expected: &dyn Expected = &visitor;
        let expected = expected.to_string();
        let (schema, sample) = of_kind(&expected)
            .ok_or_else(|| Error::custom(format!("no schema is known of {expected}")))?;
        *self.0 = schema;
        // The value is thrown away. It must be valid, so that the reader goes on to the next setting.
        visitor.visit_str(&sample)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.0 = json!({"type": "string"});
        visitor.visit_str("x")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut members = SchemaMembers {
            names: fields.iter(),
            name: "",
            schemas: Map::new(),
        };
        let read = visitor.visit_map(&mut members)?;
        *self.0 = json!({
            "type": "object",
            "properties": members.schemas,
            "additionalProperties": false,
        });
        Ok(read)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // A map has names of the user's choice, so one made-up name stands for all of them.
        let mut members = SchemaMembers {
            names: ["x"].iter(),
            name: "",
            schemas: Map::new(),
        };
        let read = visitor.visit_map(&mut members)?;
        let each = members.schemas.remove("x").unwrap_or_default();
        *self.0 = json!({"type": "object", "additionalProperties": each});
        Ok(read)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut elements = Elements(None);
        let read = visitor.visit_seq(&mut elements)?;
        *self.0 = json!({"type": "array", "items": elements.0});
        Ok(read)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf option unit
        unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

/// Has a member of each name.
struct SchemaMembers {
    names: std::slice::Iter<'static, &'static str>,
    name: &'static str,
    schemas: Map<String, Value>,
}

impl<'de> MapAccess<'de> for &mut SchemaMembers {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.next() else {
            return Ok(None);
        };
        self.name = name;
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let mut schema = Value::Null;
        let read = seed.deserialize(Recorder(&mut schema))?;
        self.schemas.insert(self.name.to_owned(), schema);
        Ok(read)
    }
}

/// Has one element.
struct Elements(Option<Value>);

impl<'de> SeqAccess<'de> for &mut Elements {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.0.is_some() {
            return Ok(None);
        }
        let read = seed.deserialize(Recorder(self.0.insert(Value::Null)))?;
        Ok(Some(read))
    }
}

/// The schema of a kind of setting, and a text that is one. Numbers and booleans may be written as text, too.
fn of_kind(kind: &str) -> Option<(Value, String)> {
    let of_text = |pattern: &str| json!({"type": ["string", "integer"], "pattern": pattern});
    let (schema, sample) = match kind {
        "true or false" => (json!({"enum": [true, false, "true", "false"]}), "true"),
        "true, false or \"auto\"" => {
            let words = json!({"enum": [true, false, "auto", "true", "false"]});
            (words, "auto")
        }
        "\"auto\" or a duration such as \"45s\"" => {
            let kinds = [json!({"const": "auto"}), of_text(DURATION)];
            (json!({ "anyOf": kinds }), "auto")
        }
        "a whole number" => {
            let pattern = r"^\s*[0-9]+\s*$";
            (
                json!({"type": ["integer", "string"], "minimum": 0, "pattern": pattern}),
                "1",
            )
        }
        "a number from 0 to 1" => (
            json!({"type": ["number", "string"], "minimum": 0, "maximum": 1}),
            "1",
        ),
        "a text" => (json!({"type": ["string", "number", "boolean"]}), "x"),
        "a text, a list of texts or a table" => {
            (json!({"type": ["string", "array", "object"]}), "/x")
        }
        "a text or a list of texts" => {
            let list = json!({"type": "array", "items": {"type": "string"}});
            (json!({"anyOf": [{"type": "string"}, list]}), "x")
        }
        kind if kind.starts_with("a duration") => (of_text(DURATION), "2s"),
        kind if kind.starts_with("a size") => (of_text(SIZE), "1B"),
        words => {
            let words: Vec<&str> = words.split('"').skip(1).step_by(2).collect();
            let first = (*words.first()?).to_owned();
            return Some((json!({ "enum": words }), first));
        }
    };
    Some((schema, sample.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_setting_has_its_schema() {
        let schema = schema().unwrap();
        let of = |section: &str, key: &str| &schema["properties"][section]["properties"][key];
        assert_eq!(
            of("tasks", "mode")["enum"],
            json!(["auto", "always", "never"])
        );
        assert_eq!(of("tasks", "grace_window")["pattern"], DURATION);
        assert_eq!(of("limits", "calls")["minimum"], 0);
        assert_eq!(of("limits", "calls")["default"], 16_384);
        let tools = &schema["properties"]["tools"]["items"]["properties"];
        assert_eq!(tools["mode"]["enum"], json!(["auto", "always", "never"]));
        assert_eq!(tools.get("companion_tools"), None);
        let jwt = &of("auth", "jwt")["items"]["properties"];
        assert!(jwt.get("issuer").is_some());
        let headers = of("upstream", "headers");
        assert!(headers["additionalProperties"].is_object(), "{headers}");
        let about = of("limits", "calls")["description"].as_str();
        assert!(
            about.is_some_and(|about| about.contains("at the same time")),
            "{about:?}"
        );
        assert!(tools["mode"]["description"].is_string());
    }
}
