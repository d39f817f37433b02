// What the tcp fabric reads: addresses, secrets, and what arrives from others. Whatever comes is
// either understood or refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/rng.h"
#include "fabric/fabric.h"
#include "fabric/tcp/address.h"
#include "fabric/tcp/frame.h"
#include "fabric/tcp/hello.h"
#include "fabric/tcp/secret.h"
#include "launch/meeting_place.h"
#include "runtime/fabrics.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

TEST(HostPort, IsReadWithNamesNumbersAndBrackets) {
  EXPECT_EQ(parse_host_port("gpu3:29500").host, "gpu3");
  EXPECT_EQ(parse_host_port("10.0.0.7:1").port, 1);
  EXPECT_EQ(parse_host_port("[fe80::1]:65535").host, "fe80::1");
}

TEST(Address, KeepsTheInterfaceOfALinkLocalNumber) {
  EXPECT_EQ(parse_host_port("[fe80::1%lo]:80").host, "fe80::1%lo");
  const Address scoped = numeric_address("fe80::1%lo", 80);
  EXPECT_EQ(scoped.text(), "[fe80::1%lo]:80");
  EXPECT_EQ(scoped.number(), "fe80::1");
  Address other = numeric_address("fe80::2", 81), global = numeric_address("2001:db8::1", 82),
          four = numeric_address("10.0.0.7", 83);
  EXPECT_EQ(other.text(), "[fe80::2]:81");
  for (Address* each : {&other, &global, &four}) each->take_interface_of(scoped);
  EXPECT_EQ(other.text(), "[fe80::2%lo]:81");
  EXPECT_EQ(global.text(), "[2001:db8::1]:82");
  EXPECT_EQ(four.text(), "10.0.0.7:83");
}

TEST(HostPort, RefusesWhatIsNone) {
  for (const char* text : {"", ":", "host", "host:", ":80", "host:0", "host:65536", "host:-1",
                           "host:80x", "fe80::1:80", "[]:80", "[::1]", "a:b:80"})
    EXPECT_THROW(parse_host_port(text), ConfigError) << text;
}

