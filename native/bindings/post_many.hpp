// Posting many work requests without an object for each.
#pragma once

#include "bindings/post.hpp"

namespace softhca {

// `wrs` is a sequence of work requests, one that is posted once for each number of `wr_ids`, or the
// bytes of records. A refusal is raised with the index that it is about, which is how many were
// posted.
void post_send_many(Hca& hca, PostedTo to, nb::handle wrs, nb::handle wr_ids);
void post_recv_many(Hca& hca, PostedTo to, nb::handle wrs, nb::handle wr_ids);

}  // namespace softhca
