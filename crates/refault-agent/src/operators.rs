//! C++'s `operator new` and `operator delete`, over the `malloc` here.
//!
//! The C++ library's would do the same. They stand here because a program that is linked to another allocator has that one's,
//! which allocates for itself but frees by the name `free`, which is ours.

use libc::{c_void, size_t};

use crate::malloc::{allocate, free, memalign};

/// The C++ library's functions: what to do when there is no memory.
type Handler = extern "C-unwind" fn();

fn find(name: &std::ffi::CStr) -> usize {
    // SAFETY: looks up a name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

/// Tries until there is memory, the handler has none to give, or an exception is thrown.
fn insist(allocate: impl Fn() -> *mut c_void) -> *mut c_void {
    loop {
        let block = allocate();
        if !block.is_null() {
            return block;
        }
        type CurrentHandler = extern "C-unwind" fn() -> Option<Handler>;
        let current = find(c"_ZSt15get_new_handlerv");
        // SAFETY: `std::get_new_handler()`, which has this type.
        let handler =
            (current != 0).then(|| unsafe { std::mem::transmute::<usize, CurrentHandler>(current)() }).flatten();
        match (handler, find(c"_ZSt17__throw_bad_allocv")) {
            (Some(handler), _) => handler(),
            (None, 0) => crate::end("the program is out of memory and has no C++ library to throw an exception with"),
            // SAFETY: `std::__throw_bad_alloc()`, which has this type and does not return.
            (None, throw) => unsafe { std::mem::transmute::<usize, Handler>(throw)() },
        }
    }
}

/// `operator new(size)`; an exception if there is no memory.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _Znwm(size: size_t) -> *mut c_void {
    insist(|| allocate(size))
}

/// `operator new[](size)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _Znam(size: size_t) -> *mut c_void {
    insist(|| allocate(size))
}

/// `operator new(size, align)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnwmSt11align_val_t(size: size_t, align: size_t) -> *mut c_void {
    insist(|| memalign(align, size))
}

/// `operator new[](size, align)`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnamSt11align_val_t(size: size_t, align: size_t) -> *mut c_void {
    insist(|| memalign(align, size))
}

/// `operator new(size, std::nothrow)`; null if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmRKSt9nothrow_t(size: size_t, _: *const c_void) -> *mut c_void {
    allocate(size)
}

/// `operator new[](size, std::nothrow)`.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamRKSt9nothrow_t(size: size_t, _: *const c_void) -> *mut c_void {
    allocate(size)
}

/// `operator new(size, align, std::nothrow)`.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_tRKSt9nothrow_t(size: size_t, align: size_t, _: *const c_void) -> *mut c_void {
    memalign(align, size)
}

/// `operator new[](size, align, std::nothrow)`.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_tRKSt9nothrow_t(size: size_t, align: size_t, _: *const c_void) -> *mut c_void {
    memalign(align, size)
}

/// Each `operator delete`: what else it is told is not needed.
macro_rules! delete {
    ($($name:ident($($more:ty),*) $what:literal)*) => {$(
        #[doc = $what]
        ///
        /// # Safety
        /// The block came from `operator new`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut c_void $(, _: $more)*) {
            // SAFETY: promised by the caller.
            unsafe { free(block) }
        }
    )*};
}

delete! {
    _ZdlPv() "`operator delete(block)`."
    _ZdaPv() "`operator delete[](block)`."
    _ZdlPvm(size_t) "`operator delete(block, size)`."
    _ZdaPvm(size_t) "`operator delete[](block, size)`."
    _ZdlPvSt11align_val_t(size_t) "`operator delete(block, align)`."
    _ZdaPvSt11align_val_t(size_t) "`operator delete[](block, align)`."
    _ZdlPvmSt11align_val_t(size_t, size_t) "`operator delete(block, size, align)`."
    _ZdaPvmSt11align_val_t(size_t, size_t) "`operator delete[](block, size, align)`."
    _ZdlPvRKSt9nothrow_t(*const c_void) "`operator delete(block, std::nothrow)`."
    _ZdaPvRKSt9nothrow_t(*const c_void) "`operator delete[](block, std::nothrow)`."
    _ZdlPvSt11align_val_tRKSt9nothrow_t(size_t, *const c_void) "`operator delete(block, align, std::nothrow)`."
    _ZdaPvSt11align_val_tRKSt9nothrow_t(size_t, *const c_void) "`operator delete[](block, align, std::nothrow)`."
}
