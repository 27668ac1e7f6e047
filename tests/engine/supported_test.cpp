// The table of what each kind of engine can do: engines keep to it, and the documentation shows it.
#include "engine/supported.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/engine_impl.hpp"
#include "engine/place.hpp"
#include "engine/small_shuffle.hpp"
#include "support/require_error.hpp"
#include "support/scratch_folder.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

constexpr std::array kKinds = {EngineKind::host, EngineKind::node, EngineKind::cluster};

TEST(SupportedTable, IsWhatTheDocumentationShows) {
  std::ifstream file(SHUNT_SOURCE_DIR "/docs/errors.md");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::string header = "| |", rows;
  for (const EngineKind kind : kKinds) header += fmt::format(" {} |", name_of(kind));
  for (const FeatureSupport& support : kSupport) {
    rows += fmt::format("| {} |", support.name);
    for (const EngineKind kind : kKinds) rows += support.of(kind) ? " yes |" : " – |";
    rows += "\n";
  }
  EXPECT_THAT(text, HasSubstr(header + "\n| --- | --- | --- | --- |\n" + rows + "\n"));
}

/// Asks engines for each feature.
class Asking {
 public:
  Asking(World& world, const Place& place) : world_(world), place_(place) {}

  void ask(Feature feature) {
    switch (feature) {
      case Feature::companions: return make([](EngineOptions& options) { options.companions.ids = true; });
      case Feature::trace:
        return make([&](EngineOptions& options) {
          options.trace = {std::make_shared<TraceRecorder>(folder_.file("a.trace"),
                                                           TraceRecorderOptions{.layers = 1, .experts = 2, .topk = 1}),
                           0};
        });
      case Feature::rounded_ranks: return make([](EngineOptions& options) { options.rank_dtype = bf16; });
      case Feature::few_sms: return make([](EngineOptions& options) { options.device->sms = 1; });
      case Feature::streams:
        return (void)shuffle().dispatch(plan(), x(), {.stream = reinterpret_cast<Stream>(8)}).wait();
      case Feature::bounds: return (void)plan({.max_rows = 4});
      case Feature::padded: return (void)padded();
      case Feature::padded_gradients: return (void)shuffle().dispatch_backward(padded(), rows(4)).wait();
      case Feature::packed_gradients: return (void)shuffle().dispatch_backward(padded(true), rows(4)).wait();
      case Feature::padded_scales: return padded_scales();
      case Feature::padded_outputs: return (void)shuffle().dispatch(padded(), x(), {.out = rows(4)}).wait();
      case Feature::strided_outputs: {
        Tensor out = shuffle().allocate(bf16, 2, 2 * kHidden);
        out.cols = kHidden;
        out.row_stride = 2 * kHidden;
        return combine_into(out);
      }
      case Feature::foreign_outputs: return combine_into(rows(2, place_.is_device ? Memory::host() : kDevice));
      case Feature::device_inputs: return (void)shuffle().dispatch(plan(), rows(2, kDevice)).wait();
      case Feature::other_devices: return (void)shuffle().dispatch(plan(), rows(2, Memory::on_device(99))).wait();
      case Feature::leaving_out: return shuffle().leave_out({});
      case Feature::counts_on_host: {
        const Plan made = plan();
        require_error([&] { (void)made.num_dropped(); }, ErrorCode::unsupported, "num_dropped");
        require_error([&] { (void)made.traffic(1); }, ErrorCode::unsupported, "traffic");
        return (void)made.expert_offsets();
      }
    }
  }

 private:
  static constexpr std::int64_t kHidden = 8;
  static constexpr Memory kDevice = Memory::on_device(0);

  template <class Change>
  void make(const Change& change) {
    EngineOptions options = place_.options({.hidden = kHidden});
    change(options);
    engine_.emplace(world_, options);
  }
  Engine& shuffle() {
    if (!engine_) make([](EngineOptions&) {});
    return *engine_;
  }
  Plan plan(const PlanOptions& options = {}) {
    return shuffle().plan({.experts = experts_}, ExpertMap::contiguous(world_.size(), world_.size()), options);
  }
  Plan padded(bool is_packed = false) {
    return plan({.layout = Layout::padded, .max_tokens = 4 / world_.size(), .packed = is_packed});
  }
  void padded_scales() {
    make([](EngineOptions& options) { options.dtype = fp8_e4m3; });
    const Tensor scales = shuffle().allocate(f32, 2, 1);
    (void)shuffle().dispatch(padded(), shuffle().allocate(fp8_e4m3, 2, kHidden), {.scales = scales}).wait();
  }
  void combine_into(const Tensor& out) {
    const Plan made = plan();
    (void)shuffle().combine(made, rows(made.read().num_rows), {.out = out}).wait();
  }
  Tensor rows(std::int64_t count) { return shuffle().allocate(bf16, count, kHidden); }
  /// That claim to be in other memory.
  Tensor rows(std::int64_t count, Memory memory) {
    Tensor made = rows(count);
    made.memory = memory;
    return made;
  }
  Tensor x() { return rows(2); }

  World& world_;
  const Place& place_;
  ScratchFolder folder_;
  std::vector<std::int32_t> experts_ = {0, -1};
  std::optional<Engine> engine_;
};

/// Features that are refused as part of another.
Feature named(Feature feature, EngineKind kind) {
  switch (feature) {
    case Feature::packed_gradients:
      if (!support_of(Feature::padded_gradients).of(kind)) return named(Feature::padded_gradients, kind);
      return feature;
    case Feature::padded_gradients:
    case Feature::padded_scales:
    case Feature::padded_outputs: return support_of(Feature::padded).of(kind) ? feature : Feature::padded;
    case Feature::other_devices: return kind == EngineKind::host ? Feature::device_inputs : feature;
    default: return feature;
  }
}

using SupportedTableAt = AtPlace;
INSTANTIATE_TEST_SUITE_P(At, SupportedTableAt, ::testing::Values(kHostThreads, kDeviceThreads, kDeviceIslands),
                         kNameOfPlace);

TEST_P(SupportedTableAt, EveryFeatureThatAKindLacksIsRefused) {
  const std::int32_t num_ranks = place().world == WorldKind::islands ? 2 : 1;
  const EngineKind kind = this->kind(num_ranks);
  for (const FeatureSupport& support : kSupport) {
    if (support.of(kind)) continue;
    if (support.feature == Feature::few_sms && kind == EngineKind::host) continue;  // can't be asked for
    const Feature refused = named(support.feature, kind);
    const std::string text = refused == Feature::counts_on_host
                                 ? "read() copies them"
                                 : fmt::format("not supported on {}: {}", name_of(kind), support_of(refused).name);
    const auto run = [&](World& world) {
      Asking asking(world, place());
      require_error([&] { asking.ask(support.feature); }, ErrorCode::unsupported, text);
      world.barrier();
    };
    EXPECT_NO_THROW(place().run(num_ranks, run)) << support.name;
  }
}

}  // namespace
}  // namespace shunt::test
