// Workers that show each other certificates in place of a secret, and those who show others.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include "certificates/test_authority.h"
#include "conformance/forked.h"
#include "conformance/tcp_meetings.h"
#include "fabric/tcp/address.h"
#include "fabric/tcp/tls.h"
#include "proxy/proxied_ranks.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void show(TcpOptions& options, const CertificateFiles& files) {
  options.secret_file.clear();
  options.tls_cert_file = files.certificate;
  options.tls_key_file = files.key;
  options.tls_ca_file = files.authority;
}

TcpOptions showing(TcpOptions options, const CertificateFiles& files) {
  show(options, files);
  return options;
}

// Sums of many sizes, in which every element is looked at.
Task<> sum_rounds(Fabric& fabric, int rounds) {
  const auto memory = fabric.allocate(200'000);
  for (int round = 0; round < rounds; ++round) {
    const std::size_t count = round % 2 == 0 ? 200'000 : 7;
    auto* values = static_cast<float*>(memory->span().data);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(i % 1000 + static_cast<std::size_t>(fabric.rank() * round));
    co_await fabric.all_reduce(0, {values, count}, Limit::silence(120s));
    const int ranks = fabric.size() * (fabric.size() - 1) / 2;
    for (std::size_t i = 0; i < count; ++i)
      if (values[i] != static_cast<float>(i % 1000 * static_cast<std::size_t>(fabric.size()) +
                                          static_cast<std::size_t>(ranks * round)))
        throw Error("another sum");
  }
}

TEST(TcpCertificates, WorkersThatHaveThemOfOneAuthoritySum) {
  const TestAuthority authority;
  for (const int size : {2, 3})
    for (const bool encrypt : {true, false}) {
      const TcpRun run;
      std::vector<CertificateFiles> files;
      for (int rank = 0; rank < size; ++rank) files.push_back(authority.issue());
      const auto outcomes = conformance::run_forked(
          size, [](Fabric& fabric) { return sum_rounds(fabric, 6); },
          [&](Loop& loop, int rank) {
            TcpOptions options =
                showing(run.options(rank, size), files[static_cast<std::size_t>(rank)]);
            options.encrypt = encrypt;
            return make_tcp_fabric(loop, options);
          });
      for (const auto& outcome : outcomes)
        EXPECT_TRUE(outcome.ok) << size << " ranks, encrypt " << encrypt << ": " << outcome.error;
    }
}

// Each stream, also a new one, is authenticated like the first.
TEST(TcpCertificates, StreamsThatAreResetAreReplaced) {
  const TestAuthority authority;
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(2, [&](TcpOptions& options) {
      show(options, authority.issue());
      options.encrypt = encrypt;
      options.streams = 3;
    });
    ranks.proxy().cut_every(300'007);
    ranks.start([&](Fabric& fabric) -> Task<> {
      while (ranks.proxy().connections() < 3) co_await fabric.loop().sleep_for(1ms);
      co_await sum_rounds(fabric, 40);
    });
    for (const RankEnd& end : ranks.ends()) EXPECT_TRUE(end.ok) << end.error;
    EXPECT_GT(ranks.proxy().connections(), 10);
  }
}

TEST(TcpCertificates, AnAuthorityBetweenMayVouchForAWorker) {
  const TestAuthority root, between(root, {});
  const TcpRun run;
  auto first = start(showing(run.options(0, 2), root.issue()));
  auto second = start(showing(run.options(1, 2), between.issue()));
  EXPECT_EQ(first.get().error, "");
  EXPECT_EQ(second.get().error, "");
}

// What two workers say that do not meet.
std::pair<std::string, std::string> errors_of(const TcpOptions& zero, const TcpOptions& one) {
  TcpOptions host = zero, guest = one;
  host.join_timeout = guest.join_timeout = 4s;
  auto first = start(host), second = start(guest);
  const End at_host = first.get(), at_guest = second.get();
  EXPECT_LT(at_host.took, 100s);
  EXPECT_LT(at_guest.took, 100s);
  EXPECT_FALSE(at_guest.said.empty()) << "it says so at once";
  EXPECT_TRUE(has(at_host.error, "rank 1 did not join")) << at_host.error;
  EXPECT_TRUE(has(at_guest.error, "authentication failed")) << at_guest.error;
  return {at_host.error, at_guest.error};
}

TEST(TcpCertificates, ThoseOfAnotherAuthorityAreRefusedByBothSides) {
  const TestAuthority ours, theirs;
  const TcpRun run;
  const auto [host, guest] = errors_of(showing(run.options(0, 2), ours.issue()),
                                       showing(run.options(1, 2), theirs.issue()));
  EXPECT_TRUE(has(host, "did not show a certificate that is trusted here")) << host;
  EXPECT_TRUE(has(host, "it refuses this worker: ")) << host;
  EXPECT_FALSE(has(host, "sslv3") || has(host, "tlsv1")) << host;
  EXPECT_TRUE(has(guest, "unable to get local issuer certificate")) << guest;
}

// The worker that connects is content, and only the other one is not.
TEST(TcpCertificates, OneThatOnlyTheOtherSideRefusesLearnsWhy) {
  const TestAuthority ours, theirs;
  std::ofstream(ours.folder() / "both.pem")
      << std::ifstream(ours.file()).rdbuf() << std::ifstream(theirs.file()).rdbuf();
  CertificateFiles trusting = theirs.issue();
  trusting.authority = ours.folder() / "both.pem";
  const TcpRun run;
  const auto [host, guest] =
      errors_of(showing(run.options(0, 2), ours.issue()), showing(run.options(1, 2), trusting));
  EXPECT_TRUE(has(host, "the last: unable to get local issuer certificate")) << host;
  EXPECT_TRUE(has(guest, "it refuses this worker: ")) << guest;
  EXPECT_FALSE(has(guest, "sslv3") || has(guest, "tlsv1")) << guest;
  EXPECT_TRUE(has(guest, "unknown ca")) << guest;
}

TEST(TcpCertificates, AndASecretDoNotMeet) {
  const TestAuthority authority;
  const TcpRun run;
  const TcpOptions zero = run.options(0, 2), one = run.options(1, 2);
  {
    const auto [host, guest] = errors_of(zero, showing(one, authority.issue()));
    EXPECT_TRUE(has(host, "it shows no secret: does it have certificates?")) << host;
    EXPECT_TRUE(has(guest, "it has a secret, and this worker has certificates")) << guest;
  }
  const auto [host, guest] = errors_of(showing(zero, authority.issue()), one);
  EXPECT_TRUE(has(host, "it shows no certificate: does it have a secret?")) << host;
  EXPECT_TRUE(has(guest, "it has certificates, and this worker has a secret")) << guest;
}

// TLS as anybody may speak it, who trusts everybody.
class Stranger {
 public:
  explicit Stranger(const CertificateFiles* files) : context_(::SSL_CTX_new(::TLS_method())) {
    std::signal(SIGPIPE, SIG_IGN);  // workers may have gone
    if (!files) return;
    ::SSL_CTX_use_certificate_chain_file(context_, files->certificate.c_str());
    ::SSL_CTX_use_PrivateKey_file(context_, files->key.c_str(), SSL_FILETYPE_PEM);
  }
  ~Stranger() { ::SSL_CTX_free(context_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void speak_older() { SSL_CTX_set_max_proto_version(context_, TLS1_2_VERSION); }

  // Whether a worker says anything to it, in TLS, that connects to it or that it connects to.
  bool is_heard(FileDescriptor socket, Side side) const {
    const Session session(::SSL_new(context_));
    ::SSL_set_fd(session.get(), socket.get());
    if (side == Side::accepts)
      ::SSL_set_accept_state(session.get());
    else
      ::SSL_set_connect_state(session.get());
    char byte = 'x';
    const bool heard = ::SSL_do_handshake(session.get()) == 1 &&
                       ::SSL_write(session.get(), &byte, 1) == 1 &&
                       ::SSL_read(session.get(), &byte, 1) == 1;
    ::ERR_clear_error();
    return heard;
  }

 private:
  SSL_CTX* context_;
};

struct Case {
  const char* name;
  CertificateKind kind;
  std::string trouble;
};

std::vector<Case> cases() {
  std::vector<Case> out(4);
  out[0] = {"self-signed", {}, "self-signed certificate"};
  out[0].kind.self_signed = true;
  out[1] = {"expired", {-7200s, -3600s}, "certificate has expired"};
  out[2] = {"not valid yet", {3600s, 7200s}, "certificate is not yet valid"};
  out[3] = {"for something else", {}, "unsuitable certificate purpose"};
  out[3].kind.use = "codeSigning";
  return out;
}

FileDescriptor connect_to_first(const TcpOptions& options) {
  const Address address = resolve(parse_host_port(options.rendezvous)).front();
  for (;;) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address.raw(), address.length) == 0) return socket;
    std::this_thread::sleep_for(1ms);
  }
}

