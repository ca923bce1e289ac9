// C interface: embeddings. See include/pinfer/pinfer.h.
#include "engine/c_api_support.h"
#include "engine/embedding_text.h"

using pinfer::Status;

pinfer_status pinfer_embed_tokenize(const pinfer_engine* engine, const char* text, size_t text_size,
                                    const char* prompt_name, int32_t** token_ids,
                                    size_t* num_tokens, pinfer_error** error) {
  pinfer::clear(token_ids, num_tokens);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(pinfer::check_given(
        {{"engine", engine}, {"token_ids", token_ids}, {"num_tokens", num_tokens}}));
    PINFER_RETURN_IF_ERROR(pinfer::check_array("text", text, text_size));
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

pinfer_status pinfer_embed_options_init(pinfer_embed_options* options, size_t struct_size) {
  return pinfer::guarded(nullptr, [&]() -> Status {
    return pinfer::write_options(pinfer_embed_options(), options, struct_size);
  });
}

pinfer_status pinfer_embed(pinfer_engine* engine, const pinfer_embed_options* options,
                           pinfer_request** request, pinfer_error** error) {
  pinfer::clear(request);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(
        pinfer::check_given({{"engine", engine}, {"options", options}, {"request", request}}));
    pinfer_embed_options given{};
    PINFER_RETURN_IF_ERROR(pinfer::read_options("options", options, &given));
    PINFER_RETURN_IF_ERROR(pinfer::check_array("token_ids", given.token_ids, given.num_token_ids));
    pinfer::EmbedRequest embed;
    embed.token_ids.assign(given.token_ids, given.token_ids + given.num_token_ids);
    embed.dimensions = given.dimensions;
    embed.priority = given.priority;
    embed.cache_salt = given.cache_salt == nullptr ? "" : given.cache_salt;
    embed.callback = pinfer::make_callback(given.output_callback, given.output_user_data);
    return pinfer::make_request(*engine, given.output_callback != nullptr, request,
                                [&] { return engine->engine->embed(std::move(embed)); });
  });
}
