// An adapter of another process of this host and user, or another one of this process: packets go
// to it through a ring, and payloads that are long stay where they are until it fetches them.
//
// A payload that is left in place is taken back before its memory may change hands: a queue pair
// that fails, a region that is deregistered. Who fetches claims the record first, so that either
// the claim or the recall wins.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "adapter/adapter.hpp"
#include "link/file_descriptor.hpp"
#include "neighbour/greeting.hpp"
#include "neighbour/lent_memories.hpp"
#include "neighbour/mapped_buffers.hpp"
#include "neighbour/peer_memory.hpp"
#include "neighbour/piece_on_the_way.hpp"
#include "neighbour/shared_buffers.hpp"
#include "neighbour/shared_ring.hpp"
#include "neighbour/shared_segment.hpp"
#include "transport/local_path.hpp"

namespace softhca {

// The adapter of this side is locked during every call.
class Neighbour final : public LocalPath {
 public:
  struct Meeting {
    std::unique_ptr<SharedSegment> segment;
    bool made_here = false;
    Gid own;
    Gid peer;
    pid_t pid = 0;
    FileDescriptor socket;
    FileDescriptor bell;        // Wakes the peer, if it has given us one.
    FileDescriptor process;     // A pidfd, if there is such a thing.
    bool is_ordered = false;    // This process passes the barriers of those that go to sleep.
    bool is_near = false;       // It shares our PID namespace: what it lends is waited for.
    bool readable = false;      // Its memory.
    bool counts_alike = false;  // Processes have the same numbers there.
    std::uint64_t (*clock_ns)() = nullptr;
  };
  explicit Neighbour(Meeting meeting);
  ~Neighbour() override;

  const Gid& gid() const { return met_.peer; }
  int socket() const { return met_.socket.get(); }
  int process() const { return met_.process.get(); }

  bool has_room() override;
  bool can_fetch(std::span<const MemoryPiece> pieces) override;
  bool delivers_at_once() const override { return false; }
  std::size_t send_short(std::span<const ShortPacket> packets) override;
  bool lend(const ShortPacket& packet, std::uint32_t qpn, std::uint32_t lkey) override;
  bool send_answer(const WholeAnswer& packet, std::uint32_t qpn, std::uint32_t rkey) override;
  bool send_acknowledge(const PlainAcknowledge& packet) override;
  void send(const LocalPacket& packet) override;
  void give_up_if_still() override;
  void recall(std::uint32_t qpn, LentPayloads which);
  bool revoke(std::uint32_t key_index);

  // Lets the adapter have what has come. True: something had.
  bool fetch(Adapter& adapter, std::uint64_t now_ns, int most);
  bool has_record() const { return reader_.has_record(); }
  bool has_lent() const { return !lent_.empty(); }
  // The peer could not read some of what was lent to it.
  bool has_refusal() const {
    return has_lent() && writer_.unreadable() != unreadable_found_ && writer_.has_news();
  }
  // There may be room again for what has_room() refused.
  bool has_new_room() const { return waits_for_room_ && writer_.has_news(); }
  bool has_work() const {
    if (has_record()) return true;
    reader_.expect();
    return has_lent() || !unreadable_.empty() || has_new_room() || is_given_up();
  }
  // From now on the peer wakes us, if barrier_for_all() follows, or a fence on its side.
  void wish_to_be_woken();
  // No barrier follows from now on.
  void cannot_order() { reader_.shared().reader_orders.store(0); }
  void awake() { reader_.shared().reader_asleep.store(0, std::memory_order_relaxed); }
  // Messages about buffers, some of them: a peer may say more while it is heard. False: it has
  // gone, or is given up for what no neighbour says.
  bool hear(int most = 16);
  // Found out while sending, or hearing it: the next fetch() of all leaves it.
  bool is_given_up() const { return writer_.is_broken(); }
  bool is_broken() const { return writer_.is_broken() || reader_.is_broken(); }
  // Whether the peer will read what is sent to it: one that did not wait for our answer will not.
  bool has_agreed() {
    // It says so before anything else, and what wakes is for who sleeps to hear.
    if (!agreed_) static_cast<void>(hear(1));
    return agreed_;
  }
  bool peer_is_gone() const;
  bool greeted_here() const { return met_.made_here; }
  // Forgets its descriptors, which somebody else has closed; nothing more is sent.
  void lose();
  void abandon();

 private:
  // A payload that was left in place, until the peer is done with it.
  struct Lent {
    std::uint64_t end = 0;  // How many records the peer is through with then.
    SharedSlot* slot = nullptr;
    std::uint32_t ready = 0;  // The slot's word while nobody is at it.
    LentPayload what;
    std::uint32_t key = 0;                 // Of its first piece, an index.
    std::vector<std::uint32_t> more_keys;  // Of the others.
    bool taken_back = false;
    bool is_over = false;  // Its queue pair has failed, or begins anew.

