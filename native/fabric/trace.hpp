// What happened in a run: records in pages, of which the oldest go beyond a limit.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"

namespace softhca {

enum class RecordKind : std::uint32_t {
  SENT,        // bytes: the datagram. a: its link.
  DELIVERED,   // To the host; text: why it was dropped there, if it was.
  LOST,        // On the way; text: why.
  FAULT,       // A rule struck; text: its name. b: its number.
  POST,        // a: wr_id, b: opcode; number: length.
  COMPLETION,  // a: wr_id, b: status, number: byte_len.
  STATE,       // a: from, and rights above the lowest 8 bits; b: to; number: READs at once.
  WRITE,       // a: address, number: key; bytes: what was there before, and then what is.
  EVENT,       // b: asynchronous event.
  NOTE,        // text: what a program or the fabric says.
  CREATED,     // A queue pair. a: its PD, b: its type; number: room for sends; bytes: for receives,
               // and the PD that these are of.
  KEY,  // number: the key, a: address, b: access, qpn: who alone may use it; bytes: length, PD and
        // whether it is a window. No bytes: it stands for nothing any more.
};

// No padding: the bytes of a record are what is hashed.
struct Record {
  std::uint64_t at_ns = 0;
  std::uint64_t packet = 0;  // 0: none.
  std::uint64_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t number = 0;
  RecordKind kind = RecordKind::NOTE;
  std::uint32_t host = 0;  // Beginning with 1; 0: none.
  std::uint32_t qpn = 0;
  std::uint32_t text = 0;   // 0: none.
  std::uint32_t bytes = 0;  // How many, in the page.
  std::uint32_t at = 0;     // Where they begin.
};
static_assert(sizeof(Record) == 56);

class Trace {
 public:
  struct Page {
    std::vector<Record> records;
    std::vector<std::uint8_t> bytes;
    std::vector<Route> routes;  // Of SENT records, in their order.
  };

  explicit Trace(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  bool on() const { return most_bytes_ != 0; }
  void add(Record record, ByteView bytes = {}, ByteView more = {});
  void add_sent(Record record, const Route& route, ByteView datagram);
  std::uint32_t word(std::string_view text);
  const std::string& text(std::uint32_t word) const { return words_[word]; }
  std::size_t word_count() const { return words_.size(); }

  const std::deque<Page>& pages() const { return pages_; }
  std::uint64_t count() const { return count_; }  // All that there ever were.
  std::uint64_t forgotten() const { return forgotten_; }
  // Of every record since the beginning, forgotten ones included.
  std::uint64_t digest() const;

 private:
  Page& page();
  void seal(const Page& page);

  const std::size_t most_bytes_;
  std::deque<Page> pages_;
  std::vector<std::string> words_{""};
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::uint64_t count_ = 0;
  std::uint64_t forgotten_ = 0;
  std::uint64_t sealed_digest_ = 0;
};

}  // namespace softhca
