// Prints the answer to a prompt: main BUNDLE PROMPT.
#include <iostream>
#include <pinfer/pinfer.hpp>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    pinfer::Engine engine(argv[1]);
    pinfer::SamplingParams params = engine.default_sampling_params();
    params.temperature = 0;
    params.max_tokens = 8;
    std::cout << engine.submit(engine.tokenize(argv[2]), params).wait().text;
  } catch (const pinfer::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