    bool is_granted_by(std::uint32_t index) const;
    RecordState state() const { return static_cast<RecordState>(slot->word.load() & 0xff); }
  };
  bool read_short(const RingRecord& record, ShortPacket& packet) const;
  bool read_first_short(const RingRecord& record);
  bool read_next_short(const RingRecord& record, ShortPacket& packet) const;
  int take_short(Adapter& adapter, RingPlace behind, std::uint64_t now_ns, int most, bool& more);
  bool take_acknowledge(Adapter& adapter, const RingRecord& record, std::uint64_t now_ns) const;
  void take(Adapter& adapter, const RingRecord& record, std::uint64_t now_ns);
  // The headers of a packet, and room for an ICRC.
  static constexpr std::size_t kMaxHeaderBytes = 64;
  static_assert(kLocalBroughtBytes + kMaxHeaderBytes <= kMaxRecordBytes);
  using HeaderBytes = std::array<std::uint8_t, kMaxHeaderBytes + kIcrcBytes>;
  bool decode_incoming(const HeaderBytes& header, const RingRecord& record);
  static constexpr std::uint32_t kMaxPackets = kLocalPacketBytes / 256;
  static bool copy_header(const RingRecord& record, HeaderBytes& header);
  // Payload bytes after which a call to fetch() comes to an end.
  static constexpr std::uint64_t kFetchBytes = 512 * 1024;
  // A packet whose payload is left in place, if it is one of those that are taken in few steps.
  struct LentPackets {
    bool is_message = false;
    bool is_answer = false;
    ShortPacket message;
    WholeAnswer answer;

    bool is_plain() const { return is_message || is_answer; }
    bool decode(const HeaderBytes& header, const RingRecord& record) {
      is_message = decode_short(header.data(), record.header_bytes, message);
      is_answer = !is_message && decode_answer(header.data(), record.header_bytes, answer);
      return is_plain();
    }
  };
  void take_claimed(Adapter& adapter, const HeaderBytes& header, const RingRecord& record,
                    LentPackets& packets, bool located, std::uint64_t now_ns);
  // Payloads of several records that are fetched in one system call (neighbour_together.cpp).
  struct Claimed {
    RingRecord record;
    RingPlace behind;
    HeaderBytes header;
    LentPackets packets;
    MemoryPiece piece;
  };
  int take_together(Adapter& adapter, const RingRecord& first, std::uint64_t now_ns, int most);
  bool is_in_peers_memory(const RingRecord& record, MemoryPiece& piece);
  std::size_t claim_some(Adapter& adapter, std::size_t most);
  void take_lent(Adapter& adapter, const HeaderBytes& header, const RingRecord& record,
                 std::uint64_t now_ns);
  template <class LentPacket>
  bool take_plainly(Adapter& adapter, LentPacket& packet, std::uint32_t psns, std::uint64_t now_ns);
  bool locate(const std::uint8_t* from, std::size_t count);
  bool locate_known(const std::uint8_t* from, std::size_t count);
  void settle() {
    if (!lent_.empty()) settle_lent();
  }
  void settle_lent();
  // What one call waits for a peer that is fetching what is to be taken back.
  struct Wait {
    std::uint64_t until_ns = 0;  // 0: it has not begun.
  };
  bool take_back(Lent& lent, Wait& wait);
  bool is_over(Wait& wait) const;
  // The buffer that has all of these bytes, if the peer has it too or is told of it now.
  const SharedBuffer* common_buffer(std::uint64_t address, std::uint64_t length);
  PieceOnTheWay way_to(const MemoryPiece& piece);
  bool announce(const SharedBuffer& buffer);
  bool announce(const ForeignMemory& memory);
  void forget_buffers();
  void forget_memories();
  void publish(const RingRecord& record, RingPlace behind);
  template <class Encode>
  bool lend_piece(const MemoryPiece& piece, std::size_t header_bytes, std::uint32_t psns,
                  const LentPayload& what, Encode encode);
  void publish_lent(const RingRecord& record, RingPlace behind, Lent lent);
  void wake();

  Meeting met_;
  RingWriter writer_;
  RingReader reader_;
  bool waits_for_room_ = false;
  bool owes_refusal_ = false;  // The peer has not heard yet that something was unreadable.
  bool heard_ = false;  // The peer has said something since we last did: it may wait for an answer.
  std::uint64_t consumed_when_asked_ = UINT64_MAX;  // Whether the peer stands still.
  const bool own_process_;                          // The peer is an adapter of this process.
  bool agreed_;
  AddressSpace& own_memory_;
  PeerMemory memory_;
  MappedBuffers mapped_;
  LentMemories memories_;
  std::deque<Lent> lent_;
  std::vector<LentPayload> unreadable_;
  std::uint32_t unreadable_found_ = 0;  // Of those that the peer has counted.
  Route from_peer_;
  // Short messages that are being taken, and where each ends.
  static constexpr std::size_t kShortAtOnce = 16;
  std::array<ShortPacket, kShortAtOnce> short_;
  bool knows_short_ = false;  // The first of them is one.
  std::uint64_t first_of_short_ = 0;
  std::array<RingPlace, kShortAtOnce> behind_short_;
  std::array<Claimed, kMostReads> claimed_;
  Packet incoming_;  // The packet that is being taken, and its pieces.
  std::vector<MemoryPiece> pieces_;
  std::vector<SharedBuffer> announced_;  // What the peer may have mapped.
  std::vector<ForeignMemory> announced_memories_;
  std::uint64_t removals_seen_ = 0;
  SharedBuffer lent_buffer_;         // The common one that was found last.
  std::uint64_t fetched_bytes_ = 0;  // Of the call to fetch() under way.
};

}  // namespace softhca
