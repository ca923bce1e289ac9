/* pinfer's C interface, version 1: open a bundle, generate text, stream it, close.
 *
 * Versions
 * - This header describes version 1 of the interface, which is frozen: libpinfer.so.1 keeps every
 *   function, struct field and number below. What is added later is added at the end (functions,
 *   fields of structs that begin with struct_size, values of enumerations). A program runs with
 *   any libpinfer.so.1 that is as new as the header it was compiled against, or newer.
 * - The release of the project (pinfer_version()) counts on its own.
 *
 * Errors
 * - Functions that can fail return a pinfer_status, and take a pinfer_error** where there is more
 *   to say. It may be NULL. Otherwise *error becomes NULL on success, and on failure a description
 *   that the caller frees with pinfer_error_free().
 * - A NULL where something is needed is PINFER_INVALID_ARGUMENT, never a crash. Every function
 *   that returns a pinfer_status may also answer PINFER_RESOURCE_EXHAUSTED (memory has run out)
 *   and PINFER_INTERNAL. Other statuses are named at each function.
 * - On failure, results are set to NULL and 0, and nothing has to be freed but the error.
 *
 * Ownership
 * - Handles are opaque. Whoever receives one (open, submit, embed) ends it with the matching close
 *   or free, which accept NULL. What a function is given, it copies: arguments need to live for the
 *   call only. Callbacks and their user data are the exception: see there.
 * - Text is UTF-8 with an explicit length; zero bytes in it are ordinary characters. Text that a
 *   function returns is zero-terminated too. Text and arrays that it hands over (char**, int32_t**)
 *   are freed with pinfer_free(); those behind a const pointer belong to the library.
 *
 * Structs
 * - They begin with struct_size, so that they can grow. Options are made by the matching
 * ..._init(), which takes the size of the caller's struct and sets every field to its default; then
 * set what differs. A library that is older than the program's header refuses (FAILED_PRECONDITION)
 *   options that it does not know.
 * - Functions that fill a struct take its size too, and set struct_size to what they have filled:
 *   the fields behind that are zero.
 *
 * Threads
 * - Said for each function; "any thread" also means several at once. Several engines may live in
 *   one process, beside any other library: no global state is shared but what is constant.
 * - An engine's own threads block all signals but those of faults and profilers, so that the
 *   program's handlers run in the program's threads. After fork(), the child must not use an engine
 *   that was opened before.
 * - Callbacks must not throw exceptions and must not block: an engine's requests share a thread.
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

/* The version of this interface: libpinfer.so's SOVERSION. */
#define PINFER_ABI_VERSION 1

/* Later versions may add values: take one that you do not know for an error. */
typedef enum pinfer_status {
  PINFER_OK = 0,
  PINFER_INVALID_ARGUMENT = 1,    /* the caller's input is wrong */
  PINFER_NOT_FOUND = 2,           /* a file is missing */
  PINFER_FAILED_PRECONDITION = 3, /* a bundle does not fit this machine, provider, engine or task */
  PINFER_DATA_LOSS = 4,           /* a file is damaged or of another bundle */
  PINFER_RESOURCE_EXHAUSTED = 5,  /* memory, cache blocks or queue places */
  PINFER_TIMED_OUT = 6,           /* the time that the call was given has passed */
  PINFER_INTERNAL = 7,            /* an error of pinfer itself */
  PINFER_ENDED = 8                /* the request's last output has been read */
} pinfer_status;

typedef struct pinfer_error pinfer_error;
typedef struct pinfer_engine pinfer_engine;
typedef struct pinfer_request pinfer_request;

/* The release of the library, "0.1.0". Any thread. The text lives as long as the library. */
PINFER_EXPORT const char* pinfer_version(void);

/* The PINFER_ABI_VERSION of the library. Any thread. */
PINFER_EXPORT int32_t pinfer_abi_version(void);

/* "ok", "invalid_argument", ...; "unknown" for other numbers. Any thread. The text lives as long as
 * the library. */
PINFER_EXPORT const char* pinfer_status_name(pinfer_status status);

/* Message ("" for NULL) and status (PINFER_OK for NULL) of an error. Any thread; the text lives as
 * long as the error. */
PINFER_EXPORT const char* pinfer_error_message(const pinfer_error* error);
PINFER_EXPORT pinfer_status pinfer_error_status(const pinfer_error* error);
PINFER_EXPORT void pinfer_error_free(pinfer_error* error);

