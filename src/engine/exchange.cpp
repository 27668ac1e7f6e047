#include "engine/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"

namespace shunt {
namespace {

class NearExchange final : public Operation {
 public:
  NearExchange(const ExchangePlace& place, std::shared_ptr<const Group> group, const Announcement& announcement,
               ReadAll read, std::function<void()> then, Block block)
      : Operation(std::move(group), place.engine, announcement, place.deadline, place.engine_name),
        transport_(place.comm.transport()),
        read_(std::move(read)),
        then_(std::move(then)),
        block_(std::move(block)) {}

  void begin(std::span<const Announcement> peers) override {
    std::vector<std::span<const std::byte>> all;
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      const std::uint64_t offset = peers[rank].offset, bytes = peers[rank].bytes;
      all.emplace_back(bytes == 0 ? nullptr : transport_.peer_pointer(group().members[rank], offset, bytes), bytes);
    }
    read_(all);
  }

  bool finish() override {
    then_();
    return true;
  }

  // Failed operations are kept, and the callbacks may hold what keeps the world.
  void give_up() noexcept override {
    read_ = {};
    then_ = {};
  }

 private:
  Transport& transport_;
  ReadAll read_;
  std::function<void()> then_;
  Block block_;  // peers may read it as long as the operation exists
};

/// The exchange among near ranks.
void start_near(const ExchangePlace& place, Chain& chain, const std::shared_ptr<const Group>& group, OpKind kind,
                std::span<const std::byte> mine, ReadAll read, std::function<void()> then) {
  CommContext& comm = place.comm;
  Announcement announcement;
  announcement.kind = kind;
  Block block;
  if (!mine.empty()) {
    block = comm.allocate(mine.size());
    std::memcpy(block.data, mine.data(), mine.size());
    announcement.offset = *comm.transport().offset_of(block.data, block.bytes);
    announcement.bytes = block.bytes;
  }
  chain.issue(std::make_shared<NearExchange>(place, group, announcement, std::move(read), std::move(then), block),
              place.next_sequence);
}

class FarSwap final : public Operation {
 public:
  FarSwap(const ExchangePlace& place, const Announcement& announcement, std::vector<FarBytes> outgoing,
          std::span<const FarSender> senders, std::function<void(std::vector<FarBytes>)> then)
      : Operation(place.group, place.engine, announcement, place.deadline, place.engine_name), then_(std::move(then)) {
    for (FarBytes& far : outgoing) out_.push_back({std::move(far)});
    for (const FarSender& sender : senders) in_.push_back({{sender.rank, {}}, sender.most_bytes});
  }

  [[nodiscard]] std::vector<RankId> far_partners() const override {
    std::vector<RankId> partners;
    for (const Out& out : out_) partners.push_back(out.far.rank);
    for (const In& in : in_) partners.push_back(in.far.rank);
    return partners;
  }

  void begin(std::span<const Announcement>) override {
    for (const Out& out : out_) channel(out.far.rank).begin_sending();
    for (const In& in : in_) channel(in.far.rank).begin_receiving();
  }

  Work work() override {
    bool moved = false, is_over = true;
    for (Out& out : out_) {
      SliceChannel& to = channel(out.far.rank);
      moved |= send(out, to);
      is_over &= !to.is_sending();
    }
    for (In& in : in_) {
      SliceChannel& from = channel(in.far.rank);
      moved |= receive(in, from);
      is_over &= from.has_ended();
    }
    return is_over ? Work::finished : progress_of(moved);
  }

  bool finish() override {
    std::vector<FarBytes> received;
    for (In& in : in_) received.push_back(std::move(in.far));
    then_(std::move(received));
    return true;
  }

  void give_up() noexcept override { then_ = {}; }

 private:
  struct Out {
    FarBytes far;
    std::size_t num_sent = 0;
  };
  struct In {
    FarBytes far;
    std::size_t most_bytes;
  };

  static bool send(Out& out, SliceChannel& to) {
    bool moved = false;
    for (; to.is_sending(); moved = true) {
      auto slice = to.open_slice();
      if (!slice) break;
      const std::span<const std::byte> left = std::span(out.far.bytes).subspan(out.num_sent);
      const std::size_t count = std::min(slice->bytes.size(), left.size());
      std::copy_n(left.begin(), count, slice->bytes.begin());
      out.num_sent += count;
      to.post_slice(std::move(*slice), count, count == left.size());
    }
    return moved;
  }

  bool receive(In& in, SliceChannel& from) const {
    bool moved = false;
    auto& [far, most_bytes] = in;
    for (; const InSlice* slice = from.front_slice(); moved = true) {
      if (slice->bytes.size() > most_bytes - far.bytes.size())
        from.refuse(fmt::format("sent rank {} more than the {} bytes that {} #{} allows", group().self, most_bytes,
                                to_string(announcement().kind), key().sequence));
      far.bytes.insert(far.bytes.end(), slice->bytes.begin(), slice->bytes.end());
      from.pop_slice();
    }
    return moved;
  }

