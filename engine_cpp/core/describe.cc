#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/engine_config.h"
#include "core/sampling_params.h"

namespace pinfer {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
struct FieldType;
template <>
struct FieldType<int32_t> {
  static constexpr const char* kName = "int";
};
template <>
struct FieldType<double> {
  static constexpr const char* kName = "float";
};
template <>
struct FieldType<bool> {
  static constexpr const char* kName = "bool";
};
template <>
struct FieldType<std::string> {
  static constexpr const char* kName = "str";
};
template <typename Int>
struct FieldType<std::optional<Int>> {
  static constexpr const char* kName = "int or none";
};
template <>
struct FieldType<std::vector<int32_t>> {
  static constexpr const char* kName = "list of int";
};
template <>
struct FieldType<std::vector<std::vector<int32_t>>> {
  static constexpr const char* kName = "list of lists of int";
};
template <>
struct FieldType<std::vector<std::string>> {
  static constexpr const char* kName = "list of str";
};
template <>
struct FieldType<std::map<int32_t, double>> {
  static constexpr const char* kName = "map of int to float";
};

template <typename T>
Json describe_field(const char* name, const T& value) {
  Json field = {{"name", name}};
  if constexpr (std::is_enum_v<T>) {
    field["type"] = "enum";
    field["default"] = enum_name(value);
    field["values"] = kEnumNames<T>;
  } else {
    field["type"] = FieldType<T>::kName;
    field["default"] = value;
  }
  return field;
}

// JSON keys are strings; the library would print a map with integer keys as pairs.
Json to_json(const std::map<int32_t, double>& value) {
  Json object = Json::object();
  for (const auto& [key, entry] : value) object[std::to_string(key)] = entry;
  return object;
}

template <typename Int>
Json describe_field(const char* name, const std::optional<Int>& value) {
  return {{"name", name},
          {"type", FieldType<std::optional<Int>>::kName},
          {"default", value ? Json(*value) : Json(nullptr)}};
}

template <>
Json describe_field(const char* name, const std::map<int32_t, double>& value) {
  return {{"name", name},
          {"type", FieldType<std::map<int32_t, double>>::kName},
          {"default", to_json(value)}};
}

template <typename Config>
Json describe() {
  const Config defaults;
  Json fields = Json::array();
  Config::for_each_field([&](const char* name, auto member) {
    fields.push_back(describe_field(name, defaults.*member));
  });
  return fields;
}

}  // namespace

std::string describe_configs_json() {
  return Json{{"EngineConfig", describe<EngineConfig>()},
              {"SamplingParams", describe<SamplingParams>()}}
      .dump(2);
}

}  // namespace pinfer
