// One HCA, sans-IO: it takes packets, work requests and the time, and gives packets, completions
// and deadlines.
//
// Deterministic: the same calls give the same bytes on any machine. It has no lock: whoever shares
// it between threads guards it (driver/guarded_adapter.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/memory_table.hpp"
#include "memory/watched_range.hpp"
#include "queue/completion.hpp"
#include "queue/completion_outlet.hpp"
#include "queue/work_request.hpp"
#include "queue/work_source.hpp"
#include "transport/attributes.hpp"
#include "transport/congestion.hpp"
#include "transport/counters.hpp"
#include "transport/look_ahead.hpp"
#include "transport/outgoing_packet.hpp"
#include "vocabulary/call_time.hpp"
#include "vocabulary/observer.hpp"
#include "vocabulary/route.hpp"
#include "vocabulary/status.hpp"
#include "wire/icrc.hpp"
#include "wire/packet.hpp"
#include "wire/short_packet.hpp"

namespace softhca {

class LocalPath;
struct LentPayload;
class LocalPaths;

// Limits: what is reported can be allocated, one more is refused.
struct Limits {
  std::uint32_t max_pd = 16384;
  std::uint32_t max_mr = 65536;
  std::uint32_t max_mw = 65536;
  std::uint32_t max_fast_reg_page_list_len = 65536;
  std::uint32_t max_cq = 16384;
  std::uint32_t max_cqe = 1u << 20;
  std::uint32_t max_qp = 16384;
  std::uint32_t max_qp_wr = 32768;
  std::uint32_t max_sge = 32;
  std::uint32_t max_inline_data = 512;
  std::uint32_t max_srq = 4096;
  std::uint32_t max_srq_wr = 32768;
  std::uint32_t max_srq_sge = 32;
  std::uint32_t max_ah = 16384;
  std::uint32_t max_xrcd = 1024;
  std::uint8_t max_qp_rd_atom = 16;
  std::uint8_t max_qp_init_rd_atom = 16;
  std::uint32_t max_mcast_grp = 1024;
  std::uint32_t max_mcast_qp_attach = 64;
  std::uint64_t max_mr_size = ~std::uint64_t{0};
  std::uint64_t max_dm_size = 64u << 20;  // Of all allocations together.
  std::uint32_t max_msg_sz = 1u << 31;
  std::uint16_t max_pkeys = 1;
  std::uint16_t gid_table_len = 16;
};

// Device memory is aligned to this power of two whatever is asked for.
inline constexpr std::uint32_t kMaxDmLogAlign = 12;

struct AdapterConfig {
  std::uint64_t node_guid = 0;
  std::uint64_t seed = 1;  // QPNs, keys.
  std::vector<Gid> gids;   // Table from index 0; these are also "our" addresses.
  std::vector<std::uint16_t> udp_source_ports;  // Entropy; a QP uses one of them throughout.
  std::uint8_t active_mtu = 5;                  // Mtu code of the port.
  IcrcLevel icrc_level = IcrcLevel::SOLVE;
  std::vector<std::uint16_t> pkeys = {0xffff};
  bool port_active = true;  // The port's link, to begin with.
  bool retry_early = true;  // Probe for lost tails before the ACK timer runs out.
  // Messages that nobody waits for are acknowledged together: one that is not signaled asks for no
  // acknowledgement, and gets one a little later.
  bool lazy_acks = false;
  bool windows_2a = false;  // Type 2 windows are 2A instead of 2B.
  bool shortcut = false;    // Connected queue pairs of one adapter exchange packets as values.
  CongestionSettings congestion;
  Limits limits;
};

// What receive() made of a packet; for captures.
struct ReceiveReport {
  std::uint32_t qpn = 0;  // Local QP, 0 if none.
  bool has_wr = false;
  std::uint64_t wr_id = 0;
  const char* verdict = "";  // Why it was dropped; empty if it was taken.
  bool numbered = false;  // Only another IPv4 identification than the supposed explains its ICRC.
};

struct AsyncEvent {
  EventType type = EventType::QP_FATAL;
  std::uint32_t object = 0;  // QPN, CQ, SRQ handle or port, by the event's type.
};

// An armed CQ got the completion that it was armed for.
struct CompletionEvent {
  std::uint32_t cq = 0;
  std::uint32_t channel = 0;  // What the CQ was attached to.
};

struct PortAttr {
  std::uint8_t state = 4;  // ACTIVE.
  std::uint8_t max_mtu = 5;
  std::uint8_t active_mtu = 5;
  std::uint32_t gid_tbl_len = 16;
  std::uint16_t pkey_tbl_len = 1;
  std::uint32_t max_msg_sz = 1u << 31;
  std::uint32_t bad_pkey_cntr = 0;
  std::uint32_t qkey_viol_cntr = 0;
};

struct SrqAttr {
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 1;
  std::uint32_t srq_limit = 0;
};

struct MrInfo {
  std::uint32_t handle = 0;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;  // 0 without a remote access right.
};

struct KeyInfo {
  std::uint32_t key = 0;
  KeyState state = KeyState::INVALID;
};

// Handles are small numbers per kind, never 0; a QP's handle is its QPN.
class Adapter {
 public:
  explicit Adapter(AdapterConfig config);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  // --- packets and time
  // -------------------------------------------------------------------------------------------
  // The work request of ours that a response is about, for captures; asked before receive(), which
  // may complete it. False: it is no response, or about nothing that is under way.
  bool answered_request(ByteView datagram, std::uint64_t& wr_id) const;
  // Changes next_packet, next_deadline_ns, poll_cq and next_event.
  // `more`: the next call will be this one again, and until the last of them `datagram` stays.
  ReceiveReport receive(const Route& route, ByteView datagram, std::uint64_t now_ns,
                        bool more = false);
  // Builds the next packet to send into `buffer` (at least kMaxDatagramBytes). False: nothing to
  // send until a post, a receive or an advance.
  // `patient`: acknowledgements alone are held back, for a request of their queue pair that they
  // can go with, or until release_acks(). Few enough for a peer to do without them for a while.
  bool next_packet(ByteSpan buffer, OutgoingPacket& out, std::uint64_t now_ns,
                   bool patient = false);
  // Whether it matters what IP headers say beside the addresses: of UD's receives, and under
  // congestion control. Any thread may ask at any time.
  bool heeds_fields() const;
  // Whoever sent the last packet comes next too, if it has more. Without this they take turns.
  void keep_turn();
  bool holds_acks() const;
  void release_acks();
  // Has everything acknowledged that has been executed, by queue pairs that are about to go.
  void settle_debts(std::uint64_t now_ns);
  // Calls may say kAskClock for the time if they stand behind a begin_call() of their own: the
  // clock is read if the time matters.
  void use_clock(Clock& clock);
  void begin_call();
  // When advance() has something to do; kNever if not. Ask again after any other call.
  std::uint64_t next_deadline_ns() const;
  // `unread`: there may be packets that have come and were not received yet. No time-out is
  // believed before them, nor before those on the ways inside this host, unless they never end.
  void advance(std::uint64_t now_ns, bool unread = false);

