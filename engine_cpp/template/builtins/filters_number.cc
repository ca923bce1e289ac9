// Filters that make numbers, or text from them.
#include <cmath>
#include <cstdio>

#include "template/builtins/convert.h"
#include "template/builtins/operators.h"
#include "template/text/number_text.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

namespace {

Value filter_abs(RenderContext&, const Value& input, Arguments& arguments) {
  bind_arguments("abs", arguments, {});
  check_defined(input);
  if (input.is(Type::FLOAT)) return Value::real(std::fabs(input.as_double()));
  if (!input.is_integral()) {
    throw RenderError("bad operand type for abs(): '" + type_name(input) + "'");
  }
  return input.as_int() < 0 ? negate(input) : positive(input);
}

Value truncated(double value) {
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) {
    throw RenderError("the integer needs more than 64 bits");
  }
  return Value::integer(static_cast<int64_t>(std::trunc(value)));
}

// int(float(value)), or nothing where Python raises an error that the filter swallows.
std::optional<Value> int_through_float(const Value& value) {
  double number = 0;
  if (value.is_string()) {
    std::optional<double> parsed = parse_float(value.text());
    if (!parsed.has_value()) return std::nullopt;
    number = *parsed;
  } else if (value.is_number()) {
    number = value.as_double();
  } else {
    return std::nullopt;
  }
  if (!std::isfinite(number)) return std::nullopt;
  return truncated(number);
}

Value filter_int(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("int", arguments, {"default", "base"});
  Value fallback = bound[0].is_missing() ? Value::integer(0) : bound[0];
  int64_t base = optional_int(bound[1], "int").value_or(10);
  check_defined(input);
  if (input.is_integral()) return positive(input);
  if (input.is(Type::FLOAT) && std::isinf(input.as_double())) {
    throw RenderError("cannot convert float infinity to integer");
  }
  if (input.is_string()) {
    context.heap.spend_bytes(input.text().size());
    bool valid_base = base == 0 || (base >= 2 && base <= 36);
    ParsedInt parsed = valid_base ? parse_int(input.text(), static_cast<int>(base)) : ParsedInt{};
    if (parsed.value.has_value()) return Value::integer(*parsed.value);
    if (parsed.error == IntError::TOO_LARGE) {
      throw RenderError("the integer needs more than 64 bits");
    }
  }
  return int_through_float(input).value_or(fallback);
}

Value filter_float(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("float", arguments, {"default"});
  Value fallback = bound[0].is_missing() ? Value::real(0.0) : bound[0];
  check_defined(input);
  if (input.is_number()) return Value::real(input.as_double());
  if (!input.is_string()) return fallback;
  context.heap.spend_bytes(input.text().size());
  std::optional<double> parsed = parse_float(input.text());
  return parsed.has_value() ? Value::real(*parsed) : fallback;
}

// round(int, -digits): half to even.
Value round_int(int64_t value, int64_t digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -19) return Value::integer(0);
  if (digits == -19) {  // half of it fits, all of it does not
    constexpr int64_t kHalf = 5'000'000'000'000'000'000;
    if (value > kHalf || value < -kHalf) {
      throw RenderError("the integer result needs more than 64 bits");
    }
    return Value::integer(0);
  }
  int64_t scale = 1;
  for (int64_t i = 0; i < -digits; ++i) scale *= 10;
  int64_t remainder = value % scale;
  int64_t magnitude = remainder < 0 ? -remainder : remainder;
  int64_t base = value - remainder;
  bool odd = (base / scale) % 2 != 0;
  bool up = magnitude > scale - magnitude || (magnitude == scale - magnitude && odd);
  if (!up) return Value::integer(base);
  int64_t result = 0;
  if (__builtin_add_overflow(base, value < 0 ? -scale : scale, &result)) {
    throw RenderError("the integer result needs more than 64 bits");
  }
  return Value::integer(result);
}

Value filter_round(RenderContext&, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("round", arguments, {"precision", "method"});
  int64_t digits = optional_int(bound[0], "round").value_or(0);
  std::string method =
      bound[1].is_missing() ? "common" : require_text(bound[1], "round: the method");
  if (method != "common" && method != "ceil" && method != "floor") {
    throw RenderError("method must be common, ceil or floor");
  }
  check_defined(input);
  if (!input.is_number()) {
    throw RenderError("type " + type_name(input) + " doesn't define __round__ method");
  }
  if (method == "common") {
    if (input.is_integral()) return round_int(input.as_int(), digits);
    int clamped = static_cast<int>(std::max<int64_t>(-400, std::min<int64_t>(digits, 400)));
    return Value::real(round_float(input.as_double(), clamped));
  }
  double scale = std::pow(10.0, static_cast<double>(digits));
  double scaled = input.as_double() * scale;
  if (!std::isfinite(scaled) || scale == 0.0) {
    throw RenderError("cannot convert the float to an integer");
  }
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_filesizeformat(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("filesizeformat", arguments, {"binary"});
  bool binary = flag(bound[0]);
  check_defined(input);
  std::optional<double> bytes;
  if (input.is_number()) bytes = input.as_double();
  if (input.is_string()) bytes = parse_float(input.text());
  if (!bytes.has_value() || !std::isfinite(*bytes)) {
    throw RenderError("filesizeformat: expected a number, found " + type_name(input));
  }
  double base = binary ? 1024 : 1000;
  if (*bytes == 1) return make_string(context.heap, "1 Byte");
  if (*bytes < base) {
    return make_string(context.heap, std::to_string(truncated(*bytes).as_int()) + " Bytes");
  }
  static constexpr char kPrefixes[] = "kMGTPEZY";
  double unit = base * base;
  size_t prefix = 0;
  while (*bytes >= unit && prefix + 1 < sizeof(kPrefixes) - 1) {
    unit *= base;
    ++prefix;
  }
  char buffer[400];
  std::snprintf(buffer, sizeof(buffer), "%.1f %c%sB", base * *bytes / unit,
                binary && prefix == 0 ? 'K' : kPrefixes[prefix], binary ? "i" : "");
  return make_string(context.heap, buffer);
}

Value filter_sum(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("sum", arguments, {"attribute", "start"});
  AttributePath path(context.heap, bound[0]);
  Value total = bound[1].is_missing() ? Value::integer(0) : bound[1];
  if (total.is_string()) {
    throw RenderError("sum() can't sum strings [use ''.join(seq) instead]");
  }
  Iteration iteration(context.heap, input);
  Value item;
  while (iteration.next(item)) {
    total = binary_operation(context, BinaryOperator::ADD, total, path.look_up(context, item));
  }
  return total;
}

constexpr Filter kNumberFilters[] = {
    {"abs", filter_abs},     {"int", filter_int}, {"float", filter_float},
    {"round", filter_round}, {"sum", filter_sum}, {"filesizeformat", filter_filesizeformat},
};

}  // namespace

std::span<const Filter> number_filters() { return kNumberFilters; }

}  // namespace pinfer::jinja
