// What there is to say of a CUDA device of this machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace shunt {

struct DeviceFacts {
  std::string name = {};
  std::string pci_address = {};  ///< as /sys/bus/pci/devices has it: "0000:1b:00.0"
  std::size_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  std::string compute_mode = {};  ///< default, exclusive_process or prohibited
  bool is_mig = false;            ///< a part of a GPU
  std::vector<int> peers = {};    ///< devices whose memory it can address
  // As CUDA numbers versions: 13000 is 13.0.
  int driver_version = 0;  ///< the newest CUDA that the driver can serve
  int runtime_version = 0;
};

}  // namespace shunt
