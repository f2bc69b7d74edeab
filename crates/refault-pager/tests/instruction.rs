//! Instructions that are carried out by hand (`src/instruction.rs`, which this compiles), against another decoder and against the
//! processor itself.
#![cfg(target_arch = "x86_64")]

#[allow(dead_code, reason = "a part is used here")]
#[path = "../src/instruction.rs"]
mod instruction;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use instruction::{Instruction, LONGEST, Registers, decode};

const AT: u64 = 0x5555_1234_0000;

#[derive(Clone, Debug, PartialEq)]
struct Machine {
    general: [u64; 16],
    vectors: [[u8; 16]; 16],
    instruction: u64,
    flags: u64,
}

impl Registers for Machine {
    fn general(&self, number: u8) -> u64 {
        self.general[usize::from(number)]
    }
    fn set_general(&mut self, number: u8, value: u64) {
        self.general[usize::from(number)] = value;
    }
    fn instruction(&self) -> u64 {
        self.instruction
    }
    fn set_instruction(&mut self, address: u64) {
        self.instruction = address;
    }
    fn flags(&self) -> u64 {
        self.flags
    }
    fn set_flags(&mut self, flags: u64) {
        self.flags = flags;
    }
    fn set_vector(&mut self, number: u8, value: [u8; 16]) -> bool {
        self.vectors[usize::from(number)] = value;
        true
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }

    /// Now and then a number at which carries and signs change.
    fn value(&mut self) -> u64 {
        let edges = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fff_ffff, 0x8000_0000, u64::MAX, 1 << 63];
        let value = self.next();
        if value.is_multiple_of(3) { edges[(value >> 8) as usize % edges.len()] } else { value }
    }

    fn machine(&mut self) -> Machine {
        Machine {
            general: std::array::from_fn(|_| self.value()),
            vectors: std::array::from_fn(|_| std::array::from_fn(|_| self.next() as u8)),
            instruction: AT,
            flags: 0x202,
        }
    }
}

/// Machine code with all prefixes that compilers use, all opcodes, and some forms of each.
fn for_each_code(forms: &[u8], mut visit: impl FnMut([u8; LONGEST], &mut Random)) {
    let mut random = Random(1);
    for prefix in [None, Some(0x66), Some(0xf2), Some(0xf3), Some(0x67), Some(0x64), Some(0xf0), Some(0x2e)] {
        for rex in [None, Some(0x40), Some(0x41), Some(0x42), Some(0x44), Some(0x48), Some(0x4f)] {
            for (map, opcode) in [None, Some(0x0f)].into_iter().flat_map(|map| (0..=255).map(move |byte| (map, byte))) {
                for form in forms {
                    let mut code: [u8; LONGEST] = std::array::from_fn(|_| random.next() as u8);
                    let bytes = [prefix, rex, map, Some(opcode), Some(*form)].into_iter().flatten();
                    code.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
                    visit(code, &mut random);
                }
            }
        }
    }
}

fn other_decoder(code: &[u8]) -> iced_x86::Instruction {
    Decoder::with_ip(64, code, AT, DecoderOptions::NONE).decode()
}

/// The number of a register in instructions, whatever its size.
fn number(register: Register) -> u8 {
    if register.is_xmm() { register.number() as u8 } else { register.full_register().number() as u8 }
}

/// What one register holds, for the other decoder.
fn held(machine: &Machine, register: Register) -> u64 {
    if register.is_segment_register() { 0 } else { machine.general[usize::from(number(register))] }
}

#[test]
fn another_decoder_sees_the_same_instruction_and_the_same_address() {
    let mut known = 0;
    let mut mnemonics = std::collections::BTreeSet::new();
    let mut factory = InstructionInfoFactory::new();
    for_each_code(&(0..=255).collect::<Vec<_>>(), |code, random| {
        let Some(instruction) = decode(&code) else { return };
        known += 1;
        let other = other_decoder(&code);
        let machine = random.machine();
        assert_eq!(instruction.length(), other.len(), "{other:?}: {code:02x?}");
        let info = factory.info(&other);
        let [memory] = info.used_memory() else { panic!("{other:?} uses memory once") };
        let access = if instruction.writes() { OpAccess::Write } else { OpAccess::Read };
        assert_eq!(memory.access(), access, "{other:?}");
        assert_eq!(instruction.bytes(), memory.memory_size().size(), "{other:?}: {code:02x?}");
        let address = memory.virtual_address(0, |register, _, _| Some(held(&machine, register)));
        assert_eq!(Some(instruction.address(&machine)), address, "{other:?}: {code:02x?}");
        // A shorter piece of it is none, and neither panics.
        for length in 0..instruction.length() {
            assert_eq!(decode(&code[..length]), None, "{other:?} cut to {length} bytes");
        }
        mnemonics.insert(format!("{:?}", other.mnemonic()));
    });
    let expected = "Add And Cmp Mov Movaps Movapd Movd Movdqa Movdqu Movq Movsd Movss Movsx Movsxd Movupd Movups \
        Movzx Or Sub Test Xor";
    assert_eq!(mnemonics, expected.split(' ').map(str::to_owned).collect(), "of {known}");
}

