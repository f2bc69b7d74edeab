//! Functions that move and compare bytes, which the compiler calls by name: the agent has its own.
//!
//! A sanitizer's runtime, or a library that replaces them, has functions of these names that the loader takes for every
//! library. They look at memory of their own for each call, and that memory is managed: where it is out, the agent
//! would wait for the lock that it holds itself.
//!
//! Invariant: the names are hidden, so the program's own calls never meet them. They touch no memory but what they are
//! given and use only registers that a caller gives up. Cost: as libc's up to some hundred bytes, and for pages; what
//! overlaps is slower.

use std::arch::global_asm;

/// The functions, under names that begin with this.
macro_rules! functions {
    ($prefix:literal) => {
        global_asm!(
            ".text",
            concat!(".globl ", $prefix, "memcpy"),
            concat!(".hidden ", $prefix, "memcpy"),
            concat!(".type ", $prefix, "memcpy, @function"),
            concat!(".globl ", $prefix, "memmove"),
            concat!(".hidden ", $prefix, "memmove"),
            concat!(".type ", $prefix, "memmove, @function"),
            concat!(".globl ", $prefix, "memset"),
            concat!(".hidden ", $prefix, "memset"),
            concat!(".type ", $prefix, "memset, @function"),
            concat!(".globl ", $prefix, "memcmp"),
            concat!(".hidden ", $prefix, "memcmp"),
            concat!(".type ", $prefix, "memcmp, @function"),
            concat!(".globl ", $prefix, "bcmp"),
            concat!(".hidden ", $prefix, "bcmp"),
            concat!(".type ", $prefix, "bcmp, @function"),
            concat!(".globl ", $prefix, "strlen"),
            concat!(".hidden ", $prefix, "strlen"),
            concat!(".type ", $prefix, "strlen, @function"),
            // memcpy(%rdi to, %rsi from, %rdx bytes), memmove: all of a short range is read before any of it is
            // written.
            ".p2align 5",
            concat!($prefix, "memcpy:"),
            concat!($prefix, "memmove:"),
            "  mov %rdi, %rax",
            "  cmp $16, %rdx",
            "  jb 5f",
            "  cmp $32, %rdx",
            "  ja 12f",
            "  movups (%rsi), %xmm0",
            "  movups -16(%rsi,%rdx), %xmm1",
            "  movups %xmm0, (%rdi)",
            "  movups %xmm1, -16(%rdi,%rdx)",
            "  ret",
            "12: cmp $64, %rdx",
            "  ja 2f",
            "  movups (%rsi), %xmm0",
            "  movups 16(%rsi), %xmm1",
            "  movups -32(%rsi,%rdx), %xmm2",
            "  movups -16(%rsi,%rdx), %xmm3",
            "  movups %xmm0, (%rdi)",
            "  movups %xmm1, 16(%rdi)",
            "  movups %xmm2, -32(%rdi,%rdx)",
            "  movups %xmm3, -16(%rdi,%rdx)",
            "  ret",
            // The last 64 bytes are read first, and written last.
            "2: mov %rdi, %rcx",
            "  sub %rsi, %rcx",
            "  cmp %rdx, %rcx",
            "  jb 4f",
            "  cmp $2048, %rdx",
            "  jae 9f",
            "  movups -64(%rsi,%rdx), %xmm4",
            "  movups -48(%rsi,%rdx), %xmm5",
            "  movups -32(%rsi,%rdx), %xmm6",
            "  movups -16(%rsi,%rdx), %xmm7",
            "  lea -64(%rdi,%rdx), %r8",
            "3: movups (%rsi), %xmm0",
            "  movups 16(%rsi), %xmm1",
            "  movups 32(%rsi), %xmm2",
            "  movups 48(%rsi), %xmm3",
            "  movups %xmm0, (%rdi)",
            "  movups %xmm1, 16(%rdi)",
            "  movups %xmm2, 32(%rdi)",
            "  movups %xmm3, 48(%rdi)",
            "  add $64, %rsi",
            "  add $64, %rdi",
            "  cmp %r8, %rdi",
            "  jb 3b",
            "  movups %xmm4, (%r8)",
            "  movups %xmm5, 16(%r8)",
            "  movups %xmm6, 32(%r8)",
            "  movups %xmm7, 48(%r8)",
            "  ret",
            // To within what is copied: from the end. The first 64 bytes are read first, and written last.
            "4: movups (%rsi), %xmm4",
            "  movups 16(%rsi), %xmm5",
            "  movups 32(%rsi), %xmm6",
            "  movups 48(%rsi), %xmm7",
            "  lea 64(%rdi), %r8",
            "  add %rdx, %rsi",
            "  add %rdx, %rdi",
            "6: movups -64(%rsi), %xmm0",
            "  movups -48(%rsi), %xmm1",
            "  movups -32(%rsi), %xmm2",
            "  movups -16(%rsi), %xmm3",
            "  movups %xmm0, -64(%rdi)",
            "  movups %xmm1, -48(%rdi)",
            "  movups %xmm2, -32(%rdi)",
            "  movups %xmm3, -16(%rdi)",
            "  sub $64, %rsi",
            "  sub $64, %rdi",
            "  cmp %r8, %rdi",
            "  ja 6b",
            "  movups %xmm4, (%rax)",
            "  movups %xmm5, 16(%rax)",
            "  movups %xmm6, 32(%rax)",
            "  movups %xmm7, 48(%rax)",
            "  ret",
            // Less than 16.
            "5: cmp $8, %edx",
            "  jb 7f",
            "  mov (%rsi), %rcx",
            "  mov -8(%rsi,%rdx), %r8",
            "  mov %rcx, (%rdi)",
            "  mov %r8, -8(%rdi,%rdx)",
            "  ret",
            "7: cmp $4, %edx",
            "  jb 8f",
            "  mov (%rsi), %ecx",
            "  mov -4(%rsi,%rdx), %r8d",
            "  mov %ecx, (%rdi)",
            "  mov %r8d, -4(%rdi,%rdx)",
            "  ret",
            // Up to three: the first, the middle one and the last.
            "8: test %edx, %edx",
            "  jz 20f",
            "  mov %rdx, %r9",
            "  shr $1, %r9",
            "  movzbl (%rsi), %ecx",
            "  movzbl (%rsi,%r9), %r8d",
            "  movzbl -1(%rsi,%rdx), %esi",
            "  mov %cl, (%rdi)",
            "  mov %r8b, (%rdi,%r9)",
            "  mov %sil, -1(%rdi,%rdx)",
            "20: ret",
            "9: mov %rdx, %rcx",
            "  rep movsb",
            "  ret",
            // memset(%rdi to, %sil byte, %rdx bytes).
            ".p2align 5",
            concat!($prefix, "memset:"),
            "  mov %rdi, %rax",
            "  movzbl %sil, %esi",
            "  movabs $0x0101010101010101, %rcx",
            "  imul %rcx, %rsi",
            "  cmp $16, %rdx",
            "  jb 5f",
            "  cmp $512, %rdx",
            "  jae 9f",
            "  movq %rsi, %xmm0",
            "  punpcklqdq %xmm0, %xmm0",
            "  lea -16(%rdi,%rdx), %r8",
            "3: movups %xmm0, (%rdi)",
            "  add $16, %rdi",
            "  cmp %r8, %rdi",
            "  jb 3b",
            "  movups %xmm0, (%r8)",
            "  ret",
            "5: cmp $8, %edx",
            "  jb 7f",
            "  mov %rsi, (%rdi)",
            "  mov %rsi, -8(%rdi,%rdx)",
            "  ret",
            "7: cmp $4, %edx",
            "  jb 8f",
            "  mov %esi, (%rdi)",
            "  mov %esi, -4(%rdi,%rdx)",
            "  ret",
            "8: test %edx, %edx",
            "  jz 20f",
            "  mov %rdx, %r9",
            "  shr $1, %r9",
            "  mov %sil, (%rdi)",
            "  mov %sil, (%rdi,%r9)",
            "  mov %sil, -1(%rdi,%rdx)",
            "20: ret",
            "9: mov %rax, %r8",
            "  mov %rdx, %rcx",
            "  mov %esi, %eax",
            "  rep stosb",
            "  mov %r8, %rax",
            "  ret",
            // memcmp(%rdi one, %rsi other, %rdx bytes), bcmp: the difference of the first bytes that differ.
            ".p2align 5",
            concat!($prefix, "memcmp:"),
            concat!($prefix, "bcmp:"),
            "  xor %ecx, %ecx",
            "  mov %rdx, %r8",
            "  sub $64, %r8",
            "  jb 2f",
            // Which of 64 differ is for what follows to find out.
            "12: movups (%rdi,%rcx), %xmm0",
            "  movups 16(%rdi,%rcx), %xmm1",
            "  movups 32(%rdi,%rcx), %xmm2",
            "  movups 48(%rdi,%rcx), %xmm3",
            "  movups (%rsi,%rcx), %xmm4",
            "  movups 16(%rsi,%rcx), %xmm5",
            "  movups 32(%rsi,%rcx), %xmm6",
            "  movups 48(%rsi,%rcx), %xmm7",
            "  pcmpeqb %xmm4, %xmm0",
            "  pcmpeqb %xmm5, %xmm1",
            "  pcmpeqb %xmm6, %xmm2",
            "  pcmpeqb %xmm7, %xmm3",
            "  pand %xmm1, %xmm0",
            "  pand %xmm3, %xmm2",
            "  pand %xmm2, %xmm0",
            "  pmovmskb %xmm0, %eax",
            "  cmp $0xffff, %eax",
            "  jne 2f",
            "  add $64, %rcx",
            "  cmp %r8, %rcx",
            "  jbe 12b",
            "2: lea 16(%rcx), %rax",
            "  cmp %rdx, %rax",
            "  ja 4f",
            "  mov %rdx, %r8",
            "  sub $16, %r8",
            "3: movups (%rdi,%rcx), %xmm0",
            "  movups (%rsi,%rcx), %xmm1",
            "  pcmpeqb %xmm1, %xmm0",
            "  pmovmskb %xmm0, %eax",
            "  xor $0xffff, %eax",
            "  jnz 6f",
            "  add $16, %rcx",
            "  cmp %r8, %rcx",
            "  jbe 3b",
            "4: cmp %rdx, %rcx",
            "  jae 5f",
            "  movzbl (%rdi,%rcx), %eax",
            "  movzbl (%rsi,%rcx), %r9d",
            "  inc %rcx",
            "  sub %r9d, %eax",
            "  jz 4b",
            "  ret",
            "5: xor %eax, %eax",
            "  ret",
            "6: bsf %eax, %eax",
            "  add %rax, %rcx",
            "  movzbl (%rdi,%rcx), %eax",
            "  movzbl (%rsi,%rcx), %r9d",
            "  sub %r9d, %eax",
            "  ret",
            // strlen(%rdi text).
            ".p2align 5",
            concat!($prefix, "strlen:"),
            "  xor %eax, %eax",
            "3: cmpb $0, (%rdi,%rax)",
            "  je 5f",
            "  inc %rax",
            "  jmp 3b",
            "5: ret",
            options(att_syntax),
        );
    };
}

