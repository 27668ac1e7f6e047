// What operations launch.
#pragma once

#include <cuda.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "core/cuda/captured_graph.hpp"
#include "shunt/stream.hpp"

namespace shunt::test {

/// The number of blocks of each kernel that `work` puts on the stream, in no order. Nothing is run.
inline std::vector<unsigned> blocks_of_kernels(Stream stream, const std::function<void()>& work) {
  const auto graph = device::capture(stream, work);
  std::size_t num_nodes = 0;
  device::check(cudaGraphGetNodes(graph.get(), nullptr, &num_nodes), "count nodes");
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  device::check(cudaGraphGetNodes(graph.get(), nodes.data(), &num_nodes), "list nodes");
  // The runtime's function knows the kernels of its own copy only, and libshunt_cuda.so has another one.
  void* function = nullptr;
  device::check(cudaGetDriverEntryPointByVersion("cuGraphKernelNodeGetParams", &function, 12000, cudaEnableDefault),
                "find a function of the driver");
  const auto get_params = reinterpret_cast<decltype(&cuGraphKernelNodeGetParams)>(function);
  std::vector<unsigned> blocks;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    device::check(cudaGraphNodeGetType(node, &type), "look at a node");
    if (type != cudaGraphNodeTypeKernel) continue;
    CUDA_KERNEL_NODE_PARAMS kernel{};
    if (get_params(node, &kernel) != CUDA_SUCCESS) throw std::runtime_error("can't look at a kernel");
    blocks.push_back(kernel.gridDimX * kernel.gridDimY * kernel.gridDimZ);
  }
  return blocks;
}

}  // namespace shunt::test
