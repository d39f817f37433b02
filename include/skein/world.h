// The workers of one training run, as one of them sees it.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "skein/error.h"
#include "skein/group.h"
#include "skein/workers.h"

namespace skein {

// How a worker joins the others. All workers of a run have the same.
struct JoinOptions {
  // How workers reach each other. "auto": what the launcher says in SKEIN_FABRIC (as skein run
  // --fabric does), else "local" on one host; between hosts "nccl" where all workers have it and
  // compute on GPUs, else "tcp". "local": processes of one host. "tcp": any hosts; where the build
  // has it. "mpi": what mpirun or srun has started; where the build has MPI.
  // "nccl": GPUs, by NVIDIA's NCCL where that is found; all else goes as with "local" on one host,
  // as with "tcp" between hosts.
  std::string fabric = "auto";

  // The longest silence of a peer that an operation waits through; and the longest wait for all to
  // join. Messages that move and steps that are made end a silence.
  std::chrono::nanoseconds patience = std::chrono::seconds(60);

  // For tcp. HOST:PORT where rank 0 listens and the others look for it. Empty: what the launcher's
  // environment says (skein run; MASTER_ADDR and MASTER_PORT).
  std::string rendezvous = {};

  // For tcp. A file of at least 16 bytes that all workers of the run know and nobody else can read.
  // Empty: the one that SKEIN_SECRET_FILE names, as skein run sets it.
  std::string secret_file = {};

  // For tcp, in place of a secret: files in PEM with this worker's certificate, its key, and the
  // authority whose certificates it trusts. Whoever has a certificate of that authority is a
  // worker. All three or none; those that are empty: SKEIN_TLS_CERT, SKEIN_TLS_KEY, SKEIN_TLS_CA.
  std::string tls_cert_file = {};
  std::string tls_key_file = {};  // as tls_cert_file
  std::string tls_ca_file = {};   // as tls_cert_file

  // For tcp. False: workers still show each other the secret or certificates, but what they send
  // then can be read and changed on its way. For networks that nobody else is on.
  bool encrypt = true;

  // For tcp. Workers that share a host reach each other through its memory, and collectives run
  // inside hosts and between them; false: over all workers, through the network.
  bool two_levels = true;

  // Makes one host behave like hosts on a slow network: every worker has a full-duplex link of this
  // many bytes per second (0: unlimited).
  double emulate_bytes_per_second = 0;

  // The same for latency: every message takes this much longer.
  std::chrono::nanoseconds emulate_latency{0};

  // Threads on which this process updates, sums and copies large vectors, for its life. 0: the
  // cores that it may use, divided by the workers of this host. Results do not depend on it.
  int threads = 0;
};

// All workers of a run, and this one's place among them; skein/workers.h says what they do
// together. Move-only. A Distributed or a Group keeps its world going, whatever becomes of this
// object. Not thread-safe.
class World : public Workers {
 public:
  // Joins the run that the launcher's environment describes (skein run, torchrun, mpirun, srun) and
  // blocks until all its workers are there. Without a launcher: a world of one. Throws ConfigError
  // for an environment that is set only in part, IoError when a worker does not come.
  // Called by: all workers, before anything else, once.
  static World join(const JoinOptions& options = {});

  // The body of a main(): joins, calls `body`, and returns what main() should: 0, 2 after a
  // ConfigError, 1 after any other exception. That is printed, and the other workers get IoError
  // with its text; one that leaves a main() without this function is told to them without a text,
  // since nobody can read it while it passes through destructors.
  //   int main() { return skein::World::run([](skein::World& world) { train(world); }); }
  // Called by: all workers, before anything else, once.
  static int run(const std::function<void(World&)>& body, const JoinOptions& options = {});

  // The other one is left without a world: it may only be destroyed or assigned to.
  World(World&&) noexcept;

  // The same; what this one had ends as in the destructor.
  World& operator=(World&&) noexcept;

  ~World();  // peers that still wait for this worker get IoError, once no Distributed is left

  // How workers reach each other, such as "local".
  // Called by: each worker for itself, at any time, at its own pace.
  std::string fabric() const;

  // The rank that speaks and writes files for all: 0, or the lowest that lives where losses are
  // tolerated and rank 0 was lost before the last call of all workers.
  // Called by: each worker for itself, at any time, at its own pace.
  int leader() const;

  // The leader runs `body`; when this returns it has, or has been lost and the next one has. What
  // `body` throws all workers throw: ConfigError where it was one, else Error. `name` appears in
  // errors.
  // Called by: all workers, at any time, after the same step.
  void once(const std::function<void()>& body, const std::string& name = {});

  // The workers of these ranks, which may be in any order. All workers of the world call it, with
  // the same ranks: ConfigError for ranks that there are not or that come twice. At most about 2000
  // groups in a run.
  // Called by: all workers, at any time, after the same step.
  Group group(const std::vector<int>& ranks);

  // All who pass the same colour. All workers of the world call it.
  // Called by: all workers, at any time, after the same step.
  Group split(int colour);

  // Tells the other workers why this one is about to end; they get IoError with this text, in one
  // line of at most 400 bytes. From then on this worker's runs make no more steps, and their
  // destructors do not wait for a last update.
  // Called by: any worker, at any time, at its own pace.
  void fail(const std::string& reason);

  // The same with the text of the error that ends this worker. Of an IoError the launcher's report
  // says whose loss it was, too.
  // Called by: any worker, at any time, at its own pace.
  void fail(const std::exception& error);

  // Calls `ask` about every 100 ms while this worker waits in a call of this world, its groups or
  // its runs, on the thread that waits: so that a program can look whether its user wants it to
  // end. An exception that `ask` throws comes out of the call, and its text goes to the other
  // workers as in fail(). An empty function ends it.
  // Called by: each worker for itself, at any time, at its own pace.
  void on_wait(std::function<void()> ask);

  class Impl;

  // Internal: the inside, for Skein's other layers.
  Impl& impl() const { return *impl_; }

  // Internal: another World with the same inside.
  World share() const { return World(impl_); }

 private:
  explicit World(std::shared_ptr<Impl> impl);
  Group make_group(std::vector<int> ranks);
  std::shared_ptr<Impl> impl_;
};

}  // namespace skein
