use super::*;
use crate::codec::tests::sample_page;
use proptest::prelude::*;

/// Addresses that were never used are given back; what is stored, and where the next goes, stays.
#[test]
fn a_lower_limit_keeps_what_is_in_use() {
    let mut pool = CompressedPool::new(64 << 20).expect("maps");
    let mut scratch = Scratch::new();
    let pages: Vec<Page> = (0..200).map(|seed| sample_page(seed, 16)).collect();
    let mut put = |pool: &CompressedPool, page| pool.put(page, Codec::Lz4, &mut scratch);
    let slots: Vec<Slot> = pages.iter().map(|page| put(&pool, page).expect("there is room")).collect();
    let used = pool.bytes();
    pool.lower_limit(0);
    assert_eq!((pool.limit(), pool.bytes()), (used, used));
    let end = pool.memory.base().as_ptr() as usize + used as usize;
    assert!(!crate::noted::all().any(|(from, to)| (from..to).contains(&end)));
    // Full of what does not compress, but for the room in the last block.
    let more: Vec<Slot> = pages.iter().map_while(|page| put(&pool, page).ok()).collect();
    assert!(more.len() < 20, "{}", more.len());
    let mut back = Page::ZERO;
    for (page, slot) in pages.iter().zip(slots) {
        pool.read(slot, &mut back, &mut Scratch::new()).expect("it is there");
        assert!(back.0 == page.0);
        pool.release(slot);
    }
    // Never more than before.
    pool.lower_limit(1 << 30);
    assert_eq!(pool.limit(), used);
}

#[test]
fn a_full_pool_says_so_and_frees_what_is_released() {
    let pool = CompressedPool::new(256 * 1024).expect("maps");
    let mut scratch = Scratch::new();
    let mut slots = Vec::new();
    let error = loop {
        match pool.put(&sample_page(slots.len() as u64, 16), Codec::Lz4, &mut scratch) {
            Ok(slot) => slots.push(slot),
            Err(error) => break error,
        }
    };
    assert_eq!(error, StoreError::Full(NAME));
    assert_eq!(pool.bytes(), pool.limit());
    assert_eq!(slots.len(), 256 * 1024 / MIN_BLOCK * (MIN_BLOCK / 4160));
    for slot in slots {
        pool.release(slot);
    }
    // One empty block per class is kept.
    assert_eq!((pool.usage().pool_pages, pool.bytes()), (0, MIN_BLOCK as u64));
    assert!(pool.put(&sample_page(1, 16), Codec::Lz4, &mut scratch).is_ok());
}

#[test]
fn any_flipped_bit_is_an_error_or_harmless() {
    let pool = CompressedPool::new(1 << 20).expect("maps");
    let mut scratch = Scratch::new();
    let page = sample_page(3, 4);
    let slot = pool.put(&page, Codec::Lz4, &mut scratch).expect("room");
    let stored_bits = (HEADER + pool.get(slot).expect("stored").2.len()) * 8;
    for bit in 0..stored_bits {
        pool.flip_bit(slot, bit);
        let mut back = Page::ZERO;
        match pool.read(slot, &mut back, &mut scratch) {
            Err(error) => assert_eq!(error, StoreError::Checksum(NAME)),
            // Only the mark and the owner may be damaged unseen: they say nothing of the contents.
            Ok(()) => assert!((56..128).contains(&bit) && back.0 == page.0, "bit {bit}"),
        }
        pool.flip_bit(slot, bit);
    }
}

#[test]
fn demotion_makes_a_page_smaller_and_keeps_it() {
    let pool = CompressedPool::new(1 << 20).expect("maps");
    let mut scratch = Scratch::new();
    let page = sample_page(9, 2);
    let slot = pool.put(&page, Codec::Lz4, &mut scratch).expect("room");
    let mut buffer = Page::ZERO;
    let colder = pool.demote(slot, &mut buffer, &mut scratch).expect("zstd is smaller here");
    pool.release(slot);
    assert_eq!(pool.codec(colder), Some(Codec::Zstd));
    assert!(pool.demote(colder, &mut buffer, &mut scratch).is_none());
    pool.read(colder, &mut buffer, &mut scratch).expect("reads");
    assert!(buffer.0 == page.0);
}

/// Against a table of pages by owner: whatever is moved comes back from where its owner was told it is, and memory that
/// random releases left free in blocks is given back.
#[test]
fn compaction_moves_pages_and_gives_memory_back() {
    compaction_in(&CompressedPool::new(64 << 20).expect("maps"), 2.0 / 5.0);
    // One block of each class stays partly empty.
    compaction_in(&CompressedPool::with_blocks_for(64 << 20, 64 << 20).expect("maps"), 1.0 / 2.0);
}

/// Larger blocks leave less at their ends.
#[test]
fn large_blocks_hold_more_pages() {
    let [small, large] = [0, 1 << 30].map(|expected| {
        let pool = CompressedPool::with_blocks_for(64 << 20, expected).expect("maps");
        let mut scratch = Scratch::new();
        for seed in 0..4000 {
            pool.put(&sample_page(seed, 6), Codec::Lz4, &mut scratch).expect("room");
        }
        pool.bytes()
    });
    assert!(large < small, "{large} {small}");
}

