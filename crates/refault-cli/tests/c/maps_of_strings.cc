// Four threads fill maps with 30 000 strings each and look at them. Prints "bad" and how many were not as written.
#include <atomic>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> bad{0};

static void work(int thread) {
    std::map<int, std::string> strings;
    for (int number = 0; number < 30000; number++)
        strings[(number * 7919 + thread) % 30011] = std::string(200 + number % 100, 'a' + number % 26);
    for (int number = 0; number < 30000; number++) {
        auto &string = strings[(number * 7919 + thread) % 30011];
        if (string.size() != size_t(200 + number % 100) || string[0] != 'a' + number % 26) bad++;
    }
}

int main() {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) threads.emplace_back(work, thread);
    for (auto &thread : threads) thread.join();
    std::printf("bad %ld\n", bad.load());
}
