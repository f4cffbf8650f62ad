#include "driver/open_device.hpp"

#include <pthread.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "adapter/path_mtu.hpp"
#include "memory/guarded_access.hpp"

namespace softhca {
namespace {

// Who opens a device installs the guard, and a child may open one.
[[maybe_unused]] const int held_over_forks =
    pthread_atfork(hold_fault_guard, let_go_of_fault_guard, let_go_of_fault_guard);

// An EUI-64, locally administered, so that it is nobody's: 02:xx:xx:ff:fe:xx:xx:xx.
std::uint64_t guid_of(const Gid& gid) {
  std::uint8_t bytes[8] = {0x02, 0, 0, 0xff, 0xfe, 0, 0, 0};
  bytes[1] = gid.is_ipv4() ? 0 : gid.raw[11];
  bytes[2] = gid.raw[12];
  std::memcpy(bytes + 5, gid.raw.data() + 13, 3);
  return load_be64(bytes);
}

std::uint64_t system_entropy() {
  std::uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) seed = monotonic_ns();
  return seed;
}

}  // namespace

AdapterConfig adapter_config(const UdpLink& link) {
  AdapterConfig config;
  const Gid& gid = link.local().gid;
  config.node_guid = guid_of(gid);
  config.gids = {gid};
  config.port_active = condition_of(link.local()).link_up;
  config.udp_source_ports = link.source_ports();
  config.active_mtu = path_mtu_code(link.local().mtu_bytes, gid.is_ipv4());
  return config;
}

DriverError open_device(const OpenOptions& options, OpenedDevice& device) {
  UdpOptions udp;
  udp.address = options.address;
  udp.source_port_count = options.source_port_count;
  udp.trains = options.trains;
  std::unique_ptr<UdpLink> link;
  DriverError error = UdpLink::open(udp, link);
  if (!error.ok()) return error;
  OpenedDevice opened;
  opened.local = link->local();
  AdapterConfig config = adapter_config(*link);
  config.seed = options.seed != 0 ? options.seed : system_entropy();
  config.icrc_level = options.icrc_level;
  config.active_mtu = std::min(config.active_mtu, options.max_mtu);
  config.windows_2a = options.windows_2a;
  config.retry_early = options.retry_early;
  config.lazy_acks = true;
  // What is captured or damaged on its way must have a way.
  config.shortcut = options.shortcut && options.capture_path.empty() && !options.faults.any() &&
                    options.fault_rules == nullptr;
  config.limits = options.limits;
  config.congestion = options.congestion;
  opened.adapter = std::make_shared<GuardedAdapter>(std::move(config));
  opened.driver = std::make_unique<Driver>(
      opened.adapter, std::move(link),
      DriverOptions{options.capture_path, options.faults, options.fault_rules, options.max_mtu});
  error = opened.driver->start();
  if (!error.ok()) return error;
  device = std::move(opened);
  return {};
}

}  // namespace softhca
