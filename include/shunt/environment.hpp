// Every environment variable that shunt reads, in one place.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "shunt/language.hpp"

namespace shunt {

struct Environment {
  /// SHUNT_LIVENESS_MS: a peer that does not answer a ping for this long counts as lost. Default 5000.
  std::chrono::milliseconds liveness{5000};
  /// SHUNT_DEADLINE_MS: an operation that takes longer fails. Slow compute is not death: minutes. Default 600000.
  std::chrono::milliseconds deadline{600'000};
  /// SHUNT_JOIN_MS: how long ranks wait for each other when a world is made. Default 60000.
  std::chrono::milliseconds join{60'000};
  /// SHUNT_VIRTUAL_NODES: declare this many nodes on one host. Default 1.
  std::int32_t virtual_nodes = 1;
  /// SHUNT_TOPOLOGY: a file that says which ranks form which node (Topology::from_file). Default: none; nodes are
  /// hosts, or on one host SHUNT_VIRTUAL_NODES.
  std::string topology_file;
  /// SHUNT_SLICE_BYTES, SHUNT_RING_DEPTH: between nodes rows travel in slices of at most so many bytes, at most so many
  /// of them on their way between two ranks. Speed and memory depend on them, results don't. Defaults 131072, and 0,
  /// which is 16 for one or two peers and fewer for more, at least 4.
  std::int32_t slice_bytes = 128 << 10;
  std::int32_t ring_depth = 0;

  /// CUDA_DEVICE_MAX_CONNECTIONS: queues between a process and a device. Streams that share one can hold each other up,
  /// so engines refuse to wait on more streams than that. Default 8, as CUDA's.
  std::int32_t device_connections = 8;
  static constexpr std::int32_t kMostDeviceConnections = 32;

  /// How ranks of several hosts find each other and prove that they belong together. Address, port and token may be
  /// left open where the launcher offers PMIx.
  struct Network {
    /// MASTER_ADDR, and SHUNT_MASTER_PORT or else MASTER_PORT: where rank 0 listens, under every launcher; of several
    /// addresses, separated by commas, the first that answers. Brackets, as in "[::1]", are left out. Torchrun's own
    /// store holds MASTER_PORT; there rank 0 takes the first free one of the 16 ports after it.
    std::string master_address;
    std::int32_t master_port = 0;
    bool has_own_port = false;  ///< SHUNT_MASTER_PORT is set
    /// SHUNT_JOB_TOKEN: a secret of the job's ranks. It is never sent. Traffic is not encrypted.
    std::string token;
    /// SHUNT_INTERFACE: listen at, and connect from, the address of this interface only (by name, or the address). Of
    /// several, separated by commas, a host's ranks take one each, in turn.
    std::string interface;
    /// SHUNT_PORT_RANGE: "first-last" for connections between ranks, and for rank 0's port where MASTER_PORT is open.
    std::string port_range;
    /// SHUNT_NETWORK: "tcp", or "ucx"; by default UCX where the host has RDMA, and TCP elsewhere. All ranks the same.
    std::string kind;
    /// UCX_TLS is set, which says by which means UCX moves bytes; without it by all but shared memory.
    bool has_ucx_transports = false;
    /// SHUNT_NET_DEVICES: the interfaces (over TCP) or devices (as UCX names them) that every rank uses at once; by
    /// default the one of SHUNT_INTERFACE.
    std::string devices;
    /// SHUNT_SEND_BUFFER_BYTES: of what is sent over TCP, what the system holds per connection; 0 is as much as it
    /// likes. What is there delays what comes later. Default 65536.
    std::int32_t send_buffer_bytes = 64 << 10;
  };
  Network network;

  /// How the job was launched, from the first convention found, the most explicit first: SHUNT_RANK with
  /// SHUNT_WORLD_SIZE and SHUNT_JOB; RANK with WORLD_SIZE, MASTER_ADDR and MASTER_PORT; Open MPI's mpirun; Slurm's
  /// srun.
  struct Launch {
    std::int32_t rank = 0;
    std::int32_t size = 1;
    std::int32_t local_size = 1;     ///< ranks on this host; where the launcher does not say: equal to size, or with
                                     ///< SHUNT_JOB_TOKEN unknown, then 1
    std::int32_t local_rank = 0;     ///< among them; 0 where the launcher does not say
    std::string job;                 ///< the same for all ranks of the job and for no other job on this host; under
                                     ///< torchrun another one after each restart
    std::string convention;          ///< "shunt", "mpirun", "srun" or "env", for messages
    bool has_pmix = false;           ///< the launcher passes on what a rank publishes (PMIX_NAMESPACE, PMIX_RANK)
    bool holds_master_port = false;  ///< the launcher itself listens there, as torchrun does (TORCHELASTIC_RUN_ID)
  };
  std::optional<Launch> launch;

  /// Throws Error(invalid_argument) that names the variable when a value can't be read.
  static Environment read();

  /// The time limit itself, cut to the 24 days that clocks can count in any unit. Throws Error(invalid_argument) unless
  /// it is positive.
  static std::chrono::milliseconds checked(const char* name, std::chrono::milliseconds limit);
};

}  // namespace shunt
