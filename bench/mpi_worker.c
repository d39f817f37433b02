/* One worker of MPI that times a collective; bench/hosts.py compiles and starts it.
 *
 * usage: mpi_worker BYTES ROUNDS OUT.json
 *
 * Vectors of 64 KiB and more: reduce-scatter and all-gather; smaller ones: all-reduce. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  const int bytes = atoi(argv[1]), rounds = atoi(argv[2]);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int share = bytes / 4 / size, count = share * size;
  float* data = calloc((size_t)count, sizeof(float));
  double* times = malloc((size_t)rounds * sizeof(double));
  for (int i = -3; i < rounds; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    if (bytes < 65536) {
      MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
      /* In place the sum comes to the front; it belongs to the rank's own share. */
      MPI_Reduce_scatter_block(MPI_IN_PLACE, data, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      if (rank > 0) memcpy(data + (size_t)rank * (size_t)share, data, (size_t)share * sizeof(float));
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, share, MPI_FLOAT, MPI_COMM_WORLD);
    }
    if (i >= 0) times[i] = MPI_Wtime() - begin;
  }
  qsort(times, (size_t)rounds, sizeof(double), by_value);
  if (rank == 0) {
    FILE* out = fopen(argv[3], "w");
    if (!out) MPI_Abort(MPI_COMM_WORLD, 1);
    fprintf(out, "{\"ms\": %.6f}\n", times[rounds / 2] * 1e3);
    fclose(out);
  }
  MPI_Finalize();
  return 0;
}
