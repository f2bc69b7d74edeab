//! Logs with kills for memory: any bytes are some kills, whose names are printable and whose figures are what the lines
//! can hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refault_host::why::log::{MAX_TASKS, kills};
use refault_host::why::replay::choices;
use refault_host::why::verdict::verdicts;

fuzz_target!(|bytes: &[u8]| {
    let all = kills(bytes);
    assert!(all.len() <= bytes.split(|byte| *byte == b'\n').count());
    for kill in &all {
        let names = [&kill.group, &kill.victim_group, &kill.asked_by, &kill.reason].into_iter().flatten();
        let names = names.chain(kill.tasks.iter().map(|task| &task.name)).chain([&kill.victim.name]);
        names.for_each(|name| assert!(!name.chars().any(char::is_control), "{name:?}"));
        assert!(kill.tasks.len() <= MAX_TASKS);
        assert!(kill.seconds_after_boot.is_none_or(|seconds| seconds >= 0.0));
        choices(kill);
        assert!(!verdicts(kill, &[]).is_empty());
    }
    // What stands before a log takes nothing from it.
    let more = [b"Out of memory: nothing\n", bytes].concat();
    assert_eq!(kills(&more).len(), all.len());
});
