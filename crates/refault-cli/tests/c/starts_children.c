// Starts children by system(), popen() and posix_spawn(), with as many MiB in use as its argument says, a handler for a
// signal and an action that is ignored; prints what came back.
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;
static void handler(int signal) { (void)signal; }

int main(int count, char **words) {
    size_t bytes = (size_t)(count > 1 ? atoi(words[1]) : 8) << 20;
    char *memory = malloc(bytes), line[64] = "";
    if (!memory) return 1;
    memset(memory, 7, bytes);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, SIG_IGN);
    printf("system %d\n", system("exit 3"));
    FILE *pipe = popen("echo from a child", "r");
    if (!pipe || !fgets(line, sizeof line, pipe)) strcpy(line, "nothing\n");
    printf("popen %d %s", pipe ? pclose(pipe) : -1, line);
    char *arguments[] = {"sh", "-c", "kill -USR2 $$; exit 5", 0};
    pid_t child;
    int status = -1, error = posix_spawn(&child, "/bin/sh", 0, 0, arguments, environ);
    if (!error) waitpid(child, &status, 0);
    printf("posix_spawn %d %d\n", error, status);
    unsigned long sum = 0;
    for (size_t at = 0; at < bytes; at += 4096) sum += memory[at];
    printf("%lu\n", sum);
    return 0;
}