class SecretFile {
 public:
  SecretFile(const std::string& contents, mode_t mode)
      : path_((std::filesystem::temp_directory_path() / "skein-secret-XXXXXX").string()) {
    ::close(::mkstemp(path_.data()));
    std::ofstream(path_) << contents;
    ::chmod(path_.c_str(), mode);
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string refusal(const std::string& path) {
  try {
    read_secret(path);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Secret, IsRefusedWhenOthersCanReadOrWriteIt) {
  const std::string secret(32, 'x');
  for (const mode_t mode : {0640u, 0604u, 0620u, 0602u}) {
    const SecretFile file(secret, mode);
    EXPECT_NE(refusal(file.path()).find("chmod 600"), std::string::npos) << mode;
  }
  EXPECT_EQ(refusal(SecretFile(secret, 0600).path()), "");
  EXPECT_EQ(refusal(SecretFile(secret, 0400).path()), "");
}

TEST(Secret, IsRefusedWhenItBelongsToAnotherUser) {
  const SecretFile file(std::string(32, 'x'), 0600);
  if (::chown(file.path().c_str(), 4711, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a file to another user";
  const std::string why = refusal(file.path());
  EXPECT_NE(why.find("belongs to another user (uid 4711)"), std::string::npos) << why;
  EXPECT_NE(why.find(file.path()), std::string::npos) << why;
}

TEST(Secret, HasALength) {
  EXPECT_NE(refusal(SecretFile(std::string(15, 'x'), 0600).path()).find("15 bytes"),
            std::string::npos);
  EXPECT_NE(refusal(SecretFile(std::string(15, 'x') + "\n", 0600).path()).find("15 bytes"),
            std::string::npos);
  EXPECT_NE(refusal(SecretFile(std::string(5000, 'x'), 0600).path()).find("longer"),
            std::string::npos);
  EXPECT_NE(refusal("/no/such/file").find("/no/such/file"), std::string::npos);
  EXPECT_NE(refusal("/tmp").find("not a file"), std::string::npos);
}

TEST(Secret, MakesTheSameKeyWithAndWithoutALineBreak) {
  const std::string secret = "sixteen letters!";
  const SecretFile plain(secret, 0600), line(secret + "\n", 0600), other(secret + "!", 0600);
  EXPECT_EQ(read_secret(plain.path()), read_secret(line.path()));
  EXPECT_NE(read_secret(plain.path()), read_secret(other.path()));
}

TEST(Secret, OfSeveralRunsMakesAKeyForEach) {
  const SecretFile secret("sixteen letters!", 0600);
  EXPECT_EQ(read_secret(secret.path(), "slurm-1-0-0"), read_secret(secret.path(), "slurm-1-0-0"));
  EXPECT_NE(read_secret(secret.path(), "slurm-1-0-0"), read_secret(secret.path(), "slurm-1-0-1"));
  EXPECT_NE(read_secret(secret.path(), "slurm-1-0-0"), read_secret(secret.path()));
}

TEST(MeetingPlace, HasASecretOfItsOwnAndAPortThatRankZeroCanListenAt) {
  const MeetingPlace one, other;
  EXPECT_NE(read_secret(one.secret_file()), read_secret(other.secret_file()));
  EXPECT_NE(one.rendezvous(), other.rendezvous());
  const Address address = resolve(parse_host_port(one.rendezvous())).front();
  EXPECT_EQ(local_address(listen_at(address).get()).text(), one.rendezvous());
}

TEST(TcpStreamsVariable, IsANumberOrRefused) {
  const SteadyClock clock;
  Loop loop(clock);
  const MeetingPlace place;
  JoinOptions options;
  options.fabric = "tcp";
  options.rendezvous = "127.0.0.1:1";  // where nobody listens
  options.secret_file = place.secret_file();
  options.patience = std::chrono::milliseconds(1);
  Placement placement;
  placement.rank = 1;
  placement.size = 2;
  for (const char* text : {"", "0", "17", "-1", "two", "2x"}) {
    ::setenv("SKEIN_TCP_STREAMS", text, 1);
    try {
      make_fabric(loop, options, placement);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("from 1 to 16"), std::string::npos) << error.what();
    }
  }
  ::setenv("SKEIN_TCP_STREAMS", "2", 1);
  EXPECT_THROW(make_fabric(loop, options, placement), IoError);
  ::unsetenv("SKEIN_TCP_STREAMS");
}

std::vector<Frame> some_frames() {
  return {{Kind::data, 5, 77, 1000, 2 * kMostOfAFrame + 1000, 2 * kMostOfAFrame, 9, true},
          {Kind::data, 5, 77, kMostOfAFrame, 1 << 20, kMostOfAFrame, 1},
          {Kind::data, 0, 0, 0, 0, 0, 2},
          {Kind::taken, 16383, 0, 0, 1u << 31, 0, 3},
          {Kind::refused, 1, 0, 0, 0, 0, 4},
          {Kind::withdrawn, 1, 0, 0, 0, 0, 5},
          {Kind::failed, 0, 0, 1024, 0, 0, 6},
          {Kind::left, 0, 0, 0, 0, 0, std::uint64_t{1} << 40},
          {Kind::acknowledged, 0, 0, 0, 77, 0},
          {Kind::ask, 0, 0, 0, 0, 123456789},
          {Kind::answer, 0, 0, 0, 5, 123456789},
          {Kind::beat, 0, 0, 0, 0, 0},
          {Kind::widen, 0, 0, 0, 2, 0}};
}

TEST(Frames, AreReadAsTheyWereWritten) {
  for (const Frame& frame : some_frames()) EXPECT_EQ(decode_frame(encode(frame)), frame);
}

TEST(Frames, OutsideTheirLimitsAreRefused) {
  const Frame good{Kind::data, 5, 77, 1000, kMostOfAFrame + 1000, kMostOfAFrame, 1};
  const auto refused = [&](auto change) {
    Frame frame = good;
    change(frame);
    EXPECT_THROW(decode_frame(encode(frame)), IoError);
  };
  EXPECT_NO_THROW(decode_frame(encode(good)));
  refused([](Frame& f) { f.channel = kMostChannels; });
  refused([](Frame& f) { f.length = 1001; });
  refused([](Frame& f) { f.length = 999; });
  refused([](Frame& f) { f.total += 1; });
  refused([](Frame& f) { f.length = 0; });
  refused([](Frame& f) { f.offset = kMostOfAFrame + 1; });
  refused([](Frame& f) { f.offset = ~std::uint64_t{0}; });
  refused([](Frame& f) { f.total = ~std::uint64_t{0}; });
  refused([](Frame& f) { f.total = kMostOfAMessage + 1; });
  refused([](Frame& f) { f.kind = static_cast<Kind>(0); });
  refused([](Frame& f) { f.sequence = 0; });
  refused([](Frame& f) { f = {Kind::ask, 0, 0, 0, 0, 0, 1}; });
  refused([](Frame& f) { f.kind = static_cast<Kind>(12); });
  refused([](Frame& f) { f = {Kind::data, 1, 1, kMostOfAFrame + 1, 1 << 20, 0, 1}; });
  refused([](Frame& f) { f = {Kind::failed, 0, 0, kMostOfAText + 1, 0, 0, 1}; });
  refused([](Frame& f) { f = {Kind::ask, 0, 0, 1, 0, 0}; });
}

Hello some_hello() {
  Hello hello;
  hello.version = "1.2.3";
  hello.rank = 3;
  hello.size = 8;
  hello.encrypt = false;
  hello.host = "10.0.0.3";
  hello.port = 40000;
  hello.run.fill(std::byte{7});
  hello.lane = 3;
  hello.attempt = 70'000;
  hello.received = std::uint64_t{1} << 50;
  return hello;
}

TEST(Hellos, AreReadAsTheyWereWritten) {
  const Hello hello = some_hello(), read = decode_hello(encode(hello));
  EXPECT_EQ(read.version, hello.version);
  EXPECT_EQ(read.rank, hello.rank);
  EXPECT_EQ(read.size, hello.size);
  EXPECT_EQ(read.encrypt, hello.encrypt);
  EXPECT_EQ(read.host, hello.host);
  EXPECT_EQ(read.port, hello.port);
  EXPECT_EQ(read.run, hello.run);
  EXPECT_EQ(read.lane, hello.lane);
  EXPECT_EQ(read.attempt, hello.attempt);
  EXPECT_EQ(read.received, hello.received);
}

TEST(Hellos, OfAnotherProtocolSayWhoSendsThem) {
  Hello hello = some_hello();
  hello.protocol = 99;
  hello.rank = 9;  // beyond the size: not looked at
  const Hello read = decode_hello(encode(hello));
  EXPECT_EQ(read.protocol, 99u);
  EXPECT_EQ(read.version, "1.2.3");
}

TEST(Hellos, ThatCannotBeAreRefused) {
  Hello hello = some_hello();
  hello.rank = 8;
  EXPECT_THROW(decode_hello(encode(hello)), IoError);
  hello.rank = hello.size = 0;
  EXPECT_THROW(decode_hello(encode(hello)), IoError);
}

// What others send is shown on a terminal.
TEST(Hellos, BringNoControlCharacters) {
  Hello hello = some_hello();
  hello.version = "\x1b[2J";
  EXPECT_EQ(decode_hello(encode(hello)).version, "?[2J");
}

TEST(Rosters, AreReadAsTheyWereWrittenAndHaveOnePlacePerWorker) {
  Roster roster;
  roster.run.fill(std::byte{9});
  roster.places = {{"", 0}, {"10.0.0.2", 4000}, {"fe80::1", 65535}};
  const auto bytes = encode(roster);
  const Roster read = decode_roster(bytes, 3);
  EXPECT_EQ(read.run, roster.run);
  EXPECT_EQ(read.places[2].host, "fe80::1");
  EXPECT_EQ(read.places[2].port, 65535);
  EXPECT_THROW(decode_roster(bytes, 2), IoError);
  EXPECT_THROW(decode_roster(std::span(bytes).first(bytes.size() - 1), 3), IoError);
  EXPECT_THROW(decode_roster({}, 3), IoError);
}

// The same as the fuzz targets do for longer, here from a seed: random bytes, and what workers say
// with some bytes changed.
template <typename Bytes, typename Decode>
void survives(const std::vector<Bytes>& seeds, Decode decode) {
  Rng rng(5);
  int understood = 0, refused = 0;
  for (int round = 0; round < 200'000; ++round) {
    Bytes bytes = seeds[rng.below(seeds.size())];
    const std::uint64_t changes = round % 4 == 0 ? bytes.size() : rng.below(4);
    for (std::uint64_t i = 0; i < changes; ++i)
      bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.below(256));
    try {
      decode(bytes);
      ++understood;
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(understood, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Frames, SurviveChangedBytes) {
  std::vector<FrameBytes> seeds;
  for (const Frame& frame : some_frames()) seeds.push_back(encode(frame));
  survives(seeds, [](const FrameBytes& bytes) {
    const Frame frame = decode_frame(bytes);
    if (frame.kind == Kind::data && frame.length > frame.total - frame.offset) std::abort();
    if (frame.length > kMostOfAFrame) std::abort();
  });
}

TEST(Hellos, SurviveChangedBytes) {
  survives<HelloBytes>({encode(some_hello())}, [](const HelloBytes& bytes) {
    const Hello hello = decode_hello(bytes);
    if (hello.protocol == kProtocol && hello.rank >= hello.size) std::abort();
  });
}

TEST(Answers, SurviveChangedBytes) {
  survives<AnswerBytes>({encode(Answer{Answer::Kind::roster, 500})}, [](const AnswerBytes& bytes) {
    if (decode_answer(bytes).length > kMostOfAnAnswer) std::abort();
  });
}

}  // namespace
}  // namespace skein::tcp
