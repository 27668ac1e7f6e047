// Driving, by one thread at a time, which holds driver_mutex_: receives signals and slices, steps operations, checks
// deadlines and silent peers.
#include <algorithm>
#include <cstring>
#include <set>

#include "core/fail.hpp"
#include "engine/progress.hpp"

namespace shunt {
namespace {

// Messages, and slices, received before operations are stepped: a stream of them must not starve operations.
constexpr int kMostAtATime = 1024;
// The part of a deadline by which a rank that waits for far peers alone waits longer.
constexpr int kFarGrace = 10;

std::string list(const std::vector<RankId>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// Throws PeerError if a member announced another operation in this place.
void check_match(const Operation& operation, RankId member, const Announcement& theirs) {
  const Announcement& ours = operation.announcement();
  if (theirs.kind == ours.kind && theirs.plan_hash == ours.plan_hash) return;
  const RankId peer = operation.group().rank_of(member), self = operation.group().self;
  if (theirs.kind != ours.kind)
    fail_because_of(member, "rank {} called {} where rank {} called {} (call #{})", peer, to_string(theirs.kind), self,
                    to_string(ours.kind), operation.key().sequence);
  const char* const what = ours.kind == OpKind::all_reduce
                               ? "tensors of different sizes"
                               : "different plans, or plans of engines with different options";
  fail_because_of(member, "rank {} and rank {} called {} #{} with {}", peer, self, to_string(ours.kind),
                  operation.key().sequence, what);
}

}  // namespace

bool Progress::advance() {
  {
    const std::lock_guard lock(queue_mutex_);
    for (auto& operation : issued_) start(std::move(operation));
    issued_.clear();
  }
  bool moved = receive();
  if (const auto fault = transport_->fault()) {
    moved |= num_pending_ > 0;
    fail_all(*fault);
    return moved;
  }
  sleep_limit_ = kCheckInterval;
  moved |= step_queued();
  const auto now = Clock::now();
  const bool is_check_due = now - last_check_ >= kCheckInterval;
  if (!moved || is_check_due) moved |= check_departures();
  if (is_check_due) {
    last_check_ = now;
    check_deadlines();
  }
  return moved;
}

void Progress::start(std::shared_ptr<Operation> operation) {
  enqueue(operation);
  Entry& entry = table_.start(std::move(operation));
  const Group& group = entry.operation->group();
  group.for_near_peers([&](RankId rank) {
    const RankId member = group.member(rank);
    entry.num_undone += entry.peers[member].is_done ? 0 : 1;
    add_partner(entry, member);
  });
}

void Progress::add_partner(Entry& entry, RankId member) {
  OperationTable::Peer& peer = entry.peers[member];
  peer.is_partner = true;
  // A member whose announcement does not match stays unannounced, so that the operation goes no further.
  const bool matches =
      peer.announced && guarded(nullptr, [&] { check_match(*entry.operation, member, *peer.announced); });
  if (!matches) ++entry.num_unannounced;
}

void Progress::enqueue(const std::shared_ptr<Operation>& operation) {
  if (!std::exchange(operation->is_queued_, true)) queue_.push_back(operation);
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
  while (count < kMostAtATime && transport_->poll(message)) {
    guarded(nullptr, [&] { take(message); });
    ++count;
  }
  return count > 0;
}

void Progress::take(const Message& message) {
  const RankId from = message.from;
  const RankId self = transport_->rank();
  SignalRecord record{};
  if (message.bytes != sizeof(record))
    fail_because_of(from, "rank {} sent rank {} a message of {} bytes", from, self, message.bytes);
  std::memcpy(&record, message.data.data(), sizeof(record));
  if (is_far(from) != (record.signal == Signal::grant) || record.signal > Signal::grant)
    fail_because_of(from, "rank {} sent rank {} signal {}, which is not for it", from, self,
                    static_cast<int>(record.signal));
  const Operation::Key key{record.engine, record.sequence};
  Entry* const entry = table_.entry_for(from, key);
  if (!entry)
    fail_because_of(from, "rank {} signalled to rank {} more than {} operations that are not in progress there", from,
                    self, OperationTable::kMostKept);
  OperationTable::Peer& peer = entry->peers[from];
  const bool is_awaited = entry->operation && peer.is_partner;
  if (is_awaited) enqueue(entry->operation);
  if (record.signal == Signal::done) {
    if (!std::exchange(peer.is_done, true) && is_awaited) --entry->num_undone;
    return;
  }
  const Announcement announced{record.kind, record.plan_hash, record.offset, record.bytes, record.second_offset};
  if (is_awaited) check_match(*entry->operation, from, announced);
  if (is_far(from)) {
    if (!peer.channel) peer.channel = std::make_unique<SliceChannel>();
    if (!peer.channel->take_grant(record.offset, record.bytes))
      fail_because_of(from, "rank {} granted rank {} room for {} slices of {} bytes", from, self, record.offset,
                      record.bytes);
  }
  if (!std::exchange(peer.announced, announced) && is_awaited) --entry->num_unannounced;
  if (is_far(from)) table_.settle(key);
}

bool Progress::receive_slices() {
  SliceLink* link = transport_->slices();
  int count = 0;
  for (InSlice slice; link && count < kMostAtATime && link->poll(slice); ++count)
    guarded(nullptr, [&] {
      const RankId from = slice.from;
      Entry* const entry = table_.find({slice.tag.engine, slice.tag.sequence});
      if (!entry || !entry->operation->far_)
        fail_because_of(from, "rank {} sent rank {} a slice of an operation that is not under way", from,
                        transport_->rank());
      const auto peer = entry->peers.find(from);
      if (peer == entry->peers.end() || !peer->second.channel || !peer->second.channel->is_open())
        fail_because_of(from, "rank {} sent a slice of an operation in which it takes no part", from);
      peer->second.channel->arrive(std::move(slice));
      enqueue(entry->operation);
    });
  return count > 0;
}

bool Progress::step_queued() {
  bool moved = false;
  for (const auto& operation : std::exchange(queue_, {})) {
    operation->is_queued_ = false;
    Entry* const entry = table_.find(operation->key());
    if (!entry || !step(*entry)) continue;
    moved = true;
    receive();  // the step may have taken long, and mailboxes are small
  }
  return moved;
}

bool Progress::step(Entry& entry) {
  Operation& operation = *entry.operation;
  if (operation.phase() == Phase::issued && !announce_if_ready(operation)) {
    enqueue(entry.operation);
    return false;
  }
  bool moved = false;
  if (operation.phase() == Phase::announced) {
    if (entry.num_unannounced > 0 || !begin(entry)) return false;
    moved = true;
  }
  if (operation.phase() == Phase::moving) moved |= work(entry);
  if (operation.phase() != Phase::draining || entry.num_undone > 0 || entry.num_unannounced > 0) return moved;
  return finish(entry) || moved;
}

bool Progress::announce_if_ready(Operation& operation) {
  bool is_ready = false;
  if (!guarded(&operation, [&] { is_ready = operation.is_ready(); }) || !is_ready) return false;
  const std::lock_guard lock(queue_mutex_);
  announce(operation);
  return true;
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
                                   operation ? operation->title() : "what it received", error.what()));
  }
  return false;
}

