// What is said of plain regions beside the keys is what the keys say, whatever is done to them.

#include <array>
#include <memory>
#include <vector>

#include "memory/memory_table.hpp"
#include "tests/check.hpp"
#include "tests/rounds.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint32_t kRights[] = {0, kAccessLocalWrite, kAccessLocalWrite | kAccessRemoteWrite,
                                     kAccessRemoteRead};

class Table {
 public:
  explicit Table(Random& random) : random_(random) {}

  void change() {
    switch (random_.below(6)) {
      case 0:
      case 1:
        if (const auto made = table_.register_region(request()); made.ok()) add(made.value);
        break;
      case 2:
        if (const auto key = table_.reregister_region(any(), request()); key.ok()) add(key.value);
        break;
      case 3:
        static_cast<void>(table_.deregister_region(any()));
        break;
      case 4:
        if (const auto made = table_.alloc_fast_region(pd(), MrType::MEM_REG, 1); made.ok()) {
          FastMapping mapping;
          mapping.ranges = {{place(), 64}};
          static_cast<void>(table_.map_fast_region(made.value, mapping));
          static_cast<void>(
              table_.register_fast_region(pd(), made.value, made.value, kAccessRemoteRead));
          add(made.value);
        }
        break;
      default:
        static_cast<void>(table_.invalidate(pd(), any(), random_.below(2) == 0));
    }
  }

  // The two answers about some access; how many were granted.
  std::size_t compare() {
    const std::uint32_t key = random_.below(4) == 0 ? any() ^ 1 : any();
    const std::uint32_t domain = pd();
    const std::uint32_t access = kRights[random_.below(std::size(kRights))];
    const std::uint64_t at = place() + random_.below(3) - 1;
    const std::uint64_t bytes = random_.below(100);
    const std::uint8_t* const plain = table_.plain(domain, key, at, bytes, access);
    const RegionRequest* const region = table_.find(key);
    const bool is_plain = region != nullptr && !region->watched && !region->space &&
                          table_.find_index(key)->kind == KeyKind::REGION;
    const bool granted = is_plain && table_.check_remote(domain, key, at, bytes, access).ok();
    CHECK_EQ(plain != nullptr, granted);
    if (granted) {
      CHECK_EQ(reinterpret_cast<std::uint64_t>(plain), region->address + (at - region->iova));
    }
    return granted ? 1 : 0;
  }

 private:
  std::uint32_t pd() { return 1 + static_cast<std::uint32_t>(random_.below(2)); }
  std::uint64_t place() {
    return reinterpret_cast<std::uint64_t>(bytes_.data()) + 64 * random_.below(4);
  }
  RegionRequest request() {
    RegionRequest made{pd(), place(), random_.below(200), place(),
                       kRights[random_.below(std::size(kRights))]};
    if (random_.below(4) == 0) made.watched = std::make_shared<WatchedRange>();
    return made;
  }
  void add(std::uint32_t key) { keys_[random_.below(keys_.size())] = key; }
  std::uint32_t any() { return keys_[random_.below(keys_.size())]; }

  Random& random_;
  std::array<std::uint8_t, 512> bytes_{};
  MemoryTable table_{process_space(), random_, 64, ~std::uint64_t{0}};
  std::array<std::uint32_t, 16> keys_{};
};

TEST("memory: what is said of plain regions is what their keys say") {
  Random random(seed());
  std::size_t granted = 0;
  for (std::size_t round = 0; round < rounds(200); ++round) {
    Table table(random);
    for (int step = 0; step < 200; ++step) {
      table.change();
      for (int looks = 0; looks < 8; ++looks) granted += table.compare();
    }
  }
  CHECK(granted > rounds(200) * 20);
}

}  // namespace
}  // namespace softhca::testing
