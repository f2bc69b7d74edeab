//! Pages where they are: pins, and what else a file's user may ask for ahead of a read.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use refault::cache::Pinned;

use crate::cache::{read_failure, refault_file};
use crate::handles::Table;
use crate::open_file::{OpenFile, on_file};
use crate::status::{Failure, give, guarded, refault_status};

/// Bytes of a file that stay where they are.
pub type refault_pin = u64;

static PINS: Table<Pin> = Table::new(6, "pin");

/// What was pinned, and the file that it borrows from, which goes after it.
struct Pin {
    pinned: ManuallyDrop<Pinned<'static>>,
    _file: Arc<OpenFile>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: dropped nowhere else, and before the file.
        unsafe { ManuallyDrop::drop(&mut self.pinned) };
    }
}

/// Lends the cache's own memory: `data` gets the byte at `offset`, `bytes` how many follow it, up to the end of its
/// page of 4096 bytes or of the file. They stay as they are until `refault_pin_free`, whatever is written or cut off;
/// the page cannot be evicted meanwhile, so pin little and not for long. Beyond the end of the file there are 0 bytes.
///
/// # Safety
/// `data`, `bytes` and `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_file_pin(
    file: refault_file,
    offset: u64,
    data: *mut *const c_void,
    bytes: *mut usize,
    out: *mut refault_pin,
) -> refault_status {
    on_file(file, |file| {
        // SAFETY: the caller's.
        unsafe {
            give(data, std::ptr::null(), "the address")?;
            give(bytes, 0, "the number of bytes")?;
            give(out, 0, "the pin")?;
        }
        let end = (offset / 4096 + 1).saturating_mul(4096);
        let pinned = file.pin(offset..end).map_err(|error| read_failure(&error, error.to_string()))?;
        // SAFETY: the file is kept as long as the pin, which is dropped first.
        let pinned = unsafe { std::mem::transmute::<Pinned<'_>, Pinned<'static>>(pinned) };
        let slice = pinned.as_slice().unwrap_or(&[]);
        let (start, length) = (slice.as_ptr(), slice.len());
        let pin = PINS.put(Pin { pinned: ManuallyDrop::new(pinned), _file: file });
        // SAFETY: the caller's; none of them is null.
        unsafe {
            give(data, start.cast(), "the address")?;
            give(bytes, length, "the number of bytes")?;
            give(out, pin, "the pin")
        }
    })
}

/// Ends a pin; what it lent must not be read any more.
#[unsafe(no_mangle)]
pub extern "C" fn refault_pin_free(pin: refault_pin) -> refault_status {
    guarded(|| PINS.take(pin).map(drop))
}

/// Begins to read `length` bytes from `offset` on in the background, as far as there is room, and returns at once.
#[unsafe(no_mangle)]
pub extern "C" fn refault_file_prefetch(file: refault_file, offset: u64, length: u64) -> refault_status {
    on_file(file, |file| {
        file.prefetch(offset..offset.saturating_add(length));
        Ok(())
    })
}

/// Makes durable what was written to `length` bytes from `offset` on before; see `refault_file_sync`.
#[unsafe(no_mangle)]
pub extern "C" fn refault_file_sync_range(file: refault_file, offset: u64, length: u64) -> refault_status {
    on_file(file, |file| {
        let synced = file.sync_range(offset..offset.saturating_add(length));
        synced.map_err(|error| Failure::system(&error, format!("cannot make it durable: {error}")))
    })
}
