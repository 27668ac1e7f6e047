// What `kernel<<<blocks, threads, shared_bytes, stream>>>(arguments)` becomes: an operator of the kernel's pointer and
// of what stands behind it, as translate.py knows where a launch's arguments begin and not where its kernel does.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

namespace cuda_on_cpu {

/// Reports errors as a launch does: to cudaGetLastError().
void submit_kernel(const void* kernel, dim3 blocks, dim3 threads, std::size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> body);

template <class... Arguments>
struct Launch {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes;
  cudaStream_t stream;
  std::tuple<Arguments...> arguments;

  /// The arguments are copied when the kernel is launched and then for each of its threads, which own their parameters.
  template <class... Parameters>
  friend void operator->*(void (*kernel)(Parameters...), Launch&& launch) {
    submit_kernel(reinterpret_cast<const void*>(kernel), launch.blocks, launch.threads, launch.shared_bytes,
                  launch.stream,
                  [kernel, parameters = std::tuple<std::decay_t<Parameters>...>(std::move(launch.arguments))] {
                    std::apply(kernel, parameters);
                  });
  }
};

class Configuration {
 public:
  Configuration(dim3 blocks, dim3 threads, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr)
      : blocks_(blocks), threads_(threads), shared_bytes_(shared_bytes), stream_(stream) {}

  template <class... Arguments>
  Launch<Arguments...> operator()(Arguments... arguments) const {
    return {blocks_, threads_, shared_bytes_, stream_, std::tuple<Arguments...>(std::move(arguments)...)};
  }

 private:
  dim3 blocks_;
  dim3 threads_;
  std::size_t shared_bytes_;
  cudaStream_t stream_;
};

}  // namespace cuda_on_cpu
