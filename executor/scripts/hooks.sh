__sandbox_id=0
__sandbox_start='\e]@token@\037start\037@token@\a'
__sandbox_prompt='\e]@token@\037$?\037${!:-}\037${__sandbox_id}\0370\037@user@\037@host@\037${PATH-}\037${PWD-}\037@token@\a'
__sandbox_status() { return "$1"; }
__sandbox_load() {
  set -- "$?" "$@"
  __sandbox_id=$2
  [ -z "${3-}" ] || stty sane </dev/tty
  . '@directory@/command'
  case $- in *x*) set +x; __sandbox_command="set -x
$__sandbox_command" ;; esac
  printf %s "$__sandbox_start" >/dev/tty
  return "$1"
}
__sandbox_end() {
  set -- "$?"
  PS1=$__sandbox_prompt PS2=
  if ! [ -t 1 ]; then
    __sandbox_status "$1"
    eval "printf %s \"$__sandbox_prompt\"" >/dev/tty
  fi
  return "$1"
}
