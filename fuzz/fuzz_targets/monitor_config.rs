#![no_main]

use refault_sim::monitoring::config::Config;

// The first line is a scheme and a key to set, the rest a configuration.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(mut config) = Config::parse_with(rest, "fuzz", &[]) {
        let _ = config.add_scheme(line);
        let written = config.to_json(None).to_string();
        assert!(Config::parse(&written, "written").is_ok() || config.profile != Default::default());
    }
    let _ = Config::parse_with(rest, "fuzz", &[line.to_owned()]);
});
