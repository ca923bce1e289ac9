/* pinfer's C interface: open a bundle, generate text, stream it, close.
 *
 * Conventions
 * - Functions that can fail return a pinfer_status. If it is not PINFER_OK and `error` is not NULL,
 *   *error receives a description that the caller frees with pinfer_error_free().
 * - Handles are opaque. Whoever receives a handle from a create-like function (open, submit) ends
 *   it with the matching close or free; NULL is accepted there.
 * - Text is UTF-8 with an explicit length; zero bytes in it are ordinary characters. Text that a
 *   function returns is zero-terminated too, and freed with pinfer_free().
 * - Structs for options begin with their size: set it with the matching ..._init(), so that a
 *   program compiled against an older header goes on working.
 * - Thread-safety is stated for each function. Several engines may live in one process.
 *
 * This interface may still change until version 1 of the packaging; docs/c_api.md has examples.
 */
#ifndef PINFER_PINFER_H_
#define PINFER_PINFER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PINFER_EXPORT __attribute__((visibility("default")))
#else
#define PINFER_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pinfer_status {
  PINFER_OK = 0,
  PINFER_INVALID_ARGUMENT = 1,    /* the caller's input is wrong */
  PINFER_NOT_FOUND = 2,           /* a file or an id is missing */
  PINFER_FAILED_PRECONDITION = 3, /* a bundle does not fit this machine, provider or engine */
  PINFER_DATA_LOSS = 4,           /* a file is damaged or of another bundle */
  PINFER_RESOURCE_EXHAUSTED = 5,  /* memory, cache blocks or queue places */
  PINFER_CANCELLED = 6,
  PINFER_INTERNAL = 7 /* an error of pinfer itself */
} pinfer_status;

typedef struct pinfer_error pinfer_error;
typedef struct pinfer_engine pinfer_engine;
typedef struct pinfer_request pinfer_request;

/* "0.1.0". Any thread. The text lives as long as the library. */
PINFER_EXPORT const char* pinfer_version(void);

/* Message and status of an error. Any thread; the text lives as long as the error. */
PINFER_EXPORT const char* pinfer_error_message(const pinfer_error* error);
PINFER_EXPORT pinfer_status pinfer_error_status(const pinfer_error* error);
PINFER_EXPORT void pinfer_error_free(pinfer_error* error);

/* Frees text and arrays that functions below return. Any thread. */
PINFER_EXPORT void pinfer_free(void* memory);

/* ---- engine ---------------------------------------------------------------------------------- */

typedef enum pinfer_log_level {
  PINFER_LOG_DEBUG = 0,
  PINFER_LOG_INFO = 1,
  PINFER_LOG_WARNING = 2,
  PINFER_LOG_ERROR = 3
} pinfer_log_level;

/* Called from any of the engine's threads; must be thread-safe and must not call the engine. */
typedef void (*pinfer_log_callback)(void* user_data, pinfer_log_level level, const char* message);

/* Called on the opening thread with 0 < fraction <= 1 as loading advances. */
typedef void (*pinfer_progress_callback)(void* user_data, double fraction, const char* stage);

/* How an engine is set up. The numeric fields are EngineConfig's (see `pinfer describe --json`). */
typedef struct pinfer_engine_options {
  size_t struct_size;
  int32_t max_model_len;                /* tokens; 0 = the model's own limit */
  int32_t max_num_seqs;                 /* requests running at once; 256 */
  int32_t max_num_batched_tokens;       /* tokens computed in one step; 2048 */
  int32_t num_blocks;                   /* cache blocks, null block included; 0 = from memory */
  int32_t block_size;                   /* tokens; 16 */
  int32_t long_prefill_token_threshold; /* cap of one request's tokens per step; 0 = off */
  const char* scheduling_policy;        /* "fcfs" or "priority" */
  bool enable_prefix_caching;           /* true */
  int32_t threads;                      /* compute threads; 0 = cgroup quota and affinity */
  const char* provider;                 /* "native" or "torch" */
  bool verify;                          /* check the hash of every file, also the large ones */
  bool text_only;                       /* open the text part alone: no model, no threads */
  int32_t max_queue;                    /* requests waiting at once; 0 = no limit */
  int64_t max_queue_tokens;             /* their prompt tokens; 0 = no limit */
  pinfer_log_callback log_callback;     /* NULL = silent */
  void* log_user_data;
  pinfer_progress_callback progress_callback; /* NULL = none */
  void* progress_user_data;
} pinfer_engine_options;

