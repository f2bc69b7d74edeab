/* Calls that write into their own arguments, take something, or are led on by a structure: each is made once, with all of
 * its memory there, and says what it says alone. */
#include "probe.h"
#include <linux/bpf.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/keyctl.h>
#include <linux/mempolicy.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>

static void say(const char *what, long r, unsigned long sum) { printf("%s: %ld %s, %lx\n", what, r, r < 0 ? strerror(errno) : "", sum); }
static unsigned long sum_of(const void *p, unsigned long n) { unsigned long s = n; for (unsigned long i = 0; i < n; i++) s = s * 31 + ((const unsigned char *)p)[i]; return s; }
/* Memory that ends right before what cannot be touched, so that no page too many is of use. */
static unsigned char *out(unsigned long n) { unsigned long whole = (n + PAGE - 1) & -PAGE; unsigned char *p = map(whole + PAGE); mprotect(p + whole, PAGE, PROT_NONE); memset(p, 1, whole); return p + whole - n; }

#define MANY 20000ul
#define VALUE 100ul
static long bpf(int command, union bpf_attr *a) { return syscall(SYS_bpf, command, a, sizeof *a); }
static void maps(void) {
    union bpf_attr *a = (void *)map(PAGE); memset(a, 0, PAGE);
    a->map_type = BPF_MAP_TYPE_HASH; a->key_size = 4; a->value_size = VALUE; a->max_entries = MANY;
    long fd = bpf(BPF_MAP_CREATE, a); if (fd < 0) { say("map", fd, 0); return; }
    unsigned char *keys = out(MANY * 4), *values = out(MANY * VALUE), *next = out(8);
    for (unsigned i = 0; i < MANY; i++) { memcpy(keys + 4 * i, &i, 4); memset(values + VALUE * i, i % 251, VALUE); }
    int commands[] = {BPF_MAP_UPDATE_BATCH, BPF_MAP_LOOKUP_BATCH, BPF_MAP_LOOKUP_AND_DELETE_BATCH, BPF_MAP_LOOKUP_BATCH};
    const char *names[] = {"update", "look", "take", "look again"};
    for (int c = 0; c < 4; c++) {
        memset(a, 0, sizeof *a); a->batch.map_fd = fd; a->batch.count = MANY; a->batch.keys = (uint64_t)keys; a->batch.values = (uint64_t)values;
        if (c) { a->batch.out_batch = (uint64_t)next; memset(keys, 255, MANY * 4); memset(values, 255, MANY * VALUE); }
        push_out(keys, MANY * 4); push_out(values, MANY * VALUE); push_out(a, PAGE);
        long r = bpf(commands[c], a); int error = errno; unsigned long found = 0, right = 0;
        for (unsigned long i = 0; c && i < a->batch.count && i < MANY; i++) { unsigned k; memcpy(&k, keys + 4 * i, 4); found++; right += k < MANY && values[VALUE * i] == k % 251 && values[VALUE * i + VALUE - 1] == k % 251; }
        printf("maps %s: %ld %s count %u found %lu right %lu\n", names[c], r, r < 0 ? strerror(error) : "", a->batch.count, found, right);
    }
    /* One at a time. */
    unsigned char *key = out(4), *value = out(VALUE); memset(key, 0, 4);
    for (int round = 0; round < 3; round++) {
        memset(a, 0, sizeof *a); a->map_fd = fd; a->key = (uint64_t)key; a->value = (uint64_t)value;
        push_out(key, 4); push_out(value, VALUE);
        long r = bpf(round == 0 ? BPF_MAP_UPDATE_ELEM : round == 1 ? BPF_MAP_LOOKUP_ELEM : BPF_MAP_LOOKUP_AND_DELETE_ELEM, a);
        say("element", r, sum_of(value, VALUE));
    }
    struct bpf_map_info *info = (void *)out(sizeof *info); memset(info, 0, sizeof *info); memset(a, 0, sizeof *a);
    a->info.bpf_fd = fd; a->info.info_len = sizeof *info; a->info.info = (uint64_t)info; push_out(info, sizeof *info);
    long r = bpf(BPF_OBJ_GET_INFO_BY_FD, a); printf("info: %ld, key %u value %u entries %u\n", r, info->key_size, info->value_size, info->max_entries);
}