  // --- adapters that share memory with this one, itself included (exchange.cpp)
  // Moves packets on their way to them, for as long as a caller may be kept waiting. True: there
  // are more.
  bool exchange(std::uint64_t now_ns);
  // A packet from one of them. False: its payload could not be read, and it was dropped.
  bool receive_local(const Route& route, const Packet& packet, std::uint64_t now_ns);
  // The same for short messages, one after the other: how many were taken. receive_local() has to
  // have the next.
  std::size_t receive_short(const Route& route, std::span<const ShortPacket> packets,
                            std::uint64_t now_ns);
  // The same for one whose payload lies at this place of that memory, where it is fetched. False:
  // receive_local() has to have it.
  bool receive_lent(const Route& route, const ShortPacket& packet, AddressSpace& from_space,
                    std::uint64_t now_ns);
  bool receive_lent(const Route& route, const WholeAnswer& packet, AddressSpace& from_space,
                    std::uint64_t now_ns);
  // Where their payloads go when it is their turn, behind `ahead`, to one queue pair, where they
  // are noted. Null: that is not so simple, or they will be refused.
  std::uint8_t* place_ahead(const Route& route, const ShortPacket& packet, LookAhead& ahead);
  std::uint8_t* place_ahead(const Route& route, const WholeAnswer& packet, LookAhead& ahead);
  // The same for a request for a READ. False: receive_local() has to have it.
  bool receive_read(const Route& route, const ShortPacket& packet, std::uint64_t now_ns);
  // The same for an acknowledgement. False: receive_local() has to have it.
  bool receive_acknowledge(const Route& route, const PlainAcknowledge& packet,
                           std::uint64_t now_ns);
  // The ways to other adapters; null: none. They outlive the adapter's last call.
  void set_paths(LocalPaths* paths);
  // A way has come to its end.
  void forget_path(const LocalPath& path);
  // One of our packets was refused so.
  void payload_unreadable(const LentPayload& payload, std::uint64_t now_ns);
  // Whether there are packets for the wire, or events since told(), for whoever looks after both;
  // or something that fetching from the ways inside this host would bring.
  bool wants_driver() const;
  void told();

