#include "support/cuda/launches.hpp"

#include "core/cuda/captured_graph.hpp"

namespace shunt::test {

std::vector<unsigned> blocks_of_kernels(Stream stream, const std::function<void()>& work) {
  const auto graph = device::capture(stream, work);
  std::size_t num_nodes = 0;
  device::check(cudaGraphGetNodes(graph.get(), nullptr, &num_nodes), "count nodes");
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  device::check(cudaGraphGetNodes(graph.get(), nodes.data(), &num_nodes), "list nodes");
  std::vector<unsigned> blocks;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    device::check(cudaGraphNodeGetType(node, &type), "look at a node");
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams kernel{};
    device::check(cudaGraphKernelNodeGetParams(node, &kernel), "look at a kernel");
    blocks.push_back(kernel.gridDim.x * kernel.gridDim.y * kernel.gridDim.z);
  }
  return blocks;
}

}  // namespace shunt::test
