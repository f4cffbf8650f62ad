// Which paths are ours, however they are written.

#include "tests/check.hpp"
#include "uabi/known_paths.hpp"

namespace softhca::testing {
namespace {

TEST("uabi paths: a path is what its parts come to") {
  CHECK(normal_path("/sys/class") == "/sys/class");
  CHECK(normal_path("//sys/./class//") == "/sys/class");
  CHECK(normal_path("/sys/../dev/./x/..") == "/dev");
  CHECK(normal_path("/../../..") == "/");
  CHECK(normal_path("/") == "/");
  CHECK(normal_path("sys/class").empty());
  CHECK(normal_path("").empty());
}

TEST("uabi paths: what lies in a tree is shown from it, and nothing else") {
  KnownPaths paths;
  paths.show("/sys/class/infiniband", "/tree/infiniband");
  paths.set_live_directories({"hw_counters"});
  const auto shown = [&](const char* path) {
    const auto found = paths.find(path);
    return found.has_value() ? found->file : std::string();
  };
  CHECK(shown("/sys/class/infiniband") == "/tree/infiniband");
  CHECK(shown("/sys/class//infiniband/rxe0/./fw_ver") == "/tree/infiniband/rxe0/fw_ver");
  CHECK(shown("//sys/class/infiniband/rxe0") == "/tree/infiniband/rxe0");
  CHECK(shown("/./sys/class/infiniband/rxe0") == "/tree/infiniband/rxe0");
  for (const char* other : {"/sys/class/infiniband_mad", "/sys/class", "/sys/class/net/lo",
                            "/sys/class/infiniband/../net", "/etc/passwd", "rxe0", "",
                            "/sys/class/infiniband/../../../etc/passwd", "/sys/class/net/..",
                            "/sys/class/infiniband_mad/.."}) {
    CHECK(!paths.find(other).has_value());
  }
  CHECK(shown("/sys/class/infiniband/..x") == "/tree/infiniband/..x");
  CHECK(paths.find("/sys/class/infiniband/rxe0/ports/1/hw_counters/x")->kind ==
        KnownPath::Kind::live);
  CHECK(paths.find("/sys/class/infiniband/rxe0/ports/1/state")->kind ==
        KnownPath::Kind::directory_tree);
}

TEST("uabi paths: what is above a tree is found by a path that leads through it") {
  KnownPaths paths;
  paths.show("/dev/infiniband", "/tree/nodes");
  const auto parent = [&](const char* path) {
    const auto found = paths.find(path);
    return found.has_value() && found->kind == KnownPath::Kind::parent ? found->file : "";
  };
  CHECK(parent("/dev/infiniband/..") == "/dev");
  CHECK(parent("/dev/infiniband/.././") == "/dev");
  CHECK(parent("/dev//infiniband/./rdma/../..") == "/dev");
  CHECK(parent("/dev/infiniband/../..") == "/");
  CHECK(parent("/dev/infiniband/../infiniband/..") == "/dev");
  for (const char* other : {"/dev", "/dev/..", "/dev/shm/..", "/dev/infiniband/../shm",
                            "/dev/infiniband", "/dev/infiniband/x/.."}) {
    CHECK(parent(other).empty());
  }
}

TEST("uabi paths: devices come and go") {
  KnownPaths paths;
  paths.add_device("/dev/infiniband/uverbs0", 0xE7C0);
  const auto found = paths.find("/dev//infiniband/uverbs0");
  CHECK(found.has_value() && found->kind == KnownPath::Kind::device && found->device == 0xE7C0);
  CHECK(!paths.find("/dev/infiniband/uverbs1").has_value());
  CHECK(!paths.find("/dev/infiniband").has_value());
  paths.remove("/dev/infiniband/uverbs0");
  CHECK(!paths.find("/dev/infiniband/uverbs0").has_value());
}

}  // namespace
}  // namespace softhca::testing