// Calls it for each of `all`, all at once.
void for_all(const std::vector<Case>& all, const std::function<void(const Case&)>& test) {
  std::vector<std::future<void>> tests;
  tests.reserve(all.size());
  for (const Case& each : all) tests.push_back(std::async(std::launch::async, [&] { test(each); }));
}

TEST(TcpCertificates, StrangersWithoutAGoodOneAreTurnedAway) {
  std::vector<Case> all = cases();
  all.push_back({"none", {}, "peer did not return a certificate"});
  all.push_back({"TLS 1.2", {}, "unsupported protocol"});
  for_all(all, [](const Case& each) {
    const TestAuthority authority;
    const TcpRun run;
    TcpOptions options = showing(run.options(0, 2), authority.issue());
    options.join_timeout = 6s;
    const CertificateFiles files = authority.issue(each.kind);
    auto first = start(options);
    Stranger stranger(each.name == std::string("none") ? nullptr : &files);
    if (each.name == std::string("TLS 1.2")) stranger.speak_older();
    EXPECT_FALSE(stranger.is_heard(connect_to_first(options), Side::connects)) << each.name;
    const std::string error = first.get().error;
    EXPECT_TRUE(has(error, "1 connections")) << each.name << ": " << error;
    EXPECT_TRUE(has(error, each.trouble)) << each.name << ": " << error;
  });
}

