// `pinfer serve`: the OpenAI-compatible HTTP server.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cli/commands.h"
#include "cli/flags.h"
#include "server/server.h"

namespace pinfer::cli {
namespace {

using server::ServerConfig;
using server::ServerLog;

constexpr int32_t kDefaultMaxQueue = 1024;

struct ServeFlags {
  EngineFlags engine;
  ServerConfig config;
  double drain_timeout = 30, header_timeout = 20, body_timeout = 60, write_timeout = 60;
  double keep_alive_timeout = 75, event_ping = 15, stuck_after = 60;
  uint64_t max_body_mb = 32;
  std::string log_format = "text";
  bool print_config = false;
};

void add_listen_flags(CLI::App* command, ServerConfig* config) {
  const std::string group = "Listening";
  const auto add = [&](CLI::Option* option) { option->group(group)->capture_default_str(); };
  add(command->add_option("--host", config->host, "Address to listen on"));
  add(command->add_option("--port", config->port, "Port (0: any free one)")
          ->check(CLI::Range(0, 65535)));
  add(command->add_option("--unix-socket", config->unix_socket,
                          "Listen on this unix socket instead"));
  add(command
          ->add_option("--served-model-name", config->served_model_names,
                       "Name of the model in requests (repeatable; default: the bundle's)")
          ->allow_extra_args(false));
}

void add_access_flags(CLI::App* command, ServerConfig* config) {
  const std::string group = "Access";
  const auto add = [&](CLI::Option* option) { option->group(group); };
  add(command->add_option("--api-key", config->api_keys, "Key that requests must show (repeatable)")
          ->allow_extra_args(false));
  add(command->add_option("--api-key-file", config->api_key_file,
                          "File of keys, one a line; read again on SIGHUP"));
  add(command->add_option("--tls-cert", config->tls_cert,
                          "Certificate chain (PEM); read again on SIGHUP"));
  add(command->add_option("--tls-key", config->tls_key, "Its private key (PEM)"));
  add(command
          ->add_option("--cors-origin", config->cors_origins,
                       "Origin whose pages may use this server (repeatable; *: any)")
          ->allow_extra_args(false));
}

void add_limit_flags(CLI::App* command, ServeFlags* flags) {
  const std::string group = "Limits";
  const auto add = [&](CLI::Option* option) { option->group(group)->capture_default_str(); };
  const auto seconds = [&](const char* name, double* value, const char* help) {
    add(command->add_option(name, *value, help)->check(CLI::Range(0.001, 1e6)));
  };
  add(command
          ->add_option("--max-queue", flags->engine.options.max_queue,
                       "Requests waiting at once; more are answered 503 (0: no limit)")
          ->check(CLI::Range(0, INT32_MAX)));
  add(command
          ->add_option("--max-queue-tokens", flags->engine.options.max_queue_tokens,
                       "Their prompt tokens (0: no limit)")
          ->check(CLI::Range(int64_t{0}, INT64_MAX)));
  add(command->add_option("--max-connections", flags->config.max_connections, "Connections at once")
          ->check(CLI::Range(1, 1'000'000)));
  add(command->add_option("--max-body", flags->max_body_mb, "Largest request, in MiB")
          ->check(CLI::Range(1, 4096)));
  seconds("--drain-timeout", &flags->drain_timeout,
          "Seconds that running requests have to end after SIGTERM");
  seconds("--header-timeout", &flags->header_timeout, "Seconds for a request's header");
  seconds("--body-timeout", &flags->body_timeout, "Seconds for its body");
  seconds("--write-timeout", &flags->write_timeout, "Seconds for a client to take what it is sent");
  seconds("--keep-alive-timeout", &flags->keep_alive_timeout,
          "Seconds between the requests of a connection");
  seconds("--event-ping", &flags->event_ping, "Seconds of silence before a comment in a stream");
  seconds("--stuck-after", &flags->stuck_after,
          "Seconds without a step, while requests run, until /health says so");
}

void add_log_flags(CLI::App* command, ServeFlags* flags) {
  const std::string group = "Log";
  command->add_option("--log-format", flags->log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->group(group)
      ->capture_default_str();
  command
      ->add_flag("--log-requests", flags->config.log_requests,
                 "Log the bodies of requests, at level debug")
      ->group(group);
  command->add_flag("--print-config", flags->print_config, "Print the settings as JSON and end")
      ->group(group);
}

void read_units(ServeFlags* flags) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  };
  ServerConfig& config = flags->config;
  config.drain_timeout = milliseconds(flags->drain_timeout);
  config.header_timeout = milliseconds(flags->header_timeout);
  config.body_timeout = milliseconds(flags->body_timeout);
  config.write_timeout = milliseconds(flags->write_timeout);
  config.keep_alive_timeout = milliseconds(flags->keep_alive_timeout);
  config.event_ping = milliseconds(flags->event_ping);
  config.stuck_after = milliseconds(flags->stuck_after);
  config.max_queue = flags->engine.options.max_queue;
  config.max_body = flags->max_body_mb << 20;
  config.log_as_json = flags->log_format == "json";
  for (const std::string& name : config.served_model_names) {
    if (name.empty()) throw Error(PINFER_INVALID_ARGUMENT, "--served-model-name: is empty");
  }
  if (config.host.empty()) throw Error(PINFER_INVALID_ARGUMENT, "--host: is empty");
  // CLI11 takes an empty variable for an absent one; a server without a key would be the result.
  const char* key_variable = std::getenv("PINFER_API_KEY");
  if (key_variable != nullptr && *key_variable == '\0') {
    throw Error(PINFER_INVALID_ARGUMENT, "PINFER_API_KEY: the key is empty");
  }
  for (const std::string& key : config.api_keys) {
    if (key.empty()) throw Error(PINFER_INVALID_ARGUMENT, "--api-key: the key is empty");
  }
}

// Everything but the keys.
void print_config(const ServeFlags& flags) {
  const ServerConfig& config = flags.config;
  const EngineOptions& engine = flags.engine.options;
  const nlohmann::ordered_json json = {
      {"bundle", flags.engine.bundle},
      {"host", config.host},
      {"port", config.port},
      {"unix_socket", config.unix_socket},
      {"served_model_names", config.served_model_names},
      {"num_api_keys", config.api_keys.size()},
      {"api_key_file", config.api_key_file},
      {"tls_cert", config.tls_cert},
      {"tls_key", config.tls_key},
      {"cors_origins", config.cors_origins},
      {"max_queue", engine.max_queue},
      {"max_queue_tokens", engine.max_queue_tokens},
      {"max_connections", config.max_connections},
      {"max_body_mb", flags.max_body_mb},
      {"drain_timeout_s", flags.drain_timeout},
      {"header_timeout_s", flags.header_timeout},
      {"body_timeout_s", flags.body_timeout},
      {"write_timeout_s", flags.write_timeout},
      {"keep_alive_timeout_s", flags.keep_alive_timeout},
      {"event_ping_s", flags.event_ping},
      {"stuck_after_s", flags.stuck_after},
      {"log_level", flags.engine.log_level},
      {"log_format", flags.log_format},
      {"log_requests", config.log_requests},
      {"max_model_len", engine.max_model_len},
      {"max_num_seqs", engine.max_num_seqs},
      {"max_num_batched_tokens", engine.max_num_batched_tokens},
      {"num_blocks", engine.num_blocks},
      {"block_size", engine.block_size},
      {"long_prefill_token_threshold", engine.long_prefill_token_threshold},
      {"scheduling_policy", flags.engine.scheduling_policy},
      {"enable_prefix_caching", !flags.engine.no_enable_prefix_caching},
      {"threads", engine.threads},
      {"cpus", flags.engine.cpus},
      {"provider", flags.engine.provider},
      {"huge_pages", flags.engine.huge_pages},
  };
  std::printf("%s\n", json.dump(2).c_str());
}

int run_server(ServeFlags& flags) {
  read_units(&flags);
  if (flags.print_config) {
    print_config(flags);
    return kExitDone;
  }
  ServerLog log(flags.engine.parsed_log_level(), flags.config.log_as_json);
  if (const char* socket = std::getenv("NOTIFY_SOCKET")) flags.config.notify_socket = socket;
  const auto load = [&] {
    return std::make_shared<Engine>(flags.engine.open_to_serve(
        [&log](auto level, const char* text) { log.write(level, text); }));
  };
  return server::serve(flags.config, &log, load);
}

}  // namespace

void add_serve_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  flags->engine.log_level = "info";
  flags->engine.options.max_queue = kDefaultMaxQueue;
  CLI::App* command = app->add_subcommand("serve", "OpenAI-compatible HTTP server");
  flags->engine.add_to(command);
  add_listen_flags(command, &flags->config);
  add_access_flags(command, &flags->config);
  add_limit_flags(command, flags.get());
  add_log_flags(command, flags.get());
  command->callback([flags, exit_code] { *exit_code = run_server(*flags); });
}

}  // namespace pinfer::cli
