// The twelve lines with <regex> that README's compiler compiles: prints how often each word stands on standard input.
#include <iostream>
#include <map>
#include <regex>
#include <string>
int main() {
    std::map<std::string, int> counts;
    std::regex word("[a-z]+", std::regex::icase);
    for (std::string line; std::getline(std::cin, line);)
        for (std::sregex_iterator at(line.begin(), line.end(), word), end; at != end; ++at)
            ++counts[at->str()];
    for (auto &[text, count] : counts) std::cout << text << ' ' << count << '\n';
}