TEST(TcpCertificates, NobodyTalksToOneThatListensWithoutAGoodOne) {
  for_all(cases(), [](const Case& each) {
    const TestAuthority authority;
    const TcpRun run;
    TcpOptions options = showing(run.options(1, 2), authority.issue());
    options.join_timeout = 6s;
    const FileDescriptor listener = listen_at(resolve(parse_host_port(options.rendezvous)).front());
    const CertificateFiles files = authority.issue(each.kind);
    auto guest = start(options);
    const Stranger stranger(&files);
    FileDescriptor socket;
    while (!socket.valid()) {  // the listening socket never blocks
      std::this_thread::sleep_for(1ms);
      socket = FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    EXPECT_FALSE(stranger.is_heard(std::move(socket), Side::accepts)) << each.name;
    const std::string error = guest.get().error;
    EXPECT_TRUE(has(error, "authentication failed")) << each.name << ": " << error;
    EXPECT_TRUE(has(error, each.trouble)) << each.name << ": " << error;
  });
}

// What is said about files that cannot be used; empty when they can be.
std::string refusal(const CertificateFiles& files) {
  try {
    const Tls tls(files);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

void expect_refused(const CertificateFiles& files, const std::string& path,
                    const std::string& why) {
  const std::string error = refusal(files);
  EXPECT_TRUE(has(error, "'" + path + "'")) << error;
  EXPECT_TRUE(has(error, why)) << error;
}

TEST(TcpCertificateFiles, ThatCannotBeUsedAreNamed) {
  const TestAuthority authority, other;
  const CertificateFiles good = authority.issue();
  EXPECT_EQ(refusal(good), "");
  const std::string none = authority.folder() / "none", text = authority.folder() / "text";
  std::ofstream(text) << "hello\n";
  ::chmod(text.c_str(), 0600);

  CertificateFiles files = good;
  files.certificate = none;
  expect_refused(files, none, "cannot be read: No such file");
  files.certificate = text;
  expect_refused(files, text, "expected -----BEGIN CERTIFICATE-----");
  files.certificate = good.key;
  expect_refused(files, good.key, "expected -----BEGIN CERTIFICATE-----");
  files.certificate = authority.folder();
  expect_refused(files, authority.folder(), "is not a file");

  files = good;
  files.key = none;
  expect_refused(files, none, "cannot be read: No such file");
  files.key = text;
  expect_refused(files, text, "expected -----BEGIN PRIVATE KEY-----");
  files.key = authority.issue().key;
  expect_refused(files, files.key, "does not belong to the certificate in '" + good.certificate);

  files = good;
  files.authority = none;
  expect_refused(files, none, "cannot be read: No such file");
  files.authority = other.file();
  expect_refused(files, files.certificate, "workers that trust '" + other.file());
}

TEST(TcpCertificateFiles, KeysThatOthersCanReadAreRefused) {
  const TestAuthority authority;
  const CertificateFiles files = authority.issue();
  ::chmod(files.key.c_str(), 0640);
  expect_refused(files, files.key, "(mode 640): chmod 600 it");
  ::chmod(files.certificate.c_str(), 0644);  // this is for all to see
  ::chmod(files.key.c_str(), 0400);
  EXPECT_EQ(refusal(files), "");
}

TEST(TcpCertificateFiles, AKeyWithAPassphraseIsRefused) {
  const TestAuthority authority;
  const CertificateFiles files = authority.issue();
  std::FILE* file = std::fopen(files.key.c_str(), "r");
  EVP_PKEY* key = ::PEM_read_PrivateKey(file, nullptr, nullptr, nullptr);
  std::fclose(file);
  file = std::fopen(files.key.c_str(), "w");
  const unsigned char word[] = "passphrase";
  ::PEM_write_PrivateKey(file, key, ::EVP_aes_128_cbc(), word, sizeof(word) - 1, nullptr, nullptr);
  std::fclose(file);
  ::EVP_PKEY_free(key);
  expect_refused(files, files.key, "has a passphrase");
}

TEST(TcpCertificateFiles, OnesThatOthersWouldRefuseAreRefusedAtOnce) {
  const TestAuthority authority;
  for (const Case& each : cases()) {
    const CertificateFiles files = authority.issue(each.kind);
    expect_refused(files, files.certificate, each.trouble);
  }
  EXPECT_TRUE(has(refusal(authority.issue({-7200s, -3600s})), ", on 20")) << "it says when";
  // An authority between that has expired.
  const TestAuthority between(authority, {-7200s, -3600s});
  const CertificateFiles files = between.issue();
  expect_refused(files, files.certificate, "one that vouches for it: certificate has expired");
}

}  // namespace
}  // namespace skein::tcp
