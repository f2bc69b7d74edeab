# Eight C++ files with heavy headers, compiled by two jobs at a time, linked and run.
set -e
home=$(mktemp -d)
cd "$home"
for i in $(seq 8); do
    printf '#include <regex>\n#include <map>\n#include <string>\nint f%d(const std::string& s) { std::map<std::string, int> m; m[s] = %d; return std::regex_match(s, std::regex("(a+)(b*)")) + (int)m.size(); }\n' "$i" "$i" >"f$i.cpp"
done
printf '#include <cstdio>\n#include <string>\nint f1(const std::string&); int f8(const std::string&);\nint main() { std::printf("%%d\\n", f1("aab") + f8("b")); }\n' >main.cpp
printf 'objects := $(patsubst %%.cpp,%%.o,$(wildcard *.cpp))\nprogram: $(objects)\n\t$(CXX) -o $@ $(objects)\n' >Makefile
make -j2 >/dev/null
./program
ls ./*.o | wc -l
rm -rf "$home"
