#include "cli/device/gemm_series.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"

namespace shunt::cli {
namespace {

double elapsed_ms(cudaEvent_t begin, cudaEvent_t end) {
  float ms = 0;
  device::check(cudaEventElapsedTime(&ms, begin, end), "read the time");
  return ms;
}

}  // namespace

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
  device::check(cudaEventSynchronize(until_), "wait for what is beside products");
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

}  // namespace shunt::cli
