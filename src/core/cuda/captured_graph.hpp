// A stream's work, captured once and replayed.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "core/cuda/check.hpp"

namespace shunt::device {

/// Captures the work that `work` puts on the stream. Capture ends even if `work` throws.
template <class Work>
std::shared_ptr<CUgraph_st> capture(cudaStream_t stream, const Work& work) {
  const auto end = [&] {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream, &graph);
    return std::pair(status, std::shared_ptr<CUgraph_st>(graph, [](cudaGraph_t ended) {
                       if (ended) (void)cudaGraphDestroy(ended);
                     }));
  };
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  try {
    work();
  } catch (...) {
    (void)end();
    (void)cudaGetLastError();  // the original exception is rethrown
    throw;
  }
  const auto [status, graph] = end();
  check(status, "capture");
  return graph;
}

class CapturedGraph {
 public:
  template <class Work>
  CapturedGraph(cudaStream_t stream, const Work& work) : stream_(stream) {
    const auto captured = capture(stream, work);
    cudaGraphExec_t graph = nullptr;
    check(cudaGraphInstantiate(&graph, captured.get(), 0), "make a graph");
    graph_ = {graph, [](cudaGraphExec_t ended) { (void)cudaGraphExecDestroy(ended); }};
    check(cudaGraphUpload(graph, stream), "upload a graph");
    check(cudaStreamSynchronize(stream), "upload a graph");
  }

  void replay() const { check(cudaGraphLaunch(graph_.get(), stream_), "replay a graph"); }

 private:
  cudaStream_t stream_;
  std::shared_ptr<CUgraphExec_st> graph_;
};

}  // namespace shunt::device
