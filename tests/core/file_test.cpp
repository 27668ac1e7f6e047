// Files are complete or absent, whatever kind of path leads to them.
#include "core/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <span>
#include <thread>

#include "support/file_size_limit.hpp"
#include "support/require_error.hpp"
#include "support/scratch_folder.hpp"

namespace shunt::test {
namespace {

using ::testing::ElementsAre;

class Files : public testing::Test {
 protected:
  ScratchFolder folder_;
  std::string path_ = folder_.file("a");
};

TEST_F(Files, AreReplacedAsAWhole) {
  write_file(path_, "a long content");
  write_file(path_, "short");
  EXPECT_EQ(read_file(path_), "short");
  EXPECT_THAT(folder_.names(), ElementsAre("a"));
}

TEST_F(Files, AreReplacedThroughSymbolicLinks) {
  write_file(path_, "old");
  std::filesystem::create_symlink(path_, folder_.file("link"));
  write_file(folder_.file("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.file("link")));
  EXPECT_EQ(read_file(path_), "new");
}

TEST_F(Files, StayAsTheyWereWhereThereIsNoRoom) {
  write_file(path_, "old");
  {
    const FileSizeLimit limit(100);
    require_error([&] { write_file(path_, std::string(1000, 'x')); }, ErrorCode::system, "can't write " + path_);
  }
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_THAT(folder_.names(), ElementsAre("a"));
}

TEST_F(Files, VanishWithAProcessThatIsKilled) {
  if (const int unnamed = ::open(folder_.file("").c_str(), O_TMPFILE | O_RDWR, 0600); unnamed < 0)
    GTEST_SKIP() << "this file system has no files without a name";
  else
    close(unnamed);
  write_file(path_, "old");
  const pid_t child = fork();
  if (child == 0) {
    PartialFile file(path_);
    file.write_at(0, std::as_bytes(std::span("half", 4)));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_THAT(folder_.names(), ElementsAre("a"));
}

TEST_F(Files, PipesAreWrittenToAndNotReplaced) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { std::getline(std::ifstream(path_), received); });
  check_writable(path_);
  write_file(path_, "through the pipe\n");
  reader.join();
  EXPECT_EQ(received, "through the pipe");
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  require_error([&] { PartialFile{path_}; }, ErrorCode::invalid_argument, path_ + ": no regular file");
}

TEST_F(Files, FoldersAndLoopsOfLinksAreRefused) {
  std::filesystem::create_directory(path_);
  require_error([&] { check_writable(path_); }, ErrorCode::system, "can't write " + path_);
  require_error([&] { write_file(path_, "x"); }, ErrorCode::system, "can't write " + path_);
  const std::string loop = folder_.file("loop");
  std::filesystem::create_symlink(loop, loop);
  require_error([&] { check_writable(loop); }, ErrorCode::system, "can't write " + loop);
  require_error([&] { write_file(loop, "x"); }, ErrorCode::system, "can't write " + loop);
  require_error([&] { PartialFile{loop}; }, ErrorCode::system, "can't write " + loop);
}

TEST_F(Files, AreNeverAStandardStreamOfAProgramThatClosedItsOwn) {
  const std::string path = folder_.file("closed");
  EXPECT_EXIT(
      {
        for (const int standard : {0, 1, 2}) close(standard);
        PartialFile file(path);
        for (const int standard : {0, 1, 2}) {
          if (write(standard, "text", 4) >= 0) _exit(1);
        }
        file.complete();
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
}

TEST_F(Files, CheckingChangesNothing) {
  check_writable(path_);
  EXPECT_TRUE(folder_.names().empty());
  write_file(path_, "old");
  check_writable(path_);
  EXPECT_EQ(read_file(path_), "old");
}

}  // namespace
}  // namespace shunt::test