/// Runs one instruction on the processor, with the address in rsi and what the caller need not keep for the rest.
fn run(page: *mut u8, code: &[u8], machine: &Machine) -> Machine {
    let mut after = machine.clone();
    // SAFETY: the page is writable and executable, and nobody else uses it.
    unsafe {
        page.copy_from_nonoverlapping(code.as_ptr(), code.len());
        page.add(code.len()).write(0xc3);
    }
    let (before, now) = (&machine.general, &mut after.general);
    let mut vectors = [[0u8; 16]; 8];
    vectors.copy_from_slice(&machine.vectors[..8]);
    // SAFETY: the code is one instruction that reads 16 bytes at rsi at most, and a return; what it may change is named.
    unsafe {
        std::arch::asm!(
            "movups xmm0, [r12]", "movups xmm1, [r12 + 16]", "movups xmm2, [r12 + 32]", "movups xmm3, [r12 + 48]",
            "movups xmm4, [r12 + 64]", "movups xmm5, [r12 + 80]", "movups xmm6, [r12 + 96]", "movups xmm7, [r12 + 112]",
            "push r13", "popfq",
            "call r14",
            "pushfq", "pop r13",
            "movups [r12], xmm0", "movups [r12 + 16], xmm1", "movups [r12 + 32], xmm2", "movups [r12 + 48], xmm3",
            "movups [r12 + 64], xmm4", "movups [r12 + 80], xmm5", "movups [r12 + 96], xmm6", "movups [r12 + 112], xmm7",
            inout("rax") before[0] => now[0],
            inout("rcx") before[1] => now[1],
            inout("rdx") before[2] => now[2],
            inout("rsi") before[6] => now[6],
            inout("rdi") before[7] => now[7],
            inout("r8") before[8] => now[8],
            inout("r9") before[9] => now[9],
            inout("r10") before[10] => now[10],
            inout("r11") before[11] => now[11],
            in("r12") vectors.as_mut_ptr(),
            inout("r13") machine.flags => after.flags,
            in("r14") page,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
        );
    }
    after.vectors[..8].copy_from_slice(&vectors);
    after.instruction += code.len() as u64;
    after
}

#[test]
fn the_processor_does_the_same() {
    #[repr(align(16))]
    struct Aligned([u8; 16]);
    // SAFETY: a new mapping; it is unmapped when the test's process ends.
    let page = unsafe {
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        libc::mmap(std::ptr::null_mut(), 4096, all, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    let mut done = 0;
    // Memory at rsi, any other register.
    let forms: Vec<u8> = (0..8).map(|register| register << 3 | 6).collect();
    for_each_code(&forms, |code, random| {
        let Some(instruction) = decode(&code) else { return };
        let other = other_decoder(&code);
        // Registers that the harness uses itself, or that have to stay as they are.
        let mine =
            [Register::RSP, Register::RBP, Register::RBX, Register::R12, Register::R13, Register::R14, Register::R15];
        let is_mine =
            |at| other.op_kind(at) == OpKind::Register && mine.contains(&other.op_register(at).full_register());
        if other.memory_base() != Register::RSI || (0..other.op_count()).any(is_mine) {
            return;
        }
        if (0..other.op_count()).any(|at| other.op_register(at).is_xmm() && number(other.op_register(at)) > 7) {
            return;
        }
        for _ in 0..4 {
            let mut memory = Aligned([0; 16]);
            memory.0.chunks_exact_mut(8).for_each(|half| half.copy_from_slice(&random.value().to_le_bytes()));
            let mut machine = random.machine();
            machine.general[6] = memory.0.as_ptr() as u64;
            let mut found = machine.clone();
            let mut contents = memory.0;
            if instruction.writes() {
                contents[..instruction.bytes()].copy_from_slice(&instruction.written(&found)[..instruction.bytes()]);
                assert!(!instruction.read(&memory.0[..instruction.bytes()], &mut found), "{other:?}");
                instruction.end(&mut found);
            } else {
                assert!(instruction.read(&memory.0[..instruction.bytes()], &mut found), "{other:?}");
            }
            let expected = run(page.cast(), &code[..instruction.length()], &machine);
            assert_eq!(contents, memory.0, "{other:?}, {code:02x?}");
            // The manual leaves one flag of logic open.
            let open = match other.mnemonic() {
                Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => 1 << 4,
                _ => 0,
            };
            let rest = |machine: Machine| Machine { flags: machine.flags & !open, ..machine };
            assert_eq!(
                rest(found),
                rest(expected),
                "{other:?}, {code:02x?}, memory {:x?}, from {machine:x?}",
                memory.0
            );
            done += 1;
        }
    });
    assert!(done > 1000, "{done}");
}

#[test]
fn an_aligned_load_from_elsewhere_is_left_to_the_processor() {
    // movaps xmm0, [rsi]
    let instruction: Instruction = decode(&[0x0f, 0x28, 0x06]).expect("a instruction");
    let mut machine = Random(3).machine();
    machine.general[6] = 0x1008;
    let before = machine.clone();
    assert!(!instruction.read(&[1; 16], &mut machine));
    assert_eq!(machine, before);
    machine.general[6] = 0x1010;
    assert!(instruction.read(&[1; 16], &mut machine));
    assert_eq!((machine.vectors[0], machine.instruction), ([1; 16], AT + 3));
}
