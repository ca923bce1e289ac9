/* generate_example BUNDLE PROMPT: the smallest program that streams an answer. Shown in
 * docs/c_api.md, run by tests/e2e. */
#include <pinfer/pinfer.h>
#include <stdio.h>
#include <string.h>

static int fail(pinfer_error* error) {
  fprintf(stderr, "error: %s\n", pinfer_error_message(error));
  pinfer_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  pinfer_error* error = NULL;
  pinfer_engine* engine = NULL;
  if (argc != 3) return 2;
  if (pinfer_engine_open(argv[1], NULL, &engine, &error) != PINFER_OK) return fail(error);

  int32_t* ids = NULL;
  size_t num_ids = 0;
  if (pinfer_tokenize(engine, argv[2], strlen(argv[2]), true, &ids, &num_ids, &error) !=
      PINFER_OK) {
    return fail(error);
  }

  pinfer_sampling_params params;
  pinfer_sampling_params_default(engine, &params, sizeof(params));
  params.temperature = 0;
  params.max_tokens = 32;
  pinfer_request_options options;
  pinfer_request_options_init(&options, sizeof(options));
  options.prompt_token_ids = ids;
  options.num_prompt_token_ids = num_ids;
  options.sampling_params = &params;
  pinfer_request* request = NULL;
  if (pinfer_submit(engine, &options, &request, &error) != PINFER_OK) return fail(error);
  pinfer_free(ids);

  pinfer_output output;
  while (pinfer_request_next(request, -1, &output, sizeof(output)) == PINFER_OK) {
    fwrite(output.text, 1, output.text_size, stdout);
    fflush(stdout);
    if (output.error_message != NULL) fprintf(stderr, "error: %s\n", output.error_message);
  }
  printf("\n");
  pinfer_request_free(request);
  pinfer_engine_close(engine);
  return 0;
}
