// C interface: embeddings. See include/pinfer/pinfer.h.
#include "engine/c_api_support.h"
#include "engine/embedding_text.h"

using pinfer::Status;

pinfer_status pinfer_embed_tokenize(const pinfer_engine* engine, const char* text, size_t text_size,
                                    const char* prompt_name, int32_t** token_ids,
                                    size_t* num_tokens, pinfer_error** error) {
  return pinfer::guarded(error, [&]() -> Status {
    std::optional<std::string> name;
    if (prompt_name != nullptr) name = prompt_name;
    const pinfer::Engine& opened = *engine->engine;
    PINFER_RETURN_IF_ERROR(opened.check_task(pinfer::Task::EMBED));
    PINFER_ASSIGN_OR_RETURN(
        const std::string whole,
        pinfer::embedding_text(opened.bundle().manifest().pooling, {text, text_size}, name));
    PINFER_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                            opened.text().tokenizer().encode(whole, /*add_special_tokens=*/true));
    return pinfer::copy_ids(ids, token_ids, num_tokens);
  });
}

void pinfer_embed_options_init(pinfer_embed_options* options) {
  *options = pinfer_embed_options();
  options->struct_size = sizeof(*options);
}

pinfer_status pinfer_embed(pinfer_engine* engine, const pinfer_embed_options* options,
                           pinfer_request** request, pinfer_error** error) {
  return pinfer::guarded(error, [&]() -> Status {
    pinfer_embed_options given;
    pinfer_embed_options_init(&given);
    given = pinfer::read_options(options, given);
    if (given.token_ids == nullptr && given.num_token_ids > 0) {
      return Status::invalid_argument("token_ids must not be NULL");
    }
    pinfer::EmbedRequest embed;
    embed.token_ids.assign(given.token_ids, given.token_ids + given.num_token_ids);
    embed.dimensions = given.dimensions;
    embed.priority = given.priority;
    embed.cache_salt = given.cache_salt == nullptr ? "" : given.cache_salt;
    embed.callback = pinfer::make_callback(given.output_callback, given.output_user_data);
    auto handle = std::make_unique<pinfer_request>();
    handle->engine = engine->engine;
    PINFER_ASSIGN_OR_RETURN(handle->handle, engine->engine->embed(std::move(embed)));
    *request = handle.release();
    return Status();
  });
}