static void sockets(void) {
    int ends[2]; if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) return;
    unsigned count = 3000; struct sock_filter *code = (void *)out(count * sizeof *code); struct sock_fprog *program = (void *)out(sizeof *program);
    for (unsigned i = 0; i < count; i++) code[i] = (struct sock_filter){BPF_LD | BPF_IMM, 0, 0, i};
    code[count - 1] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0xffff}; program->len = count; program->filter = code;
    push_out(code, count * sizeof *code); push_out(program, sizeof *program);
    say("attach", setsockopt(ends[0], SOL_SOCKET, SO_ATTACH_FILTER, program, sizeof *program), 0);
    socklen_t *length = (void *)out(4); *length = count; memset(code, 0, count * sizeof *code); push_out(code, count * sizeof *code); push_out(length, 4);
    long r = getsockopt(ends[0], SOL_SOCKET, SO_GET_FILTER, code, length); say("filter", r, sum_of(code, count * sizeof *code) + *length);
    struct sockaddr_in *name = (void *)out(sizeof *name); int tcp = socket(AF_INET, SOCK_STREAM, 0); *length = sizeof *name; memset(name, 0, sizeof *name); push_out(name, sizeof *name); push_out(length, 4);
    r = getsockname(tcp, (void *)name, length); say("name", r, *length * 100 + name->sin_family);
    /* Too little room: the length is what there is to say. */
    *length = 4; push_out(length, 4); r = getsockname(tcp, (void *)name, length); say("part of a name", r, *length);
    name->sin_family = AF_INET; name->sin_port = htons(1); name->sin_addr.s_addr = htonl(INADDR_LOOPBACK); push_out(name, sizeof *name); fcntl(tcp, F_SETFL, O_NONBLOCK);
    r = connect(tcp, (void *)name, sizeof *name); usleep(50000); int *error = (void *)out(4); *error = -1; *length = 4; push_out(error, 4); push_out(length, 4);
    /* An error is said once: who asks twice has lost it. */
    r = getsockopt(tcp, SOL_SOCKET, SO_ERROR, error, length); say("error", r, *error == ECONNREFUSED);
    unsigned char *nowhere = map(PAGE); mprotect(nowhere, PAGE, PROT_NONE); r = getsockopt(tcp, SOL_SOCKET, SO_ERROR, nowhere, length); say("nowhere", r, 0);
}

static void files(void) {
    int fd = open("extents", O_RDWR | O_CREAT | O_TRUNC, 0600); unsigned count = 1500;
    for (unsigned i = 0; i < 300; i++) if (pwrite(fd, "x", 1, i * 64 * 1024l) != 1) return;
    fsync(fd);
    unsigned long bytes = sizeof(struct fiemap) + count * sizeof(struct fiemap_extent); struct fiemap *map_ = (void *)out(bytes);
    memset(map_, 0, bytes); map_->fm_length = ~0ull; map_->fm_extent_count = count; push_out(map_, bytes);
    long r = ioctl(fd, FS_IOC_FIEMAP, map_); unsigned long places = 0; for (unsigned i = 0; i < map_->fm_mapped_extents && i < count; i++) places = places * 31 + map_->fm_extents[i].fe_logical;
    printf("extents: %s %u %lx\n", r ? strerror(errno) : "", map_->fm_mapped_extents, places);
    struct flock *lock = (void *)out(sizeof *lock); *lock = (struct flock){.l_type = F_WRLCK, .l_start = 10, .l_len = 5}; push_out(lock, sizeof *lock);
    r = fcntl(fd, F_SETLK, lock); fflush(stdout); pid_t child = fork();
    if (!child) { lock->l_start = 0; lock->l_len = 0; push_out(lock, sizeof *lock); r = fcntl(fd, F_GETLK, lock); printf("lock: %ld type %d from %ld of %ld\n", r, lock->l_type, (long)lock->l_start, (long)lock->l_len); fflush(stdout); _exit(0); }
    waitpid(child, 0, 0);
    off_t *at = (void *)out(8); *at = 100; int to = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600); push_out(at, 8); r = copy_file_range(fd, at, to, 0, 1000, 0); say("copied", r, *at);
    struct iovec *parts = (void *)out(4 * sizeof *parts); unsigned char *there = out(300000), *here = out(300000); for (int i = 0; i < 4; i++) parts[i] = (struct iovec){there + i * 75000, 75000};
    for (unsigned i = 0; i < 300000; i++) there[i] = i % 253;
    struct iovec own = {here, 300000}; push_out(there, 300000); push_out(here, 300000); push_out(parts, 4 * sizeof *parts); r = process_vm_readv(getpid(), &own, 1, parts, 4, 0); say("of itself", r, sum_of(here, 300000));
}

