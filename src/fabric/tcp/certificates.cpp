#include "fabric/tcp/certificates.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <array>
#include <ctime>
#include <memory>

#include "core/check.h"
#include "fabric/tcp/key_file.h"
#include "fabric/tcp/tls.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // of each file

template <auto function>
struct FreedBy {
  template <typename T>
  void operator()(T* object) const {
    function(object);
  }
};
void free_all(STACK_OF(X509) * certificates) { sk_X509_pop_free(certificates, ::X509_free); }

using Bio = std::unique_ptr<BIO, FreedBy<::BIO_free>>;
using Certificate = std::unique_ptr<X509, FreedBy<::X509_free>>;
using Certificates = std::unique_ptr<STACK_OF(X509), FreedBy<free_all>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, FreedBy<::EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, FreedBy<::X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, FreedBy<::X509_STORE_CTX_free>>;

// A file, and errors about it.
struct Source {
  std::string path, what;
  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(fmt::format("the {} in '{}' {}", what, path, why));
  }
  SecretText read(Readers readers) const {
    return read_key_file(path, kMostBytes, readers,
                         [this](const std::string& why) { refuse(why); });
  }
};

Bio reader_of(const std::string& text) {
  Bio out(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  SKEIN_CHECK(out, "OpenSSL: {}", tls_error());
  return out;
}

Certificates read_certificates(const Source& source) {
  const SecretText file = source.read(Readers::anybody);
  const Bio in = reader_of(file.text());
  Certificates out(sk_X509_new_null());
  SKEIN_CHECK(out, "OpenSSL: {}", tls_error());
  while (X509* next = ::PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr))
    SKEIN_CHECK(sk_X509_push(out.get(), next) > 0, "OpenSSL: {}", tls_error());
  const bool at_the_end = ERR_GET_REASON(::ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string why = tls_error();
  if (!at_the_end) source.refuse(fmt::format("cannot be understood: {}; expected PEM", why));
  if (sk_X509_num(out.get()) == 0)
    source.refuse("is not there: expected -----BEGIN CERTIFICATE-----");
  return out;
}

// Nobody is asked for a passphrase: workers have no terminal.
int no_passphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

PrivateKey read_key(const Source& source) {
  const SecretText file = source.read(Readers::owner);
  const Bio in = reader_of(file.text());
  bool asked = false;
  PrivateKey key(::PEM_read_bio_PrivateKey(in.get(), nullptr, no_passphrase, &asked));
  const std::string why = tls_error();
  if (asked) source.refuse("has a passphrase: expected one without");
  if (!key)
    source.refuse(
        fmt::format("cannot be understood: {}; expected -----BEGIN PRIVATE KEY-----", why));
  return key;
}

std::string date(const ASN1_TIME* time) {
  std::tm parts{};
  std::array<char, 32> text{};
  if (::ASN1_TIME_to_tm(time, &parts) != 1) return "a date that cannot be read";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return text.data();
}

// Asks of the own certificate what others will ask of it: this worker connects, and is connected
// to.
void check_own(X509_STORE* store, X509* own, STACK_OF(X509) * between, int security_level,
               const Source& source, const std::string& authority) {
  for (const char* use : {"ssl_server", "ssl_client"}) {
    const StoreContext check(::X509_STORE_CTX_new());
    const bool begun = check && ::X509_STORE_CTX_init(check.get(), store, own, between) == 1 &&
                       ::X509_STORE_CTX_set_default(check.get(), use) == 1;
    SKEIN_CHECK(begun, "OpenSSL: {}", tls_error());
    ::X509_VERIFY_PARAM_set_auth_level(::X509_STORE_CTX_get0_param(check.get()), security_level);
    if (::X509_verify_cert(check.get()) == 1) continue;
    ::ERR_clear_error();
    const int error = ::X509_STORE_CTX_get_error(check.get());
    const X509* at = ::X509_STORE_CTX_get_current_cert(check.get());
    std::string why = ::X509_verify_cert_error_string(error);
    if (error == X509_V_ERR_CERT_HAS_EXPIRED)
      why += fmt::format(", on {}", date(::X509_get0_notAfter(at)));
    if (error == X509_V_ERR_CERT_NOT_YET_VALID)
      why += fmt::format(", before {}", date(::X509_get0_notBefore(at)));
    if (error == X509_V_ERR_INVALID_PURPOSE)
      why +=
          "; expected a key usage of digitalSignature, and an extended one, if any, of "
          "serverAuth and clientAuth";
    const bool its_own = ::X509_STORE_CTX_get_error_depth(check.get()) == 0;
    source.refuse(fmt::format("would be refused by workers that trust '{}': {}{}", authority,
                              its_own ? "" : "one that vouches for it: ", why));
  }
}

}  // namespace

void use_certificates(SSL_CTX& context, const CertificateFiles& files) {
  const Source certificate{files.certificate, "certificate"}, key{files.key, "key"},
      authority{files.authority, "certificate of the authority"};
  const Certificates trusted = read_certificates(authority), chain = read_certificates(certificate);
  const PrivateKey own_key = read_key(key);
  const Certificate own(sk_X509_shift(chain.get()));
  if (::X509_check_private_key(own.get(), own_key.get()) != 1) {
    ::ERR_clear_error();
    key.refuse(fmt::format("does not belong to the certificate in '{}'", files.certificate));
  }

  const Store store(::X509_STORE_new());
  SKEIN_CHECK(store, "OpenSSL: {}", tls_error());
  for (int i = 0; i < sk_X509_num(trusted.get()); ++i)
    SKEIN_CHECK(::X509_STORE_add_cert(store.get(), sk_X509_value(trusted.get(), i)) == 1,
                "OpenSSL: {}", tls_error());
  check_own(store.get(), own.get(), chain.get(), ::SSL_CTX_get_security_level(&context),
            certificate, files.authority);
  if (::SSL_CTX_use_cert_and_key(&context, own.get(), own_key.get(), chain.get(), 1) != 1)
    certificate.refuse(fmt::format("cannot be used: {}", tls_error()));
  ::SSL_CTX_set1_cert_store(&context, store.get());
  ::SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
}

}  // namespace skein::tcp
