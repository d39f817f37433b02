// A fabric made of another, in which collectives and exchanges on memory of devices go to NCCL.
//
// The other, `local` or `tcp`, is the control plane. It carries everything on memory of the host,
// messages that one worker sends another (those of a strategy that sends them at any time have no
// order that all ranks know, which NCCL needs; they go through the host), groups, and what ranks
// tell each other about operations of NCCL: when all have come to one, and in which order they are
// launched.
//
// An operation begins with a meeting on the control plane, which has its limit and names the peer
// it waits for. Rank 0 gives it a number when all have come, and every rank launches in the order
// of its numbers: so ranks may start operations of different channels in different orders, and none
// is ever launched that a rank has not come to. Then it is on the loop's queue, and has ended.
//
// From when the queue comes to it, a launched operation may take as long as its limit; while peers
// that it needs are lost, a moment. After that, and after errors of NCCL, the communicator is
// aborted on all ranks, whose queues go on; what they find in their buffers may be anything, and
// every later collective on devices throws IoError that says why.
//
// Sums are added in NCCL's order: the same on all ranks and in every run, and for all_reduce that
// of reduce_scatter followed by all_gather, but not the order of a ring of ours.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/forwarding.h"
#include "fabric/nccl/communicator.h"
#include "fabric/nccl/messages.h"

namespace skein {

class NcclFabric final : public ForwardingFabric, private Collectives {
 public:
  // Without `required` workers whose devices NCCL cannot join go through the control plane, and
  // why_staged() says so; with it meet_on_device() throws Error.
  NcclFabric(std::unique_ptr<Fabric> control, const nccl::Api& api, bool required);
  ~NcclFabric() override;

  std::string name() const override {
    return required_ || comm_ ? "nccl" : ForwardingFabric::name();
  }
  Traits traits() const override;
  std::uint64_t bytes_sent() const override {
    return ForwardingFabric::bytes_sent() + own_bytes_.load(std::memory_order_relaxed);
  }
  Task<> meet_on_device(Limit limit) override;
  std::string why_staged() const override;

 private:
  enum class Kind : std::uint32_t { reduce_scatter = 1, all_gather, all_reduce, broadcast };

  // What an operation puts on the queue: groups of NCCL's, and kernels of ours between them.
  struct Stage {
    std::function<void(nccl::Comm, nccl::Stream)> put;
    bool grouped = true;
  };
  using Stages = std::vector<Stage>;

  // What an operation that has been launched is known by until the queue has done it.
  struct InFlight {
    std::string what;
    Mark start, end;
    Duration allowance;           // from its start,
    bool by_silence;              // or from the last sign of progress
    std::optional<Time> started;  // when that was seen
  };

  struct Lost {
    std::string why;
    int peer;
    Time noticed;
  };

  Range part_of(std::size_t count, int rank) const override { return control_->part(count, rank); }
  Task<> run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_gather(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_reduce(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_combine(const Operation& operation, Span record, const Merge& merge) override;
  Task<> run_broadcast(const Operation& operation, Span buffer, int root) override;
  Task<> run_exchange(const Operation& operation, int peer, Span out, Span in) override;

  class Leading;
  class Launching;
  class Appointment;
  struct Answer;

  void count_sent(std::size_t bytes) { own_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // What the control plane sends of NCCL's operations is no values.
  void count_meeting(std::size_t bytes) { own_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  // Which memory goes to NCCL.
  bool takes(Span buffer) const {
    return comm_ && buffer.device.kind == Device::gpu && loop().queue() == &comm_->queue();
  }

  // Operations as stages (stages.cpp).
  bool equal_parts(std::size_t count) const;
  void sum_parts(nccl::Comm comm, nccl::Stream stream, Span buffer) const;
  void hand_out_parts(nccl::Comm comm, nccl::Stream stream, Span buffer) const;
  void add_scatter(Stages& stages, Span buffer, Wire wire);
  void add_gather(Stages& stages, Span buffer, Wire wire);
  void add_half_scatter(Stages& stages, Span buffer);
  void add_half_gather(Stages& stages, Span buffer);
  Span scratch(std::size_t count);
  std::size_t scattered_bytes(Span buffer, Wire wire) const;
  std::size_t gathered_bytes(Span buffer, Wire wire) const;

  // Meetings and the order of launches (order.cpp).
  Task<> on_control(const Operation& operation, Task<> body);
  Task<> collective(const Operation& operation, nccl::Announcement what, Stages stages);
  Task<> lead(const Operation& operation, nccl::Announcement what, const Stages& stages);
  Task<> follow(const Operation& operation, nccl::Announcement what, const Stages& stages);
  Task<> hear(const Operation& operation, int peer, const nccl::Announcement& own,
              nccl::Ticket& answer);
  Task<> hand_out(const Operation& operation, std::vector<nccl::Ticket>& tickets,
                  const Stages& stages, Duration longest);
  Task<> pledged(const Operation& operation, Task<> body);
  Task<> launch(const Operation& operation, std::uint64_t number, const Stages& stages,
                Duration allowance);
  Duration allowance(const Operation& operation) const;
  void check_not_over(const Operation& operation) const;

  // Exchanges (exchange.cpp).
  Task<> exchange_on_nccl(const Operation& operation, int peer, Span out, Span in);
  void grant(int one, int other, Channel channel);
  void granted(int partner, Channel channel, std::uint64_t number);

  // The watch over what has been launched (watch.cpp).
  void begin_to_watch();
  Task<> keep_watch();
  Task<> listen(int peer);
  Task<> settle();
  void look();
  void heed(int from, const nccl::Note& note);
  void lose(int peer, const std::string& why);
  void end_nccl(const std::string& why, int peer);
  void tell(int peer, nccl::Note note);
  void tell_others();

  // How all find each other (bootstrap.cpp).
  Task<> meet_on_nccl(Limit limit);
  Task<std::vector<Answer>> hear_all(Answer own, Limit limit);
  Task<std::string> join_all(Limit limit);
  void forget_communicator();

  std::unique_ptr<Fabric> control_;
  MessageCollectives by_messages_{*this};
  const nccl::Api& api_;
  bool required_;
  std::string why_not_;  // NCCL joins nobody's devices, where that is not required

  std::vector<std::uint64_t> numbers_;  // rank 0: of the next operation of each rank
  std::uint64_t launched_ = 0;          // operations of this rank
  std::map<std::pair<int, Channel>, std::deque<std::uint64_t>> granted_;
  std::map<std::pair<int, Channel>, int> given_up_;  // exchanges that a grant may yet come for
  Signal changed_;                                   // any of these, or over_
  std::atomic<std::uint64_t> own_bytes_{0};  // NCCL's, less what is sent to meet, modulo 2^64

  std::deque<InFlight> in_flight_;
  std::optional<Lost> lost_;
  std::vector<nccl::Note> untold_;
  std::string over_;  // why NCCL is, once it is
  int over_by_ = -1;
  Duration grace_{};
  Time asked_{};
  Signal attention_, settled_;

  std::unique_ptr<Memory> scratch_;
  std::unique_ptr<nccl::Communicator> comm_;
  std::vector<ScopedJob> watching_;
};

}  // namespace skein
