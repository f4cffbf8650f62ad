// Elements of mapped queues, between the layout of Linux's rxe (rdma_user_rxe.h; ib_uverbs_wc of
// ib_user_verbs.h) and work requests. Everything in an element is a program's word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "queue/completion.hpp"
#include "queue/work_request.hpp"
#include "vocabulary/bytes.hpp"

namespace softhca {

// Before the scatter/gather list or the inline data.
inline constexpr std::size_t kSendElementHeader = 208;
inline constexpr std::size_t kReceiveElementHeader = 40;
inline constexpr std::size_t kSgeBytes = 16;
inline constexpr std::size_t kCompletionBytes = 48;

// `element` must stay as it is until the request was posted, for inline data is read from it.
// What is no request at all comes out as one that is refused.
void decode_send(ByteView element, bool datagram, SendWr& wr);
// A list that is longer than `max_sge` entries is empty.
void decode_receive(ByteView element, std::uint32_t max_sge, RecvWr& wr);
void encode_completion(const Completion& completion, std::uint8_t* to);

}  // namespace softhca
