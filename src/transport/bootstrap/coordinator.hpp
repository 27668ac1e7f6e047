// The side of a rendezvous that gathers and hands out.
#pragma once

#include <list>
#include <map>

#include "transport/bootstrap/connection.hpp"
#include "transport/bootstrap/rendezvous.hpp"

namespace shunt::bootstrap {

/// Waits for no connection in particular, and works inside exchange() only. An unauthenticated connection costs one of
/// at most 256 descriptors, or as many as there are ranks, for at most five seconds.
class Coordinator final : public Side {
 public:
  /// Listens from now on. Throws Error(system) where the ports are taken.
  Coordinator(const RendezvousOptions& options, std::vector<Descriptor> listeners);
  /// Participants can still read the last result; a second at most.
  ~Coordinator() override;

  /// Every rank that has proven itself learns of an Error that this throws.
  std::vector<Contribution> exchange(std::span<const std::byte> mine, std::chrono::milliseconds limit) override;
  [[nodiscard]] std::string address() const override { return address_; }

 private:
  /// One connection. It sends a claim and gets the coordinator's; sends a proof, and gets the coordinator's; from then
  /// on it speaks for a rank.
  struct Peer {
    Claim own_claim;      // on this connection
    Deadline patience;    // to prove itself
    Connection unproven;  // moves into the frames
    std::optional<Claim> claim{};
    std::optional<FrameConnection> frames{};
    bool is_refused = false;
    std::optional<net::Bytes> contribution{};  // of this round
    std::optional<Deadline> doubted_until{};   // another says that it is this rank; by then this one has to answer
    std::size_t num_handed_out = 0;            // bytes of the result
    bool has_result = false;
    bool has_asked_again = false;  // for the last result; once on a connection

    [[nodiscard]] bool is_proven() const { return frames.has_value(); }
    [[nodiscard]] RankId rank() const { return RankId(claim->rank); }
    [[nodiscard]] Connection& connection() { return frames ? frames->connection() : unproven; }
    [[nodiscard]] const Connection& connection() const { return frames ? frames->connection() : unproven; }
    void shake_hands(const std::string& token);
  };

  void gather();
  void wait_for_peers();
  [[nodiscard]] Deadline next_alarm() const;
  [[nodiscard]] bool is_member(RankId rank) const;
  [[nodiscard]] std::vector<bool> present_ranks() const;
  [[nodiscard]] std::vector<std::int32_t> missing_ranks() const;
  void expect_majority() const;
  void accept_all_from(const Descriptor& listener);
  bool drop_oldest_unproven();
  void drop_the_gone();

  void hear(Peer& peer);
  void report_refusal(const Peer& peer);
  [[nodiscard]] std::string describe_refusals() const;
  void admit(Peer& peer);
  void hear_frame(Peer& peer, const Frame& frame);

  std::vector<Contribution> take_contributions(std::span<const std::byte> mine);
  void hand_out();
  bool hand_out_to(Peer& peer, std::span<const std::byte> result);
  void say_farewell(std::optional<FrameKind> word, std::span<const std::byte> body);

  RendezvousOptions options_;
  std::vector<Descriptor> listeners_;
  std::string address_;
  std::chrono::milliseconds limit_{0};  // of this round
  Deadline deadline_;
  std::uint32_t round_ = 0;
  std::vector<RankId> members_;          // none before the first round is over
  net::Bytes result_;                    // of the last round, for who has lost it on the way
  std::list<Peer> peers_;                // oldest first
  std::map<RankId, Deadline> departed_;  // had come; may come again until then
  int num_refusals_ = 0;
};

}  // namespace shunt::bootstrap
