#include "transport/bootstrap/rendezvous.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt::bootstrap {
namespace {

void check(const RendezvousOptions& options) {
  if (options.token.empty()) fail(ErrorCode::invalid_argument, "ranks join by a token, and it is empty");
  if (options.rank.value < 0 || options.rank.value >= options.size)
    fail(ErrorCode::invalid_argument, "rank {} can't join {} ranks", options.rank, options.size);
  if (options.size > 1 && options.endpoint.port == 0 && !options.endpoint.address.starts_with('@'))
    fail(ErrorCode::invalid_argument, "rank {} can't join the others at port 0", options.rank);
}

}  // namespace

RendezvousOptions on_one_machine(RankId rank, std::int32_t size, const std::string& job,
                                 std::chrono::milliseconds limit) {
  // Not the token itself: any process can read the names of sockets.
  const std::uint64_t name = Hasher().add_all<char>(std::span<const char>(job)).value();
  return {.rank = rank,
          .size = size,
          .endpoint = {.address = fmt::format("@shunt/{:016x}", name)},
          .token = job,
          .limit = limit};
}

net::Bytes encode(const Contributions& contributions) {
  net::Bytes encoded;
  for (const auto& [rank, bytes] : contributions)
    net::append(encoded, net::pack(rank.value, static_cast<std::uint32_t>(bytes.size()), bytes));
  return encoded;
}

std::optional<Contributions> decode_contributions(std::span<const std::byte> bytes, std::int32_t size) {
  net::ByteReader reader(bytes);
  Contributions contributions;
  while (reader.ok() && !reader.at_end()) {
    const RankId rank(reader.take<std::int32_t>());
    const auto theirs = reader.take(reader.take<std::uint32_t>());
    const bool is_in_order = contributions.empty() || contributions.rbegin()->first < rank;
    if (!rank.valid() || rank.value >= size || !is_in_order) return std::nullopt;
    contributions.emplace(rank, net::Bytes(theirs.begin(), theirs.end()));
  }
  if (!reader.ok()) return std::nullopt;
  return contributions;
}

std::unique_ptr<Rendezvous> join_rendezvous(const RendezvousOptions& options, std::vector<Descriptor> listeners) {
  check(options);
  auto rendezvous =
      options.rank == options.coordinator ? make_coordinator(options, std::move(listeners)) : make_participant(options);
  rendezvous->find_members();
  return rendezvous;
}

Contributions Rendezvous::next_round(std::span<const std::byte> mine, std::chrono::milliseconds limit) {
  ++round_;
  limit_ = limit;
  return exchange(mine);
}

void Rendezvous::find_members() {
  std::vector<RankId> found;
  for (const auto& [rank, bytes] : next_round({}, options_.limit)) found.push_back(rank);
  members_ = std::move(found);
}

RankId Rendezvous::rank() const {
  return RankId(static_cast<std::size_t>(std::ranges::find(members_, options_.rank) - members_.begin()));
}

std::vector<Bootstrap::Bytes> Rendezvous::all_gather(std::span<const std::byte> mine, std::chrono::milliseconds limit) {
  if (mine.size() > kMaxBytes)
    fail(ErrorCode::invalid_argument, "rank {} contributes {} bytes, at most {} are allowed", options_.rank,
         mine.size(), kMaxBytes);
  std::vector<Bytes> gathered;
  for (auto& [rank, bytes] : next_round(mine, limit)) gathered.push_back(std::move(bytes));
  if (gathered.size() != members_.size())
    fail(ErrorCode::mismatch, "rank {} was given the bytes of {} ranks, not of {}", options_.rank, gathered.size(),
         members_.size());
  return gathered;
}

std::chrono::milliseconds result_limit(std::chrono::milliseconds limit) {
  return std::max(limit, std::chrono::milliseconds(5000));
}

std::string list_some(const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kMost = 16;
  const auto some = std::span(ranks).first(std::min(kMost, ranks.size()));
  return fmt::format("{}{}", fmt::join(some, ", "),
                     ranks.size() > kMost ? fmt::format(" and {} more", ranks.size() - kMost) : "");
}

}  // namespace shunt::bootstrap
