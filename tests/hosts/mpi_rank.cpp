// A rank of a program that uses MPI besides shunt. Prints its place in several worlds, then checks that MPI still
// works.
#include <fmt/format.h>
#include <mpi.h>

#include <string_view>

#include "shunt/error.hpp"
#include "shunt/mpi_bootstrap.hpp"
#include "shunt/world.hpp"

namespace {

void print_place(shunt::World world) {
  world.barrier();
  fmt::print("rank {} of {} on node {}\n", world.rank().value, world.size(), world.topology().node(world.rank()).value);
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_bootstrap = argc > 1 && std::string_view(argv[1]) == "mpi-bootstrap";
  const bool is_mpi_first = has_bootstrap || (argc > 1 && std::string_view(argv[1]) == "mpi-first");
  if (is_mpi_first) MPI_Init(&argc, &argv);
  try {
    if (has_bootstrap) {
      // Communicators of even and of odd ranks, in reverse order.
      int rank = 0, size = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &rank);
      MPI_Comm_size(MPI_COMM_WORLD, &size);
      MPI_Comm half = MPI_COMM_NULL;
      MPI_Comm_split(MPI_COMM_WORLD, rank % 2, size - rank, &half);
      for (MPI_Comm communicator : {MPI_COMM_WORLD, half}) {
        shunt::MpiBootstrap bootstrap(communicator);
        print_place(shunt::World::create(bootstrap));
      }
      MPI_Comm_free(&half);
    } else {
      print_place(shunt::World::from_environment());
      print_place(shunt::World::from_environment());
      if (!is_mpi_first) MPI_Init(&argc, &argv);
      print_place(shunt::World::from_environment());
    }
  } catch (const shunt::Error& error) {
    fmt::print("{}: {}\n", shunt::to_string(error.code()), error.what());
    return 3;
  }
  int rank = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) fmt::print("sum {}\n", sum);
  MPI_Finalize();
  return 0;
}