  // --- device
  // ------------------------------------------------------------------------------------------------------
  const AdapterConfig& config() const;
  // UDP source port of what a queue pair sends.
  std::uint16_t source_port(std::uint32_t qpn) const;
  PortAttr query_port() const;
  const Counters& counters() const;
  Result<Counters> qp_counters(std::uint32_t qpn) const;
  // Takes the oldest event; false if there is none. Of the same asynchronous event of the same
  // object one waits at a time, the latest; those of an object go with it.
  bool next_event(AsyncEvent& event);
  bool has_event() const;
  bool next_completion_event(CompletionEvent& event);
  // Grows with every completion and every asynchronous event: whoever simulates many adapters sees
  // by it that a program has something to look at.
  std::uint64_t activity() const;
  // Tells `observer` of everything from now on; null: nobody. It must not call the adapter.
  void observe(Observer* observer);

  // The port's link came up or went down, which raises PORT_ACTIVE or PORT_ERR. A port that is down
  // takes no packet, and loses those it sends.
  void set_port_active(bool active);
  // The Mtu code of the port from now on. Connected queue pairs keep their path MTU; what does not
  // fit any more is lost on its way.
  void set_active_mtu(std::uint8_t active_mtu);
  // Replaces an entry of the GID table, which raises GID_CHANGE; zero empties it. Queue pairs and
  // address handles keep the GID that they were made with.
  Status set_gid(std::uint32_t index, const Gid& gid);
  // The device is lost for good: DEVICE_FATAL, every queue pair to ERR, the port down. What is left
  // to do is to close it (IBTA Vol 1, 11.6.3.4).
  void fail_device();

  // --- protection domains, memory, address handles, XRC domains
  // -----------------------------------------------------
  Result<std::uint32_t> alloc_pd();
  Status dealloc_pd(std::uint32_t pd);
  // Registers [address, address + length) of this process. `iova` is what remote and local keys
  // address; the same as `address` unless the caller says otherwise, 0 with ZERO_BASED.
  Result<MrInfo> reg_mr(std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                        std::uint64_t iova, std::uint32_t access);
  // The same for memory that is watched: accesses fail where `watched` says that it is gone.
  Result<MrInfo> reg_watched_mr(std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                                std::uint64_t iova, std::uint32_t access,
                                std::shared_ptr<const WatchedRange> watched);
  // The same for memory of any address space.
  Result<MrInfo> reg_region(const RegionRequest& request);
  Status dereg_mr(std::uint32_t mr);
  // Changes the parts that `flags` (ReregMrFlags) name; keeps the region as it was if refused.
  Result<MrInfo> rereg_mr(std::uint32_t mr, std::uint32_t flags, const RegionRequest& wanted);
  // Fast registration (fast_registration.cpp).
  Result<MrInfo> alloc_mr(std::uint32_t pd, MrType type, std::uint32_t max_sg);
  Status map_mr_sg(std::uint32_t mr, const FastMapping& mapping);
  // Windows (windows.cpp). The handle is the first key.
  Result<std::uint32_t> alloc_mw(std::uint32_t pd, MwType type);
  Status dealloc_mw(std::uint32_t mw);
  // Posts a bind of a window of type 1; returns the key that the window will then have.
  Result<std::uint32_t> bind_mw(std::uint32_t qpn, std::uint32_t mw, const BindInfo& info,
                                std::uint64_t wr_id, std::uint32_t send_flags,
                                std::uint64_t now_ns);
  // The present key of a region or window, and its state.
  Result<KeyInfo> query_key(std::uint32_t handle) const;
  // Device memory, which has no address: copied in and out, or registered with ZERO_BASED.
  Result<std::uint32_t> alloc_dm(std::uint64_t length, std::uint32_t log_align_req);
  Status free_dm(std::uint32_t dm);
  Status memcpy_to_dm(std::uint32_t dm, std::uint64_t offset, ByteView from);
  Status memcpy_from_dm(std::uint32_t dm, std::uint64_t offset, ByteSpan to);
  Result<MrInfo> reg_dm_mr(std::uint32_t pd, std::uint32_t dm, std::uint64_t offset,
                           std::uint64_t length, std::uint32_t access);
  Result<std::uint32_t> create_ah(std::uint32_t pd, const AhAttr& attr);
  Result<AhAttr> query_ah(std::uint32_t ah) const;
  Status destroy_ah(std::uint32_t ah);
  Result<std::uint32_t> alloc_xrcd();
  Status dealloc_xrcd(std::uint32_t xrcd);

