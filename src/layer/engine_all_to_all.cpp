#include <cstring>

#include "layer/all_to_all.hpp"
#include "shunt/engine.hpp"

namespace shunt {
namespace {

class EngineAllToAll final : public AllToAll {
 public:
  EngineAllToAll(World& world, std::int64_t hidden, DType dtype)
      : world_(world),
        hidden_(hidden),
        dtype_(dtype),
        one_expert_per_rank_(ExpertMap::contiguous(world.size(), world.size())),
        engine_(world, {.hidden = hidden_, .dtype = dtype_}) {}

  [[nodiscard]] std::string name() const override { return "unfused"; }

  std::vector<std::int32_t> all_gather(std::span<const std::int32_t> mine) override {
    std::vector<std::int32_t> all;
    for (const auto& bytes : world_.all_gather(std::as_bytes(mine))) {
      all.resize(all.size() + mine.size());
      std::memcpy(all.data() + all.size() - mine.size(), bytes.data(), bytes.size());
    }
    return all;
  }

  Buffers prepare(std::span<const std::int32_t> send_counts, std::span<const std::int32_t> receive_counts) override {
    forward_ = plan(send_counts);
    backward_ = plan(receive_counts);
    if (!send_.data || send_.rows != forward_.num_tokens() || receive_.rows != backward_.num_tokens()) {
      send_ = world_.allocate(dtype_, forward_.num_tokens(), hidden_);
      receive_ = world_.allocate(dtype_, backward_.num_tokens(), hidden_);
    }
    return {send_.data, receive_.data};
  }

  void forward() override { (void)engine_.dispatch(forward_, send_, {.scales = {}, .out = receive_}).wait(); }
  void backward() override { (void)engine_.dispatch(backward_, receive_, {.scales = {}, .out = send_}).wait(); }

 private:
  /// A plan for rows that are ordered by destination; they arrive ordered by source.
  Plan plan(std::span<const std::int32_t> counts) {
    std::vector<std::int32_t> destinations;
    for (std::size_t rank = 0; rank < counts.size(); ++rank)
      destinations.insert(destinations.end(), static_cast<std::size_t>(counts[rank]), static_cast<std::int32_t>(rank));
    return engine_.plan({.experts = destinations, .weights = {}, .topk = 1}, one_expert_per_rank_);
  }

  World& world_;
  std::int64_t hidden_;
  DType dtype_;
  ExpertMap one_expert_per_rank_;
  Engine engine_;
  Plan forward_;
  Plan backward_;
  Tensor send_;
  Tensor receive_;
};

}  // namespace

std::shared_ptr<AllToAll> make_engine_all_to_all(World& world, std::int64_t hidden, DType dtype) {
  return std::make_shared<EngineAllToAll>(world, hidden, dtype);
}

}  // namespace shunt
