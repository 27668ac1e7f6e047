// Bootstraps whose all-gather needs no rendezvous: threads of one process, and the caller's callback.
#include <condition_variable>
#include <mutex>

#include "core/fail.hpp"
#include "transport/bootstrap/rendezvous.hpp"

namespace shunt {
namespace {

/// The bytes of one job's threads. A rank whose bootstrap is destroyed has ended.
class Board {
 public:
  explicit Board(std::int32_t size) : contributions_(static_cast<std::size_t>(size)) {}

  std::vector<Bootstrap::Bytes> exchange(RankId self, std::span<const std::byte> mine,
                                         std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (failure_) throw *failure_;
    // The last rank completes the round and moves its bytes into results_, so that the next round can begin.
    auto& own = contributions_[self.index()];
    own = Bootstrap::Bytes(mine.begin(), mine.end());
    const std::uint64_t round = round_;
    if (missing().empty()) {
      results_.clear();
      for (auto& each : contributions_) results_.push_back(std::move(*std::exchange(each, std::nullopt)));
      ++round_;
      changed_.notify_all();
    }
    const bool is_over = changed_.wait_for(lock, limit, [&] { return round_ > round || failure_; });
    if (round_ > round) return results_;
    if (!is_over)
      fail_all(ErrorCode::deadline, fmt::format("rank {} waited {} ms in vain for these of {} ranks: {}", self,
                                                limit.count(), contributions_.size(), bootstrap::list_some(missing())));
    throw *failure_;
  }

  /// Fails the ranks that wait for it.
  void end(RankId rank) {
    const std::lock_guard lock(mutex_);
    fail_all(ErrorCode::peer_lost, fmt::format("rank {} ended while the ranks were joining", rank));
  }

 private:
  /// All ranks throw the first failure.
  void fail_all(ErrorCode code, const std::string& text) {
    if (!failure_) failure_.emplace(code, text);
    changed_.notify_all();
  }
  [[nodiscard]] std::vector<std::int32_t> missing() const {
    std::vector<std::int32_t> missing;
    for (std::size_t rank = 0; rank < contributions_.size(); ++rank)
      if (!contributions_[rank]) missing.push_back(static_cast<std::int32_t>(rank));
    return missing;
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::optional<Bootstrap::Bytes>> contributions_;  // of this round
  std::uint64_t round_ = 0;
  std::vector<Bootstrap::Bytes> results_;  // of the last round
  std::optional<Error> failure_;
};

class CallbackBootstrap final : public Bootstrap {
 public:
  CallbackBootstrap(RankId rank, std::int32_t size, AllGather all_gather)
      : rank_(rank), size_(size), all_gather_(std::move(all_gather)) {}

  [[nodiscard]] RankId rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return size_; }
  std::vector<Bytes> all_gather(std::span<const std::byte> mine, std::chrono::milliseconds limit) override {
    auto gathered = all_gather_(mine, limit);
    if (gathered.size() != static_cast<std::size_t>(size_))
      fail(ErrorCode::mismatch, "rank {}: the bootstrap gathered the bytes of {} ranks, not of {}", rank_,
           gathered.size(), size_);
    return gathered;
  }

 private:
  RankId rank_;
  std::int32_t size_;
  AllGather all_gather_;
};

}  // namespace

std::vector<std::unique_ptr<Bootstrap>> Bootstrap::threads(std::int32_t num_ranks) {
  if (num_ranks < 1) fail(ErrorCode::invalid_argument, "can't join {} threads", num_ranks);
  const auto board = std::make_shared<Board>(num_ranks);
  std::vector<std::unique_ptr<Bootstrap>> ends;
  for (std::int32_t r = 0; r < num_ranks; ++r) {
    const RankId rank(r);
    const std::shared_ptr<void> at_end(nullptr, [board, rank](void*) { board->end(rank); });
    ends.push_back(callback(rank, num_ranks,
                            [board, rank, at_end](std::span<const std::byte> mine, std::chrono::milliseconds limit) {
                              return board->exchange(rank, mine, limit);
                            }));
  }
  return ends;
}

std::unique_ptr<Bootstrap> Bootstrap::callback(RankId rank, std::int32_t size, AllGather all_gather) {
  if (rank.value < 0 || rank.value >= size || !all_gather)
    fail(ErrorCode::invalid_argument, "rank {} can't join {} ranks{}", rank, size, all_gather ? "" : " by no function");
  return std::make_unique<CallbackBootstrap>(rank, size, std::move(all_gather));
}

}  // namespace shunt
