#include "page/downsampled.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace skein {

Downsampled::Downsampled(std::vector<Column> columns, std::size_t most_rows)
    : columns_(std::move(columns)), most_rows_(most_rows) {
  SKEIN_CHECK(most_rows_ >= 2, "room for {} rows", most_rows_);
}

std::size_t Downsampled::place_of(std::string_view name) const {
  const auto found = std::ranges::find(columns_, name, &Column::name);
  SKEIN_CHECK(found != columns_.end(), "no column '{}'", name);
  return static_cast<std::size_t>(found - columns_.begin());
}

double Downsampled::last(std::string_view name) const {
  return rows_.empty() ? kUnknown : rows_.back()[place_of(name)];
}

void Downsampled::add(const Row& row) {
  SKEIN_CHECK(row.size() == columns_.size(), "a row of {} for {} columns", row.size(),
              columns_.size());
  if (in_last_ > 0 && in_last_ < stride_) {
    merge(rows_.back(), in_last_, row, 1);
    ++in_last_;
    return;
  }
  if (rows_.size() == most_rows_) halve();
  if (in_last_ > 0 && in_last_ < stride_) {  // halving has left room in the last
    merge(rows_.back(), in_last_, row, 1);
    ++in_last_;
    return;
  }
  rows_.push_back(row);
  in_last_ = 1;
}

void Downsampled::drop_above(double value) {
  while (!rows_.empty() && rows_.back().front() > value) {
    rows_.pop_back();
    in_last_ = rows_.empty() ? 0 : stride_;
  }
}

void Downsampled::merge(Row& into, std::int64_t weight, const Row& row,
                        std::int64_t row_weight) const {
  for (std::size_t i = 0; i < row.size(); ++i) {
    double& value = into[i];
    if (std::isnan(row[i])) continue;
    if (std::isnan(value) || columns_[i].kind == Kind::last)
      value = row[i];
    else if (columns_[i].kind == Kind::sum)
      value += row[i];
    else if (columns_[i].kind == Kind::most)
      value = std::max(value, row[i]);
    else
      value += (row[i] - value) * static_cast<double>(row_weight) /
               static_cast<double>(weight + row_weight);
  }
}

// All rows but the last are full.
void Downsampled::halve() {
  std::size_t kept = 0;
  std::int64_t last_weight = in_last_;
  for (std::size_t i = 0; i < rows_.size(); i += 2) {
    const bool pair = i + 1 < rows_.size();
    const std::int64_t second = !pair ? 0 : i + 2 == rows_.size() ? in_last_ : stride_;
    const std::int64_t first = pair ? stride_ : in_last_;
    if (pair) merge(rows_[i], first, rows_[i + 1], second);
    last_weight = first + second;
    std::swap(rows_[kept++], rows_[i]);
  }
  rows_.resize(kept);
  stride_ *= 2;
  in_last_ = last_weight;
}

}  // namespace skein
