// A program in C++ that uses an adapter: what a queue pair needs, and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "driver/open_device.hpp"

namespace softhca::bench {

// What the two callers tell each other; it goes through a pipe as it is.
struct Card {
  Gid gid;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
};

// Ends the program with a message: there is nobody who could go on.
[[noreturn]] void give_up(const std::string& why);

class Caller {
 public:
  // Opens an adapter on a free loopback address.
  Caller(std::size_t bytes, bool udp_only);

  Card card() const;
  void connect(const Card& peer);

  void post_send(const SendWr& wr);
  void post_recv(std::uint32_t count);
  // Takes what is there, up to the size of `out`; gives up on a completion in error.
  std::size_t poll(std::uint32_t cq, std::span<Completion> out);

  SendWr send_of_everything(bool signaled) const;

  std::uint32_t send_cq = 0;
  std::uint32_t recv_cq = 0;

 private:
  template <class Function>
  auto call(const char* what, Function&& function);
  void modify(const QpAttr& attr, std::uint32_t mask);

  const bool udp_only_;
  OpenedDevice device_;
  std::vector<std::uint8_t> source_;
  std::vector<std::uint8_t> target_;
  MrInfo source_mr_;
  MrInfo target_mr_;
  RecvWr recv_;
  std::uint32_t qpn_ = 0;
};

}  // namespace softhca::bench
