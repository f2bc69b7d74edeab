//! A tree of values with their places, so that every error names its key.

use serde_json::Value;

use super::units;

/// A configuration that is refused: where and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file or flag; empty if there is only one.
    pub origin: String,
    /// The key, as a path; empty for errors of the text as a whole.
    pub key: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl ConfigError {
    pub(super) fn syntax(origin: &str, reason: &str) -> ConfigError {
        let reason = reason.trim().lines().collect::<Vec<_>>().join(" ");
        ConfigError { origin: origin.to_owned(), key: String::new(), reason }
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [self.origin.as_str(), self.key.as_str(), self.reason.as_str()];
        let mut parts = parts.into_iter().filter(|part| !part.is_empty());
        f.write_str(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| write!(f, ": {part}"))
    }
}

impl std::error::Error for ConfigError {}

/// Reads TOML into the tree of JSON.
pub(super) fn from_toml(text: &str, origin: &str) -> Result<Value, ConfigError> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        ConfigError::syntax(origin, &format!("line {line}: {}", error.message()))
    })?;
    serde_json::to_value(table).map_err(|error| ConfigError::syntax(origin, &error.to_string()))
}

/// Sets `a.b[0].c=value` in the tree; tables and lists on the way are made, list indices must exist or come next.
pub(super) fn set(tree: &mut Value, line: &str) -> Result<(), ConfigError> {
    let fail = |reason: &str| ConfigError { origin: "--set".into(), key: line.to_owned(), reason: reason.to_owned() };
    let (path, value) = line.split_once('=').ok_or_else(|| fail("must be KEY=VALUE"))?;
    let mut at = tree;
    for part in path.trim().split('.') {
        let (name, indices) = part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
        if name.is_empty() {
            return Err(fail("has an empty key"));
        }
        if at.is_null() {
            *at = Value::Object(Default::default());
        }
        let table = at.as_object_mut().ok_or_else(|| fail("goes through a key that is not a table"))?;
        at = table.entry(name).or_insert(Value::Null);
        for index in indices.split('[').filter(|index| !index.is_empty()) {
            let index: usize =
                index.strip_suffix(']').and_then(|i| i.parse().ok()).ok_or_else(|| fail("has a bad index"))?;
            if at.is_null() {
                *at = Value::Array(Vec::new());
            }
            let list = at.as_array_mut().ok_or_else(|| fail("indexes a key that is not a list"))?;
            if index > list.len() {
                return Err(fail("has an index beyond the end of the list"));
            }
            if index == list.len() {
                list.push(Value::Null);
            }
            at = &mut list[index];
        }
    }
    *at = Value::String(value.trim().to_owned());
    Ok(())
}

/// A value and its place.
pub(super) struct Node<'a> {
    value: &'a Value,
    origin: &'a str,
    path: String,
    /// A program wrote the tree, with keys that newer versions of it have: those that ask for nothing are left out.
    by_program: bool,
}

/// Whether a value is what a program writes where nothing is asked for.
fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.split_whitespace().next(), None | Some("0" | "N")),
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.values().all(asks_for_nothing),
    }
}

