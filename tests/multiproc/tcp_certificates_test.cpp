// `skein` whose workers show each other certificates: on one host, on several, and by hand.
#include <sys/stat.h>

#include "certificates/test_authority.h"
#include "launch/meeting_place.h"
#include "multiproc/paths.h"
#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

class CertificatesCommand : public ::testing::Test {
 protected:
  static Words options(const tcp::CertificateFiles& files) {
    return {"--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.authority};
  }
  static Process::Environment variables(const tcp::CertificateFiles& files) {
    return {{"SKEIN_TLS_CERT", files.certificate},
            {"SKEIN_TLS_KEY", files.key},
            {"SKEIN_TLS_CA", files.authority}};
  }

  const Folder folder_;
  const TestAuthority authority_;
  const tcp::CertificateFiles files_ = authority_.issue();
};

TEST_F(CertificatesCommand, TrainingHasTheBitsOfARunOnSharedMemory) {
  const Words job{"--strategy", "dear", "--samples", "192", "--workers", "3", "--out"};
  train_ok(with(job, {folder_ / "local"}));
  train_ok(with(with(job, {folder_ / "tcp", "--fabric", "tcp"}), options(files_)));
  train_ok(
      with(with(job, {folder_ / "clear", "--fabric", "tcp", "--encrypt", "off"}), options(files_)));
  const std::string model = contents(folder_ / "local/model.safetensors");
  EXPECT_GT(model.size(), 1000u);
  EXPECT_TRUE(contents(folder_ / "tcp/model.safetensors") == model);
  EXPECT_TRUE(contents(folder_ / "clear/model.safetensors") == model);
}

// Agents get no secret, and pass on which files to use. The variables are the launcher's own.
TEST_F(CertificatesCommand, WorkersOfSeveralHostsHaveThem) {
  std::ofstream(folder_ / "ssh") << "#!/bin/sh\nshift; unset SKEIN_TLS_CERT SKEIN_TLS_KEY "
                                    "SKEIN_TLS_CA; exec sh -c \"$*\"\n";
  chmod((folder_ / "ssh").c_str(), 0700);
  const Words hosts{"--hosts", "127.0.0.1:2,127.0.0.2", "--ssh", folder_ / "ssh"};
  const Words bench{kSkein, "bench", "fabric", "--bytes", "64KB", "--repeat", "3"};
  const Finished by_options = Process(with(with(bench, hosts), options(files_))).wait();
  EXPECT_EQ(by_options.code, 0) << by_options.err;
  const Finished by_variables = Process(with(bench, hosts), variables(files_)).wait();
  EXPECT_EQ(by_variables.code, 0) << by_variables.err;
  const Finished run =
      Process(with(with(with({kSkein, "run", "--show-all"}, hosts), options(files_)),
                   {"--", "sh", "-c", "echo \"$SKEIN_TLS_KEY,$SKEIN_SECRET_FILE.\""}),
              {{"SKEIN_SECRET_FILE", "another"}})
          .wait();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(count(run.out, "] " + files_.key + ",.\n"), 3) << run.out;
}

TEST_F(CertificatesCommand, PrintedCommandsHaveThem) {
  const Finished train = testing::run(command(
      with(with({"--hosts", "a,b", "--print-commands"}, options(files_)), {"--lr", "0.1"})));
  EXPECT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(count(train.out, "--lr 0.1 --fabric tcp --tls-cert " + files_.certificate), 2)
      << train.out;
  EXPECT_EQ(count(train.out, "secret"), 0) << train.out;
  const Finished run = testing::run(with(
      with({kSkein, "run", "--hosts", "a", "--print-commands"}, options(files_)), {"--", "true"}));
  EXPECT_EQ(count(run.out, " SKEIN_TLS_CA=" + files_.authority + " true\n"), 1) << run.out;
}

// One by one, as under another launcher.
class CertificatesByHand : public CertificatesCommand {
 protected:
  std::unique_ptr<Process> worker(int rank, Process::Environment more, const Words& options = {}) {
    const std::string address = place_.rendezvous();
    more.insert({{"RANK", std::to_string(rank)},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_RANK", std::to_string(rank)},
                 {"MASTER_ADDR", address.substr(0, address.find(':'))},
                 {"MASTER_PORT", address.substr(address.find(':') + 1)}});
    return std::make_unique<Process>(
        command(with({"--fabric", "tcp", "--samples", "128", "--deadline", deadline_}, options)),
        more);
  }

  const MeetingPlace place_;
  std::string deadline_ = "600s";  // also that by which both have come
};

TEST_F(CertificatesByHand, VariablesNameThem) {
  const auto first = worker(0, variables(files_)),
             second = worker(1, variables(authority_.issue()));
  for (const auto* each : {&first, &second}) {
    const Finished end = (*each)->wait();
    EXPECT_EQ(end.code, 0) << end.err;
  }
}

TEST_F(CertificatesByHand, AWorkerWithASecretIsRefusedAndNobodyHangs) {
  std::ofstream(folder_ / "secret") << "a secret of the tests, of 40 letters....";
  chmod((folder_ / "secret").c_str(), 0600);
  deadline_ = "15s";
  const auto first = worker(0, variables(files_)),
             second = worker(1, {}, {"--secret", folder_ / "secret"});
  const Finished host = first->wait(), guest = second->wait();
  EXPECT_EQ(host.code, 1);
  EXPECT_EQ(guest.code, 1);
  EXPECT_NE(host.err.find("it shows no certificate: does it have a secret?"), std::string::npos)
      << host.err;
  EXPECT_NE(guest.err.find("it has certificates, and this worker has a secret"), std::string::npos)
      << guest.err;
}

TEST_F(CertificatesByHand, WhatDoesNotFitIsRefused) {
  const TestAuthority other;
  const auto expired = authority_.issue({-7200s, -3600s});
  const auto refuse = [&](const Words& options, const std::string& why) {
    const Finished end = worker(0, {}, options)->wait();
    EXPECT_EQ(end.code, 2) << end.err;
    EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
    EXPECT_NE(end.err.find(why), std::string::npos) << end.err;
  };
  refuse({"--tls-cert", "x", "--tls-ca", "y"}, "expected --tls-key (or SKEIN_TLS_KEY) too");
  refuse({"--tls-cert", "x", "--secret", "y"}, "--secret and --tls-cert");
  refuse({"--tls-cert", folder_ / "x", "--tls-key", files_.key, "--tls-ca", files_.authority},
         folder_ / "x' cannot be read");
  refuse(options(expired), expired.certificate + "' would be refused");
  refuse(options({files_.certificate, files_.key, other.file()}), "would be refused");
  chmod(files_.key.c_str(), 0644);
  refuse(options(files_), files_.key + "' may be read or written by others");
  refused({"--tls-cert", "x"}, {"--fabric local does not use it; expected --fabric tcp"});
  refused({"--hosts", "a,b", "--tls-cert", "x"}, {"expected --tls-key (or SKEIN_TLS_KEY)"});
}

}  // namespace
}  // namespace skein::testing