  // --- completion queues
  // ----------------------------------------------------------------------------------------------
  // Gives at least `cqe` entries. Without `timestamps` that of each completion is 0, and nobody has
  // to read the clock for it.
  Result<std::uint32_t> create_cq(std::uint32_t cqe, bool timestamps = true);
  Status destroy_cq(std::uint32_t cq);
  Result<std::uint32_t> cq_capacity(std::uint32_t cq) const;
  Result<bool> cq_overflowed(std::uint32_t cq) const;
  // Number of completions taken into `out`, or a refusal.
  Result<std::size_t> poll_cq(std::uint32_t cq, std::span<Completion> out);
  // It overflows now, as if one completion too many had come.
  Status overflow_cq(std::uint32_t cq);
  // Where events of the CQ go, in the caller's numbers; 0: nobody wants them.
  Status attach_cq(std::uint32_t cq, std::uint32_t channel);
  Status resize_cq(std::uint32_t cq, std::uint32_t cqe);
  // An armed CQ holds its event back until `count` completions came or `period_ns` went by since
  // the first of them; errors do not wait. A period of 0 holds nothing back.
  Status moderate_cq(std::uint32_t cq, std::uint32_t count, std::uint64_t period_ns);
  // Arms the CQ: `flags` are 1 (solicited) or 2 (next completion), with 4 to report missed events.
  // The value is 1 if completions wait and their event may have been missed (only with flag 4),
  // else 0.
  Result<int> req_notify_cq(std::uint32_t cq, std::uint32_t flags);

  // --- shared receive queues
  // ---------------------------------------------------------------------------------------------
  // `xrcd` and `cq` are 0 for a basic SRQ.
  Result<std::uint32_t> create_srq(std::uint32_t pd, const SrqAttr& attr, std::uint32_t xrcd,
                                   std::uint32_t cq);
  Status modify_srq(std::uint32_t srq, const SrqAttr& attr, std::uint32_t mask);
  Result<SrqAttr> query_srq(std::uint32_t srq) const;
  Status destroy_srq(std::uint32_t srq);
  // SRQ number that XRCETH carries.
  Result<std::uint32_t> srq_number(std::uint32_t srq) const;

  // --- queue pairs
  // -------------------------------------------------------------------------------------------------------
  // `init.cap` becomes what was really given.
  Result<std::uint32_t> create_qp(QpInit& init);
  Status modify_qp(std::uint32_t qpn, const QpAttr& attr, std::uint32_t mask, std::uint64_t now_ns);
  Result<QpAttr> query_qp(std::uint32_t qpn, QpInit& init) const;
  // Bits a second that congestion control lets it send at; 0: as it can.
  Result<std::uint64_t> qp_rate(std::uint32_t qpn) const;
  // What its queues and responder resources hold.
  Result<QpLoad> qp_load(std::uint32_t qpn) const;
  Status destroy_qp(std::uint32_t qpn);
  // Tokens (Completion::cqe) of a queue pair's completions that wait in a CQ.
  std::vector<std::uint64_t> waiting_cqes(std::uint32_t qpn) const;
  // The same of all completions that wait in one CQ; none, if there is no such.
  std::vector<std::uint64_t> waiting_cqes_in(std::uint32_t cq) const;
  // The CQ that an XRC SRQ completes on; 0 of others.
  std::uint32_t srq_cq(std::uint32_t srq) const;
  // The token of the receive that a message to the queue pair is filling; 0 if there is none.
  std::uint64_t filling_cqe(std::uint32_t qpn) const;
  // False: it was attached already, and is once.
  Result<bool> attach_mcast(std::uint32_t qpn, const Gid& gid);
  Status detach_mcast(std::uint32_t qpn, const Gid& gid);

  // Post in order; `posted` says how many were taken before a refusal. `cqes`, one for each request
  // or none, come back as Completion::cqe.
  Status post_send(std::uint32_t qpn, std::span<const SendWr* const> wrs, std::size_t& posted,
                   std::uint64_t now_ns, std::span<const std::uint64_t> cqes = {});
  Status post_recv(std::uint32_t qpn, std::span<const RecvWr* const> wrs, std::size_t& posted,
                   std::uint64_t now_ns, std::span<const std::uint64_t> cqes = {});
  Status post_srq_recv(std::uint32_t srq, std::span<const RecvWr* const> wrs, std::size_t& posted,
                       std::uint64_t now_ns, std::span<const std::uint64_t> cqes = {});

  // --- queues in shared memory (fed_queues.cpp)
  // -----------------------------------------------------------------------------------------
  // From now on work requests come from there, and posting them otherwise is refused; completions
  // go there and are not polled. An XRC initiator cannot be fed: its requests name an SRQ, for
  // which such queues have no place.
  Status feed_qp(std::uint32_t qpn, std::shared_ptr<SendSource> sends,
                 std::shared_ptr<ReceiveSource> receives);
  Status feed_srq(std::uint32_t srq, std::shared_ptr<ReceiveSource> receives);
  Status lead_cq(std::uint32_t cq, std::shared_ptr<CompletionOutlet> outlet);
  // Takes the send requests that wait. One that cannot be posted completes in error.
  Status ring_doorbell(std::uint32_t qpn, std::uint64_t now_ns);

 private:
  bool exchange_some(std::uint64_t now_ns);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace softhca
