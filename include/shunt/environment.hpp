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
  /// SHUNT_DEADLINE_MS: an operation that takes longer fails. Generous, because a slow rank is not a lost one. Default
  /// 600000.
  std::chrono::milliseconds deadline{600'000};
  /// SHUNT_JOIN_MS: how long ranks wait for each other when a world is made. Default 60000.
  std::chrono::milliseconds join{60'000};
  /// SHUNT_VIRTUAL_NODES: declares this many nodes on one machine; ignored when ranks are on several. Default 1.
  std::int32_t virtual_nodes = 1;
  /// SHUNT_TOPOLOGY: a file that assigns ranks to nodes (Topology::from_file). Default: none; each machine is a node,
  /// or a single machine is divided into SHUNT_VIRTUAL_NODES.
  std::string topology_file;
  /// SHUNT_SLICE_BYTES, SHUNT_RING_DEPTH: upper bounds on the bytes of a slice between nodes, and on the slices in
  /// flight per operation between two ranks. They affect speed and memory, not results. Defaults: 131072, and 0, which
  /// selects 16 for one or two peers and fewer, at least 4, for more peers.
  std::int32_t slice_bytes = 128 << 10;
  std::int32_t ring_depth = 0;

  /// CUDA_DEVICE_MAX_CONNECTIONS: queues between a process and a device. Streams that share a queue can block each
  /// other, so engines refuse to wait on more streams than this. Default 8, as in CUDA.
  std::int32_t device_connections = 8;
  static constexpr std::int32_t kMostDeviceConnections = 32;

  /// How ranks of several machines find and authenticate each other. Address, port and token may be empty if the
  /// launcher offers PMIx.
  struct Network {
    /// MASTER_ADDR, and SHUNT_MASTER_PORT or else MASTER_PORT: where rank 0 listens, under every launcher. MASTER_ADDR
    /// may list several addresses, separated by commas; the first that answers is used. Brackets, as in "[::1]", are
    /// removed. Under torchrun, whose own store occupies MASTER_PORT, rank 0 takes the first free port of the 16 after
    /// it.
    std::string master_address;
    std::int32_t master_port = 0;
    bool has_own_port = false;  ///< SHUNT_MASTER_PORT is set
    /// SHUNT_JOB_TOKEN: a secret shared by the job's ranks. It is never sent. Traffic is not encrypted.
    std::string token;
    /// SHUNT_INTERFACE: the only interface (a name or an address) to listen at and connect from. Given several,
    /// separated by commas, the ranks of a machine use one each, in turn.
    std::string interface;
    /// SHUNT_PORT_RANGE: "first-last", the ports for connections between ranks, and for rank 0 if MASTER_PORT is not
    /// set.
    std::string port_range;
    /// SHUNT_NETWORK: "tcp" or "ucx"; by default UCX on machines with RDMA, else TCP. The same on all ranks.
    std::string kind;
    /// UCX_TLS is set, and selects UCX's transports; otherwise all but shared memory are used.
    bool has_ucx_transports = false;
    /// SHUNT_NET_DEVICES: the interfaces (for TCP) or devices (UCX's names) that every rank uses together; by default
    /// that of SHUNT_INTERFACE.
    std::string devices;
    /// SHUNT_SEND_BUFFER_BYTES: send buffer of the operating system per TCP connection; 0 leaves its size to the
    /// system. Buffered bytes delay what is sent after them. Default 65536.
    std::int32_t send_buffer_bytes = 64 << 10;
    /// SHUNT_LINK_RATE: emulates a cluster on one machine. Every rank counts as a machine of its own, reached by TCP
    /// over the loopback interface (or SHUNT_INTERFACE), and may send this many bytes per second, an equal share to
    /// each other rank. The same on all ranks. Default 0: off.
    std::int64_t link_bytes_per_s = 0;
  };
  Network network;

  /// How the job was launched, by the first convention found, the most explicit first: SHUNT_RANK with SHUNT_WORLD_SIZE
  /// and SHUNT_JOB; RANK with WORLD_SIZE, MASTER_ADDR and MASTER_PORT; Open MPI's mpirun; Slurm's srun.
  struct Launch {
    std::int32_t rank = 0;
    std::int32_t size = 1;
    std::int32_t local_size = 1;  ///< ranks on this machine; if the launcher does not give it: `size`, or 1 (unknown)
                                  ///< with SHUNT_JOB_TOKEN
    std::int32_t local_rank = 0;  ///< index among them; 0 if the launcher does not give it
    std::string job;              ///< the same on all ranks of the job, and different for every other job on this
                                  ///< machine; torchrun changes it with each restart
    std::string convention;       ///< "shunt", "mpirun", "srun" or "env", for messages
    bool has_pmix = false;        ///< the launcher distributes what ranks publish (PMIX_NAMESPACE, PMIX_RANK)
    bool holds_master_port = false;  ///< the launcher itself listens at MASTER_PORT, as torchrun does
                                     ///< (TORCHELASTIC_RUN_ID)
  };
  std::optional<Launch> launch;

  /// Throws Error(invalid_argument) that names the variable if a value can't be parsed.
  static Environment read();

  /// The limit, capped at the 24 days that clocks can count in any unit. Throws Error(invalid_argument), with the name,
  /// unless it is positive.
  static std::chrono::milliseconds checked(const char* name, std::chrono::milliseconds limit);
};

}  // namespace shunt
