// A made-up machine: the files of /proc, /sys and /dev that it tells of itself in.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/scratch_folder.hpp"

namespace shunt::bench::selftest::test {

class SystemTree {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = make_folder_of(path);
    std::ofstream(file) << text << '\n';
  }
  void make_folder(const std::string& path) { std::filesystem::create_directories(root_.file(path)); }
  /// target: from the root of the tree.
  void link(const std::string& path, const std::string& target) {
    std::filesystem::create_directory_symlink(root_.file(target), make_folder_of(path));
  }
  /// A device of a PCI bus, as /sys has it.
  void add_pci_device(const std::string& path, const std::string& numa_node, const std::string& vendor = "0x15b3",
                      const std::string& device_class = "0x020000") {
    const std::string folder = "sys/devices/" + path;
    write(folder + "/numa_node", numa_node);
    write(folder + "/vendor", vendor);
    write(folder + "/class", device_class);
    link("sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1), folder);
  }
  [[nodiscard]] std::filesystem::path root() const { return root_.file(""); }

 private:
  std::filesystem::path make_folder_of(const std::string& path) {
    const std::filesystem::path file = root_.file(path);
    std::filesystem::create_directories(file.parent_path());
    return file;
  }

  shunt::test::ScratchFolder root_;
};

}  // namespace shunt::bench::selftest::test
