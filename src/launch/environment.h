// Which launcher started this process, and as which worker.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/getenv.h"

namespace skein {

// One worker's place in its run.
struct Placement {
  int rank = 0;
  int size = 1;
  int local_rank = 0;      // among the workers of this host
  int local_size = 1;      // how many workers this host has
  std::string launcher;    // "skein", "torchrun", "openmpi", "mpich" or "slurm"
  std::string run_id;      // the same on all ranks of one run, different between runs on a host
  std::string rendezvous;  // HOST:PORT for rank 0 to listen at, where the launcher names one
};

// The first host of a list as Slurm writes it, such as node[07-12,20],login: node07.
std::string first_host(std::string_view hostlist);

// The first of these that has left its variables decides; the inner launcher comes before the outer
// one that may surround it (a batch script under Slurm calls mpirun, mpirun calls skein run):
//
//   1. skein run  SKEIN_RANK SKEIN_SIZE SKEIN_RUN [SKEIN_LOCAL_RANK SKEIN_LOCAL_SIZE
//                 SKEIN_RENDEZVOUS]
//   2. torchrun   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT [LOCAL_RANK LOCAL_WORLD_SIZE
//                 TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_USE_AGENT_STORE]
//   3. Open MPI   OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE, PMIX_NAMESPACE or
//                 OMPI_MCA_ess_base_jobid [OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE]
//   4. MPICH      PMI_RANK PMI_SIZE [MPI_LOCALRANKID MPI_LOCALNRANKS]; also Intel MPI, MVAPICH.
//                 It names its runs nowhere, so the run is known by `parent`, Hydra's proxy: a
//                 script between the two must `exec` the program.
//   5. Slurm      SLURM_PROCID SLURM_JOB_ID SLURM_STEP_ID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS
//                 [SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE with SLURM_NODEID;
//                 SLURM_STEP_NODELIST, SLURM_RESTART_COUNT]
//
// Those in brackets may be missing: then all workers are taken to be on this host. A job's script
// may have set WORLD_SIZE and no RANK, for programs that read both: that is not torchrun.
//
// The rendezvous is MASTER_ADDR:MASTER_PORT under torchrun; where torchrun itself listens there,
// the port from 20000 to 29999 that ends like the next one. The last three launchers name none;
// their scripts may: SKEIN_RENDEZVOUS, or MASTER_ADDR and MASTER_PORT. Without these, it is under
// Slurm the first node of the step, and a port from 20000 to 29999 that follows from the numbers of
// job and step.
//
// Nullopt: nobody did, this process is alone. Under Slurm that includes what srun did not start
// (the shell of salloc, a batch script: they have SLURM_NTASKS, but no step) and a step of one
// task, as of srun --pty bash: whoever types `skein train --workers 4` there wants four
// workers.
//
// Throws ConfigError, naming the variables, when the deciding launcher's are half set, are not
// numbers, or say rank >= size.
std::optional<Placement> detect(const Getenv& getenv, pid_t parent = getppid());

}  // namespace skein
