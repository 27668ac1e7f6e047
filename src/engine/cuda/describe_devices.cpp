#include "engine/cuda/library.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/cuda/check.hpp"

namespace shunt::device {
namespace {

std::string name_of_mode(int mode) {
  switch (mode) {
    case cudaComputeModeProhibited: return "prohibited";
    case cudaComputeModeExclusive:
    case cudaComputeModeExclusiveProcess: return "exclusive_process";
    default: return "default";
  }
}

std::string pci_address(int index) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index), "look where a device is");
  std::string address = text.data();
  std::ranges::transform(address, address.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address;
}

std::vector<int> peers_of(int index, int count) {
  std::vector<int> peers;
  for (int other = 0; other < count; ++other) {
    int can = 0;
    if (other != index) check(cudaDeviceCanAccessPeer(&can, index, other), "look at a device's peers");
    if (can != 0) peers.push_back(other);
  }
  return peers;
}

DeviceFacts describe(int index, int count) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "look at a device");
  DeviceFacts facts{.name = properties.name,
                    .pci_address = pci_address(index),
                    .memory_bytes = properties.totalGlobalMem,
                    .compute_major = properties.major,
                    .compute_minor = properties.minor,
                    .num_sms = properties.multiProcessorCount};
  int mode = 0;
  check(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index), "look at a device");
  facts.compute_mode = name_of_mode(mode);
  facts.is_mig = facts.name.find(" MIG ") != std::string::npos;  // so CUDA calls parts
  facts.peers = peers_of(index, count);
  check(cudaDriverGetVersion(&facts.driver_version), "ask for the driver's version");
  check(cudaRuntimeGetVersion(&facts.runtime_version), "ask for the runtime's version");
  return facts;
}

}  // namespace

std::vector<DeviceFacts> describe_devices() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "find a device");
  std::vector<DeviceFacts> devices;
  for (int index = 0; index < count; ++index) devices.push_back(describe(index, count));
  return devices;
}

}  // namespace shunt::device
