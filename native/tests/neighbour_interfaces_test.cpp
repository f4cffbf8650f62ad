// Link-local IPv6 addresses mean something on their interface only: who has the same one on another
// interface is somebody else.

#include <atomic>
#include <memory>
#include <thread>

#include "neighbour/neighbourhood.hpp"
#include "tests/check.hpp"
#include "tests/own_address.hpp"
#include "tests/patience.hpp"

namespace softhca::testing {
namespace {

// Not those of an interface.
unsigned interface_of(unsigned number) { return 0x7700'0000u + number; }

LocalAddress local_of(std::uint8_t first, std::uint8_t second, std::uint8_t last,
                      unsigned interface_index) {
  LocalAddress local;
  local.gid = own_address(last, first, second);
  local.interface_index = interface_index;
  return local;
}

AdapterConfig config_of(const LocalAddress& local) {
  AdapterConfig config;
  config.gids = {local.gid};
  config.shortcut = true;
  return config;
}

struct Host {
  explicit Host(const LocalAddress& at)
      : local(at), adapter(config_of(at)), neighbours(Neighbourhood::open(local, mutex, adapter)) {
    CHECK(neighbours != nullptr);
  }
  ~Host() { adapter.set_paths(nullptr); }

  bool has_path_to(const Host& peer) {
    return neighbours->path_to(local.gid, peer.local.gid) != nullptr;
  }

  const LocalAddress local;
  ShortMutex mutex;
  Adapter adapter;
  std::unique_ptr<Neighbourhood> neighbours;
};

// `one` looks for `other`'s address while both hosts that may have it answer.
void look_for(Host& one, Host& other, Host& another) {
  std::atomic<bool> looked{false};
  std::thread server([&] {
    while (!looked.load()) {
      other.neighbours->serve();
      another.neighbours->serve();
    }
  });
  one.neighbours->meet(other.local.gid, kPatienceMs);
  looked.store(true);
  server.join();
}

}  // namespace

TEST("neighbour: a link-local address of another interface is nobody's") {
  Host here(local_of(0xfe, 0x80, 1, interface_of(0)));
  Host elsewhere(local_of(0xfe, 0x80, 2, interface_of(1)));
  Host third(local_of(0xfe, 0x80, 3, interface_of(0)));
  look_for(here, elsewhere, third);
  CHECK(!here.has_path_to(elsewhere));
  CHECK(!elsewhere.neighbours->is_inhabited());
}

TEST("neighbour: of a link-local address on two interfaces the own one is met") {
  Host here(local_of(0xfe, 0x80, 1, interface_of(0)));
  Host elsewhere(local_of(0xfe, 0x80, 2, interface_of(1)));
  Host next_door(local_of(0xfe, 0x80, 2, interface_of(0)));
  look_for(here, next_door, elsewhere);
  CHECK(here.has_path_to(next_door));
  CHECK(!elsewhere.neighbours->is_inhabited());
}

TEST("neighbour: other addresses are met across interfaces") {
  Host here(local_of(0xfd, 0x77, 1, interface_of(0)));
  Host elsewhere(local_of(0xfd, 0x77, 2, interface_of(1)));
  Host third(local_of(0xfd, 0x77, 3, interface_of(1)));
  look_for(here, elsewhere, third);
  CHECK(here.has_path_to(elsewhere));
}

}  // namespace softhca::testing
