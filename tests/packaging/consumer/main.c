/* Prints the answer to a prompt: main BUNDLE PROMPT. */
#include <pinfer/pinfer.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  pinfer_engine* engine = NULL;
  pinfer_error* error = NULL;
  pinfer_request* request = NULL;
  pinfer_request_options options;
  pinfer_sampling_params params;
  pinfer_output output;
  int32_t* ids = NULL;
  size_t num_ids = 0;

  if (argc != 3 || pinfer_abi_version() != PINFER_ABI_VERSION) return 2;
  if (pinfer_engine_open(argv[1], NULL, &engine, &error) != PINFER_OK) {
    fprintf(stderr, "%s\n", pinfer_error_message(error));
    pinfer_error_free(error);
    return 1;
  }
  if (pinfer_tokenize(engine, argv[2], strlen(argv[2]), true, &ids, &num_ids, NULL)) return 1;
  if (pinfer_sampling_params_default(engine, &params, sizeof(params))) return 1;
  params.temperature = 0;
  params.max_tokens = 8;
  if (pinfer_request_options_init(&options, sizeof(options))) return 1;
  options.prompt_token_ids = ids;
  options.num_prompt_token_ids = num_ids;
  options.sampling_params = &params;
  if (pinfer_submit(engine, &options, &request, NULL)) return 1;
  pinfer_free(ids);
  while (pinfer_request_next(request, -1, &output, sizeof(output)) == PINFER_OK) {
    fwrite(output.text, 1, output.text_size, stdout);
  }
  pinfer_request_free(request);
  pinfer_engine_close(engine);
  return 0;
}