#[cfg(not(test))]
functions!("");

// Under other names in the crate's tests, which have libc's beside them.
#[cfg(test)]
functions!("refault_own_");

#[cfg(test)]
mod tests {
    use core::ffi::{c_int, c_void};

    use proptest::prelude::*;

    unsafe extern "C" {
        fn refault_own_memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
        fn refault_own_memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
        fn refault_own_memset(to: *mut c_void, byte: c_int, bytes: usize) -> *mut c_void;
        fn refault_own_memcmp(one: *const c_void, other: *const c_void, bytes: usize) -> c_int;
        fn refault_own_bcmp(one: *const c_void, other: *const c_void, bytes: usize) -> c_int;
        fn refault_own_strlen(text: *const u8) -> usize;
    }

    /// More than what is moved by the longest way needs, with room on both sides.
    const BYTES: usize = 9_000;

    /// Bytes that differ from their neighbours.
    fn filled() -> Vec<u8> {
        (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Short ranges, of which each length is another way, are tried more than long ones.
    fn length() -> impl Strategy<Value = usize> {
        prop_oneof![4 => 0..160usize, 2 => 400..700usize, 1 => 1_900..4_200usize]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn moves_as_the_language_does(from in 0..4_500usize, to in 0..4_500usize, bytes in length()) {
            let (mut ours, mut theirs) = (filled(), filled());
            theirs.copy_within(from..from + bytes, to);
            let base = ours.as_mut_ptr();
            // SAFETY: both ranges lie within the bytes, and may overlap.
            let returned = unsafe { refault_own_memmove(base.add(to).cast(), base.add(from).cast(), bytes) };
            prop_assert_eq!(returned as usize, base as usize + to);
            prop_assert!(ours == theirs);
        }

        #[test]
        fn moves_to_places_nearby(from in 100..300usize, off in -80..80isize, bytes in length()) {
            let to = from.wrapping_add_signed(off);
            let (mut ours, mut theirs) = (filled(), filled());
            theirs.copy_within(from..from + bytes, to);
            let base = ours.as_mut_ptr();
            // SAFETY: as above.
            unsafe { refault_own_memmove(base.add(to).cast(), base.add(from).cast(), bytes) };
            prop_assert!(ours == theirs);
        }

        #[test]
        fn copies_and_fills_that_and_no_more(from in 0..64usize, to in 0..64usize, bytes in length(), byte: u8) {
            let source = filled();
            let (mut ours, mut theirs) = (vec![3; BYTES], vec![3; BYTES]);
            theirs[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
            // SAFETY: ranges of two lists.
            unsafe { refault_own_memcpy(ours[to..].as_mut_ptr().cast(), source[from..].as_ptr().cast(), bytes) };
            prop_assert!(ours == theirs);
            theirs[from..from + bytes].fill(byte);
            // SAFETY: a range of a list. Of the number only the last byte counts.
            unsafe { refault_own_memset(ours[from..].as_mut_ptr().cast(), c_int::from(byte) | 0x7700, bytes) };
            prop_assert!(ours == theirs);
        }

        #[test]
        fn compares_as_the_language_does(
            at in 0..64usize, beside in 0..64usize, bytes in length(), changed in proptest::option::of((0..4_200usize, 1..=255u8)),
        ) {
            let source = filled();
            let mut other = vec![0; BYTES];
            other[beside..beside + bytes].copy_from_slice(&source[at..at + bytes]);
            if let Some((place, by)) = changed.filter(|_| bytes > 0) {
                other[beside + place % bytes] ^= by;
            }
            let wanted = source[at..at + bytes].cmp(&other[beside..beside + bytes]) as c_int;
            let (one, two) = (source[at..].as_ptr().cast(), other[beside..].as_ptr().cast());
            // SAFETY: ranges of two lists.
            unsafe {
                prop_assert_eq!(refault_own_memcmp(one, two, bytes).signum(), wanted);
                prop_assert_eq!(refault_own_bcmp(one, two, bytes) != 0, wanted != 0);
            }
        }

        #[test]
        fn finds_the_end_of_a_text(bytes in 0..200usize) {
            let mut text = vec![b'x'; bytes];
            text.push(0);
            // SAFETY: it ends with a zero.
            prop_assert_eq!(unsafe { refault_own_strlen(text.as_ptr()) }, bytes);
        }
    }
}
