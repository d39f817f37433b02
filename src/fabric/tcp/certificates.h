// What a worker shows others in place of the run's secret: a certificate. It trusts those of one
// authority, and whoever has one of these is a worker: names in certificates are not looked at.
#pragma once

#include <openssl/ssl.h>

#include <string>

namespace skein::tcp {

// Files in PEM.
struct CertificateFiles {
  std::string certificate;  // this worker's, then those between it and the authority's, if any
  std::string key;          // of the first; only its owner may read it, and it has no passphrase
  std::string authority;    // whose certificates are trusted; may hold several, one after another
};

// Makes sessions of `context` show the certificate and refuse a peer that shows none, or one that
// the authority has not signed, that is not valid now, or that is not for this use. Throws
// ConfigError, which names the file, for what cannot be read, does not belong together, or is a
// certificate that others would refuse now.
void use_certificates(SSL_CTX& context, const CertificateFiles& files);

}  // namespace skein::tcp
