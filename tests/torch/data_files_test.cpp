// Data sets in files: each test writes its own.
#include "torch/data_files.h"

#include <cmath>
#include <set>

#include "data/decode.h"
#include "data/open.h"
#include "data/picture.h"

namespace skein {
namespace {

using test::Bytes;
using test::DataFolder;
using test::encode_jpeg;
using test::encode_png;
using test::expect_refused;

Bytes cut(Bytes bytes, std::size_t size) {
  bytes.resize(size);
  return bytes;
}

// An IDX file of bytes 0, 1, 2, … modulo `modulus`.
Bytes idx(const std::vector<std::uint8_t>& dimensions, unsigned modulus) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(dimensions.size())};
  std::size_t values = 1;
  for (const std::uint8_t dimension : dimensions) {
    bytes.insert(bytes.end(), {0, 0, 0, dimension});
    values *= dimension;
  }
  for (std::size_t i = 0; i < values; ++i) bytes.push_back(static_cast<std::uint8_t>(i % modulus));
  return bytes;
}

void write_mnist(const DataFolder& folder) {
  folder.write("train-images-idx3-ubyte", idx({20, 28, 28}, 256));
  folder.write("train-labels-idx1-ubyte", idx({20}, 10));
  folder.write("t10k-images-idx3-ubyte", idx({6, 28, 28}, 256));
  folder.write("t10k-labels-idx1-ubyte", idx({6}, 10));
}

TEST(Mnist, ReadsImagesAndLabels) {
  const DataFolder folder;
  write_mnist(folder);
  const DataSets data = open_data("mnist:" + folder.path(), {}, 1);
  EXPECT_EQ(data.name, "mnist");
  EXPECT_EQ(data.train->size(), 20);
  EXPECT_EQ(data.test->size(), 6);
  EXPECT_EQ(data.train->sample_shape(), (std::vector<std::int64_t>{1, 28, 28}));
  const std::vector<std::uint32_t> index{13};
  const Batch batch = data.train->get(index);
  EXPECT_EQ(batch.target.item<std::int64_t>(), 3);
  for (const std::int64_t pixel : {0, 1, 400, 783}) {
    const double byte = static_cast<double>((13 * 784 + pixel) % 256);
    EXPECT_NEAR(batch.data.flatten()[pixel].item<double>(), (byte / 255 - 0.1307) / 0.3081, 1e-5);
  }
}

TEST(Mnist, RefusesDamagedFiles) {
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  const auto open_with = [](const std::string& name, const Bytes& bytes) {
    return [=] {
      const DataFolder folder;
      write_mnist(folder);
      folder.write(name, bytes);
      open_data("mnist:" + folder.path(), {}, 1);
    };
  };
  const Bytes good = idx({20, 28, 28}, 256);
  expect_refused(open_with(images, cut(good, 15000)), {images, "15000 bytes", "15696"});
  expect_refused(open_with(images, cut(good, 9)), {images, "9 bytes", "header of 16"});
  expect_refused(open_with(images, {}), {images, "0 bytes"});
  expect_refused(open_with(images, cut(good, 15697)), {images, "15697 bytes", "15696"});
  expect_refused(open_with(images, idx({20}, 10)), {images, "00000801", "00000803"});
  expect_refused(open_with(images, idx({20, 0, 28}, 10)), {images, "dimension of 0 at byte 8"});
  Bytes huge = good;
  huge[4] = 0xff;
  expect_refused(open_with(images, huge), {images, "at byte 4"});
  expect_refused(open_with(labels, idx({19}, 10)), {labels, "19 labels", "20"});
  expect_refused(open_with(labels, idx({20}, 11)), {labels, "label 10 at byte 18"});
  expect_refused(open_with(images, idx({20, 14, 14}, 256)), {"14 x 14", "28 x 28"});
}

TEST(Mnist, SaysHowToUnpack) {
  const DataFolder folder;
  folder.write("train-images-idx3-ubyte.gz", {0x1f, 0x8b});
  expect_refused([&] { open_data("mnist:" + folder.path(), {}, 1); }, {"gunzip"});
}

