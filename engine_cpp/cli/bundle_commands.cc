// `pinfer inspect`, `verify`, `describe`: about bundles and settings, without an engine.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"

namespace pinfer::cli {
namespace {

std::string joined(const nlohmann::json& list) {
  std::string text;
  for (const auto& item : list) {
    text += (text.empty() ? "" : ", ") + (item.is_string() ? item.get<std::string>() : item.dump());
  }
  return text;
}

void print_summary(const nlohmann::json& manifest) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-18s%s\n", name, value.c_str());
  };
  line("format version", manifest["format_version"].dump());
  line("parts", joined(manifest["parts"]));
  line("exporter", manifest["exporter_version"].get<std::string>());
  if (manifest.contains("model")) {
    const auto& model = manifest["model"];
    line("model", model["model_name"].get<std::string>());
    line("architecture", model["architecture"].get<std::string>());
    line("dtype", model["dtype"].get<std::string>());
    line("layers", model["num_layers"].dump());
    line("vocabulary", model["vocab_size"].dump());
    line("context", model["max_model_len"].dump());
    line("target", manifest["target"]["device"].get<std::string>() + " " +
                       manifest["target"]["cpu_isa"].get<std::string>());
    line("providers", joined(manifest["providers"]));
  }
  if (manifest.contains("text")) line("end ids", joined(manifest["text"]["eos_token_ids"]));
  uint64_t total = 0;
  for (const auto& [name, file] : manifest["files"].items()) {
    std::printf("%14s  %s\n", file["size"].dump().c_str(), name.c_str());
    total += file["size"].get<uint64_t>();
  }
  std::printf("%14llu  bytes in all\n", static_cast<unsigned long long>(total));
}

}  // namespace

void add_bundle_commands(CLI::App* app, int* exit_code) {
  auto bundle = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);

  CLI::App* inspect_command = app->add_subcommand("inspect", "Show what a bundle holds");
  add_bundle(inspect_command, bundle.get());
  inspect_command->add_flag("--json", *as_json, "Print the manifest as it is");
  inspect_command->callback([=] {
    const std::string manifest = inspect(*bundle);
    if (*as_json) {
      std::printf("%s", manifest.c_str());
    } else {
      print_summary(nlohmann::json::parse(manifest));
    }
    *exit_code = kExitDone;
  });

  CLI::App* verify_command = app->add_subcommand("verify", "Check every file of a bundle");
  add_bundle(verify_command, bundle.get());
  verify_command->callback([=] {
    verify(*bundle);
    std::printf("%s: ok\n", bundle->c_str());
    *exit_code = kExitDone;
  });

  CLI::App* describe_command =
      app->add_subcommand("describe", "Show all settings with types and defaults");
  describe_command->add_flag("--json", *as_json, "As JSON (the default)");
  describe_command->callback([=] {
    std::printf("%s\n", pinfer_describe_json());
    *exit_code = kExitDone;
  });
}

}  // namespace pinfer::cli