impl<'a> Node<'a> {
    pub fn root(value: &'a Value, origin: &'a str) -> Node<'a> {
        Node { value, origin, path: String::new(), by_program: false }
    }

    /// The root of a tree that a program may have written.
    pub fn root_of_program(value: &'a Value, origin: &'a str) -> Node<'a> {
        Node { by_program: true, ..Node::root(value, origin) }
    }

    /// Whether this asks for nothing.
    pub fn asks_for_nothing(&self) -> bool {
        asks_for_nothing(self.value)
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn error(&self, reason: &str) -> ConfigError {
        ConfigError { origin: self.origin.to_owned(), key: self.path.clone(), reason: reason.to_owned() }
    }

    pub fn error_at(&self, key: &str, reason: &str) -> ConfigError {
        ConfigError { origin: self.origin.to_owned(), key: self.join(key), reason: reason.to_owned() }
    }

    /// As `error`, for a text that cannot be read.
    pub fn wrong(&self, text: &str, reason: &str) -> ConfigError {
        self.error(&format!("'{text}' {reason}"))
    }

    fn join(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of a key; null is the same as absent.
    pub fn get(&self, key: &str) -> Option<Node<'a>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(Node { value, origin: self.origin, path: self.join(key), by_program: self.by_program })
    }

    /// Refuses a value that is not a table, or has a key that is not listed. A key with a value that asks for nothing
    /// is let through if a program wrote it.
    pub fn only(&self, keys: &[&str]) -> Result<(), ConfigError> {
        let table = self.value.as_object().ok_or_else(|| self.error("must be a table"))?;
        let is_unknown = |(key, value): &(&String, &Value)| {
            !(keys.contains(&key.as_str()) || (self.by_program && asks_for_nothing(value)))
        };
        match table.iter().find(is_unknown) {
            Some((unknown, _)) => Err(self.error_at(unknown, &format!("is not known; known are {}", keys.join(", ")))),
            None => Ok(()),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self.value {
            Value::Array(list) => list.is_empty(),
            Value::Object(table) => table.is_empty(),
            other => other.is_null(),
        }
    }

    pub fn is_text(&self) -> bool {
        self.value.is_string()
    }

    pub fn text(&self) -> Result<&'a str, ConfigError> {
        self.value.as_str().ok_or_else(|| self.error("must be text"))
    }

    pub fn boolean(&self) -> Result<bool, ConfigError> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            Value::String(text) => match text.as_str() {
                "Y" | "y" | "true" => Ok(true),
                "N" | "n" | "false" => Ok(false),
                _ => Err(self.error("must be true or false")),
            },
            _ => Err(self.error("must be true or false")),
        }
    }

    pub fn items(&self) -> Result<Vec<Node<'a>>, ConfigError> {
        let list = self.value.as_array().ok_or_else(|| self.error("must be a list"))?;
        let item = |(index, value)| Node {
            value,
            origin: self.origin,
            path: format!("{}[{index}]", self.path),
            by_program: self.by_program,
        };
        Ok(list.iter().enumerate().map(item).collect())
    }

    /// The number as written, or text for `read` to make sense of.
    fn number(&self, read: fn(&str) -> Result<u64, &'static str>) -> Result<u64, ConfigError> {
        match self.value {
            Value::Number(number) => number.as_u64().ok_or_else(|| self.error("must be a whole number, 0 or above")),
            Value::String(text) => read(text).map_err(|reason| self.wrong(text, reason)),
            _ => Err(self.error("must be a number, or text with a unit")),
        }
    }

    pub fn integer(&self) -> Result<u64, ConfigError> {
        self.number(units::integer)
    }

    /// Bytes.
    pub fn size(&self) -> Result<u64, ConfigError> {
        self.number(units::size)
    }

    /// Time in µs.
    pub fn micros(&self) -> Result<u64, ConfigError> {
        self.number(|text| units::time(text, 1000))
    }

    /// Time in ms.
    pub fn millis(&self) -> Result<u64, ConfigError> {
        self.number(|text| units::time(text, 1_000_000))
    }

    /// 1/10 000.
    pub fn basis_points(&self) -> Result<u64, ConfigError> {
        self.number(|text| units::share(text, 10_000))
    }

    /// 1/1000.
    pub fn permille(&self) -> Result<u64, ConfigError> {
        self.number(|text| units::share(text, 1000))
    }

    /// Puts the value of a key, if there is one, into `target`.
    pub fn read(
        &self,
        key: &str,
        read: fn(&Node<'a>) -> Result<u64, ConfigError>,
        target: &mut u64,
    ) -> Result<(), ConfigError> {
        if let Some(node) = self.get(key) {
            *target = read(&node)?;
        }
        Ok(())
    }
}