Bytes cifar_records(std::size_t count, std::uint8_t first_label) {
  Bytes bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>((first_label + i) % 10));
    for (std::size_t k = 0; k < 3072; ++k)
      bytes.push_back(static_cast<std::uint8_t>((first_label + i + k / 1024) * 10));
  }
  return bytes;
}

void write_cifar(const DataFolder& folder) {
  for (std::uint8_t i = 1; i <= 5; ++i)
    folder.write("data_batch_" + std::to_string(i) + ".bin", cifar_records(2, i));
  folder.write("test_batch.bin", cifar_records(3, 0));
}

TEST(Cifar10, ReadsItsBatchesInOrder) {
  const DataFolder folder;
  write_cifar(folder);
  const DataSets data = open_data("cifar10:" + folder.path(), {}, 1);
  EXPECT_EQ(data.train->size(), 10);
  EXPECT_EQ(data.test->size(), 3);
  const std::vector<std::uint32_t> index{4, 9};  // data_batch_3's first, data_batch_5's second
  const Batch batch = data.train->get(index);
  EXPECT_EQ(batch.target[0].item<std::int64_t>(), 3);
  EXPECT_EQ(batch.target[1].item<std::int64_t>(), 6);
  // Planes red, green, blue of sample 4 are 30, 40 and 50 throughout.
  EXPECT_NEAR(batch.data[0][0][0][0].item<double>(), (30 / 255.0 - 0.4914) / 0.2470, 1e-5);
  EXPECT_NEAR(batch.data[0][1][31][31].item<double>(), (40 / 255.0 - 0.4822) / 0.2435, 1e-5);
  EXPECT_NEAR(batch.data[0][2][0][31].item<double>(), (50 / 255.0 - 0.4465) / 0.2616, 1e-5);
}

TEST(Cifar10, RefusesDamagedFiles) {
  const DataFolder folder;
  write_cifar(folder);
  const auto open = [&] { open_data("cifar10:" + folder.path(), {}, 1); };
  folder.write("data_batch_4.bin", cut(cifar_records(2, 4), 5000));
  expect_refused(open, {"data_batch_4.bin", "5000 bytes", "3073"});
  Bytes wrong = cifar_records(2, 4);
  wrong[3073] = 10;
  folder.write("data_batch_4.bin", wrong);
  expect_refused(open, {"data_batch_4.bin", "label 10 at byte 3073"});
  folder.write("data_batch_4.bin", cifar_records(2, 4));
  std::filesystem::remove(folder / "test_batch.bin");
  expect_refused(open, {"test_batch.bin", "no such file"});
  folder.write("test_batch.bin", {});
  expect_refused(open, {"test_batch.bin", "0 bytes"});
}

// Smooth, so that JPEG keeps it: red grows to the right, green downwards.
Bytes gradient(std::uint32_t width, std::uint32_t height) {
  Bytes rgb;
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x)
      rgb.insert(rgb.end(), {static_cast<std::uint8_t>(x * 255 / width),
                             static_cast<std::uint8_t>(y * 255 / height), 77});
  return rgb;
}

TEST(Decode, PngIsExactInAllItsForms) {
  const DataFolder folder;
  const Bytes rgb = gradient(13, 7);
  folder.write("a.png", encode_png(rgb, 13, 7));
  const Picture picture = decode_file(folder / "a.png");
  EXPECT_EQ(picture.width, 13);
  EXPECT_EQ(picture.height, 7);
  EXPECT_EQ(picture.rgb, rgb);
  folder.write("grey.png", encode_png({0, 100, 255, 3}, 2, 2, PNG_FORMAT_GRAY));
  EXPECT_EQ(decode_file(folder / "grey.png").rgb,
            (Bytes{0, 0, 0, 100, 100, 100, 255, 255, 255, 3, 3, 3}));
  folder.write("clear.png", encode_png({9, 8, 7, 255, 9, 8, 7, 0}, 2, 1, PNG_FORMAT_RGBA));
  EXPECT_EQ(decode_file(folder / "clear.png").rgb, (Bytes{9, 8, 7, 255, 255, 255}));
}

