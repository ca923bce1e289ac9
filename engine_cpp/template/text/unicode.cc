#include "template/text/unicode.h"

#include <algorithm>
#include <span>

#include "template/text/utf8.h"

namespace pinfer::jinja {

namespace {

struct CharRange {
  char32_t first, last;
};
struct MapRun {
  char32_t first, last;
  int stride;
  int difference;
};
struct MapSpecial {
  char32_t code_point;
  char32_t mapped[3];  // ends at the first 0
};

#include "template/text/unicode_tables.inc"

std::span<const CharRange> ranges_of(CharClass char_class) {
  switch (char_class) {
    case CharClass::ALPHA:
      return kAlphaRanges;
    case CharClass::DECIMAL:
      return kDecimalRanges;
    case CharClass::DIGIT:
      return kDigitRanges;
    case CharClass::NUMERIC:
      return kNumericRanges;
    case CharClass::SPACE:
      return kSpaceRanges;
    case CharClass::LOWER:
      return kLowerRanges;
    case CharClass::UPPER:
      return kUpperRanges;
    case CharClass::TITLE:
      return kTitleRanges;
    case CharClass::PRINTABLE:
      return kPrintableRanges;
    case CharClass::CASE_IGNORABLE:
      return kCaseIgnorableRanges;
  }
  return {};
}

struct CaseTables {
  std::span<const MapRun> runs;
  std::span<const MapSpecial> specials;
};

CaseTables tables_of(CaseMap map) {
  switch (map) {
    case CaseMap::LOWER:
      return {kLowerRuns, kLowerSpecials};
    case CaseMap::UPPER:
      return {kUpperRuns, kUpperSpecials};
    case CaseMap::TITLE:
      return {kTitleRuns, kTitleSpecials};
    case CaseMap::FOLD:
      return {kFoldRuns, kFoldSpecials};
  }
  return {};
}

const CharRange* find_range(std::span<const CharRange> ranges, char32_t c) {
  auto it = std::upper_bound(ranges.begin(), ranges.end(), c,
                             [](char32_t value, const CharRange& r) { return value < r.first; });
  if (it == ranges.begin()) return nullptr;
  --it;
  return c <= it->last ? &*it : nullptr;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;

// A capital sigma becomes the final form after a cased letter and not before one.
bool is_final_sigma(std::u32string_view text, size_t index) {
  auto ignorable = [&](size_t i) { return is_in_class(text[i], CharClass::CASE_IGNORABLE); };
  size_t before = index;
  while (before > 0 && ignorable(before - 1)) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = index + 1;
  while (after < text.size() && ignorable(after)) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::u32string& out, std::u32string_view text, size_t index) {
  if (text[index] == kCapitalSigma) {
    out += is_final_sigma(text, index) ? kFinalSigma : kSigma;
  } else {
    append_mapped(out, text[index], CaseMap::LOWER);
  }
}

std::string map_all(std::string_view text, CaseMap map) {
  std::u32string mapped;
  for (char32_t c : to_code_points(text)) append_mapped(mapped, c, map);
  return from_code_points(mapped);
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

}  // namespace

bool is_in_class(char32_t code_point, CharClass char_class) {
  return find_range(ranges_of(char_class), code_point) != nullptr;
}

bool is_cased(char32_t c) {
  return is_in_class(c, CharClass::LOWER) || is_in_class(c, CharClass::UPPER) ||
         is_in_class(c, CharClass::TITLE);
}

int decimal_value(char32_t code_point) {
  const CharRange* range = find_range(kDecimalRanges, code_point);
  return range == nullptr ? -1 : static_cast<int>((code_point - range->first) % 10);
}

void append_mapped(std::u32string& out, char32_t c, CaseMap map) {
  CaseTables tables = tables_of(map);
  auto run = std::upper_bound(tables.runs.begin(), tables.runs.end(), c,
                              [](char32_t value, const MapRun& r) { return value < r.first; });
  // Runs with a stride may overlap their successor, so two candidates are looked at.
  for (int i = 0; i < 2 && run != tables.runs.begin(); ++i) {
    --run;
    if (c <= run->last && (c - run->first) % static_cast<char32_t>(run->stride) == 0) {
      out += static_cast<char32_t>(static_cast<int64_t>(c) + run->difference);
      return;
    }
  }
  auto special = std::lower_bound(
      tables.specials.begin(), tables.specials.end(), c,
      [](const MapSpecial& candidate, char32_t value) { return candidate.code_point < value; });
  if (c != 0 && special != tables.specials.end() && special->code_point == c) {
    for (char32_t mapped : special->mapped) {
      if (mapped != 0) out += mapped;
    }
    return;
  }
  out += c;
}

std::string to_lower(std::string_view text) {
  if (is_ascii(text)) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(), ascii_lower);
    return result;
  }
  std::u32string code_points = to_code_points(text);
  std::u32string mapped;
  for (size_t i = 0; i < code_points.size(); ++i) append_lower(mapped, code_points, i);
  return from_code_points(mapped);
}

std::string to_upper(std::string_view text) {
  if (!is_ascii(text)) return map_all(text, CaseMap::UPPER);
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), ascii_upper);
  return result;
}

std::string to_casefold(std::string_view text) { return map_all(text, CaseMap::FOLD); }

std::string to_title(std::string_view text) {
  std::u32string code_points = to_code_points(text);
  std::u32string mapped;
  bool after_cased = false;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (after_cased) {
      append_lower(mapped, code_points, i);
    } else {
      append_mapped(mapped, code_points[i], CaseMap::TITLE);
    }
    after_cased = is_cased(code_points[i]);
  }
  return from_code_points(mapped);
}

std::string capitalize(std::string_view text) {
  std::u32string code_points = to_code_points(text);
  std::u32string mapped;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (i == 0) {
      append_mapped(mapped, code_points[i], CaseMap::TITLE);
    } else {
      append_lower(mapped, code_points, i);
    }
  }
  return from_code_points(mapped);
}

std::string swap_case(std::string_view text) {
  std::u32string code_points = to_code_points(text);
  std::u32string mapped;
  for (size_t i = 0; i < code_points.size(); ++i) {
    char32_t c = code_points[i];
    if (is_in_class(c, CharClass::UPPER)) {
      append_lower(mapped, code_points, i);
    } else if (is_in_class(c, CharClass::LOWER)) {
      append_mapped(mapped, c, CaseMap::UPPER);
    } else {
      mapped += c;
    }
  }
  return from_code_points(mapped);
}

}  // namespace pinfer::jinja
