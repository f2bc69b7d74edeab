//! What `refault run` tells the agent: `key=value` pairs separated by the unit separator (0x1f).

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Bytes.
    pub(crate) memory: u64,
    /// Each process has a budget of its own.
    pub(crate) own: bool,
    /// Compressed pages and the agent's own memory do not count.
    pub(crate) resident_only: bool,
    pub(crate) policy: String,
    /// The directory of the file, if there may be one.
    pub(crate) file: Option<String>,
    /// The descriptor of the segment that the tree shares.
    pub(crate) segment: Option<i32>,
}

impl Settings {
    pub(crate) fn parse(text: &str) -> Result<Settings, String> {
        let mut settings = Settings {
            memory: 0,
            own: false,
            resident_only: false,
            policy: "mglru".to_owned(),
            file: None,
            segment: None,
        };
        for pair in text.split('\u{1f}') {
            let (key, value) = pair.split_once('=').ok_or("a pair without `=`")?;
            let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is not a number"));
            match key {
                "memory" => settings.memory = number()?,
                "own" => settings.own = value == "1",
                "resident-only" => settings.resident_only = value == "1",
                "policy" => settings.policy = value.to_owned(),
                "file" => settings.file = Some(value.to_owned()),
                // For `refault top`, which looks at the environment of processes.
                "stats" => {}
                "segment" => settings.segment = Some(number()? as i32),
                _ => return Err(format!("`{key}` is no setting")),
            }
        }
        Ok(settings)
    }
}