TEST(Decode, JpegIsNearTheOriginal) {
  const DataFolder folder;
  const Bytes rgb = gradient(40, 24);
  folder.write("a.jpg", encode_jpeg(rgb, 40, 24));
  const Picture picture = decode_file(folder / "a.jpg");
  ASSERT_EQ(picture.width, 40);
  ASSERT_EQ(picture.rgb.size(), rgb.size());
  for (std::size_t i = 0; i < rgb.size(); ++i)
    ASSERT_LE(std::abs(picture.rgb[i] - rgb[i]), 8) << "byte " << i;
}

TEST(Decode, EveryTruncationIsRefused) {
  const DataFolder folder;
  const Bytes png = encode_png(gradient(16, 16), 16, 16);
  const Bytes jpeg = encode_jpeg(gradient(16, 16), 16, 16);
  const auto decode = [&] { decode_file(folder / "cut"); };
  // PNG's last 12 bytes are its end mark, which carries nothing.
  for (std::size_t size = 0; size + 12 < png.size(); size += 7) {
    folder.write("cut", cut(png, size));
    expect_refused(decode, {"cut", std::to_string(size) + " bytes"});
  }
  for (std::size_t size = 0; size + 2 < jpeg.size(); size += 7) {
    folder.write("cut", cut(jpeg, size));
    expect_refused(decode, {"cut", std::to_string(size) + " bytes"});
  }
}

TEST(Decode, CorruptDataIsRefusedAndNeverFatal) {
  const DataFolder folder;
  Bytes png = encode_png(gradient(16, 16), 16, 16);
  png[png.size() / 2] ^= 0x55;  // breaks a checksum
  folder.write("bad.png", png);
  expect_refused([&] { decode_file(folder / "bad.png"); }, {"bad.png", "PNG"});
  folder.write("text.jpg", {'h', 'e', 'l', 'l', 'o'});
  expect_refused([&] { decode_file(folder / "text.jpg"); }, {"text.jpg", "neither"});
  const Bytes jpeg = encode_jpeg(gradient(16, 16), 16, 16);
  for (std::size_t at = 2; at < jpeg.size(); ++at) {
    Bytes bad = jpeg;
    bad[at] ^= 0xff;
    folder.write("bad.jpg", bad);
    try {
      decode_file(folder / "bad.jpg");  // changed pixels cannot be told; all else must be
    } catch (const ConfigError&) {
    }
  }
}

TEST(Picture, ScalesAndCutsTheMiddle) {
  // Three vertical bars of 10 × 10; the middle one is what is left.
  Picture bars{30, 10, {}};
  for (int y = 0; y < 10; ++y)
    for (int x = 0; x < 30; ++x)
      bars.rgb.insert(bars.rgb.end(), 3, static_cast<std::uint8_t>(x / 10 * 100));
  EXPECT_EQ(resize_and_crop(bars, 10).rgb, Bytes(300, 100));
  // At twice the size every pixel is either the bar's or, at its edge, a mixture.
  const Picture twice = resize_and_crop(bars, 20);
  EXPECT_EQ(twice.rgb.size(), 1200u);
  EXPECT_EQ(twice.rgb[0], 75);  // a quarter pixel from its centre towards the left bar
  EXPECT_EQ(twice.rgb[3 * 10], 100);
  EXPECT_EQ(twice.rgb[3 * 19], 125);
}

TEST(Picture, ShrinkingAverages) {
  // A fine chequerboard becomes grey; picking single pixels would leave black or white.
  Picture board{64, 64, {}};
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 64; ++x)
      board.rgb.insert(board.rgb.end(), 3, static_cast<std::uint8_t>((x + y) % 2 * 255));
  for (const std::uint8_t value : resize_and_crop(board, 8).rgb) EXPECT_NEAR(value, 127.5, 3);
}

void write_images(const DataFolder& folder, const std::string& part, int each) {
  for (int i = 0; i < each; ++i) {
    const std::string name = std::to_string(i);
    folder.write(part + "/cat/" + name + ".png", encode_png(Bytes(192, 10), 8, 8));
    folder.write(part + "/dog/" + name + ".JPG", encode_jpeg(Bytes(192, 200), 8, 8));
  }
  folder.write(part + "/cat/notes.txt", {'x'});
}

