/* Large calls at their edges: what a call that is made in pieces must not do. */
#include "probe.h"
#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BYTES (12 * MIB)

static volatile int handled;
static void handler(int number) { (void)number; handled++; }

/* Two ends of a connection over loopback. */
static void connection(int ends[2]) {
    int listens = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    bind(listens, (void *)&at, bytes);
    listen(listens, 1);
    getsockname(listens, (void *)&at, &bytes);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    connect(ends[0], (void *)&at, bytes);
    ends[1] = accept(listens, 0, 0);
    close(listens);
}

/* A message of `bytes` bytes with a descriptor. */
static long send_with_descriptor(int to, void *p, unsigned long bytes, unsigned long control_bytes, int flags) {
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {p, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *with = CMSG_FIRSTHDR(&message);
    with->cmsg_level = SOL_SOCKET;
    with->cmsg_type = SCM_RIGHTS;
    with->cmsg_len = control_bytes;
    *(int *)CMSG_DATA(with) = 1;
    return sendmsg(to, &message, flags);
}

/* A wait for all that the kernel itself ends: at a descriptor for which there is no room, at urgent data. */
static void waits(unsigned char *p) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return;
    send_with_descriptor(ends[1], p, 100, CMSG_LEN(sizeof(int)), 0);
    struct iovec part = {p, BYTES};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    long n = recvmsg(ends[0], &message, MSG_WAITALL);
    printf("at a descriptor: %ld, flags %x\n", n, message.msg_flags);
    connection(ends);
    send(ends[1], p, 100, 0);
    send(ends[1], "!", 1, MSG_OOB);
    send(ends[1], p, 50, 0);
    usleep(100000);
    n = recv(ends[0], p, BYTES, MSG_WAITALL);
    printf("at urgent data: %ld\n", n);
    n = send_with_descriptor(ends[1], p, BYTES, -1ul, MSG_DONTWAIT);
    printf("a control message without end: %ld %s\n", n, strerror(errno));
}

/* Messages that wait to be read are no error of the connection. */
static void stamps(unsigned char *p) {
    int ends[2], on = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;
    connection(ends);
    setsockopt(ends[0], SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof on);
    if (!fork()) {
        static char part[64 * KIB];
        close(ends[0]);
        while (read(ends[1], part, sizeof part) > 0);
        _exit(0);
    }
    close(ends[1]);
    for (int i = 0; i < 2; i++) printf("with stamps: %ld\n", (long)write(ends[0], p, BYTES));
    close(ends[0]);
    wait(0);
}

static int through[2];
static void *write_all(void *p) { return (void *)write(through[1], p, BYTES); }

/* Another file takes the descriptor's number while a write waits. */
static void replaced(unsigned char *p) {
    static char part[64 * KIB];
    pthread_t writer;
    int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (pipe(through)) return;
    pthread_create(&writer, 0, write_all, p);
    usleep(300000);
    dup2(other, through[1]);
    while (read(through[0], part, sizeof part) > 0);
    pthread_join(writer, 0);
    printf("in another file: %ld\n", (long)lseek(other, 0, SEEK_END));
}

/* What is larger than a file may be is cut off without a signal, and what direct I/O refuses leaves nothing. */
static void limits(unsigned char *p) {
    signal(SIGXFSZ, handler);
    int direct = open("direct", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    if (direct >= 0) {
        long n = write(direct, p + 512 + 1, BYTES - 4096);
        printf("direct: %ld, a file of %ld\n", n, (long)lseek(direct, 0, SEEK_END));
    }
    struct rlimit least = {4 * MIB, 4 * MIB};
    setrlimit(RLIMIT_FSIZE, &least);
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    printf("cut off: %ld", (long)write(file, p, BYTES));
    printf(", %ld, signals %d\n", (long)pwrite(file, p, BYTES, 0), handled);
}

int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    alarm(170);
    unsigned char *p = map(BYTES);
    fill(p, BYTES);
    waits(p);
    stamps(p);
    replaced(p);
    limits(p);
    return 0;
}
