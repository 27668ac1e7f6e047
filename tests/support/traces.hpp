// What a job could leave behind on the machine.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace shunt::test {

/// Children and descriptors of this process, and everything named after shunt that other processes can see: files in
/// /dev/shm and /tmp, abstract sockets.
std::set<std::string> find_traces();

/// Fails the test if there is a new trace that does not vanish within some seconds. Other jobs on the machine may come
/// and go meanwhile.
void expect_no_new_traces(const std::set<std::string>& before);

/// Every test of this suite leaves nothing behind.
class LeavesNoTrace : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

 private:
  std::set<std::string> before_;
};

}  // namespace shunt::test
