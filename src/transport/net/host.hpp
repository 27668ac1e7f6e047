// The side of the meeting that holds it.
#pragma once

#include <list>
#include <map>
#include <span>
#include <vector>

#include "transport/net/meeting.hpp"
#include "transport/net/visitor.hpp"

namespace shunt::net {

/// One thread serves all connections and waits for none of them in particular.
class Host {
 public:
  /// Whoever comes to the listeners is heard once meet() is called.
  Host(const MeetingOptions& options, std::span<const std::byte> card, std::vector<Descriptor> listeners);

  /// By rank. Every rank that has proven itself learns of an Error that this throws.
  std::vector<Meeting::Guest> meet();

 private:
  struct Delivery {
    Visitor& guest;
    std::size_t num_sent = 0;
    bool has_sent_end = false;
    bool is_confirmed = false;
  };

  void gather();
  void wait_for_visitors();
  [[nodiscard]] Deadline next_alarm() const;
  [[nodiscard]] std::vector<bool> present_ranks() const;
  [[nodiscard]] std::vector<std::int32_t> missing_ranks() const;
  void expect_majority() const;
  void accept_all_from(const Descriptor& listener);
  bool drop_oldest_stranger();
  void drop_the_gone();

  void hear(Visitor& visitor);
  void report_refusal(const Visitor& visitor);
  [[nodiscard]] std::string describe_refusals() const;
  void admit(Visitor& guest);
  void hear_frame(Visitor& guest, Frame frame);

  std::vector<Meeting::Guest> introduce_all();
  void hand_out(const Bytes& roster);
  void expect_confirmation(Delivery& delivery);
  void take_leave(FrameKind word, std::span<const std::byte> body);

  const MeetingOptions& options_;
  std::span<const std::byte> card_;
  Deadline deadline_;
  std::vector<Descriptor> listeners_;
  std::list<Visitor> visitors_;          // oldest first
  std::map<RankId, Deadline> departed_;  // had come; may come again until then
  int num_refusals_ = 0;
};

}  // namespace shunt::net
