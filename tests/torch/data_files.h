// Small data files that tests write: a folder that goes away, and PNG and JPEG by their libraries.
#pragma once

// jpeglib.h uses FILE and size_t without declaring them.
#include <cstdio>

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>
#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "skein/error.h"

namespace skein::test {

using Bytes = std::vector<std::uint8_t>;

// A new folder under $TMPDIR, removed with all that is in it.
class DataFolder {
 public:
  DataFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "skein-data-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~DataFolder() { std::filesystem::remove_all(path_); }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  void write(const std::string& name, const Bytes& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error("write " + name);
  }

 private:
  std::filesystem::path path_;
};

// Expects `call` to throw a ConfigError whose text holds every one of `parts`.
template <typename Call>
void expect_refused(Call call, const std::vector<std::string>& parts) {
  try {
    call();
  } catch (const ConfigError& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << error.what() << "' should say '" << part << "'";
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected an error about " << parts.front();
}

// `pixels` row by row in the given PNG_FORMAT.
inline Bytes encode_png(const Bytes& pixels, std::uint32_t width, std::uint32_t height,
                        std::uint32_t format = PNG_FORMAT_RGB) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(image, size, 0, pixels.data(), 0, nullptr);
  Bytes bytes(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error(image.message);
  bytes.resize(size);
  return bytes;
}

inline Bytes encode_jpeg(const Bytes& rgb, std::uint32_t width, std::uint32_t height) {
  jpeg_compress_struct writer{};
  jpeg_error_mgr errors{};
  writer.err = jpeg_std_error(&errors);
  jpeg_create_compress(&writer);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&writer, &memory, &size);
  writer.image_width = width;
  writer.image_height = height;
  writer.input_components = 3;
  writer.in_color_space = JCS_RGB;
  jpeg_set_defaults(&writer);
  jpeg_set_quality(&writer, 98, TRUE);
  jpeg_start_compress(&writer, TRUE);
  Bytes copy = rgb;
  while (writer.next_scanline < height) {
    JSAMPROW row = copy.data() + std::size_t{3} * width * writer.next_scanline;
    jpeg_write_scanlines(&writer, &row, 1);
  }
  jpeg_finish_compress(&writer);
  jpeg_destroy_compress(&writer);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

}  // namespace skein::test
