// A few tokens go to one expert each and come back.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "engine/elements.hpp"
#include "engine/place.hpp"
#include "shunt/engine.hpp"
#include "support/require.hpp"

namespace shunt::test {

/// Token t of every rank goes to expert t modulo the number of experts, two per rank, unless it is routed elsewhere.
/// All elements of a token are 1 + t.
class SmallShuffle {
 public:
  static constexpr std::int64_t kTokens = 8;
  static constexpr std::int64_t kHidden = 64;
  static constexpr std::size_t kHeapBytes = std::size_t{16} << 20;

  /// Collective.
  SmallShuffle(World& world, const Place& place, std::chrono::milliseconds deadline = std::chrono::seconds(20),
               const std::string& name = "", Stream stream = nullptr);

  void route(std::int64_t token, std::int32_t expert);
  void route_all_to(std::int32_t expert);

  void plan(const PlanOptions& options = {});
  [[nodiscard]] const Plan& current_plan() const { return plan_; }
  /// Into rows().
  Ticket<Rows> dispatch(Stream stream = nullptr);
  /// Of rows().
  Ticket<Tensor> combine(const CombineOptions& options = {});
  /// Dispatches, combines what came, and gives the first element of each token.
  std::vector<float> sums();
  /// Plans; throws unless every token comes back as it was.
  void round_trip();

  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const Tensor& x() const { return x_; }
  /// As the plan was given them, or else of the engine.
  [[nodiscard]] const Tensor& rows() const { return rows_; }

 private:
  ExpertMap map_;
  Engine engine_;
  Tensor experts_;
  Tensor x_;
  Tensor rows_;
  Plan plan_;
};

/// A test on devices of one node.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override { SHUNT_NEEDS(kDeviceThreads); }

  static void on_ranks(std::int32_t num_ranks, const std::function<void(World&)>& body) {
    ASSERT_NO_THROW(kDeviceThreads.run(num_ranks, [&](World& world) {
      body(world);
      world.barrier();
    }));
  }
  /// Whatever becomes of the shuffle, another engine works afterwards.
  static void on_ranks(std::int32_t num_ranks, std::chrono::milliseconds deadline,
                       const std::function<void(World&, SmallShuffle&)>& body) {
    on_ranks(num_ranks, [&](World& world) {
      {
        SmallShuffle shuffle(world, kDeviceThreads, deadline);
        body(world, shuffle);
        world.barrier();
      }
      SmallShuffle(world, kDeviceThreads).round_trip();
    });
  }
  static void on_ranks(std::int32_t num_ranks, const std::function<void(World&, SmallShuffle&)>& body) {
    on_ranks(num_ranks, std::chrono::seconds(20), body);
  }
};

/// All that is left of the engine's heap.
std::vector<Tensor> take_all_memory(const Engine& engine);

/// One rank comes late: when the others have given up, and what was their memory has another use. Throws if it writes
/// there. `lender`: of that memory.
void come_late(World& world, const Engine& lender, bool is_late, const std::function<void()>& give_up,
               const std::function<void()>& come);

}  // namespace shunt::test
