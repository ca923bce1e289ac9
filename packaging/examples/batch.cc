// pinfer_batch BUNDLE [MAX_TOKENS] < prompts: answers a file of prompts, one a line, in order.
//
// Everything is submitted at once: the engine runs as many requests together as fit, and starts the
// next one as soon as one ends. Answers that are ready early wait in their requests.
#include <cstdlib>
#include <iostream>
#include <optional>
#include <pinfer/pinfer.hpp>
#include <string>
#include <vector>

namespace {

int answer_all(const std::string& bundle, int max_tokens) {
  pinfer::Engine engine(bundle);
  pinfer::SamplingParams params = engine.default_sampling_params();
  params.temperature = 0;
  params.max_tokens = max_tokens;

  // A prompt that is refused (longer than the context, say) costs its own answer only.
  struct Answer {
    std::optional<pinfer::Request> request;
    std::string refusal;
  };
  std::vector<Answer> answers;
  for (std::string line; std::getline(std::cin, line);) {
    Answer& answer = answers.emplace_back();
    try {
      answer.request = engine.submit(engine.tokenize(line), params);
    } catch (const pinfer::Error& error) {
      answer.refusal = error.what();
    }
  }

  int num_failed = 0;
  for (Answer& answer : answers) {
    const pinfer::Output output = answer.request ? answer.request->wait() : pinfer::Output();
    if (!answer.request || output.finish_reason == "error") {
      const std::string& reason = answer.request ? output.error_message : answer.refusal;
      std::cerr << "error: " << reason << "\n";
      ++num_failed;
    }
    std::cout << output.text << "\n";
  }
  const pinfer_metrics metrics = engine.metrics();
  std::cerr << answers.size() << " prompts, " << metrics.generation_tokens << " tokens, "
            << metrics.num_steps << " steps\n";
  return num_failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: pinfer_batch BUNDLE [MAX_TOKENS] < prompts\n";
    return 2;
  }
  try {
    return answer_all(argv[1], argc == 3 ? std::atoi(argv[2]) : 32);
  } catch (const pinfer::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
