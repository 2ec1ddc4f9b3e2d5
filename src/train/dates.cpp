// SPDX-License-Identifier: Apache-2.0
// Dates as ISO 8601 writes them.
#include <chrono>

#include "epilogue/data.h"

namespace epilogue::train {
namespace {

constexpr double kSecondsPerDay = 86400;

// Reads from the front of a text.
class DateReader {
 public:
  explicit DateReader(std::string_view text) : text_(text) {}
  bool is_done() const { return text_.empty(); }
  bool skip(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  // A number of so many digits, at most `most`; -1: none.
  int number(size_t digits, int most) {
    int value = 0;
    if (text_.size() < digits) return -1;
    for (const char c : text_.substr(0, digits)) {
      if (c < '0' || c > '9') return -1;
      value = 10 * value + (c - '0');
    }
    text_.remove_prefix(digits);
    return value <= most ? value : -1;
  }
  // The digits behind a point; 0: none.
  double fraction() {
    double value = 0;
    double weight = 0.1;
    for (; !text_.empty() && text_[0] >= '0' && text_[0] <= '9'; text_.remove_prefix(1)) {
      value += weight * (text_[0] - '0');
      weight /= 10;
    }
    return value;
  }

 private:
  std::string_view text_;
};

// Seconds since midnight; empty: no time.
std::optional<double> seconds_of_day(DateReader& text) {
  const int hour = text.number(2, 23);
  if (hour < 0 || !text.skip(':')) return {};
  const int minute = text.number(2, 59);
  if (minute < 0) return {};
  double seconds = 0;
  if (text.skip(':')) {
    const int second = text.number(2, 60);  // a leap second
    if (second < 0) return {};
    seconds = second + (text.skip('.') ? text.fraction() : 0);
  }
  return hour * 3600 + minute * 60 + seconds;
}

// Seconds east of Greenwich; empty: no zone.
std::optional<double> seconds_of_zone(DateReader& text) {
  if (text.is_done() || text.skip('Z')) return 0;
  const bool is_east = text.skip('+');
  if (!is_east && !text.skip('-')) return {};
  const int hours = text.number(2, 23);
  if (hours < 0) return {};
  int minutes = 0;
  if (!text.is_done()) {
    text.skip(':');
    minutes = text.number(2, 59);
    if (minutes < 0) return {};
  }
  return (is_east ? 1 : -1) * (hours * 3600 + minutes * 60);
}

}  // namespace

std::optional<double> days_of_date(std::string_view whole) {
  constexpr int kMostYears = 9999;
  DateReader text(whole);
  const int year = text.number(4, kMostYears);
  if (year < 0 || !text.skip('-')) return {};
  const int month = text.number(2, 12);
  if (month < 0 || !text.skip('-')) return {};
  const int day = text.number(2, 31);
  if (day < 0) return {};
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return {};
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  if (text.is_done()) return days;
  if (!text.skip('T') && !text.skip(' ')) return {};
  const auto seconds = seconds_of_day(text);
  if (!seconds) return {};
  const auto zone = seconds_of_zone(text);
  if (!zone || !text.is_done()) return {};
  return days + (*seconds - *zone) / kSecondsPerDay;
}

}  // namespace epilogue::train