/* Frees text and arrays that functions below hand over; NULL is accepted. Any thread. */
PINFER_EXPORT void pinfer_free(void* memory);

/* ---- engine ---------------------------------------------------------------------------------- */

typedef enum pinfer_log_level {
  PINFER_LOG_DEBUG = 0,
  PINFER_LOG_INFO = 1,
  PINFER_LOG_WARNING = 2,
  PINFER_LOG_ERROR = 3
} pinfer_log_level;

/* Called from any of the engine's threads, until pinfer_engine_close() returns; must be thread-safe
 * and must not call the engine. The message lives for the call. */
typedef void (*pinfer_log_callback)(void* user_data, pinfer_log_level level, const char* message);

/* Called on the opening thread, during pinfer_engine_open() only, with 0 < fraction <= 1 as loading
 * advances. The text lives for the call. */
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
  const char* scheduling_policy;        /* "fcfs" (the default, also for NULL) or "priority" */
  bool enable_prefix_caching;           /* true */
  bool verify;                          /* check the hash of every file, also the large ones */
  bool text_only;                       /* open the text part alone: no model, no threads */
  int32_t threads;                      /* compute threads; 0 = cgroup quota and affinity */
  const char* provider;                 /* "native" (the default, also for NULL) or "torch" */
  int32_t max_queue;                    /* requests waiting at once; 0 = no limit */
  int64_t max_queue_tokens;             /* their prompt tokens; 0 = no limit */
  pinfer_log_callback log_callback;     /* NULL = silent */
  void* log_user_data;
  pinfer_progress_callback progress_callback; /* NULL = none */
  void* progress_user_data;
  const char* huge_pages;        /* for the weights: "auto" (the default, also for NULL) or "off" */
  double gpu_memory_utilization; /* (0, 1]: share of a GPU's memory to take; 0.9 */
  int64_t max_cuda_graph_seqs; /* on a GPU steps of as many requests are recorded; 256; 0 = none */
  const char* cpus; /* to bind compute threads to: "0-3,8", or "node:0"; NULL or "" = to none */
  int64_t async_scheduling; /* 1: the next step is scheduled while one runs; 0 */
} pinfer_engine_options;

/* Defaults. struct_size: sizeof(pinfer_engine_options). Any thread. */
PINFER_EXPORT pinfer_status pinfer_engine_options_init(pinfer_engine_options* options,
                                                       size_t struct_size);

/* Opens a bundle: maps its weights, loads its code, starts the engine's threads. `options` may be
 * NULL: all defaults. A bundle that holds only text opens too; generating with it fails.
 * INVALID_ARGUMENT: an option is wrong; NOT_FOUND: no such bundle; DATA_LOSS: it is damaged;
 * FAILED_PRECONDITION: it does not fit this processor, provider or release; RESOURCE_EXHAUSTED: its
 * cache does not fit into memory. Any thread. */
PINFER_EXPORT pinfer_status pinfer_engine_open(const char* bundle_path,
                                               const pinfer_engine_options* options,
                                               pinfer_engine** engine, pinfer_error** error);

/* Aborts what still runs, joins the threads, frees everything. REQUIRES: no other call on this
 * engine is running or follows, and the caller is no callback. Its requests live on: their output
 * can be read to the end, and they must still be freed. */
PINFER_EXPORT void pinfer_engine_close(pinfer_engine* engine);

/* Waits until no request is unfinished, or timeout_ms (negative: no limit; 0: only look) has
 * passed: TIMED_OUT. New requests are refused from the call on, for good. Any thread; not from a
 * callback. */
PINFER_EXPORT pinfer_status pinfer_engine_drain(pinfer_engine* engine, int64_t timeout_ms,
                                                pinfer_error** error);

/* What is loaded, as a JSON object: version, has_model, has_chat_template, tokenizer_vocab_size,
 * eos_token_ids, load_ms, load_stages_ms (an object, by stage); with a model also task ("generate",
 * "embed"), model_name, architecture, dtype, vocab_size, num_layers, hidden_size, max_model_len,
 * max_num_seqs, max_num_batched_tokens, num_blocks, block_size, threads, cpus, provider; for
 * "embed" also pooling. Later versions may add fields. "{}" for NULL. Any thread. The text lives as
 * long as the engine. */
PINFER_EXPORT const char* pinfer_engine_info_json(const pinfer_engine* engine);

/* Gauges at this moment, and counters since the engine was opened. */
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

