// Driving: what one thread at a time does, in the room. It hears peers, moves operations, and looks after who is
// silent.
#include <algorithm>
#include <cstring>

#include "core/fail.hpp"
#include "engine/progress.hpp"
#include "engine/signals.hpp"

namespace shunt {
namespace {

// Messages, and slices, that are taken before operations go on: peers that never pause must not keep them waiting.
constexpr int kMostAtATime = 1024;

std::string name_of(const Operation& operation) {
  return fmt::format("{} #{}", to_string(operation.announcement().kind), operation.key().sequence);
}

std::string list(const std::vector<RankId>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

bool Progress::advance() {
  {
    const std::lock_guard lock(queue_mutex_);
    for (const auto& operation : issued_) {
      (void)arrivals_.of(operation->key());
      live_.push_back(operation);
    }
    issued_.clear();
  }
  // Before receive(): what a peer sent before it left must be read before its absence counts.
  std::vector<bool> had_left;
  for (std::int32_t rank = 0; rank < transport_->size(); ++rank) had_left.push_back(transport_->has_left(RankId(rank)));

  bool moved = receive();
  const bool all_heard = all_heard_;
  if (const auto fault = transport_->fault()) {
    moved |= !live_.empty();
    fail_all(*fault);
    return moved;
  }
  nap_ = kPatience;
  for (const auto& operation : live_) {
    if (!step(*operation)) continue;
    moved = true;
    receive();  // its run may have taken long, and peers' mailboxes and ours are small
  }
  if (all_heard) check_departures(had_left);
  if (const auto now = Clock::now(); now - last_patience_check_ >= kPatience) {
    last_patience_check_ = now;
    check_patience();
  }
  return moved;
}

bool Progress::receive() {
  {
    const std::lock_guard lock(queue_mutex_);
    flush_backlog();
  }
  const bool received = receive_messages();
  return receive_slices() || received;
}

bool Progress::receive_messages() {
  Message message;
  int count = 0;
  for (; count < kMostAtATime && transport_->poll(message); ++count) guarded(nullptr, [&] { take(message); });
  all_heard_ = count < kMostAtATime;
  return count > 0;
}

void Progress::take(const Message& message) {
  const RankId from = message.from;
  const RankId self = transport_->rank();
  SignalRecord record{};
  if (message.bytes != sizeof(record))
    fail_because_of(from, "rank {} sent rank {} a message of {} bytes", from, self, message.bytes);
  std::memcpy(&record, message.data.data(), sizeof(record));
  const bool is_far = transport_->host(from) != transport_->host(self);
  if (is_far != (record.signal == Signal::grant) || record.signal > Signal::grant)
    fail_because_of(from, "rank {} sent rank {} signal {}, which is not for it", from, self,
                    static_cast<int>(record.signal));
  const Operation::Key key{record.engine, record.sequence};
  Arrivals::Peer* const peer = arrivals_.hear(from, key);
  if (!peer)
    fail_because_of(from, "rank {} told rank {} of more than {} operations that are not under way there", from, self,
                    Arrivals::kMostPending);
  if (record.signal == Signal::done) {
    peer->done = true;
    return;
  }
  peer->announced = Announcement{record.kind, record.plan_hash, record.offset, record.bytes, record.second_offset};
  if (!is_far) return;
  if (!peer->grant(record.offset, record.bytes))
    fail_because_of(from, "rank {} granted rank {} room for {} slices of {} bytes", from, self, record.offset,
                    record.bytes);
  arrivals_.settle(key);
}

bool Progress::receive_slices() {
  SliceLink* link = transport_->slices();
  int count = 0;
  for (InSlice slice; link && count < kMostAtATime && link->poll(slice); ++count) {
    const auto operation = std::find_if(live_.begin(), live_.end(), [&](const auto& live) {
      return live->streams_ && live->key() == Operation::Key{slice.tag.engine, slice.tag.sequence};
    });
    guarded(nullptr, [&] {
      if (operation == live_.end())
        fail_because_of(slice.from, "rank {} sent rank {} a slice of an operation that is not under way", slice.from,
                        transport_->rank());
      (*operation)->streams_->arrive(std::move(slice));
    });
  }
  return count > 0;
}

bool Progress::step(Operation& operation) {
  bool moved = false;
  if (!operation.is_announced_ && !announce_if_ready(operation)) return false;
  if (!operation.has_begun_) {
    if (!all_announced(operation) || !begin(operation)) return false;
    moved = true;
  }
  if (!operation.has_worked_) moved |= work(operation);
  if (!operation.has_worked_ || !all_done(operation) || !far_partners_match(operation)) return moved;
  return finish(operation) || moved;
}

bool Progress::announce_if_ready(Operation& operation) {
  bool is_ready = false;
  if (!guarded(&operation, [&] { is_ready = operation.is_ready(); }) || !is_ready) return false;
  const std::lock_guard lock(queue_mutex_);
  announce(operation);
  return true;
}

bool Progress::all_announced(const Operation& operation) {
  const auto& peers = arrivals_.of(operation.key());
  const Group& group = operation.group();
  bool all = true;
  for (std::size_t rank = 0; rank < group.members.size(); ++rank) {
    if (!group.is_near(rank) || RankId(rank) == group.self) continue;
    const auto& announced = peers[group.members[rank].index()].announced;
    if (announced && !matches(operation, RankId(rank), *announced)) return false;
    all &= announced.has_value();
  }
  return all;
}

bool Progress::all_done(const Operation& operation) { return awaited_peers(operation).empty(); }

bool Progress::matches(const Operation& operation, RankId peer, const Announcement& theirs) {
  const Announcement& ours = operation.announcement();
  if (theirs.kind == ours.kind && theirs.plan_hash == ours.plan_hash) return true;
  const RankId self = operation.group().self;
  const auto text =
      theirs.kind != ours.kind
          ? fmt::format("rank {} called {} where rank {} called {} (call #{})", peer, to_string(theirs.kind), self,
                        to_string(ours.kind), operation.key().sequence)
          : fmt::format(
                "rank {} and rank {} called {} #{} with different plans, or plans of engines with different options",
                peer, self, to_string(ours.kind), operation.key().sequence);
  transport_->report(ErrorCode::mismatch, operation.group().members[peer.index()], text);
  return false;
}

template <class Part>
bool Progress::guarded(const Operation* operation, const Part& part) {
  try {
    part();
    return true;
  } catch (const PeerError& error) {
    transport_->report(error.code(), error.culprit(), error.what());
  } catch (const Error& error) {
    transport_->report(error.code(), transport_->rank(), error.what());
  } catch (const std::exception& error) {
    transport_->report(ErrorCode::peer_failed, transport_->rank(),
                       fmt::format("rank {} failed in {}: {}", transport_->rank(),
                                   operation ? name_of(*operation) : "what it received", error.what()));
  }
  return false;
}

bool Progress::begin(Operation& operation) {
  const auto& peers = arrivals_.of(operation.key());
  const Group& group = operation.group();
  std::vector<Announcement> announcements(group.members.size());
  announcements[group.self.index()] = operation.announcement();
  for (std::size_t rank = 0; rank < group.members.size(); ++rank)
    if (group.is_near(rank) && RankId(rank) != group.self)
      announcements[rank] = *peers[group.members[rank].index()].announced;
  welcome_far(operation);
  operation.has_begun_ = guarded(&operation, [&] { operation.begin(announcements); });
  return operation.has_begun_;
}

void Progress::welcome_far(Operation& operation) {
  auto& partners = operation.far_partners_;
  partners = operation.far_partners();
  if (partners.empty()) return;
  std::sort(partners.begin(), partners.end());
  partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
  operation.streams_ = std::make_unique<Streams>(
      *transport_->slices(), operation.group(), operation.key(), arrivals_.of(operation.key()),
      StreamLimits{limits_.slice_bytes, limits_.depth_for(partners.size())}, num_bytes_sent_,
      [this, &operation](RankId member, std::uint32_t num_slices, std::size_t slice_bytes) {
        SignalRecord record = signal_record(operation, Signal::grant);
        record.offset = num_slices;
        record.bytes = slice_bytes;
        const std::lock_guard lock(queue_mutex_);
        post(member, record);
      });
  for (const RankId partner : partners) operation.streams_->welcome(partner);
}

bool Progress::far_partners_match(const Operation& operation) {
  const auto& peers = arrivals_.of(operation.key());
  return std::all_of(operation.far_partners_.begin(), operation.far_partners_.end(), [&](RankId partner) {
    const auto& announced = peers[operation.group().member(partner).index()].announced;
    return !announced || matches(operation, partner, *announced);
  });
}

bool Progress::work(Operation& operation) {
  if (!far_partners_match(operation)) return false;
  Work made = Work::idle;
  if (!guarded(&operation, [&] { made = operation.work(); })) return false;
  if (made == Work::soon) nap_ = kSoon;
  if (made != Work::finished) return made == Work::moved;
  operation.has_worked_ = true;
  const std::lock_guard lock(queue_mutex_);
  for_near_peers(operation, [&](RankId peer) { post(peer, signal_record(operation, Signal::done)); });
  return true;
}

bool Progress::finish(Operation& operation) {
  bool finished = false;
  if (!guarded(&operation, [&] { finished = operation.finish(); }) || !finished) return false;
  if (operation.streams_) operation.streams_->close();
  std::vector<RankId> far_partners;
  for (const RankId partner : operation.far_partners_) far_partners.push_back(operation.group().member(partner));
  if (const auto debtor = arrivals_.complete(operation.key(), far_partners))
    transport_->report(ErrorCode::mismatch, *debtor,
                       fmt::format("rank {} owes rank {} the grants of more than {} operations", *debtor,
                                   transport_->rank(), Arrivals::kMostPending));
  complete(operation, std::nullopt);
  return true;
}

void Progress::complete(Operation& operation, std::optional<Error> error) {
  operation.error_ = std::move(error);
  // Release: partner of the acquire in Operation::done(); covers the output.
  operation.state_.store(operation.error_ ? Operation::State::failed : Operation::State::complete,
                         std::memory_order_release);
  --num_pending_;
  transport_->wake();
}

void Progress::fail_all(const Fault& fault) {
  for (const auto& operation : live_) {
    failed_.push_back(operation);
    operation->give_up();
    complete(*operation, Error(fault.code, fmt::format("{}; rank {} was in {}", fault.text, transport_->rank(),
                                                       name_of(*operation))));
  }
}

std::vector<RankId> Progress::awaited_peers(const Operation& operation) {
  std::vector<RankId> awaited;
  const auto& peers = arrivals_.of(operation.key());
  for_near_peers(operation, [&](RankId peer) {
    const auto& state = peers[peer.index()];
    if (operation.has_worked_ ? !state.done : !operation.has_begun_ && !state.announced) awaited.push_back(peer);
  });
  if (!operation.has_begun_) return awaited;
  for (const RankId partner : operation.far_partners_)
    if (const RankId peer = operation.group().member(partner); !peers[peer.index()].announced) awaited.push_back(peer);
  if (!operation.has_worked_)
    for (const RankId rank : operation.awaited_far()) awaited.push_back(operation.group().member(rank));
  std::sort(awaited.begin(), awaited.end());
  awaited.erase(std::unique(awaited.begin(), awaited.end()), awaited.end());
  return awaited;
}

void Progress::check_departures(const std::vector<bool>& had_left) {
  for (const auto& operation : live_) {
    if (operation->done()) continue;
    for (const RankId peer : awaited_peers(*operation))
      if (had_left[peer.index()])
        transport_->report(ErrorCode::peer_lost, peer,
                           fmt::format("rank {} has left the world, but rank {} still waits for it in {}", peer,
                                       transport_->rank(), name_of(*operation)));
  }
}

void Progress::check_patience() {
  for (const auto& operation : live_) {
    if (operation->done()) continue;
    const auto awaited = awaited_peers(*operation);
    for (const RankId peer : awaited) transport_->suspect(peer);
    if (operation->is_announced_ && !awaited.empty() && Clock::now() - operation->announced_at_ > operation->deadline_)
      transport_->report(ErrorCode::deadline, awaited.front(),
                         fmt::format("rank {}: {} took longer than {} ms; {}", transport_->rank(), name_of(*operation),
                                     operation->deadline_.count(), describe_pending()));
  }
}

std::string Progress::describe_pending() {
  std::vector<std::string> pending;
  for (const auto& operation : live_) {
    if (operation->done()) continue;
    if (!operation->is_announced_)
      pending.push_back(fmt::format("{} waits for its own stream", name_of(*operation)));
    else
      pending.push_back(fmt::format("{} waits for {} to {}", name_of(*operation), list(awaited_peers(*operation)),
                                    operation->has_begun_ ? "finish" : "call it"));
  }
  return fmt::format("pending: {}", fmt::join(pending, "; "));
}

}  // namespace shunt
