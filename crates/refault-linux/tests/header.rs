//! The lists against the headers of the machine that tests them: a call that is new there fails until it is listed.

use std::collections::BTreeMap;

use refault_linux::{calls, clone, i386};

/// Numbers of a header by name; `None` where the machine has no such header.
fn header(name: &str) -> Option<BTreeMap<String, usize>> {
    let text = ["/usr/include/x86_64-linux-gnu/asm", "/usr/include/asm"]
        .into_iter()
        .find_map(|folder| std::fs::read_to_string(format!("{folder}/{name}")).ok())?;
    let numbers = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    });
    Some(numbers.collect())
}

fn compare(name: &str, listed: &[(usize, &str)]) {
    let Some(header) = header(name) else {
        println!("no {name} here: nothing is compared");
        return;
    };
    assert!(header.len() > 300, "{name} has {} calls", header.len());
    let listed: BTreeMap<&str, usize> = listed.iter().map(|(number, name)| (*name, *number)).collect();
    for (call, number) in header {
        assert_eq!(listed.get(call.as_str()), Some(&number), "{call} of {name} is not listed with its number");
    }
}

#[test]
fn every_call_of_the_machine_is_listed() {
    compare("unistd_64.h", calls::ALL);
    compare("unistd_32.h", i386::ALL);
}

#[test]
fn lists_are_in_order_and_names_are_found() {
    for list in [calls::ALL, i386::ALL] {
        assert!(list.is_sorted_by(|(before, _), (after, _)| before < after));
    }
    assert!(calls::ALL.iter().all(|(number, name)| calls::name(*number) == Some(name)));
    assert!(i386::ALL.iter().all(|(number, name)| i386::name(*number) == Some(name)));
    assert_eq!((calls::name(400), i386::name(222)), (None, None));
}

#[test]
fn flags_of_children_are_single_bits_and_differ() {
    let all = clone::FLAGS.iter().map(|flag| flag.bit).inspect(|bit| assert!(bit.is_power_of_two()));
    assert_eq!(all.fold(0, |sum, bit| sum | bit).count_ones() as usize, clone::FLAGS.len());
    // `clone` has 32 bits, of which the lowest byte is a signal.
    for flag in clone::FLAGS {
        let fits = flag.bit <= u64::from(u32::MAX) && flag.bit & clone::CSIGNAL == 0;
        assert_eq!(flag.by_clone, fits, "{}", flag.name);
    }
}