PINFER_EXPORT void pinfer_engine_options_init(pinfer_engine_options* options);

/* Opens a bundle: maps its weights, loads its code, starts the engine's threads. `options` may be
 * NULL. A bundle that holds only text opens too; generating with it fails. Any thread. */
PINFER_EXPORT pinfer_status pinfer_engine_open(const char* bundle_path,
                                               const pinfer_engine_options* options,
                                               pinfer_engine** engine, pinfer_error** error);

/* Aborts what still runs, joins the threads, frees everything. REQUIRES: no other call on this
 * engine is running or follows; its requests may still be freed afterwards. */
PINFER_EXPORT void pinfer_engine_close(pinfer_engine* engine);

/* Waits until no request is unfinished, or timeout_ms (-1: no limit) has passed; new requests are
 * refused from the call on. PINFER_CANCELLED if the time ran out. Any thread. */
PINFER_EXPORT pinfer_status pinfer_engine_drain(pinfer_engine* engine, int64_t timeout_ms,
                                                pinfer_error** error);

/* What is loaded, as a JSON object: task ("generate", "embed"), model_name, architecture, dtype,
 * vocab_size, max_model_len, num_layers, threads, provider, num_blocks, block_size, load_ms,
 * has_chat_template, ... Any thread. The text lives as long as the engine. */
PINFER_EXPORT const char* pinfer_engine_info_json(const pinfer_engine* engine);

/* Counters and gauges at this moment. */
typedef struct pinfer_metrics {
  size_t struct_size;
  int64_t num_requests_running;
  int64_t num_requests_waiting;
  int64_t num_usable_blocks;
  int64_t num_free_blocks; /* unused ones, those that the prefix cache may give up included */
  int64_t num_preemptions;
  int64_t prefix_cache_queries; /* tokens */
  int64_t prefix_cache_hits;    /* tokens */
  int64_t prompt_tokens;        /* of all requests that have been scheduled */
  int64_t generation_tokens;
  int64_t num_steps;
  int64_t requests_finished_stop;
  int64_t requests_finished_length;
  int64_t requests_finished_abort;
  int64_t requests_finished_error;
  int64_t num_queued_tokens; /* prompt tokens of requests that wait for their first step */
  /* For how long requests have been waiting with none running; 0 = all is well. */
  int64_t stalled_ms;
} pinfer_metrics;

/* REQUIRES: metrics->struct_size is set. Any thread. */
PINFER_EXPORT void pinfer_engine_metrics(const pinfer_engine* engine, pinfer_metrics* metrics);

/* ---- text ------------------------------------------------------------------------------------ */

/* Text to ids. Any thread. */
PINFER_EXPORT pinfer_status pinfer_tokenize(const pinfer_engine* engine, const char* text,
                                            size_t text_size, bool add_special_tokens,
                                            int32_t** token_ids, size_t* num_tokens,
                                            pinfer_error** error);

/* Ids to text. Any thread. */
PINFER_EXPORT pinfer_status pinfer_detokenize(const pinfer_engine* engine, const int32_t* token_ids,
                                              size_t num_tokens, bool skip_special_tokens,
                                              char** text, size_t* text_size, pinfer_error** error);

/* What one id adds to decoded text when it is not the first: raw bytes, which may be part of a
 * character; none for ids without a token. Any thread. */
PINFER_EXPORT pinfer_status pinfer_token_bytes(const pinfer_engine* engine, int32_t token_id,
                                               char** bytes, size_t* size, pinfer_error** error);

