//! What calls that are many in one are asked for: `ioctl`, `bpf`, `keyctl`, `semctl`, `fsconfig`.

crate::numbers::constants! {
    usize;
    UFFDIO_API = 0xc018_aa3f, "Of a userfaultfd: which features it is to have.";
    UFFDIO_REGISTER = 0xc020_aa00, "Of a userfaultfd: a range whose faults it is to serve.";
    UFFDIO_UNREGISTER = 0x8010_aa01, "Of a userfaultfd: a range whose faults it is to serve no more.";
    UFFDIO_COPY = 0xc028_aa03, "Of a userfaultfd: copies pages to where they are missing.";
    UFFDIO_MOVE = 0xc028_aa05, "Of a userfaultfd: moves pages to where they are missing.";
    UFFD_FEATURE_EVENT_FORK = 1 << 1, "A userfaultfd tells of forks.";
    UFFD_FEATURE_EVENT_REMAP = 1 << 2, "A userfaultfd tells of what moves.";
    UFFD_FEATURE_EVENT_REMOVE = 1 << 3, "A userfaultfd tells of what is discarded.";
    UFFD_FEATURE_EVENT_UNMAP = 1 << 6, "A userfaultfd tells of what is unmapped.";
    FS_IOC_FIEMAP = 0xc020_660b, "Where a file lies on its device.";
    FS_IOC_GETFSMAP = 0xc0c0_583b, "What lies where in a file system.";
    PAGEMAP_SCAN = 0xc060_6610, "Which pages of a process are in such a state.";
    BTRFS_IOC_TREE_SEARCH_V2 = 0xc070_9411, "What a file system's trees hold.";
    TUNSETTXFILTER = 0x4004_54d1, "Of a network device of the program's: what is let through.";
    RNDADDENTROPY = 0x4008_5203, "Of the random device: bytes that it mixes in.";
    FIDEDUPERANGE = 0xc018_9436, "Parts of files become one where they are equal.";
    BPF_MAP_LOOKUP_ELEM = 1, "Of bpf: the value of a key.";
    BPF_MAP_UPDATE_ELEM = 2, "Of bpf: sets it.";
    BPF_MAP_DELETE_ELEM = 3, "Of bpf: takes it out.";
    BPF_MAP_GET_NEXT_KEY = 4, "Of bpf: the key behind a key.";
    BPF_PROG_LOAD = 5, "Of bpf: loads a program.";
    BPF_OBJ_PIN = 6, "Of bpf: gives an object a path.";
    BPF_OBJ_GET = 7, "Of bpf: the object of a path.";
    BPF_PROG_TEST_RUN = 10, "Of bpf: runs a program for a test.";
    BPF_OBJ_GET_INFO_BY_FD = 15, "Of bpf: what an object is.";
    BPF_PROG_QUERY = 16, "Of bpf: the programs of a place.";
    BPF_RAW_TRACEPOINT_OPEN = 17, "Of bpf: runs a program at a point of the kernel.";
    BPF_BTF_LOAD = 18, "Of bpf: loads types.";
    BPF_TASK_FD_QUERY = 20, "Of bpf: the program of a descriptor of a process.";
    BPF_MAP_LOOKUP_AND_DELETE_ELEM = 21, "Of bpf: the value of a key, which it takes out.";
    BPF_MAP_LOOKUP_BATCH = 24, "Of bpf: many keys and values.";
    BPF_MAP_DELETE_BATCH = 27, "Of bpf: takes many keys out.";
    BPF_MAP_TYPE_PERCPU_HASH = 5, "A map by hash, of values per processor.";
    BPF_MAP_TYPE_PERCPU_ARRAY = 6, "A map by number, of values per processor.";
    BPF_MAP_TYPE_LRU_PERCPU_HASH = 10, "A map by hash that forgets, of values per processor.";
    BPF_MAP_TYPE_PERCPU_CGROUP_STORAGE = 21, "A map of control groups, of values per processor.";
    KEYCTL_JOIN_SESSION_KEYRING = 1, "Of keyctl: another ring of the session.";
    KEYCTL_UPDATE = 2, "Of keyctl: sets a key's value.";
    KEYCTL_DESCRIBE = 6, "Of keyctl: what a key is.";
    KEYCTL_SEARCH = 10, "Of keyctl: finds a key.";
    KEYCTL_READ = 11, "Of keyctl: a key's value.";
    KEYCTL_INSTANTIATE = 12, "Of keyctl: the value of a key that waits for it.";
    KEYCTL_GET_SECURITY = 17, "Of keyctl: a key's label.";
    KEYCTL_INSTANTIATE_IOV = 20, "Of keyctl: the value of a key that waits for it, by vectors.";
    KEYCTL_DH_COMPUTE = 23, "Of keyctl: a secret of two.";
    KEYCTL_PKEY_QUERY = 24, "Of keyctl: what a pair of keys can do.";
    KEYCTL_PKEY_ENCRYPT = 25, "Of keyctl: encrypts.";
    KEYCTL_PKEY_VERIFY = 28, "Of keyctl: checks a signature.";
    KEYCTL_RESTRICT_KEYRING = 29, "Of keyctl: what a ring takes.";
    KEYCTL_CAPABILITIES = 31, "Of keyctl: what it can do.";
    GETALL = 13, "Of semctl: the values of a set.";
    SETVAL = 16, "Of semctl: sets one value.";
    SETALL = 17, "Of semctl: sets all of them.";
    SHMAT = 21, "Of ipc: attaches shared memory.";
    FSCONFIG_SET_BINARY = 2, "Of fsconfig: a setting of bytes.";
}

