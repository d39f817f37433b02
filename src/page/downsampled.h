// A series of any length in bounded memory.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace skein {

// Rows of numbers, of which every `stride` neighbours are one. When there are too many, the stride
// doubles: so a run of a million steps has as many points as a screen can show.
class Downsampled {
 public:
  enum class Kind { last, mean, sum, most };  // what becomes of a column where rows are one
  struct Column {
    const char* name;  // a literal
    Kind kind;
  };
  using Row = std::vector<double>;
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  explicit Downsampled(std::vector<Column> columns, std::size_t most_rows = 2000);

  const std::vector<Column>& columns() const { return columns_; }

  // Where rows have that column, which there is; and what the last row has there, or kUnknown.
  std::size_t place_of(std::string_view name) const;
  double last(std::string_view name) const;

  void add(const Row& row);  // as many numbers as there are columns

  // Removes the rows whose column 0 is greater than `value`, which are at the end. Of one that
  // stands for rows on both sides, all go.
  void drop_above(double value);

  std::int64_t stride() const { return stride_; }
  const std::vector<Row>& rows() const { return rows_; }  // the last may still change

 private:
  void merge(Row& into, std::int64_t weight, const Row& row, std::int64_t row_weight) const;
  void halve();

  std::vector<Column> columns_;
  std::size_t most_rows_;
  std::int64_t stride_ = 1;
  std::vector<Row> rows_;
  std::int64_t in_last_ = 0;  // rows that the last one stands for; 0 where there is none
};

}  // namespace skein
