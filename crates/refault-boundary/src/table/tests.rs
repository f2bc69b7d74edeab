use refault_linux::calls::*;

use super::*;

/// Spans that a call names with these arguments.
fn spans(number: usize, arguments: [usize; 6]) -> Vec<Span> {
    let mut spans = Vec::new();
    of(number).expect("it has a row").each(&arguments, &mut |span| spans.push(span));
    spans
}

#[test]
fn each_call_of_the_kernel_has_one_row_in_order() {
    let numbers: Vec<usize> = rows::ROWS.iter().map(|row| row.number).collect();
    let all: Vec<usize> = ALL.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, all);
    assert!(all.iter().all(|number| of(*number).is_some_and(|row| row.number == *number)));
    assert!(of(MAX + 1).is_none() && of(usize::MAX).is_none());
}

#[test]
fn what_may_be_made_twice_is_written_nowhere_but_where_it_answers() {
    for row in rows::ROWS {
        let name = name(row.number).expect("it is a call");
        let writes = row.memory.iter().any(|memory| matches!(memory, Memory::Writes(..)));
        let names_memory = row.memory.iter().any(|memory| !matches!(memory, Memory::Milliseconds(_)));
        let is_served = !matches!(
            row.by,
            By::Kernel | By::Transfer | By::Descriptor | By::Folder | By::Device | By::ProcessOption | By::AtOnce
        );
        match row.twice {
            Twice::NoMemory => assert!(!names_memory || row.by == By::WrittenLater, "{name} names memory"),
            Twice::Takes => assert!(
                writes
                    || row.memory.iter().any(|memory| {
                        matches!(
                            memory,
                            Memory::Vectors(_, _, true) | Memory::Message(_, true) | Memory::Messages(_, _, true)
                        )
                    }),
                "{name} has nowhere to put what it takes"
            ),
            _ => assert!(names_memory || is_served, "{name} names no memory"),
        }
    }
}

#[test]
fn arguments_are_among_the_six() {
    let bytes = |bytes: Bytes| match bytes {
        Bytes::Fixed(_) => 0,
        Bytes::Arg(at) | Bytes::UpTo(at, _) | Bytes::Plus(at, _) | Bytes::Times(at, _) => at,
        Bytes::At(at) | Bytes::Bits(at) | Bytes::Pages(at) => at,
    };
    for row in rows::ROWS {
        for memory in row.memory {
            let highest = match *memory {
                Memory::Reads(at, size) | Memory::Writes(at, size) => at.max(bytes(size)),
                Memory::Vectors(at, count, _) | Memory::Messages(at, count, _) | Memory::Sleep(at, count) => {
                    at.max(count)
                }
                Memory::Text(at) | Memory::Message(at, _) | Memory::MaskMeanwhile(at) => at,
                Memory::MaskByPair(at) | Memory::Wait(at) | Memory::Milliseconds(at) => at,
                Memory::Request(_) => 0,
            };
            assert!(highest < 6, "{:?}", name(row.number));
        }
    }
}

#[test]
fn buffers_are_as_long_as_the_call_says() {
    assert_eq!(spans(SYS_read, [3, 0x1000, 70_000, 0, 0, 0]), [(0x1000, 70_000, true)]);
    assert_eq!(spans(SYS_write, [3, 0x1000, 70_000, 0, 0, 0]), [(0x1000, 70_000, false)]);
    assert_eq!(spans(SYS_openat, [0, 0x1000, 0, 0, 0, 0]), [(0x1000, TEXT, false)]);
    assert_eq!(spans(SYS_poll, [0x1000, 3, 0, 0, 0, 0]), [(0x1000, 24, true)]);
    // One bit more than a word holds.
    assert_eq!(spans(SYS_select, [65, 0x1000, 0, 0, 0, 0])[0], (0x1000, 16, true));
    assert_eq!(spans(SYS_mincore, [0, 4097, 0x1000, 0, 0, 0]), [(0x1000, 2, true)]);
    // A message of System V begins with its kind.
    assert_eq!(spans(SYS_msgsnd, [0, 0x1000, 100, 0, 0, 0]), [(0x1000, 108, false)]);
    // A length that no address has is cut.
    assert_eq!(spans(SYS_bind, [3, 0x1000, usize::MAX, 0, 0, 0]), [(0x1000, 128, false)]);
    assert_eq!(spans(SYS_get_mempolicy, [0, 0, 0, 0x7000, 3, 0])[2], (0x7000, 1, false));
}

#[test]
fn what_memory_says_is_followed() {
    let name_bytes = 20u32;
    let at = (&raw const name_bytes) as usize;
    assert_eq!(spans(SYS_getsockname, [3, 0x1000, at, 0, 0, 0]), [(at, 4, true), (0x1000, 20, true)]);

    let parts = [[0x5000usize, 10], [0x9000, 5000]];
    let at = parts.as_ptr() as usize;
    assert_eq!(spans(SYS_readv, [3, at, 2, 0, 0, 0]), [(at, 32, false), (0x5000, 10, true), (0x9000, 5000, true)]);

    let header = [0x100_0000usize, 16, at, 1, 0x200_0000, 64, 0];
    let message = header.as_ptr() as usize;
    let expected =
        [(message, 56, true), (0x100_0000, 16, true), (at, 16, false), (0x5000, 10, true), (0x200_0000, 64, true)];
    assert_eq!(spans(SYS_recvmsg, [3, message, 0, 0, 0, 0]), expected);
}

