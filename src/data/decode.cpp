#include "data/decode.h"

// jpeglib.h uses FILE and size_t without declaring them.
#include <csetjmp>
#include <cstdio>

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string>

#include "data/read_file.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::uint8_t>;

constexpr std::uint32_t kMostPixels = 16'384;  // per side

[[noreturn]] void refuse(const fs::path& path, const char* format, Bytes bytes,
                         const std::string& reason) {
  throw ConfigError(fmt::format("{}: not a readable {} file ({} bytes): {}", path.string(), format,
                                bytes.size(), reason));
}

void check_size(const fs::path& path, std::uint32_t width, std::uint32_t height) {
  if (width == 0 || height == 0 || width > kMostPixels || height > kMostPixels)
    throw ConfigError(fmt::format("{}: {} x {} pixels, expected 1 to {} each way", path.string(),
                                  width, height, kMostPixels));
}

Picture make_picture(std::uint32_t width, std::uint32_t height) {
  return {static_cast<int>(width), static_cast<int>(height),
          std::vector<std::uint8_t>(std::size_t{3} * width * height)};
}

Picture decode_png(const fs::path& path, Bytes bytes) {
  struct Image : png_image {
    Image() : png_image{} { version = PNG_IMAGE_VERSION; }
    ~Image() { png_image_free(this); }
  } image;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0)
    refuse(path, "PNG", bytes, image.message);
  check_size(path, image.width, image.height);
  image.format = PNG_FORMAT_RGB;
  Picture picture = make_picture(image.width, image.height);
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&image, &white, picture.rgb.data(), 0, nullptr) == 0)
    refuse(path, "PNG", bytes, image.message);
  return picture;
}

// libjpeg reports errors by a function that must not return: it jumps back to `back`. Everything
// lives here, so that no jump passes an object with a destructor.
struct Jpeg {
  jpeg_decompress_struct reader{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> message{};

  Jpeg() {
    reader.err = jpeg_std_error(&errors);
    reader.client_data = this;
    errors.error_exit = [](j_common_ptr info) { fail(info); };
    errors.emit_message = [](j_common_ptr info, int level) {
      // Below zero: the data is damaged and libjpeg would go on with grey. Stray bytes between two
      // markers, which some cameras write, harm nothing.
      if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA) fail(info);
    };
    errors.output_message = [](j_common_ptr) {};
  }
  ~Jpeg() { jpeg_destroy_decompress(&reader); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  [[noreturn]] static void fail(j_common_ptr info) {
    auto& jpeg = *static_cast<Jpeg*>(info->client_data);
    info->err->format_message(info, jpeg.message.data());
    std::longjmp(jpeg.back, 1);
  }

  // False when it failed; `message` says why.
  bool read_header(Bytes bytes) {
    if (setjmp(back) != 0) return false;
    jpeg_create_decompress(&reader);
    jpeg_mem_src(&reader, bytes.data(), bytes.size());
    jpeg_read_header(&reader, TRUE);
    return true;
  }

  // The size is that of image_width and image_height.
  bool read_pixels(Picture& picture) {
    if (setjmp(back) != 0) return false;
    reader.out_color_space = JCS_RGB;
    jpeg_start_decompress(&reader);
    while (reader.output_scanline < reader.output_height) {
      JSAMPROW row =
          picture.rgb.data() + std::size_t{3} * reader.output_width * reader.output_scanline;
      jpeg_read_scanlines(&reader, &row, 1);
    }
    jpeg_finish_decompress(&reader);
    return true;
  }
};

Picture decode_jpeg(const fs::path& path, Bytes bytes) {
  Jpeg jpeg;
  if (!jpeg.read_header(bytes)) refuse(path, "JPEG", bytes, jpeg.message.data());
  check_size(path, jpeg.reader.image_width, jpeg.reader.image_height);
  Picture picture = make_picture(jpeg.reader.image_width, jpeg.reader.image_height);
  if (!jpeg.read_pixels(picture)) refuse(path, "JPEG", bytes, jpeg.message.data());
  return picture;
}

bool begins_with(Bytes bytes, std::initializer_list<std::uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

}  // namespace

bool is_picture_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

Picture decode_file(const fs::path& path) {
  const std::vector<std::uint8_t> bytes = read_file(path, std::uint64_t{1} << 30);
  if (begins_with(bytes, {0x89, 'P', 'N', 'G'})) return decode_png(path, bytes);
  if (begins_with(bytes, {0xff, 0xd8})) return decode_jpeg(path, bytes);
  throw ConfigError(
      fmt::format("{}: {} bytes that are neither PNG nor JPEG", path.string(), bytes.size()));
}

}  // namespace skein
