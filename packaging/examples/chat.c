/* pinfer_chat BUNDLE: a conversation on the terminal, over the C interface.
 *
 * The conversation is kept as the JSON that pinfer_render() reads; the model's chat template turns
 * it into a prompt, of which the prefix cache holds all but the newest message. Ctrl-C ends an
 * answer early, the end of input ends the program. */
#define _POSIX_C_SOURCE 200809L
#include <pinfer/pinfer.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t interrupted = 0;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

/* Prints what has gone wrong; 0 if nothing has. */
static int failed(pinfer_error* error) {
  if (error == NULL) return 0;
  fprintf(stderr, "error: %s\n", pinfer_error_message(error));
  pinfer_error_free(error);
  return 1;
}

struct text {
  char* data;
  size_t size;
};

static void append(struct text* text, const char* data, size_t size) {
  char* longer = realloc(text->data, text->size + size + 1);
  if (longer == NULL) abort();
  memcpy(longer + text->size, data, size);
  text->data = longer;
  text->size += size;
  text->data[text->size] = '\0';
}

/* Appends {"role": role, "content": content} to the list of messages. */
static void append_message(struct text* messages, const char* role, const struct text* content) {
  char escape[8];
  if (messages->size > 0) append(messages, ",", 1);
  append(messages, "{\"role\":\"", 9);
  append(messages, role, strlen(role));
  append(messages, "\",\"content\":\"", 13);
  for (size_t i = 0; i < content->size; ++i) {
    const unsigned char c = (unsigned char)content->data[i];
    if (c >= 0x20 && c != '"' && c != '\\') {
      append(messages, &content->data[i], 1);
    } else {
      snprintf(escape, sizeof(escape), "\\u%04x", c);
      append(messages, escape, 6);
    }
  }
  append(messages, "\"}", 2);
}

/* The ids of the conversation so far, for pinfer_free(). */
static int32_t* render(pinfer_engine* engine, const struct text* messages, size_t* num_ids,
                       pinfer_error** error) {
  struct text json = {NULL, 0};
  char* prompt = NULL;
  size_t prompt_size = 0;
  int32_t* ids = NULL;
  append(&json, "{\"messages\":[", 13);
  append(&json, messages->data, messages->size);
  append(&json, "]}", 2);
  if (pinfer_render(engine, json.data, json.size, &prompt, &prompt_size, error) == PINFER_OK) {
    /* Templates write the special tokens themselves. */
    pinfer_tokenize(engine, prompt, prompt_size, false, &ids, num_ids, error);
  }
  pinfer_free(prompt);
  free(json.data);
  return ids;
}

/* Prints the answer as it comes, and appends it to the conversation. */
static void answer(pinfer_engine* engine, struct text* messages, pinfer_error** error) {
  pinfer_request_options options;
  pinfer_request* request = NULL;
  pinfer_output output;
  pinfer_status status;
  struct text said = {NULL, 0};
  size_t num_ids = 0;
  int32_t* ids = render(engine, messages, &num_ids, error);
  if (ids == NULL) return;
  pinfer_request_options_init(&options, sizeof(options));
  options.prompt_token_ids = ids;
  options.num_prompt_token_ids = num_ids;
  status = pinfer_submit(engine, &options, &request, error);
  pinfer_free(ids);
  if (status != PINFER_OK) return;

  interrupted = 0;
  for (;;) {
    status = pinfer_request_next(request, 100, &output, sizeof(output));
    if (interrupted) pinfer_request_abort(request);
    if (status == PINFER_TIMED_OUT) continue;
    if (status != PINFER_OK) break; /* PINFER_ENDED */
    fwrite(output.text, 1, output.text_size, stdout);
    fflush(stdout);
    append(&said, output.text, output.text_size);
    if (output.error_message != NULL) fprintf(stderr, "error: %s\n", output.error_message);
  }
  printf("\n");
  pinfer_request_free(request);
  append_message(messages, "assistant", &said);
  free(said.data);
}

int main(int argc, char** argv) {
  pinfer_error* error = NULL;
  pinfer_engine* engine = NULL;
  struct text messages = {NULL, 0};
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
  char* line = NULL;
  size_t capacity = 0;
  ssize_t length;
  int result = 0;

  if (argc != 2) {
    fprintf(stderr, "usage: pinfer_chat BUNDLE\n");
    return 2;
  }
  if (pinfer_engine_open(argv[1], NULL, &engine, &error) != PINFER_OK) return failed(error);
  sigaction(SIGINT, &action, NULL);
  while (result == 0 && printf("> ") > 0 && fflush(stdout) == 0 &&
         (length = getline(&line, &capacity, stdin)) > 0) {
    struct text question = {line, (size_t)length - (line[length - 1] == '\n')};
    append_message(&messages, "user", &question);
    answer(engine, &messages, &error);
    result = failed(error);
  }
  free(line);
  free(messages.data);
  pinfer_engine_close(engine);
  return result;
}
