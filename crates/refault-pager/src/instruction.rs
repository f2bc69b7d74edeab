//! Machine instructions that read or write memory once, carried out by hand on contents that are not mapped (x86-64).
//!
//! A small part of the instruction set: moves to a register, whole, extended or into an SSE register; moves of a register or a number to
//! memory; comparisons and tests; and sums, differences and the like with a register as their target. What has a prefix or a form
//! that is not listed in [`decode`] is unknown to this module: whoever asks brings the page in, which is always right.
//!
//! Invariant: an instruction that is carried out here leaves the thread as the processor would have. Checked against another
//! decoder and against the processor itself. Cost: some 10 ns, no allocation, no call.
//!
//! Source: *AMD64 Architecture Programmer's Manual*, volumes 2 and 3.

/// Registers by their number in instructions, and the two that have none.
pub trait Registers {
    /// A general register, 0 (rax) to 15 (r15).
    fn general(&self, number: u8) -> u64;
    /// Writes one.
    fn set_general(&mut self, number: u8, value: u64);
    /// The address of the instruction.
    fn instruction(&self) -> u64;
    /// Goes on to another instruction.
    fn set_instruction(&mut self, address: u64);
    /// The flags.
    fn flags(&self) -> u64;
    /// Writes them.
    fn set_flags(&mut self, flags: u64);
    /// Writes the low 16 bytes of a vector register, 0 to 15. False if it cannot be done.
    fn set_vector(&mut self, number: u8, value: [u8; 16]) -> bool;
}

/// What is done with the bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// They replace the register's low bytes; four replace it whole, with zeros above.
    Move,
    /// The register's low bytes or a number replace them.
    Store(Other),
    /// They become a number of so many bytes.
    Extend {
        to: u8,
        signed: bool,
    },
    /// They become the low bytes of a vector register, with zeros above.
    Vector {
        aligned: bool,
    },
    Add,
    Or,
    And,
    Subtract,
    Xor,
    /// Flags of the register less memory.
    Compare,
    /// Flags of memory less the register or a number.
    CompareWith(Other),
    /// Flags of what both have.
    Test(Other),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Register,
    Number(i32),
}

/// An instruction that reads memory once, or writes it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    operation: Operation,
    /// The register's number.
    register: u8,
    /// It is bits 8 to 15 of that register.
    high: bool,
    /// Bytes of memory.
    bytes: u8,
    /// Bytes of the instruction.
    length: u8,
    base: Base,
    /// A register and the bits by which it is shifted.
    index: Option<(u8, u8)>,
    displacement: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    None,
    Register(u8),
    /// The instruction that follows.
    Next,
}

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;

const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;
const ARITHMETIC: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// Bytes that are read one after the other.
struct Code<'a>(std::slice::Iter<'a, u8>);

impl Code<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.0.next().copied()
    }

    /// A number of 1 or 4 bytes.
    fn number(&mut self, bytes: u8) -> Option<i32> {
        if bytes == 1 {
            return Some(i32::from(self.byte()? as i8));
        }
        let mut all = [0; 4];
        for byte in &mut all {
            *byte = self.byte()?;
        }
        Some(i32::from_le_bytes(all))
    }
}

