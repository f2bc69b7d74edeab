/* Under a budget of 3 MiB: gives pages to a pipe and to a socket that reads them later, and has other memory come and go
 * meanwhile. What arrives is what was given. Prints "done". */
#include "program.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define GIVEN (16 * PAGE)
#define OTHER (8 * MIB)

/* Pages of other memory at random, each with its number in every word. */
static void come_and_go(unsigned long *other, unsigned seed) {
    unsigned long words = PAGE / 8;
    for (int touch = 0; touch < 8000; touch++) {
        seed = seed * 1103515245 + 12345;
        unsigned long page = (seed >> 8) % (OTHER / PAGE);
        for (unsigned long word = 0; word < words; word += 64) CHECK(other[page * words + word] == page * 3 + 1);
        other[page * words + 1] = touch;
    }
}

static unsigned long *other_memory(void) {
    unsigned long *other = (unsigned long *)map(OTHER);
    for (unsigned long word = 0; word < OTHER / 8; word++) other[word] = word / (PAGE / 8) * 3 + 1;
    return other;
}

static void by_a_pipe(unsigned seed) {
    static unsigned char back[GIVEN];
    unsigned char *given = map(GIVEN);
    unsigned long *other = other_memory();
    int ends[2];
    fill(given, GIVEN);
    CHECK(!pipe(ends) && fcntl(ends[1], F_SETPIPE_SZ, 2 * GIVEN) >= (int)GIVEN);
    struct iovec vector = {given, GIVEN};
    CHECK(vmsplice(ends[1], &vector, 1, 0) == GIVEN);
    come_and_go(other, seed);
    for (unsigned long got = 0; got < GIVEN;) {
        long more = read(ends[0], back + got, GIVEN - got);
        CHECK(more > 0);
        got += more;
    }
    CHECK(whole(back, GIVEN) && whole(given, GIVEN));
    CHECK(!munmap(given, GIVEN) && !munmap(other, OTHER) && !close(ends[0]) && !close(ends[1]));
}

static void by_a_socket(unsigned seed) {
    static unsigned char back[GIVEN];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int one = 1, small = 4096, listening = socket(AF_INET, SOCK_STREAM, 0), sends = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    CHECK(!bind(listening, (void *)&address, length) && !listen(listening, 1));
    CHECK(!getsockname(listening, (void *)&address, &length));
    CHECK(!setsockopt(sends, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one));
    CHECK(!connect(sends, (void *)&address, length));
    int receives = accept(listening, 0, 0);
    CHECK(receives >= 0);
    unsigned char *given = map(GIVEN);
    unsigned long *other = other_memory();
    fill(given, GIVEN);
    long sent = send(sends, given, GIVEN, MSG_ZEROCOPY | MSG_DONTWAIT);
    CHECK(sent > 0);
    come_and_go(other, seed);
    for (long got = 0; got < sent;) {
        long more = read(receives, back + got, sent - got);
        CHECK(more > 0);
        got += more;
    }
    CHECK(whole(back, sent) && whole(given, GIVEN));
    CHECK(!munmap(given, GIVEN) && !munmap(other, OTHER) && !close(sends) && !close(receives) && !close(listening));
}

int main(int arguments, char **words) {
    for (unsigned seed = 0; seed < 3; seed++) {
        if (arguments > 1) by_a_socket(seed);
        else by_a_pipe(seed);
    }
    puts("done");
    return 0;
}
