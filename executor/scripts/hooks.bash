[ -n "${__sandbox_shell-}" ] || {
set +o history +H
shopt -s promptvars
unset TMOUT
export -n PROMPT_COMMAND
__sandbox_shell=$((RANDOM * 32768 + RANDOM))
__sandbox_id=0 __sandbox_status=0 __sandbox_ended=1 __sandbox_command=
__sandbox_start='\e]@token@\037start\037@token@\a'
__sandbox_prompt='\e]@token@\037${__sandbox_status}\037${!:-}\037${__sandbox_id}\037${__sandbox_shell}\037\u\037\h\037${PATH-}\037${PWD-}\037@token@\a'
__sandbox_load() {
  local status=$?
  __sandbox_id=$1
  if [[ -o emacs || -o vi ]]; then set +o emacs +o vi; fi
  [ -t 9 ] || builtin printf %s "${__sandbox_start@P}" >/dev/tty
  IFS= builtin read -r -d '' __sandbox_command <'@directory@/command' || :
  case $- in *x*) set +x; __sandbox_command=$'set -x\n'$__sandbox_command ;; esac
  [ -z "${2-}" ] || export PROMPT_COMMAND="{ __sandbox_status=\$? __sandbox_ended=1; [ -r '@directory@/hooks' ] && . '@directory@/hooks'; } 9>&2 2>/dev/null"
  return $status
}
__sandbox_end() {
  __sandbox_status=$? __sandbox_ended=1
  PROMPT_COMMAND='{ \__sandbox_show; } 9>&2 2>/dev/null'
  return $__sandbox_status
}
__sandbox_show() {
  local status=$?
  [ -n "$__sandbox_ended" ] || __sandbox_status=$status
  PROMPT_COMMAND='{ \__sandbox_show; } 9>&2 2>/dev/null'
  export -n PROMPT_COMMAND
  __sandbox_ended= PS0=$__sandbox_start PS1=$__sandbox_prompt PS2=
  [ -t 9 ] && return
  PS0= PS1=
  builtin printf %s "${__sandbox_prompt@P}" >/dev/tty
}
}
__sandbox_show