/* Renders the chat template. request_json: {"messages": [...], "tools", "documents",
 * "add_generation_prompt" (default true), "continue_final_message", "chat_template",
 * "chat_template_kwargs", "now" (seconds since 1970, what strftime_now() shows),
 * "parse_tool_call_arguments" (default false: arguments of tool calls that are JSON in a string, as
 * the OpenAI protocol has them, become objects, as templates want them)}; unknown fields are
 * refused. Any thread. */
PINFER_EXPORT pinfer_status pinfer_render(const pinfer_engine* engine, const char* request_json,
                                          size_t request_size, char** text, size_t* text_size,
                                          pinfer_error** error);

/* ---- generation ------------------------------------------------------------------------------ */

/* Sampling parameters; ..._init() sets pinfer's defaults, pinfer_sampling_params_default() those of
 * the model (its generation config over pinfer's). */
typedef struct pinfer_sampling_params {
  size_t struct_size;
  double temperature; /* 0 = greedy */
  double top_p;
  int32_t top_k; /* 0 = off */
  double min_p;
  double presence_penalty;
  double frequency_penalty;
  double repetition_penalty;
  bool has_seed; /* false: random */
  int64_t seed;
  int32_t max_tokens; /* 0 = the rest of the context */
  int32_t min_tokens;
  bool ignore_eos;
  const int32_t* stop_token_ids;
  size_t num_stop_token_ids;
  const char* const* stop; /* zero-terminated strings */
  size_t num_stop;
  bool include_stop_str_in_output;
  bool skip_special_tokens;            /* true */
  int32_t logprobs;                    /* list the N best with each sampled token; -1 = off */
  int32_t prompt_logprobs;             /* the same with each prompt token but the first; -1 = off */
  const int32_t* logit_bias_token_ids; /* logit_bias_values[i] is added to this id's logit */
  const double* logit_bias_values;     /* -100 to 100 */
  size_t num_logit_bias;
  const int32_t* allowed_token_ids; /* none = every id */
  size_t num_allowed_token_ids;
  const char* const* bad_words; /* zero-terminated strings that are never completed */
  size_t num_bad_words;
} pinfer_sampling_params;

PINFER_EXPORT void pinfer_sampling_params_init(pinfer_sampling_params* params);
PINFER_EXPORT void pinfer_sampling_params_default(const pinfer_engine* engine,
                                                  pinfer_sampling_params* params);

/* Natural log-softmax of the raw logits at one position, before temperature, penalties, biases. */
typedef struct pinfer_token_logprobs {
  double logprob;               /* of the token that stands there; may be -INFINITY */
  const int32_t* top_token_ids; /* the best ones, best first; equal ones by ascending id */
  const double* top_logprobs;
  size_t num_top;
} pinfer_token_logprobs;

/* What a request has produced since the last call that returned some. */
typedef struct pinfer_output {
  size_t struct_size;
  const char* text; /* complete characters, zero-terminated */
  size_t text_size;
  const int32_t* token_ids; /* every sampled token, an end id included */
  size_t num_token_ids;
  const char* finish_reason; /* NULL while it goes on; "stop", "length", "abort", "error" */
  const char* error_message; /* of finish_reason "error", else NULL */
  int32_t num_prompt_tokens;
  int32_t num_cached_tokens;             /* prompt tokens that the prefix cache supplied */
  const pinfer_token_logprobs* logprobs; /* one for each of token_ids, if asked for */
  size_t num_logprobs;
  /* Of the next prompt tokens, if asked for; those of the first call begin with the second token,
   * since nothing predicts the first. They may come in several outputs. */
  const pinfer_token_logprobs* prompt_logprobs;
  size_t num_prompt_logprobs;
  /* Where the request's time has gone so far, in milliseconds. */
  double queue_ms;   /* from its submission until a step first computed it */
  double prefill_ms; /* from then until its first token */
  double decode_ms;  /* from then until its latest token */
  /* With the last output of a request of pinfer_embed() that has not failed. */
  const float* embedding;
  size_t num_embedding;
} pinfer_output;

/* Called on the engine's output thread for each piece of output, the last one with a
 * finish_reason. Must not block; the output lives for the call only. */
typedef void (*pinfer_output_callback)(void* user_data, const pinfer_output* output);