/* Fills *metrics. struct_size: sizeof(pinfer_metrics). Any thread. */
PINFER_EXPORT pinfer_status pinfer_engine_metrics(const pinfer_engine* engine,
                                                  pinfer_metrics* metrics, size_t struct_size);

/* ---- text ------------------------------------------------------------------------------------ */

/* Text to ids. INVALID_ARGUMENT: it is not UTF-8. Any thread. */
PINFER_EXPORT pinfer_status pinfer_tokenize(const pinfer_engine* engine, const char* text,
                                            size_t text_size, bool add_special_tokens,
                                            int32_t** token_ids, size_t* num_tokens,
                                            pinfer_error** error);

/* Ids to text. text_size may be NULL. INVALID_ARGUMENT: an id is outside the vocabulary. Any
 * thread. */
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
 * refused. INVALID_ARGUMENT: the request or the messages are wrong; FAILED_PRECONDITION: the bundle
 * has no template. text_size may be NULL. Any thread. */
PINFER_EXPORT pinfer_status pinfer_render(const pinfer_engine* engine, const char* request_json,
                                          size_t request_size, char** text, size_t* text_size,
                                          pinfer_error** error);

/* ---- generation ------------------------------------------------------------------------------ */

/* Sampling parameters. An array with a count may be NULL if the count is 0. */
typedef struct pinfer_sampling_params {
  size_t struct_size;
  double temperature; /* 0 = greedy */
  double top_p;
  double min_p;
  double presence_penalty;
  double frequency_penalty;
  double repetition_penalty;
  int32_t top_k;      /* 0 = off */
  int32_t max_tokens; /* 0 = the rest of the context */
  int32_t min_tokens;
  bool has_seed; /* false: random */
  bool ignore_eos;
  bool include_stop_str_in_output;
  bool skip_special_tokens; /* true */
  int64_t seed;
  const int32_t* stop_token_ids;
  size_t num_stop_token_ids;
  const char* const* stop; /* zero-terminated strings */
  size_t num_stop;
  const int32_t* logit_bias_token_ids; /* logit_bias_values[i] is added to this id's logit */
  const double* logit_bias_values;     /* -100 to 100 */
  size_t num_logit_bias;
  const int32_t* allowed_token_ids; /* none = every id */
  size_t num_allowed_token_ids;
  const char* const* bad_words; /* zero-terminated strings that are never completed */
  size_t num_bad_words;
  int32_t logprobs;        /* list the N best with each sampled token; -1 = off */
  int32_t prompt_logprobs; /* the same with each prompt token but the first; -1 = off */
} pinfer_sampling_params;

/* pinfer's own defaults. struct_size: sizeof(pinfer_sampling_params). Any thread. */
PINFER_EXPORT pinfer_status pinfer_sampling_params_init(pinfer_sampling_params* params,
                                                        size_t struct_size);

/* The model's defaults: its generation config over pinfer's. Any thread. */
PINFER_EXPORT pinfer_status pinfer_sampling_params_default(const pinfer_engine* engine,
                                                           pinfer_sampling_params* params,
                                                           size_t struct_size);

/* Natural log-softmax of the raw logits at one position, before temperature, penalties, biases.
 * Comes in arrays, so this struct never grows. */
typedef struct pinfer_token_logprobs {
  double logprob;               /* of the token that stands there; may be -INFINITY */
  const int32_t* top_token_ids; /* the best ones, best first; equal ones by ascending id */
  const double* top_logprobs;
  size_t num_top;
} pinfer_token_logprobs;