static void objects(void) {
    int set = semget(IPC_PRIVATE, 2000, 0600); unsigned short *values = (void *)out(4000); for (int i = 0; i < 2000; i++) values[i] = i;
    push_out(values, 4000); long r = semctl(set, 0, SETALL, values); memset(values, 0, 4000); push_out(values, 4000); say("semaphores", r, semctl(set, 0, GETALL, values)); printf("%lx\n", sum_of(values, 4000)); semctl(set, 0, IPC_RMID);
    int queue = msgget(IPC_PRIVATE, 0600); struct { long kind; char text[8000]; } *message = (void *)out(8008); message->kind = 7; memset(message->text, 'q', 8000); push_out(message, 8008);
    r = msgsnd(queue, message, 8000, 0); memset(message, 0, 8008); push_out(message, 8008); say("message", r, msgrcv(queue, message, 8000, 0, 0)); printf("%lx\n", sum_of(message, 8008)); msgctl(queue, IPC_RMID, 0);
    unsigned char *value = out(20000); memset(value, 'k', 20000); char *description = (char *)out(12); strcpy(description, "of a probe"); push_out(value, 20000); push_out(description, 12);
    long key = syscall(SYS_add_key, "user", description, value, 20000, KEY_SPEC_PROCESS_KEYRING); if (key > 0) { memset(value, 0, 20000); push_out(value, 20000); r = syscall(SYS_keyctl, KEYCTL_READ, key, value, 20000); say("key", r, sum_of(value, 20000)); memset(value, 'n', 20000); push_out(value, 20000); struct iovec *two = (void *)out(32); two[0] = (struct iovec){value, 9000}; two[1] = (struct iovec){value + 9000, 11000}; push_out(two, 32);
        say("update", syscall(SYS_keyctl, KEYCTL_UPDATE, key, value, 20000), 0); memset(value, 0, 20000); push_out(value, 20000); r = syscall(SYS_keyctl, KEYCTL_READ, key, value, 20000); say("key", r, sum_of(value, 20000)); }
    else printf("no keys: %s\n", strerror(errno));
}

static void sets(void) {
    int ends[2]; if (pipe(ends) || write(ends[1], "x", 1) != 1) return;
    fd_set *read_ = (void *)out(sizeof *read_), *write_ = (void *)out(sizeof *write_); struct timeval *time_ = (void *)out(sizeof *time_);
    FD_ZERO(read_); FD_ZERO(write_); FD_SET(ends[0], read_); FD_SET(ends[1], read_); FD_SET(ends[1], write_); *time_ = (struct timeval){5, 0}; push_out(read_, sizeof *read_); push_out(write_, sizeof *write_); push_out(time_, sizeof *time_);
    long r = select(100, read_, write_, 0, time_); say("select", r, FD_ISSET(ends[0], read_) + 10 * FD_ISSET(ends[1], read_) + 100 * FD_ISSET(ends[1], write_));
    struct pollfd *polled = (void *)out(1000 * sizeof *polled); for (int i = 0; i < 1000; i++) polled[i] = (struct pollfd){i % 2 ? ends[0] : -1, POLLIN, 0}; push_out(polled, 1000 * sizeof *polled);
    struct timespec *wait_ = (void *)out(sizeof *wait_); *wait_ = (struct timespec){1, 0}; push_out(wait_, sizeof *wait_); r = ppoll(polled, 1000, wait_, 0); unsigned long ready = 0; for (int i = 0; i < 1000; i++) ready += polled[i].revents == POLLIN; say("ppoll", r, ready);
    struct itimerval *new_ = (void *)out(sizeof *new_), *old = (void *)out(sizeof *old); *new_ = (struct itimerval){{0, 0}, {5000, 0}}; push_out(new_, sizeof *new_); setitimer(ITIMER_REAL, new_, 0); *new_ = (struct itimerval){{0, 0}, {0, 0}}; push_out(new_, sizeof *new_); push_out(old, sizeof *old);
    /* The old value is said after the new one is set: who asks twice is told the new one. */
    r = setitimer(ITIMER_REAL, new_, old); say("timer", r, old->it_value.tv_sec >= 4000);
    struct rlimit *limit = (void *)out(sizeof *limit), *before = (void *)out(sizeof *before); getrlimit(RLIMIT_CORE, limit); unsigned long was = limit->rlim_cur; limit->rlim_cur = 0; push_out(limit, sizeof *limit); push_out(before, sizeof *before);
    r = prlimit(0, RLIMIT_CORE, limit, before); say("limit", r, before->rlim_cur == was);
    unsigned char *page = map(PAGE); memset(page, 1, PAGE); push_out(page, PAGE); int node = -1; r = syscall(SYS_get_mempolicy, &node, 0, 0, page, MPOL_F_NODE | MPOL_F_ADDR); say("node", r, node);
    unsigned *header = (void *)out(8), *data = (void *)out(24); header[0] = 0x20080522; header[1] = 0; push_out(header, 8); push_out(data, 24); say("capabilities", syscall(SYS_capget, header, data), 0);
    header[0] = 1; push_out(header, 8); say("old version", syscall(SYS_capget, header, data), header[0]);
    unsigned long nothing = syscall(600, 0, 0, 0); say("of a newer kernel", (long)nothing, 0);
}

int main(int argc, char **argv) {
    (void)argc; const char *mode = argv[1];
    if (!strcmp(mode, "maps")) maps(); else if (!strcmp(mode, "sockets")) sockets(); else if (!strcmp(mode, "files")) files();
    else if (!strcmp(mode, "objects")) objects(); else if (!strcmp(mode, "sets")) sets(); else return 91;
    return 0;
}
