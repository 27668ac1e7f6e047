// A plan's flows as streams of segments, one per token and far node.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/segments.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

inline RankId peer_of(const OutFlow& flow) { return flow.forwarder; }
inline RankId peer_of(const InFlow& flow) { return flow.source; }

/// Flows that this rank sends.
template <class Flow>
class SendingFlows {
 public:
  void start(std::span<const Flow> flows, Streams& streams) {
    for (const Flow& flow : flows)
      if (!flow.tokens.empty()) sends_.push_back({&flow, SegmentWriter(streams, peer_of(flow))});
  }

  /// Sends what there is room for: fill(flow, i, segment) writes the segment of the flow's i-th token, which has
  /// bytes_of(flow, i). True if something moved.
  template <class BytesOf, class Fill>
  bool pump(const BytesOf& bytes_of, const Fill& fill) {
    bool moved = false;
    for (Send& send : sends_) {
      for (; send.next < send.flow->tokens.size(); ++send.next, moved = true) {
        std::byte* const segment = send.writer.open(bytes_of(*send.flow, send.next));
        if (!segment) break;
        fill(*send.flow, send.next, segment);
        send.writer.commit();
      }
      if (send.next == send.flow->tokens.size() && !send.writer.is_finished()) moved |= send.writer.finish();
    }
    return moved;
  }

  [[nodiscard]] bool is_finished() const {
    return std::all_of(sends_.begin(), sends_.end(), [](const Send& send) { return send.writer.is_finished(); });
  }
  /// Peers of flows that are not wholly on their way.
  void append_awaited(std::vector<RankId>& peers) const {
    for (const Send& send : sends_)
      if (!send.writer.is_finished()) peers.push_back(send.writer.peer());
  }

 private:
  struct Send {
    const Flow* flow;
    SegmentWriter writer;
    std::size_t next = 0;
  };
  std::vector<Send> sends_;
};

/// Flows that this rank receives.
template <class Flow>
class ReceivingFlows {
 public:
  void start(std::span<const Flow> flows, Streams& streams) {
    for (const Flow& flow : flows)
      if (!flow.tokens.empty()) receives_.push_back({&flow, SegmentReader(streams, peer_of(flow))});
  }

  [[nodiscard]] std::size_t size() const { return receives_.size(); }
  [[nodiscard]] const Flow& flow(std::size_t i) const { return *receives_[i].flow; }
  [[nodiscard]] std::size_t num_read(std::size_t i) const { return receives_[i].next; }

  /// The next token's segment of one flow; nullptr while it has not arrived.
  const std::byte* front(std::size_t i, std::size_t bytes) { return receives_[i].reader.front(bytes); }
  void pop(std::size_t i) {
    receives_[i].reader.pop();
    ++receives_[i].next;
  }

  /// Takes all that has arrived: take(flow, i, segment). True if something moved.
  template <class BytesOf, class Take>
  bool pump(const BytesOf& bytes_of, const Take& take) {
    bool moved = false;
    for (std::size_t i = 0; i < receives_.size(); ++i)
      for (Receive& receive = receives_[i]; receive.next < receive.flow->tokens.size(); moved = true) {
        const std::byte* const segment = front(i, bytes_of(*receive.flow, receive.next));
        if (!segment) break;
        take(*receive.flow, receive.next, segment);
        pop(i);
      }
    return moved;
  }

  /// Sees each stream to its end; true once all have ended.
  bool finish() {
    return std::all_of(receives_.begin(), receives_.end(), [](Receive& receive) {
      return receive.next == receive.flow->tokens.size() && receive.reader.finish();
    });
  }

  /// Peers of flows that have not wholly arrived.
  void append_awaited(std::vector<RankId>& peers) const {
    for (const Receive& receive : receives_)
      if (!receive.reader.is_all_here()) peers.push_back(receive.reader.peer());
  }

 private:
  struct Receive {
    const Flow* flow;
    SegmentReader reader;
    std::size_t next = 0;
  };
  std::vector<Receive> receives_;
};

/// Both directions of one operation.
template <class SentFlow, class ReceivedFlow>
struct FlowTraffic {
  SendingFlows<SentFlow> sending;
  ReceivingFlows<ReceivedFlow> receiving;

  /// True once all is on its way and all has been read to its end.
  bool finish() { return receiving.finish() && sending.is_finished(); }
  /// Peers without which it can't go on.
  [[nodiscard]] std::vector<RankId> awaited() const {
    std::vector<RankId> peers;
    sending.append_awaited(peers);
    receiving.append_awaited(peers);
    return peers;
  }
};

}  // namespace shunt
