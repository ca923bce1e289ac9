# bash completion of pinfer. The program knows its flags.
eval "$(pinfer completion bash)"
