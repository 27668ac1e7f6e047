#include "transport/far/make_carrier.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace shunt::far {
namespace {

namespace fs = std::filesystem;

/// A machine as its system describes it: mlx5_0 with an active port behind eth1, mlx5_1 with none, eth0 without RDMA.
class RdmaDevices : public ::testing::Test {
 protected:
  RdmaDevices() {
    add_port("mlx5_0", "1", "4: ACTIVE");
    add_port("mlx5_1", "1", "1: DOWN");
    fs::create_directories(classes_ / "net/eth0");
    fs::create_directories(classes_ / "net/eth1/device/infiniband/mlx5_0");
    fs::create_directories(classes_ / "net/eth2/device/infiniband/mlx5_1");
  }
  ~RdmaDevices() override { fs::remove_all(classes_); }

  void add_port(const std::string& device, const std::string& port, const std::string& state) {
    const fs::path folder = classes_ / "infiniband" / device / "ports" / port;
    fs::create_directories(folder);
    std::ofstream(folder / "state") << state << "\n";
  }

  fs::path classes_ = fs::temp_directory_path() / ("shunt_rdma_" + std::to_string(getpid()));
};

TEST_F(RdmaDevices, AreThoseWithAnActivePort) { EXPECT_EQ(rdma_devices("", classes_), "mlx5_0:1"); }

TEST_F(RdmaDevices, AreFoundBehindInterfaces) {
  EXPECT_EQ(rdma_devices("eth1", classes_), "mlx5_0:1");
  EXPECT_EQ(rdma_devices("eth0", classes_), "");
  EXPECT_EQ(rdma_devices("eth2", classes_), "") << "its port is down";
  EXPECT_EQ(rdma_devices("eth0,eth1", classes_), "mlx5_0:1");
}

TEST_F(RdmaDevices, AreTakenAsTheyAreNamed) {
  EXPECT_EQ(rdma_devices("mlx5_0", classes_), "mlx5_0:1");
  EXPECT_EQ(rdma_devices("mlx5_1:1", classes_), "mlx5_1:1") << "a named port is taken though it is down";
  EXPECT_EQ(rdma_devices("10.0.0.1", classes_), "");
}

TEST_F(RdmaDevices, AreNoneWhereTheSystemListsNone) { EXPECT_EQ(rdma_devices("", classes_ / "nothing"), ""); }

}  // namespace
}  // namespace shunt::far
