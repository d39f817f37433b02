# Completes skein's commands and options from its own --help, which each shell asks once for each command.
declare -gA _skein_words

_skein_help() {
  local command=$1
  if [ -z "${_skein_words[${command:-none}]+set}" ]; then
    # A command, or options such as "-h,--help", begin a line after two spaces.
    _skein_words[${command:-none}]=$(skein $command --help 2>/dev/null |
      sed -nE 's/^  ([a-z][a-z-]*|-[a-zA-Z0-9,-]+)( .*)?$/\1/p' | tr ',' '\n')
  fi
}

_skein() {
  local word=${COMP_WORDS[COMP_CWORD]} command= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      --) return 124 2>/dev/null ;;  # skein run -- PROGRAM …: as without skein
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  _skein_help "$command"
  [[ -n $command && $word != -* ]] || mapfile -t COMPREPLY < <(compgen -W "${_skein_words[${command:-none}]}" -- "$word")
}

complete -o default -F _skein skein
