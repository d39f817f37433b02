// Where workers of this host that talk over TCP meet: a port of the loopback interface, and a
// secret that only this process and those that it starts know.
#pragma once

#include <string>

#include "core/file_descriptor.h"

namespace skein {

// The port is kept for the workers, and the secret lasts, as long as this object. The secret is in
// no file system and on no command line: workers inherit its descriptor.
class MeetingPlace {
 public:
  MeetingPlace();

  std::string rendezvous() const;   // 127.0.0.1:PORT
  std::string secret_file() const;  // a path that means the secret in this process and in workers
  int descriptor() const { return secret_.get(); }  // that workers inherit under its number

 private:
  FileDescriptor port_, secret_;
};

}  // namespace skein