/// The part of a request's number that says bytes of its structure, behind a shift.
pub const IOC_SIZE: (u32, u32) = (16, (1 << 14) - 1);
/// The part of a request's number that says whom it is for, behind a shift.
pub const IOC_TYPE: (u32, u32) = (8, (1 << 8) - 1);
/// Requests to terminals are for this ([`IOC_TYPE`]).
pub const IOC_OF_TERMINALS: u32 = b'T' as u32;
/// From this number on they are to network devices of the program's (`TUNSETNOCSUM` is the first).
pub const IOC_FIRST_OF_TUN: u32 = 200;
/// The part of a request's number that tells those for one apart, behind a shift.
pub const IOC_NUMBER: (u32, u32) = (0, (1 << 8) - 1);
/// Requests to virtual machines (KVM) are for this.
pub const IOC_OF_MACHINES: u32 = 0xae;
/// Requests to the device mapper are for this.
pub const IOC_OF_MAPPERS: u32 = 0xfd;
/// Requests to a userfaultfd are for this.
pub const IOC_OF_USERFAULTFDS: u32 = 0xaa;

crate::numbers::places! {
    "struct fiemap": {
        FIEMAP_COUNT = 24 "fm_extent_count";
        FIEMAP_EXTENTS = 32 "fm_extents";
    }
    "struct fsmap_head": {
        FSMAP_COUNT = 8 "fmh_count";
        FSMAP_RECORDS = 192 "fmh_recs";
    }
    "struct tun_filter": {
        TUN_COUNT = 2 "count";
        TUN_ADDRESSES = 4 "addr";
    }
    "struct rand_pool_info": {
        ENTROPY_SIZE = 4 "buf_size";
        ENTROPY_BYTES = 8 "buf";
    }
    "struct btrfs_ioctl_search_args_v2": {
        SEARCH_BYTES = 104 "buf_size";
        SEARCH_BUFFER = 112 "buf";
    }
    "struct dm_ioctl": {
        MAPPER_BYTES = 12 "data_size";
    }
    "struct file_dedupe_range": {
        DEDUPE_COUNT = 16 "dest_count";
        DEDUPE_FILES = 24 "info";
    }
    "union bpf_attr": {
        BPF_MAP = 0 "map_fd";
        BPF_KEY = 8 "key";
        BPF_VALUE = 16 "value";
        BPF_BATCH_FIRST = 0 "batch.in_batch";
        BPF_BATCH_NEXT = 8 "batch.out_batch";
        BPF_BATCH_KEYS = 16 "batch.keys";
        BPF_BATCH_VALUES = 24 "batch.values";
        BPF_BATCH_COUNT = 32 "batch.count";
        BPF_BATCH_MAP = 36 "batch.map_fd";
        BPF_INSTRUCTION_COUNT = 4 "insn_cnt";
        BPF_INSTRUCTIONS = 8 "insns";
        BPF_LICENSE = 16 "license";
        BPF_LOG_BYTES = 28 "log_size";
        BPF_LOG = 32 "log_buf";
        BPF_FUNCTION_BYTES = 76 "func_info_rec_size";
        BPF_FUNCTIONS = 80 "func_info";
        BPF_FUNCTION_COUNT = 88 "func_info_cnt";
        BPF_LINE_BYTES = 92 "line_info_rec_size";
        BPF_LINES = 96 "line_info";
        BPF_LINE_COUNT = 104 "line_info_cnt";
        BPF_CORE_COUNT = 116 "core_relo_cnt";
        BPF_DESCRIPTORS = 120 "fd_array";
        BPF_CORE = 128 "core_relos";
        BPF_CORE_BYTES = 136 "core_relo_rec_size";
        BPF_PATH = 0 "pathname";
        BPF_TEST_IN_BYTES = 8 "test.data_size_in";
        BPF_TEST_OUT_BYTES = 12 "test.data_size_out";
        BPF_TEST_IN = 16 "test.data_in";
        BPF_TEST_OUT = 24 "test.data_out";
        BPF_TEST_CONTEXT_IN_BYTES = 40 "test.ctx_size_in";
        BPF_TEST_CONTEXT_OUT_BYTES = 44 "test.ctx_size_out";
        BPF_TEST_CONTEXT_IN = 48 "test.ctx_in";
        BPF_TEST_CONTEXT_OUT = 56 "test.ctx_out";
        BPF_INFO_BYTES = 4 "info.info_len";
        BPF_INFO = 8 "info.info";
        BPF_QUERY_PROGRAMS = 16 "query.prog_ids";
        BPF_QUERY_COUNT = 24 "query.prog_cnt";
        BPF_QUERY_FLAGS = 32 "query.prog_attach_flags";
        BPF_QUERY_LINKS = 40 "query.link_ids";
        BPF_QUERY_LINK_FLAGS = 48 "query.link_attach_flags";
        BPF_POINT_NAME = 0 "raw_tracepoint.name";
        BPF_TYPES = 0 "btf";
        BPF_TYPES_LOG = 8 "btf_log_buf";
        BPF_TYPES_BYTES = 16 "btf_size";
        BPF_TYPES_LOG_BYTES = 20 "btf_log_size";
        BPF_TASK_NAME_BYTES = 12 "task_fd_query.buf_len";
        BPF_TASK_NAME = 16 "task_fd_query.buf";
    }
}

/// Bytes of what follows the head of `struct fiemap`, each.
pub const FIEMAP_EXTENT: usize = 56;
/// Bytes of `struct fsmap`.
pub const FSMAP_RECORD: usize = 64;
/// Where `struct pm_scan_arg` says its regions' address, behind which their number lies. Headers have it since Linux 6.7.
pub const SCAN_REGIONS: usize = 40;
/// Bytes of `struct page_region`.
pub const SCAN_REGION: usize = 24;
/// Bytes of a hardware address in `struct tun_filter`.
pub const TUN_ADDRESS: usize = 6;
/// Bytes of what follows the head of `struct file_dedupe_range`, each.
pub const DEDUPE_FILE: usize = 32;
/// Bytes of an instruction of a program, of `bpf` and of filters.
pub const INSTRUCTION: usize = 8;
