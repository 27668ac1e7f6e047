// What a link keeps of its peers.
#pragma once

#include "transport/far/link.hpp"

namespace shunt::far {

struct Link::Peer {
  RankId rank;
  std::uint64_t session_there = 0;
  std::uint64_t session_here = 0;
  // The link's thread only.
  bool is_known = false;  // it has said something
  bool is_accused = false;
  bool is_answering = false;  // an `alive` is on its way
  bool has_parted = false;    // it has heard that this rank left, and all that came before
  bool is_let_go = false;     // and was told that this rank has

  std::atomic<bool> is_broken{false};
  std::atomic<bool> is_silent{false};
  std::atomic<bool> has_asked{false};      // it has reached this rank
  std::atomic<bool> awaits_answer{false};  // from this rank; whoever resets it answers
  std::atomic<bool> has_answered{false};   // this rank has reached it
  std::atomic<bool> has_left{false};       // it says so, but slices that it sent before may still be on their way
  std::atomic<std::uint64_t> num_slices_to{0};
  std::atomic<std::uint64_t> num_slices_from{0};
  std::atomic<std::uint64_t> num_slices_until_left{0};
  std::atomic<std::int64_t> num_expected{0};  // slices from it that have not arrived
  std::atomic<std::size_t> most_slice_bytes{0};
  std::atomic<std::int32_t> num_unread{0};  // messages to it
  std::int32_t num_polled = 0;              // messages from it, since it was last told
  std::deque<Message> messages;             // from it; guarded by the link's mutex
  std::mutex mutex;                         // guards ping_timer
  PingTimer ping_timer;
};

}  // namespace shunt::far
