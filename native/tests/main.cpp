// Runs all tests, or those whose name contains the first argument.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string_view>
#include <vector>

#include "tests/check.hpp"

namespace softhca::testing {
namespace {

struct Test {
  const char* name;
  void (*run)();
};

// Ends a test whose check failed; the failure is printed and counted before it is thrown.
struct TestEnded {};

std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

std::atomic<unsigned> failed_checks = 0;
thread_local bool on_test_thread = false;

std::uint64_t choose_seed() {
  if (const char* chosen = std::getenv("SOFTHCA_TEST_SEED")) {
    return std::strtoull(chosen, nullptr, 0);
  }
  return std::random_device{}();
}

bool passes(const Test& test) {
  // The name goes out first, so that a crash or a hang tells whose it is.
  std::printf("%s ... ", test.name);
  std::fflush(stdout);
  failed_checks = 0;
  try {
    test.run();
  } catch (const TestEnded&) {
    // fail() has said why.
  } catch (const std::exception& error) {
    ++failed_checks;
    std::printf("\n  exception: %s\n", error.what());
  }
  std::printf("%s\n", failed_checks == 0 ? "ok" : "FAILED");
  return failed_checks == 0;
}

}  // namespace

Registration::Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }

std::uint64_t seed() {
  static const std::uint64_t chosen = choose_seed();
  return chosen;
}

void fail(const char* file, int line, const std::string& what) {
  ++failed_checks;
  std::printf("\n  %s:%d: CHECK failed: %s\n", file, line, what.c_str());
  std::fflush(stdout);
  if (on_test_thread) throw TestEnded{};
}

int run_tests(std::string_view wanted) {
  on_test_thread = true;
  std::printf("SOFTHCA_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed()));
  unsigned passed = 0;
  unsigned failed = 0;
  for (const Test& test : tests()) {
    if (std::string_view(test.name).find(wanted) == std::string_view::npos) continue;
    ++(passes(test) ? passed : failed);
  }
  std::printf("%u passed, %u failed\n", passed, failed);
  // A name that matches nothing is a mistake, not a success.
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace softhca::testing

int main(int argc, char** argv) { return softhca::testing::run_tests(argc > 1 ? argv[1] : ""); }
