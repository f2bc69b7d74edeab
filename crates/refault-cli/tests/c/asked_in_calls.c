/* Makes a call that takes its time again and again, as the first argument says, while a child queues the tree's request for
 * memory (whose value is the second argument) to the thread that makes it. Each call does all that it was asked for, as if
 * the child had asked nothing, unless a signal of the program's own ends it. Prints "done". */
#include "program.h"
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static unsigned char *buffer;

static pid_t child(void (*work)(const int *), const int *ends, int others) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid) return pid;
    close(ends[others]);
    work(ends);
    _exit(0);
}

static void read_slowly(const int *ends) {
    static char part[16 << 10];
    while (read(ends[0], part, sizeof part) > 0) usleep(500);
}

static void write_slowly(const int *ends) {
    static char part[5000];
    while (write(ends[1], part, sizeof part) > 0) usleep(300);
}

static void handle(int number) {}

static int is(const char *a, const char *b) { return !strcmp(a, b); }

static const char *how;
static int ends[2], file;
static unsigned long bytes;

/* The call, which is to say `bytes`. */
static long once(void) {
    struct iovec parts[2] = {{buffer, 1000}, {buffer + 1000, bytes - 1000}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (is(how, "writev")) return writev(ends[1], parts, 2);
    if (is(how, "send")) return send(ends[1], buffer, bytes, 0);
    if (is(how, "sendmsg")) return sendmsg(ends[1], &message, 0);
    if (is(how, "recv")) return recv(ends[0], buffer, bytes, MSG_WAITALL);
    if (is(how, "recvmsg")) return recvmsg(ends[0], &message, MSG_WAITALL);
    if (is(how, "getrandom")) return getrandom(buffer, bytes, 0);
    if (is(how, "read zeros")) return read(file, buffer, bytes);
    if (is(how, "sendfile")) return sendfile(ends[1], file, &(off_t){0}, bytes);
    return write(ends[1], buffer, bytes);
}

/* The program's own signals end a call in its middle, although the child asks for memory meanwhile. */
static void end_it_by_a_signal(void) {
    static char part[64 << 10];
    CHECK(once() == bytes);
    struct itimerval soon = {{0, 0}, {0, 10000}};
    CHECK(!setitimer(ITIMER_REAL, &soon, 0));
    long said = once();
    CHECK(said > 0 && said < bytes);
    for (long left = bytes + said; left > 0;) {
        long there = read(ends[0], part, sizeof part < left ? sizeof part : left);
        CHECK(there > 0);
        left -= there;
    }
    int waiting;
    CHECK(!ioctl(ends[0], FIONREAD, &waiting) && waiting == 0);
}

static void try(int times) {
    for (int time = 0; time < times; time++) {
        if (is(how, "handled write")) end_it_by_a_signal();
        else CHECK(once() == bytes);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    how = arguments[1];
    int status, receives = is(how, "recv") || is(how, "recvmsg"), handles = is(how, "handled write");
    int is_stream = receives || !strncmp(how, "send", 4), is_large = is(how, "getrandom") || is(how, "read zeros");
    CHECK(!(is_stream ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)));
    if (is_stream) CHECK(!setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &(int){8 << 10}, sizeof(int)));
    bytes = is(how, "unmanaged write") || is(how, "sendfile") ? 300 << 10 : is_large ? 2 << 20 : 40 << 10;
    int sharing = is(how, "unmanaged write") ? MAP_SHARED : MAP_PRIVATE;
    buffer = mmap(0, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    memset(buffer, 7, bytes);
    char path[] = "/tmp/asked.XXXXXX";
    file = is(how, "read zeros") ? open("/dev/zero", O_RDONLY) : mkstemp(path);
    CHECK(file >= 0);
    if (is(how, "sendfile")) CHECK(write(file, buffer, bytes) == bytes);
    unlink(path);
    signal(SIGALRM, handle);
    pid_t other = handles ? 0 : child(receives ? write_slowly : read_slowly, ends, receives ? 0 : 1);
    pid_t asks = asker(strtoul(arguments[2], 0, 10));

    int times = handles ? 10 : 60;
    try(times);
    /* Enough calls that the library's jump to the agent from now on. */
    for (int call = 0; call < 2000; call++) CHECK(getppid() > 0);
    try(times);
    CHECK(!kill(asks, SIGKILL) && waitpid(asks, &status, 0) == asks);
    if (other) CHECK(!kill(other, SIGKILL) && waitpid(other, &status, 0) == other);
    puts("done");
    return 0;
}
