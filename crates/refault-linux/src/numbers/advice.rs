//! What a program may say of a range of memory: the third argument of `madvise`, the fourth of `process_madvise`.

crate::numbers::constants! {
    usize;
    MADV_NORMAL = 0, "No order is expected.";
    MADV_RANDOM = 1, "Accesses at random.";
    MADV_SEQUENTIAL = 2, "Accesses in order.";
    MADV_WILLNEED = 3, "It will be needed soon.";
    MADV_DONTNEED = 4, "Its contents are not needed: it reads as zeros.";
    MADV_FREE = 8, "Its contents are not needed, unless it is written to before the kernel takes it.";
    MADV_REMOVE = 9, "It and what backs it are freed.";
    MADV_DONTFORK = 10, "Children do not have it.";
    MADV_DOFORK = 11, "Children have it.";
    MADV_MERGEABLE = 12, "Equal pages may be one.";
    MADV_UNMERGEABLE = 13, "Equal pages are several.";
    MADV_HUGEPAGE = 14, "Huge pages are worth it.";
    MADV_NOHUGEPAGE = 15, "Huge pages are not worth it.";
    MADV_DONTDUMP = 16, "Cores are without it.";
    MADV_DODUMP = 17, "Cores have it.";
    MADV_WIPEONFORK = 18, "Children have zeros there.";
    MADV_KEEPONFORK = 19, "Children have what their parent has.";
    MADV_COLD = 20, "It may go first.";
    MADV_PAGEOUT = 21, "It may go now.";
    MADV_POPULATE_READ = 22, "It is brought in as reads do.";
    MADV_POPULATE_WRITE = 23, "It is brought in as writes do.";
    MADV_DONTNEED_LOCKED = 24, "As MADV_DONTNEED, of locked memory too.";
    MADV_COLLAPSE = 25, "Huge pages are made of it now.";
    MADV_HWPOISON = 100, "Its pages are broken, for a test.";
    MADV_SOFT_OFFLINE = 101, "Its contents are put elsewhere, for a test.";
    MADV_GUARD_INSTALL = 102, "Touching it is an error.";
    MADV_GUARD_REMOVE = 103, "Touching it is none any more.";
}
