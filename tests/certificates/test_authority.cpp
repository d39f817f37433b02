#include "certificates/test_authority.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <vector>

#include "core/check.h"

namespace skein {
namespace {

std::filesystem::path fresh_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "skein-ca-XXXXXX").string();
  SKEIN_CHECK(::mkdtemp(path.data()) != nullptr, "no folder at {}", path);
  return path;
}

void extend(X509& certificate, int what, const std::string& value) {
  X509_EXTENSION* extension = ::X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
  SKEIN_CHECK(extension && ::X509_add_ext(&certificate, extension, -1) == 1, "no extension {}",
              value);
  ::X509_EXTENSION_free(extension);
}

template <typename Write>
void write_file(const std::filesystem::path& path, Write write) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  SKEIN_CHECK(file, "cannot write {}", path.string());
  write(file);
  std::fclose(file);
  ::chmod(path.c_str(), 0600);
}

}  // namespace

TestAuthority::TestAuthority()
    : folder_(fresh_folder()), key_(::EVP_EC_gen("P-256")), certificate_(sign(*key_, {}, true)) {
  write_file(file(), [&](std::FILE* to) { ::PEM_write_X509(to, certificate_.get()); });
}

TestAuthority::TestAuthority(const TestAuthority& above, const CertificateKind& kind)
    : folder_(fresh_folder()),
      above_(&above),
      key_(::EVP_EC_gen("P-256")),
      certificate_(above.sign(*key_, kind, true)) {}

TestAuthority::~TestAuthority() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string TestAuthority::file() const {
  return above_ ? above_->file() : (folder_ / "ca.pem").string();
}

TestAuthority::Certificate TestAuthority::sign(EVP_PKEY& key, const CertificateKind& kind,
                                               bool authority) const {
  Certificate out(::X509_new());
  ::X509_set_version(out.get(), X509_VERSION_3);
  ::ASN1_INTEGER_set(::X509_get_serialNumber(out.get()), 1000 + ++issued_);
  ::X509_gmtime_adj(::X509_getm_notBefore(out.get()), kind.from.count());
  ::X509_gmtime_adj(::X509_getm_notAfter(out.get()), kind.to.count());
  ::X509_set_pubkey(out.get(), &key);
  const std::string name = (authority ? "authority " : "worker ") + folder_.filename().string() +
                           std::to_string(issued_);
  ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(out.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  const bool own = kind.self_signed || !certificate_;
  ::X509_set_issuer_name(out.get(), ::X509_get_subject_name(own ? out.get() : certificate_.get()));
  extend(*out, NID_basic_constraints, authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  extend(*out, NID_key_usage, authority ? "critical,keyCertSign" : "critical,digitalSignature");
  if (!authority) extend(*out, NID_ext_key_usage, kind.use);
  SKEIN_CHECK(::X509_sign(out.get(), own ? &key : key_.get(), ::EVP_sha256()) > 0, "not signed");
  return out;
}

tcp::CertificateFiles TestAuthority::issue(const CertificateKind& kind) const {
  const Key key(::EVP_EC_gen("P-256"));
  const Certificate certificate = sign(*key, kind, false);
  const std::string name = folder_ / ("worker-" + std::to_string(issued_));
  const tcp::CertificateFiles out{name + ".pem", name + ".key", file()};
  write_file(out.certificate, [&](std::FILE* to) {
    ::PEM_write_X509(to, certificate.get());
    for (const TestAuthority* each = this; each->above_; each = each->above_)
      ::PEM_write_X509(to, each->certificate_.get());
  });
  write_file(out.key, [&](std::FILE* to) {
    ::PEM_write_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return out;
}

}  // namespace skein
