#include <cerrno>

#include "link/address.hpp"
#include "link/address_monitor.hpp"
#include "tests/check.hpp"

namespace softhca {
namespace {

Gid gid_of(const char* text) {
  Gid gid;
  CHECK(parse_gid(text, gid));
  return gid;
}

TEST("link address: text and GID are the same thing") {
  for (const char* text :
       {"127.1.2.3", "255.255.255.255", "::1", "fe80::1", "ff02::1", "fd00::2"}) {
    CHECK_EQ(format_gid(gid_of(text)), std::string(text));
  }
  CHECK(gid_of("192.0.2.1").is_ipv4());
  CHECK(!gid_of("fd00::2").is_ipv4());
  // A mapped address is an IPv4 one, however it is written.
  CHECK(gid_of("::ffff:192.0.2.1") == gid_of("192.0.2.1"));
  CHECK(gid_of("fe80::1%lo") == gid_of("fe80::1"));
}

TEST("link address: what is no address is refused") {
  Gid gid;
  for (const char* text :
       {"", "eth0", "1.2.3", "1.2.3.4.5", "256.1.1.1", "::1::2", "host.example"}) {
    CHECK(!parse_gid(text, gid));
  }
}

TEST("link address: the whole of 127/8 belongs to the loopback interface") {
  LocalAddress local;
  CHECK(resolve_local_address("127.77.1.9", local).ok());
  CHECK(local.gid == gid_of("127.77.1.9"));
  CHECK(local.interface_index > 0);
  CHECK(local.mtu_bytes >= 1500);
}

TEST("link address: an interface name stands for its IPv4 address") {
  LocalAddress local;
  CHECK(resolve_local_address("lo", local).ok());
  CHECK(local.gid == gid_of("127.0.0.1"));
}

TEST("link address: an unknown interface and a foreign address are told apart") {
  LocalAddress local;
  CHECK_EQ(resolve_local_address("nosuch0", local).error, ENODEV);
  const LinkError foreign = resolve_local_address("192.0.2.254", local);
  CHECK_EQ(foreign.error, EADDRNOTAVAIL);
  // The message names what could be opened instead.
  CHECK(foreign.message.find("127.0.0.1 (lo)") != std::string::npos);
}

TEST("link address: random loopback addresses are usable ones") {
  Random random(7);
  for (int i = 0; i < 10000; ++i) {
    const Gid gid = random_loopback_address(random);
    CHECK(is_loopback(gid) && gid.is_ipv4());
    CHECK(gid.ipv4()[1] >= 1 && gid.ipv4()[1] <= 254);
    CHECK(gid.ipv4()[3] >= 1 && gid.ipv4()[3] <= 254);
  }
}

TEST("address: its condition is the machine's and its interface's") {
  LocalAddress local;
  CHECK(resolve_local_address("127.0.0.1", local).ok());
  const unsigned loopback = local.interface_index;
  CHECK(condition_of(local) == (AddressCondition{true, true, loopback, local.mtu_bytes}));
  CHECK(parse_gid("127.44.33.22", local.gid));
  CHECK(condition_of(local) == (AddressCondition{true, true, loopback, local.mtu_bytes}));
  local.interface_index = loopback + 1;  // It was elsewhere before.
  CHECK(condition_of(local) == (AddressCondition{true, true, loopback, local.mtu_bytes}));
  local.interface_index = loopback;
  CHECK(parse_gid("192.0.2.77", local.gid));  // Nobody's: it is set aside for documents.
  CHECK(condition_of(local) == (AddressCondition{false, true, 0, 0}));
  local.interface_index = 0x7ffffff0;
  CHECK(condition_of(local) == (AddressCondition{false, false, 0, 0}));
}

TEST("address: a monitor that hears nothing is silent") {
  AddressMonitor monitor;
  if (const int error = monitor.open(); error != 0) return;  // A sandbox.
  monitor.clear();
  CHECK(monitor.fd() >= 0);
}

}  // namespace
}  // namespace softhca
