// One worker of a simulated run: does in virtual time what a trainer does in real time.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "emulate/pace.h"
#include "sim/cluster.h"
#include "sim/compute.h"
#include "sim/objective.h"
#include "sim/scenario.h"
#include "strategy/driver.h"
#include "strategy/registry.h"

namespace skein::sim {

// How a worker's part ended.
struct Outcome {
  enum class Kind : std::uint8_t { running, completed, failed, crashed };
  Kind kind = Kind::running;
  std::string error;
  bool io_error = false;
  int peer = -1;  // whom an IoError names
  Time at{};
};

// What a worker did, waiting excluded from `busy`.
struct WorkerFigures {
  std::int64_t samples = 0, micro_batches = 0;
  std::int64_t steps = 0;      // that ended with an update
  Duration busy{}, exposed{};  // together all of its time, but for pauses by faults
  Time first_step = kNever, last_step{};
  std::vector<Duration> iterations;  // from one update to the next
};

class VirtualWorker {
 public:
  // Is told of every step and of the end, however it comes.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void stepped(int rank) = 0;
    virtual void ended(int rank) = 0;
  };

  // `replica` and all others outlive this.
  VirtualWorker(Cluster& cluster, int rank, const Scenario& scenario,
                const MakeStrategy& make_strategy, Replica& replica, Trace& trace,
                Listener& listener);
  ~VirtualWorker();
  VirtualWorker(const VirtualWorker&) = delete;
  VirtualWorker& operator=(const VirtualWorker&) = delete;

  // Starts the worker at the present time.
  void start();

  // Its process has ended, by a fault.
  void crashed();

  const Outcome& outcome() const { return outcome_; }
  const WorkerFigures& figures() const { return figures_; }
  const Worker& worker() const { return worker_; }
  Strategy& strategy() { return *strategy_; }
  Replica& replica() { return replica_; }
  Pace& pace() { return pace_; }

 private:
  Task<> whole();
  Task<> background();
  Task<> train();
  std::int64_t step_samples();
  Task<> step();
  Task<> forward(double factor, bool first_pass);
  Task<> backward(double factor, bool last_pass);
  Task<> compute(Duration work);
  void end(const Outcome& outcome);

  Time now() const { return cluster_.engine().now(); }

  Cluster& cluster_;
  int rank_;
  const Scenario& scenario_;
  Replica& replica_;
  WorkerTime time_;
  Listener& listener_;
  std::unique_ptr<Optimizer> optimizer_;
  Worker worker_;
  std::unique_ptr<Strategy> strategy_;
  Program program_;
  Driver driver_;
  ComputePlan compute_;
  std::vector<ComputePlan::Piece> pieces_;  // of this step, by bucket
  Pace pace_;
  Job main_;
  std::exception_ptr background_error_;
  Outcome outcome_;
  WorkerFigures figures_;
};

}  // namespace skein::sim
