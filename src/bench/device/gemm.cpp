#include "bench/device/gemm.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <random>

#include "bench/device/memory.hpp"
#include "core/cuda/check.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/mlp/cublas_lt.hpp"

namespace shunt::bench {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

/// Values with magnitudes from 0.5 to 1; products of zeros would need less power.
std::shared_ptr<std::uint16_t> random_matrix(std::size_t size) {
  std::vector<std::uint16_t> bits(size * size);
  std::minstd_rand random(1);
  for (auto& element : bits) element = static_cast<std::uint16_t>((random() & 0x807fu) | 0x3f00u);
  return upload(std::span<const std::uint16_t>(bits));
}

double elapsed_ms(cudaEvent_t begin, cudaEvent_t end) {
  float ms = 0;
  device::check(cudaEventElapsedTime(&ms, begin, end), "read the time");
  return ms;
}

}  // namespace

struct Gemm::Impl {
  explicit Impl(std::int64_t num_rows)
      : size(num_rows),
        a(random_matrix(static_cast<std::size_t>(size))),
        b(random_matrix(static_cast<std::size_t>(size))),
        c(allocate_on_device(static_cast<std::size_t>(size * size) * sizeof(std::uint16_t))),
        workspace(allocate_on_device(kWorkspaceBytes)) {
    lt.check(lt.create(&handle), "start");
    const auto rows = static_cast<std::uint64_t>(size);
    lt.check(lt.create_layout(&layout, CUDA_R_16BF, rows, rows, size), "describe matrices");
  }
  ~Impl() {
    for (const auto& [sms, variant] : variants) (void)lt.destroy_product(variant.product);
    (void)lt.destroy_layout(layout);
    (void)lt.destroy(handle);
  }

  struct Variant {
    cublas_lt::Product product = nullptr;
    cublas_lt::Algorithm algorithm{};
  };

  const Variant& variant_for(std::int32_t sms, cudaStream_t stream) {
    const auto [entry, is_new] = variants.try_emplace(sms);
    Variant& variant = entry->second;
    if (!is_new) return variant;
    lt.check(lt.create_product(&variant.product, cublas_lt::kFloat, CUDA_R_32F), "describe a product");
    const cublas_lt::Operation transposed = cublas_lt::kTransposed;
    lt.check(lt.set_of_product(variant.product, cublas_lt::kOperationOnA, &transposed, sizeof(transposed)),
             "describe a product");
    lt.check(lt.set_of_product(variant.product, cublas_lt::kMultiprocessors, &sms, sizeof(sms)),
             "limit a product to multiprocessors");
    double least_ms = std::numeric_limits<double>::max();
    for (const cublas_lt::Algorithm& algorithm : candidates(variant.product)) {
      const double ms = time({variant.product, algorithm}, stream);
      if (ms >= least_ms) continue;
      least_ms = ms;
      variant.algorithm = algorithm;
    }
    return variant;
  }

  [[nodiscard]] std::vector<cublas_lt::Algorithm> candidates(cublas_lt::Product product) const {
    constexpr int kMost = 8;
    cublas_lt::Preference preference = nullptr;
    lt.check(lt.create_preference(&preference), "choose an algorithm");
    lt.check(
        lt.set_of_preference(preference, cublas_lt::kMostWorkspaceBytes, &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
        "choose an algorithm");
    std::array<cublas_lt::Proposal, kMost> results{};
    int found = 0;
    const cublas_lt::Status status =
        lt.propose(handle, product, layout, layout, layout, layout, preference, kMost, results.data(), &found);
    (void)lt.destroy_preference(preference);
    lt.check(found > 0 ? status : cublas_lt::kNotSupported, "choose an algorithm");
    std::vector<cublas_lt::Algorithm> algorithms;
    for (int i = 0; i < found; ++i) algorithms.push_back(results[static_cast<std::size_t>(i)].algorithm);
    return algorithms;
  }

  void launch(const Variant& variant, cudaStream_t stream) const {
    const float one = 1;
    const float zero = 0;
    lt.check(lt.multiply(handle, variant.product, &one, a.get(), layout, b.get(), layout, &zero, c.get(), layout,
                         c.get(), layout, &variant.algorithm, workspace.get(), kWorkspaceBytes, stream),
             "multiply");
  }

  /// Milliseconds for several products, after one that may load code.
  [[nodiscard]] double time(const Variant& variant, cudaStream_t stream) const {
    constexpr int kProducts = 4;
    launch(variant, stream);
    device::check(cudaStreamSynchronize(stream), "wait for a product");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kProducts; ++i) launch(variant, stream);
    device::check(cudaStreamSynchronize(stream), "wait for products");
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  const cublas_lt::Library& lt = cublas_lt::Library::load();
  std::int64_t size;
  std::shared_ptr<std::uint16_t> a, b;
  std::shared_ptr<std::byte> c, workspace;
  cublas_lt::Handle handle = nullptr;
  cublas_lt::Layout layout = nullptr;
  std::map<std::int32_t, Variant> variants;  // by number of multiprocessors
};

bool Gemm::is_available() {
  try {
    (void)cublas_lt::Library::load();
  } catch (const Error&) {
    return false;
  }
  return true;
}

Gemm::Gemm(std::int64_t size) : impl_(std::make_unique<Impl>(size)) {}
Gemm::~Gemm() = default;

void Gemm::launch(std::int32_t sms, cudaStream_t stream) { impl_->launch(impl_->variant_for(sms, stream), stream); }

GemmSeries::GemmSeries(Gemm& gemm, std::int32_t sms, cudaStream_t stream, int count)
    : gemm_(gemm), sms_(sms), stream_(stream), marks_(static_cast<std::size_t>(count) + 1) {
  for (cudaEvent_t& mark : marks_) device::check(cudaEventCreate(&mark), "make an event");
  device::check(cudaEventCreate(&until_), "make an event");
}

GemmSeries::~GemmSeries() {
  for (const cudaEvent_t mark : marks_) (void)cudaEventDestroy(mark);
  (void)cudaEventDestroy(until_);
}

void GemmSeries::launch() {
  device::check(cudaEventRecord(marks_.front(), stream_), "record an event");
  for (std::size_t i = 1; i < marks_.size(); ++i) {
    gemm_.launch(sms_, stream_);
    device::check(cudaEventRecord(marks_[i], stream_), "record an event");
  }
}

std::vector<double> GemmSeries::run() {
  constexpr int kWarmUp = 5;
  for (int i = 0; i < kWarmUp; ++i) gemm_.launch(sms_, stream_);
  launch();
  count_until(stream_);
  return wait();
}

void GemmSeries::launch_after(cudaStream_t stream) {
  device::check(cudaEventRecord(marks_.front(), stream), "record an event");
  device::check(cudaStreamWaitEvent(stream_, marks_.front(), 0), "let a stream wait");
  launch();
}

void GemmSeries::count_until(cudaStream_t stream) { device::check(cudaEventRecord(until_, stream), "record an event"); }

std::vector<double> GemmSeries::wait() {
  device::check(cudaEventSynchronize(until_), "wait for the shuffle beside products");
  device::check(cudaEventSynchronize(marks_.back()), "wait for products");
  std::vector<double> times;
  for (std::size_t i = 1; i < marks_.size() && elapsed_ms(marks_[i], until_) >= 0; ++i)
    times.push_back(elapsed_ms(marks_[i - 1], marks_[i]));
  return times;
}

double GemmSeries::median(std::vector<double> times) {
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace shunt::bench
