#include "fabric/trace.hpp"

#include <algorithm>

#include "vocabulary/random.hpp"
#include "wire/crc32.hpp"

namespace softhca {
namespace {

constexpr std::size_t kPageBytes = 1u << 20;

std::size_t size_of(const Trace::Page& page) {
  return page.records.size() * sizeof(Record) + page.bytes.size() +
         page.routes.size() * sizeof(Route);
}

std::uint64_t mixed(std::uint64_t digest, const Trace::Page& page) {
  const ByteView records{reinterpret_cast<const std::uint8_t*>(page.records.data()),
                         page.records.size() * sizeof(Record)};
  const std::uint64_t crcs = std::uint64_t{crc32(0, records)} << 32 |
                             crc32(static_cast<std::uint32_t>(digest), page.bytes);
  return Random(digest ^ crcs).next() ^ page.records.size();
}

}  // namespace

Trace::Page& Trace::page() {
  if (pages_.empty() || size_of(pages_.back()) >= kPageBytes) {
    if (!pages_.empty()) sealed_digest_ = mixed(sealed_digest_, pages_.back());
    pages_.emplace_back();
    while (pages_.size() > 1 && pages_.size() * kPageBytes > most_bytes_) {
      forgotten_ += pages_.front().records.size();
      pages_.pop_front();
    }
  }
  return pages_.back();
}

void Trace::add(Record record, ByteView bytes, ByteView more) {
  if (!on()) return;
  Page& to = page();
  record.at = static_cast<std::uint32_t>(to.bytes.size());
  record.bytes = static_cast<std::uint32_t>(bytes.size() + more.size());
  to.bytes.insert(to.bytes.end(), bytes.begin(), bytes.end());
  to.bytes.insert(to.bytes.end(), more.begin(), more.end());
  to.records.push_back(record);
  ++count_;
}

void Trace::add_sent(Record record, const Route& route, ByteView datagram) {
  if (!on()) return;
  add(record, datagram);
  pages_.back().routes.push_back(route);
}

std::uint32_t Trace::word(std::string_view text) {
  if (text.empty()) return 0;
  const auto [found, is_new] =
      numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(words_.size()));
  if (is_new) words_.emplace_back(text);
  return found->second;
}

std::uint64_t Trace::digest() const {
  return pages_.empty() ? sealed_digest_ : mixed(sealed_digest_, pages_.back());
}

}  // namespace softhca
