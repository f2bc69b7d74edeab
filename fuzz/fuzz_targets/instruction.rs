//! Machine code that may be known: whatever it is, it is told apart without a panic, and what is known is carried out.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/refault-pager/src/instruction.rs"]
mod instruction;

#[derive(Default)]
struct Machine {
    general: [u64; 16],
    instruction: u64,
    flags: u64,
}

impl instruction::Registers for Machine {
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
    fn set_vector(&mut self, number: u8, _: [u8; 16]) -> bool {
        assert!(number < 16);
        true
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(instruction) = instruction::decode(data) else { return };
    let mut machine = Machine { instruction: u64::from_le_bytes([data[0]; 8]), ..Machine::default() };
    machine.general.iter_mut().zip(data).for_each(|(register, byte)| *register = u64::from_le_bytes([*byte; 8]));
    let before = machine.instruction;
    let _ = instruction.address(&machine);
    let _ = instruction.written(&machine);
    if instruction.read(&[data[0]; 16][..instruction.bytes()], &mut machine) {
        assert_eq!(machine.instruction, before.wrapping_add(instruction.length() as u64));
    }
});
