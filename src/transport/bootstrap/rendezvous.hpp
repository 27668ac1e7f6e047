// Ranks find each other at a coordinator and exchange bytes through it. The coordinator is rank 0 or, after a fault,
// the first of the survivors. Each rank proves that it knows the job's token.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "shunt/bootstrap.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::bootstrap {

struct RendezvousOptions {
  RankId rank{};
  std::int32_t size = 0;
  net::Endpoint endpoint{};  ///< of the coordinator
  /// The coordinator listens at the first free one of that many ports; the others try all of them.
  std::uint16_t num_ports = 1;
  std::string token{};
  /// Tells the worlds of one job apart: its n-th world is made at its n-th rendezvous.
  std::uint32_t number = 0;
  std::chrono::milliseconds limit{0};  ///< for all ranks to connect
  RankId coordinator{0};
  /// Survivors only: true for ranks that are not waited for. Called repeatedly while waiting. None: all are waited for.
  std::function<bool(RankId)> is_gone = nullptr;
};

/// For ranks of one machine: a local socket whose name follows from the job's. The job's name is the token.
RendezvousOptions on_one_machine(RankId rank, std::int32_t size, const std::string& job,
                                 std::chrono::milliseconds limit);

using Contributions = std::map<RankId, net::Bytes>;
net::Bytes encode(const Contributions& contributions);
/// Empty unless it names different ranks below `size`, in order.
std::optional<Contributions> decode_contributions(std::span<const std::byte> bytes, std::int32_t size);

/// The members are numbered anew, in the order of their ranks. Rounds are numbered, and a participant that lost its
/// connection requests the last result again.
class Rendezvous : public Bootstrap {
 public:
  /// The members' original ranks, ascending: those of the first round.
  [[nodiscard]] const std::vector<RankId>& members() const { return members_; }

  [[nodiscard]] RankId rank() const override;
  [[nodiscard]] std::int32_t size() const override { return static_cast<std::int32_t>(members_.size()); }
  std::vector<Bytes> all_gather(std::span<const std::byte> mine, std::chrono::milliseconds limit) override;
  [[nodiscard]] std::string secret() const override { return options_.token; }
  [[nodiscard]] std::string address() const override { return address_; }

  /// The first round, whose limit is that of the options.
  void find_members();

 protected:
  explicit Rendezvous(const RendezvousOptions& options) : options_(options) {}

  /// One round: the members' contributions.
  virtual Contributions exchange(std::span<const std::byte> mine) = 0;

  RendezvousOptions options_;
  std::string address_;
  std::uint32_t round_ = 0;
  std::chrono::milliseconds limit_{0};  // of this round
  std::vector<RankId> members_;         // none before the first round is over

 private:
  Contributions next_round(std::span<const std::byte> mine, std::chrono::milliseconds limit);
};

/// The two sides. The coordinator listens from this call on, at the endpoint or at these listeners; its destructor
/// gives participants a second to read the last result. Every authenticated rank receives an Error that it throws.
/// Throws Error(system) where the ports are taken.
std::unique_ptr<Rendezvous> make_coordinator(const RendezvousOptions& options, std::vector<Descriptor> listeners);
std::unique_ptr<Rendezvous> make_participant(const RendezvousOptions& options);

/// Collective, blocking. Throws as Bootstrap::from_environment does; Error(invalid_argument) for a token that is empty
/// or that the coordinator does not accept, and for an endpoint whose names do not exist; Error(minority) for too few
/// survivors. All ranks that the coordinator has accepted throw the same; connections that it does not accept delay
/// none.
std::unique_ptr<Rendezvous> join_rendezvous(const RendezvousOptions& options, std::vector<Descriptor> listeners = {});

// How long the coordinator waits for a participant that has lost its connection, and such a participant for it. A
// process that lives reconnects at once.
constexpr std::chrono::seconds kReconnectLimit{3};

/// How long results may take to be sent once all have contributed.
std::chrono::milliseconds result_limit(std::chrono::milliseconds limit);
/// "1, 2, 3", and the number of further ones where there are many.
std::string list_some(const std::vector<std::int32_t>& ranks);

}  // namespace shunt::bootstrap
