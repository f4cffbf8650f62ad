// From an address to a running adapter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "driver/driver.hpp"
#include "driver/guarded_adapter.hpp"

namespace softhca {

struct OpenOptions {
  std::string address;       // See UdpOptions::address.
  std::string capture_path;  // Empty: no capture.
  FaultSettings faults;
  std::shared_ptr<SharedFaults> fault_rules;  // Null: none.
  std::size_t source_port_count = 4;
  std::uint64_t seed = 0;  // 0: the system's entropy.
  IcrcLevel icrc_level = IcrcLevel::SOLVE;
  std::uint8_t max_mtu = 5;  // Mtu code; the port's is smaller where the interface carries less.
  bool windows_2a = false;   // See AdapterConfig.
  bool retry_early = true;   // As well.
  bool trains = true;        // See UdpOptions.
  bool shortcut = true;      // What stays on this host need not go through a socket.
  CongestionSettings congestion;
  Limits limits;
};

struct OpenedDevice {
  std::shared_ptr<GuardedAdapter> adapter;
  std::unique_ptr<Driver> driver;
  LocalAddress local;
};

// Configuration of an adapter behind `link`: its GID, source ports, MTU and a GUID made of its
// address.
AdapterConfig adapter_config(const UdpLink& link);

// Errors as UdpLink::open(), and those of the capture's file.
DriverError open_device(const OpenOptions& options, OpenedDevice& device);

}  // namespace softhca
