while IFS= read -r line || [ -n "$line" ]; do
  text+=$line$'\n'
  case $line in *\\) continue ;; esac
  if eval "if false; then f() { ("$'\n'"$text"$'\n'") }; fi" 2>/dev/null; then
    printf '%s\0' "$text"
    text=
  fi
done
printf '%s' "$text"
