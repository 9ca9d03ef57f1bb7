//! The members of a JSON object as they are written: numbers keep their digits.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::wrong::{Kind, Wrong};
use crate::keys::{Form, shown};

/// The members of an object, in its order.
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The object on a line.
    ///
    /// # Errors
    /// If the line is no object, is not UTF-8, or names a field twice.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, Wrong> {
        let text = std::str::from_utf8(line).map_err(|error| {
            let place = error.valid_up_to() + 1;
            let what = format!("byte {place} is not UTF-8, and JSON is: {:?}", shown(line));
            Wrong::new(Kind::Encoding, what)
        })?;
        let members: Self = serde_json::from_str(text).map_err(|error| {
            let what = format!("{:?} is not a JSON object: {error}", shown(line));
            Wrong::new(Kind::Json, what)
        })?;
        let mut seen = std::collections::HashSet::with_capacity(members.0.len());
        if let Some((name, _)) = members.0.iter().find(|(name, _)| !seen.insert(name)) {
            return Err(Wrong::new(Kind::Repeated, format!("has the field {name:?} twice")));
        }
        Ok(members)
    }

    /// The names, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The text of a member's value; none if it is not there or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.0.iter().find(|(found, _)| found == name)?;
        Some(value.get()).filter(|value| *value != "null")
    }

    /// The bytes of the field `name` in `form`, or of `name_hex`, as [`Form::write_json`] writes
    /// them.
    ///
    /// A string is its text, everything else the text that stands there.
    pub(super) fn bytes(&self, name: &str, form: Form) -> Result<Vec<u8>, Wrong> {
        let hex_name = format!("{name}_hex");
        match (self.get(name), self.get(&hex_name)) {
            (Some(json), _) => super::parse(form, &text(json, name)?),
            (None, Some(json)) => super::parse(Form::Hex, &text(json, &hex_name)?),
            (None, None) => Err(Wrong::new(Kind::Field, format!("has no field {name:?}"))),
        }
    }
}

/// The text of a string, or the JSON of anything else.
pub(super) fn text(json: &str, name: &str) -> Result<Vec<u8>, Wrong> {
    if !json.starts_with('"') {
        return Ok(json.as_bytes().to_vec());
    }
    let text: Result<String, _> = serde_json::from_str(json);
    text.map(String::into_bytes).map_err(|error| {
        Wrong::new(Kind::Json, format!("the text of the field {name:?} is wrong: {error}"))
    })
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Object).map(Members)
    }
}
