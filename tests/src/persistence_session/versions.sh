# Prints the versions of the installed packages, of two files for that of Debian.
if [ -d /etc/apt ]; then
  dpkg-query -W -f 'apt ${Version}\n' kept
  cat /usr/lib/kept/version
fi
cd /
! python3 -m pip --version >/dev/null 2>&1 || python3 -c 'import kept; print("pip", kept.version)'
