#include "transport/net/meeting.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "transport/net/frames.hpp"
#include "transport/net/guest.hpp"
#include "transport/net/host.hpp"
#include "transport/net/proof.hpp"
#include "transport/net/tcp.hpp"

namespace shunt::net {
namespace {

void check(const MeetingOptions& options, std::span<const std::byte> card) {
  if (options.token.empty()) fail(ErrorCode::invalid_argument, "ranks meet by a token, and it is empty");
  if (options.rank.value < 0 || options.rank.value >= options.size)
    fail(ErrorCode::invalid_argument, "rank {} can't meet {} ranks", options.rank, options.size);
  if (card.size() > kMaxCardBytes)
    fail(ErrorCode::invalid_argument, "the card of rank {} has {} bytes, at most {} are allowed", options.rank,
         card.size(), kMaxCardBytes);
  if (options.size > 1 && options.place.port == 0)
    fail(ErrorCode::invalid_argument, "rank {} can't meet the others at port 0", options.rank);
}

}  // namespace

std::vector<RankId> Meeting::former_ranks() const {
  std::vector<RankId> ranks;
  for (const Guest& guest : guests_) ranks.push_back(guest.rank);
  return ranks;
}

RankId Meeting::rank_of(RankId former) const {
  const auto found = std::ranges::find(guests_, former, &Guest::rank);
  SHUNT_CHECK(found != guests_.end());
  return RankId(static_cast<std::size_t>(found - guests_.begin()));
}

SessionId Meeting::session(RankId from, RankId to) const {
  Bytes text;
  append(text, bytes_of("shunt session:"));
  append(text, guests_[from.index()].nonce);
  append(text, guests_[to.index()].nonce);
  append(text, from.value);
  append(text, to.value);
  const Digest digest = hmac(bytes_of(token_), text);
  const auto id = ByteReader(digest).take<SessionId>();
  return id == 0 ? 1 : id;
}

std::string Meeting::name() const {
  Bytes text;
  append(text, bytes_of("shunt meeting:"));
  for (const Guest& guest : guests_) append(text, guest.nonce);
  std::string name;
  for (const std::byte byte : hmac(bytes_of(token_), text))
    name += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return name;
}

Meeting meet(const MeetingOptions& options, std::span<const std::byte> card) {
  check(options, card);
  if (options.size == 1)
    return {options.token, {{options.rank, draw_nonce(), options.place.address, {card.begin(), card.end()}}}};
  return {options.token, options.rank == options.host ? Host(options, card, listen_at(options.place)).meet()
                                                      : net::Guest(options, card).meet()};
}

}  // namespace shunt::net
