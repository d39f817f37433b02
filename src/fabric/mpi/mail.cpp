#include "fabric/mpi/mail.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "skein/error.h"

namespace skein::mpi {
namespace {

constexpr int kTag = 1;
constexpr std::size_t kSlots = 16;

// How often those who can go on get a turn before what has come is put aside.
constexpr int kMostHesitations = 4;

// How often, a millisecond apart, MPI is asked whether it has let go of everything.
constexpr int kMostLooks = 100;

Header header_of(const std::byte* packet) {
  Header header;
  std::memcpy(&header, packet, sizeof(header));
  return header;
}

}  // namespace

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS)
    return fmt::format("error {}", code);
  return {text.data(), static_cast<std::size_t>(length)};
}

Mail::Mail(MPI_Comm communicator) : communicator_(communicator) {
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size_);
  const auto ranks = static_cast<std::size_t>(size_);
  sent_.resize(ranks);
  next_.resize(ranks);
  expected_.resize(ranks);
  early_.resize(ranks);
  receives_.resize(kSlots, MPI_REQUEST_NULL);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    slots_.push_back(std::make_unique_for_overwrite<std::byte[]>(kWholePacket));
    check(MPI_Recv_init(slots_[slot].get(), static_cast<int>(kWholePacket), MPI_BYTE,
                        MPI_ANY_SOURCE, kTag, communicator_, &receives_[slot]),
          "MPI_Recv_init");
  }
  if (trouble_.empty())
    check(MPI_Startall(static_cast<int>(kSlots), receives_.data()), "MPI_Startall");
  if (!trouble_.empty()) throw Error(fmt::format("cannot receive anything: {}", trouble_));
}

bool Mail::check(int code, const char* what) {
  if (code == MPI_SUCCESS) return true;
  if (trouble_.empty()) trouble_ = fmt::format("{}: {}", what, text_of(code));
  return false;
}

void Mail::send(int to, Header header, const std::byte* body, std::size_t length) {
  if (!trouble_.empty() || closed_) return;
  const auto rank = static_cast<std::size_t>(to);
  header.sequence = next_[rank]++;
  Sent sent{MPI_REQUEST_NULL, memory_.take(sizeof(header) + length), sizeof(header) + length};
  std::memcpy(sent.packet.get(), &header, sizeof(header));
  if (length > 0) std::memcpy(sent.packet.get() + sizeof(header), body, length);
  if (!check(MPI_Isend(sent.packet.get(), static_cast<int>(sent.bytes), MPI_BYTE, to, kTag,
                       communicator_, &sent.request),
             "MPI_Isend"))
    return;
  sent_[rank].push_back(std::move(sent));
  moved_ = true;
}

bool Mail::under_way() const {
  return std::any_of(sent_.begin(), sent_.end(), [](const auto& each) { return !each.empty(); });
}

void Mail::test_sent() {
  for (auto& sent : sent_) {
    while (!sent.empty()) {
      int done = 0;
      if (!check(MPI_Test(&sent.front().request, &done, MPI_STATUS_IGNORE), "sending")) return;
      if (!done) break;
      memory_.give_back(std::move(sent.front().packet), sent.front().bytes);
      sent.pop_front();
      moved_ = true;
    }
  }
}

void Mail::test_received() {
  std::array<int, kSlots> indices{};
  std::array<MPI_Status, kSlots> statuses{};
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(kSlots), receives_.data(), &count, indices.data(),
                                statuses.data());
  if (count == MPI_UNDEFINED) return;  // all wait to be looked at
  for (int i = 0; i < count; ++i) {
    const MPI_Status& status = statuses[static_cast<std::size_t>(i)];
    if (code == MPI_ERR_IN_STATUS && !check(status.MPI_ERROR, "receiving")) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    ready_.push_back({static_cast<std::size_t>(indices[static_cast<std::size_t>(i)]),
                      status.MPI_SOURCE, static_cast<std::size_t>(bytes)});
  }
  if (code != MPI_ERR_IN_STATUS) check(code, "receiving");
}

bool Mail::poll(const Take& take) {
  if (!trouble_.empty() || closed_) return false;
  test_sent();
  test_received();
  while (!ready_.empty() && trouble_.empty()) {
    const Ready ready = ready_.front();
    if (!hand_over(ready, take)) {
      ++hesitations_;
      break;
    }
    hesitations_ = 0;
    ready_.pop_front();
    check(MPI_Start(&receives_[ready.slot]), "MPI_Start");
    moved_ = true;
  }
  return std::exchange(moved_, false) || !ready_.empty();
}

// A small packet may have come while MPI is still busy with a large one that was sent before it.
bool Mail::hand_over(const Ready& ready, const Take& take) {
  const std::byte* packet = slots_[ready.slot].get();
  const auto from = static_cast<std::size_t>(ready.from);
  if (ready.bytes < sizeof(Header)) {
    trouble_ = fmt::format("rank {} sent {} bytes, which are no packet", ready.from, ready.bytes);
    return false;
  }
  const Header header = header_of(packet);
  if (header.sequence != expected_[from]) {
    Early early{memory_.take(ready.bytes), ready.bytes};
    std::memcpy(early.packet.get(), packet, ready.bytes);
    early_[from].emplace(header.sequence, std::move(early));
    return true;
  }
  if (!take({ready.from, header, packet + sizeof(Header), ready.bytes - sizeof(Header),
             hesitations_ < kMostHesitations}))
    return false;
  ++expected_[from];
  hand_over_early(ready.from, take);
  return true;
}

void Mail::hand_over_early(int from, const Take& take) {
  const auto rank = static_cast<std::size_t>(from);
  auto& early = early_[rank];
  for (auto next = early.begin(); next != early.end() && next->first == expected_[rank];
       next = early.begin()) {
    auto& [packet, bytes] = next->second;
    const Header header = header_of(packet.get());
    take({from, header, packet.get() + sizeof(Header), bytes - sizeof(Header), false});
    ++expected_[rank];
    memory_.give_back(std::move(packet), bytes);
    early.erase(next);
  }
}

bool Mail::close() {
  if (!closed_) {
    closed_ = true;
    std::vector<bool> idle(kSlots);
    for (const Ready& ready : ready_) idle[ready.slot] = true;
    for (std::size_t slot = 0; slot < receives_.size(); ++slot)
      if (!idle[slot] && receives_[slot] != MPI_REQUEST_NULL) MPI_Cancel(&receives_[slot]);
  }
  test_sent();
  int done = 0;
  std::vector<MPI_Status> ignored(receives_.size());
  const int code =
      MPI_Testall(static_cast<int>(receives_.size()), receives_.data(), &done, ignored.data());
  return code == MPI_SUCCESS && done != 0 && !under_way();
}

// What MPI has not let go of stays where it is, for ever.
Mail::~Mail() {
  int over = 0;
  MPI_Finalized(&over);
  bool closed = !over && close();
  for (int i = 0; !over && !closed && i < kMostLooks; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    closed = close();
  }
  if (closed) {
    for (MPI_Request& each : receives_)
      if (each != MPI_REQUEST_NULL) MPI_Request_free(&each);
    MPI_Comm_free(&communicator_);
    return;
  }
  for (auto& slot : slots_) (void)slot.release();
  for (auto& sent : sent_)
    for (Sent& each : sent) (void)each.packet.release();
}

}  // namespace skein::mpi
