#include "shunt/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "shunt/error.hpp"
#include "support/require_error.hpp"

namespace shunt {
namespace {

/// Sets variables for one test; every launch variable not named is unset.
class EnvironmentTest : public testing::Test {
 protected:
  static constexpr const char* kAll[] = {"SHUNT_LIVENESS_MS",
                                         "SHUNT_DEADLINE_MS",
                                         "SHUNT_JOIN_MS",
                                         "SHUNT_VIRTUAL_NODES",
                                         "SHUNT_RANK",
                                         "SHUNT_WORLD_SIZE",
                                         "SHUNT_JOB",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "PMIX_NAMESPACE",
                                         "PMIX_RANK",
                                         "SLURM_PROCID",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_STEP_NUM_NODES",
                                         "SLURM_JOB_ID",
                                         "SLURM_STEP_ID",
                                         "RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_WORLD_SIZE",
                                         "SHUNT_JOB_TOKEN",
                                         "LOCAL_RANK",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "SHUNT_INTERFACE"};

  void SetUp() override {
    for (const char* name : kAll) unsetenv(name);
  }
  static void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
};

TEST_F(EnvironmentTest, TakesAddressesInBracketsAsUrlsHaveThem) {
  for (const auto& [given, address] : {std::pair("[::1]", "::1"),
                                       {"::1", "::1"},
                                       {"host", "host"},
                                       {"[", "["},
                                       {"[fd00::1],10.0.0.1,[fd00::2]", "fd00::1,10.0.0.1,fd00::2"}}) {
    set({{"MASTER_ADDR", given}});
    EXPECT_EQ(Environment::read().network.master_address, address);
  }
  set({{"SHUNT_INTERFACE", "[::1]"}});
  EXPECT_EQ(Environment::read().network.interface, "::1");
}

TEST_F(EnvironmentTest, HasNoLaunchWithoutALauncher) { EXPECT_FALSE(Environment::read().launch.has_value()); }

// Ranks that miss a variable would each be a world of their own.
TEST_F(EnvironmentTest, RefusesHalfALaunch) {
  const auto expect_refusal = [&](const std::map<std::string, std::string>& variables, const std::string& text) {
    SetUp();
    set(variables);
    test::require_error([] { (void)Environment::read(); }, ErrorCode::invalid_argument, text);
  };
  expect_refusal({{"SHUNT_RANK", "0"}}, "SHUNT_RANK is set, but SHUNT_WORLD_SIZE is not");
  expect_refusal({{"SHUNT_RANK", ""}, {"SHUNT_WORLD_SIZE", "2"}}, "SHUNT_WORLD_SIZE is set, but SHUNT_RANK is not");
  expect_refusal({{"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, "RANK is set, but WORLD_SIZE is not");
  SetUp();
  set({{"RANK", "1"}});
  EXPECT_FALSE(Environment::read().launch.has_value());
}

TEST_F(EnvironmentTest, ReadsEveryLaunchConvention) {
  const std::map<std::string, std::map<std::string, std::string>> conventions = {
      {"shunt", {{"SHUNT_RANK", "1"}, {"SHUNT_WORLD_SIZE", "3"}, {"SHUNT_JOB", "j"}}},
      {"mpirun", {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"PMIX_NAMESPACE", "j"}}},
      {"srun", {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}},
      {"env", {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}},
  };
  for (const auto& [name, variables] : conventions) {
    SetUp();
    set(variables);
    const auto launch = Environment::read().launch;
    ASSERT_TRUE(launch.has_value()) << name;
    EXPECT_EQ(launch->convention, name);
    EXPECT_EQ(launch->rank, 1);
    EXPECT_EQ(launch->size, 3);
    EXPECT_EQ(launch->local_size, 3);
  }
}

// Only PyTorch's launchers give the number of ranks on a machine.
TEST_F(EnvironmentTest, ATokenMeansSeveralMachinesIfTheLauncherGivesNoLocalSize) {
  set({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"SHUNT_JOB_TOKEN", "t"}});
  EXPECT_NE(Environment::read().launch->local_size, 3);
  set({{"LOCAL_WORLD_SIZE", "3"}});
  EXPECT_EQ(Environment::read().launch->local_size, 3);
}

TEST_F(EnvironmentTest, FindsPmixOnlyWhereItCountsTheRanksAsTheLauncherDoes) {
  const auto has_pmix = [] { return Environment::read().launch->has_pmix; };
  set({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"PMIX_NAMESPACE", "j"}});
  EXPECT_FALSE(has_pmix());
  set({{"PMIX_RANK", "1"}});
  EXPECT_TRUE(has_pmix());
  set({{"PMIX_RANK", "0"}});
  EXPECT_FALSE(has_pmix());
  set({{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_FALSE(has_pmix()) << "several ranks of torchrun share its PMIX_RANK";
}

TEST_F(EnvironmentTest, PrefersTheInnermostLauncher) {
  set({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}});
  set({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  const auto launch = Environment::read().launch;
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->convention, "env");
  EXPECT_EQ(launch->size, 4);
}

TEST_F(EnvironmentTest, ABatchScriptIsNotARank) {
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});
  EXPECT_FALSE(Environment::read().launch.has_value());
}

TEST_F(EnvironmentTest, ReadsStepsOfSeveralNodes) {
  set({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_JOB_ID", "7"}});
  set({{"SLURM_STEP_ID", "0"}});
  EXPECT_NE(Environment::read().launch->local_size, 4);
}

TEST_F(EnvironmentTest, RanksWithoutAJobAreRefused) {
  set({{"SHUNT_RANK", "0"}, {"SHUNT_WORLD_SIZE", "2"}});
  try {
    Environment::read();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("SHUNT_JOB"));
  }
}

TEST_F(EnvironmentTest, NamesTheVariableThatCantBeRead) {
  for (const char* value : {"soon", "-1", "0", "1e3", "99999999999999999999"}) {
    set({{"SHUNT_LIVENESS_MS", value}});
    try {
      Environment::read();
      FAIL() << "accepted " << value;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("SHUNT_LIVENESS_MS"));
      EXPECT_THAT(error.what(), testing::HasSubstr(value));
    }
  }
}

TEST_F(EnvironmentTest, RefusesAWorldLargerThanAMachineSupports) {
  for (const char* size : {"4097", "100000", "2147483648"}) {
    set({{"SHUNT_RANK", "0"}, {"SHUNT_WORLD_SIZE", size}, {"SHUNT_JOB", "j"}});
    try {
      Environment::read();
      FAIL() << "accepted " << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr("SHUNT_WORLD_SIZE='" + std::string(size) + "'"));
      EXPECT_THAT(error.what(), testing::HasSubstr("1 to 4096"));
    }
  }
}

TEST_F(EnvironmentTest, RanksOfAMachineTakeItsInterfacesInTurn) {
  set({{"RANK", "5"}, {"WORLD_SIZE", "6"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"SHUNT_INTERFACE", "a,bb,c"}});
  for (const auto& [local_rank, interface] :
       std::map<std::string, std::string>{{"0", "a"}, {"1", "bb"}, {"2", "c"}, {"4", "bb"}}) {
    set({{"LOCAL_RANK", local_rank}});
    EXPECT_EQ(Environment::read().network.interface, interface);
    EXPECT_EQ(Environment::read().network.devices, interface);
  }
  unsetenv("SHUNT_INTERFACE");
  EXPECT_EQ(Environment::read().network.interface, "");
}

TEST_F(EnvironmentTest, RejectsARankOutsideTheWorld) {
  set({{"RANK", "3"}, {"WORLD_SIZE", "3"}});
  EXPECT_THROW(Environment::read(), Error);
}

}  // namespace
}  // namespace shunt
