// The part of an engine that does not depend on the kind of memory: options, and the checks before every operation.
// Each kind of memory derives from it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/call.hpp"
#include "engine/tensor_checks.hpp"
#include "engine/world_impl.hpp"
#include "plan/plan_data.hpp"
#include "shunt/engine.hpp"

namespace shunt {

template <class Body>
auto name_errors(std::string_view engine_name, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    const std::string quoted = fmt::format("'{}'", engine_name);
    if (engine_name.empty() || std::string_view(error.what()).find(quoted) != std::string_view::npos) throw;
    fail(error.code(), "{}; engine {}", error.what(), quoted);
  }
}

/// Throws Error(unsupported) unless the engine makes gradients of such rows.
void check_gradients(const Call& call, const PlanData& plan);
/// Throws Error(invalid_argument) if a caller's output overlaps another tensor of the call.
void check_apart(const Call& call, std::string_view name, const Tensor& given, const ConstTensor& other);

/// Fills in all defaults. Throws Error that names rank, option and cause.
[[nodiscard]] EngineOptions complete(const World& of, EngineOptions options, EngineKind kind);

struct Engine::Impl {
  Impl(World& world, const EngineOptions& engine_options, EngineKind engine_kind);
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::shared_ptr<World::Impl> world;
  EngineOptions options;  ///< all defaults filled in
  EngineKind kind;
  std::uint64_t key;     ///< equal on all ranks; from the number of engines made in the world
  std::uint64_t serial;  ///< unique in this process; plans carry it

  [[nodiscard]] RankId rank() const { return world->group->self; }
  [[nodiscard]] std::int32_t num_ranks() const { return world->group->size(); }
  [[nodiscard]] bool has_scales() const { return options.dtype == fp8_e4m3; }
  [[nodiscard]] TensorChecks checks() const { return {options.dtype, options.hidden}; }
  /// The operation's name in errors.
  [[nodiscard]] std::string title(std::string_view operation) const { return title_of(operation, options.name); }
  [[nodiscard]] Call call(std::string_view operation) const { return {rank(), kind, operation, options.name}; }
  /// Returns body(). Adds the engine's name to an Error that lacks it.
  template <class Body>
  auto named(const Body& body) const {
    return name_errors(options.name, body);
  }

  // Each throws Error(invalid_argument) that names the call and the cause.
  [[nodiscard]] const PlanData& check_plan(const Call& call, const Plan& plan) const;
  void check_tensor(const Call& call, std::string_view name, const ConstTensor& tensor, DType dtype,
                    std::int64_t rows) const {
    TensorChecks::tensor(call, name, tensor, dtype, rows, options.hidden);
  }
  /// Checks the memory of a caller's output, which must not overlap `input`: peers may still read that.
  void check_place(const Call& call, std::string_view name, const Tensor& given, const ConstTensor& input) const;
  /// Checks that the routing fits the trace that it is recorded to, if any.
  void check_trace(const Routing& routing, const ExpertMap& map) const;

  /// combine and dispatch_backward.
  Ticket<Tensor> pull(OpKind pulled, const Plan& plan, const ConstTensor& rows, const CombineOptions& pull_options);

  // The interface of the kinds of memory. Arguments were checked, and outputs are in memory that the kind can write.
  // Inputs may be in any memory.

  [[nodiscard]] virtual Memory memory() const { return Memory::host(); }
  [[nodiscard]] virtual Stream stream() const { return nullptr; }
  [[nodiscard]] virtual Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const = 0;
  virtual void copy(const ConstTensor& from, const Tensor& to) const = 0;
  /// Collective.
  [[nodiscard]] virtual Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) = 0;
  /// The same, as a ticket; this one is complete when it returns.
  [[nodiscard]] virtual Ticket<Plan> start_plan(const Routing& routing, const ExpertMap& map,
                                                const PlanOptions& plan_options);
  [[nodiscard]] virtual Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x,
                                              const DispatchOptions& dispatch_options) = 0;
  struct Pull {
    OpKind kind;
    const Plan& plan;
    const ConstTensor& rows;
    const Tensor& out;
    Stream stream;
  };
  [[nodiscard]] virtual std::shared_ptr<Pending> start(const Pull& pull) = 0;
  struct Backward {
    const Plan& plan;
    const ConstTensor& grad_out;
    const ConstTensor& expert_out;  ///< empty in `token_unique`
    const Gradients& gradients;
    Stream stream;
  };
  [[nodiscard]] virtual std::shared_ptr<Pending> start(const Backward& backward) = 0;
  [[nodiscard]] virtual Tensor expert_out(const PlanData& plan) const;
  virtual void check() const;
  [[nodiscard]] virtual const std::uint32_t* fault_word() const { return nullptr; }
  virtual void leave_out(std::span<const RankId>) {}
  [[nodiscard]] virtual std::optional<RankId> missing() const { return std::nullopt; }
};

}  // namespace shunt
