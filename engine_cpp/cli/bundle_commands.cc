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

// "generate", or "embed (last token, normalized)".
std::string task_of(const nlohmann::json& manifest) {
  const std::string task = manifest.value("task", "generate");
  if (!manifest.contains("pooling")) return task;
  const auto& pooling = manifest.at("pooling");
  const bool is_mean = pooling.at("mode").get<std::string>() == "mean";
  return task + (is_mean ? " (mean of all tokens" : " (last token") +
         (pooling.at("normalize").get<bool>() ? ", normalized)" : ")");
}

void print_summary(const nlohmann::json& manifest) {
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-18s%s\n", name, value.c_str());
  };
  line("format version", manifest.at("format_version").dump());
  line("parts", joined(manifest.at("parts")));
  line("exporter", manifest.at("exporter_version").get<std::string>());
  if (manifest.contains("model")) {
    const auto& model = manifest.at("model");
    line("model", model.at("model_name").get<std::string>());
    line("task", task_of(manifest));
    line("architecture", model.at("architecture").get<std::string>());
    line("dtype", model.at("dtype").get<std::string>());
    line("layers", model.at("num_layers").dump());
    line("vocabulary", model.at("vocab_size").dump());
    line("context", model.at("max_model_len").dump());
    const auto& target = manifest.at("target");
    const std::string device = target.at("device").get<std::string>();
    line("target", device + " " + target.at("cpu_isa").get<std::string>());
    if (device == "cuda") {
      line("kernels for", "sm " + joined(target.at("cuda_archs")) + "; not yet run on a GPU");
    }
    line("providers", joined(manifest.at("providers")));
  }
  if (manifest.contains("text")) line("end ids", joined(manifest.at("text").at("eos_token_ids")));
  uint64_t total = 0;
  for (const auto& [name, file] : manifest.at("files").items()) {
    std::printf("%14s  %s\n", file.at("size").dump().c_str(), name.c_str());
    total += file.at("size").get<uint64_t>();
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
