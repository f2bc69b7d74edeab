//! The TOML file of `refault pool --config`.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use refault_console::{Failure, Share};
use refault_lab::size::Bytes;
use refault_pool::shared::daemon::PoolOptions;
use refault_pool::shared::protocol::Wishes;
use serde::Deserialize;

/// The file as it is written.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct File {
    memory: Option<String>,
    min_ttl: Option<String>,
    pressure: Option<String>,
    members: HashMap<String, Member>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Member {
    min: Option<String>,
    low: Option<String>,
    max: Option<String>,
    weight: Option<u32>,
    needs: Option<String>,
}

/// Reads the file; the defaults without one.
///
/// # Errors
/// It cannot be read, or something in it has no meaning: says which key.
pub(super) fn read(path: Option<&Path>) -> Result<PoolOptions, Failure> {
    let Some(path) = path else { return convert(File::default()).map_err(Failure::Usage) };
    let remedy = "name a file that can be read";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage("cannot read", path.display(), format!("{error}; {remedy}")))?;
    let wrong = |why: String| Failure::usage("bad configuration", path.display(), why);
    let file: File = toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
    convert(file).map_err(wrong)
}

fn convert(file: File) -> Result<PoolOptions, String> {
    let size = |key: &str, text: Option<String>| {
        let parsed = text.map(|text| text.parse::<Bytes>().map(|Bytes(bytes)| bytes)).transpose();
        parsed.map_err(|why| format!("{key}: {why}"))
    };
    let mut members = HashMap::new();
    for (name, member) in file.members {
        let at = |key: &str| format!("members.{name}.{key}");
        if member.weight == Some(0) {
            return Err(format!("{}: must be 1 or more", at("weight")));
        }
        let wishes = Wishes {
            min: size(&at("min"), member.min)?,
            low: size(&at("low"), member.low)?,
            max: size(&at("max"), member.max)?,
            weight: member.weight,
            needs: size(&at("needs"), member.needs)?,
        };
        members.insert(name, wishes);
    }
    let min_ttl =
        file.min_ttl.map(|text| crate::wss::time(&text).map_err(|why| format!("min_ttl: {why}"))).transpose()?;
    let share =
        |text: String| text.parse::<Share>().map(|Share(share)| share).map_err(|why| format!("pressure: {why}"));
    Ok(PoolOptions {
        memory: size("memory", file.memory)?.unwrap_or(0),
        min_ttl: min_ttl.unwrap_or(Duration::from_secs(1)),
        proactive: file.pressure.map(share).transpose()?,
        members,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_mistakes_named() {
        let parse = |text: &str| toml::from_str(text).map_err(|error| error.message().to_owned()).and_then(convert);
        let options =
            parse("memory = \"4G\"\npressure = \"0.1%\"\n[members.redis-server]\nlow = \"1G\"\nweight = 200\n");
        let options = options.expect("well-formed");
        assert_eq!((options.memory, options.proactive), (4 << 30, Some(0.001)));
        let redis = options.members["redis-server"];
        assert_eq!((redis.low, redis.weight, redis.min), (Some(1 << 30), Some(200), None));
        for (text, key) in [
            ("memory = \"4x\"", "memory:"),
            ("memori = \"4G\"", "memori"),
            ("[members.a]\nweight = 0", "members.a.weight"),
            ("[members.a]\nlow = \"-1\"", "members.a.low"),
        ] {
            match parse(text) {
                Err(error) => assert!(error.contains(key), "{text}: {error}"),
                Ok(_) => panic!("{text}"),
            }
        }
    }
}