/// The instruction that some machine code begins with, if it is one of those that this module knows.
pub fn decode(code: &[u8]) -> Option<Instruction> {
    let code = &code[..code.len().min(LONGEST)];
    let mut rest = Code(code.iter());
    let (mut half, mut prefix, mut rex) = (false, None, 0);
    let mut byte = rest.byte()?;
    // At most one prefix of a kind; others are rare.
    if byte == 0x66 {
        half = true;
        byte = rest.byte()?;
    } else if byte == 0xf2 || byte == 0xf3 {
        prefix = Some(byte);
        byte = rest.byte()?;
    }
    if byte & 0xf0 == 0x40 {
        rex = byte;
        byte = rest.byte()?;
    }
    let wide = rex & 8 != 0;
    if half && wide {
        return None;
    }
    let size = if wide {
        8
    } else if half {
        2
    } else {
        4
    };
    let two = byte == 0x0f;
    if two {
        byte = rest.byte()?;
    }
    let form = rest.byte()?;
    let (mode, middle, low) = (form >> 6, form >> 3 & 7, form & 7);
    use Operation::*;
    let scalar = prefix == Some(0xf2);
    // What the opcode stands for: the operation, bytes of memory, bytes of a number that follows.
    let (operation, bytes, number) = match (two, byte, prefix, half) {
        (false, 0x8a, None, false) => (Move, 1, 0),
        (false, 0x8b, None, _) => (Move, size, 0),
        (false, 0x88, None, false) => (Store(Other::Register), 1, 0),
        (false, 0x89, None, _) => (Store(Other::Register), size, 0),
        (false, 0xc6, None, false) if middle == 0 => (Store(Other::Number(0)), 1, 1),
        (false, 0x63, None, false) if wide => (Extend { to: 8, signed: true }, 4, 0),
        (false, 0x03, None, _) => (Add, size, 0),
        (false, 0x0b, None, _) => (Or, size, 0),
        (false, 0x23, None, _) => (And, size, 0),
        (false, 0x2b, None, _) => (Subtract, size, 0),
        (false, 0x33, None, _) => (Xor, size, 0),
        (false, 0x3a, None, false) => (Compare, 1, 0),
        (false, 0x3b, None, _) => (Compare, size, 0),
        (false, 0x38, None, false) => (CompareWith(Other::Register), 1, 0),
        (false, 0x39, None, _) => (CompareWith(Other::Register), size, 0),
        (false, 0x84, None, false) => (Test(Other::Register), 1, 0),
        (false, 0x85, None, _) => (Test(Other::Register), size, 0),
        (false, 0x80, None, false) if middle == 7 => (CompareWith(Other::Number(0)), 1, 1),
        (false, 0x83, None, _) if middle == 7 => (CompareWith(Other::Number(0)), size, 1),
        // With a prefix their number is short.
        (false, 0xc7, None, false) if middle == 0 => (Store(Other::Number(0)), size, 4),
        (false, 0x81, None, false) if middle == 7 => (CompareWith(Other::Number(0)), size, 4),
        (false, 0xf6, None, false) if middle == 0 => (Test(Other::Number(0)), 1, 1),
        (false, 0xf7, None, false) if middle == 0 => (Test(Other::Number(0)), size, 4),
        (true, 0xb6 | 0xbe, None, _) => (Extend { to: size, signed: byte == 0xbe }, 1, 0),
        (true, 0xb7 | 0xbf, None, false) => (Extend { to: size, signed: byte == 0xbf }, 2, 0),
        (true, 0x10, Some(_), _) => (Vector { aligned: false }, if scalar { 8 } else { 4 }, 0),
        (true, 0x10, None, _) => (Vector { aligned: false }, 16, 0),
        (true, 0x28, None, _) => (Vector { aligned: true }, 16, 0),
        (true, 0x6f, None, true) => (Vector { aligned: true }, 16, 0),
        (true, 0x6f, Some(0xf3), _) => (Vector { aligned: false }, 16, 0),
        (true, 0x7e, Some(0xf3), _) => (Vector { aligned: false }, 8, 0),
        (true, 0x6e, None, true) => (Vector { aligned: false }, 4, 0),
        _ => return None,
    };
    let mut place = place(&mut rest, mode, low, rex)?;
    let operation = match operation {
        CompareWith(Other::Number(_)) => CompareWith(Other::Number(rest.number(number)?)),
        Test(Other::Number(_)) => Test(Other::Number(rest.number(number)?)),
        Store(Other::Number(_)) => Store(Other::Number(rest.number(number)?)),
        other => other,
    };
    // Registers of one byte are the second bytes of the first four, unless there is a REX prefix.
    let of_a_byte = match operation {
        Move | Compare | CompareWith(Other::Register) | Test(Other::Register) | Store(Other::Register) => bytes == 1,
        _ => false,
    };
    place.high = of_a_byte && rex == 0 && middle >= 4;
    place.register = if place.high { middle - 4 } else { middle | (rex & 4) << 1 };
    Some(Instruction { operation, bytes, length: (code.len() - rest.0.len()) as u8, ..place })
}

/// How the address is formed, from the form's parts.
fn place(rest: &mut Code<'_>, mode: u8, low: u8, rex: u8) -> Option<Instruction> {
    let mut base = Base::Register(low | (rex & 1) << 3);
    let mut index = None;
    let mut displacement = match mode {
        1 => 1,
        2 => 4,
        0 => 0,
        _ => return None,
    };
    if low == 4 {
        let scaled = rest.byte()?;
        let number = scaled >> 3 & 7 | (rex & 2) << 2;
        index = (number != 4).then_some((number, scaled >> 6));
        base = Base::Register(scaled & 7 | (rex & 1) << 3);
        if scaled & 7 == 5 && mode == 0 {
            (base, displacement) = (Base::None, 4);
        }
    } else if low == 5 && mode == 0 {
        (base, displacement) = (Base::Next, 4);
    }
    let displacement = if displacement == 0 { 0 } else { rest.number(displacement)? };
    let unknown = Instruction {
        operation: Operation::Move,
        register: 0,
        high: false,
        bytes: 0,
        length: 0,
        base,
        index,
        displacement,
    };
    Some(unknown)
}

impl Instruction {
    /// Whether it writes memory; otherwise it reads it.
    pub fn writes(&self) -> bool {
        matches!(self.operation, Operation::Store(_))
    }

    /// Bytes of memory that it reads or writes.
    pub fn bytes(&self) -> usize {
        usize::from(self.bytes)
    }

    /// Bytes of the instruction.
    #[allow(dead_code, reason = "for the tests that compile this file")]
    pub fn length(&self) -> usize {
        usize::from(self.length)
    }

