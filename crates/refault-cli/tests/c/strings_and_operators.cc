// Three threads keep maps of strings and large arrays and use every form of new and delete; then more is asked for
// than there is, which must call the handler of new three times and fail as the standard says. Prints "done".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

static int handled, damaged[3];

static std::string text(int number, int thread) {
    return std::string(500 + number % 700, char('a' + (number + thread) % 26));
}

struct alignas(256) Wide {
    char bytes[512];
};

static void work(int thread) {
    std::map<int, std::string> strings;
    for (int number = 0; number < 5000; number++) strings[number] = text(number, thread);
    std::vector<std::unique_ptr<char[]>> large;
    for (int count = 0; count < 20; count++) large.emplace_back(new char[300000]);
    for (int number = 0; number < 5000; number++) damaged[thread] += strings[number] != text(number, thread);
    free(strdup("hello"));
    delete new Wide;
    delete[] new Wide[3];
    ::operator delete(::operator new(100, std::nothrow));
}

int main() {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; thread++) threads.emplace_back(work, thread);
    for (auto &thread : threads) thread.join();

    volatile size_t most = ~size_t(0) / 4;
    std::set_new_handler([] {
        if (++handled == 3) std::set_new_handler(nullptr);
    });
    try {
        ::operator new(most);
        puts("more than there is");
        return 1;
    } catch (std::bad_alloc &) {
    }
    if (new (std::nothrow) char[most] || handled != 3 || damaged[0] + damaged[1] + damaged[2]) {
        puts("wrong");
        return 1;
    }
    puts("done");
}