/* What a request has produced since the last call that returned some. */
typedef struct pinfer_output {
  size_t struct_size;
  const char* text; /* complete characters, zero-terminated; never NULL */
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

/* Called on the engine's output thread for each piece of output, the last one with a finish_reason;
 * also before pinfer_submit() returns. The output lives for the call. It may submit and abort
 * requests and use the functions about text; it must not free its own request, drain or close. */
typedef void (*pinfer_output_callback)(void* user_data, const pinfer_output* output);

typedef struct pinfer_request_options {
  size_t struct_size;
  const int32_t* prompt_token_ids; /* used as they are */
  size_t num_prompt_token_ids;
  const pinfer_sampling_params* sampling_params; /* NULL = the model's defaults */
  int32_t priority;       /* smaller is served earlier, with the policy "priority" */
  int32_t choice_index;   /* which of several choices: each has its own random stream of a seed */
  const char* cache_salt; /* requests share cached prefixes only with the same salt; NULL = "" */
  pinfer_output_callback output_callback; /* NULL: read with pinfer_request_next() */
  void* output_user_data;                 /* lives until pinfer_request_free() returns */
} pinfer_request_options;

/* Defaults. struct_size: sizeof(pinfer_request_options). Any thread. */
PINFER_EXPORT pinfer_status pinfer_request_options_init(pinfer_request_options* options,
                                                        size_t struct_size);

/* Hands a request to the engine and returns at once. INVALID_ARGUMENT: a parameter is wrong, or the
 * prompt leaves no room in the context (the message begins with "context_length_exceeded");
 * RESOURCE_EXHAUSTED: the queue is full; FAILED_PRECONDITION: no model that generates is open, or
 * the engine drains. Any thread. */
PINFER_EXPORT pinfer_status pinfer_submit(pinfer_engine* engine,
                                          const pinfer_request_options* options,
                                          pinfer_request** request, pinfer_error** error);

/* Waits up to timeout_ms (negative: no limit, 0: not at all) for new output. OK: *output is
 * filled, its memory lives until the next call on this request. TIMED_OUT: nothing came in time.
 * ENDED: the last output has been read already. INVALID_ARGUMENT also for a request with a
 * callback. struct_size: sizeof(pinfer_output). One thread at a time per request. */
PINFER_EXPORT pinfer_status pinfer_request_next(pinfer_request* request, int64_t timeout_ms,
                                                pinfer_output* output, size_t struct_size);

/* Ends a request early; its last output says "abort". Harmless if it has ended, and for NULL. Any
 * thread. */
PINFER_EXPORT void pinfer_request_abort(pinfer_request* request);

/* Aborts the request if it runs, and frees it. With a callback: returns when no call to it is
 * running or follows. REQUIRES: no other call on this request is running or follows, and the caller
 * is not its callback. Before or after the engine is closed. */
PINFER_EXPORT void pinfer_request_free(pinfer_request* request);

/* ---- embeddings ------------------------------------------------------------------------------ */

/* Of a bundle whose task is "embed" (pinfer_engine_info_json() says which): such a model gives one
 * vector for each input, and generates nothing. With another one: FAILED_PRECONDITION. */

/* Text to embed, to ids, as sentence-transformers makes them: the prompt of that name before it
 * (NULL: the model's default prompt, if it has one; "": none), special tokens added.
 * INVALID_ARGUMENT: no prompt has that name. Any thread. */
PINFER_EXPORT pinfer_status pinfer_embed_tokenize(const pinfer_engine* engine, const char* text,
                                                  size_t text_size, const char* prompt_name,
                                                  int32_t** token_ids, size_t* num_tokens,
                                                  pinfer_error** error);

typedef struct pinfer_embed_options {
  size_t struct_size;
  const int32_t* token_ids; /* used as they are */
  size_t num_token_ids;
  int32_t dimensions;     /* leading ones that are kept, before the vector is normalised; 0 = all */
  int32_t priority;       /* as in pinfer_request_options, and so on */
  const char* cache_salt; /* NULL = "" */
  pinfer_output_callback output_callback; /* NULL: read with pinfer_request_next() */
  void* output_user_data;
} pinfer_embed_options;

/* Defaults. struct_size: sizeof(pinfer_embed_options). Any thread. */
PINFER_EXPORT pinfer_status pinfer_embed_options_init(pinfer_embed_options* options,
                                                      size_t struct_size);

/* Hands an input to the engine and returns at once; the request's one output has the embedding and
 * finish_reason "stop". Errors as for pinfer_submit(). Any thread. */
PINFER_EXPORT pinfer_status pinfer_embed(pinfer_engine* engine, const pinfer_embed_options* options,
                                         pinfer_request** request, pinfer_error** error);

/* ---- tools ----------------------------------------------------------------------------------- */

/* Checks a bundle without loading it: every file's size and hash, and that tables can be read.
 * Statuses as for pinfer_engine_open(). Any thread. */
PINFER_EXPORT pinfer_status pinfer_verify(const char* bundle_path, pinfer_error** error);

/* The manifest of a bundle, as text, its hash checked. size may be NULL. Any thread. */
PINFER_EXPORT pinfer_status pinfer_inspect(const char* bundle_path, char** manifest_json,
                                           size_t* size, pinfer_error** error);

/* Both configurations (EngineConfig, SamplingParams) with types and defaults, as JSON; NULL if
 * memory has run out. Any thread. The text lives as long as the library. */
PINFER_EXPORT const char* pinfer_describe_json(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PINFER_PINFER_H_ */