    /// Where they lie.
    pub fn address(&self, registers: &impl Registers) -> u64 {
        let base = match self.base {
            Base::None => 0,
            Base::Register(number) => registers.general(number),
            Base::Next => registers.instruction().wrapping_add(u64::from(self.length)),
        };
        let index = self.index.map_or(0, |(number, shift)| registers.general(number) << shift);
        base.wrapping_add(index).wrapping_add_signed(i64::from(self.displacement))
    }

    /// What one that writes memory puts there ([`Instruction::bytes`] of these); it is not over yet ([`Instruction::end`]).
    pub fn written(&self, registers: &impl Registers) -> [u8; 8] {
        let value = match self.operation {
            Operation::Store(Other::Number(number)) => i64::from(number) as u64,
            _ => self.own(registers),
        };
        value.to_le_bytes()
    }

    /// Goes on to the next instruction.
    pub fn end(&self, registers: &mut impl Registers) {
        registers.set_instruction(registers.instruction().wrapping_add(u64::from(self.length)));
    }

    /// The register, from its lowest bit that counts.
    fn own(&self, registers: &impl Registers) -> u64 {
        registers.general(self.register) >> if self.high { 8 } else { 0 }
    }

    /// Does what the processor would have done with the bytes that one reads ([`Instruction::bytes`]), to its end. False, and
    /// nothing done, if that is not possible, or if it writes.
    pub fn read(&self, memory: &[u8], registers: &mut impl Registers) -> bool {
        let mut bytes = [0; 16];
        bytes[..memory.len()].copy_from_slice(memory);
        let read = u64::from_le_bytes(bytes[..8].try_into().expect("invariant: eight bytes"));
        let own = self.own(registers);
        let other = |other| match other {
            Other::Register => own,
            Other::Number(number) => i64::from(number) as u64,
        };
        match self.operation {
            Operation::Move => self.put(read, self.bytes, registers),
            Operation::Extend { to, signed } => {
                let unused = 64 - 8 * u32::from(self.bytes);
                let value = if signed { ((read << unused) as i64 >> unused) as u64 } else { read };
                self.put(value, to, registers);
            }
            Operation::Vector { aligned } => {
                let misplaced = aligned && !self.address(registers).is_multiple_of(16);
                if misplaced || !registers.set_vector(self.register, bytes) {
                    return false;
                }
            }
            Operation::Add => {
                let sum = own.wrapping_add(read);
                self.put(sum, self.bytes, registers);
                let sum = self.cut(sum);
                let carry = sum < self.cut(own);
                self.note(sum, carry, (own ^ sum) & (read ^ sum), own ^ read ^ sum, registers);
            }
            Operation::Subtract => {
                self.put(own.wrapping_sub(read), self.bytes, registers);
                self.compare(own, read, registers);
            }
            Operation::Compare => self.compare(own, read, registers),
            Operation::CompareWith(number) => self.compare(read, other(number), registers),
            Operation::Or => self.logic(own | read, registers),
            Operation::And => self.logic(own & read, registers),
            Operation::Xor => self.logic(own ^ read, registers),
            Operation::Test(number) => self.note(read & other(number), false, 0, 0, registers),
            Operation::Store(_) => return false,
        }
        self.end(registers);
        true
    }

    fn logic(&self, result: u64, registers: &mut impl Registers) {
        self.put(result, self.bytes, registers);
        self.note(result, false, 0, 0, registers);
    }

    fn compare(&self, from: u64, less: u64, registers: &mut impl Registers) {
        let result = from.wrapping_sub(less);
        let borrow = self.cut(from) < self.cut(less);
        self.note(result, borrow, (from ^ less) & (from ^ result), from ^ less ^ result, registers);
    }

    /// Writes the low bytes of the register.
    fn put(&self, value: u64, bytes: u8, registers: &mut impl Registers) {
        let before = registers.general(self.register);
        let value = match bytes {
            8 => value,
            4 => value & 0xffff_ffff,
            2 => before & !0xffff | value & 0xffff,
            _ if self.high => before & !0xff00 | (value & 0xff) << 8,
            _ => before & !0xff | value & 0xff,
        };
        registers.set_general(self.register, value);
    }

    /// The bytes that count.
    fn cut(&self, value: u64) -> u64 {
        value & u64::MAX >> (64 - 8 * u32::from(self.bytes))
    }

    /// Sets the flags of a result. `overflow` in its highest bit, `adjust` in the bit of that flag.
    fn note(&self, result: u64, carry: bool, overflow: u64, adjust: u64, registers: &mut impl Registers) {
        let result = self.cut(result);
        let highest = 8 * u32::from(self.bytes) - 1;
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        let flags = flag(carry, CARRY)
            | flag((result as u8).count_ones().is_multiple_of(2), PARITY)
            | adjust & ADJUST
            | flag(result == 0, ZERO)
            | flag(result >> highest & 1 != 0, SIGN)
            | flag(overflow >> highest & 1 != 0, OVERFLOW);
        registers.set_flags(registers.flags() & !ARITHMETIC | flags);
    }
}
