//! zstd's contexts in memory of our own, made when they are first used.
//!
//! zstd by itself takes memory from the program's `malloc`, which the fault path must not call, and whose memory no
//! pool counts. Invariants: a context lives in its workspace and is never larger; zstd allocates nothing. Cost: as much
//! memory as zstd says that it needs for a page, and the processor's identification, which a virtual machine's host is
//! asked for.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use zstd_safe::zstd_sys;

use crate::{PAGE_SIZE, Page};

const LEVEL: i32 = 1;

/// Bytes of the largest frame of a page: `ZSTD_COMPRESSBOUND`. Not asked of zstd, whose code most processes never come to.
pub(crate) const MAX_FRAME: usize = PAGE_SIZE + (PAGE_SIZE >> 8) + (((128 << 10) - PAGE_SIZE) >> 11);

/// What compresses pages to zstd frames and back.
#[derive(Default)]
pub(crate) struct Zstd {
    compressor: Option<Context<zstd_sys::ZSTD_CCtx>>,
    decompressor: Option<Context<zstd_sys::ZSTD_DCtx>>,
}

impl Zstd {
    /// Makes both contexts, so that nothing is allocated later.
    pub(crate) fn prepare(&mut self) {
        self.compressor();
        self.decompressor();
    }

    /// Bytes of a page's frame; `None` if the frame does not fit into `output`.
    pub(crate) fn compress(&mut self, page: &Page, output: &mut [u8]) -> Option<usize> {
        let context = self.compressor();
        // SAFETY: the context was made in its workspace and is this thread's while it is borrowed; both buffers are as
        // long as is said.
        let code = unsafe {
            zstd_sys::ZSTD_compressCCtx(
                context,
                output.as_mut_ptr().cast(),
                output.len(),
                page.0.as_ptr().cast(),
                PAGE_SIZE,
                LEVEL,
            )
        };
        is_length(code).then_some(code)
    }

    /// Whether a frame holds a whole page, which it becomes.
    pub(crate) fn decompress(&mut self, frame: &[u8], page: &mut Page) -> bool {
        let context = self.decompressor();
        // SAFETY: as in `compress`.
        let code = unsafe {
            zstd_sys::ZSTD_decompressDCtx(
                context,
                page.0.as_mut_ptr().cast(),
                PAGE_SIZE,
                frame.as_ptr().cast(),
                frame.len(),
            )
        };
        code == PAGE_SIZE
    }

    fn compressor(&mut self) -> *mut zstd_sys::ZSTD_CCtx {
        let make = || {
            // SAFETY: plain functions of numbers.
            let bytes = unsafe {
                let parameters = zstd_sys::ZSTD_getCParams(LEVEL, PAGE_SIZE as u64, 0);
                zstd_sys::ZSTD_estimateCCtxSize_usingCParams(parameters)
            };
            // SAFETY: `Context::make` gives a workspace of `bytes` bytes, aligned to 8.
            Context::make(bytes, |workspace, bytes| unsafe { zstd_sys::ZSTD_initStaticCCtx(workspace.cast(), bytes) })
        };
        self.compressor.get_or_insert_with(make).context.as_ptr()
    }

    fn decompressor(&mut self) -> *mut zstd_sys::ZSTD_DCtx {
        let make = || {
            // SAFETY: a plain function.
            let bytes = unsafe { zstd_sys::ZSTD_estimateDCtxSize() };
            // SAFETY: as above.
            Context::make(bytes, |workspace, bytes| unsafe { zstd_sys::ZSTD_initStaticDCtx(workspace.cast(), bytes) })
        };
        self.decompressor.get_or_insert_with(make).context.as_ptr()
    }
}

/// Whether what a function of zstd returns is a length and no error.
fn is_length(code: usize) -> bool {
    // SAFETY: a plain function of a number.
    unsafe { zstd_sys::ZSTD_isError(code) == 0 }
}

/// A context and the memory that it is in, which goes with it: zstd has nothing to free.
struct Context<C> {
    context: NonNull<C>,
    _workspace: Box<[MaybeUninit<u64>]>,
}

// SAFETY: a context is plain memory that this value owns alone.
unsafe impl<C> Send for Context<C> {}

impl<C> Context<C> {
    fn make(bytes: usize, begin: impl FnOnce(*mut u64, usize) -> *mut C) -> Context<C> {
        let mut workspace = Box::new_uninit_slice(bytes.div_ceil(size_of::<u64>()));
        let context = begin(workspace.as_mut_ptr().cast(), size_of_val(&*workspace));
        let context = NonNull::new(context).expect("invariant: zstd says how large a workspace has to be");
        Context { context, _workspace: workspace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::sample_page;

    #[test]
    fn a_page_comes_back_by_contexts_of_any_age_and_frames_are_those_of_zstd_itself() {
        let mut zstd = Zstd::default();
        for seed in 0..64 {
            let page = sample_page(seed, seed % 17);
            let mut output = vec![0; MAX_FRAME];
            let len = zstd.compress(&page, &mut output).expect("there is room for any frame");
            let mut reference = vec![0; output.len()];
            let expected = zstd_safe::compress(&mut reference[..], &page.0, LEVEL).expect("there is room");
            assert!(output[..len] == reference[..expected], "seed {seed}");
            let mut back = Page::ZERO;
            assert!(zstd.decompress(&output[..len], &mut back) && back.0 == page.0, "seed {seed}");
            assert!(!zstd.decompress(&output[..len - 1], &mut back), "seed {seed}");
        }
    }

    #[test]
    fn the_largest_frame_is_zstd_s() {
        assert_eq!(MAX_FRAME, zstd_safe::compress_bound(PAGE_SIZE));
    }

    #[test]
    fn a_frame_without_room_is_none_and_the_context_goes_on() {
        let mut zstd = Zstd::default();
        let mut output = vec![0; MAX_FRAME];
        let page = sample_page(7, 16);
        assert_eq!(zstd.compress(&page, &mut output[..100]), None);
        assert!(zstd.compress(&page, &mut output).is_some());
    }
}