#[test]
fn requests_name_what_their_structures_lead_to() {
    // A page at least, whatever the number says; an array behind a head.
    let mut map = [0u8; 32];
    map[24..28].copy_from_slice(&1000u32.to_ne_bytes());
    let at = map.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0xc020_660b, at, 0, 0, 0]), [(at, 4096, true), (at, 32 + 56_000, true)]);
    let mut map = [0u8; 192];
    map[8..12].copy_from_slice(&30_000u32.to_ne_bytes());
    let at = map.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0xc0c0_583b, at, 0, 0, 0]), [(at, 4096, true), (at, 192 + 1_920_000, true)]);
    // Addresses of a network device are counted in 16 bits; its filters are found by the structure's words.
    let addresses = [0u16, 500];
    let at = addresses.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0x4004_54d1, at, 0, 0, 0]), [(at, 4096, true), (at, 3004, false)]);
    let filter = [100usize, 0x7000_0000];
    let at = filter.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0x4010_54d5, at, 0, 0, 0]), [(at, 4096, true), (0x7000_0000, 65_536, true)]);
    // All of a request to the device mapper; entries of a virtual machine's.
    let head = [0u32, 0, 0, 70_000];
    let at = head.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0xc138_fd0c, at, 0, 0, 0]), [(at, 4096, true), (at, 70_000, true)]);
    let head = [256u32, 0];
    let at = head.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0x4008_ae90, at, 0, 0, 0]), [(at, 4096, true), (at, 8 + 10_240, true)]);
    // An address and a number of regions.
    let mut scan = [0usize; 12];
    [scan[5], scan[6]] = [0x60_0000, 20_000];
    let at = scan.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0xc060_6610, at, 0, 0, 0]), [(at, 4096, true), (0x60_0000, 480_000, true)]);
    // A buffer and its bytes.
    let list = [100_000usize, 0x60_0000];
    let at = list.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0x8912, at, 0, 0, 0]), [(at, 4096, true), (0x60_0000, 100_000, true)]);
    // Of a request that nothing is known of: all that may be an address, as long as the largest length beside it.
    let unknown = [7usize, 0x7000_0000, 200_000, 0];
    let at = unknown.as_ptr() as usize;
    assert_eq!(spans(SYS_ioctl, [3, 0xc020_7f01, at, 0, 0, 0])[..2], [(at, 4096, true), (0x7000_0000, 200_000, true)]);
    // What a userfaultfd is asked about stays as it is.
    assert_eq!(spans(SYS_ioctl, [3, 0xc020_aa00, at, 0, 0, 0]), [(at, 4096, true)]);
    // Of terminals none leads on.
    assert_eq!(spans(SYS_ioctl, [3, 0x5401, at, 0, 0, 0]), [(at, 4096, true)]);

    // A filter's room is said in instructions.
    let room = 10u32;
    let at = (&raw const room) as usize;
    assert_eq!(spans(SYS_getsockopt, [3, 1, 26, 0x60_0000, at, 0]), [(at, 4, true), (0x60_0000, 80, true)]);
    assert_eq!(spans(SYS_getsockopt, [3, 1, 4, 0x60_0000, at, 0]), [(at, 4, true), (0x60_0000, 10, true)]);

    assert_eq!(spans(SYS_fcntl, [3, 5, 0x60_0000, 0, 0, 0]), [(0x60_0000, 32, true)]);
    assert_eq!(spans(SYS_fcntl, [3, 4, 0x60_0000, 0, 0, 0]), []);
    assert_eq!(spans(SYS_keyctl, [11, 1, 0x60_0000, 20_000, 0, 0]), [(0x60_0000, 20_000, true)]);
    assert_eq!(spans(SYS_semctl, [1, 0, 13, 0x60_0000, 0, 0]), [(0x60_0000, 64 << 10, true)]);
    // A wait reads its time; a wake has a number there.
    assert_eq!(spans(SYS_futex, [0x60_0000, 0, 1, 0x70_0000, 0, 0]), [(0x60_0000, 4, true), (0x70_0000, 16, false)]);
    assert_eq!(spans(SYS_futex, [0x60_0000, 1, 1, 0x70_0000, 0, 0]), [(0x60_0000, 4, true)]);
}

#[test]
fn many_elements_of_a_map_are_held_before_the_call() {
    // LOOKUP_BATCH of a descriptor that is no map's: as for unknown sizes.
    let argument = [0usize, 0x50_0000, 0x60_0000, 0x70_0000, 3 | 0xffff_ffff << 32, 0, 0];
    let at = argument.as_ptr() as usize;
    let expected = [
        (at, 56, true),
        (0, 4096, true),
        (0x50_0000, 4096, true),
        (0x60_0000, 3 * 4096, true),
        (0x70_0000, 3 * (64 << 10), true),
    ];
    assert_eq!(spans(SYS_bpf, [24, at, 56, 0, 0, 0]), expected);
    assert!(!of(SYS_bpf).expect("it has a row").twice.is_allowed());
}
