# bash completion of pinfer-export. The program knows its flags.
eval "$(_PINFER_EXPORT_COMPLETE=bash_source pinfer-export)"