fn compaction_in(pool: &CompressedPool, most: f64) {
    let mut scratch = Scratch::new();
    let mut model: Vec<(u64, Slot)> = Vec::new();
    for owner in 1..=4000 {
        let page = sample_page(owner, owner % 12);
        let (codec, bytes) = scratch.compress(&page, Codec::Lz4);
        model.push((owner, pool.put_owned(codec, bytes, owner).expect("room")));
    }
    let full = pool.bytes();
    let mut state = 1u64;
    model.retain(|(_, slot)| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let keep = state >> 62 == 0;
        if !keep {
            pool.release(*slot);
        }
        keep
    });
    let (sparse, kept) = (pool.bytes(), model.len());
    let mut moves = 0;
    while pool.compact(|owner, from, to| {
        let entry = model.iter_mut().find(|(known, _)| *known == owner).expect("an owner that is there");
        assert_eq!(entry.1, from);
        entry.1 = to;
        moves += 1;
        true
    }) {}
    assert!(kept > 800 && moves > 100, "{kept} pages, {moves} moved");
    // A quarter of the pages is left; without compaction most blocks have one of them.
    assert!(sparse > full / 2 && (pool.bytes() as f64) < full as f64 * most, "{full} {sparse} {}", pool.bytes());
    let mut back = Page::ZERO;
    for (owner, slot) in model {
        pool.read(slot, &mut back, &mut scratch).expect("reads");
        assert!(back.0 == sample_page(owner, owner % 12).0, "page {owner}");
        pool.release(slot);
    }
    assert_eq!(pool.usage().pool_pages, 0);
}

#[test]
fn an_object_without_its_owner_stays() {
    let pool = CompressedPool::new(64 << 20).expect("maps");
    let mut scratch = Scratch::new();
    let pages: Vec<Page> = (0..600).map(|seed| sample_page(seed, 4)).collect();
    let slots: Vec<Slot> = (pages.iter().enumerate())
        .map(|(owner, page)| {
            let (codec, bytes) = scratch.compress(page, Codec::Lz4);
            pool.put_owned(codec, bytes, owner as u64 + 1).expect("room")
        })
        .collect();
    (slots.iter().enumerate()).filter(|(index, _)| index % 8 > 0).for_each(|(_, slot)| pool.release(*slot));
    assert!(!pool.compact(|_, _, _| false));
    let mut back = Page::ZERO;
    for index in (0..600).step_by(8) {
        pool.read(slots[index], &mut back, &mut scratch).expect("reads");
        assert!(back.0 == pages[index].0);
        pool.release(slots[index]);
    }
    assert_eq!(pool.usage().pool_pages, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Against a table of pages: whatever is put comes back until it is released, whatever the order, and whether a
    /// fork shares it meanwhile or not.
    #[test]
    fn behaves_like_a_table(ops in proptest::collection::vec((any::<u8>(), 0u64..=16, any::<u16>()), 1..400)) {
        let pool = CompressedPool::new(1 << 20).expect("maps");
        let mut scratch = Scratch::new();
        let mut model: Vec<(Slot, Page)> = Vec::new();
        for (op, noise, seed) in ops {
            match op {
                0..16 => pool.share(),
                16..32 => pool.unshare(),
                _ => {}
            }
            if op % 3 > 0 {
                let page = sample_page(u64::from(seed), noise);
                let mut slots = [Err(StoreError::Full(NAME))];
                pool.write(&[&page], &mut scratch, &mut slots);
                if let Ok(slot) = slots[0] {
                    prop_assert!(model.iter().all(|(s, _)| *s != slot || s.tier() == Tier::SameFilled));
                    model.push((slot, page));
                }
            } else if !model.is_empty() {
                let (slot, page) = model.swap_remove(usize::from(seed) % model.len());
                let mut back = Page::ZERO;
                pool.read(slot, &mut back, &mut scratch).expect("reads");
                prop_assert!(back.0 == page.0);
                pool.release(slot);
            }
            let usage = pool.usage();
            prop_assert_eq!((usage.pool_pages + usage.same_filled_pages) as usize, model.len());
        }
        for (slot, page) in model.drain(..) {
            let mut back = Page::ZERO;
            pool.read(slot, &mut back, &mut scratch).expect("reads");
            prop_assert!(back.0 == page.0);
            pool.release(slot);
        }
        prop_assert_eq!(pool.usage().pool_pages, 0);
    }
}

/// What is shared is not written to: the pages are the same as at the fork, bit by bit, until their block is empty.
#[test]
fn shared_blocks_are_only_read() {
    let pool = CompressedPool::new(4 << 20).expect("maps");
    let mut scratch = Scratch::new();
    let put = |seed, scratch: &mut Scratch| pool.put(&sample_page(seed, 4), Codec::Lz4, scratch).expect("room");
    let slots: Vec<Slot> = (0..200).map(|seed| put(seed, &mut scratch)).collect();
    let bytes = pool.bytes() as usize;
    // SAFETY: the blocks that are in use are mapped, and no thread writes meanwhile.
    let memory = || unsafe { std::slice::from_raw_parts(pool.memory.base().as_ptr(), bytes) }.to_vec();
    let before = memory();
    pool.share();
    for slot in slots.iter().step_by(3) {
        pool.mark(*slot);
        pool.release(*slot);
    }
    let later: Vec<Slot> = (200..300).map(|seed| put(seed, &mut scratch)).collect();
    assert!(memory() == before && pool.take_unshared() == 0);
    // Once no other process has them, what is free is used before anything new.
    pool.unshare();
    let bytes = pool.bytes();
    let again: Vec<Slot> = (0..60).map(|seed| put(seed, &mut scratch)).collect();
    assert_eq!(pool.bytes(), bytes);
    pool.share();
    let rest = slots.iter().enumerate().filter(|(index, _)| index % 3 > 0).map(|(_, slot)| slot);
    rest.chain(&later).chain(&again).for_each(|slot| pool.release(*slot));
    assert!(pool.usage().pool_pages == 0 && pool.take_unshared() > 0);
}