TEST(ImageFolder, ReadsClassesInOrderOfTheirNames) {
  const DataFolder folder;
  write_images(folder, "train", 3);
  write_images(folder, "val", 1);
  const DataSets data = open_data("images:" + folder.path(), {{"size", "4"}}, 1);
  EXPECT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.test->size(), 2);
  EXPECT_EQ(data.train->classes(), 2);
  EXPECT_EQ(data.train->sample_shape(), (std::vector<std::int64_t>{3, 4, 4}));
  const std::vector<std::uint32_t> index{0, 3};
  const Batch batch = data.train->get(index);
  EXPECT_EQ(batch.target[0].item<std::int64_t>(), 0);
  EXPECT_EQ(batch.target[1].item<std::int64_t>(), 1);
  EXPECT_NEAR(batch.data[0][0][3][3].item<double>(), (10 / 255.0 - 0.485) / 0.229, 1e-4);
  EXPECT_NEAR(batch.data[1][2][0][0].item<double>(), (200 / 255.0 - 0.406) / 0.225, 0.05);
}

// The first red value of every sample.
std::vector<float> marks(const Dataset& data) {
  std::vector<float> out;
  for (std::uint32_t i = 0; i < data.size(); ++i) {
    const std::vector<std::uint32_t> index{i};
    out.push_back(data.get(index).data[0][0][0][0].item<float>());
  }
  return out;
}

TEST(ImageFolder, HoldsATenthOutTheSameEveryTime) {
  const DataFolder folder;
  for (std::uint8_t i = 0; i < 40; ++i)
    folder.write((i % 2 == 0 ? "train/cat/" : "train/dog/") + std::to_string(i) + ".png",
                 encode_png(Bytes(12, i), 2, 2));
  const auto open = [&](std::uint64_t run_seed) {
    return open_data("images:" + folder.path(), {{"size", "2"}}, run_seed);
  };
  const DataSets data = open(1);
  const std::vector<float> train = marks(*data.train), test = marks(*data.test);
  EXPECT_EQ(train.size(), 36u);
  EXPECT_EQ(test.size(), 4u);
  std::set<float> all(train.begin(), train.end());
  all.insert(test.begin(), test.end());
  EXPECT_EQ(all.size(), 40u);
  EXPECT_EQ(marks(*open(2).test), test);
}

TEST(ImageFolder, RefusesWhatDoesNotFit) {
  const auto open = [](const DataFolder& folder) {
    return [&] { open_data("images:" + folder.path(), {}, 1); };
  };
  {
    const DataFolder folder;
    expect_refused(open(folder), {"train", "no such folder"});
    folder.write("train/cat/0.png", encode_png(Bytes(192, 10), 8, 8));
    expect_refused(open(folder), {"train", "1 folders", "at least two"});
    folder.write("train/dog/0.txt", {});
    expect_refused(open(folder), {"dog", "no pictures"});
  }
  const DataFolder folder;
  write_images(folder, "train", 2);
  folder.write("test/bird/0.png", encode_png(Bytes(192, 10), 8, 8));
  folder.write("test/cat/0.png", encode_png(Bytes(192, 10), 8, 8));
  expect_refused(open(folder), {"bird", "cat, dog"});
}

TEST(ImageFolder, ADamagedPictureIsNamedWhenItIsReached) {
  const DataFolder folder;
  write_images(folder, "train", 2);
  write_images(folder, "test", 1);
  folder.write("train/dog/1.JPG", cut(encode_jpeg(gradient(64, 64), 64, 64), 900));
  const DataSets data = open_data("images:" + folder.path(), {}, 1);
  const std::vector<std::uint32_t> good{0, 1, 2}, bad{3};
  EXPECT_EQ(data.train->get(good).samples(), 3);
  expect_refused([&] { data.train->get(bad); }, {"dog/1.JPG", "900 bytes"});
}

}  // namespace
}  // namespace skein
