// The options of `shunt bench shuffle`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shunt/dtype.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/topology.hpp"

namespace shunt::bench {

/// The options --prune, --prune-by and --prune-level (shunt/pruning.hpp).
struct PruneRequest {
  std::optional<std::int32_t> limit;  ///< most ranks or nodes per token; nullopt: no pruning
  std::string by = "score";           ///< or similarity
  std::string level = "ranks";        ///< or nodes
};

struct ShuffleConfig {
  std::int32_t ranks = 2;
  std::int32_t local_ranks = 0;  ///< ranks on this machine; 0: all
  std::int32_t nodes = 1;
  std::int64_t tokens = 4096;  ///< per rank
  std::int64_t hidden = 2048;
  std::int32_t experts = 64;
  std::int32_t topk = 8;
  DType dtype = bf16;
  Layout layout = Layout::expert_major;
  std::string routing = "uniform";
  std::int64_t first_token = 0;  ///< of the trace that the first rank uses
  PruneRequest prune;
  std::string map_file;        ///< file of expert maps; empty: experts in order, spread evenly
  std::int32_t layer = 0;      ///< layer of map_file and of a trace
  std::string device = "cpu";  ///< or cuda
  std::string world = "shm";   ///< inproc, shm, or env (ranks started by a launcher)
  std::vector<std::string> systems = {"shunt", "mpi_alltoallv", "unfused", "wire"};
  int iterations = 10;
  int warmup = 2;
  int graph = 0;             ///< on a device: pairs per timed CUDA graph; 0: no graph
  bool low_latency = false;  ///< on a device: also time dispatch and combine separately in a graph
  std::int32_t sms = 0;      ///< on a device: multiprocessors for all ranks together; 0: all
  std::uint64_t seed = 1;
  bool progress = false;
  std::string json;                 ///< file to write; empty: none
  std::optional<ExpertMap> placed;  ///< the layer's map in map_file

  /// Reads map_file, if set. Throws Error(invalid_argument) that names the file and the problem.
  void load_map();
  /// The layer's map in a file of expert maps. Throws like load_map().
  [[nodiscard]] ExpertMap read_map(const std::string& file) const;
  /// Throws Error(invalid_argument) that names option and file if the map's ranks or experts differ from these.
  void check_map(const char* option, const std::string& file, const ExpertMap& map) const;
  /// Throws Error(invalid_argument) that names the option. Expects the map to be loaded.
  void check() const;

  [[nodiscard]] std::int32_t ranks_here() const { return local_ranks > 0 ? local_ranks : ranks; }
  [[nodiscard]] Topology topology() const { return Topology::virtual_nodes(ranks, nodes); }
  [[nodiscard]] ExpertMap map() const { return placed ? *placed : ExpertMap::contiguous(experts, ranks); }
  [[nodiscard]] std::int32_t most_local_experts() const;
  [[nodiscard]] DType expert_dtype() const { return dtype == fp8_e4m3 ? bf16 : dtype; }
  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(hidden) * size_of(dtype); }
  [[nodiscard]] bool wants(const std::string& system) const;
};

}  // namespace shunt::bench
