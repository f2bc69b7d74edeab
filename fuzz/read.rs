//! Reads bytes as a trace to the end or to an error, and checks what every reader promises.

use refault_trace::{BLOCK_ENTRIES, Format, ObjectsAs, Options, open_bytes};

pub fn to_the_end(format: Option<Format>, bytes: &[u8]) {
    let mut options = Options { format, ..Options::default() };
    // Small limits, so that a run is short and reaches them.
    options.limits.request_bytes = 1 << 24;
    options.limits.decompressed_bytes = 1 << 24;
    // The first byte chooses what a user would by flags.
    let Some((flags, bytes)) = bytes.split_first() else { return };
    options.collapse = flags & 1 != 0;
    options.skip_instructions = flags & 2 != 0;
    options.block_bytes = (flags & 4 != 0).then_some(512);
    if flags & 8 != 0 {
        options.objects = if flags & 16 != 0 { ObjectsAs::SizedIfKnown } else { ObjectsAs::Sized };
    }
    (options.strict, options.file_order) = (flags & 32 != 0, flags & 64 != 0);
    options.skip_size_zero = flags & 128 != 0;
    let result = open_bytes("t", bytes.to_vec(), &options).and_then(|mut reader| {
        let mut block = Vec::new();
        loop {
            let read = reader.read_block(&mut block)?;
            assert!(read == block.len() && read <= BLOCK_ENTRIES);
            assert!(block.iter().all(|entry| entry.kind().is_some()));
            assert!(reader.block_bytes().is_none_or(|bytes| bytes.len() == read));
            assert!(reader.block_times().is_none_or(|times| times.len() == read));
            if read == 0 {
                let remarks = reader.remarks();
                assert!(remarks.iter().all(|remark| remark.count > 0 && !remark.to_string().is_empty()));
                return Ok(());
            }
        }
    });
    if let Err(error) = result {
        let text = error.to_string();
        assert!(text.starts_with("t: ") && !text.contains('\n'), "{text}");
    }
}
