// Where workers that talk over TCP meet: a port that is kept for them, and a secret that only those
// know whom the launcher has told.
#pragma once

#include <cstdint>
#include <string>

#include "core/file_descriptor.h"

namespace skein {

// 32 random bytes, as a run's secret.
std::string fresh_secret();

// A port of this host that is kept for rank 0: bound, and not listened at. With SO_REUSEADDR on
// both, rank 0 can listen there, and whoever asks the system for any port gets another one.
class HeldPort {
 public:
  // At the address that `host` means here; the system chooses the port. Throws Error, with the
  // reason, when that is no address of this host.
  explicit HeldPort(const std::string& host);

  std::uint16_t port() const;
  bool loopback() const;  // whether only this host reaches it

 private:
  FileDescriptor socket_;
};

// A secret that is in no file system and on no command line: workers inherit its descriptor.
class SecretFile {
 public:
  explicit SecretFile(const std::string& secret);

  std::string path() const;                       // means the secret in this process and in workers
  int descriptor() const { return file_.get(); }  // that workers inherit under its number

 private:
  FileDescriptor file_;
};

// Both, for workers of this host alone. They last as long as this object.
class MeetingPlace {
 public:
  MeetingPlace() : port_("127.0.0.1"), secret_(fresh_secret()) {}

  std::string rendezvous() const;  // 127.0.0.1:PORT
  std::string secret_file() const { return secret_.path(); }
  int descriptor() const { return secret_.descriptor(); }

 private:
  HeldPort port_;
  SecretFile secret_;
};

}  // namespace skein