bool Progress::begin(Entry& entry) {
  Operation& operation = *entry.operation;
  const Group& group = operation.group();
  std::vector<Announcement> announcements(group.members.size());
  announcements[group.self.index()] = operation.announcement();
  group.for_near_peers([&](RankId rank) { announcements[rank.index()] = *entry.peers[group.member(rank)].announced; });
  open_channels(entry);
  if (!guarded(&operation, [&] { operation.begin(announcements); })) return false;
  operation.phase_.store(Phase::moving, std::memory_order_relaxed);
  return true;
}

void Progress::open_channels(Entry& entry) {
  Operation& operation = *entry.operation;
  const auto partners = operation.far_partners();
  const std::set<RankId> far(partners.begin(), partners.end());
  if (far.empty()) return;
  operation.far_ = std::make_unique<SliceChannel::Shared>(
      SliceChannel::Shared{*transport_->slices(),
                           {limits_.slice_bytes, limits_.depth_for(far.size())},
                           num_bytes_sent_,
                           {operation.key().engine, operation.key().sequence},
                           operation.group().self,
                           [this, record = record_of(operation, Signal::grant), bytes = limits_.slice_bytes](
                               RankId member, std::uint32_t num_slices) mutable {
                             record.offset = num_slices;
                             record.bytes = bytes;
                             const std::lock_guard lock(queue_mutex_);
                             post(member, record);
                           }});
  for (const RankId rank : far) {
    const RankId member = operation.group().member(rank);
    add_partner(entry, member);
    auto& channel = entry.peers[member].channel;
    if (!channel) channel = std::make_unique<SliceChannel>();
    channel->open(*operation.far_, rank, member);
    operation.channels_.push_back(channel.get());
  }
}

bool Progress::work(Entry& entry) {
  Operation& operation = *entry.operation;
  if (operation.far_) operation.far_->link_was_full = false;
  Work made = Work::idle;
  if (!guarded(&operation, [&] { made = operation.work(); })) return false;
  if (made == Work::soon) sleep_limit_ = kSoon;
  if (made == Work::finished) {
    operation.phase_.store(Phase::draining, std::memory_order_relaxed);
    const std::lock_guard lock(queue_mutex_);
    signal_near(operation, Signal::done);
  } else if (made != Work::needs_peer) {
    enqueue(entry.operation);
  }
  return made == Work::moved || made == Work::finished;
}

