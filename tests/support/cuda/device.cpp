#include "support/cuda/device.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "core/cuda/check.hpp"

namespace shunt::test {
namespace {

// Before CUDA starts: many ranks of this process wait for each other on one device.
const bool has_connections = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) == 0;

void finish(Stream stream) { device::check(cudaStreamSynchronize(stream), "wait for a copy"); }

}  // namespace

std::string why_no_device() {
  try {
    int count = 0;
    device::check(cudaGetDeviceCount(&count), "find a device");
    return count > 0 ? "" : "no CUDA device";
  } catch (const Error& error) {
    return error.what();
  }
}

Arena::Arena(std::size_t bytes) : bytes_(bytes) {
  device::check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "allocate an arena");
}

Arena::~Arena() { (void)cudaFree(data_); }

std::byte* Arena::take(std::size_t bytes, std::size_t shift) {
  const std::size_t begin = (used_ + 255) / 256 * 256 + shift;
  if (begin + bytes > bytes_) throw std::runtime_error("the arena of a test is too small");
  used_ = begin + bytes;
  return data_ + begin;
}

// Each waits for the stream first: ranks share the queues of copies, in which none may wait for another rank.
void upload(std::byte* to, std::span<const std::byte> from, Stream stream) {
  finish(stream);
  device::check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream), "upload");
  finish(stream);
}

void poison(std::byte* data, std::size_t bytes, Stream stream, int pattern) {
  device::check(cudaMemsetAsync(data, pattern, bytes, stream), "poison");
  finish(stream);
}

std::vector<std::byte> download(const void* from, std::size_t bytes, Stream stream) {
  finish(stream);
  std::vector<std::byte> to(bytes);
  device::check(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyDeviceToHost, stream), "download");
  finish(stream);
  return to;
}

}  // namespace shunt::test