  std::function<void(std::vector<FarBytes>)> then_;
  std::vector<Out> out_;
  std::vector<In> in_;
};

/// Ranks and their bytes, one after the other: what a rank publishes to its near peers.
class Bundle {
 public:
  void add(RankId rank, std::span<const std::byte> bytes) {
    const Header header{rank.value, 0, bytes.size()};
    const auto* begin = reinterpret_cast<const std::byte*>(&header);
    bytes_.insert(bytes_.end(), begin, begin + sizeof(header));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  /// Stores the contents of a bundle in `all`, by rank. The bundle is in the memory of `owner`, a rank of the
  /// transport.
  static void unpack(std::span<const std::byte> bundle, RankId owner, std::vector<std::span<const std::byte>>& all) {
    while (bundle.size() >= sizeof(Header)) {
      Header header{};
      std::memcpy(&header, bundle.data(), sizeof(header));
      bundle = bundle.subspan(sizeof(header));
      if (header.rank < 0 || static_cast<std::size_t>(header.rank) >= all.size() || header.bytes > bundle.size())
        fail_because_of(owner, "rank {} published damaged bytes of rank {}", owner, header.rank);
      all[static_cast<std::size_t>(header.rank)] = bundle.first(header.bytes);
      bundle = bundle.subspan(std::min<std::size_t>((header.bytes + 7) / 8 * 8, bundle.size()));
    }
  }

 private:
  struct Header {
    std::int32_t rank;
    std::int32_t unused;
    std::uint64_t bytes;
  };
  std::vector<std::byte> bytes_;
};

std::shared_ptr<const Group> near_group(const Group& all) {
  auto group = std::make_shared<Group>();
  group->id = all.id;
  for (std::size_t rank = 0; rank < all.members.size(); ++rank) {
    if (!all.is_near(RankId(rank))) continue;
    if (RankId(rank) == all.self) group->self = RankId(group->members.size());
    group->members.push_back(all.members[rank]);
    group->wiring.add(all.wiring.hosts[rank], all.wiring.nics[rank]);
  }
  return group;
}

/// Sends each rank's bytes once to each far node, to the rank's counterpart there.
void start_swap_with_counterparts(const ExchangePlace& place, Chain& chain, OpKind kind,
                                  std::span<const std::byte> mine, std::size_t most_bytes,
                                  std::function<void(std::vector<FarBytes>)> then) {
  const Group& group = *place.group;
  const Topology& topology = place.topology;
  std::vector<FarBytes> outgoing;
  std::vector<FarSender> senders;
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    const NodeId node(n);
    if (group.is_near(topology.ranks(node).front())) continue;
    outgoing.push_back({topology.counterpart(group.self, node), {mine.begin(), mine.end()}});
    for (const RankId rank : topology.ranks(node))
      if (topology.counterpart(rank, topology.node(group.self)) == group.self) senders.push_back({rank, most_bytes});
  }
  start_far_swap(place, chain, kind, 0, std::move(outgoing), senders, std::move(then));
}

}  // namespace

void Chain::issue(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence) {
  // Visible before the operation can be complete, and with it the one after it be issued.
  const std::lock_guard lock(mutex_);
  comm_.progress().issue(operation, next_sequence);
  current_ = operation;
}

void Chain::end(std::exception_ptr error) {
  // Woken under the lock: whoever waits may destroy the chain as soon as it sees the end.
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  has_ended_ = true;
  comm_.transport().wake();
}

bool Chain::done() const {
  const std::lock_guard lock(mutex_);
  return has_ended_ || (current_ && current_->phase() == Operation::Phase::failed);
}

void Chain::wait() {
  comm_.progress().drive_until([this] { return done(); });
  std::shared_ptr<Operation> last;  // destroyed after unlocking: it may hold what holds this
  const std::lock_guard lock(mutex_);
  last.swap(current_);
  if (!has_ended_) {
    error_ = std::make_exception_ptr(*last->error());
    has_ended_ = true;
  }
  if (error_) std::rethrow_exception(error_);
}

void start_far_swap(const ExchangePlace& place, Chain& chain, OpKind kind, std::uint64_t plan_hash,
                    std::vector<FarBytes> outgoing, std::span<const FarSender> senders,
                    std::function<void(std::vector<FarBytes>)> then) {
  const Announcement announcement{.kind = kind, .plan_hash = plan_hash};
  chain.issue(std::make_shared<FarSwap>(place, announcement, std::move(outgoing), senders, std::move(then)),
              place.next_sequence);
}

void start_exchange(const ExchangePlace& place, Chain& chain, OpKind kind, std::span<const std::byte> mine,
                    const ForFar& for_far, ReadAll read, std::function<void()> then) {
  const Group& group = *place.group;
  if (!group.has_far()) return start_near(place, chain, place.group, kind, mine, std::move(read), std::move(then));

  Bundle bundle;
  bundle.add(group.self, mine);
  auto share_with_node = [place, &chain, kind, bundle, read = std::move(read),
                          then = std::move(then)](const std::vector<FarBytes>& received) mutable {
    for (const FarBytes& far : received) bundle.add(far.rank, far.bytes);
    const auto near = near_group(*place.group);
    auto unpack = [near, size = place.group->members.size(),
                   read = std::move(read)](std::span<const std::span<const std::byte>> bundles) {
      std::vector<std::span<const std::byte>> all(size);
      for (std::size_t i = 0; i < bundles.size(); ++i) Bundle::unpack(bundles[i], near->members[i], all);
      read(all);
    };
    try {
      start_near(place, chain, near, kind, bundle.bytes(), std::move(unpack), std::move(then));
    } catch (...) {
      chain.end(std::current_exception());
    }
  };
  start_swap_with_counterparts(place, chain, kind, mine.first(for_far.bytes), for_far.most_bytes,
                               std::move(share_with_node));
}

std::vector<std::vector<std::byte>> gather(const ExchangePlace& place, OpKind kind, std::span<const std::byte> mine,
                                           const ForFar& for_far) {
  std::vector<std::vector<std::byte>> gathered;
  Chain chain(place.comm);
  const auto copy = [&](std::span<const std::span<const std::byte>> all) {
    for (const auto bytes : all) gathered.emplace_back(bytes.begin(), bytes.end());
  };
  chain.run([&] { start_exchange(place, chain, kind, mine, for_far, copy, [&] { chain.end(); }); });
  return gathered;
}

}  // namespace shunt