bool Progress::finish(Entry& entry) {
  const std::shared_ptr<Operation> operation = entry.operation;
  bool finished = false;
  if (!guarded(operation.get(), [&] { finished = operation->finish(); }) || !finished) {
    enqueue(operation);
    return false;
  }
  for (SliceChannel* const channel : operation->channels_) channel->close();
  if (const auto debtor = table_.complete(operation->key()))
    transport_->report(ErrorCode::mismatch, *debtor,
                       fmt::format("rank {} owes rank {} the grants of more than {} operations", *debtor,
                                   transport_->rank(), OperationTable::kMostKept));
  complete(*operation, std::nullopt);
  finished_.push_back(operation);
  return true;
}

void Progress::complete(Operation& operation, std::optional<Error> error) {
  operation.error_ = std::move(error);
  // Release: partner of the acquire in Operation::phase(); covers the output.
  operation.phase_.store(operation.error_ ? Phase::failed : Phase::complete, std::memory_order_release);
  --num_pending_;
  transport_->wake();
}

void Progress::fail_all(const Fault& fault) {
  queue_.clear();
  for (Entry* const entry : table_.live()) {
    const auto& operation = failed_.emplace_back(std::move(entry->operation));
    entry->is_over = true;
    operation->give_up();
    complete(*operation, Error(fault.code, fmt::format("{}; rank {} was in {}", fault.text, transport_->rank(),
                                                       operation->title())));
  }
}

std::vector<RankId> Progress::awaited_members(const Entry& entry) {
  const Operation& operation = *entry.operation;
  std::vector<RankId> awaited;
  for (const auto& [rank, peer] : entry.peers)
    if (peer.is_partner && !peer.announced) awaited.push_back(rank);
  for (const auto& [rank, peer] : entry.peers)
    if (operation.phase() == Phase::draining && peer.is_partner && peer.announced && !peer.channel && !peer.is_done)
      awaited.push_back(rank);
  if (operation.phase() == Phase::moving)
    for (const RankId rank : operation.awaited_far())
      if (const RankId member = operation.group().member(rank); entry.peers.at(member).announced)
        awaited.push_back(member);
  return awaited;
}

bool Progress::check_departures() {
  // Read who has left first, then the last messages: only after those does the absence count.
  std::vector<bool> had_left;
  for (std::int32_t rank = 0; rank < transport_->size(); ++rank) had_left.push_back(transport_->has_left(RankId(rank)));
  had_left[transport_->rank().index()] = false;
  if (std::ranges::find(had_left, true) == had_left.end()) return false;
  if (receive()) return true;
  for (const Entry* const entry : table_.live())
    for (const RankId peer : awaited_members(*entry))
      if (had_left[peer.index()])
        transport_->report(ErrorCode::peer_lost, peer,
                           fmt::format("rank {} has left the world, but rank {} still waits for it in {}", peer,
                                       transport_->rank(), entry->operation->title()));
  return false;
}

void Progress::check_deadlines() {
  std::set<RankId> suspects;
  for (const Entry* const entry : table_.live()) {
    const Operation& operation = *entry->operation;
    const auto awaited = awaited_members(*entry);
    for (const RankId peer : awaited)
      if (suspects.insert(peer).second) transport_->suspect(peer);
    if (operation.phase() == Phase::issued || awaited.empty()) continue;
    // A far peer may itself wait for a near one. That peer sees the culprit directly, and gets the time to report it.
    const bool waits_for_near = std::ranges::any_of(awaited, [&](RankId peer) { return !is_far(peer); });
    const auto limit = waits_for_near ? operation.deadline_ : operation.deadline_ + operation.deadline_ / kFarGrace;
    if (Clock::now() - operation.announced_at_ > limit)
      transport_->report(ErrorCode::deadline, awaited.front(),
                         fmt::format("rank {}: {} took longer than {} ms; {}", transport_->rank(), operation.title(),
                                     operation.deadline_.count(), describe_pending()));
  }
}

std::string Progress::describe_pending() {
  std::vector<std::string> pending;
  for (const Entry* const entry : table_.live()) {
    const Operation& operation = *entry->operation;
    if (operation.phase() == Phase::issued)
      pending.push_back(fmt::format("{} waits for its own stream", operation.title()));
    else
      pending.push_back(fmt::format("{} waits for {} to {}", operation.title(), list(awaited_members(*entry)),
                                    operation.phase() == Phase::announced ? "call it" : "finish"));
  }
  return fmt::format("pending: {}", fmt::join(pending, "; "));
}

}  // namespace shunt
