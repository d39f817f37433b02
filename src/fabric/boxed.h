// What fabrics have in common whose messages leave from and arrive in boxes, one for each peer,
// channel and direction: `tcp` and `mpi`.
#pragma once

#include <memory>
#include <string>

#include "fabric/boxed_peer.h"
#include "fabric/carrier_fabric.h"
#include "fabric/signs.h"

namespace skein {

class BoxedFabric : public CarrierFabric {
 public:
  BoxedFabric(Loop& loop, int rank, int size)
      : CarrierFabric(loop, rank, size), signs_(loop.now()) {}

  void fail(const std::string& reason) override;
  Time latest_sign() const override { return signs_.last(); }
  void pass_on(Time sign) override { signs_.pass_on(sign); }

 protected:
  virtual BoxedPeer& peer(int rank) = 0;

  // A message is about to leave, or one is waited for.
  virtual void stir() {}

  Signs& signs() { return signs_; }

 private:
  struct OutLine;
  struct InLine;

  std::unique_ptr<Line> open_line(int its_peer, Channel channel, bool outgoing) override;
  bool try_post(const Operation& operation, Line& line, Span data) override;
  Task<> wait_for_room(const Operation& operation, Line& line) override;
  bool all_taken(Line& line) override;
  Task<> wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) override;
  Task<> take(const Operation& operation, Line& line, Span into, Combine combine) override;
  void close_line(Line& line) override;

  static boxed::Outbox& out(Line& line);
  static boxed::Inbox& in(Line& line);
  bool has_room(Line& line);
  std::string failure_besides(int besides);
  template <typename Reached, typename GivenUp>
  Task<> wait_for(const Operation& operation, int other, Signal& moved, Reached reached,
                  GivenUp given_up);

  Signs signs_;
};

}  // namespace skein