typedef struct pinfer_request_options {
  size_t struct_size;
  const int32_t* prompt_token_ids; /* used as they are */
  size_t num_prompt_token_ids;
  const pinfer_sampling_params* sampling_params; /* NULL = the model's defaults */
  int32_t priority;                              /* smaller is served earlier */
  const char* cache_salt;                        /* NULL = "" */
  pinfer_output_callback output_callback;        /* NULL: read with pinfer_request_next() */
  void* output_user_data;
  int32_t choice_index; /* which of several choices: each has its own random stream of a seed */
} pinfer_request_options;

PINFER_EXPORT void pinfer_request_options_init(pinfer_request_options* options);

/* Hands a request to the engine and returns at once. A prompt that leaves no room in the context is
 * refused (the message begins with "context_length_exceeded"). Any thread. */
PINFER_EXPORT pinfer_status pinfer_submit(pinfer_engine* engine,
                                          const pinfer_request_options* options,
                                          pinfer_request** request, pinfer_error** error);

/* Waits up to timeout_ms (-1: no limit, 0: not at all) for new output. PINFER_OK: *output is
 * filled, its memory lives until the next call on this request. PINFER_CANCELLED: nothing came in
 * time. PINFER_NOT_FOUND: the last output has been read already. One thread at a time per request;
 * not for requests with a callback. REQUIRES: output->struct_size is set. */
PINFER_EXPORT pinfer_status pinfer_request_next(pinfer_request* request, int64_t timeout_ms,
                                                pinfer_output* output);

/* Ends a request early; its last output says "abort". Harmless if it has ended. Any thread. */
PINFER_EXPORT void pinfer_request_abort(pinfer_request* request);

/* Aborts the request if it runs, and frees it. With a callback: returns when no call to it is
 * running or follows. Must not be called from the callback. */
PINFER_EXPORT void pinfer_request_free(pinfer_request* request);

/* ---- embeddings ------------------------------------------------------------------------------ */

/* Of a bundle whose task is "embed" (pinfer_engine_info_json() says which): such a model gives one
 * vector for each input, and generates nothing. */

/* Text to embed, to ids, as sentence-transformers makes them: the prompt of that name before it
 * (NULL: the model's default prompt, if it has one; "": none), special tokens added. Any
 * thread. */
PINFER_EXPORT pinfer_status pinfer_embed_tokenize(const pinfer_engine* engine, const char* text,
                                                  size_t text_size, const char* prompt_name,
                                                  int32_t** token_ids, size_t* num_tokens,
                                                  pinfer_error** error);

typedef struct pinfer_embed_options {
  size_t struct_size;
  const int32_t* token_ids; /* used as they are */
  size_t num_token_ids;
  int32_t dimensions;     /* leading ones that are kept, before the vector is normalised; 0 = all */
  int32_t priority;       /* smaller is served earlier */
  const char* cache_salt; /* NULL = "" */
  pinfer_output_callback output_callback; /* NULL: read with pinfer_request_next() */
  void* output_user_data;
} pinfer_embed_options;

PINFER_EXPORT void pinfer_embed_options_init(pinfer_embed_options* options);

/* Hands an input to the engine and returns at once; the request's one output has the embedding and
 * finish_reason "stop". An input that is longer than the context is refused (the message begins
 * with "context_length_exceeded"). Any thread. */
PINFER_EXPORT pinfer_status pinfer_embed(pinfer_engine* engine, const pinfer_embed_options* options,
                                         pinfer_request** request, pinfer_error** error);

/* ---- tools ----------------------------------------------------------------------------------- */

/* Checks a bundle without loading it: every file's size and hash, and that tables can be read. */
PINFER_EXPORT pinfer_status pinfer_verify(const char* bundle_path, pinfer_error** error);

/* The manifest of a bundle, as text, its hash checked. */
PINFER_EXPORT pinfer_status pinfer_inspect(const char* bundle_path, char** manifest_json,
                                           size_t* size, pinfer_error** error);

/* Both configurations with types and defaults, as JSON. The text lives as long as the library. */
PINFER_EXPORT const char* pinfer_describe_json(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PINFER_PINFER_H_ */
